"""One cell of a table or a figure: the trials of one method, step size and rates setting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from areabench.experiment.experiment import Experiment
from areabench.results.statistics import Quantity, Reach, Spread, reach_of, spread_of
from areabench.sweeps.result import Result


@dataclass(frozen=True)
class Cell:
    """The trials of one method, step size and rates setting."""

    results: tuple[Result, ...]  # at least one
    planned: int  # trials that the sweep asks for
    target: float = 80.0  # percent
    tuned: str = ""  # settings beside the step size that were chosen for this cell, in words

    @property
    def experiment(self) -> Experiment:
        """The experiment of the first trial; the others differ in the seed."""
        return self.results[0].experiment

    @property
    def step_size(self) -> float:
        """The step size alpha."""
        return self.experiment.method.step_size

    @property
    def point(self) -> str:
        """The step size, and what else was tuned, in words."""
        return ", ".join(filter(None, (f"{self.step_size:g}", self.tuned)))

    @cached_property
    def finite(self) -> tuple[Result, ...]:
        """The trials that did not diverge: the only ones that are averaged."""
        return tuple(result for result in self.results if not result.has_diverged)

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return len(self.results) - len(self.finite)

    @property
    def missing(self) -> int:
        """How many of the planned trials have not ended, or failed."""
        return self.planned - len(self.results)

    @property
    def is_eligible(self) -> bool:
        """Whether the cell can be the best: every planned trial ended, and none diverged.

        A mean over the trials that went well would flatter the others.
        """
        done = all(result.is_done for result in self.results)
        return done and not self.missing and not self.diverged

    @cached_property
    def accuracy(self) -> Spread | None:
        """Test accuracy at the end in percent; None where no trial has one."""
        return spread_of([result.final_accuracy for result in self.finite], "test_accuracy")

    @cached_property
    def loss(self) -> Spread | None:
        """Training loss at the end; None where every trial diverged."""
        return spread_of([result.final_loss for result in self.finite])

    def final(self, quantity: Quantity) -> Spread | None:
        """Accuracy or loss at the end."""
        if quantity == "test_accuracy":
            return self.accuracy
        return self.loss

    @cached_property
    def reach(self) -> Reach:
        """Time to the target accuracy over all trials, diverged ones included."""
        return reach_of(self.results, self.target)

    @cached_property
    def rho(self) -> Spread | None:
        """Time to the target over the horizon; None unless every trial reached it."""
        if not self.reach.is_complete or self.reach.horizon_s is None:
            return None
        horizon_s = self.reach.horizon_s
        return spread_of([time_s / horizon_s for time_s in self.reach.times_s])
