"""Sweeps read point by point: the trials of each, and the problem that they solve, built again to know its optimum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from studies.statistics import Floats

from areabench.engine.events import State
from areabench.engine.scenario import build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.methods.schedules import Theorem2Schedule
from areabench.plugins.trust import check_trusted
from areabench.problems.base import Problem
from areabench.runfile.read import open_run
from areabench.sweeps.read import Sweep, open_sweep
from areabench.theory.applied import event_probabilities, is_lipschitz, lipschitz_constants
from areabench.theory.theorem2 import lipschitz_bound

_NO_DATA = Path()  # the studies' problems draw their own


@dataclass(frozen=True)
class Trace:
    """One run: iterations K of its snapshots, and what they have reached; models where they are kept."""

    experiment: Experiment
    iterations: NDArray[np.int64]
    squared_distance: Floats
    average_loss: Floats
    models: Floats


@dataclass(frozen=True)
class Point:
    """One point of a sweep's grid with all its trials."""

    experiment: Experiment  # with the seed of the first trial
    traces: tuple[Trace, ...]

    @property
    def rates(self) -> Floats:
        """Updates per second of each client, shape (clients,); the studies draw none."""
        return build_scenario(self.experiment, _NO_DATA).rates

    def problem(self, trial: int = 0) -> Problem:
        """The problem of a trial."""
        return build_scenario(self.traces[trial].experiment, _NO_DATA).problem


def read_points(folder: Path) -> list[Point]:
    """All points of the sweep in a folder."""
    return points_of(open_sweep(folder))


def points_of(sweep: Sweep) -> list[Point]:
    """All points of a sweep that has been run to its end, in the order of its grid."""
    if sweep.missing:
        raise UserError(
            f"{sweep.folder}: {len(sweep.missing)} of its runs missing; run `areabench sweep` on its file again"
        )
    points: dict[Experiment, list[Trace]] = {}
    for result in sweep.results:
        if result.experiment.data is not None:
            raise misfit(result.experiment, "of a problem that draws its own data (quadratic, robust or median)")
        points.setdefault(replace(result.experiment, seed=0), []).append(_read(result.path))
    return [Point(traces[0].experiment, tuple(traces)) for traces in points.values()]


def misfit(experiment: Experiment, needed: str) -> UserError:
    """The error for a sweep that a study cannot use: it names the kind needed."""
    return UserError(f"{experiment.name}: this study needs a sweep {needed}; `benchmarks/experiments/studies` has some")


def _read(path: Path) -> Trace:
    with open_run(path) as run:
        check_trusted(run.experiment, path)
        if run.status.state != State.DONE:
            raise UserError(
                f"{path}: is {run.status.state.text}, but a mean over trials needs all of them; see `areabench show`"
            )
        index = run.snapshot_index
        metrics = run.metrics_array
        distance = metrics["squared_distance"]
        loss = metrics["average_loss"]
        return Trace(run.experiment, index["event"], distance, loss, np.asarray(run.models, dtype=np.float64))


@dataclass(frozen=True)
class Gaps:
    """f(average) - f* at the end of each trial, and Theorem 2's bound of it, shape (trials,)."""

    measured: Floats
    bounds: Floats


def gaps_and_bounds(point: Point) -> Gaps:
    """The gaps of one point; each trial has a problem, and so a bound, of its own."""
    gaps = []
    bounds = []
    events = event_probabilities(point.experiment, point.rates)
    M = point.experiment.clients.local_steps
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        if not is_lipschitz(problem):
            raise misfit(point.experiment, f"of Lipschitz problems (robust), not {point.experiment.problem.name}")
        known = lipschitz_constants(Theorem2Schedule(), problem)
        gaps.append(float(trace.average_loss[-1]) - problem.optimum.minimum)
        bounds.append(lipschitz_bound(known, events, M, int(trace.iterations[-1])))
    return Gaps(np.array(gaps), np.array(bounds))


def rates_in_words(point: Point) -> str:
    """The clients' rates in words: equal, or their ratio."""
    ratio = point.rates.max() / point.rates.min()
    return "equal rates" if ratio == 1 else f"rates 1 : {ratio:g}"
