"""One Markdown page of all sweeps beside the paper's tables: agreement, gaps and their reasons, retention, tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paper.agreement import (
    RHO_TOLERANCE,
    Counts,
    Match,
    at_printed_horizon,
    at_recovered_horizon,
    both_overlap,
    count,
    distance,
    fit_bound,
    kept_groups,
    loss_ratio,
    matches,
    misses_by_a_digit,
    with_equal_sizes,
)
from paper.origin import origin
from paper.page_tables import (
    accuracy_entry,
    bullets,
    cell_word,
    entry_table,
    horizons_table,
    loss_entry,
    markdown_table,
    paragraph,
    retention_table,
)
from paper.published import METHOD_LABELS, BesidePaper, PublishedCell, published_cells, spread_word
from paper.rules import SINGLE_PRECISION_GAP
from paper.table import notes_for_all, notes_of, paper_sheet, paper_tables

from areabench.errors import UserError
from areabench.results.grouping import Comparison
from areabench.sweeps.read import Sweep
from areabench.views.tables.forms import TableCell, as_markdown, markdown
from areabench.views.tables.sheets import with_sign

_NOISY = 1.5  # largest published loss over the smallest


def write_results(sweeps: Sequence[Sweep], output: Path, command: str) -> None:
    """Write the page of some sweeps; `command` is the one that does so."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(results_page(sweeps, output.parent, command), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}; give another --page") from error


def results_page(sweeps: Sequence[Sweep], folder: Path, command: str) -> str:
    """The page; figures in `folder`/figures are linked."""
    simulated = [sweep for sweep in sweeps if sweep.transport == "simulator"]
    tables = [table for sweep in simulated for table in paper_tables(sweep)]
    main = matches(tables, published_cells(), at_recovered_horizon)
    equal = matches(tables, [cell for cell in published_cells() if cell.split == "non-iid"], with_equal_sizes)
    sections = [
        _top(sweeps, tables, main, equal, command),
        _reasons(),
        disagreement(main, equal),
        _retention(simulated),
        _tables(tables, main),
        _horizons(tables, main),
        _figures(folder),
    ]
    return "\n".join(section for section in sections if section)


# ---------------------------------------------------------------------------------------------------- the top


def _top(
    sweeps: Sequence[Sweep],
    tables: Sequence[Comparison],
    main: Sequence[Match],
    equal: Sequence[Match],
    command: str,
) -> str:
    total = count(main)
    printed_cells = [cell for cell in published_cells() if cell.horizon_s != cell.recovered_horizon_s]
    rows = [_count_row("all cells, at the horizons that fit the paper's values", total)]
    rows += [_count_row(f"of these {name}", count(part)) for name, part in _parts(main)]
    printed = count(matches(tables, printed_cells, at_printed_horizon))
    rows += [_count_row("n = 4, M = 50 at the printed horizon of 100 s", printed)] if printed.run else []
    other = count(equal)
    rows += [_count_row("non-IID cells with the equal-sized split", other)] if other.run else []
    columns = ["cells", "run", "incomplete", "accuracy and loss", "accuracy", "loss", "ρ", "ρ of the mean curve"]
    parts = [
        "# The paper's tables, simulated\n",
        paragraph(
            f"**{total.both} of the {total.cells} published cells agree.** A cell agrees when our mean accuracy and "
            "our mean loss over the trials, both rounded to the paper's two decimals, lie in the published min – max "
            "ranges, and no trial is missing or diverged. The accuracy alone lies in its range in "
            f"{total.accuracy} cells and the loss in {total.loss}; ρ = t80/horizon differs by at most "
            f"{RHO_TOLERANCE:g}, or exceeds 1 in both, in {total.rho}. " + _unfinished(total)
        ),
        markdown_table(["agreement in", *columns], rows),
        paragraph(
            "The paper does not say how it averages t80. The column ρ takes the mean over the trials that reached 80 % "
            "(>1 when half or more did not), the last column the time at which the mean accuracy of all trials first "
            "does."
        ),
        origin(sweeps, command),
    ]
    return "\n".join(parts)


def _unfinished(total: Counts) -> str:
    """Cells that the counts leave out."""
    words = f"Cells that have not been run: {total.cells - total.run}. " if total.run < total.cells else ""
    return words + (f"Cells with missing trials: {total.incomplete}." if total.incomplete else "")


def _parts(main: Sequence[Match]) -> list[tuple[str, list[Match]]]:
    """The cells by split, by rates and by method."""
    parts = [(name, [one for one in main if one.published.split == key]) for key, name in _SPLITS]
    parts += [(name, [one for one in main if one.published.rates == key]) for key, name in _RATES]
    return parts + [
        (label, [one for one in main if one.published.method == name]) for name, label in METHOD_LABELS.items()
    ]


