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
from areabench.results.table import CELL_COLUMNS, cell_values, sweep_table
from areabench.sweeps.read import Result
from areabench.timing.rates import NormalRates, UniformRates
from areabench.views.styled import Heading
from areabench.views.tables.forms import (
    Group,
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


def test_mean_smallest_and_largest() -> None:
    one = cell(run(loss=1.0, accuracy=70.0), run(seed=2, loss=4.0, accuracy=80.0))
    assert one.accuracy is not None
    assert one.loss is not None
    assert (one.accuracy.mean, one.accuracy.minimum, one.accuracy.maximum) == (75.0, 70.0, 80.0)
    assert (one.loss.mean, one.loss.minimum, one.loss.maximum) == (2.5, 1.0, 4.0)


@pytest.mark.parametrize("bad", [run(seed=2, state=State.DIVERGED, loss=9.0), run(seed=2, loss=math.nan)])
def test_a_diverged_trial_is_counted_and_not_averaged(bad: Result) -> None:
    one = cell(run(loss=1.0, accuracy=60.0, reached_s=2.0), replace(bad, time_s=bad.time_s * 0))
    assert one.diverged == 1
    assert one.loss is not None
    assert one.accuracy is not None
    assert (one.loss.mean, one.accuracy.mean) == (1.0, 60.0)
    assert (one.reach.reached, one.reach.trials) == (1, 2)
    assert trials_word(one) == "2, 1 diverged"


def test_a_cell_of_diverged_trials_only_has_no_numbers() -> None:
    one = cell(run(state=State.DIVERGED))
    assert (one.accuracy, one.loss) == (None, None)
    assert math.isinf(one.reach.rho)  # none reached the target


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


def test_rho_needs_a_horizon_and_an_accuracy() -> None:
    endless = run(reached_s=1.0)
    endless = replace(endless, experiment=replace(endless.experiment, stop=Stop(iterations=5)))
    assert math.isnan(cell(endless).reach.rho)
    assert math.isnan(cell(replace(run(), test_accuracy=np.full(11, math.nan))).reach.rho)


def test_rho_is_not_known_without_snapshots_over_time() -> None:
    end = run(accuracy=95.0)
    end = replace(end, time_s=end.time_s[-1:], test_accuracy=end.test_accuracy[-1:], train_loss=end.train_loss[-1:])
    end = replace(end, experiment=replace(end.experiment, record=Record(snapshots="none")))
    assert (end.time_to_accuracy(80.0), end.knows_time_to(80.0)) == (10.0, False)
    built = table([end])
    assert math.isnan(built.cells[0].reach.rho)
    assert built.rank(built.cells[0], "rho").mark == ""
    every_step = replace(end, experiment=replace(end.experiment, record=Record(snapshots="aggregations")))
    assert cell(every_step).reach.rho == 1.0


def test_diverged_trials_did_not_reach_the_target_unless_they_did_before() -> None:
    good = [run(seed=seed, reached_s=5.0) for seed in range(4)]
    bad = [run(seed=seed, state=State.DIVERGED) for seed in range(4, 10)]
    built = table(good + bad)
    assert math.isinf(built.cells[0].reach.rho)
    assert ">1 (4/10)" in as_text(plain_sheet(built))
    before = replace(bad[0], test_accuracy=np.where(bad[0].time_s >= 3.0, 80.0, 10.0))
    assert cell(*good, before).reach.rho == pytest.approx((4 * 0.5 + 0.3) / 5)


def test_a_run_that_iterations_ended_before_its_horizon_says_nothing_of_the_rest() -> None:
    short = run(seed=2)
    short = replace(short, status=replace(short.status, end_s=4.0))
    assert (short.time_to_accuracy(80.0), short.knows_time_to(80.0)) == (math.inf, False)
    one = cell(run(seed=1, reached_s=2.0), short)
    assert (one.reach.unknown, math.isnan(one.reach.rho)) == (1, True)
    reached = replace(run(reached_s=2.0), status=short.status)
    assert cell(reached).reach.rho == pytest.approx(0.2)


def test_rho_in_words() -> None:
    results = [run(seed=1, reached_s=2.0), run(seed=2, reached_s=4.0), run(seed=3)]
    results += [replace(one, experiment=replace(one.experiment, rates=NormalRates())) for one in results[1:]]
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
    longer = replace(first, experiment=replace(first.experiment, stop=Stop(horizon_s=20.0)))
    finer = replace(first, experiment=replace(first.experiment, problem=Logistic(batch_size=64)))
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
    planned = [run(seed=seed).experiment for seed in range(10)]
    built = table([run(seed=seed) for seed in range(8)], planned)
    assert trials_word(built.cells[0]) == "8 of 10"
    text = as_text(plain_sheet(built))
    assert "8 of 10" in text
    assert "2 of 10 runs are missing" in text


def test_a_failed_or_unfinished_run_counts_as_missing() -> None:
    results = [run(seed=1), run(seed=2, state=State.FAILED), run(seed=3, state=State.RUNNING)]
    built = table(results)
    assert trials_word(built.cells[0]) == "1 of 3"


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
    assert [entry.value for entry in plain_sheet(built).groups[0].rows[0]] == ["AREA", *"––––"]
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
    built = table([run(Area(step_size=1.0), accuracy=90.0), run(Area(step_size=2.0), accuracy=10.0)])
    assert marked(built, "accuracy") == marked(built, "accuracy", "tied") == []
    alone = table(trials(1.0, [80.0, 82.0]))
    assert marked(alone, "accuracy") == []


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
    assert [row[2].value for row in sheet.groups[0].rows] == ["best mean", "-11.00"]
    assert "p" in sheet.columns


def test_too_few_trials_to_tell_anything_apart_are_said() -> None:
    results = [run(Area(step_size=size), seed, accuracy=size) for size in (1.0, 50.0) for seed in range(5)]
    sheet = difference_sheet(table(results))
    assert sheet is not None
    words = "5 trials cannot tell 2 cells apart, however different they are, so none is marked: run at least 6"
    assert sheet.notes[-1] == words
    built = table(results)
    assert marked(built, "accuracy") == marked(built, "accuracy", "tied") == []
    assert words in as_text(plain_sheet(built))


def test_the_paper_s_spread_is_the_range() -> None:
    built = table(trials(1.0, [79.0, 81.0]))
    assert "80.00 (79.00 - 81.00)" in as_text(plain_sheet(built, "range"))
    assert "80.00 [78.87, 81.13]" in as_text(plain_sheet(built))


# ---------------------------------------------------------------------------------------------------- forms

METHOD_ROW = (
    TableCell("AREA", kind="method"),
    TableCell("100", kind="step size"),
    TableCell("0.50", " (0.40 – 0.60)", is_bold=True),
)
SHEET = Sheet(
    title="50 % of a_b & c",
    label="a_b",
    headings=(Heading("", 1), Heading("λ = 10", 2)),
    columns=("method", "α", "loss"),
    groups=(
        Group(
            (
                (
                    TableCell("AREA", kind="method"),
                    TableCell("100", kind="step size"),
                    TableCell("0.50", " (0.40 – 0.60)", True),
                ),
            )
        ),
        Group(((TableCell("x|y"), TableCell("0.01", kind="step size"), TableCell(">1")),), "rates"),
    ),
    notes=("ρ is known",),
)


def test_plain_text_is_aligned_and_ascii() -> None:
    assert as_text(SHEET) == (
        "50 % of a_b & c\n"
        "\n"
        "               lambda = 10\n"
        "method  alpha                 loss\n"
        "----------------------------------\n"
        "AREA      100  0.50* (0.40 - 0.60)\n"
        "----------------------------------\n"
        "rates\n"
        "x|y      0.01                   >1\n"
        "----------------------------------\n"
        "rho is known\n"
    )


def test_markdown_escapes_and_bold() -> None:
    assert as_markdown(SHEET, level=3) == (
        "### 50 % of a\\_b & c\n\n"
        "| method | λ = 10: α | loss |\n"
        "| --- | ---: | ---: |\n"
        "| AREA | 100 | **0.50** (0.40 – 0.60) |\n"
        "| **rates** |  |  |\n"
        "| x\\|y | 0.01 | >1 |\n\n"
        "- ρ is known\n"
    )
    assert markdown("a*b\n<c>") == "a\\*b \\<c>"


def test_latex_escapes_bold_and_powers_of_ten() -> None:
    lines = as_latex(SHEET).splitlines()
    assert r" & \multicolumn{2}{c}{\textbf{$\lambda$ = 10}} \\" in lines
    assert r"\cmidrule(lr){2-3}" in lines
    assert r"\textsc{AREA} & $10^{2}$ & \textbf{0.50} (0.40 -- 0.60) \\" in lines
    assert r"x$|$y & $10^{-2}$ & $>$1 \\" in lines
    assert r"\multicolumn{3}{l}{\textit{rates}} \\" in lines
    assert r"\caption{50 \% of a\_b \& c. $\rho$ is known.}" in lines
    assert r"\label{tab:a-b}" in lines
    assert latex("\\{~^}#$") == r"\textbackslash{}\{$\sim$\textasciicircum{}\}\#\$"


@pytest.mark.parametrize(
    ("size", "shown"), [(1.0, "$10^{0}$"), (1000.0, "$10^{3}$"), (0.1, "$10^{-1}$"), (20.0, "20"), (0.5, "0.5")]
)
def test_latex_step_sizes(size: float, shown: str) -> None:
    source = as_latex(plain_sheet(table([run(Area(step_size=size))])))
    assert f" & {shown} & " in source


def test_latex_braces_and_columns_match() -> None:
    built = table([run(), run(seed=2, state=State.DIVERGED), run(rates=NormalRates())])
    sheet = plain_sheet(built)
    source = as_latex(sheet)
    assert source.count("{") == source.count("}")
    rows = [line for line in source.splitlines() if line.startswith(r"\textsc")]
    assert rows
    assert {row.count("&") for row in rows} == {len(sheet.columns) - 1}


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
