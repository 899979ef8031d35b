"""The cells that do not agree with the paper: how far off they are, and what they have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paper.agreement import (
    Match,
    distance,
    loss_ratio,
    misses_by_a_digit,
    ranges_overlap,
)
from paper.page_tables import (
    accuracy_entry,
    bullets,
    cell_word,
    entry_table,
    loss_entry,
    paragraph,
)

from areabench.results.cells import Comparison
from areabench.results.published import PublishedCell
from areabench.views.tables.forms import Entry
from areabench.views.tables.sheets import signed, spread_word

_NOISY = 1.5  # largest published loss over the smallest


def disagreement(main: Sequence[Match], equal: Sequence[Match]) -> str:
    """Counts and a table of the complete cells that do not agree; `equal`: the same with the other split."""
    out = [match.comparison for match in main if match.comparison is not None and match.is_judged and not match.agrees]
    if not out:
        return ""
    other = {match.published: match for match in equal if match.is_judged}
    columns = ["cell", "table", "accuracy %", "paper", "Δ", "half-ranges", "loss", "paper", "Δ", "half-ranges"]
    columns += ["equal-sized split: accuracy %", "loss"] if other else []
    rows = [_row(one, other) for one in out]
    legend = paragraph(
        "Δ: our mean minus the published one; half-ranges: the same in units of half the published min – max (of 0.005 "
        "where both print the same). Bold: in the published range, and no trial diverged. Cells with missing trials "
        "are not listed."
    )
    words = f"## Cells that do not agree: {len(out)}\n\n{_facts(main, out)}{_split_facts(out, other)}"
    return f"{words}\n{legend}\n{entry_table(columns, rows)}"


def _facts(main: Sequence[Match], out: Sequence[Comparison]) -> str:
    """What the cells have in common, counted."""
    agreeing = [match.published for match in main if match.agrees]
    noisy = sum(loss_ratio(one.published) > _NOISY for one in out)
    calm_noisy = sum(loss_ratio(cell) > _NOISY for cell in agreeing)
    only_accuracy = sum(not one.accuracy_in_range and one.loss_in_range for one in out)
    only_loss = sum(one.accuracy_in_range and not one.loss_in_range for one in out)
    facts = [
        f"{only_accuracy} by the accuracy only, {only_loss} by the loss only, "
        f"{len(out) - only_accuracy - only_loss} by both; "
        f"in {sum(one.ours.diverged > 0 for one in out)} a trial diverged, which counts as both",
        f"by no more than 0.01, the last printed digit: {sum(misses_by_a_digit(one) for one in out)}",
        f"with min – max ranges of accuracy and loss that both overlap the published ones, so that some trials of ours "
        f"fall where some of the paper's did: {sum(ranges_overlap(one) for one in out)}",
        f"with a published loss whose largest trial exceeds {_NOISY:g} times the smallest, a noisy cell: {noisy} "
        f"(of the cells that agree: {calm_noisy} of {len(agreeing)})",
        f"non-IID: {sum(one.published.split == 'non-iid' for one in out)}; with non-uniform rates: "
        f"{sum(one.published.rates == 'nonuniform' for one in out)}",
        f"with a loss below the published mean: {sum(one.loss_difference < 0 for one in out)}; above it: "
        f"{sum(one.loss_difference > 0 for one in out)}",
    ]
    return "How they miss the published ranges, and what they have in common:\n\n" + bullets(facts)


def _split_facts(out: Sequence[Comparison], other: dict[PublishedCell, Match]) -> str:
    """What the other split makes of the non-IID cells among them."""
    pairs = [(one, other[one.published]) for one in out if one.published in other]
    if not pairs:
        return ""
    agree = sum(match.agrees for _, match in pairs)
    between = sum(_is_between(one, match.comparison) for one, match in pairs if match.comparison is not None)
    return "\n" + paragraph(
        f"Of the {len(pairs)} among them that were also run with the equal-sized split, {agree} agree with that one, "
        f"and in {between} the published loss lies between the two splits' means."
    )


def _is_between(one: Comparison, other: Comparison) -> bool:
    if one.ours.loss is None or other.ours.loss is None:
        return False
    low, high = sorted((one.ours.loss.mean, other.ours.loss.mean))
    return low <= one.published.loss.mean <= high


def _row(one: Comparison, other: dict[PublishedCell, Match]) -> list[Entry]:
    cell, match = one.published, Match(one.published, one)
    row = [
        Entry(cell_word(match), f", {one.ours.diverged} diverged" if one.ours.diverged else ""), Entry(cell.table),
        accuracy_entry(match), Entry(spread_word(cell.accuracy)), Entry(signed(one.accuracy_difference)),
        Entry(_half_ranges(distance(one.ours.accuracy, cell.accuracy))),
        loss_entry(match), Entry(spread_word(cell.loss)), Entry(signed(one.loss_difference)),
        Entry(_half_ranges(distance(one.ours.loss, cell.loss))),
    ]  # fmt: skip
    if other:
        again = other.get(cell, Match(cell, None))
        row += [accuracy_entry(again), loss_entry(again)]
    return row


def _half_ranges(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}"
