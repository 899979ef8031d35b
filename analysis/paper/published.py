"""The paper's eight tables: every published cell, and which cell an experiment belongs to.

C. Iakovidou, K. Kim: Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under Arbitrary
Delays. The values are in tables.csv.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import method_label
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.problems.splits.rows import SplitSettings
from areabench.results.cells import Cell
from areabench.results.statistics import DECIMALS, Spread
from areabench.timing.rates import NormalRates, RateSettings, UniformRates
from areabench.views.tables.sheets import after_mean, fixed

_IN_THE_TABLES = ("s-fedavg", "as-fedavg", "fedbuff", "area")
METHOD_LABELS = {name: method_label(name) for name in _IN_THE_TABLES}
RECOVERED_HORIZON_S = 15.0  # n = 4, M = 50: printed as 100 s, but the tables' own rho and loss fit 15 s


@dataclass(frozen=True)
class PublishedCell:
    """One cell as printed."""

    table: str  # label in the paper's source
    clients: int
    local_steps: int
    split: str  # "iid" or "non-iid"
    rates: str  # "uniform" or "nonuniform"
    horizon_s: float  # as printed
    method: str  # as in experiment files
    step_size: float
    rho: float  # time to 80 % / horizon; infinite where the paper prints ">1"
    accuracy: Spread  # percent
    loss: Spread

    @property
    def recovered_horizon_s(self) -> float:
        """The horizon that fits the cell's values (recovered, not a statement of the paper), in seconds."""
        return RECOVERED_HORIZON_S if (self.clients, self.local_steps) == (4, 50) else self.horizon_s


@cache
def published_cells() -> tuple[PublishedCell, ...]:
    """All published cells, table by table as in the paper."""
    with (Path(__file__).parent / "tables.csv").open(encoding="utf-8", newline="") as file:
        return tuple(map(_cell, csv.DictReader(file)))


def published(experiment: Experiment) -> PublishedCell | None:
    """The published cell of an experiment with the paper's problem, whatever its horizon; None where there is none."""
    step_size = experiment.method.step_size
    return next((cell for cell in published_group(experiment) if cell.step_size == step_size), None)


def published_group(experiment: Experiment) -> tuple[PublishedCell, ...]:
    """The published cells of an experiment's table, rates and method, whatever its step size: ascending step sizes."""
    if not _is_papers_problem(experiment):
        return ()
    clients = experiment.clients
    method = experiment.method.name
    split = _printed_split(experiment.split)
    rates = _printed_rates(experiment.rates)
    found = [
        cell
        for cell in published_cells()
        if (cell.clients, cell.local_steps) == (clients.count, clients.local_steps)
        and (cell.split, cell.rates, cell.method) == (split, rates, method)
    ]
    return tuple(sorted(found, key=lambda cell: cell.step_size))


def _is_papers_problem(experiment: Experiment) -> bool:
    """Logistic regression on MNIST; what the paper leaves open (weighting, starting point, eta) is free."""
    return isinstance(experiment.problem, Logistic) and isinstance(experiment.data, Mnist)


def _printed_split(split: SplitSettings | None) -> str | None:
    """The paper's word; both Dirichlet variants are its non-IID split, because it does not say which it used."""
    if isinstance(split, Dirichlet | DirichletEqual):
        return "non-iid" if split.concentration == 0.1 else None
    return "iid" if isinstance(split, Iid | NearlyIid) else None


def _printed_rates(rates: RateSettings) -> str | None:
    """The paper's word; its rates are 10 per second, or N(10, 5)."""
    if rates == UniformRates():
        return "uniform"
    return "nonuniform" if rates == NormalRates() else None


def _cell(row: dict[str, str]) -> PublishedCell:
    names = {label: name for name, label in METHOD_LABELS.items()}
    return PublishedCell(
        table=row["table"],
        clients=int(row["clients"]),
        local_steps=int(row["local_steps"]),
        split=row["split"],
        rates=row["rates"],
        horizon_s=float(row["horizon_s"]),
        method=names[row["method"]],
        step_size=float(row["step_size"]),
        rho=math.inf if row["rho"] == ">1" else float(row["rho"]),
        accuracy=_spread(row, "acc"),
        loss=_spread(row, "loss"),
    )


def _spread(row: dict[str, str], name: str) -> Spread:
    return Spread(float(row[f"{name}_mean"]), float(row[f"{name}_min"]), float(row[f"{name}_max"]))


# ---------------------------------------------------------------------------------------------------- beside the paper


@dataclass(frozen=True)
class BesidePaper:
    """A cell of ours beside the published one. Both are rounded to two decimals, as the paper prints them."""

    ours: Cell
    published: PublishedCell

    @property
    def accuracy_in_range(self) -> bool:
        """Whether no trial is missing or diverged, and the mean accuracy lies in the published range."""
        accuracy = self.ours.accuracy
        return accuracy is not None and self.ours.is_eligible and is_in_range(accuracy.mean, self.published.accuracy)

    @property
    def loss_in_range(self) -> bool:
        """Whether no trial is missing or diverged, and the mean loss lies in the published range."""
        loss = self.ours.loss
        return loss is not None and self.ours.is_eligible and is_in_range(loss.mean, self.published.loss)

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
        ours = self.ours.reach.rho
        theirs = self.published.rho
        return 0.0 if ours == theirs else round(ours, DECIMALS) - theirs

    def rho_agrees(self, tolerance: float = 0.05) -> bool:
        """Whether no trial is missing or diverged, and rho differs by at most the tolerance or both exceed 1."""
        return self.ours.is_eligible and abs(self.rho_difference) <= tolerance + 1e-9


def beside_paper(ours: Cell) -> BesidePaper | None:
    """A cell beside the published one; None where the paper has none."""
    cell = published(ours.experiment)
    return None if cell is None else BesidePaper(ours, cell)


def is_in_range(mean: float, spread: Spread) -> bool:
    """Whether a mean, rounded to two decimals, lies between the smallest and the largest value."""
    return round(spread.minimum, DECIMALS) <= round(mean, DECIMALS) <= round(spread.maximum, DECIMALS)


def spread_word(spread: Spread) -> str:
    """Mean (min – max), as the paper prints them."""
    return fixed(spread.mean) + after_mean(spread, "range")


def half_range(spread: Spread) -> float:
    """Half the distance from the smallest to the largest value; half a printed digit where they print the same."""
    return max((spread.maximum - spread.minimum) / 2, 10.0**-DECIMALS / 2)


def ranges_overlap(first: Spread, second: Spread) -> bool:
    """Whether two ranges, rounded to two decimals, have a value in common."""
    low = max(first.minimum, second.minimum)
    high = min(first.maximum, second.maximum)
    return round(low, DECIMALS) <= round(high, DECIMALS)


def _difference(ours: Spread | None, theirs: Spread) -> float:
    return math.nan if ours is None else round(ours.mean, DECIMALS) - round(theirs.mean, DECIMALS)
