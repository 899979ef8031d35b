"""What the reading commands print: runs, a diagnosis, a comparison of two runs, and what the theory says.

Each function returns a styled text, which a terminal shows in colours and which is plain text elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.diagnosis import Cause, Diagnosis
from areabench.engine.events import Kind
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import default_remarks, describe_setting
from areabench.methods import METHODS
from areabench.runfile.read import Run, Summary
from areabench.settings.parse import to_toml
from areabench.views.styled import (
    BAD,
    DOUBTFUL,
    FAINT,
    GOOD,
    HEADING,
    LABEL,
    RULE,
    Styled,
    align,
    counted,
    joined,
    labelled,
    method_word,
    number,
    section,
    state_word,
)

if TYPE_CHECKING:
    from areabench.engine.data import DataSummary
    from areabench.results.advice import Findings, Theorem1, Theorem2  # loads methods and problems
    from areabench.results.comparison import (
        ArrivalOrder,
        DataComparison,
        Pair,
        RunComparison,
        Shift,
        Trajectory,
    )
    from areabench.results.methods import ListedMethod

QUANTILES = (50, 95, 99)  # percent
_MOST_CLASSES = 20  # of which samples are counted
NO_STEPS = (
    "the server made no step, so the model is the one at the start: lengthen the run ([stop]), or let the server step "
    "sooner ([aggregation])"
)
LabelledText = tuple[str, str]  # label and text


def size(count: float) -> str:
    """A number of bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


# ---------------------------------------------------------------------------------------------------- experiment


def experiment_text(experiment: Experiment) -> Styled:
    """An experiment as TOML, with comments on what defaults do."""
    return joined(_toml_lines(experiment))


def _toml_lines(experiment: Experiment) -> list[Styled]:
    remarks, lines, section_name = default_remarks(experiment), [], ""
    for line in to_toml(experiment).splitlines():
        section_name = line.strip("[]") if line.startswith("[") else section_name
        remark = remarks.get(f"{section_name}.{line.partition(' = ')[0]}")
        lines.append(Styled(_toml_line(line), *([(f"  # {remark}", FAINT)] if remark else [])))
    return lines


def data_text(data: DataSummary | None) -> Styled:
    """What data are like, as comments of TOML."""
    if data is None:
        return Styled("")
    kept = "" if data.filled is None else f", sparse with {data.filled:.3%} of them kept"
    inputs = f"inputs of a model from {data.lowest:.6g} to {data.highest:.6g}"
    lines = [
        f"{data.name}: {data.train_samples:,} training and {data.test_samples:,} test samples",
        f"{data.features:,} features, {data.type}{kept}; {inputs}",
    ]
    if data.classes:
        counts = [f"{each.name} ({each.train:,} + {each.test:,})" for each in data.classes[:_MOST_CLASSES]]
        more = ", ..." if len(data.classes) > _MOST_CLASSES else ""
        lines.append(f"{len(data.classes)} classes, with training + test samples: {', '.join(counts)}{more}")
    else:
        lines.append(f"targets from {data.lowest_target:.6g} to {data.highest_target:.6g}")
    return Styled("\n", joined(Styled((f"# {line}", FAINT)) for line in lines))


def _toml_line(line: str) -> Styled:
    """A line of TOML: the heading of a section, or a key and its value."""
    if line.startswith("["):
        return Styled((line, HEADING))
    key, equals, value = line.partition(" = ")
    word = Styled('"', method_word(value.strip('"')), '"') if key == "name" and value.strip('"') in METHODS else value
    return Styled((key, FAINT), equals, word) if equals else Styled(line)


def methods_text(methods: Sequence[ListedMethod], *, keys: bool) -> Styled:
    """Methods with what to know about each, two lines each; with `keys`, also those of the section [method]."""
    width = max(len(method.name) for method in methods) + 2
    lines = []
    for method in methods:
        facts = f"chosen by: {method.chooses} · {method.limit} · server: {method.memory} · {method.paper}"
        lines.append(Styled(method_word(method.name), " " * (width - len(method.name)), method.summary))
        lines.append(Styled(" " * width, (facts, FAINT)))
        for key in method.keys if keys else ():
            default = f", default {key.default}" if key.default else ""
            lines.append(
                Styled(" " * width, (key.name, LABEL), f"  {key.meaning} ({key.limits or 'a choice'}{default})")
            )
    return joined(lines)


