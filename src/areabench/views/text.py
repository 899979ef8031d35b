"""What the reading commands print: runs, a diagnosis, a comparison of two runs, and what the theory says.

Each function returns a styled text, which a terminal shows in colours and which is plain text elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    state_word,
    text_section,
)

if TYPE_CHECKING:
    from areabench.engine.data import DataSummary
    from areabench.results.advice import Findings  # loads methods and problems
    from areabench.results.comparison import Pair, RunComparison
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
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"


# ---------------------------------------------------------------------------------------------------- experiment


def experiment_text(experiment: Experiment) -> Styled:
    """An experiment as TOML, with comments on what defaults do."""
    return joined(_toml_lines(experiment))


def _toml_lines(experiment: Experiment) -> list[Styled]:
    remarks = default_remarks(experiment)
    lines = []
    heading = ""
    for line in to_toml(experiment).splitlines():
        key, equals, value = line.partition(" = ")
        if line.startswith("["):
            heading = line.strip("[]")
            lines.append(Styled((line, HEADING)))
        elif not equals:
            lines.append(Styled(line))
        else:
            name = value.strip('"')
            if key == "name" and name in METHODS:
                value = Styled('"', method_word(name), '"')
            line = Styled((key, FAINT), equals, value)
            if remark := remarks.get(f"{heading}.{key}"):
                line = Styled(line, (f"  # {remark}", FAINT))
            lines.append(line)
    return lines


def data_text(data: DataSummary | None) -> Styled:
    """What data are like, as comments of TOML."""
    if data is None:
        return Styled("")
    kept = ""
    if data.filled is not None:
        kept = f", sparse with {data.filled:.3%} of them kept"
    inputs = f"inputs of a model from {data.lowest:.6g} to {data.highest:.6g}"
    lines = [
        f"{data.name}: {data.train_samples:,} training and {data.test_samples:,} test samples",
        f"{data.features:,} features, {data.type}{kept}; {inputs}",
    ]
    if data.classes:
        counts = [f"{each.name} ({each.train:,} + {each.test:,})" for each in data.classes[:_MOST_CLASSES]]
        if len(data.classes) > _MOST_CLASSES:
            counts.append("...")
        lines.append(f"{len(data.classes)} classes, with training + test samples: {', '.join(counts)}")
    else:
        lines.append(f"targets from {data.lowest_target:.6g} to {data.highest_target:.6g}")
    return Styled("\n", joined(Styled((f"# {line}", FAINT)) for line in lines))


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
    cells = [
        [
            file,
            method_word(one.method),
            f"{one.step_size:g}",
            number(one.test_accuracy, 2),
            number(one.train_loss, 3),
            f"{one.target_s:.1f} s" if math.isfinite(one.target_s) else "not reached",
            f"{one.updates:,}",
            f"{one.server_steps:,}",
            number(one.mean_staleness, 2),
            state_word(one.state),
            setting,
        ]
        for file, one, setting in zip(files, summaries, settings, strict=True)
    ]
    heading = [
        "file", "method", "alpha", "accuracy %", "loss", f"time to {target:g} %", "updates", "steps", "mean staleness",
        "status", "settings",
    ]  # fmt: skip
    kept = slice(None if any(settings) else -1)
    return joined(align([heading[kept], RULE, *(row[kept] for row in cells)], flush_left=(0, 1, 10)))


def describe_run(run: Run) -> Styled:
    """One run in full, section by section."""
    status = run.status
    words = f"{counted(status.updates, 'update')}, {counted(status.server_steps, 'server step')}"
    words += f", {status.discarded:,} discarded"
    for kind in (Kind.NO_STEP, Kind.CANCELLED):
        if count := int(np.count_nonzero(run.events_array["kind"] == kind)):
            words += f", {count:,} {kind.text}"
    if run.experiment.privacy is not None:
        words += f", {run.clipped:,} clipped, {status.refused:,} refused"
    state = [Styled(state_word(status.state.text), f": {status.reason}"), f"{words}; ended at {status.end_s:.3f} s"]
    if status.is_without_steps:
        state.append(Styled((NO_STEPS, DOUBTFUL)))
    clients = run.clients_array
    taking_part = (
        f"{len(clients):,}; rates {clients['rate'].min():.3g} to {clients['rate'].max():.3g} 1/s, "
        f"samples {clients['samples'].min():,} to {clients['samples'].max():,}"
    )
    if len(run.served):  # unknown for some killed runs
        taking_part += f", updates {run.served.min():,} to {run.served.max():,}"
    parts = [
        text_section("status", state),
        _snapshots(run),
        text_section("updates", _used_updates(run)),
        text_section("clients", [taking_part]),
    ]
    if run.diagnosis is not None:
        parts.append(diagnosis_text(run.diagnosis))
    parts.append(text_section("experiment", _toml_lines(run.experiment)))
    parts.append(text_section("provenance", [f"{name:<14} {value}" for name, value in vars(run.provenance).items()]))
    return Styled(f"{run.path}\n\n", Styled("\n").join(parts))


def _snapshots(run: Run) -> Styled:
    """Seven of the snapshots at most, the last one among them."""
    index = run.snapshot_index
    metrics = run.metrics_array
    if not len(metrics):
        return text_section("snapshots", [f"{len(index):,}, not evaluated"])
    rows = [["time s", "version", "train loss", "accuracy %", "squared distance"], RULE]
    for row in dict.fromkeys(np.linspace(0, len(metrics) - 1, 7).astype(int).tolist()):
        distance = metrics[row]["squared_distance"]
        rows.append([
            f"{index[row]['time_s']:.2f}",
            str(index[row]["version"]),
            number(metrics[row]["train_loss"], 4),
            number(metrics[row]["test_accuracy"], 2),
            "-" if np.isnan(distance) else f"{distance:.4g}",
        ])  # fmt: skip
    return text_section(f"snapshots ({len(index):,} in all)", align(rows))


def _used_updates(run: Run) -> list[str]:
    """Staleness, delays, computing and service of the updates that were used."""
    if not run.experiment.record.events:
        return [f"no event log was kept; mean staleness {run.summary().mean_staleness:.2f} versions"]
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    if not len(updates):
        return ["none"]
    measured = measured_columns(updates)
    rows = [["", *(f"p{share}" for share in QUANTILES)], RULE]
    last = len(updates) - 1
    for name, column, scale, digits in (
        ("staleness (versions)", "staleness", 1, 0),
        ("drawn delay (ms)", "drawn_delay_s", 1e3, 2),
        ("late against it (ms)", "late_s", 1e3, 3),
        ("computing (ms)", "compute_s", 1e3, 3),
        ("service (ms)", "service_s", 1e3, 3),
    ):
        # np.percentile would load masked arrays, which takes a tenth of the time of `show`.
        values = np.interp(np.array(QUANTILES) / 100 * last, np.arange(last + 1), np.sort(scale * measured[column]))
        rows.append([name, *(f"{value:.{digits}f}" for value in values)])
    overruns = int(np.count_nonzero(updates["flags"] & 1))
    return [*align(rows), f"{overruns:,} of {len(updates):,} were not ready when due"]


def measured_columns(updates: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns of EVENT that are summarised, and by how many seconds each update came later than drawn."""
    # Lateness is no column: it is what the realised delay has more than the drawn one.
    columns = {name: updates[name] for name in ("staleness", "drawn_delay_s", "compute_s", "service_s")}
    return {**columns, "late_s": updates["realised_delay_s"] - updates["drawn_delay_s"]}


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
    rows = [*_work_rows(found)]
    if found.cause not in (Cause.VIRTUAL, Cause.NOTHING):
        rows += _time_rows(found)
    cause, colon, advice = found.advice.partition(":")
    style = {Cause.DELAYS: GOOD, Cause.VIRTUAL: "", Cause.NOTHING: ""}.get(found.cause, DOUBTFUL)
    rows.append(("verdict", Styled((cause, style), colon, advice)))
    return text_section("diagnosis", labelled(rows, 17))


