"""How a set of runs agrees with the paper's tables: cell by cell, and in the step sizes that are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from paper.published import BesidePaper, PublishedCell, beside_paper, half_range, published_group, ranges_overlap
from paper.rules import Gaps, largest_finite, score_gaps

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment, Stop
from areabench.experiment.labels import without_step_size
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryUpdates
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import ConstantSchedule
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison
from areabench.results.retention import best_by, every
from areabench.results.statistics import DECIMALS, Spread
from areabench.sweeps.result import Result
from areabench.timing.exponential import ExponentialDelays

RHO_TOLERANCE = 0.05
_DIGIT = 10.0**-DECIMALS
_MANY_CLIENTS = 128  # the paper's n; the other is 4
_PROBLEM = Logistic(regularisation=1e-3, batch_size=32, weighting="share", start_width=0.5)

# ---------------------------------------------------------------------------------------------------- which runs count


def is_recovered(experiment: Experiment) -> bool:
    """Whether an experiment is the paper's, with the recovered points in what the paper leaves open."""
    even = NearlyIid() if experiment.clients.count == _MANY_CLIENTS else Iid()
    return _has_recovered_points(experiment) and experiment.split in (Dirichlet(), even)


def is_equal_sized(experiment: Experiment) -> bool:
    """Whether the split is the other reading of Dirichlet(0.1): equally many images per client."""
    return experiment.split == DirichletEqual()


def _has_recovered_points(experiment: Experiment) -> bool:
    """All but split and horizon, which have counts of their own."""
    stop = experiment.stop
    delta = 4 if experiment.clients.count == _MANY_CLIENTS else 2
    return (
        experiment.problem == _PROBLEM
        and experiment.delays == ExponentialDelays()
        and experiment.schedule == ConstantSchedule()
        and experiment.aggregation == EveryUpdates(updates=delta)
        and stop == Stop(horizon_s=stop.horizon_s)  # no iteration count, no target
        and _is_papers_method(experiment.method)
    )


def _is_papers_method(method: MethodSettings) -> bool:
    if isinstance(method, SFedAvg):
        return method.clients_per_round == 4
    if isinstance(method, Area):
        return method.first_message == "trained"
    return not isinstance(method, FedBuff) or method.server_step_size in (None, method.step_size)


# ---------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Match:
    """A published cell and ours; None where it was not run."""

    published: PublishedCell
    beside: BesidePaper | None

    @property
    def agrees(self) -> bool:
        """Whether it was run and agrees."""
        return self.beside is not None and self.beside.agrees

    @property
    def is_judged(self) -> bool:
        """Whether it was run and no trial is missing."""
        return self.beside is not None and not self.beside.ours.missing


@dataclass(frozen=True)
class Counts:
    """How many cells agree, and in what."""

    cells: int
    run: int  # with at least one trial
    incomplete: int  # of these, with missing trials: they never agree
    both: int  # mean accuracy and mean loss in the published range
    accuracy: int
    loss: int
    rho: int  # within RHO_TOLERANCE, or both beyond 1
    curve_rho: int  # the same with rho of the mean accuracy curve


def matches(
    tables: Sequence[Comparison], cells: Sequence[PublishedCell], counts: Callable[[Experiment, PublishedCell], bool]
) -> tuple[Match, ...]:
    """For each published cell the one of ours that `counts`; two are an error, so that neither replaces the other."""
    found: dict[PublishedCell, BesidePaper] = {}
    for ours in (cell for table in tables for cell in table.cells):
        beside = beside_paper(ours)
        if beside is not None and counts(ours.experiment, beside.published):
            if beside.published in found:
                raise _twice(beside.published, found[beside.published].ours, ours)
            found[beside.published] = beside
    return tuple(Match(cell, found.get(cell)) for cell in cells)