# ---------------------------------------------------------------------------------------------------- runs


def summary_table(summaries: Sequence[Summary], target: float, files: Sequence[str], settings: Sequence[str]) -> Styled:
    """One line per run; `settings` are the keys in which the runs differ, in words."""
    heading = [
        "file", "method", "alpha", "accuracy %", "loss", f"time to {target:g} %", "updates", "steps", "mean staleness",
        "status", "settings",
    ]  # fmt: skip
    cells = [[file, *_summary_row(one), word] for file, one, word in zip(files, summaries, settings, strict=True)]
    kept = slice(None if any(settings) else -1)
    return joined(align([heading[kept], RULE, *(row[kept] for row in cells)], flush_left=(0, 1, 10)))


def _summary_row(summary: Summary) -> list[str]:
    return [
        method_word(summary.method),
        f"{summary.step_size:g}",
        number(summary.test_accuracy, 2),
        number(summary.train_loss, 3),
        f"{summary.target_s:.1f} s" if math.isfinite(summary.target_s) else "not reached",
        f"{summary.updates:,}",
        f"{summary.server_steps:,}",
        number(summary.mean_staleness, 2),
        state_word(summary.state),
    ]


def describe_run(run: Run) -> Styled:
    """One run in full, section by section."""
    provenance = [f"{item.name:<14} {getattr(run.provenance, item.name)}" for item in fields(run.provenance)]
    parts = [_status(run), _snapshots(run), _used_updates(run), _client_ranges(run)]
    parts += [diagnosis_text(run.diagnosis)] if run.diagnosis is not None else []
    parts += [section("experiment", _toml_lines(run.experiment))]
    parts += [section("provenance", "\n".join(provenance).splitlines())]
    return Styled(f"{run.path}\n", *(piece for part in parts for piece in ("\n", part)))


def _status(run: Run) -> Styled:
    status = run.status
    counts = f"{counted(status.updates, 'update')}, {counted(status.server_steps, 'server step')}"
    others = f", {status.discarded:,} discarded"
    for kind in (Kind.NO_STEP, Kind.CANCELLED):
        if count := int(np.count_nonzero(run.events_array["kind"] == kind)):
            others += f", {count:,} {kind.text}"
    if run.experiment.privacy is not None:
        others += f", {run.clipped:,} clipped, {status.refused:,} refused"
    state = Styled(state_word(status.state.text), f": {status.reason}")
    lines = [state, f"{counts}{others}; ended at {status.end_s:.3f} s"]
    return section("status", [*lines, *([Styled((NO_STEPS, DOUBTFUL))] if status.is_without_steps else [])])


def _snapshots(run: Run) -> Styled:
    """Seven of the snapshots at most, the last one among them."""
    index, metrics = run.snapshot_index, run.metrics_array
    if not len(metrics):
        return section("snapshots", [f"{len(index):,}, not evaluated"])
    rows = [
        [
            f"{index[row]['time_s']:.2f}",
            str(index[row]["version"]),
            number(metrics[row]["train_loss"], 4),
            number(metrics[row]["test_accuracy"], 2),
            "-" if np.isnan(metrics[row]["squared_distance"]) else f"{metrics[row]['squared_distance']:.4g}",
        ]
        for row in dict.fromkeys(np.linspace(0, len(metrics) - 1, 7).astype(int).tolist())
    ]
    heading = ["time s", "version", "train loss", "accuracy %", "squared distance"]
    return section(f"snapshots ({len(index):,} in all)", align([heading, RULE, *rows]))


