"""Runs as text: one in detail, several side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.diagnosis import Cause, Diagnosis
from areabench.engine.events import Kind
from areabench.experiment.labels import describe_setting
from areabench.experiment.parse import to_toml
from areabench.results.advice import Findings, Theorem1, Theorem2
from areabench.results.comparison import Order, Pair, RunComparison, Shift, Trajectory, is_within
from areabench.runfile.read import Run, Summary

_NAMED = 3  # clients that were served too little and are named; the others are counted
_STARVED = 5.0  # percent of the time that a server waits for a core, from which on it is said
_MEASURED = (
    ("late_s", "late (ms)"),
    ("reply_s", "reply (ms)"),
    ("queue_s", "queue wait (ms)"),
    ("service_s", "service (ms)"),
    ("compute_s", "computing (ms)"),
)


def diagnosis_text(found: Diagnosis) -> str:
    """The whole diagnosis; of a simulated run without what only real time has."""
    entries = [("updates", _updates(found)), ("clients", _clients(found)), ("delay", _delay(found))]
    if found.cause not in (Cause.VIRTUAL, Cause.NOTHING):
        entries += [("", f"{'p50':>10}{'p95':>10}{'p99':>10}")]
        entries += [(label, _quantiles(found, column)) for column, label in _MEASURED]
        entries += [("overruns", _overruns(found)), ("load", _load(found)), ("launch", _launch(found))]
    entries.append(("verdict", found.advice))
    return "diagnosis\n" + "".join(f"  {label:<17}{text}\n" for label, text in entries if text)


def _updates(found: Diagnosis) -> str:
    rate = found.updates / found.duration_s
    if not found.expected_updates > 0:  # a method that calls its clients, or a horizon shorter than every delay
        return f"{found.updates:,} in {found.duration_s:g} s, {rate:.4g}/s"
    share, nominal = 100 * found.updates / found.expected_updates, found.expected_updates / found.duration_s
    return f"{found.updates:,} of {found.expected_updates:,.0f} expected ({share:.1f} %): {rate:.4g} of {nominal:.4g}/s"


def _clients(found: Diagnosis) -> str:
    """Those who were served less than chance allows, by name as far as there is room."""
    count, short = len(found.clients), found.short
    if np.isnan(found.clients["expected"]).any():
        why = "their trace is gone, or the method or the delays are from outside the package"
        return f"{count:,}; nobody knows how often each should have been served: {why}"
    if not len(short):
        return f"{count:,}, none served less than chance allows"
    named = ", ".join(_short_client(row) for row in short[:_NAMED])
    others = f" and {len(short) - _NAMED:,} more" if len(short) > _NAMED else ""
    return f"{len(short):,} of {count:,} served less than chance allows: {named}{others}"


def _short_client(row: Any) -> str:
    return f"client {row['client']} ({row['served']:,} of {row['expected']:,.4g}, at least {row['low']:,.0f})"


def _delay(found: Diagnosis) -> str:
    drawn_s, realised_s = found.mean_drawn_s, found.mean_realised_s
    if math.isnan(drawn_s):
        return ""
    if found.cause == Cause.VIRTUAL:
        return f"{1e3 * drawn_s:,.4g} ms on average"
    longer = 100 * (realised_s / drawn_s - 1)
    return f"drawn {1e3 * drawn_s:,.4g} ms, realised {1e3 * realised_s:,.4g} ms on average ({longer:+.1f} %)"


def _quantiles(found: Diagnosis, column: str) -> str:
    values = [1e3 * found.quantile(column, share) for share in (50, 95, 99)]
    return "".join(f"{'-':>10}" if math.isnan(value) else f"{value:>10,.3f}" for value in values)


def _overruns(found: Diagnosis) -> str:
    share = 100 * found.overruns / max(found.updates, 1)
    usual = found.expected_overruns
    expected = "" if math.isnan(usual) else f"; {usual:.1f} % of the delays are shorter than reply and computing"
    return f"{found.overruns:,} of {found.updates:,} updates were not ready when due ({share:.1f} %){expected}"


def _load(found: Diagnosis) -> str:
    parts = []
    if not math.isnan(found.server_load):
        starved = f" (short of a core {_share(found.server_starved)})" if found.server_starved > _STARVED else ""
        parts.append(f"server busy {_share(found.server_load)}{starved}")
    if found.busiest_rank > 0:
        parts.append(f"rank {found.busiest_rank}, the busiest, computes {_share(found.busiest_load)}")
    if not math.isnan(found.core_load):
        parts.append(f"ranks use {_share(found.core_load)} of their host's {found.cores} cores")
    return "; ".join(parts)


def _share(value: float) -> str:
    """Percent, with a decimal where there are few."""
    return f"{value:.{0 if value >= 10 else 1}f} %"


def _launch(found: Diagnosis) -> str:
    if not found.ranks:
        return ""
    stretch = "" if found.stretch == 1 else f"; clock.stretch = {found.stretch:g}"
    return f"ready after {found.start_up_s:.1f} s; {size(found.memory_bytes)} in {found.ranks} ranks{stretch}"


def size(count: float) -> str:
    """A number of bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


