"""A run from its experiment to its file: when checkpoints are written, what is shown and kept, and how it may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.edited import edited

from areabench.engine.events import Kind, State, Status
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import ClientsLost, RunFailure, RunFileError, WriteFailure
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.kernels import kernels_in_force
from areabench.methods.area import Area
from areabench.methods.criteria import EveryUpdates
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.median import Median
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.iid import Iid
from areabench.progress import ProgressLine, Style
from areabench.runfile.checkpoint import Checkpoint, Pending, write_checkpoint
from areabench.runfile.layout import ModelsInMemory, checkpoint_path
from areabench.runfile.read import open_run
from areabench.runfile.record import Recorder
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports import session
from areabench.transports.options import RunOptions
from areabench.transports.replay import Replay
from areabench.transports.session import (
    checkpoint_of,
    continue_recorder,
    open_recorder,
    record_run,
    simulate_run,
    simulate_together,
    solve_ahead,
)
from areabench.transports.signals import CheckpointTriggers
from areabench.transports.simulator import LaneRecorder, Simulator

EXPERIMENT = Experiment(
    clients=Clients(count=3),
    method=Area(step_size=0.1),
    stop=Stop(iterations=30),
    problem=Quadratic(dimension=2),
    aggregation=EveryUpdates(updates=3),
    record=Record(interval_s=0.2),
)
LANES = replace(
    EXPERIMENT, problem=Logistic(batch_size=4), split=Iid(), record=Record(interval_s=0.2, models="last", events=False),
    data=Synthetic(train_samples=30, test_samples=10, features=3, classes=3), stop=Stop(horizon_s=1.0),
)  # fmt: skip


def options(path: Path, checkpoint_s: float | None = None, *, force: bool = False) -> RunOptions:
    return RunOptions(path, path.parent, "a test", force, Style.NONE, checkpoint_s)


class Shown(ProgressLine):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__("", None, Style.NONE)
        self.told, self.remarks = list[tuple[float, int]](), list[str]()

    def __call__(self, time_s: float, updates: int) -> None:
        self.told.append((time_s, updates))

    def close(self, remark: str = "") -> None:
        self.remarks.append(remark)


# ------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("due", "written"), [([3, 7], [2, 8]), ([], [])])
def test_checkpoints_are_written_when_they_are_due(
    due: list[int], written: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, looks = list[int](), [0]

    def is_due(_triggers: CheckpointTriggers) -> bool:
        looks[0] += 1
        return looks[0] in due

    def write(path: Path, checkpoint: Checkpoint, clients: int) -> None:
        found.append(checkpoint.run_state.tally.events)
        with open_run(path) as run:
            assert len(run.events_array) == found[-1]  # what it counts is in the file
        write_checkpoint(path, checkpoint, clients)

    monkeypatch.setattr(CheckpointTriggers, "due", is_due)
    monkeypatch.setattr(session, "write_checkpoint", write)
    status = simulate_run(EXPERIMENT, options(tmp_path / "run.h5", 60.0))
    assert (status.state, found) == (State.DONE, written)
    assert not checkpoint_path(tmp_path / "run.h5").exists()  # the run has ended


def test_without_an_interval_no_checkpoint_is_thought_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointTriggers, "due", lambda _triggers: 1 / 0)
    assert simulate_run(EXPERIMENT, options(tmp_path / "run.h5")).state == State.DONE


def test_a_new_run_discards_the_checkpoint_of_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "run.h5.checkpoint").touch()
    scenario = build_scenario(EXPERIMENT, tmp_path)
    recorder = open_recorder(scenario, options(tmp_path / "run.h5"))
    assert [path.name for path in tmp_path.glob("run.h5*")] == []
    del recorder


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped after ten events."""
    looks = [0]

    def due(triggers: CheckpointTriggers) -> bool:
        looks[0] += 1
        triggers.stop_signal = "SIGTERM" if looks[0] > 10 else ""
        return looks[0] > 10

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointTriggers, "due", due)
        status = simulate_run(EXPERIMENT, options(tmp_path / "run.h5", 60.0))
    assert (status.state, status.reason, status.updates + status.server_steps) == (State.STOPPED, "SIGTERM", 13)
    return tmp_path / "run.h5"


