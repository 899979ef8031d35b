"""How long one simulated run of the paper's setting takes, and how much of it is the gradient.

make bench-simulator     n = 128, M = 1, horizon 15 s, AREA: about 19,200 client updates, one thread

The bare gradient is the same mini-batch step in a loop of its own, measured in the same process between the runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from areabench.config import load_experiment, to_toml
from areabench.problems.base import Vector
from areabench.problems.logistic import LocalLogistic, LogisticProblem
from areabench.recording import Recorder
from areabench.scenario import Scenario, build_scenario
from areabench.schema import Kind
from areabench.transports.simulator import Simulator

HERE = Path(__file__).parent
STEPS = 5000


def bare_gradient_s(problem: LogisticProblem) -> float:
    """Seconds of one mini-batch step with nothing around it."""
    local, weights = problem.local(0), problem.start().reshape(problem.shape)
    batches = np.random.default_rng(0).integers(0, len(problem.data.train_labels), (STEPS, problem.settings.batch_size))
    begun_s = time.perf_counter()
    for rows in batches:
        local._step(weights, rows, 0.1)
    return (time.perf_counter() - begun_s) / STEPS


class TimedLocal:
    """A client's objective with a stopwatch around it; all clients share one stopwatch."""

    def __init__(self, local: LocalLogistic, spent_s: list[float]) -> None:
        self._local, self._spent_s = local, spent_s

    def descend(self, model: Vector, step_size: float) -> Vector:
        """The client's round, timed."""
        begun_s = time.perf_counter()
        result = self._local.descend(model, step_size)
        self._spent_s[0] += time.perf_counter() - begun_s
        return result


class TimedProblem(LogisticProblem):
    """The problem with a stopwatch around every client's local steps."""

    spent_s: list[float]

    def local(self, client: int) -> TimedLocal:  # type: ignore[override]
        """Client `client`'s objective, timed."""
        return TimedLocal(super().local(client), self.spent_s)


def run_s(scenario: Scenario, folder: Path) -> float:
    """Seconds of one run with recording, without evaluation."""
    problem = scenario.problem
    recorder = Recorder(folder / "run.h5", to_toml(scenario.experiment), problem.dimension, problem.dtype, force=True)
    begun_s = time.perf_counter()
    Simulator(scenario, recorder, lambda time_s, updates: None).run()
    recorder.close()
    return time.perf_counter() - begun_s


def gradient_share(scenario: Scenario, folder: Path) -> float:
    """Share of a run that is spent in the clients' local steps."""
    plain = scenario.problem
    assert isinstance(plain, LogisticProblem)
    timed = TimedProblem(plain.settings, plain.data, plain.parts, plain.local_steps, plain.seed)
    timed.spent_s = [0.0]
    total_s = run_s(replace(scenario, problem=timed), folder)
    return timed.spent_s[0] / total_s


def main() -> None:
    """Three runs plain, three with a stopwatch, the bare gradient in between; medians."""
    whole_s, shares, bare_s = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = build_scenario(load_experiment(HERE / "paper.toml"), folder)
        assert isinstance(scenario.problem, LogisticProblem)
        for _ in range(3):
            bare_s.append(bare_gradient_s(scenario.problem))
            whole_s.append(run_s(scenario, folder))
            shares.append(gradient_share(scenario, folder))
        with h5py.File(folder / "run.h5") as file:
            updates = int(np.count_nonzero(file["events"]["kind"] == Kind.UPDATE))
    whole, bare = statistics.median(whole_s), statistics.median(bare_s)
    print(f"one run: {whole:.2f} s for {updates:,} updates, {1e6 * whole / updates:.0f} microseconds an update")
    print(f"of it in the clients' local steps: {100 * statistics.median(shares):.0f} %")
    print(f"bare gradient step: {1e6 * bare:.0f} microseconds; the run takes {whole / updates / bare:.2f} times that")


if __name__ == "__main__":
    main()