QUANTILES = (50, 95, 99)  # percent


def align(rows: Sequence[Sequence[str]]) -> str:
    """A table: the first row is the heading, the first column is flush left, the others flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [(cell, width) for cell, width in zip(row, widths, strict=True)]
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def number(value: float, digits: int) -> str:
    """A number for a table; a dash where there is none, an exponent where it is huge."""
    if math.isnan(value):
        return "-"
    return f"{value:,.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def summary_table(summaries: Sequence[Summary], target: float) -> str:
    """Runs side by side."""
    heading = [
        "method", "alpha", "accuracy %", "loss", f"time to {target:g} %", "updates", "steps", "mean staleness", "status"
    ]  # fmt: skip
    return align([heading, *(_summary_row(summary) for summary in summaries)])


def _summary_row(summary: Summary) -> list[str]:
    reached = "not reached" if math.isnan(summary.target_s) else f"{summary.target_s:.1f} s"
    return [
        summary.method,
        f"{summary.step_size:g}",
        number(summary.test_accuracy, 2),
        number(summary.train_loss, 3),
        reached,
        f"{summary.updates:,}",
        f"{summary.server_steps:,}",
        number(summary.mean_staleness, 2),
        summary.state,
    ]


def describe_run(run: Run) -> str:
    """One run in full, section by section."""
    parts = [_describe_status(run), _describe_quality(run), _describe_events(run), _describe_clients(run)]
    if run.diagnosis is not None:
        parts.append(diagnosis_text(run.diagnosis))
    provenance = [f"{item.name:<14} {getattr(run.provenance, item.name)}" for item in fields(run.provenance)]
    parts += ["experiment\n" + _indent(to_toml(run.experiment)), "provenance\n" + _indent("\n".join(provenance))]
    return f"{run.path}\n\n" + "\n".join(parts)


def _indent(text: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in text.splitlines())


def _describe_status(run: Run) -> str:
    status = run.status
    counts = f"{status.updates:,} updates, {status.server_steps:,} server steps, {status.discarded:,} discarded"
    return f"status\n  {status.state.text}: {status.reason}\n  {counts}; ended at {status.end_s:.3f} s\n"


def _describe_quality(run: Run) -> str:
    """Some of the snapshots, the last one among them."""
    index, metrics = run.snapshot_index, run.metrics_array
    if not len(metrics):
        return f"snapshots\n  {len(index):,}, not evaluated\n"
    chosen = np.unique(np.linspace(0, len(metrics) - 1, 7).astype(int))
    heading = ["time s", "version", "train loss", "accuracy %", "squared distance"]
    rows = [
        [
            f"{index[row]['time_s']:.2f}",
            str(index[row]["version"]),
            number(metrics[row]["train_loss"], 4),
            number(metrics[row]["test_accuracy"], 2),
            "-" if np.isnan(metrics[row]["squared_distance"]) else f"{metrics[row]['squared_distance']:.4g}",
        ]
        for row in chosen
    ]
    return f"snapshots ({len(index):,} in all)\n" + _indent(align([heading, *rows]))


def _describe_events(run: Run) -> str:
    """Delays, computing and service of the updates that were used."""
    if not run.experiment.record.events:
        return f"updates\n  no event log was kept; mean staleness {run.summary().mean_staleness:.2f} versions\n"
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    if not len(updates):
        return "updates\n  none\n"
    measured = measured_columns(updates)
    rows = [["", "p50", "p95", "p99"]]
    for name, column, scale, digits in (
        ("staleness (versions)", "staleness", 1, 0),
        ("drawn delay (ms)", "drawn_delay_s", 1e3, 2),
        ("late against it (ms)", "late_s", 1e3, 3),
        ("computing (ms)", "compute_s", 1e3, 3),
        ("service (ms)", "service_s", 1e3, 3),
    ):
        quantiles = np.percentile(scale * measured[column], QUANTILES)
        rows.append([name, *(f"{value:.{digits}f}" for value in quantiles)])
    overruns = int(np.count_nonzero(updates["flags"] & 1))
    return "updates\n" + _indent(align(rows)) + f"  {overruns:,} of {len(updates):,} were not ready when due\n"


def measured_columns(updates: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What is told of the updates that were used: columns of EVENT, and by how much each came later than drawn."""
    columns = {name: updates[name] for name in ("staleness", "drawn_delay_s", "compute_s", "service_s")}
    return {**columns, "late_s": updates["realised_delay_s"] - updates["drawn_delay_s"]}


