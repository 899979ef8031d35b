"""The published cells: which experiment finds which; the paper's rule; and a table of ours beside the paper's."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paper_table
import pytest
from paper.agreement import at_printed_horizon, at_recovered_horizon, with_equal_sizes
from paper.published import (
    BesidePaper,
    PublishedCell,
    beside_paper,
    half_range,
    is_in_range,
    published,
    published_cells,
    published_group,
    ranges_overlap,
)
from paper.rules import as_published, largest_finite, widest_gaps
from paper.table import ALL_COLUMNS, cells_beside_paper, paper_sheet
from paper.variants import redrawn, redrawn_zero_first, zero_first
from tests.support.results import run, sweep_of

from areabench.engine.events import State
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.problems.data.digits import Digits
from areabench.problems.data.mnist import Mnist
from areabench.problems.datasets import Dataset
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, comparisons_of
from areabench.results.retention import Selection, named_rule
from areabench.results.statistics import Spread
from areabench.sweeps.plan import load_sweep
from areabench.sweeps.result import Result
from areabench.timing.rates import NormalRates, UniformRates
from areabench.views.tables.forms import as_csv

EXPERIMENTS = Path(__file__).parents[2] / "benchmarks" / "experiments" / "paper"
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
    cell = published(FIRST)
    assert cell is not None
    assert (cell.accuracy, cell.loss) == (Spread(87.38, 87.07, 87.92), Spread(0.74, 0.73, 0.75))


SHORT = {"clients": Clients(count=4, local_steps=50), "method": Area(step_size=1.0)}
NON_UNIFORM = NormalRates()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ("M_1_n_128_non_iid", "uniform", 15.0, 15.0, 0.29)),
        ({"split": DirichletEqual(), "rates": NON_UNIFORM}, ("M_1_n_128_non_iid", "nonuniform", 15.0, 15.0, 0.55)),
        ({"split": Iid(), "rates": NON_UNIFORM}, ("M_1_n_128_iid", "nonuniform", 15.0, 15.0, 0.53)),
        ({"split": NearlyIid(), "rates": NON_UNIFORM}, ("M_1_n_128_iid", "nonuniform", 15.0, 15.0, 0.53)),
        # the horizon does not matter, but is kept as printed
        (SHORT, ("M_50_n_4_non_iid", "uniform", 100.0, 15.0, 0.13)),
        ({**SHORT, "stop": Stop(horizon_s=100.0)}, ("M_50_n_4_non_iid", "uniform", 100.0, 15.0, 0.13)),
        # not reached is infinite
        (
            {"clients": Clients(count=4), "method": FedBuff(step_size=0.1)},
            ("M_1_n_4_non_iid", "uniform", 100.0, 100.0, math.inf),
        ),
        ({"split": NearlyIid()}, None),  # the cell that the paper leaves out
        ({"method": Area(step_size=10.0)}, None),
        ({"clients": Clients(count=64)}, None),
        ({"rates": UniformRates(rate=20.0)}, None),
        ({"rates": NormalRates(deviation=1.0)}, None),
        ({"split": Dirichlet(concentration=1.0)}, None),
        ({"data": Digits()}, None),
        ({"split": None}, None),
    ],
)
def test_which_experiment_has_which_cell(changes: dict[str, Any], found: tuple[object, ...] | None) -> None:
    cell = published(replace(FIRST, **changes))
    shown = cell and (cell.table, cell.rates, cell.horizon_s, cell.recovered_horizon_s, cell.rho)
    assert shown == found
    assert [cell.step_size for cell in published_group(replace(FIRST, split=NearlyIid()))] == [1000.0]


def test_in_range_is_judged_on_two_decimals() -> None:
    loss = Spread(0.80, 0.79, 0.82)
    means = {0.8249: True, 0.8251: False, 0.7851: True, 0.7849: False}
    assert {mean: is_in_range(mean, loss) for mean in means} == means


def test_half_ranges_are_never_zero_and_ranges_overlap_when_one_lies_in_the_other() -> None:
    assert half_range(Spread(0.39, 0.39, 0.39)) == pytest.approx(0.005)
    assert half_range(Spread(2.0, 1.0, 4.0)) == pytest.approx(1.5)
    wide = Spread(2.0, 1.0, 4.0)
    inner = Spread(2.0, 2.0, 2.0)
    apart = Spread(5.0, 4.02, 6.0)
    pairs = [(wide, inner), (inner, wide), (wide, apart), (apart, wide)]
    assert [ranges_overlap(*pair) for pair in pairs] == [True, True, False, False]


# ---------------------------------------------------------------------------------------------------- sweep files


def is_of_area(cell: PublishedCell) -> bool:
    return cell.method == "area"


def is_of_128(cell: PublishedCell) -> bool:
    return (cell.clients, cell.split) == (128, "non-iid")


@pytest.mark.parametrize(
    ("files", "runs", "counts", "wanted", "trials"),
    [
        ("tables/M*iid.toml", 8 * 560, at_recovered_horizon, lambda _: True, 10),
        ("tables/*_100s.toml", 320, at_printed_horizon, lambda cell: (cell.clients, cell.local_steps) == (4, 50), 10),
        ("tables/*_equal.toml", 4 * 160, with_equal_sizes, lambda cell: cell.split == "non-iid", 10),
        ("tables_mpi/*.toml", 48, at_recovered_horizon, lambda cell: cell.table == "M_1_n_128_non_iid", 3),
        ("variants/first_message_*.toml", None, at_recovered_horizon, is_of_area, 10),
        ("variants/first_message_*.toml", None, zero_first, is_of_area, 10),
        ("variants/redrawn_*.toml", None, redrawn, is_of_128, 10),
        ("variants/redrawn_*.toml", None, redrawn_zero_first, lambda cell: is_of_128(cell) and is_of_area(cell), 10),
    ],
)  # fmt: skip
def test_sweep_files_have_the_published_cells(
    files: str,
    runs: int | None,
    counts: Callable[[Experiment, PublishedCell], bool],
    wanted: Callable[[PublishedCell], bool],
    trials: int,
) -> None:
    plans = [load_sweep(path) for path in sorted(EXPERIMENTS.glob(files))]
    planned = [experiment for plan in plans for experiment in plan.experiments]
    assert runs is None or len(planned) == sum(len(plan.members) for plan in plans) == runs
    assert {one.record.events for one in planned} == {files.startswith("tables_mpi")}
    for one in planned:
        assert one.record.interval_s == pytest.approx((one.stop.horizon_s or 0.0) / 100)
    found = Counter(cell for one in planned if (cell := published(one)) and counts(one, cell))
    assert found == {cell: trials for cell in published_cells() if wanted(cell)}


# ---------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ((1.0, 1.0, 1.0, 1.0), (100.0, 1000.0)),
        ((1.0, 1.0, 1.0, math.inf), (10.0, 100.0)),
        ((1.0, 1.0, 1.0, math.nan), (10.0, 100.0)),
        ((1.0, math.inf, math.inf, math.inf), (1.0,)),
        ((math.inf,) * 4, ()),
    ],
)
def test_the_papers_rule_keeps_the_two_largest_with_a_finite_loss_in_all_trials(
    losses: tuple[float, ...], kept: tuple[float, ...]
) -> None:
    sizes = (1.0, 10.0, 100.0, 1000.0)
    results = [run(Area(step_size=size), 2, loss=loss) for size, loss in zip(sizes, losses, strict=True)]
    results += [run(Area(step_size=size)) for size in sizes]
    assert largest_finite(results, [2, 1, 2]) == Selection(kept, (1, 2))


def test_a_diverged_run_a_loss_beyond_the_bound_or_a_wide_gap_is_not_finite() -> None:
    sizes = (1.0, 10.0, 100.0)
    results = [replace(run(Area(step_size=size), loss=size), path=Path(f"{size:g}.h5")) for size in sizes]
    diverged = replace(results[2], status=replace(results[2].status, state=State.DIVERGED))
    assert largest_finite([*results[:2], diverged], [1]).step_sizes == (1.0, 10.0)
    assert largest_finite(results, [1], bound=10.0).step_sizes == (1.0, 10.0)
    assert largest_finite(results, [1], bound=9.9).step_sizes == (1.0,)
    gaps = {Path("100.h5"): 103.5, Path("10.h5"): 103.0}
    assert largest_finite(results, [1], gaps=gaps).step_sizes == (1.0, 10.0)


def test_the_published_step_sizes_are_kept() -> None:
    results = [run(Area(step_size=size), seed) for size in (1000.0, 100.0, 10.0) for seed in (2, 1)]
    assert as_published(results, [2, 1]) == Selection((100.0, 1000.0), (1, 2))


def test_score_gaps_are_those_of_the_worst_training_sample() -> None:
    rows = np.array([[1, 0], [0, 2], [3, 3]], np.uint8)
    data = Dataset("three", rows, np.array([0, 1, 1]), rows[:1], np.array([0]), classes=2, scale=0.5)
    right = np.eye(2, dtype=np.float32)  # scores (0.5, 0), (0, 1) and (1.5, 1.5)
    wrong = right[::-1]  # the first sample is wrong by 0.5, the second by 1
    assert widest_gaps(np.stack([right, wrong]), data).tolist() == [0.0, 1.0]


# ---------------------------------------------------------------------------------------------------- beside the paper


def cell(*results: Result, planned: int = 0) -> BesidePaper:
    found = beside_paper(Cell(results, planned or len(results), 80.0))
    assert found is not None
    return found


def table(results: Sequence[Result], planned: Sequence[Experiment] = ()) -> Comparison:
    """The one table of some runs, with every step size."""
    (built,) = comparisons_of(sweep_of(results, planned), named_rule("all"))
    return built


def test_in_range_is_judged_after_rounding() -> None:  # published: 87.38 (87.07 - 87.92), 0.74 (0.73 - 0.75), 0.29
    inside = cell(run(accuracy=87.9249, loss=0.7251, reached_s=3.0))
    assert inside.agrees
    assert inside.accuracy_difference == pytest.approx(0.54)
    assert inside.loss_difference == pytest.approx(-0.01)
    assert inside.rho_difference == pytest.approx(0.01)
    outside = cell(run(accuracy=87.9251, loss=0.7249))
    assert (outside.accuracy_in_range, outside.loss_in_range, outside.agrees) == (False, False, False)


def test_rho_agrees_within_the_tolerance_or_beyond_one() -> None:
    times = {3.0: True, 4.0: False, math.inf: False}  # published: 0.29
    for reached_s, agrees in times.items():
        beside = cell(run(reached_s=reached_s))
        assert beside.rho_agrees() is agrees
    never = run(FedBuff(step_size=0.1))
    never = replace(never, experiment=replace(never.experiment, clients=Clients(count=4)))  # published: >1
    beside = cell(never)
    assert beside.rho_agrees()
    assert beside.rho_difference == 0.0


GOOD = run(accuracy=87.38, loss=0.74, reached_s=3.0)


@pytest.mark.parametrize(("trials", "planned"), [((GOOD, run(seed=2, state=State.DIVERGED)), 2), ((GOOD,), 2)])
def test_a_cell_with_a_diverged_or_missing_trial_never_agrees(trials: Sequence[Result], planned: int) -> None:
    beside = cell(*trials, planned=planned)
    assert (beside.accuracy_in_range, beside.loss_in_range, beside.rho_agrees()) == (False, False, False)


def test_a_cell_with_missing_trials_is_called_incomplete() -> None:
    built = table([GOOD], [run(seed=seed).experiment for seed in (1, 2)])
    _, row = paper_sheet(built).rows
    assert [entry.value for entry in row].count("incomplete") == 2
    (values,) = csv.DictReader(io.StringIO(as_csv(ALL_COLUMNS, cells_beside_paper([built]))))
    assert (values["accuracy_in_range"], values["loss_in_range"]) == ("", "")


def test_the_published_value_stands_beside_ours() -> None:
    sheet = paper_sheet(table([run(accuracy=87.0, loss=0.74, reached_s=3.0)]))
    _, row = sheet.rows
    assert [entry.value for entry in row] == [
        "AREA", "100", "0.30", "0.29", "+0.01", "87.00", "87.38 (87.07 – 87.92)", "no", "-0.38", "0.74",
        "0.74 (0.73 – 0.75)", "yes", "+0.00",
    ]  # fmt: skip
    assert "the paper prints a horizon of 15 s for this table" in sheet.notes
    unpublished = paper_sheet(table([run(Area(step_size=7.0))]))
    assert [entry.value for entry in unpublished.rows[1][-3:]] == ["–", "–", "–"]


@pytest.mark.parametrize(("form", "has"), [("text", "AREA "), ("markdown", "| AREA |"), ("latex", "\\textsc{AREA}")])
def test_the_script_prints_each_form(
    form: str, has: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run()
    hidden = run(Area(step_size=7.0))
    monkeypatch.setattr(paper_table, "open_finished", lambda folders: [sweep_of([shown, hidden])])
    assert paper_table.main(["runs", "--format", form]) == 0
    assert capsys.readouterr().out.count(has) == 1
    assert paper_table.main(["runs", "--format", "csv", "--keep", "paper-rule"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["step_size"], row["paper_rho"]) for row in rows] == [("7.0", ""), ("100.0", "0.29")]