def _used_updates(run: Run) -> Styled:
    """Staleness, delays, computing and service of the updates that were used."""
    if not run.experiment.record.events:
        staleness = run.summary().mean_staleness
        return section("updates", [f"no event log was kept; mean staleness {staleness:.2f} versions"])
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    if not len(updates):
        return section("updates", ["none"])
    measured = measured_columns(updates)
    rows = [["", *(f"p{share}" for share in QUANTILES)], RULE]
    for name, column, scale, digits in (
        ("staleness (versions)", "staleness", 1, 0),
        ("drawn delay (ms)", "drawn_delay_s", 1e3, 2),
        ("late against it (ms)", "late_s", 1e3, 3),
        ("computing (ms)", "compute_s", 1e3, 3),
        ("service (ms)", "service_s", 1e3, 3),
    ):
        rows.append([name, *(f"{value:.{digits}f}" for value in _percentiles(scale * measured[column]))])
    overruns = int(np.count_nonzero(updates["flags"] & 1))
    return section("updates", [*align(rows), f"{overruns:,} of {len(updates):,} were not ready when due"])


def _percentiles(values: NDArray[Any]) -> NDArray[np.float64]:
    """The values at QUANTILES; np.percentile would load masked arrays, which takes a tenth of the time of `show`."""
    last = len(values) - 1
    return np.asarray(np.interp(np.array(QUANTILES) / 100 * last, np.arange(last + 1), np.sort(values)))