def _describe_clients(run: Run) -> str:
    """How evenly the clients took part."""
    clients, served = run.clients_array, run.served
    updates = f", updates {served.min():,} to {served.max():,}" if len(served) else ""  # a killed run may not tell
    return (
        f"clients\n  {len(clients):,}; rates {clients['rate'].min():.3g} to {clients['rate'].max():.3g} 1/s, "
        f"samples {clients['samples'].min():,} to {clients['samples'].max():,}{updates}\n"
    )


_CLOCKS = {"simulator": "simulated", "mpi": "real time"}
_NO_EVENTS = "not known: a run has no event log (record.events = false)"


@dataclass(frozen=True)
class Tolerances:
    """By how many per cent the second run may differ from the first."""

    updates: float = 3.0
    loss: float = 2.0


def holds(found: RunComparison, within: Tolerances) -> bool:
    """Whether updates and final loss are both within their tolerances."""
    return is_within(found.updates, within.updates) and is_within(found.loss.final, within.loss)


def run_names(first: Run, second: Run) -> tuple[str, str]:
    """What to call two runs: by their clocks where these differ."""
    names = [_CLOCKS.get(run.provenance.transport, run.provenance.transport) for run in (first, second)]
    return (names[0], names[1]) if names[0] != names[1] else ("first", "second")


def comparison_record(first: Run, second: Run, found: RunComparison, within: Tolerances) -> dict[str, Any]:
    """Every number, for a program."""
    runs = [{"file": str(run.path), "transport": run.provenance.transport} for run in (first, second)]
    verdict = {
        "updates_within_percent": within.updates,
        "updates_hold": is_within(found.updates, within.updates),
        "loss_within_percent": within.loss,
        "loss_holds": is_within(found.loss.final, within.loss),
    }
    return {"runs": runs, **asdict(found), "verdict": verdict}


# ---------------------------------------------------------------------------------------------------- text


def comparison_text(first: Run, second: Run, found: RunComparison, within: Tolerances) -> str:
    """Which runs, a table of counts and ends, how far apart the two are, and the verdict."""
    names, experiment = run_names(first, second), first.experiment
    method = experiment.method
    width = max(map(len, names))
    heading = f"{method.name}, step size {method.step_size:g}, {describe_setting(experiment)}, seed {experiment.seed}\n"
    files = "".join(f"  {name:<{width}}  {run.path}\n" for name, run in zip(names, (first, second), strict=True))
    return f"{heading}{files}\n{_counts(found, names)}\n{_distances(found, names)}\n{_verdict(found, within)}"


def _counts(found: RunComparison, names: tuple[str, str]) -> str:
    rows = [
        _row("updates", found.updates, 0),
        _row(f"of client {found.client}, where they differ most", found.client_updates, 0),
        _row("server steps", found.server_steps, 0),
        _row("mean staleness", found.mean_staleness, 2),
        _row("final loss", found.loss.final, 4),
        _row("final accuracy %", found.accuracy.final, 2),
    ]
    return align([["", *names, "difference"], *rows])


def _row(name: str, pair: Pair, digits: int) -> list[str]:
    return [name, number(pair.first, digits), number(pair.second, digits), _percent(pair)]


def _percent(pair: Pair) -> str:
    return f"{pair.difference_percent:+.2f} %" if math.isfinite(pair.difference_percent) else "-"


def _distances(found: RunComparison, names: tuple[str, str]) -> str:
    lines = [("staleness", f"distributions {number(found.staleness_distance, 3)} server steps apart")]
    lines += _order_lines(found.order, names) if found.order else [("order", _NO_EVENTS)]
    lines += [("time shift", _shift_words(found.shift, names) if found.shift else _NO_EVENTS)]
    lines += [("loss", _trajectory_words(found.loss, 4)), ("accuracy %", _trajectory_words(found.accuracy, 2))]
    return "".join(f"{name:<12}{words}\n" for name, words in lines)


def _order_lines(order: Order, names: tuple[str, str]) -> list[tuple[str, str]]:
    alone = f"{order.only_first:,} only {names[0]}, {order.only_second:,} only {names[1]}"
    moved = order.places_moved
    begins = "the sequences are equal"
    if order.differs_at is not None:
        begins = f"the sequences first differ at arrival {order.differs_at + 1:,} ({order.differs_at_s:.4f} s)"
    return [
        ("arrivals", f"{order.common:,} in both runs, {alone}; {begins}"),
        ("order", f"{100 * order.distance:.3f} % of the pairs of common arrivals come in the other order"),
        ("", f"places moved: {moved.p50:,.0f} (p50), {moved.p95:,.0f} (p95), {moved.p99:,.0f} (p99)"),
    ]


