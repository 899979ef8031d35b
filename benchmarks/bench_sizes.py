"""What the simulator's benchmarks share: how much is measured, the paper's setting, and a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from areabench.problems.logistic import LogisticProblem
from areabench.scenario import Scenario

PAPER = Path(__file__).parent / "paper.toml"
SMALL_FILES = ("record.events=false", "record.models=last")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    turns: int
    bare_steps: int
    run_horizon_s: float
    pass_horizons_s: tuple[tuple[int, float], ...]  # by the number of local steps M
    evaluated_horizon_s: float
    snapshots: int  # of a pass, besides that of the start
    step_sizes: tuple[float, ...]


GRID = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
FULL = Sizes(3, 5000, 15.0, ((1, 3.0), (50, 0.3)), 15.0, 100, GRID)
QUICK = Sizes(1, 100, 0.1, ((1, 0.05), (50, 0.01)), 0.05, 2, (1.0,))


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