def _work_rows(found: Diagnosis) -> Iterator[LabelledText]:
    """Updates, clients and delays, against what is expected of them."""
    rate = found.updates / found.duration_s
    nominal = found.expected_updates / found.duration_s
    # A method that calls its clients expects nothing, nor does a horizon shorter than every delay.
    if found.expected_updates > 0:
        share = 100 * found.updates / found.expected_updates
        expected = f"{found.expected_updates:,.0f} expected ({share:.1f} %)"
        yield "updates", f"{found.updates:,} of {expected}: {rate:.4g} of {nominal:.4g}/s"
    else:  # a method that calls its clients, or a horizon shorter than every delay
        yield "updates", f"{found.updates:,} in {found.duration_s:g} s, {rate:.4g}/s"
    count = f"{len(found.clients):,}"
    short = found.short
    if np.isnan(found.clients["expected"]).any():
        why = "their trace is missing, or the method or the delays are the user's own"
        yield "clients", f"{count}; the expected number of updates is not known: {why}"
    elif not len(short):
        yield "clients", f"{count}, none served less than chance allows"
    else:
        named = ", ".join(
            f"client {row['client']} ({row['served']:,} of {row['expected']:,.4g}, at least {row['low']:,.0f})"
            for row in short[:_NAMED]
        )
        if len(short) > _NAMED:
            named += f" and {len(short) - _NAMED:,} more"
        yield "clients", f"{len(short):,} of {count} served less than chance allows: {named}"
    drawn_s = found.mean_drawn_s
    if math.isnan(drawn_s):
        return
    if found.cause == Cause.VIRTUAL:
        yield "delay", f"{1e3 * drawn_s:,.4g} ms on average"
    else:
        realised_s = found.mean_realised_s
        words = f"drawn {1e3 * drawn_s:,.4g} ms, realised {1e3 * realised_s:,.4g} ms on average"
        yield "delay", f"{words} ({100 * (realised_s / drawn_s - 1):+.1f} %)"


