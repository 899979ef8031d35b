"""A comparison in words: a row per method and step size, a block of columns per rates setting."""

from __future__ import annotations

import math

from areabench.experiment.experiment import Experiment
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison
from areabench.results.ranking import QUALITIES, RankedQuality
from areabench.results.statistics import DECIMALS, Spread, SpreadName, fewest_trials
from areabench.views.styled import RULE, Heading, number
from areabench.views.tables.forms import Sheet, TableCell

_NOTHING = "–"


def sheets_of(comparison: Comparison, spread: SpreadName = "interval") -> list[Sheet]:
    """The table, and with intervals the differences from the best."""
    sheets = [plain_sheet(comparison, spread)]
    if spread == "interval" and (apart := difference_sheet(comparison)) is not None:
        sheets.append(apart)
    return sheets


def plain_sheet(comparison: Comparison, spread: SpreadName = "interval") -> Sheet:
    """The table: one block of columns per rates setting."""
    block = ["α", "ρ", "test accuracy %", "loss"]
    has_trials = has_gaps(comparison)
    if has_trials:
        block.append("trials")
    rates = [Heading(rates.describe(), len(block)) for rates in comparison.rows]
    rows: list[tuple[TableCell, ...]] = []
    for entry in comparison.methods:
        if rows:
            rows.append(RULE)
        name = TableCell(entry.label, kind="method")
        for line in comparison.lines(entry.setting) or [(None,) * len(rates)]:  # an empty one where nothing is kept
            row = [name]
            for cell in line:
                if cell is None:
                    row += [TableCell(_NOTHING)] * len(block)
                else:
                    row += [step_size_cell(cell), rho_cell(comparison, cell, spread)]
                    row += quality_cells(comparison, cell, spread)
                    if has_trials:
                        row.append(TableCell(trials_word(cell)))
            rows.append(tuple(row))
            name = TableCell()  # a method is named in its first line
    return Sheet(
        title=comparison.heading,
        label=comparison.sweep,
        headings=(Heading("", 1), *rates),
        columns=("method", *(block * len(rates))),
        rows=tuple(rows),
        notes=(*shared_notes(comparison, spread), *own_notes(comparison)),
    )


def difference_sheet(comparison: Comparison) -> Sheet | None:
    """How far each cell is from the best mean of its rates setting; None where nothing was compared."""
    qualities = [each for each in QUALITIES if any(comparison.rank(cell, each).rivals for cell in comparison.cells)]
    if not qualities:
        return None
    words = {"accuracy": "accuracy %", "loss": "loss", "rho": "ρ"}
    notes = [
        "Δ: mean difference from the best mean of the rates setting, trial by trial with the same seed, and its 95 % "
        "interval; p: permutation test of the differences' signs, two-sided, with Holm's correction"
    ]
    if "rho" in qualities:
        notes.append("ρ: trials that did not reach the target count as the horizon")
    rows: list[tuple[TableCell, ...]] = []
    for rates, entries in comparison.rows.items():
        if rows:
            rows.append(RULE)
        rows.append((TableCell(rates.describe()),))
        for entry in entries:
            for cell in entry.cells:
                row = [TableCell(entry.label, kind="method"), step_size_cell(cell)]
                for quality in qualities:
                    rank = comparison.rank(cell, quality)
                    apart = rank.difference
                    if apart is None:
                        word = _NOTHING
                        if rank.is_reference:
                            word = "best mean"
                        row += [TableCell(word), TableCell()]
                    else:
                        row.append(TableCell(with_sign(apart.mean), _between(apart.low, apart.high, "+")))
                        p = f"{apart.p:.3f}"
                        if apart.p < 0.001:
                            p = "<0.001"
                        row.append(TableCell(p))
                rows.append(tuple(row))
    return Sheet(
        title=f"{comparison.heading}: differences from the best",
        label=f"{comparison.sweep}-differences",
        headings=(),
        columns=("method", "α", *(word for each in qualities for word in (f"Δ {words[each]}", "p"))),
        rows=tuple(rows),
        notes=(*notes, *_power_notes(comparison)),
    )


def _power_notes(comparison: Comparison) -> list[str]:
    """Says so where no difference could be significant, however large."""
    # Holm's correction is hardest where most cells are compared.
    rivals = max((comparison.rank(cell, each).rivals for cell in comparison.cells for each in QUALITIES), default=0)
    trials = max((len(cell.results) for cell in comparison.cells), default=0)
    fewest = fewest_trials(rivals)
    if not rivals or trials >= fewest:
        return []
    return [
        f"{trials} trials cannot tell {rivals + 1} cells apart, however different they are, so none is marked: run at "
        f"least {fewest}"
    ]


# ---------------------------------------------------------------------------------------------------- cells


def quality_cells(comparison: Comparison, cell: Cell, spread: SpreadName) -> list[TableCell]:
    """Accuracy and loss: mean and spread, marked where it is the best or tied; a word where every trial diverged."""
    if cell.loss is None:
        return [TableCell("diverged")] * 2
    accuracy = TableCell(_NOTHING)
    if cell.accuracy is not None:
        accuracy = _marked(comparison, cell, "accuracy", fixed(cell.accuracy.mean), after_mean(cell.accuracy, spread))
    return [accuracy, _marked(comparison, cell, "loss", fixed(cell.loss.mean), after_mean(cell.loss, spread))]


