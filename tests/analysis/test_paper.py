"""The published cells: that all are there, and which experiment finds which."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.problems.data.digits import Digits
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.results.published import published, published_cells, published_group
from areabench.results.statistics import Spread
from areabench.timing.rates import NormalRates, UniformRates

FIRST = Experiment(
    clients=Clients(count=128, local_steps=1),
    method=Area(step_size=100.0),
    stop=Stop(horizon_s=15.0),
    problem=Logistic(),
    data=Mnist(),
    split=Dirichlet(),
)


def test_there_are_127_cells_in_eight_tables() -> None:
    tables = Counter(cell.table for cell in published_cells())
    assert sorted(tables.values()) == [15] + 7 * [16]
    assert tables["M_1_n_128_iid"] == 15


def test_a_cell_is_as_printed() -> None:
    cell = published(FIRST)
    assert cell is not None
    assert (cell.table, cell.rates, cell.horizon_s, cell.rho) == ("M_1_n_128_non_iid", "uniform", 15.0, 0.29)
    assert cell.accuracy == Spread(87.38, 87.07, 87.92)
    assert cell.loss == Spread(0.74, 0.73, 0.75)


def test_not_reached_is_infinite() -> None:
    cell = published(replace(FIRST, method=FedBuff(step_size=0.1), clients=Clients(count=4)))
    assert cell is not None
    assert math.isinf(cell.rho)


def test_split_and_rates_are_translated() -> None:
    found = published(replace(FIRST, split=DirichletEqual(), rates=NormalRates()))
    assert found is not None
    assert (found.split, found.rates, found.accuracy.mean) == ("non-iid", "nonuniform", 84.37)
    iid = [published(replace(FIRST, split=split, rates=NormalRates())) for split in (Iid(), NearlyIid())]
    assert iid[0] == iid[1]
    assert iid[0] is not None
    assert iid[0].accuracy.mean == 84.14


def test_the_cell_that_the_paper_leaves_out() -> None:
    assert published(replace(FIRST, split=NearlyIid())) is None
    assert [cell.step_size for cell in published_group(replace(FIRST, split=NearlyIid()))] == [1000.0]


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, method=Area(step_size=10.0)),
        replace(FIRST, clients=Clients(count=64)),
        replace(FIRST, rates=UniformRates(rate=20.0)),
        replace(FIRST, rates=NormalRates(deviation=1.0)),
        replace(FIRST, split=Dirichlet(concentration=1.0)),
        replace(FIRST, data=Digits()),
        replace(FIRST, split=None),
    ],
)
def test_other_experiments_have_no_cell(other: Experiment) -> None:
    assert published(other) is None


def test_the_horizon_does_not_matter_but_is_kept_as_printed() -> None:
    short = replace(FIRST, clients=Clients(count=4, local_steps=50), method=Area(step_size=1.0))
    cell = published(short)
    assert cell is not None
    assert cell == published(replace(short, stop=Stop(horizon_s=100.0)))
    assert (cell.horizon_s, cell.recovered_horizon_s) == (100.0, 15.0)
    first = published(FIRST)
    assert first is not None
    assert first.recovered_horizon_s == 15.0


def test_in_range_is_judged_on_two_decimals() -> None:
    loss = Spread(0.80, 0.79, 0.82)
    assert loss.holds(0.8249)
    assert not loss.holds(0.8251)
    assert loss.holds(0.7851)
    assert not loss.holds(0.7849)


def test_half_range_is_never_zero() -> None:
    assert Spread(0.39, 0.39, 0.39).half_range == pytest.approx(0.005)
    assert Spread(2.0, 1.0, 4.0).half_range == pytest.approx(1.5)


def test_ranges_overlap_when_one_lies_in_the_other() -> None:
    wide, inner, apart = Spread(2.0, 1.0, 4.0), Spread(2.0, 2.0, 2.0), Spread(5.0, 4.02, 6.0)
    assert wide.overlaps(inner)
    assert inner.overlaps(wide)
    assert not wide.overlaps(apart)
    assert not apart.overlaps(wide)
