"""The shortcut for an update that is answered by one reply leaves every event, snapshot and count as they are.

So do first orders that are kept as one, and first updates that are kept as arrays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.random_experiments import TRACE_FILE, experiments, traces

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor
from areabench.engine.events import Event, State, Status
from areabench.engine.lanes import build_pass
from areabench.engine.scenario import Scenario, build_scenario
from areabench.engine.server import Server
from areabench.engine.state import Tally
from areabench.errors import RunFailure
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.fedbuff import FedBuff
from areabench.settings.parse import to_toml
from areabench.timing.trace import TraceDelays
from areabench.transports.simulator import LaneEnd, LaneRecorder, Simulator, simulate_lanes


class WholeRecord(LaneRecorder):
    """Keeps every event as the bytes of its values, and every snapshot."""

    def __init__(self) -> None:
        super().__init__(keeps_events=True)
        self.kept: list[object] = []

    def event(self, event: Event) -> None:
        self.kept.append([repr(value) for value in map(np.asarray, event)])

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None = None) -> None:
        super().snapshot(time_s, version, model, average)
        self.kept.append((time_s, version, model.tobytes(), None if average is None else average.tobytes()))


def counts(tally: Tally) -> list[object]:
    """All that a tally counts."""
    return [tally.kinds, tally.staleness.tolist(), tally.served(0).tolist(), tally.last_time_s]


def nothing(_time_s: float, _updates: int) -> None:
    """Show no progress."""


def outcome(scenario: Scenario) -> tuple[list[object], list[object], Status | str]:
    """What a simulated run leaves behind."""
    recorder = WholeRecord()
    with np.errstate(all="ignore"):
        try:
            ended: Status | str = Simulator(scenario, recorder, nothing).run()
        except RunFailure as failure:  # as faults.bad_update = "stop" asks for
            ended = str(failure)
    return recorder.kept, counts(recorder.tally), ended


def without_shortcuts(run: Callable[[], object]) -> object:
    """The outcome of a run in which every order, also the first ones and a plain reply, is sent by itself."""
    whole = Conductor.__init__

    def build(self: Conductor, *arguments: object, **named: object) -> None:
        whole(self, *arguments, **named)  # type: ignore[arg-type]
        self._takes_fast_path, self._deliver_first = False, None

    with patch.object(Conductor, "__init__", build):
        return run()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(experiments(), st.data())
def test_shortcuts_leave_the_same(experiment: Experiment, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(experiment.delays, TraceDelays):
            (folder / TRACE_FILE).write_text(data.draw(traces(experiment.clients.count)), encoding="utf-8")
        scenario = build_scenario(parse_experiment(to_toml(experiment), "random", (), folder), folder)
        assert outcome(scenario) == without_shortcuts(lambda: outcome(scenario))


PLAIN = """
name = "plain"
seed = 3
[problem]
name = "logistic"
[data]
name = "synthetic"
train_samples = 60
test_samples = 20
features = 4
classes = 3
[split]
name = "iid"
[clients]
count = 5
[rates]
name = "lognormal"
median = 10.0
[method]
name = "area"
step_size = 0.5
[aggregation]
name = "updates"
updates = 2
[record]
events = false
snapshots = "grid"
interval_s = 0.25
[stop]
horizon_s = 2.0
"""


def test_a_plain_run_takes_the_fast_path(tmp_path: Path) -> None:
    scenario = build_scenario(parse_experiment(PLAIN), tmp_path)
    with patch.object(Server, "answer", side_effect=AssertionError("an update was not answered by one reply")):
        fast = outcome(scenario)
    assert fast == without_shortcuts(lambda: outcome(scenario))
    assert isinstance(fast[2], Status)
    assert (fast[2].state, fast[2].updates > 50) == (State.DONE, True)


def test_shortcuts_leave_the_same_of_lanes(tmp_path: Path) -> None:
    base = parse_experiment(PLAIN)
    methods = [kind(step_size=size) for kind in (Area, AsFedAvg, FedBuff) for size in (0.1, 0.5)]
    runs = [replace(base, method=method) for method in methods]
    lanes = build_pass(build_scenario(runs[0], tmp_path), runs)

    def left() -> list[object]:
        return [
            (counts(end.tally), end.status, [(each[:3], each.models.tobytes()) for each in end.snapshots])
            for end in simulate_lanes(lanes, nothing)
            if isinstance(end, LaneEnd)
        ]

    fast = left()
    assert len(fast) == len(runs)
    assert fast == without_shortcuts(left)