def _time_rows(found: Diagnosis) -> Iterator[LabelledText]:
    """What took how long in real time, how busy the ranks were, and how they started."""
    yield "", "".join(f"{f'p{share}':>10}" for share in QUANTILES)
    for column, label in _MEASURED:
        values = [1e3 * found.quantile(column, share) for share in QUANTILES]
        yield label, "".join(f"{'-':>10}" if math.isnan(value) else f"{value:>10,.3f}" for value in values)
    overran = f"{found.overruns:,} of {found.updates:,} updates were not ready when due"
    overran += f" ({100 * found.overruns / max(found.updates, 1):.1f} %)"
    if not math.isnan(found.expected_overruns):
        overran += f"; {found.expected_overruns:.1f} % of the delays are shorter than reply and computing"
    yield "overruns", overran
    loads = []
    if not math.isnan(found.server_load):
        parts = [("polling", found.server_polling), ("serving", found.server_serving)]
        if found.server_starved > _STARVED:
            parts.append(("short of a core", found.server_starved))
        busy = f"server busy {_share(found.server_load)}"
        if known := ", ".join(f"{name} {_share(share)}" for name, share in parts if not math.isnan(share)):
            busy += f" ({known})"
        loads.append(busy)
    if found.busiest_rank > 0:
        loads.append(f"rank {found.busiest_rank}, the busiest, computes {_share(found.busiest_load)}")
    if not math.isnan(found.core_load):
        loads.append(f"ranks use {_share(found.core_load)} of their host's {counted(found.cores, 'core')}")
    if loads:
        yield "load", "; ".join(loads)
    if found.ranks:
        words = f"ready after {found.start_up_s:.1f} s; {size(found.memory_bytes)} in {found.ranks} ranks"
        if found.stretch != 1:
            words += f"; clock.stretch = {found.stretch:g}"
        yield "launch", words


def _share(percent: float) -> str:
    """Percent, with a decimal below ten."""
    if percent < 10:
        return f"{percent:.1f} %"
    return f"{percent:.0f} %"


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
    one, other = (_CLOCKS.get(run.provenance.transport, run.provenance.transport) for run in (first, second))
    if one == other:
        return "first", "second"
    return one, other


def comparison_text(first: Run, second: Run, found: RunComparison, within: Tolerances) -> Styled:
    """The two runs, a table of counts and final values, how far apart the runs are, and the verdict."""
    from areabench.results.comparison import is_within

    names = run_names(first, second)
    experiment = first.experiment
    method = experiment.method
    what = f", step size {method.step_size:g}, {describe_setting(experiment)}, seed {experiment.seed}\n"
    files = labelled(zip(names, (str(first.path), str(second.path)), strict=True), max(map(len, names)) + 2)
    counts = [
        ("updates", found.updates, 0),
        (f"of client {found.client}, where they differ most", found.client_updates, 0),
        ("server steps", found.server_steps, 0),
        ("mean staleness", found.mean_staleness, 2),
        ("final loss", found.loss.final, 4),
        ("final accuracy %", found.accuracy.final, 2),
    ]
    cells = [
        [name, number(pair.first, digits), number(pair.second, digits), _difference(pair)]
        for name, pair, digits in counts
    ]
    checks = []
    for name, pair, percent in (
        ("updates", found.updates, within.updates), ("final loss", found.loss.final, within.loss)
    ):  # fmt: skip
        answer = ("yes", GOOD) if is_within(pair, percent) else ("NO", BAD)
        checks.append(Styled(f"{name} within {percent:g} %: ", answer, f" ({_difference(pair)})"))
    return Styled(
        method_word(method.name), what, joined(Styled("  ", line) for line in files),
        "\n", joined(align([["", *names, "difference"], RULE, *cells])),
        "\n", joined(labelled(_distances(found, names), 12)),
        "\n", joined(checks),
    )  # fmt: skip


def _difference(pair: Pair) -> str:
    return f"{pair.difference_percent:+.2f} %" if math.isfinite(pair.difference_percent) else "-"


