"""What the paper's text leaves open beside the counted settings: AREA's first message, and trials without a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from paper.agreement import RHO_TOLERANCE, Match, at_recovered_horizon, matches
from paper.origin import origin
from paper.page_tables import (
    accuracy_entry,
    bullets,
    cell_word,
    entry_table,
    loss_entry,
    markdown_table,
    paragraph,
    rho_entry,
)
from paper.published import PublishedCell, published_cells, spread_word
from paper.table import paper_tables
from scipy.special import ndtr

from areabench.experiment.experiment import Experiment
from areabench.methods.area import Area
from areabench.methods.s_fedavg import SFedAvg, s_fedavg
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison
from areabench.sweeps.read import Sweep
from areabench.timing.delays import Delays
from areabench.timing.rates import NormalRates, client_rates
from areabench.views.tables.forms import TableCell
from areabench.views.tables.sheets import rho_word

REDRAWN = Dirichlet(minimum=32, draws=100_000)
Counts = Callable[[Experiment, PublishedCell], bool]

INTRODUCTION = """\
# Variants of the paper's tables

`make variants` runs the sweeps of `benchmarks/experiments/paper/variants` in the simulator and writes this page. Each
looks at a point that the paper leaves open, or at cells that do not agree in [RESULTS.md](RESULTS.md), whose words are
used here: a cell agrees when mean accuracy and mean loss lie in the published ranges. Bold: the mean lies in the
published range; of ρ: it differs by at most {tolerance:g}. Runs at step size 1000 may differ in the second decimal from
those of RESULTS.md with the same seeds: other runs share their pass, so that matrix products round differently, and
such runs keep fluctuating.
"""

WITHOUT_REPLACEMENT = """\
## What stays open: AREA at 1000, n = 128, M = 50, IID

The loss is above the published one with either first message. Mini-batches are drawn with replacement here. An
independent implementation, driven by the same events as these runs, ended at 2.78 with such mini-batches and at 2.64
with mini-batches without replacement; the paper has 2.48 (uniform rates). areabench has no such option, so no command
here repeats these two numbers.
"""


def variants_page(sweeps: Sequence[Sweep], command: str) -> str:
    """The whole page."""
    tables = [table for sweep in sweeps for table in paper_tables(sweep)]
    sections = [
        INTRODUCTION.format(tolerance=RHO_TOLERANCE),
        origin(sweeps, command),
        first_messages(tables),
        redrawn_splits(tables),
        WITHOUT_REPLACEMENT,
        rounds_without_step(tables),
    ]
    return "\n".join(section for section in sections if section)


# ---------------------------------------------------------------------------------------------------- first message


def zero_first(experiment: Experiment, cell: PublishedCell) -> bool:
    """Runs whose clients send zero first, and which count in everything else."""
    method = experiment.method
    if not isinstance(method, Area) or method.first_message != "zero":
        return False
    return at_recovered_horizon(replace(experiment, method=replace(method, first_message="trained")), cell)


def first_messages(tables: Sequence[Comparison]) -> str:
    """AREA's cells with both conventions: counts, then every cell."""
    cells = [cell for cell in published_cells() if cell.method == "area"]
    pairs = _run_in_both(tables, cells, zero_first)
    if not pairs:
        return ""
    parts: dict[str, list[tuple[Match, Match]]] = {}
    for pair in pairs:
        cell = pair[0].published
        parts.setdefault(f"n = {cell.clients}, M = {cell.local_steps}", []).append(pair)
    rows = [_fit_row(name, part) for name, part in [("all", pairs), *parts.items()]]
    columns = ["AREA's cells", "run in both", "agree: trained", "zero", f"ρ within {RHO_TOLERANCE:g}: trained", "zero"]
    columns += ["mean distance of ρ: trained", "zero", "ρ is nearer: trained", "zero"]
    words = (
        'By Algorithm 2 a client trains on x_{s,0} before its first message (`method.first_message = "trained"`): the '
        "tables of RESULTS.md have this. In the paper's appendix x_{i,0} = x_{s,0}, so that a client's first message "
        'is zero and it trains on the reply (`"zero"`). The paper does not say which of the two its experiments have. '
        "Distances of ρ are means over the cells where it is at most 1 in the paper and in both runs."
    )
    head = f"## AREA's first message\n\n{paragraph(words)}\n{markdown_table(columns, rows)}"
    return f"{head}\n{_beside_paper(pairs, ('trained', 'zero'))}"