def cut(path: Path, name: str, count: int) -> None:
    with edited(path) as file:
        file[name].resize(count, axis=0)


@pytest.mark.parametrize(("name", "says"), [("events", "12 events and 3"), ("snapshots/index", "13 events and 2")])
def test_a_file_with_fewer_rows_than_its_checkpoint_is_refused(name: str, says: str, stopped: Path) -> None:
    with open_run(stopped) as run:
        scenario = build_scenario(run.experiment, stopped.parent)
        run_state = checkpoint_of(run, scenario).run_state
        assert (run_state.tally.events, run_state.snapshots) == (13, 3)
    cut(stopped, name, 12 if name == "events" else 2)
    if name == "snapshots/index":
        cut(stopped, "snapshots/model", 2)
    with open_run(stopped) as run, pytest.raises(RunFileError, match=f"has {says} snapshots, fewer than its check"):
        checkpoint_of(run, scenario)


def test_a_run_is_resumed_once_more(stopped: Path) -> None:
    with open_run(stopped) as run:
        scenario = build_scenario(run.experiment, stopped.parent)
        checkpoint = checkpoint_of(run, scenario)
        assert run.provenance.resumed_at == ""
        continue_recorder(run, checkpoint, run.clients_array, scenario, options(stopped), kernels_in_force()).close()
    with open_run(stopped) as run:
        first = run.provenance.resumed_at
        assert "," not in first
        continue_recorder(run, checkpoint, run.clients_array, scenario, options(stopped), kernels_in_force()).close()
    with open_run(stopped) as run:
        assert run.provenance.resumed_at.startswith(f"{first}, ")
        assert len(run.events_array) == 13


# ------------------------------------------------------------------------------------------------------- shown


def recorded(path: Path, run: Callable[[], Status], experiment: Experiment = EXPERIMENT) -> Shown:
    """A run file of a run that does as told."""
    scenario, shown = build_scenario(experiment, path.parent), Shown()
    recorder = open_recorder(scenario, options(path))
    recorder.begin(session._simulator_provenance(scenario, options(path)), scenario.client_table())
    recorder.snapshot(0.0, 0, scenario.start)
    try:
        record_run(recorder, scenario, shown, run)
    finally:
        assert recorder._given_up  # it is closed
    return shown


