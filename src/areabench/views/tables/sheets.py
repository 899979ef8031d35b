"""A sweep's table in words: a row per method and step size, a block of columns per rates setting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from areabench.experiment.labels import describe_rates
from areabench.experiment.records import Experiment
from areabench.results.cells import Cell
from areabench.results.grouping import Contender, Page
from areabench.results.ranking import QUALITIES, RankedQuality
from areabench.results.statistics import DECIMALS, Reach, Spread, SpreadName, fewest_trials
from areabench.views.styled import Heading, number
from areabench.views.tables.forms import Entry, Group, Sheet

_NOTHING = "–"


def plain_sheet(table: Page, title: str, label: str, spread: SpreadName = "interval") -> Sheet:
    """The table: one block of columns per rates setting."""
    block = ("α", "ρ", "test accuracy %", "loss", *(["trials"] if has_gaps(table) else []))
    headings = (Heading("", 1), *(Heading(describe_rates(row.rates), len(block)) for row in table.rows))
    columns = ("method", *(block * len(table.rows)))
    groups = tuple(_plain_group(table, contender, spread) for contender in table.methods)
    notes = (*shared_notes(table, spread), *own_notes(table))
    return Sheet(title, label, headings, columns, groups, notes)


def difference_sheet(table: Page, title: str, label: str) -> Sheet | None:
    """How far each cell is from the best mean of its rates setting; None where nothing was compared."""
    qualities = [each for each in QUALITIES if any(table.standing(cell, each).rivals for cell in table.cells)]
    if not qualities:
        return None
    words = {"accuracy": "accuracy %", "loss": "loss", "rho": "ρ"}
    columns = ("method", "α", *(word for each in qualities for word in (f"Δ {words[each]}", "p")))
    groups = [
        Group(
            tuple(
                (Entry(one.label, kind="method"), step_size_entry(cell), *_difference_entries(table, cell, qualities))
                for one in row.contenders
                for cell in one.cells
            ),
            describe_rates(row.rates),
        )
        for row in table.rows
    ]
    notes = (
        "Δ: mean difference from the best mean of the rates setting, trial by trial with the same seed, and its 95 % "
        "interval; p: permutation test of the differences' signs, two-sided, with Holm's correction",
        *(["ρ: trials that did not reach the target count as the horizon"] if "rho" in qualities else []),
        *_power_notes(table),
    )
    return Sheet(f"{title}: differences from the best", f"{label}-differences", (), columns, tuple(groups), notes)


def _difference_entries(table: Page, cell: Cell, qualities: Sequence[RankedQuality]) -> list[Entry]:
    entries: list[Entry] = []
    for quality in qualities:
        standing = table.standing(cell, quality)
        found = standing.difference
        if found is None:
            entries += [Entry("best mean" if standing.is_reference else _NOTHING), Entry()]
        else:
            entries += [Entry(signed(found.mean), _between(found.low, found.high, "+")), Entry(p_word(found.p))]
    return entries


def _power_notes(table: Page) -> list[str]:
    """Says so where no difference could be significant, however large."""
    rivals = max((table.standing(cell, each).rivals for cell in table.cells for each in QUALITIES), default=0)
    trials = max((len(cell.results) for cell in table.cells), default=0)
    if not rivals or trials >= (fewest := fewest_trials(rivals)):
        return []
    return [
        f"{trials} trials cannot tell {rivals + 1} cells apart, however different they are, so none is marked: run at "
        f"least {fewest}"
    ]


def p_word(p: float) -> str:
    """A p value as it is printed."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


# ---------------------------------------------------------------------------------------------------- rows


def _plain_group(table: Page, contender: Contender, spread: SpreadName) -> Group:
    """The lines of one method, which is named in the first; one empty line where no step size is kept."""
    lines = table.lines(contender) or [(None,) * len(table.rows)]
    names = [Entry(contender.label, kind="method"), *(Entry() for _ in lines[1:])]
    return Group(
        tuple(
            (name, *(entry for cell in line for entry in _plain_entries(table, cell, spread)))
            for name, line in zip(names, lines, strict=True)
        )
    )


def _plain_entries(table: Page, cell: Cell | None, spread: SpreadName) -> list[Entry]:
    if cell is None:
        return [Entry(_NOTHING)] * (5 if has_gaps(table) else 4)
    qualities = [rho_entry(table, cell, spread), *quality_entries(table, cell, spread)]
    return [step_size_entry(cell), *qualities, *trials_entry(table, cell)]


# ---------------------------------------------------------------------------------------------------- entries


def quality_entries(table: Page, cell: Cell, spread: SpreadName) -> list[Entry]:
    """Accuracy and loss: mean and spread, marked where it is the best or tied; a word where every trial diverged."""
    if cell.loss is None:
        return [Entry("diverged")] * 2
    accuracy = Entry(_NOTHING)
    if cell.accuracy is not None:
        accuracy = _marked(fixed(cell.accuracy.mean), after_mean(cell.accuracy, spread), table, cell, "accuracy")
    return [accuracy, _marked(fixed(cell.loss.mean), after_mean(cell.loss, spread), table, cell, "loss")]


