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
from typing import Any

import h5py
import pytest

from areabench.cli import main as cli
from areabench.engine.events import State, Status
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFileError, WriteFailure
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area
from areabench.methods.criteria import EveryPeriod, EveryUpdates, PoissonAggregation
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

EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=2),
    method=Area(step_size=0.02),
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


def on_data(problem: ProblemSettings) -> dict[str, Any]:
    return {"problem": problem, "data": Synthetic(train_samples=60, test_samples=9), "split": Iid()}


def kept(**keys: Any) -> dict[str, Any]:
    """All clients deliver at once, so that a stop may come between two updates of a moment."""
    return {"record": Record(**keys), "delays": FixedDelays()}


# What differs from EXPERIMENT, and after how many events the run is stopped each time. Every method is stopped in
# tests/methods/test_every_method.py.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "period": ({"aggregation": EveryPeriod(period_s=0.13)}, (33, 20)),
    "poisson": ({"aggregation": PoissonAggregation(rate=8.0)}, (33, 20)),
    "logistic": (on_data(Logistic(batch_size=8)), (25,)),
    "hinge": (on_data(Hinge(batch_size=8)), (25,)),
    "torch": (on_data(TorchModule(module="areabench.problems.examples:mlp", batch_size=8)), (25,)),
    "robust": ({"problem": Robust(dimension=4, samples=6)}, (25,)),
    "median": ({"problem": Median(dimension=4, samples=6)}, (25,)),
    "aggregations": (kept(snapshots="aggregations"), (30, 17)),
    "no snapshots": (kept(snapshots="none"), (30, 17)),
    "last model": (kept(models="last", average=True, interval_s=0.25), (30, 17)),
    "no events": (kept(events=False, models="last", interval_s=0.25), (30, 17)),
    "some losses": (kept(loss_every=3, interval_s=0.1), (30, 17)),
    "before the first event": ({}, (0,)),
    "at every event": ({}, (1, 1, 1)),
    "without an event in between": ({}, (5, 0, 0, 5)),
    "first messages zero": ({"method": Area(step_size=0.02, first_message="zero")}, (5, 0, 0, 5)),
    "target": ({"stop": Stop(horizon_s=20.0, target_loss=1.0), "aggregation": EveryUpdates(updates=2)}, (15,)),
    # Four of five clients are left, and all of them are in every round: one of five would never be complete.
    "a round that a loss has shortened": (
        {"method": SFedAvg(step_size=0.02, clients_per_round=5), "faults": Faults(lost=(3,), lost_at_s=(0.5,))}, (20,),
    ),
    "after both losses": (
        {"faults": Faults(lost=(3, 0), lost_at_s=(0.5, 1.1), lost_client="remove")}, (70,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_can_be_resumed(tmp_path: Path, stop_at: Callable[[int], None], case: str) -> None:
    if case == "torch":
        pytest.importorskip("torch")
    changes, stops = CASES[case]
    assert_equal_after(replace(EXPERIMENT, **changes), tmp_path, stop_at, *stops)


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


@pytest.fixture
def stopped(tmp_path: Path, stop_at: Callable[[int], None]) -> Path:
    """A run that was stopped after nine events; its delays are those of a trace."""
    trace = tmp_path / "delays.csv"
    trace.write_text("client,delay_s\n" + "".join(f"{client},0.1\n" for client in range(5)))
    stop_at(9)
    simulate_run(replace(EXPERIMENT, delays=TraceDelays(file=str(trace))), around(tmp_path / "run.h5"))
    return tmp_path / "run.h5"


def finish(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "CheckpointTriggers", CheckpointTriggers)
        assert resume(path).state == State.DONE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: (path.parent / "delays.csv").unlink(), "delays.csv"),
        (lambda path: checkpoint_path(path).unlink(), "has no checkpoint (run.h5.checkpoint) to resume from; run the"),
        (finish, "has ended (done); there is nothing to resume"),
        (lambda path: checkpoint_path(path).write_bytes(checkpoint_path(path).read_bytes()[:1000]), "is damaged"),
        (lambda path: checkpoint_path(path).write_bytes(b""), "is damaged"),
        (lambda path: checkpoint_path(path).write_bytes(checkpoint_path(path).read_bytes()[::-1]), "is damaged"),
    ],
    ids=["no trace", "no checkpoint", "ended", "cut", "empty", "reversed"],
)
def test_what_cannot_be_resumed_stays_as_it_is(
    stopped: Path, change: Callable[[Path], None], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(stopped)
    before = stopped.read_bytes()
    assert cli.main(["resume", str(stopped)]) == 2
    assert says in capsys.readouterr().err
    assert stopped.read_bytes() == before


def test_a_checkpoint_of_another_run_is_reported(stopped: Path, tmp_path: Path) -> None:
    simulate_run(replace(EXPERIMENT, seed=1), around(tmp_path / "other.h5"))
    checkpoint_path(stopped).replace(checkpoint_path(tmp_path / "other.h5"))
    with pytest.raises(RunFileError, match="its checkpoint is of another experiment"):
        resume(tmp_path / "other.h5")


def test_a_refused_run_leaves_the_checkpoint_of_the_running_one(stopped: Path) -> None:
    claim = Claim(stopped, force=True)
    with pytest.raises(RunFileError, match="is being written by another run"):
        simulate_run(EXPERIMENT, replace(around(stopped), force=True))
    claim.release()
    assert checkpoint_path(stopped).exists()


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
