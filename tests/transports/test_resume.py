"""A run that is stopped and resumed, once or often, leaves what a run without a stop leaves, to the bit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import h5py
import pytest

from areabench.cli import main as cli
from areabench.engine.events import State, Status
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFileError, WriteFailure
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems.base import ProblemSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic
from areabench.problems.median import Median
from areabench.problems.quadratic import Quadratic
from areabench.problems.robust import Robust
from areabench.problems.splits.iid import Iid
from areabench.problems.torch_module import TorchModule
from areabench.progress import Style
from areabench.runfile.layout import ModelsInMemory, checkpoint_path
from areabench.runfile.lock import Claim
from areabench.runfile.read import open_run
from areabench.settings.parse import to_toml
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import NormalRates
from areabench.timing.trace import TraceDelays
from areabench.transports import session as execute
from areabench.transports.options import RunOptions
from areabench.transports.session import resume_simulation, simulate_run
from areabench.transports.signals import CheckpointTriggers
from areabench.transports.simulator import LaneRecorder, Simulator

METHODS: tuple[MethodSettings, ...] = (
    Area(step_size=0.02),
    Area(step_size=0.02, first_message="zero"),
    AsFedAvg(step_size=0.02),
    FedBuff(step_size=0.02, server_step_size=1.0),
    SFedAvg(step_size=0.02, clients_per_round=3),
)
CRITERIA: tuple[AggregationSettings, ...] = (EveryPeriod(period_s=0.13), PoissonAggregation(rate=8.0))
PROBLEMS: tuple[ProblemSettings, ...] = (
    Logistic(batch_size=8),
    Hinge(batch_size=8),
    Robust(dimension=4, samples=6),
    Median(dimension=4, samples=6),
    TorchModule(module="areabench.problems.examples:mlp", batch_size=8),
)
EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=2),
    method=METHODS[0],
    stop=Stop(horizon_s=2.0),
    problem=Quadratic(dimension=3, noise=0.5),
    rates=NormalRates(),
    schedule=InverseSchedule(offset=20.0),
    record=Record(interval_s=0.25, average=True),
    seed=7,
)


class StoppingTriggers(CheckpointTriggers):
    """Reports a signal at the n-th call, although none was sent."""

    asks: Iterator[int]
    stop_at: int

    def due(self) -> bool:
        if next(self.asks) >= self.stop_at:
            self.stop_signal = "SIGTERM"
        return bool(self.stop_signal)


def around(path: Path, checkpoint_s: float | None = 0.0) -> RunOptions:
    return RunOptions(path, path.parent / "cache", "a test", False, Style.NONE, checkpoint_s)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the next run stop before its event of this number, counted from where it begins."""

    def arrange(number: int) -> None:
        monkeypatch.setattr(StoppingTriggers, "asks", count(), raising=False)
        monkeypatch.setattr(StoppingTriggers, "stop_at", number, raising=False)
        monkeypatch.setattr(execute, "CheckpointTriggers", StoppingTriggers)

    return arrange


def resume(path: Path) -> Status:
    with open_run(path) as run:
        return resume_simulation(run, around(path))


def contents(path: Path) -> dict[str, bytes]:
    """Every dataset of a run file, as bytes; not the checksums, whose blocks are as long as the rows that waited."""
    found: dict[str, bytes] = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    del found["checksums"]
    return found


def assert_equal_after(experiment: Experiment, tmp_path: Path, stop_at: Callable[[int], None], *stops: int) -> None:
    """Stop a run at these events, resume it each time, and compare it with one that is not stopped."""
    whole, cut = tmp_path / "whole.h5", tmp_path / "cut.h5"
    ended = simulate_run(experiment, around(whole, None))
    stop_at(stops[0])
    assert simulate_run(experiment, around(cut)).state == State.STOPPED
    for number in stops[1:]:
        assert checkpoint_path(cut).exists()
        stop_at(number)
        assert resume(cut).state == State.STOPPED
    stop_at(10**9)
    assert resume(cut) == ended
    assert not checkpoint_path(cut).exists()
    assert contents(cut) == contents(whole)
    with open_run(cut) as run:
        assert len(run.provenance.resumed_at.split(", ")) == len(stops)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_can_be_resumed(tmp_path: Path, stop_at: Callable[[int], None], method: MethodSettings) -> None:
    assert_equal_after(replace(EXPERIMENT, method=method), tmp_path, stop_at, 20)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_steps_by_the_clock_continue(
    tmp_path: Path, stop_at: Callable[[int], None], criterion: AggregationSettings
) -> None:
    assert_equal_after(replace(EXPERIMENT, aggregation=criterion), tmp_path, stop_at, 33, 20)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_problem_can_be_resumed(tmp_path: Path, stop_at: Callable[[int], None], problem: ProblemSettings) -> None:
    if isinstance(problem, TorchModule):
        pytest.importorskip("torch")
    data = None if not problem.takes_data else Synthetic(train_samples=60, test_samples=9)
    experiment = replace(EXPERIMENT, problem=problem, data=data, split=Iid() if data else None)
    assert_equal_after(experiment, tmp_path, stop_at, 25)