def _shift_words(shift: Shift, names: tuple[str, str]) -> str:
    late = shift.seconds
    quantiles = f"{1e3 * late.p50:+.1f} ms (p50), {1e3 * late.p95:+.1f} ms (p95), {1e3 * late.p99:+.1f} ms (p99)"
    line = f"{1e3 * shift.offset_s:+.1f} ms at the start and {shift.drift_percent:+.2f} % of the time"
    return f"{names[1]} minus {names[0]}: {quantiles}; as a line, {line}"


def _trajectory_words(trajectory: Trajectory, digits: int) -> str:
    if not trajectory.times:
        return "no values at common times"
    largest = f"{number(trajectory.largest, digits)} apart at most, at {trajectory.largest_at_s:g} s"
    return f"{largest} ({trajectory.times:,} common times)"


def _verdict(found: RunComparison, within: Tolerances) -> str:
    checks = (("updates", found.updates, within.updates), ("final loss", found.loss.final, within.loss))
    return "".join(
        f"{name} within {percent:g} %: {'yes' if is_within(pair, percent) else 'NO'} ({_percent(pair)})\n"
        for name, pair, percent in checks
    )


Row = tuple[str, str]  # label and text


def findings_text(found: Findings) -> str:
    """The whole screen."""
    what = f"{found.problem}, n = {found.clients}, M = {found.local_steps}, {found.method}"
    rows = [("experiment", what), _events(found)]
    rows += [*_theorem1(found.theorem1), *_theorem2(found.theorem2), *_server(found)]
    rows += [("not satisfied" if not number else "", text) for number, text in enumerate(found.not_satisfied)]
    rows += _suggestion(found)
    return "".join(f"{label:<14}{text}\n" for label, text in rows)


def _events(found: Findings) -> Row:
    events = found.events
    where = f"client {events.slowest}" if events.slowest >= 0 else "the server"
    return (
        "events",
        f"p_min = {events.p_min:.4g} ({where}), p_s = {events.p_s:.4g}, q_bar = {events.q_bar:.4g}, "
        f"r_p = {events.r_p:.4g}; {events.source}",
    )


def _theorem1(found: Theorem1 | None) -> Iterator[Row]:
    if found is None:
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
        return
    words = f"mu = {found.mu:.4g}, L = {found.L:.4g}, kappa = {found.kappa:.4g}, gamma = {found.gamma:.4g}"
    yield "theorem 1", f"{words}, delta = {found.delta:.4g}{_noise(found)}"
    yield "", f"alpha_k = {found.c:.6g}/(k + {found.d:.6g}), from D = {found.D:.4g} ({found.limited_by})"
    if not math.isnan(found.closed_bound):
        yield "", f"E|x_s,K - x*|² <= {_bounds(found)} at K = {found.iterations:,}"


def _noise(found: Theorem1) -> str:
    if found.awaits_solution:
        return "; --solve adds sigma, zeta and the bound"
    return "" if math.isnan(found.sigma) else f", sigma = {found.sigma:.4g}, zeta = {found.zeta:.4g}"


def _bounds(found: Theorem1) -> str:
    recursive = found.recursion_bound
    proof = "" if math.isnan(recursive) else f", {recursive:.4g} (recursion of the proof)"
    return f"{found.closed_bound:.4g} (closed form){proof}"


def _theorem2(found: Theorem2 | None) -> Iterator[Row]:
    if found is None:
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
        return
    if found.awaits_solution:
        yield "theorem 2", "--solve adds its constants, step size and bound, which need |x_s,0 - x*|"
        return
    distance = f"|x_s,0 - x*| = {found.start_distance:.4g}{' (estimated)' * found.estimated}"
    yield "theorem 2", f"B = {found.B:.4g}, sigma = {found.sigma:.4g}, {distance}"
    yield "", f"alpha = {found.alpha:.4g} for K = {found.iterations:,}; E[f(average) - f*] <= {found.bound:.4g}"


def _server(found: Findings) -> Iterator[Row]:
    best = found.server
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {best.now:.4g} 1/s",
    )
    yield "", "(the least bound of Theorem 2 for a number of iterations; within a horizon a faster server is no worse)"


def _suggestion(found: Findings) -> Iterator[Row]:
    if found.suggestion is None:
        return
    schedule, best = found.suggestion.schedule.name, found.server.rate
    criterion = "the server's criterion as it is" if found.keeps_criterion else f"the server at {best:.4g} 1/s"
    yield "suggestion", f'schedule "{schedule}", {found.suggested_steps}; {criterion}; --write FILE.toml writes it'