def _run_in_both(
    tables: Sequence[Comparison], cells: Sequence[PublishedCell], counts: Counts
) -> list[tuple[Match, Match]]:
    """Published cells that were run as they are counted and as a variant."""
    both = zip(matches(tables, cells, at_recovered_horizon), matches(tables, cells, counts), strict=True)
    return [(main, other) for main, other in both if main.is_judged and other.is_judged]


def _fit_row(name: str, pairs: Sequence[tuple[Match, Match]]) -> list[str]:
    agree = [sum(pair[side].agrees for pair in pairs) for side in (0, 1)]
    near = [sum(_is_near(pair[side]) for pair in pairs) for side in (0, 1)]
    distances = [(_rho_distance(main), _rho_distance(zero)) for main, zero in pairs]
    known = [both for both in distances if all(map(math.isfinite, both))]
    means = [f"{fmean(both[side] for both in known):.3f}" if known else "–" for side in (0, 1)]
    nearer = [sum(both[side] < both[1 - side] for both in known) for side in (0, 1)]
    return [name, *map(str, (len(pairs), *agree, *near)), *means, *map(str, nearer)]


def _is_near(match: Match) -> bool:
    return match.beside is not None and match.beside.rho_agrees(RHO_TOLERANCE)


def _rho_distance(match: Match) -> float:
    """|our rho - the published one|; not finite where one of them is beyond 1."""
    if match.beside is None or math.isinf(match.published.rho):
        return math.inf
    return abs(match.beside.rho_difference)


def _beside_paper(rows: Sequence[Sequence[Match]], names: Sequence[str]) -> str:
    """One row per published cell, with ours under each name."""
    columns = ["cell", "table"]
    for quality in ("ρ", "loss", "accuracy %"):
        columns += [f"{quality}: paper", *names]
    return entry_table(columns, [_beside_paper_row(row) for row in rows])