def _distances(found: RunComparison, names: tuple[str, str]) -> Iterator[LabelledText]:
    if (data := found.data) is not None:
        words = f"DIFFERENT: SHA-256 {data.first[:12]} and {data.second[:12]}; compare runs on the same data"
        said = {None: "not known: a run has no digest of its data", True: "the same in both runs", False: words}
        yield "data", said[data.equal]
    yield "staleness", f"distributions {number(found.staleness_distance, 3)} server steps apart"
    if (order := found.order) is None:
        yield "order", _NO_EVENTS
    else:
        alone = f"{order.only_first:,} only {names[0]}, {order.only_second:,} only {names[1]}"
        begins = "the sequences are equal"
        if order.differs_at is not None:
            begins = f"the sequences first differ at arrival {order.differs_at + 1:,} ({order.differs_at_s:.4f} s)"
        moved = order.places_moved
        yield "arrivals", f"{order.common:,} in both runs, {alone}; {begins}"
        yield "order", f"{100 * order.distance:.3f} % of the pairs of common arrivals come in the other order"
        yield "", f"places moved: {moved.p50:,.0f} (p50), {moved.p95:,.0f} (p95), {moved.p99:,.0f} (p99)"
    if (shift := found.shift) is None:
        yield "time shift", _NO_EVENTS
    else:
        late = shift.seconds
        quantiles = f"{1e3 * late.p50:+.1f} ms (p50), {1e3 * late.p95:+.1f} ms (p95), {1e3 * late.p99:+.1f} ms (p99)"
        line = f"{1e3 * shift.offset_s:+.1f} ms at the start and {shift.drift_percent:+.2f} % of the time"
        yield "time shift", f"{names[1]} minus {names[0]}: {quantiles}; as a line, {line}"
    for label, trajectory, digits in (("loss", found.loss, 4), ("accuracy %", found.accuracy, 2)):
        words = "no values at common times"
        if trajectory.times:
            largest = f"{number(trajectory.largest, digits)} apart at most, at {trajectory.largest_at_s:g} s"
            words = f"{largest} ({trajectory.times:,} common times)"
        yield label, words


# ---------------------------------------------------------------------------------------------------- theory


def theory_text(found: Findings) -> Styled:
    """What the paper's theorems say about an experiment."""
    return joined(labelled(_theory_rows(found), 14))


def _theory_rows(found: Findings) -> Iterator[LabelledText]:
    what = f"{found.problem}, n = {found.clients}, M = {found.local_steps}, "
    yield "experiment", Styled(what, method_word(found.method))
    events = found.events
    where = "the server"
    if events.slowest >= 0:
        where = f"client {events.slowest}"
    chances = f"p_min = {events.p_min:.4g} ({where}), p_s = {events.p_s:.4g}, q_bar = {events.q_bar:.4g}"
    yield "events", f"{chances}, r_p = {events.r_p:.4g}; {events.source}"
    if (first := found.theorem1) is None:
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
    else:
        words = f"mu = {first.mu:.4g}, L = {first.L:.4g}, kappa = {first.kappa:.4g}, gamma = {first.gamma:.4g}"
        words += f", delta = {first.delta:.4g}"
        if first.awaits_solution:
            words += "; --solve adds sigma, zeta and the bound"
        elif not math.isnan(first.sigma):
            words += f", sigma = {first.sigma:.4g}, zeta = {first.zeta:.4g}"
        yield "theorem 1", words
        yield "", f"alpha_k = {first.c:.6g}/(k + {first.d:.6g}), from D = {first.D:.4g} ({first.limited_by})"
        if not math.isnan(first.closed_bound):
            words = f"E|x_s,K - x*|² <= {first.closed_bound:.4g} (closed form)"
            if not math.isnan(first.recursion_bound):
                words += f", {first.recursion_bound:.4g} (recursion of the proof)"
            yield "", f"{words} at K = {first.iterations:,}"
    if (second := found.theorem2) is None:
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
    elif second.awaits_solution:
        yield "theorem 2", "--solve adds its constants, step size and bound, which need |x_s,0 - x*|"
    else:
        distance = f"|x_s,0 - x*| = {second.start_distance:.4g}{' (estimated)' * second.estimated}"
        yield "theorem 2", f"B = {second.B:.4g}, sigma = {second.sigma:.4g}, {distance}"
        yield "", f"alpha = {second.alpha:.4g} for K = {second.iterations:,}; E[f(average) - f*] <= {second.bound:.4g}"
    best = found.server
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {best.now:.4g} 1/s",
    )
    yield "", "(the least bound of Theorem 2 for a number of iterations; within a horizon a faster server is no worse)"
    for label, texts in (("not satisfied", found.not_satisfied), ("advice", found.advised)):
        for index, text in enumerate(texts):
            yield "" if index else label, text
    if found.suggestion is not None:
        criterion = f"the server at {best.rate:.4g} 1/s"
        if found.keeps_criterion:
            criterion = "the server's criterion as it is"
        schedule = f'schedule "{found.suggestion.schedule.name}", {found.suggested_steps}'
        yield "suggestion", f"{schedule}; {criterion}; --write FILE.toml writes it"
