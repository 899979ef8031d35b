"""Run files that an earlier version wrote (commit 5d50551, schema version 6): they must always read and replay.

The numbers below were printed by that version. A change of the schema adds a reader and a file like these; it does not
change this test.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

from areabench import open_run
from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import UncheckedFile
from areabench.experiment.parse import load_experiment

FOLDER = Path(__file__).parent / "schema6"
pytestmark = pytest.mark.filterwarnings("ignore::areabench.errors.UncheckedFile")


@dataclass(frozen=True)
class Written:
    """What the earlier version read from one file; digests are the first 16 digits of the SHA-256 of an array."""

    transport: str
    events: tuple[int, ...]  # by kind
    train_loss: float  # of the last snapshot
    average_loss: float
    staleness: tuple[int, ...]
    drain_s: float
    digests: dict[str, str]

    @property
    def path(self) -> Path:
        """The run file."""
        return FOLDER / f"{self.transport}.h5"


SIMULATOR = Written(
    "simulator", (54, 13, 0, 0, 0, 0), 1.7840645505611463, 2.186466422034381, (19, 33, 2), 0.0,
    {
        "events_array": "021c82d78b06ccf4", "snapshot_index": "9c71f56d30bd6e7d", "metrics_array": "86903ffa9a688499",
        "clients_array": "ef889c3a10c123f5", "models": "6b1fa7ab34b3c0da", "averages": "33d497461a32f039",
    },
)  # fmt: skip
MPI = Written(
    "mpi", (54, 13, 1, 0, 0, 0), 1.7835107726645785, 2.18525626774324, (20, 32, 2), 0.12943961599967224,
    {
        "events_array": "5b64d9e3788063aa", "snapshot_index": "5473825e339b9403", "metrics_array": "3915a0cd2584f44e",
        "clients_array": "2d9b7880cc08d24d", "models": "0ec4f9e88ce595e4", "averages": "4751762ab97c2fe1",
    },
)  # fmt: skip
both = pytest.mark.parametrize("written", [SIMULATOR, MPI], ids=["simulated", "on ranks"])


@both
def test_a_file_of_schema_6_reads_as_it_was_written(written: Written) -> None:
    with open_run(written.path) as run:
        assert run.experiment == load_experiment(FOLDER / "quadratic.toml")
        assert (run.provenance.transport, run.provenance.git_revision) == (written.transport, "5d505519977e")
        assert (run.status.state, run.status.reason, run.status.end_s) == (State.DONE, "horizon of 2 s", 2.0)
        assert (run.status.updates, run.status.server_steps, run.status.discarded) == written.events[:3]
        assert run.status.drain_s == written.drain_s
        assert tuple(np.bincount(run.events_array["kind"], minlength=6)) == written.events
        assert run.metrics_array["train_loss"][-1] == written.train_loss
        assert run.metrics_array["average_loss"][-1] == written.average_loss
        assert (tuple(run.staleness), tuple(run.served)) == (written.staleness, (22, 17, 15))
        found = {name: hashlib.sha256(getattr(run, name).tobytes()).hexdigest()[:16] for name in written.digests}
        assert found == written.digests


@both
def test_a_file_of_schema_6_is_printed_and_replayed(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(written.path)]) == 0
    assert f"{written.train_loss:.4g}" in capsys.readouterr().out
    assert main(["show", str(written.path)]) == 0
    assert f"{written.train_loss:.4f}" in capsys.readouterr().out
    assert main(["replay", str(written.path)]) == 0
    count = sum(written.events)
    assert f"{count} events (by checksum) and 5 snapshots (bit for bit) replayed, all equal" in capsys.readouterr().out


@both
def test_a_file_of_schema_6_is_said_to_have_no_checksums(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UncheckedFile, match=r"\.h5: carries no checksums"), open_run(written.path) as run:
        assert not run.has_checksums
    assert main(["summary", str(SIMULATOR.path), str(MPI.path)]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"areabench: {SIMULATOR.path}: carries no checksums: it was written by an earlier version")
    assert said.endswith("damage may go unnoticed (and 1 more)\n")


def test_the_diagnosis_of_a_file_of_schema_6_reads() -> None:
    with open_run(MPI.path) as run:
        assert run.diagnosis is not None
        assert (run.diagnosis.verdict, run.diagnosis.updates, run.diagnosis.ranks) == ("delay-bound", 54, 4)
        assert run.diagnosis.clients["served"].tolist() == [22, 17, 15]
    with open_run(SIMULATOR.path) as run:
        assert run.diagnosis is None


@pytest.mark.parametrize(("spoilt", "whole"), [(None, 5), (4, 4), (2, 2)])
def test_models_that_a_killed_run_of_schema_6_did_not_complete_are_left_out(
    spoilt: int | None, whole: int, tmp_path: Path
) -> None:
    """There are no checksums of rows; each model has one in the index."""
    path = Path(shutil.copyfile(SIMULATOR.path, tmp_path / "run.h5"))
    with h5py.File(path, "r+") as file:
        status = file["status"][()]
        status["state"] = State.RUNNING.text.encode()
        file["status"][...] = status
        if spoilt is not None:
            file["snapshots/model"][spoilt] = 0.0
    with open_run(path) as run:
        assert (len(run.snapshot_index), len(run.models)) == (whole, whole)
        assert len(run.metrics_array) == (whole if whole == 5 else 0)