def _twice(cell: PublishedCell, first: Cell, second: Cell) -> UserError:
    places = list(dict.fromkeys(str(one.results[0].path.parent) for one in (first, second)))
    return UserError(
        f"{' and '.join(places)}: the cell {cell.table}, {cell.rates} rates, {cell.method} at {cell.step_size:g} "
        "was run twice, and only one run can count; give one folder, or run the variant in another sweep"
    )


def at_recovered_horizon(experiment: Experiment, cell: PublishedCell) -> bool:
    """The runs that count for the 127 cells."""
    return is_recovered(experiment) and experiment.stop.horizon_s == cell.recovered_horizon_s


def at_printed_horizon(experiment: Experiment, cell: PublishedCell) -> bool:
    """Runs at the horizon as printed."""
    return is_recovered(experiment) and experiment.stop.horizon_s == cell.horizon_s


def with_equal_sizes(experiment: Experiment, cell: PublishedCell) -> bool:
    """Runs with the other reading of the non-IID split."""
    same_horizon = experiment.stop.horizon_s == cell.recovered_horizon_s
    return is_equal_sized(experiment) and _has_recovered_points(experiment) and same_horizon


def count(found: Sequence[Match]) -> Counts:
    """Count agreement."""
    run = [match.beside for match in found if match.beside is not None]
    return Counts(
        cells=len(found),
        run=len(run),
        incomplete=sum(one.ours.missing > 0 for one in run),
        both=sum(one.agrees for one in run),
        accuracy=sum(one.accuracy_in_range for one in run),
        loss=sum(one.loss_in_range for one in run),
        rho=sum(one.rho_agrees(RHO_TOLERANCE) for one in run),
        curve_rho=sum(one.ours.is_eligible and _near(curve_rho(one.ours), one.published.rho) for one in run),
    )


def curve_rho(cell: Cell) -> float:
    """rho of the mean accuracy over trials: when the mean curve first reaches the target; infinite if it never does.

    NaN where it is not known, or where a trial diverged.
    """
    horizon_s = cell.experiment.stop.horizon_s
    curves = [result.test_accuracy for result in cell.finite]
    if cell.diverged or cell.reach.unknown or horizon_s is None or len({len(curve) for curve in curves}) > 1:
        return math.nan
    reached = np.flatnonzero(np.mean(curves, axis=0) >= cell.target)
    return float(cell.finite[0].time_s[reached[0]]) / horizon_s if len(reached) else math.inf


def _near(ours: float, theirs: float) -> bool:
    return ours == theirs or abs(round(ours, DECIMALS) - theirs) <= RHO_TOLERANCE + 1e-9


# ---------------------------------------------------------------------------------------------------- disagreement


def distance(ours: Spread | None, theirs: Spread) -> float:
    """How far our mean is from the published one, in units of the published half-range; NaN where we have none."""
    return math.nan if ours is None else (round(ours.mean, DECIMALS) - theirs.mean) / half_range(theirs)


def misses_by_a_digit(one: BesidePaper) -> bool:
    """Whether every mean that is out of range is so by no more than the last printed digit."""
    pairs = ((one.ours.accuracy, one.published.accuracy), (one.ours.loss, one.published.loss))
    return not one.ours.diverged and all(ours is not None and _beyond(ours, theirs) <= _DIGIT for ours, theirs in pairs)


def both_overlap(one: BesidePaper) -> bool:
    """Whether our ranges of accuracy and loss both have a value in common with the published ones."""
    accuracy = one.ours.accuracy
    loss = one.ours.loss
    if accuracy is None or loss is None:
        return False
    return ranges_overlap(one.published.accuracy, accuracy) and ranges_overlap(one.published.loss, loss)


def loss_ratio(cell: PublishedCell) -> float:
    """The largest published loss of a cell over its smallest: how noisy the cell is."""
    return cell.loss.maximum / cell.loss.minimum


def _beyond(ours: Spread, theirs: Spread) -> float:
    """How far our rounded mean lies outside the published range; 0 inside."""
    mean = round(ours.mean, DECIMALS)
    return round(max(theirs.minimum - mean, mean - theirs.maximum, 0.0), DECIMALS)