def rho_cell(comparison: Comparison, cell: Cell, spread: SpreadName) -> TableCell:
    """rho, with its interval, or how many trials reached the target where some did and some did not."""
    reach = cell.reach
    # How many trials reached the target is said only where it is between none and all.
    tail = ""
    if spread == "interval" and cell.rho is not None:
        tail = after_mean(cell.rho, spread)
    elif 0 < reach.reached < reach.trials and not reach.unknown:
        tail = f" ({reach.reached}/{reach.trials})"
    return _marked(comparison, cell, "rho", rho_word(reach.rho), tail)


def _marked(comparison: Comparison, cell: Cell, quality: RankedQuality, value: str, tail: str) -> TableCell:
    mark = comparison.rank(cell, quality).mark
    return TableCell(value, tail, mark == "best", mark == "tied")


def step_size_cell(cell: Cell) -> TableCell:
    """The step size, and what else was tuned."""
    return TableCell(cell.point, kind="step size")


def has_gaps(comparison: Comparison) -> bool:
    """Whether trials are missing or diverged, so that a column says how many there are."""
    return any(cell.diverged or cell.missing for cell in comparison.cells)


def trials_word(cell: Cell) -> str:
    """How many of the planned trials there are, and how many of them diverged."""
    words = str(len(cell.results))
    if cell.missing:
        words += f" of {cell.planned}"
    if cell.diverged:
        words += f", {cell.diverged} diverged"
    return words


def after_mean(spread: Spread, which: SpreadName) -> str:
    """What follows a mean: (min – max), or the interval of the mean where there are several trials."""
    if which == "range":
        return f" ({fixed(spread.minimum)} – {fixed(spread.maximum)})"
    return _between(spread.low, spread.high, "")


def _between(low: float, high: float, sign: str) -> str:
    """An interval; nothing where there is none."""
    if math.isnan(low):
        return ""
    return f" [{number(low, DECIMALS, sign)}, {number(high, DECIMALS, sign)}]"


def fixed(value: float) -> str:
    """A number with two decimals, or with an exponent where it is huge."""
    return number(value, DECIMALS, "")


def with_sign(value: float) -> str:
    """A difference; a dash where there is none."""
    if not math.isfinite(value):
        return _NOTHING
    return number(value + 0.0, DECIMALS, "+")  # the sum makes 0 of -0


def rho_word(rho: float) -> str:
    """rho as it is printed; a dash where it is not defined."""
    if math.isnan(rho):
        return _NOTHING
    if math.isinf(rho):
        return ">1"
    return fixed(rho)


# ---------------------------------------------------------------------------------------------------- notes


def shared_notes(comparison: Comparison, spread: SpreadName) -> tuple[str, ...]:
    """The notes that tables have in common: rule, rho and best values."""
    shown = {"interval": "[95 % interval of the mean]", "range": "(min – max)"}[spread]
    return (
        f"kept: {comparison.rule.sentence}",
        f"ρ = mean time to {comparison.target:g} % test accuracy / horizon; with (reached/trials) it is the mean over "
        "the trials that reached it, >1 means that half or more did not, and a dash that it is not known",
        f"accuracy and loss: mean {shown} over the trials at the end",
        "bold (*): the best of its rates setting, and all others are outside the noise (paired permutation test with "
        "Holm's correction, 5 %); italics (~): tied with the best, not outside the noise",
    )


def own_notes(comparison: Comparison) -> tuple[str, ...]:
    """What is particular to this table: trials, resolution of rho, and what is missing."""
    trials = comparison.trial_count
    if comparison.rule.name in ("best", "tuned"):  # which keep only some of them
        seeds = sorted({result.experiment.seed for cell in comparison.cells for result in cell.results})
        trials += f", seeds {', '.join(map(str, seeds))}"
    notes = [trials + resolution_word(comparison.experiment), *_power_notes(comparison)]
    if any(cell.diverged for cell in comparison.cells):
        notes.append("diverged trials are counted but not averaged, and a cell with one is not marked as the best")
    if comparison.done < comparison.planned:
        notes.append(f"{comparison.planned - comparison.done:,} of {comparison.planned:,} runs are missing")
    if any(cell.missing for cell in comparison.cells):
        notes.append("a cell with missing trials is not marked as the best")
    kept_none = [entry.label for entry in comparison.methods if not comparison.lines(entry.setting)]
    notes += [f"{label}: the rule keeps no step size" for label in kept_none]
    return (*notes, *comparison.skipped)


def resolution_word(setting: Experiment) -> str:
    """How finely rho is known, which is a matter of the time grid."""
    record, horizon_s = setting.record, setting.stop.horizon_s
    if record.snapshots != "grid" or horizon_s is None:
        return ""
    return f"; ρ is known to {record.interval_s / horizon_s:.2g}, one grid interval of {record.interval_s:g} s"