def _beside_paper_row(row: Sequence[Match]) -> list[TableCell]:
    cell = row[0].published
    return [
        TableCell(cell_word(row[0])), TableCell(cell.table),
        TableCell(rho_word(cell.rho)), *map(rho_entry, row),
        TableCell(spread_word(cell.loss)), *map(loss_entry, row),
        TableCell(spread_word(cell.accuracy)), *map(accuracy_entry, row),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- redrawn split


def redrawn(experiment: Experiment, cell: PublishedCell) -> bool:
    """Runs whose split is drawn until every client has a mini-batch, and which count in everything else."""
    return experiment.split == REDRAWN and at_recovered_horizon(replace(experiment, split=Dirichlet()), cell)


def redrawn_zero_first(experiment: Experiment, cell: PublishedCell) -> bool:
    """The same where clients send zero first."""
    return experiment.split == REDRAWN and zero_first(replace(experiment, split=Dirichlet()), cell)


def redrawn_splits(tables: Sequence[Comparison]) -> str:
    """The non-IID cells with a split that leaves no client below a mini-batch."""
    cells = [cell for cell in published_cells() if cell.split == "non-iid"]
    kinds = (at_recovered_horizon, redrawn, redrawn_zero_first)
    rows = [row for row in zip(*(matches(tables, cells, kind) for kind in kinds), strict=True) if row[1].is_judged]
    if not rows:
        return ""
    small = [row for row in rows if row[2].is_judged]
    facts = [
        f"{name}: {sum(row[kind].agrees for row in part)} of {len(part)} cells agree, ρ within {RHO_TOLERANCE:g} in "
        f"{sum(_is_near(row[kind]) for row in part)}"
        for name, kind, part in (("redrawn", 1, rows), ("redrawn, AREA's first message zero", 2, small))
        if part
    ]
    words = (
        "With Dirichlet(0.1) over 128 clients some hold a few images only. Here the split is drawn again until every "
        "client holds a mini-batch, 32 images (`split.minimum`, `split.draws`), as the first author's simulator does; "
        "the paper does not say so. `as counted`: AREA's runs of above; RESULTS.md has the other methods."
    )
    table = _beside_paper(rows, ("as counted", "redrawn", "redrawn, zero"))
    return f"## A split without small clients\n\n{paragraph(words)}\n{bullets(facts)}\n{table}"


# ---------------------------------------------------------------------------------------------------- no server step


def rounds_without_step(tables: Sequence[Comparison]) -> str:
    """Cells of S-FedAvg of which a trial makes no server step: with those trials, and without them."""
    cells = [cell for cell in published_cells() if cell.method == "s-fedavg"]
    found = [one for one in matches(tables, cells, at_recovered_horizon) if one.is_judged and _stuck(one)]
    if not found:
        return ""
    experiment = _cell(found[0]).experiment
    horizon_s = experiment.stop.horizon_s
    assert horizon_s is not None
    durations = sorted((first_round_s(result.experiment), result.experiment.seed) for result in _cell(found[0]).results)
    stuck = [f"{duration_s:.2f} s (seed {seed})" for duration_s, seed in durations if duration_s > horizon_s]
    share = missed_share(experiment)
    trials = len(durations)
    several = 1 - (1 - share) ** trials - trials * share * (1 - share) ** (trials - 1)
    facts = [
        f"first rounds longer than the horizon of {horizon_s:g} s: {', '.join(stuck)}; the model of these trials never "
        "moves, and its accuracy and loss are those of the start",
        f"by the distribution of the rates and delays this happens to {100 * share:.1f} % of the trials, and to two or "
        f"more of {trials} with a probability of {100 * several:.1f} %: it is no error, and a matter of the seeds",
        f"without these trials {sum(_without(one).agrees for one in found)} of the {len(found)} cells agree",
    ]
    words = (
        "A round of S-FedAvg waits for the slowest of its clients. With rates from N(10, 5) a client may be so slow "
        "that the first round does not end within the horizon:"
    )
    columns = ["cell", "accuracy %: paper", "all trials", "without", "loss: paper", "all trials", "without"]
    rows = []
    for one in found:
        both = (one, _without(one))
        rows.append([
            TableCell(cell_word(one)), TableCell(spread_word(one.published.accuracy)), *map(accuracy_entry, both),
            TableCell(spread_word(one.published.loss)), *map(loss_entry, both),
        ])  # fmt: skip
    cell = found[0].published
    setting = f"n = {cell.clients}, M = {cell.local_steps}, {'IID' if cell.split == 'iid' else 'non-IID'}"
    title = f"## S-FedAvg: trials without a server step, {setting}"
    return f"{title}\n\n{paragraph(words)}\n{bullets(facts)}\n{entry_table(columns, rows)}"


def first_round_s(experiment: Experiment) -> float:
    """How long the first round of S-FedAvg takes: the longest of the first delays of the clients that it draws."""
    clients = experiment.clients.count
    method = experiment.method
    assert isinstance(method, SFedAvg)
    delays = Delays(experiment.delays, client_rates(experiment.rates, clients, experiment.seed), experiment.seed)
    drawn = s_fedavg(clients, method.clients_per_round, experiment.seed).start(np.zeros(1)).state.drawn
    return max(delays.next_s(client) for client in drawn)


def missed_share(experiment: Experiment) -> float:
    """The probability that the first round outlasts the horizon T: 1 - (1 - E exp(-lambda T))^c.

    lambda is normal given that it is positive, so E exp(-lambda T) = exp(-mu T + s² T²/2) Phi(mu/s - s T)/Phi(mu/s).
    """
    rates = experiment.rates
    horizon_s = experiment.stop.horizon_s
    assert isinstance(rates, NormalRates)
    assert isinstance(experiment.method, SFedAvg)
    assert horizon_s is not None
    mu = rates.mean
    s = rates.deviation
    late = math.exp(-mu * horizon_s + (s * horizon_s) ** 2 / 2) * float(ndtr(mu / s - s * horizon_s) / ndtr(mu / s))
    return float(1 - (1 - late) ** experiment.method.clients_per_round)


def _stuck(match: Match) -> int:
    """How many trials made no server step."""
    return sum(result.status.server_steps == 0 for result in _cell(match).results)


def _without(match: Match) -> Match:
    """The cell without its trials that made no server step."""
    moved = tuple(result for result in _cell(match).results if result.status.server_steps)
    assert match.beside is not None
    return Match(match.published, replace(match.beside, ours=Cell(moved, len(moved), _cell(match).target)))


def _cell(match: Match) -> Cell:
    assert match.beside is not None
    return match.beside.ours
