"""Run files that earlier versions wrote, one per schema version and transport: they must always read and replay.

The numbers below were printed by those versions. A change of the schema adds a reader and files like these; it does not
change the numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.lib.recfunctions import repack_fields

from areabench import open_run
from areabench.cli.main import main
from areabench.engine.events import Kind, State
from areabench.engine.state import Tally
from areabench.errors import RunFileError, UncheckedFile
from areabench.experiment.parse import load_experiment
from areabench.runfile.open import current_events
from areabench.runfile.record import Earlier, Recorder
from areabench.runfile.recover import salvage
from areabench.runfile.schema import EVENT_UNTIL_7
from areabench.views.json import to_json

pytestmark = pytest.mark.filterwarnings("ignore::areabench.errors.UncheckedFile")


@dataclass(frozen=True)
class Written:
    """What the earlier version read from one file; digests are the first 16 digits of the SHA-256 of an array."""

    schema: int
    revision: str
    transport: str
    events: tuple[int, ...]  # by kind
    train_loss: float  # of the last snapshot
    average_loss: float
    staleness: tuple[int, ...]
    drain_s: float
    digests: dict[str, str]

    @property
    def path(self) -> Path:
        """The run file; the experiment is beside it."""
        return Path(__file__).parent / f"schema{self.schema}" / f"{self.transport}.h5"

    @property
    def count(self) -> int:
        """Events in all."""
        return sum(self.events)


SIMULATOR_6 = Written(
    6, "5d505519977e", "simulator", (54, 13, 0, 0, 0, 0), 1.7840645505611463, 2.186466422034381, (19, 33, 2), 0.0,
    {
        "events_array": "021c82d78b06ccf4", "snapshot_index": "9c71f56d30bd6e7d", "metrics_array": "86903ffa9a688499",
        "clients_array": "ef889c3a10c123f5", "models": "6b1fa7ab34b3c0da", "averages": "33d497461a32f039",
    },
)  # fmt: skip
MPI_6 = Written(
    6, "5d505519977e", "mpi", (54, 13, 1, 0, 0, 0), 1.7835107726645785, 2.18525626774324, (20, 32, 2),
    0.12943961599967224,
    {
        "events_array": "5b64d9e3788063aa", "snapshot_index": "5473825e339b9403", "metrics_array": "3915a0cd2584f44e",
        "clients_array": "2d9b7880cc08d24d", "models": "0ec4f9e88ce595e4", "averages": "4751762ab97c2fe1",
    },
)  # fmt: skip
SIMULATOR_7 = Written(
    7, "6826045de401", "simulator", (54, 13, 0, 0, 0, 0), 1.7082338631754732, 1.9658058877397706, (19, 33, 2), 0.0,
    {
        "events_array": "65fa360c1c615d1e", "snapshot_index": "3a1af398b5348ab6", "metrics_array": "a2705d112fa776e7",
        "clients_array": "ef889c3a10c123f5", "models": "7e1354eb17054672", "averages": "82e4e6d0e72ab38e",
    },
)  # fmt: skip
MPI_7 = Written(
    7, "6826045de401", "mpi", (54, 13, 2, 0, 0, 0), 1.7082338631754732, 1.9658058877397706, (19, 33, 2),
    0.12206813299997066,
    {
        "events_array": "23cf8027a0b296fd", "snapshot_index": "ffdf0ae5fc6046be", "metrics_array": "a2705d112fa776e7",
        "clients_array": "2d9b7880cc08d24d", "models": "7e1354eb17054672", "averages": "82e4e6d0e72ab38e",
    },
)  # fmt: skip
SIMULATOR_8 = replace(SIMULATOR_7, schema=8, revision="800930e21c70")  # the same bits
MPI_8 = Written(
    8, "800930e21c70", "mpi", (54, 13, 2, 0, 0, 0), 1.7081886846211316, 1.965394607538875, (20, 32, 2),
    0.12059798400014188,
    {
        "events_array": "8f3445f896358844", "snapshot_index": "1e5aa56d565222ca", "metrics_array": "e6deecab9d3c9f5e",
        "clients_array": "2d9b7880cc08d24d", "models": "6395b2298fac8eda", "averages": "543dcea2a7a7ea5a",
    },
)  # fmt: skip
WRITTEN = (SIMULATOR_6, MPI_6, SIMULATOR_7, MPI_7, SIMULATOR_8, MPI_8)
every = pytest.mark.parametrize("written", WRITTEN, ids=lambda written: f"{written.transport} {written.schema}")
unchecked = pytest.mark.parametrize("written", [SIMULATOR_6, MPI_6], ids=["simulated", "on ranks"])


@every
def test_an_older_file_reads_as_it_was_written(written: Written) -> None:
    with open_run(written.path) as run:
        assert run.experiment == load_experiment(written.path.with_name("quadratic.toml"))
        assert (run.provenance.transport, run.provenance.git_revision) == (written.transport, written.revision)
        assert (run.status.state, run.status.reason, run.status.end_s) == (State.DONE, "horizon of 2 s", 2.0)
        assert (run.status.updates, run.status.server_steps, run.status.discarded) == written.events[:3]
        assert run.status.drain_s == written.drain_s
        assert tuple(np.bincount(run.events_array["kind"], minlength=6)) == written.events
        assert run.metrics_array["train_loss"][-1] == written.train_loss
        assert run.metrics_array["average_loss"][-1] == written.average_loss
        assert (tuple(run.staleness), tuple(run.served)) == (written.staleness, (22, 17, 15))
        arrays = {name: getattr(run, name) for name in written.digests}
        arrays["events_array"] = repack_fields(arrays["events_array"][list(EVENT_UNTIL_7.names or ())])
        found = {name: hashlib.sha256(array.tobytes()).hexdigest()[:16] for name, array in arrays.items()}
        assert found == written.digests


@every
def test_the_local_steps_of_an_older_file_are_those_of_its_experiment(written: Written) -> None:
    """The files since schema 7 have two per update, and none in the first message of a client."""
    with open_run(written.path) as run:
        kind, number, local_steps = (run.events_array[name] for name in ("kind", "round", "local_steps"))
    expected = np.ones(written.count) if written.schema == 6 else np.where(number == 0, 0, 2)
    assert local_steps.tolist() == np.where(kind == Kind.STEP, 0, expected).tolist()


@pytest.mark.parametrize("written", [SIMULATOR_6, SIMULATOR_7, SIMULATOR_8], ids=lambda written: written.schema)
def test_a_run_of_today_records_the_local_steps_that_are_filled_in(written: Written, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    assert main(["simulate", str(written.path.with_name("quadratic.toml")), "-o", str(path)]) == 0
    with open_run(path) as new, open_run(written.path) as old:
        for name in ("kind", "client", "round", "local_steps"):
            assert new.events_array[name].tolist() == old.events_array[name].tolist()


def test_rows_that_are_no_update_have_no_local_steps() -> None:
    rows = np.zeros(6, EVENT_UNTIL_7)
    rows["kind"] = np.arange(6)
    experiment = load_experiment(SIMULATOR_7.path.with_name("quadratic.toml"))
    rows["round"] = 3
    assert current_events(rows, experiment)["local_steps"].tolist() == [2, 0, 2, 2, 0, 0]


@every
def test_an_older_file_is_recovered_exactly(written: Written, tmp_path: Path) -> None:
    made = tmp_path / "saved.h5"
    assert salvage(written.path, made, None).everything
    with open_run(made) as new, open_run(written.path) as old:
        assert new.status == old.status
        for name in written.digests:
            assert getattr(new, name).dtype == getattr(old, name).dtype
            assert getattr(new, name).tobytes() == getattr(old, name).tobytes()
        assert to_json(new.diagnosis) == to_json(old.diagnosis)


@every
def test_an_older_run_is_continued_in_a_file_of_this_schema(written: Written, tmp_path: Path) -> None:
    path = Path(shutil.copyfile(written.path, tmp_path / "run.h5"))
    with open_run(path) as run:
        earlier = Earlier(run, 20, 2, Tally())
        recorder = Recorder.continued(run, earlier)
        recorder.begin(run.provenance, run.clients_array, earlier)
        recorder.close()
        with open_run(path) as new:
            assert new.events_array.tobytes() == run.events_array[:20].tobytes()


@every
def test_an_older_file_is_watched(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--once", "--json", str(written.path)]) == 0
    frame = json.loads(capsys.readouterr().out)
    assert (frame["updates"], frame["no_steps"], frame["cancelled"]) == (54, 0, 0)


@every
def test_an_older_file_is_printed_and_replayed(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(written.path)]) == 0
    assert f"{written.train_loss:.4g}" in capsys.readouterr().out
    assert main(["show", str(written.path)]) == 0
    assert f"{written.train_loss:.4f}" in capsys.readouterr().out
    assert main(["replay", str(written.path)]) == 0
    said = f"{written.count} events (by checksum) and 5 snapshots (bit for bit) replayed, all equal"
    assert said in capsys.readouterr().out


@every
def test_the_diagnosis_of_an_older_file_reads(written: Written) -> None:
    with open_run(written.path) as run:
        if written.transport == "simulator":
            assert run.diagnosis is None
        else:
            assert run.diagnosis is not None
            assert (run.diagnosis.verdict, run.diagnosis.updates, run.diagnosis.ranks) == ("delay-bound", 54, 4)
            assert run.diagnosis.clients["served"].tolist() == [22, 17, 15]
            assert 0 < run.diagnosis.server_load < 100
            for name in ("server_polling", "server_serving", "excess_polling_s"):  # since schema 9
                assert math.isnan(getattr(run.diagnosis, name))


@unchecked
def test_a_file_of_schema_6_is_said_to_have_no_checksums(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UncheckedFile, match=r"\.h5: carries no checksums"), open_run(written.path) as run:
        assert not run.has_checksums
    assert main(["summary", str(SIMULATOR_6.path), str(MPI_6.path)]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"areabench: {SIMULATOR_6.path}: carries no checksums: it was written by an earlier version")
    assert said.endswith("damage may go unnoticed (and 1 more)\n")


@pytest.mark.parametrize("written", WRITTEN[2:], ids=lambda written: f"{written.transport} {written.schema}")
def test_a_changed_bit_in_an_older_file_is_noticed(written: Written, tmp_path: Path) -> None:
    path = Path(shutil.copyfile(written.path, tmp_path / "run.h5"))
    with h5py.File(path, "r+") as file:
        file["events"][3, "digest"] ^= np.uint64(1)
    with pytest.raises(RunFileError, match=r"rows 0 to \d+ of /events do not have their checksum"):
        open_run(path)


@pytest.mark.parametrize(("spoilt", "whole"), [(None, 5), (4, 4), (2, 2)])
def test_models_that_a_killed_run_of_schema_6_did_not_complete_are_left_out(
    spoilt: int | None, whole: int, tmp_path: Path
) -> None:
    """There are no checksums of rows; each model has one in the index."""
    path = Path(shutil.copyfile(SIMULATOR_6.path, tmp_path / "run.h5"))
    with h5py.File(path, "r+") as file:
        status = file["status"][()]
        status["state"] = State.RUNNING.text.encode()
        file["status"][...] = status
        if spoilt is not None:
            file["snapshots/model"][spoilt] = 0.0
    with open_run(path) as run:
        assert (len(run.snapshot_index), len(run.models)) == (whole, whole)
        assert len(run.metrics_array) == (whole if whole == 5 else 0)