# ---------------------------------------------------------------------------------------------------- retention


@dataclass(frozen=True)
class Kept:
    """The runs of one table, rates setting and method: what the rules keep of them, and what the paper kept."""

    published: tuple[PublishedCell, ...]  # at least one
    results: tuple[Result, ...]  # at least one
    gaps: Gaps  # of the results whose last model is on the disc

    @property
    def experiment(self) -> Experiment:
        """The experiment of the first run."""
        return self.results[0].experiment

    @property
    def run(self) -> tuple[float, ...]:
        """The step sizes that were run."""
        return every(self.results, self._seeds).step_sizes

    @property
    def by_paper(self) -> tuple[float, ...]:
        """The step sizes that the paper shows."""
        return tuple(cell.step_size for cell in self.published)

    def by_rule(self, bound: float = math.inf) -> tuple[float, ...]:
        """What the paper's rule keeps of our runs."""
        return largest_finite(self.results, self._seeds, bound=bound).step_sizes

    @property
    def by_single_precision(self) -> tuple[float, ...]:
        """What the rule keeps if the loss is a plain log(softmax) in single precision, infinite beyond a score gap."""
        return largest_finite(self.results, self._seeds, gaps=self.gaps).step_sizes

    @property
    def best(self) -> tuple[float, ...]:
        """The step size with the best accuracy, chosen on half of the trials; none where there is only one trial."""
        several = len(self._seeds) > 1
        return best_by(self.results, self._seeds, "accuracy").step_sizes if several else ()

    @property
    def _seeds(self) -> tuple[int, ...]:
        return tuple({result.experiment.seed for result in self.results})

    @property
    def next_loss(self) -> float:
        """The largest final loss at the next larger step size than the paper's; NaN where it was not run."""
        larger = [size for size in self.run if size > self.by_paper[-1]]
        return self.largest_loss(larger[0]) if larger else math.nan

    def largest_loss(self, size: float) -> float:
        """The largest final loss of the trials at a step size; infinite where one diverged."""
        trials = [result for result in self.results if result.experiment.method.step_size == size]
        return max(math.inf if result.has_diverged else result.final_loss for result in trials)


def kept_groups(results: Sequence[Result]) -> tuple[Kept, ...]:
    """The runs that count, by table, rates setting and method, as far as the paper shows them."""
    groups: dict[Experiment, list[Result]] = {}
    for result in results:
        experiment = result.experiment
        shared = replace(experiment, seed=0, method=without_step_size(experiment.method))
        groups.setdefault(shared, []).append(result)
    counted = []
    for members in groups.values():
        experiment = members[0].experiment
        cells = published_group(experiment)
        if cells and at_recovered_horizon(experiment, cells[0]):
            counted.append((cells, tuple(members)))
    gaps = score_gaps([result for _, members in counted for result in members])
    return tuple(Kept(cells, members, gaps) for cells, members in counted)


@dataclass(frozen=True)
class BoundFit:
    """The bounds on the final loss with which the paper's rule keeps most often what the paper shows."""

    lowest: float
    highest: float  # any bound between the two is as good
    equal: int  # groups


def fit_bound(groups: Sequence[Kept]) -> BoundFit | None:
    """Try every bound that makes a difference; None without groups."""
    if not groups:
        return None
    losses = {group.largest_loss(size) for group in groups for size in group.run}
    bounds = [*sorted(loss for loss in losses if math.isfinite(loss)), math.inf]
    scores = [sum(group.by_rule(bound) == group.by_paper for group in groups) for bound in bounds]
    first = scores.index(max(scores))
    last = next((at for at in range(first, len(scores)) if scores[at] != scores[first]), len(scores))
    return BoundFit(bounds[first], bounds[last] if last < len(bounds) else math.inf, scores[first])
