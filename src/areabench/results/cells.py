"""One cell of a table: the trials of one method, step size and rates setting, and how they compare with the paper's."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property

from areabench.experiment.records import Experiment
from areabench.results.published import PublishedCell, published
from areabench.results.retention import is_finite
from areabench.results.statistics import DECIMALS, Spread, spread_of
from areabench.sweeps.read import Result


@dataclass(frozen=True)
class Reach:
    """When the trials of a cell reached the target accuracy: rho = mean time / horizon, censored on the right."""

    mean_s: float  # over the trials that reached it; NaN where none did
    reached: int
    trials: int  # all that ended: one that diverged before it reached the target did not reach it
    unknown: int  # of these, trials of which it is not known, see `Result.time_to_accuracy`
    horizon_s: float | None

    @property
    def rho(self) -> float:
        """Mean over the trials that reached it; infinite when half or more did not; NaN where it is not known."""
        if not self.trials or self.unknown or self.horizon_s is None:
            return math.nan
        return math.inf if 2 * self.reached <= self.trials else self.mean_s / self.horizon_s

    @property
    def is_complete(self) -> bool:
        """Whether every trial reached the target."""
        return 0 < self.trials == self.reached


@dataclass(frozen=True)
class Cell:
    """The trials of one method, step size and rates setting."""

    results: tuple[Result, ...]  # at least one
    planned: int  # trials that the sweep asks for
    target: float  # percent

    @property
    def experiment(self) -> Experiment:
        """The experiment of the first trial; the others differ in the seed."""
        return self.results[0].experiment

    @property
    def step_size(self) -> float:
        """The step size alpha."""
        return self.experiment.method.step_size

    @cached_property
    def finite(self) -> tuple[Result, ...]:
        """The trials that ended with a finite loss: the only ones that are averaged."""
        return tuple(result for result in self.results if is_finite(result))

    @property
    def diverged(self) -> int:
        """How many trials diverged, or ended with a loss that is not finite."""
        return len(self.results) - len(self.finite)

    @property
    def missing(self) -> int:
        """How many of the planned trials have not ended, or failed."""
        return self.planned - len(self.results)

    @property
    def is_eligible(self) -> bool:
        """Whether the cell can be the best or agree with the paper: every trial ended, and none diverged."""
        return not self.missing and not self.diverged

    @cached_property
    def accuracy(self) -> Spread | None:
        """Test accuracy at the end in percent; None where no trial has one."""
        values = [result.final_accuracy for result in self.finite if not math.isnan(result.final_accuracy)]
        return spread_of(values) if values else None

    @cached_property
    def loss(self) -> Spread | None:
        """Training loss at the end; None where no trial ended finite."""
        return spread_of([result.final_loss for result in self.finite]) if self.finite else None

    @cached_property
    def reach(self) -> Reach:
        """Time to the target accuracy over all trials that ended, diverged ones included."""
        times_s = [result.time_to_accuracy(self.target) for result in self.results]
        reached_s = [time_s for time_s in times_s if math.isfinite(time_s)]
        unknown = sum(math.isnan(time_s) for time_s in times_s)
        mean_s = statistics.fmean(reached_s) if reached_s else math.nan
        return Reach(mean_s, len(reached_s), len(times_s), unknown, self.experiment.stop.horizon_s)

    @cached_property
    def comparison(self) -> Comparison | None:
        """This cell against the paper's; None where the paper has none."""
        cell = published(self.experiment)
        return Comparison(self, cell) if cell is not None else None


@dataclass(frozen=True)
class Comparison:
    """A cell beside the published one. Both are rounded to two decimals, as the paper prints them."""

    ours: Cell
    published: PublishedCell

    @property
    def accuracy_in_range(self) -> bool:
        """Whether no trial is missing or diverged, and the mean accuracy lies in the published range."""
        accuracy = self.ours.accuracy
        return accuracy is not None and self.ours.is_eligible and self.published.accuracy.holds(accuracy.mean)

    @property
    def loss_in_range(self) -> bool:
        """Whether no trial is missing or diverged, and the mean loss lies in the published range."""
        loss = self.ours.loss
        return loss is not None and self.ours.is_eligible and self.published.loss.holds(loss.mean)

    @property
    def agrees(self) -> bool:
        """Whether both means lie in the published ranges."""
        return self.accuracy_in_range and self.loss_in_range

    @property
    def accuracy_difference(self) -> float:
        """Our mean minus the published one, in percentage points; NaN where we have none."""
        return _difference(self.ours.accuracy, self.published.accuracy)

    @property
    def loss_difference(self) -> float:
        """Our mean minus the published one; NaN where we have none."""
        return _difference(self.ours.loss, self.published.loss)

    @property
    def rho_difference(self) -> float:
        """Ours minus the published one; 0 where both exceed 1, infinite where one does, NaN where we have none."""
        ours, theirs = self.ours.reach.rho, self.published.rho
        return 0.0 if ours == theirs else round(ours, DECIMALS) - theirs

    def rho_agrees(self, tolerance: float = 0.05) -> bool:
        """Whether no trial is missing or diverged, and rho differs by at most the tolerance or both exceed 1."""
        return self.ours.is_eligible and abs(self.rho_difference) <= tolerance + 1e-9


def _difference(ours: Spread | None, theirs: Spread) -> float:
    return math.nan if ours is None else round(ours.mean, DECIMALS) - round(theirs.mean, DECIMALS)