_SPLITS = (("non-iid", "non-IID"), ("iid", "IID"))
_RATES = (("uniform", "uniform rates"), ("nonuniform", "non-uniform rates"))


def _count_row(name: str, counts: Counts) -> list[str]:
    numbers = (
        counts.cells, counts.run, counts.incomplete, counts.both, counts.accuracy, counts.loss, counts.rho,
        counts.curve_rho,
    )  # fmt: skip
    return [name, *(str(number) for number in numbers)]


# ---------------------------------------------------------------------------------------------------- sections


def _reasons() -> str:
    """The recovered points: what the paper does not say, or says otherwise."""
    return """## What the paper leaves open

These points are not stated in the paper. They were recovered by comparing simulated runs with its tables, and the runs
on this page use all of them; where the authors did something else, cells disagree:

- pixels are scaled to [0, 1] and nothing else; W starts with independent entries uniform on (-0.5, 0.5);
- client i descends its share (s_i/S)·f_i of the global sum, not n times that (`problem.weighting = "share"`);
- FedBuff's server step size eta is the client's alpha, so its effective step is alpha²;
- rates drawn from N(10, 5) that are not positive are drawn again;
- the tables for n = 4, M = 50 print a horizon of 100 s, but their own ρ and loss fit 15 s: they are counted at 15 s,
  and the runs at 100 s are shown below;
- a client of AREA trains on x_{s,0} before its first message, as in Algorithm 2 (`method.first_message = "trained"`);
  in the appendix that message is zero. [VARIANTS.md](VARIANTS.md) has AREA's cells with both;
- the non-IID split is taken as Dirichlet(0.1) shares of each class over the clients. An equal-sized variant (shares of
  the classes, drawn client by client) fits the text as well; which of the two the paper used is not known.

The random draws differ too: a published range is that of ten other trials.
"""


def _retention(sweeps: Sequence[Sweep]) -> str:
    """What the rule keeps against what the paper kept."""
    groups = kept_groups([result for sweep in sweeps for result in sweep.results])
    if not groups:
        return ""
    equal = sum(group.by_rule() == group.by_paper for group in groups)
    words = (
        "The paper says that it keeps, for each method, the two largest step sizes that end with a finite loss. On "
        f"these runs the rule keeps what the paper shows in {equal} of {len(groups)} cases (table, rates, method). "
    )
    if groups[0].gaps:
        single = sum(group.by_single_precision == group.by_paper for group in groups)
        words += (
            "What is finite depends on how the loss is computed: a plain log(softmax) in single precision is infinite "
            f"as soon as one training image scores a wrong class by more than {SINGLE_PRECISION_GAP:g} above the right "
            f"one. With such a loss the rule keeps what the paper shows in {single} of {len(groups)} cases. "
        )
    fit = fit_bound(groups)
    if fit is not None and fit.equal > equal:
        highest = f" and below {fit.highest:.3g}" if math.isfinite(fit.highest) else ""
        words += (
            "If instead a final loss beyond a bound counts as not finite, most cases come out as in the paper, "
            f"{fit.equal} of {len(groups)}, with a bound of at least {fit.lowest:.3g}{highest}. "
        )
    words += (
        "Bold: not what the paper keeps. The last columns show the largest loss of any trial at the step size above "
        "those of the paper, and the step size with the best accuracy on the first half of the trials."
    )
    return f"## Which step sizes are kept\n\n{paragraph(words)}\n{retention_table(groups)}"


def _tables(tables: Sequence[Comparison], main: Sequence[Match]) -> str:
    """The eight tables, each cell beside the published one."""
    counted = {id(one.beside.ours) for one in main if one.beside is not None}
    shown = [table for table in tables if any(id(cell) in counted for cell in table.cells)]
    if not shown:
        return ""
    shared = dict.fromkeys(note for table in shown for note in notes_for_all(table))
    notes = bullets(markdown(note) for note in shared)
    sheets = [replace(paper_sheet(table), title=table.title, notes=notes_of(table)) for table in shown]
    return "\n".join(["## The tables\n", notes, *(as_markdown(sheet, level=3) for sheet in sheets)])