@pytest.mark.parametrize(
    "record",
    [
        Record(snapshots="aggregations"),
        Record(snapshots="none"),
        Record(models="last", average=True, interval_s=0.25),
        Record(events=False, models="last", interval_s=0.25),
        Record(loss_every=3, interval_s=0.1),
    ],
    ids=["aggregations", "none", "last", "no events", "loss"],
)
def test_every_record_can_be_resumed(tmp_path: Path, stop_at: Callable[[int], None], record: Record) -> None:
    assert_equal_after(replace(EXPERIMENT, record=record, delays=FixedDelays()), tmp_path, stop_at, 30, 17)


@pytest.mark.parametrize("stops", [(0,), (1,), (1, 1, 1), (5, 0, 0, 5)], ids=str)
@pytest.mark.parametrize("method", METHODS[:2], ids=["trained", "zero"])
def test_stops_anywhere_and_often(
    tmp_path: Path, stop_at: Callable[[int], None], method: MethodSettings, stops: tuple[int, ...]
) -> None:
    assert_equal_after(replace(EXPERIMENT, method=method), tmp_path, stop_at, *stops)


@pytest.mark.parametrize("stop", [20, 45, 70])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_runs_that_lose_clients_continue(
    tmp_path: Path, stop_at: Callable[[int], None], method: MethodSettings, stop: int
) -> None:
    faults = Faults(lost=(3, 0), lost_at_s=(0.5, 1.1), lost_client="remove")
    stop = min(stop, 20) if isinstance(method, SFedAvg) else stop
    assert_equal_after(replace(EXPERIMENT, method=method, faults=faults), tmp_path, stop_at, stop)


def test_a_round_that_a_loss_has_shortened_goes_on(tmp_path: Path, stop_at: Callable[[int], None]) -> None:
    """Four of five clients are left, and all of them are in every round: a round of five would never be complete."""
    faults, method = Faults(lost=(3,), lost_at_s=(0.5,)), SFedAvg(step_size=0.02, clients_per_round=5)
    assert_equal_after(replace(EXPERIMENT, method=method, faults=faults), tmp_path, stop_at, 20)


def test_a_resumed_simulation_does_not_go_back_to_the_losses_before(tmp_path: Path) -> None:
    scenario = build_scenario(replace(EXPERIMENT, faults=Faults(lost=(3, 0), lost_at_s=(0.5, 1.1))), tmp_path)
    before, after = list[float](), list[float]()
    stopped = Status(State.STOPPED, "SIGTERM", 0.0, 0, 0, 0)
    first = Simulator(
        scenario, LaneRecorder(1), lambda time_s, _updates: before.append(time_s),
        lambda _simulator: stopped if before and before[-1] > 0.7 else None,
    )  # fmt: skip
    assert first.run() is stopped
    second = Simulator(scenario, LaneRecorder(1), lambda time_s, _updates: after.append(time_s))
    second.resume(first.checkpoint(ModelsInMemory()))
    assert second.run().lost == 1  # the one to come, which is all that this recorder saw
    assert before + after == sorted(before + after)


def test_a_resumed_run_that_ends_at_a_target(tmp_path: Path, stop_at: Callable[[int], None]) -> None:
    experiment = replace(EXPERIMENT, stop=Stop(horizon_s=20.0, target_loss=1.0), aggregation=EveryUpdates(updates=2))
    assert_equal_after(experiment, tmp_path, stop_at, 15)


@pytest.mark.parametrize("stop", [Stop(iterations=40), Stop(horizon_s=20.0, divergence_norm=0.5)])
def test_a_signal_after_the_last_event_comes_too_late(
    tmp_path: Path, stop_at: Callable[[int], None], stop: Stop
) -> None:
    """Wherever the signal comes, before or after the event that ends the run, the outcome is the same."""
    experiment = replace(EXPERIMENT, stop=stop)
    ended = simulate_run(experiment, around(tmp_path / "whole.h5", None))
    events = ended.updates + ended.server_steps
    for number in range(max(0, events - 4), events):
        path = tmp_path / f"{number}.h5"
        stop_at(number)
        if simulate_run(experiment, around(path)).state == State.STOPPED:
            stop_at(10**9)
            assert resume(path) == ended
        assert contents(path) == contents(tmp_path / "whole.h5")


# ---------------------------------------------------------------------------------------------------- errors