def _marked(value: str, tail: str, table: Page, cell: Cell, quality: RankedQuality) -> Entry:
    mark = table.standing(cell, quality).mark
    return Entry(value, tail, mark == "best", mark == "tied")


def rho_entry(table: Page, cell: Cell, spread: SpreadName) -> Entry:
    """rho, with its interval, or how many trials reached the target where some did and some did not."""
    reach = cell.reach
    tail = after_mean(cell.rho, spread) if spread == "interval" and cell.rho is not None else _reached(reach)
    return _marked(rho_word(reach.rho), tail, table, cell, "rho")


def _reached(reach: Reach) -> str:
    return f" ({reach.reached}/{reach.trials})" if 0 < reach.reached < reach.trials and not reach.unknown else ""


def step_size_entry(cell: Cell) -> Entry:
    """The step size, and what else was tuned."""
    return Entry(cell.point, kind="step size")


def trials_entry(table: Page, cell: Cell) -> list[Entry]:
    """The column of trials, where the table has it."""
    return [Entry(trials_word(cell))] if has_gaps(table) else []


def trials_word(cell: Cell) -> str:
    """How many of the planned trials there are, and how many of them diverged."""
    done, diverged = len(cell.results), cell.diverged
    words = str(done) if done == cell.planned else f"{done} of {cell.planned}"
    return words + (f", {diverged} diverged" if diverged else "")


def spread_word(spread: Spread) -> str:
    """Mean (min – max)."""
    return fixed(spread.mean) + range_word(spread)


def after_mean(spread: Spread, which: SpreadName) -> str:
    """What follows a mean: (min – max), or the interval of the mean where there are several trials."""
    return range_word(spread) if which == "range" else _between(spread.low, spread.high, "")


def _between(low: float, high: float, sign: str) -> str:
    """An interval; nothing where there is none."""
    return "" if math.isnan(low) else f" [{number(low, DECIMALS, sign)}, {number(high, DECIMALS, sign)}]"


def range_word(spread: Spread) -> str:
    """(min – max)."""
    return f" ({fixed(spread.minimum)} – {fixed(spread.maximum)})"


def fixed(value: float) -> str:
    """A number with the paper's two decimals, or with an exponent where it is huge."""
    return number(value, DECIMALS, "")


def signed(value: float) -> str:
    """A difference; a dash where there is none."""
    return number(value + 0.0, DECIMALS, "+") if math.isfinite(value) else _NOTHING


def rho_word(rho: float) -> str:
    """rho as the paper prints it; a dash where it is not defined."""
    if math.isnan(rho):
        return _NOTHING
    return ">1" if math.isinf(rho) else fixed(rho)


# ---------------------------------------------------------------------------------------------------- notes


def shared_notes(table: Page, spread: SpreadName) -> tuple[str, ...]:
    """The notes of a table: rule, rho and best values."""
    shown = "(min – max) over the trials" if spread == "range" else "[95 % interval of the mean] over the trials"
    return (
        f"kept: {table.rule.sentence}",
        f"ρ = mean time to {table.target:g} % test accuracy / horizon; with (reached/trials) it is the mean over the "
        "trials that reached it, >1 means that half or more did not, and a dash that it is not known",
        f"accuracy and loss: mean {shown} at the end",
        "bold (*): the best of its rates setting, and all others are outside the noise (paired permutation test with "
        "Holm's correction, 5 %); italics (~): tied with the best, not outside the noise",
    )


def own_notes(table: Page) -> tuple[str, ...]:
    """What is particular to this table: trials, resolution of rho, and what is missing."""
    notes = [f"{_trial_count(table)}{resolution_word(table.experiment)}", *_power_notes(table)]
    if any(cell.diverged for cell in table.cells):
        notes.append("diverged trials are counted but not averaged, and a cell with one is not marked as the best")
    if table.done < table.planned:
        notes.append(f"{table.planned - table.done:,} of {table.planned:,} runs are missing")
    if any(cell.missing for cell in table.cells):
        notes.append("a cell with missing trials is not marked as the best")
    notes += [f"{one.label}: the rule keeps no step size" for one in table.methods if not table.lines(one)]
    return (*notes, *table.skipped)


def _trial_count(table: Page) -> str:
    """How many trials there are; which, where a rule keeps only some of them."""
    seeds = sorted({result.experiment.seed for cell in table.cells for result in cell.results})
    return table.trial_count + (f", seeds {', '.join(map(str, seeds))}" if table.rule.name in ("best", "tuned") else "")


def resolution_word(setting: Experiment) -> str:
    """How finely rho is known, which is a matter of the time grid."""
    record, horizon_s = setting.record, setting.stop.horizon_s
    if record.snapshots != "grid" or horizon_s is None:
        return ""
    return f"; ρ is known to {record.interval_s / horizon_s:.2g}, one grid interval of {record.interval_s:g} s"


def has_gaps(table: Page) -> bool:
    """Whether trials are missing or diverged, so that a column says how many there are."""
    return any(cell.diverged or cell.missing for cell in table.cells)