@pytest.mark.parametrize(
    ("state", "remarks", "rows"),
    [(State.DONE, ["evaluating the snapshots", ""], 1), (State.STOPPED, [""], 0), (State.FAILED, [""], 0)],
)
def test_a_run_that_has_ended_is_evaluated(state: State, remarks: list[str], rows: int, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    assert recorded(path, lambda: Status(state, "as told", 1.0, 0, 0, 0)).remarks == remarks
    with open_run(path) as run:
        assert (run.status.state, run.status.reason, len(run.metrics_array)) == (state, "as told", rows)


class Raised:
    """A run that ends with an error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self) -> Status:
        raise self._error


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [
        (ClientsLost([1, 2]), ClientsLost, "clients 1, 2 lost"),
        (ValueError("wrong"), ValueError, "ValueError: wrong"),
        (KeyboardInterrupt(), KeyboardInterrupt, "KeyboardInterrupt: "),
        (SystemExit(3), RunFailure, "the code of this experiment called sys.exit(3); let it return, or raise an error"),
    ],
)
def test_a_run_that_fails_says_why(
    error: BaseException, raised: type[BaseException], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(raised):
        recorded(tmp_path / "run.h5", Raised(error))
    with open_run(tmp_path / "run.h5") as run:
        assert (run.status.state, run.status.reason) == (State.FAILED, reason)


def test_the_first_failure_is_the_one_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_recorder: Recorder, _status: Status) -> None:
        raise WriteFailure("no room")

    monkeypatch.setattr(Recorder, "set_status", full)
    scenario = build_scenario(EXPERIMENT, tmp_path)
    recorder = open_recorder(scenario, options(tmp_path / "run.h5"))
    recorder.begin(session._simulator_provenance(scenario, options(tmp_path / "run.h5")), scenario.client_table())
    with pytest.raises(ZeroDivisionError):
        record_run(recorder, scenario, Shown(), Raised(ZeroDivisionError()))
    monkeypatch.undo()
    recorder.close()


@pytest.mark.parametrize(
    ("problem", "solved"),
    [(Quadratic(dimension=2), False), (Median(dimension=2, samples=3), True)],
    ids=lambda value: str(value)[:9],
)
def test_what_is_solved_before_the_clock_starts_is_told(problem: Any, solved: bool, tmp_path: Path) -> None:
    shown = Shown()
    solve_ahead(build_scenario(replace(EXPERIMENT, problem=problem), tmp_path), shown, tmp_path)
    assert shown.remarks == (["solving for constants and minimiser", ""] if solved else [])


def test_the_progress_of_a_run_and_of_its_replay_is_told(tmp_path: Path) -> None:
    simulate_run(EXPERIMENT, options(tmp_path / "run.h5"))
    scenario, simulated, replayed = build_scenario(EXPERIMENT, tmp_path), Shown(), Shown()
    Simulator(scenario, LaneRecorder(1), simulated).run()
    with open_run(tmp_path / "run.h5") as run:
        Replay(run, scenario, replayed).run()
        events = run.events_array
    assert replayed.told == [(row["time_s"], number + 1) for number, row in enumerate(events)]
    updates = events[events["kind"] == Kind.UPDATE]
    assert simulated.told == [(row["time_s"], number + 1) for number, row in enumerate(updates)]


# ---------------------------------------------------------------------------------------------------- together


def test_one_experiment_alone_has_no_lanes(tmp_path: Path) -> None:
    (status,) = simulate_together([LANES], [tmp_path / "one.h5"], options(tmp_path / "none.h5"))
    assert status.state == State.DONE
    with open_run(tmp_path / "one.h5") as run:
        assert (run.provenance.lanes, run.provenance.lane) == (1, 0)
    assert [path.name for path in tmp_path.glob("*.h5")] == ["one.h5"]


@pytest.mark.parametrize("folders", [None, ("a", "b")])
def test_lanes_find_their_modules_where_the_experiment_says(
    folders: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Sequence[str]]()

    def build(experiment: Experiment, cache: Path, where: Sequence[str] = ()) -> Scenario:
        asked.append(where)
        return build_scenario(replace(experiment, module_folders=None), cache)

    monkeypatch.setattr(session, "build_scenario", build)
    lanes = [replace(LANES, module_folders=folders, method=Area(step_size=size)) for size in (0.1, 0.2)]
    simulate_together(lanes, [tmp_path / "0.h5", tmp_path / "1.h5"], options(tmp_path / "none.h5"))
    simulate_run(replace(EXPERIMENT, module_folders=folders), options(tmp_path / "2.h5"))
    assert asked == [folders or ()] * 2


# --------------------------------------------------------------------------------------------------- simulator


def test_a_checkpoint_has_the_arrivals_to_come_in_their_order(tmp_path: Path) -> None:
    found = list[Checkpoint]()

    def pause(simulator: Simulator) -> Status | None:
        found.append(simulator.checkpoint(ModelsInMemory()))
        return None

    fixed = replace(EXPERIMENT, delays=FixedDelays(), rates=ListedRates(values=(4.0, 2.0, 1.0)))
    Simulator(build_scenario(fixed, tmp_path), LaneRecorder(1), Shown(), pause).run()
    first, second = found[:2]
    assert sorted(first.heap) == [
        Pending(0.25, 1, 0.25, 0, 1), Pending(0.5, 2, 0.5, 1, 1), Pending(1.0, 3, 1.0, 2, 1),
    ]  # fmt: skip
    assert (first.sequence, second.sequence) == (3, 4)
    assert sorted(second.heap)[0].client in (0, 1)
    assert (first.memories, sorted(second.memories)) == ({}, [0])
    assert (first.run_state.time_s, second.run_state.time_s) == (0.0, 0.25)