def _horizons(tables: Sequence[Comparison], main: Sequence[Match]) -> str:
    """The tables whose printed horizon does not fit, at both horizons."""
    cells = [cell for cell in published_cells() if cell.horizon_s != cell.recovered_horizon_s]
    printed = {one.published: one for one in matches(tables, cells, at_printed_horizon)}
    recovered = {one.published: one for one in main}
    if not any(one.beside for one in printed.values()):
        return ""
    parts = []
    for name in dict.fromkeys(cell.table for cell in cells):
        pairs = [(recovered[cell], printed[cell]) for cell in cells if cell.table == name]
        parts.append(f"### {_table_title(pairs[0][0].published)}\n\n{horizons_table(pairs)}")
    words = "## n = 4, M = 50 at both horizons\n\nBold: the mean lies in the published range.\n"
    return "\n".join([words, *parts])


def _table_title(cell: PublishedCell) -> str:
    split = dict(_SPLITS)[cell.split]
    return f"n = {cell.clients}, M = {cell.local_steps}, {split}"


def _figures(folder: Path) -> str:
    """Links to the figures beside the page; the vector form where there are both."""
    paths = [path.relative_to(folder) for suffix in ("png", "svg") for path in folder.glob(f"figures/**/*.{suffix}")]
    found = {path.with_suffix("").relative_to("figures").as_posix(): path.as_posix() for path in paths}
    if not found:
        return ""
    links = [f"![{markdown(name.replace('/', ': '))}]({found[name]})\n" for name in sorted(found)]
    return "\n".join(["## Figures\n", *links])


def disagreement(main: Sequence[Match], equal: Sequence[Match]) -> str:
    """Counts and a table of the complete cells that do not agree; `equal`: the same with the other split."""
    out = [match.beside for match in main if match.beside is not None and match.is_judged and not match.agrees]
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


def _facts(main: Sequence[Match], out: Sequence[BesidePaper]) -> str:
    """Counts of what the cells have in common."""
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
        f"fall where some of the paper's did: {sum(both_overlap(one) for one in out)}",
        f"with a published loss whose largest trial exceeds {_NOISY:g} times the smallest, a noisy cell: {noisy} "
        f"(of the cells that agree: {calm_noisy} of {len(agreeing)})",
        f"non-IID: {sum(one.published.split == 'non-iid' for one in out)}; with non-uniform rates: "
        f"{sum(one.published.rates == 'nonuniform' for one in out)}",
        f"with a loss below the published mean: {sum(one.loss_difference < 0 for one in out)}; above it: "
        f"{sum(one.loss_difference > 0 for one in out)}",
        f"with a trial that made no server step within the horizon: {sum(map(_has_stuck_trial, out))}; "
        "[VARIANTS.md](VARIANTS.md) looks for causes",
    ]
    return "How they miss the published ranges, and what they have in common:\n\n" + bullets(facts)


def _has_stuck_trial(one: BesidePaper) -> bool:
    return any(result.status.server_steps == 0 for result in one.ours.results)


def _split_facts(out: Sequence[BesidePaper], other: dict[PublishedCell, Match]) -> str:
    """What the other split makes of the non-IID cells among them."""
    pairs = [(one, other[one.published]) for one in out if one.published in other]
    if not pairs:
        return ""
    agree = sum(match.agrees for _, match in pairs)
    between = sum(_is_between(one, match.beside) for one, match in pairs if match.beside is not None)
    return "\n" + paragraph(
        f"Of the {len(pairs)} among them that were also run with the equal-sized split, {agree} agree with that one, "
        f"and in {between} the published loss lies between the two splits' means."
    )


def _is_between(one: BesidePaper, other: BesidePaper) -> bool:
    if one.ours.loss is None or other.ours.loss is None:
        return False
    low, high = sorted((one.ours.loss.mean, other.ours.loss.mean))
    return low <= one.published.loss.mean <= high


def _row(one: BesidePaper, other: dict[PublishedCell, Match]) -> list[TableCell]:
    cell = one.published
    match = Match(one.published, one)
    row = [
        TableCell(cell_word(match), f", {one.ours.diverged} diverged" if one.ours.diverged else ""),
        TableCell(cell.table),
        accuracy_entry(match), TableCell(spread_word(cell.accuracy)), TableCell(with_sign(one.accuracy_difference)),
        TableCell(_half_ranges(distance(one.ours.accuracy, cell.accuracy))),
        loss_entry(match), TableCell(spread_word(cell.loss)), TableCell(with_sign(one.loss_difference)),
        TableCell(_half_ranges(distance(one.ours.loss, cell.loss))),
    ]  # fmt: skip
    if other:
        again = other.get(cell, Match(cell, None))
        row += [accuracy_entry(again), loss_entry(again)]
    return row


def _half_ranges(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}"
