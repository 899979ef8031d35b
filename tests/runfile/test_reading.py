"""What the reading side makes of run files: which rows count, what is refused, and what is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.support.edited import edited
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.engine.events import Kind, State, Status
from areabench.errors import RunFileError, UserError
from areabench.experiment.parse import parse_experiment
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import Run, open_run
from areabench.settings.parse import to_toml

EXPERIMENT = quadratic("iterations = 60", dimension=3) + "[record]\ninterval_s = 0.05\n"
FLOAT = np.dtype(np.float64)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 60 events."""
    return simulated(tmp_path_factory.mktemp("runs") / "whole.h5", EXPERIMENT)


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copyfile(whole, tmp_path / "run.h5"))


def set_state(file: h5py.File, state: State, **numbers: float) -> None:
    status = file["status"][()]
    status["state"] = state.text.encode()
    for name, value in numbers.items():
        status[name] = value
    file["status"][...] = status


def change(path: Path, name: str, column: str, number: int, value: object) -> None:
    with edited(path) as file:
        rows = file[name][()]
        rows[column][number] = value
        file[name][...] = rows


# --------------------------------------------------------------------------------------------------- last rows


def test_a_running_run_has_as_many_snapshots_as_events_and_models(path: Path) -> None:
    with edited(path) as file:
        set_state(file, State.RUNNING)
        file["snapshots/model"].resize(9, axis=0)
    with open_run(path) as run:
        assert (len(run.snapshot_index), len(run.models), len(run.metrics_array)) == (9, 9, 0)
    with edited(path) as file:
        file["events"].resize(4, axis=0)
    with open_run(path) as run:
        assert (run.snapshot_index["event"] <= 4).all()
        assert 0 < len(run.snapshot_index) < 9


def test_a_run_that_was_killed_is_counted_again(path: Path) -> None:
    with edited(path) as file:
        set_state(file, State.RUNNING, updates=5, drain_s=0.5, lost=2)
    with open_run(path) as run:
        events = run.events_array
        kinds = np.bincount(events["kind"], minlength=6)
        reason, end_s = run.status.reason, float(events["time_s"][-1])
        assert run.status == Status(State.RUNNING, reason, end_s, kinds[0], kinds[2], kinds[1], drain_s=0.5, lost=2)
        assert len(run.metrics_array) == len(run.snapshot_index)  # it was killed after the evaluation
    with edited(path) as file:
        file["events"].resize(0, axis=0)
    with open_run(path) as run:
        assert (run.status.end_s, run.status.updates) == (0.0, 0)


# ------------------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("client", 2, "served counts values from 0 to 2"),
        ("client", -1, "served counts values from -1 to 1"),
        ("staleness", 60, r"staleness counts values from \d+ to 60"),
        ("staleness", -1, r"staleness counts values from -1 to \d+"),
    ],
)
def test_counts_beyond_what_is_there_are_damage(column: str, value: int, words: str, path: Path) -> None:
    change(path, "events", column, 0, value)
    with open_run(path) as run, pytest.raises(RunFileError, match=f"is damaged \\(/events: {words}\\)"):
        _ = run.served, run.staleness


def test_counts_at_their_bounds_are_none(path: Path) -> None:
    change(path, "events", "staleness", 0, 59)
    with open_run(path) as run:
        assert run.staleness[59] == 1
        assert run.served.sum() == run.staleness.sum() == run.status.updates


@pytest.mark.parametrize(
    ("name", "column", "value", "attribute", "words"),
    [
        ("events", "kind", 8, "events_array", "/events has unknown kinds"),
        ("clients", "rank", 3, "clients_array", "/clients has unknown ranks"),
    ],
)
def test_what_cannot_be_true_is_damage(
    name: str, column: str, value: int, attribute: str, words: str, path: Path
) -> None:
    change(path, name, column, 1, value)
    with open_run(path) as run, pytest.raises(RunFileError, match=rf"is damaged \({words}\)"):
        getattr(run, attribute)


def test_a_file_that_is_refused_is_closed(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["experiment"] = EXPERIMENT.replace('"area"', '"arena"')
    with pytest.raises(UserError, match="arena"):
        open_run(path)
    with h5py.File(path, "r+") as file:  # HDF5 refuses where it is open for reading
        del file.attrs["experiment"]
    with pytest.raises(RunFileError, match="is damaged"):
        open_run(path)
    with h5py.File(path, "r+"):
        pass


def test_all_models_or_the_last_one(whole: Path, tmp_path: Path) -> None:
    with open_run(whole) as run:
        count = len(run.snapshot_index)
        assert [run.has_model(number) for number in (0, -1, count - 1)] == [True, True, True]
        assert run.model(2 - count).tolist() == run.models[2].tolist()
        assert run.model_size == (3, FLOAT)
    last = simulated(tmp_path / "last.h5", EXPERIMENT, ["record.models=last"])
    with open_run(whole) as every, open_run(last) as run:
        found = [run.has_model(number) for number in (-1, count - 1, 0, count - 2, count)]
        assert found == [True, True, False, False, False]
        assert run.model(-1).tolist() == run.model(count - 1).tolist() == every.model(-1).tolist()
        with pytest.raises(IndexError):
            every.model(10_000)
        with pytest.raises(RunFileError, match=r"keeps the last model only; run it with record.models=all for the"):
            run.model(0)


def test_a_summary_weighs_staleness(path: Path) -> None:
    with open_run(path) as run:
        used = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        assert run.summary().mean_staleness == pytest.approx(used["staleness"].mean())
        assert (run.summary().transport, run.summary().end_s) == ("simulator", run.status.end_s)
    with edited(path) as file:
        rows = file["events"][()]
        rows["kind"] = Kind.DISCARDED
        file["events"][...] = rows
    with open_run(path) as run:
        assert np.isnan(run.summary().mean_staleness)
        assert (run.staleness.tolist(), run.served.tolist()) == ([], [0, 0])


# --------------------------------------------------------------------------------------------------- provenance


def test_hosts_are_named_once_and_ranks_counted() -> None:
    found = gather_provenance("mpi", "", "", 0, "Open MPI", ["b", "a", "b"])
    assert (found.ranks, found.hosts, found.mpi) == (3, "a,b", "Open MPI")
    alone = gather_provenance("simulator", "", "", 7)
    assert (alone.ranks, alone.seed) == (1, 7)
    assert alone.hosts


def test_the_experiment_of_a_run_is_written_as_it_was_read(whole: Path) -> None:
    with open_run(whole) as run:
        assert isinstance(run, Run)
        assert to_toml(run.experiment) == to_toml(parse_experiment(EXPERIMENT))