def measured_columns(updates: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns of EVENT that are summarised, and by how many seconds each update came later than drawn."""
    columns = {name: updates[name] for name in ("staleness", "drawn_delay_s", "compute_s", "service_s")}
    return {**columns, "late_s": updates["realised_delay_s"] - updates["drawn_delay_s"]}


def _client_ranges(run: Run) -> Styled:
    """How evenly the clients took part."""
    clients, served = run.clients_array, run.served
    updates = f", updates {served.min():,} to {served.max():,}" if len(served) else ""  # unknown for some killed runs
    line = (
        f"{len(clients):,}; rates {clients['rate'].min():.3g} to {clients['rate'].max():.3g} 1/s, "
        f"samples {clients['samples'].min():,} to {clients['samples'].max():,}{updates}"
    )
    return section("clients", [line])


# ---------------------------------------------------------------------------------------------------- diagnosis

_NAMED = 3  # clients that were served too little and are named; the others are counted
_STARVED = 5.0  # percent of the time that a server waits for a core; less is not mentioned
_MEASURED = (
    ("late_s", "late (ms)"),
    ("reply_s", "reply (ms)"),
    ("queue_s", "queue wait (ms)"),
    ("service_s", "service (ms)"),
    ("compute_s", "computing (ms)"),
)


def diagnosis_text(found: Diagnosis) -> Styled:
    """The whole diagnosis; a simulated run has no lines about real time."""
    rows = [("updates", _updates(found)), ("clients", _clients(found)), ("delay", _delay(found))]
    if found.cause not in (Cause.VIRTUAL, Cause.NOTHING):
        rows += [("", "".join(f"{f'p{share}':>10}" for share in QUANTILES))]
        rows += [(label, _quantiles(found, column)) for column, label in _MEASURED]
        rows += [("overruns", _overruns(found)), ("load", _load(found)), ("launch", _launch(found))]
    rows.append(("verdict", _verdict(found)))
    return section("diagnosis", labelled([row for row in rows if row[1]], 17))


def _verdict(found: Diagnosis) -> Styled:
    """The verdict's first word is its cause."""
    styles = {Cause.DELAYS: GOOD, Cause.VIRTUAL: "", Cause.NOTHING: ""}
    cause, colon, advice = found.advice.partition(":")
    return Styled((cause, styles.get(found.cause, DOUBTFUL)), colon, advice)


def _updates(found: Diagnosis) -> str:
    rate = found.updates / found.duration_s
    if not found.expected_updates > 0:  # a method that calls its clients, or a horizon shorter than every delay
        return f"{found.updates:,} in {found.duration_s:g} s, {rate:.4g}/s"
    share, nominal = 100 * found.updates / found.expected_updates, found.expected_updates / found.duration_s
    return f"{found.updates:,} of {found.expected_updates:,.0f} expected ({share:.1f} %): {rate:.4g} of {nominal:.4g}/s"


def _clients(found: Diagnosis) -> str:
    """The clients that were served less than chance allows; the first few by name."""
    count, short = len(found.clients), found.short
    if np.isnan(found.clients["expected"]).any():
        why = "their trace is missing, or the method or the delays are the user's own"
        return f"{count:,}; the expected number of updates is not known: {why}"
    if not len(short):
        return f"{count:,}, none served less than chance allows"
    named = ", ".join(
        f"client {row['client']} ({row['served']:,} of {row['expected']:,.4g}, at least {row['low']:,.0f})"
        for row in short[:_NAMED]
    )
    others = f" and {len(short) - _NAMED:,} more" if len(short) > _NAMED else ""
    return f"{len(short):,} of {count:,} served less than chance allows: {named}{others}"


def _delay(found: Diagnosis) -> str:
    drawn_s, realised_s = found.mean_drawn_s, found.mean_realised_s
    if math.isnan(drawn_s):
        return ""
    if found.cause == Cause.VIRTUAL:
        return f"{1e3 * drawn_s:,.4g} ms on average"
    longer = 100 * (realised_s / drawn_s - 1)
    return f"drawn {1e3 * drawn_s:,.4g} ms, realised {1e3 * realised_s:,.4g} ms on average ({longer:+.1f} %)"


def _quantiles(found: Diagnosis, column: str) -> str:
    values = [1e3 * found.quantile(column, share) for share in QUANTILES]
    return "".join(f"{'-':>10}" if math.isnan(value) else f"{value:>10,.3f}" for value in values)


def _overruns(found: Diagnosis) -> str:
    share = 100 * found.overruns / max(found.updates, 1)
    usual = found.expected_overruns
    expected = "" if math.isnan(usual) else f"; {usual:.1f} % of the delays are shorter than reply and computing"
    return f"{found.overruns:,} of {found.updates:,} updates were not ready when due ({share:.1f} %){expected}"


def _load(found: Diagnosis) -> str:
    parts = []
    if not math.isnan(found.server_load):
        times = [("polling", found.server_polling), ("serving", found.server_serving)]
        times += [("short of a core", found.server_starved)] if found.server_starved > _STARVED else []
        known = ", ".join(f"{name} {_share(share)}" for name, share in times if not math.isnan(share))
        parts.append(f"server busy {_share(found.server_load)}" + (f" ({known})" if known else ""))
    if found.busiest_rank > 0:
        parts.append(f"rank {found.busiest_rank}, the busiest, computes {_share(found.busiest_load)}")
    if not math.isnan(found.core_load):
        parts.append(f"ranks use {_share(found.core_load)} of their host's {counted(found.cores, 'core')}")
    return "; ".join(parts)


def _share(percent: float) -> str:
    """Percent, with a decimal below ten."""
    return f"{percent:.{0 if percent >= 10 else 1}f} %"


def _launch(found: Diagnosis) -> str:
    if not found.ranks:
        return ""
    stretch = "" if found.stretch == 1 else f"; clock.stretch = {found.stretch:g}"
    return f"ready after {found.start_up_s:.1f} s; {size(found.memory_bytes)} in {found.ranks} ranks{stretch}"


# ---------------------------------------------------------------------------------------------------- comparison

_CLOCKS = {"simulator": "simulated", "mpi": "real time"}
_NO_EVENTS = "not known: a run has no event log (record.events = false)"


@dataclass(frozen=True)
class Tolerances:
    """By how many per cent the second run may differ from the first."""

    updates: float = 3.0
    loss: float = 2.0


def holds(found: RunComparison, within: Tolerances) -> bool:
    """Whether updates and final loss are both within their tolerances."""
    from areabench.results.comparison import is_within

    return is_within(found.updates, within.updates) and is_within(found.loss.final, within.loss)


def run_names(first: Run, second: Run) -> tuple[str, str]:
    """Names for two runs: their clocks where these differ."""
    names = [_CLOCKS.get(run.provenance.transport, run.provenance.transport) for run in (first, second)]
    return (names[0], names[1]) if names[0] != names[1] else ("first", "second")


def comparison_text(first: Run, second: Run, found: RunComparison, within: Tolerances) -> Styled:
    """The two runs, a table of counts and final values, how far apart the runs are, and the verdict."""
    names, experiment = run_names(first, second), first.experiment
    method = experiment.method
    what = f", step size {method.step_size:g}, {describe_setting(experiment)}, seed {experiment.seed}\n"
    width = max(map(len, names)) + 2
    files = labelled(zip(names, (str(first.path), str(second.path)), strict=True), width)
    checks = (("updates", found.updates, within.updates), ("final loss", found.loss.final, within.loss))
    return Styled(
        method_word(method.name), what, joined(Styled("  ", line) for line in files),
        "\n", joined(_counts(found, names)),
        "\n", joined(labelled(_distances(found, names), 12)),
        "\n", joined(_check_line(*check) for check in checks),
    )  # fmt: skip


def _counts(found: RunComparison, names: tuple[str, str]) -> list[Styled]:
    rows = [
        ("updates", found.updates, 0),
        (f"of client {found.client}, where they differ most", found.client_updates, 0),
        ("server steps", found.server_steps, 0),
        ("mean staleness", found.mean_staleness, 2),
        ("final loss", found.loss.final, 4),
        ("final accuracy %", found.accuracy.final, 2),
    ]
    cells = [
        [name, number(pair.first, digits), number(pair.second, digits), _difference(pair)]
        for name, pair, digits in rows
    ]
    return align([["", *names, "difference"], RULE, *cells])


def _difference(pair: Pair) -> str:
    return f"{pair.difference_percent:+.2f} %" if math.isfinite(pair.difference_percent) else "-"


def _distances(found: RunComparison, names: tuple[str, str]) -> Iterator[LabelledText]:
    if found.data is not None:
        yield "data", _data(found.data)
    yield "staleness", f"distributions {number(found.staleness_distance, 3)} server steps apart"
    yield from _order_rows(found.order, names) if found.order else [("order", _NO_EVENTS)]
    yield "time shift", _shift(found.shift, names) if found.shift else _NO_EVENTS
    yield "loss", _trajectory(found.loss, 4)
    yield "accuracy %", _trajectory(found.accuracy, 2)


def _data(data: DataComparison) -> str:
    if data.equal is None:
        return "not known: a run has no digest of its data"
    differ = f"DIFFERENT: SHA-256 {data.first[:12]} and {data.second[:12]}; compare runs on the same data"
    return "the same in both runs" if data.equal else differ


def _order_rows(order: ArrivalOrder, names: tuple[str, str]) -> Iterator[LabelledText]:
    alone = f"{order.only_first:,} only {names[0]}, {order.only_second:,} only {names[1]}"
    begins = "the sequences are equal"
    if order.differs_at is not None:
        begins = f"the sequences first differ at arrival {order.differs_at + 1:,} ({order.differs_at_s:.4f} s)"
    moved = order.places_moved
    yield "arrivals", f"{order.common:,} in both runs, {alone}; {begins}"
    yield "order", f"{100 * order.distance:.3f} % of the pairs of common arrivals come in the other order"
    yield "", f"places moved: {moved.p50:,.0f} (p50), {moved.p95:,.0f} (p95), {moved.p99:,.0f} (p99)"


def _shift(shift: Shift, names: tuple[str, str]) -> str:
    late = shift.seconds
    quantiles = f"{1e3 * late.p50:+.1f} ms (p50), {1e3 * late.p95:+.1f} ms (p95), {1e3 * late.p99:+.1f} ms (p99)"
    line = f"{1e3 * shift.offset_s:+.1f} ms at the start and {shift.drift_percent:+.2f} % of the time"
    return f"{names[1]} minus {names[0]}: {quantiles}; as a line, {line}"


def _trajectory(trajectory: Trajectory, digits: int) -> str:
    if not trajectory.times:
        return "no values at common times"
    largest = f"{number(trajectory.largest, digits)} apart at most, at {trajectory.largest_at_s:g} s"
    return f"{largest} ({trajectory.times:,} common times)"


def _check_line(name: str, pair: Pair, percent: float) -> Styled:
    from areabench.results.comparison import is_within

    answer = ("yes", GOOD) if is_within(pair, percent) else ("NO", BAD)
    return Styled(f"{name} within {percent:g} %: ", answer, f" ({_difference(pair)})")


# ---------------------------------------------------------------------------------------------------- theory


def findings_text(found: Findings) -> Styled:
    """What the paper's theorems say about an experiment."""
    what = Styled(f"{found.problem}, n = {found.clients}, M = {found.local_steps}, ", method_word(found.method))
    rows = [("experiment", what), ("events", _events(found))]
    rows += [*_theorem1(found.theorem1), *_theorem2(found.theorem2), *_server(found)]
    rows += [("not satisfied" if not number else "", text) for number, text in enumerate(found.not_satisfied)]
    rows += [("advice" if not number else "", text) for number, text in enumerate(found.advised)]
    rows += _suggestion(found)
    return joined(labelled(rows, 14))


def _events(found: Findings) -> str:
    events = found.events
    where = f"client {events.slowest}" if events.slowest >= 0 else "the server"
    return (
        f"p_min = {events.p_min:.4g} ({where}), p_s = {events.p_s:.4g}, q_bar = {events.q_bar:.4g}, "
        f"r_p = {events.r_p:.4g}; {events.source}"
    )


def _theorem1(found: Theorem1 | None) -> Iterator[LabelledText]:
    if found is None:
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
        return
    noise = "" if math.isnan(found.sigma) else f", sigma = {found.sigma:.4g}, zeta = {found.zeta:.4g}"
    if found.awaits_solution:
        noise = "; --solve adds sigma, zeta and the bound"
    words = f"mu = {found.mu:.4g}, L = {found.L:.4g}, kappa = {found.kappa:.4g}, gamma = {found.gamma:.4g}"
    yield "theorem 1", f"{words}, delta = {found.delta:.4g}{noise}"
    yield "", f"alpha_k = {found.c:.6g}/(k + {found.d:.6g}), from D = {found.D:.4g} ({found.limited_by})"
    if not math.isnan(found.closed_bound):
        recursive = found.recursion_bound
        proof = "" if math.isnan(recursive) else f", {recursive:.4g} (recursion of the proof)"
        yield "", f"E|x_s,K - x*|² <= {found.closed_bound:.4g} (closed form){proof} at K = {found.iterations:,}"


def _theorem2(found: Theorem2 | None) -> Iterator[LabelledText]:
    if found is None:
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
        return
    if found.awaits_solution:
        yield "theorem 2", "--solve adds its constants, step size and bound, which need |x_s,0 - x*|"
        return
    distance = f"|x_s,0 - x*| = {found.start_distance:.4g}{' (estimated)' * found.estimated}"
    yield "theorem 2", f"B = {found.B:.4g}, sigma = {found.sigma:.4g}, {distance}"
    yield "", f"alpha = {found.alpha:.4g} for K = {found.iterations:,}; E[f(average) - f*] <= {found.bound:.4g}"


def _server(found: Findings) -> Iterator[LabelledText]:
    best = found.server
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {best.now:.4g} 1/s",
    )
    yield "", "(the least bound of Theorem 2 for a number of iterations; within a horizon a faster server is no worse)"


def _suggestion(found: Findings) -> Iterator[LabelledText]:
    if found.suggestion is None:
        return
    schedule, best = found.suggestion.schedule.name, found.server.rate
    criterion = "the server's criterion as it is" if found.keeps_criterion else f"the server at {best:.4g} 1/s"
    yield "suggestion", f'schedule "{schedule}", {found.suggested_steps}; {criterion}; --write FILE.toml writes it'