def test_a_resume_without_its_trace_leaves_the_file_as_it_is(
    tmp_path: Path, stop_at: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    trace, path = tmp_path / "delays.csv", tmp_path / "run.h5"
    trace.write_text("client,delay_s\n" + "".join(f"{client},0.1\n" for client in range(5)))
    stop_at(9)
    simulate_run(replace(EXPERIMENT, delays=TraceDelays(file=str(trace))), around(path))
    trace.unlink()
    before = path.read_bytes()
    assert cli.main(["resume", str(path)]) == 2
    assert "delays.csv" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_refused_run_leaves_the_checkpoint_of_the_running_one(tmp_path: Path, stop_at: Callable[[int], None]) -> None:
    path = tmp_path / "run.h5"
    stop_at(9)
    simulate_run(EXPERIMENT, around(path))
    claim = Claim(path, force=True)
    with pytest.raises(RunFileError, match="is being written by another run"):
        simulate_run(EXPERIMENT, replace(around(path), force=True))
    claim.release()
    assert checkpoint_path(path).exists()


def test_a_checkpoint_that_does_not_fit_ends_the_run_in_one_line(
    tmp_path: Path, stop_at: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, _content: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "run.h5"
    stop_at(9)
    monkeypatch.setattr("areabench.runfile.checkpoint.os.write", full)
    with pytest.raises(WriteFailure, match="cannot be written: No space left on device; make room"):
        simulate_run(EXPERIMENT, around(path))
    assert not list(tmp_path.glob("*.checkpoint*"))
    with open_run(path) as run:
        assert run.status.state == State.FAILED


def test_a_run_that_has_ended_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.h5"
    simulate_run(EXPERIMENT, around(path))
    assert cli.main(["resume", str(path)]) == 2
    assert capsys.readouterr().err == f"areabench: {path}: has ended (done); there is nothing to resume\n"


def test_a_run_without_checkpoint_is_not_resumed(
    tmp_path: Path, stop_at: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.h5"
    stop_at(9)
    simulate_run(EXPERIMENT, around(path))
    checkpoint_path(path).unlink()
    before = path.read_bytes()
    assert cli.main(["resume", str(path)]) == 2
    assert "has no checkpoint (run.h5.checkpoint) to resume from; run the experiment again" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [lambda whole: whole[:1000], lambda _whole: b"", lambda whole: whole[::-1]])
def test_a_damaged_checkpoint_is_reported(
    tmp_path: Path, stop_at: Callable[[int], None], damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "run.h5"
    stop_at(9)
    simulate_run(EXPERIMENT, around(path))
    checkpoint_path(path).write_bytes(damage(checkpoint_path(path).read_bytes()))
    with pytest.raises(RunFileError, match=r"run\.h5\.checkpoint: is damaged .* run the experiment again"):
        resume(path)
    with open_run(path) as run:
        assert run.status.state == State.STOPPED


def test_a_checkpoint_of_another_run_is_reported(tmp_path: Path, stop_at: Callable[[int], None]) -> None:
    paths = [tmp_path / "one.h5", tmp_path / "two.h5"]
    for seed, path in enumerate(paths):
        stop_at(9 + seed)
        simulate_run(replace(EXPERIMENT, seed=seed), around(path))
    checkpoint_path(paths[0]).replace(checkpoint_path(paths[1]))
    with pytest.raises(RunFileError, match="its checkpoint is of another experiment"):
        resume(paths[1])


# ---------------------------------------------------------------------------------------------------- real signals


def process(path: Path, *options: str) -> subprocess.Popen[str]:
    """A long simulation as a process of its own."""
    experiment = replace(EXPERIMENT, stop=Stop(horizon_s=300.0), record=Record(interval_s=5.0))
    file = path.with_suffix(".toml")
    file.write_text(to_toml(experiment))
    command = [sys.executable, "-m", "areabench", "simulate", str(file), "-o", str(path), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL], ids=lambda sent: sent.name
)
def test_signals(tmp_path: Path, sent: signal.Signals) -> None:
    path, checkpoint = tmp_path / "run.h5", checkpoint_path(tmp_path / "run.h5")
    running = process(path, "--checkpoint-every", "0.05")
    for _ in range(600):
        if checkpoint.exists() or running.poll() is not None:
            break
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.05)
    running.send_signal(sent)
    said, _ = running.communicate(timeout=60)
    codes = {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}
    assert running.returncode == codes.get(sent, 4)
    with open_run(path) as run:
        assert run.status.state == (State.RUNNING if sent == signal.SIGKILL else State.STOPPED)
    if sent != signal.SIGKILL:
        assert f"stopped ({sent.name})" in said
        assert f"to continue: areabench resume {path}" in said
    assert cli.main(["replay", str(path)]) == 0
    assert resume(path).state == State.DONE
    assert cli.main(["replay", str(path)]) == 0
