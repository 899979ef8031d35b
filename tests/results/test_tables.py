"""Tables of sweeps, on runs made by hand: cells, censored rho, bold, and all forms."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.support.results import run, sweep_of

from areabench.engine.events import State
from areabench.experiment.experiment import Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.problems.logistic import Logistic
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, comparisons_of, setting_of
from areabench.results.ranking import QUALITIES, RankedQuality
from areabench.results.retention import named_rule
from areabench.results.statistics import Spread
from areabench.results.table import CELL_COLUMNS, cell_values, sweep_table
from areabench.sweeps.result import Result
from areabench.timing.rates import NormalRates, UniformRates
from areabench.views.styled import RULE, Heading
from areabench.views.tables.forms import (
    Sheet,
    TableCell,
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    latex,
    markdown,
)
from areabench.views.tables.sheets import difference_sheet, plain_sheet, trials_word

ALL = named_rule("all")


def cell(*results: Result, planned: int = 0) -> Cell:
    return Cell(results, planned or len(results), 80.0)


def table(results: Sequence[Result], planned: Sequence[Experiment] = ()) -> Comparison:
    """The one table of some runs, with every step size."""
    (built,) = comparisons_of(sweep_of(results, planned), ALL)
    return built


def lines_of(built: Comparison) -> list[tuple[str, tuple[float | None, ...]]]:
    """Method and step sizes, one per rates setting, of each line of a table."""
    return [
        (method.label, tuple(None if cell is None else cell.step_size for cell in line))
        for method in built.methods
        for line in built.lines(method.setting)
    ]


# ---------------------------------------------------------------------------------------------------- a cell


def numbers(spread: Spread | None) -> tuple[float, ...] | None:
    """Mean, smallest and largest value."""
    return None if spread is None else (spread.mean, spread.minimum, spread.maximum)


DIVERGED = run(seed=2, state=State.DIVERGED, loss=9.0)


@pytest.mark.parametrize(
    ("trials", "accuracy", "loss", "words"),
    [
        ([run(accuracy=70.0), run(seed=2, loss=4.0, accuracy=80.0)], (75.0, 70.0, 80.0), (2.5, 1.0, 4.0), "2"),
        ([run(accuracy=60.0), DIVERGED], (60.0,) * 3, (1.0,) * 3, "2, 1 diverged"),  # is counted and not averaged
        ([run(accuracy=60.0), run(seed=2, loss=math.nan)], (60.0,) * 3, (1.0,) * 3, "2, 1 diverged"),
        ([DIVERGED], None, None, "1, 1 diverged"),
    ],
)
def test_the_numbers_of_a_cell(
    trials: Sequence[Result], accuracy: tuple[float, ...] | None, loss: tuple[float, ...] | None, words: str
) -> None:
    one = cell(*trials)
    assert (numbers(one.accuracy), numbers(one.loss), trials_word(one)) == (accuracy, loss, words)


@pytest.mark.parametrize(
    ("state", "loss", "diverged"),
    [
        (State.DONE, 1.0, False),
        (State.DIVERGED, 1.0, True),
        (State.DONE, math.inf, True),
        (State.TARGET, math.nan, True),
        (State.RUNNING, math.nan, False),  # its last snapshot so far has no loss
    ],
)
def test_diverged_is_what_says_so_or_ended_with_a_loss_that_is_not_finite(
    state: State, loss: float, diverged: bool
) -> None:
    one = run(state=state, loss=loss)
    assert one.has_diverged is diverged
    assert cell(one).diverged == diverged
    assert not replace(one, train_loss=np.empty(0), status=replace(one.status, state=State.DONE)).has_diverged


# ---------------------------------------------------------------------------------------------------- rho


@pytest.mark.parametrize(
    ("reached_s", "rho", "count"),
    [
        ((2.0, 4.0), 0.3, 2),  # all
        ((2.0, 4.0, math.inf), 0.3, 2),  # most: the mean of those that did
        ((2.0, math.inf), math.inf, 1),  # half did not
        ((2.0, math.inf, math.inf), math.inf, 1),
        ((math.inf,), math.inf, 0),
    ],
)
def test_rho_is_censored(reached_s: Sequence[float], rho: float, count: int) -> None:
    reach = cell(*(run(seed=seed, reached_s=time_s) for seed, time_s in enumerate(reached_s))).reach
    assert reach.rho == pytest.approx(rho)
    assert (reach.reached, reach.trials) == (count, len(reached_s))


def changed(result: Result, **changes: Any) -> Result:
    """A result of an experiment with these changes."""
    return replace(result, experiment=replace(result.experiment, **changes))


ONLY_THE_END = replace(run(), time_s=np.array([10.0]), test_accuracy=np.array([95.0]), train_loss=np.ones(1))
SHORT = replace(run(seed=2), status=replace(run().status, end_s=4.0))  # iterations ended it before its horizon
REACHED = [run(seed=seed, reached_s=5.0) for seed in range(4)]
LATER_DIVERGED = replace(DIVERGED, test_accuracy=np.where(DIVERGED.time_s >= 3.0, 80.0, 10.0))


@pytest.mark.parametrize(
    ("trials", "rho"),
    [
        ([changed(run(reached_s=1.0), stop=Stop(iterations=5))], math.nan),  # no horizon
        ([replace(run(), test_accuracy=np.full(11, math.nan))], math.nan),  # no accuracy
        ([changed(ONLY_THE_END, record=Record(snapshots="none"))], math.nan),  # when is not known
        ([changed(ONLY_THE_END, record=Record(snapshots="aggregations"))], 1.0),
        ([run(seed=1, reached_s=2.0), SHORT], math.nan),  # nothing is known of the rest
        ([replace(SHORT, test_accuracy=run(reached_s=2.0).test_accuracy)], 0.2),
        ([*REACHED, DIVERGED], 0.5),
        ([*REACHED, *[DIVERGED] * 6], math.inf),  # they did not reach it
        ([*REACHED, LATER_DIVERGED], (4 * 0.5 + 0.3) / 5),  # unless they did before
    ],
)
def test_rho_where_something_is_missing(trials: Sequence[Result], rho: float) -> None:
    assert cell(*trials).reach.rho == pytest.approx(rho, nan_ok=True)


def test_rho_in_words() -> None:
    results = [run(seed=1, reached_s=2.0), run(seed=2, reached_s=4.0), run(seed=3)]
    results += [changed(one, rates=NormalRates()) for one in results[1:]]
    text = as_text(plain_sheet(table(results)))
    assert "0.30 (2/3)" in text
    assert ">1 (1/2)" in text
    assert "rho is known to 0.1, one grid interval of 1 s" in text


# ---------------------------------------------------------------------------------------------------- tables


def test_rows_are_methods_and_step_sizes_and_blocks_are_rates() -> None:
    results = [
        run(FedBuff(step_size=1.0)), run(Area(step_size=100.0)), run(Area(step_size=10.0)),
        run(Area(step_size=10.0), rates=NormalRates()),
    ]  # fmt: skip
    built = table(results)
    assert built.title == "n = 128, M = 1, non-IID, horizon 10 s"
    assert list(built.rows) == [UniformRates(), NormalRates()]
    assert lines_of(built) == [("FedBuff", (1.0, None)), ("AREA", (10.0, 10.0)), ("AREA", (100.0, None))]


def test_other_settings_make_other_tables_with_distinct_titles() -> None:
    first = run()
    longer = changed(first, stop=Stop(horizon_s=20.0))
    finer = changed(first, problem=Logistic(batch_size=64))
    titles = [built.title for built in comparisons_of(sweep_of([first, longer, finer]), ALL)]
    assert titles[1] == "n = 128, M = 1, non-IID, horizon 20 s, problem.batch_size = 32"
    assert "problem.batch_size = 64" in titles[2]


def test_where_modules_lie_makes_no_other_table() -> None:
    experiment = run().experiment
    assert setting_of(replace(experiment, name="own", module_folders=("/there",))) == setting_of(experiment)


def test_variants_of_a_method_are_distinguished() -> None:
    results = [run(FedBuff(step_size=1.0)), run(FedBuff(step_size=1.0, server_step_size=0.5))]
    methods = [method.label for method in table(results).methods]
    assert methods == ["FedBuff (server_step_size = none)", "FedBuff (server_step_size = 0.5)"]


def test_missing_trials_are_named() -> None:
    ended = [run(seed=seed) for seed in range(8)]
    unfinished = [run(seed=8, state=State.FAILED), run(seed=9, state=State.RUNNING)]
    built = table([*ended, *unfinished])
    assert trials_word(built.cells[0]) == "8 of 10"
    text = as_text(plain_sheet(built))
    assert "8 of 10" in text
    assert "2 of 10 runs are missing" in text


def test_best_shows_the_second_half_only_and_says_so() -> None:
    results = [run(Area(step_size=size), seed, accuracy=size) for size in (10.0, 20.0) for seed in (1, 2, 3, 4)]
    planned = [result.experiment for result in results]
    (built,) = comparisons_of(sweep_of(results[:-1], planned), named_rule("best"))
    assert [(one.step_size, one.planned, len(one.results)) for one in built.cells] == [(20.0, 2, 1)]
    assert "seeds 3" in as_text(plain_sheet(built))


def test_best_skips_a_method_without_trials_to_show_and_says_so() -> None:
    area = [run(Area(step_size=1.0), seed) for seed in (1, 2)]
    results = [*area, run(FedBuff(step_size=1.0), 1)]
    planned = [*(one.experiment for one in results), run(FedBuff(step_size=1.0), 2).experiment]
    (built,) = comparisons_of(sweep_of(results, planned), named_rule("best"))
    assert lines_of(built) == [("AREA", (1.0,))]
    assert [method.label for method in built.methods] == ["AREA", "FedBuff"]
    note = "FedBuff, uniform (lambda = 10): none of the trials to show is done at 1 (seeds 2)"
    assert note in as_text(plain_sheet(built))


def test_a_method_without_kept_step_size_has_an_empty_row_and_a_note() -> None:
    results = [run(Area(step_size=1.0), seed, state=State.DIVERGED) for seed in (1, 2)]
    (built,) = comparisons_of(sweep_of(results), named_rule("best", "loss"))
    assert ([method.label for method in built.methods], lines_of(built)) == (["AREA"], [])
    assert [entry.value for entry in plain_sheet(built).rows[0]] == ["AREA", *"––––"]
    assert "AREA: the rule keeps no step size" in as_text(plain_sheet(built))


# ---------------------------------------------------------------------------------------------------- bold


def marked(built: Comparison, quality: RankedQuality, mark: str = "best") -> list[tuple[str, float]]:
    found = [one for one in built.cells if built.rank(one, quality).mark == mark]
    return [(one.experiment.rates.name, one.step_size) for one in found]


def trials(step_size: float, accuracies: Sequence[float], **options: Any) -> list[Result]:
    """Eight trials of AREA: the accuracies, repeated; the loss is their hundredth below 1, the time a tenth of it."""
    values = [accuracies[seed % len(accuracies)] for seed in range(8)]
    return [
        run(Area(step_size=step_size), seed, accuracy=value, loss=1 - value / 100, **options)
        for seed, value in enumerate(values)
    ]


def test_best_is_what_is_outside_the_noise_of_all_others_in_its_rates_setting() -> None:
    normal = NormalRates()
    results = trials(1.0, [79.0, 81.0], reached_s=1.0) + trials(2.0, [70.0, 71.0], reached_s=2.0)
    results += trials(1.0, [10.0, 12.0], rates=normal) + trials(2.0, [20.0, 21.0], rates=normal)
    built = table(results)
    assert marked(built, "accuracy") == marked(built, "loss") == [("uniform", 1.0), ("normal", 2.0)]
    assert marked(built, "rho") == [("uniform", 1.0)]
    assert marked(built, "accuracy", "tied") == []


def test_what_is_not_outside_the_noise_is_tied_and_nothing_is_best() -> None:
    results = trials(1.0, [80.0, 82.0]) + trials(2.0, [82.0, 79.5]) + trials(3.0, [50.0])
    built = table(results)
    assert marked(built, "accuracy") == []
    assert marked(built, "accuracy", "tied") == [("uniform", 1.0), ("uniform", 2.0)]
    text = as_text(plain_sheet(built))
    assert "81.00~ [" in text
    assert "50.00 [" in text


def test_a_single_trial_or_rival_marks_nothing() -> None:
    single = table([run(Area(step_size=1.0), accuracy=90.0), run(Area(step_size=2.0), accuracy=10.0)])
    for built in (single, table(trials(1.0, [80.0, 82.0]))):
        assert marked(built, "accuracy") == marked(built, "accuracy", "tied") == []


def test_cells_with_a_diverged_or_missing_trial_are_not_compared() -> None:
    good = trials(1.0, [50.0, 51.0], reached_s=5.0) + trials(2.0, [40.0, 40.5], reached_s=6.0)
    diverged = [*trials(3.0, [99.0], reached_s=0.0)[1:], run(Area(step_size=3.0), 0, state=State.DIVERGED)]
    missing = trials(4.0, [99.0], reached_s=0.0)
    built = table([*good, *diverged, *missing[1:]], [one.experiment for one in (*good, *diverged, *missing)])
    for quality in QUALITIES:
        assert marked(built, quality) == [("uniform", 1.0)]
        assert {built.rank(one, quality).rivals for one in built.cells} == {0, 1}


def test_a_rho_that_not_all_trials_reached_is_not_best_and_counts_as_the_horizon() -> None:
    some = [run(Area(step_size=1.0), seed, reached_s=0.0 if seed else math.inf) for seed in range(8)]
    built = table([*some, *trials(2.0, [50.0], reached_s=5.0)])
    assert marked(built, "rho", "tied") == [("uniform", 1.0), ("uniform", 2.0)]
    apart = built.rank(built.cells[0], "rho").difference
    assert apart is not None
    assert apart.mean == pytest.approx(1 / 8 - 0.5)


def test_differences_from_the_best_are_paired_by_seed() -> None:
    results = trials(1.0, [80.0, 82.0]) + [run(Area(step_size=2.0), seed, accuracy=70.0) for seed in range(2, 8)]
    built = table(results)
    apart = built.rank(built.cells[1], "accuracy").difference
    assert apart is not None
    assert (apart.pairs, apart.mean, apart.p) == (6, -11.0, 2 / 2**6)
    sheet = difference_sheet(built)
    assert sheet is not None
    assert [row[2].value for row in sheet.rows[1:]] == ["best mean", "-11.00"]
    assert "p" in sheet.columns


def test_too_few_trials_to_tell_anything_apart_are_said() -> None:
    built = table([run(Area(step_size=size), seed, accuracy=size) for size in (1.0, 50.0) for seed in range(5)])
    assert marked(built, "accuracy") == marked(built, "accuracy", "tied") == []
    sheet = difference_sheet(built)
    assert sheet is not None
    assert "5 trials cannot tell 2 cells apart" in sheet.notes[-1]
    assert sheet.notes[-1] in as_text(plain_sheet(built))


def test_the_paper_s_spread_is_the_range() -> None:
    built = table(trials(1.0, [79.0, 81.0]))
    assert "80.00 (79.00 - 81.00)" in as_text(plain_sheet(built, "range"))
    assert "80.00 [78.87, 81.13]" in as_text(plain_sheet(built))


# ---------------------------------------------------------------------------------------------------- forms

METHOD = TableCell("AREA", kind="method")
SHEET = Sheet(
    title="50 % of a_b & c",
    label="a_b",
    headings=(Heading("", 1), Heading("λ = 10", 2)),
    columns=("method", "α", "loss"),
    rows=(
        (METHOD, TableCell("100", kind="step size"), TableCell("0.50", " (0.40 – 0.60)", is_bold=True)),
        RULE,
        (TableCell("rates"),),
        (TableCell("x|y"), TableCell("0.01", kind="step size"), TableCell(">1")),
    ),
    notes=("ρ is known",),
)


def test_plain_text_is_aligned_and_ascii() -> None:
    assert as_text(SHEET).splitlines()[2:9] == [
        "               lambda = 10",
        "method  alpha                 loss",
        "----------------------------------",
        "AREA      100  0.50* (0.40 - 0.60)",
        "----------------------------------",
        "rates",
        "x|y      0.01                   >1",
    ]


def test_markdown_and_latex_escape_and_mark_the_best() -> None:
    lines = as_markdown(SHEET, level=3).splitlines()
    for line in (r"### 50 % of a\_b & c", "| AREA | 100 | **0.50** (0.40 – 0.60) |", r"| x\|y | 0.01 | >1 |"):
        assert line in lines
    assert markdown("a*b\n<c>") == "a\\*b \\<c>"
    lines = as_latex(SHEET).splitlines()
    for line in (
        r" & \multicolumn{2}{c}{\textbf{$\lambda$ = 10}} \\",
        r"\cmidrule(lr){2-3}",
        r"\textsc{AREA} & $10^{2}$ & \textbf{0.50} (0.40 -- 0.60) \\",
        r"x$|$y & $10^{-2}$ & $>$1 \\",
        r"\multicolumn{3}{l}{\textit{rates}} \\",
        r"\caption{50 \% of a\_b \& c. $\rho$ is known.}",
        r"\label{tab:a-b}",
    ):
        assert line in lines
    assert latex("\\{~^}#$") == r"\textbackslash{}\{$\sim$\textasciicircum{}\}\#\$"


def test_latex_has_powers_of_ten_and_its_braces_and_columns_match() -> None:
    results = [run(Area(step_size=size)) for size in (1.0, 1000.0, 0.1, 20.0, 0.5)]
    sheet = plain_sheet(table([*results, run(seed=2, state=State.DIVERGED), run(rates=NormalRates())]))
    source = as_latex(sheet)
    assert source.count("{") == source.count("}")
    rows = [line.split(" & ") for line in source.splitlines() if " & " in line][2:]
    assert [row[1] for row in rows] == ["$10^{-1}$", "0.5", "$10^{0}$", "20", "$10^{2}$", "$10^{3}$"]
    assert {len(row) for row in rows} == {len(sheet.columns)}


def test_the_frame_of_a_sweep_has_the_columns_and_numbers_of_the_csv() -> None:
    results = [run(seed=seed, loss=1 / seed, accuracy=87.0, reached_s=seed) for seed in (1, 2)]
    results += [run(FedBuff(step_size=7.0)), run(Area(step_size=7.0), state=State.DIVERGED)]
    frame = sweep_table(sweep_of(results), "all")
    text = pd.read_csv(io.StringIO(as_csv(CELL_COLUMNS, cell_values([table(results)]))))
    text["rho"] = text["rho"].replace(">1", "inf").astype(float)  # a number in the frame
    pd.testing.assert_frame_equal(frame, text, check_dtype=False, check_exact=True)
    assert frame["rho"].tolist() == [math.inf, 0.15, math.inf]


def test_csv_gives_every_number_back() -> None:
    trials = [
        run(seed=1, loss=1 / 3, accuracy=87.1, reached_s=1.0),
        run(seed=2, loss=2 / 3, accuracy=87.3, reached_s=2),
    ]
    built = table([*trials, run(seed=3, state=State.DIVERGED), run(Area(step_size=7.0), state=State.DIVERGED)])
    text = as_csv(CELL_COLUMNS, cell_values([replace(built, sweep="sweep, one")]))
    diverged, row = csv.DictReader(io.StringIO(text))
    assert tuple(row) == CELL_COLUMNS
    assert (row["sweep"], row["rates"], row["method"]) == ("sweep, one", "uniform (λ = 10)", "AREA")
    assert (float(row["loss_min"]), float(row["loss_mean"]), float(row["loss_max"])) == (1 / 3, 0.5, 2 / 3)
    assert (row["planned"], row["done"], row["diverged"], row["reached"]) == ("3", "3", "1", "2")
    assert (float(row["time_to_target_s"]), float(row["rho"])) == (1.5, 0.15)
    assert (diverged["loss_mean"], diverged["rho"]) == ("", ">1")
