"""What the simulator's benchmarks share: how much is measured, the paper's setting, and a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from areabench.engine.scenario import Scenario
from areabench.problems.logistic import LogisticProblem

PAPER = Path(__file__).parents[1] / "experiments" / "paper" / "paper.toml"
SMALL_FILES = ("record.events=false", "record.models=last")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    turns: int
    bare_steps: int
    run_horizon_s: float
    passes: tuple[tuple[int, float, float], ...]  # local steps M, horizon (s), time between two snapshots (s)
    evaluated: tuple[int, float, float]  # the same of the pass whose snapshots are evaluated
    step_sizes: tuple[float, ...]


GRID = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
FULL = Sizes(3, 5000, 15.0, ((1, 6.0, 0.15), (50, 0.3, 0.02)), (1, 15.0, 0.15), GRID)  # snapshots as in the tables
QUICK = Sizes(1, 100, 0.1, ((1, 0.05, 0.025), (50, 0.01, 0.005)), (1, 0.05, 0.025), (1.0,))


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def nothing(_time_s: float, _updates: int) -> None:
    """Show no progress."""


def logistic(scenario: Scenario) -> LogisticProblem:
    """The scenario's problem."""
    assert isinstance(scenario.problem, LogisticProblem)
    return scenario.problem
