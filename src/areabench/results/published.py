"""The paper's eight tables: every published cell, and which cell an experiment belongs to.

C. Iakovidou, K. Kim: Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under Arbitrary
Delays. The values are in data/paper/tables.csv.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import method_label
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.problems.splits.rows import SplitSettings
from areabench.results.statistics import Spread
from areabench.timing.rates import NormalRates, RateSettings, UniformRates

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
    text = files("areabench").joinpath("data/paper/tables.csv").read_text(encoding="utf-8")
    return tuple(map(_cell, csv.DictReader(text.splitlines())))


def published(experiment: Experiment) -> PublishedCell | None:
    """The published cell of an experiment with the paper's problem, whatever its horizon; None where there is none."""
    step_size = experiment.method.step_size
    return next((cell for cell in published_group(experiment) if cell.step_size == step_size), None)


def published_group(experiment: Experiment) -> tuple[PublishedCell, ...]:
    """The published cells of an experiment's table, rates and method, whatever its step size: ascending step sizes."""
    if not _is_papers_problem(experiment):
        return ()
    clients, method = experiment.clients, experiment.method.name
    split, rates = _printed_split(experiment.split), _printed_rates(experiment.rates)
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
