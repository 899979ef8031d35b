"""A frame in words: a page for a terminal or a file, or one line."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from areabench.looks import METHOD_COLOURS
from areabench.progress import duration
from areabench.schema import State
from areabench.tables.diagnosis import size
from areabench.tables.runs import number
from areabench.watching.clients import client_lines
from areabench.watching.frame import WAITING, Frame
from areabench.watching.glyphs import Glyphs, filled, sparkline
from areabench.watching.spans import Line, Size, Span, plain_text

_BAR = 30  # characters
_SPARKS = 40
_CHARTED = 0.99  # share of the updates that the chart of staleness shows: a few come very late
_LABEL = 12


@dataclass(frozen=True)
class Form:
    """What a page is made of and how large it is."""

    size: Size
    glyphs: Glyphs


def page(frame: Frame, form: Form) -> list[Line]:
    """Everything, in as many lines as there is room for."""
    lines = list(_lines(frame, form.glyphs))
    room = form.size.rows - len(lines)
    if frame.counted and frame.clients:
        lines += client_lines(frame.clients, Size(form.size.columns, room), form.glyphs)
    return lines[: form.size.rows]


def _lines(frame: Frame, glyphs: Glyphs) -> Iterator[Line]:
    yield (Span(frame.file, "bold"),)
    if frame.state == WAITING:
        yield _labelled("state", Span("waiting", "state:waiting"), Span(f" {frame.reason}"))
        return
    method = Span(frame.method, f"bold {METHOD_COLOURS.get(frame.method, '')}".strip())
    yield _labelled(
        "experiment", Span(f"{frame.name}: "), method, Span(f", alpha = {frame.step_size:g}, {frame.setting}")
    )
    where = f"in real time, {frame.ranks} ranks" if frame.transport == "mpi" else "in virtual time"
    reason = f": {frame.reason}" if frame.reason else ""
    yield _labelled("state", Span(frame.state, f"state:{frame.state}"), Span(f" {where}{reason}"))
    yield _time(frame, glyphs)
    yield _labelled("updates", Span(_updates(frame)))
    yield _labelled("staleness", *_staleness(frame, glyphs))
    yield _labelled("quality", *_quality(frame))
    if frame.refused or frame.lost:
        yield _labelled("faults", Span(_faults(frame), "bad"))
    yield _labelled("file", Span(f"{size(frame.size_bytes)}, {frame.snapshots:,} snapshots, written {_age(frame)} ago"))


def _labelled(label: str, *spans: Span) -> Line:
    return (Span(f"{label:<{_LABEL}}", "label"), *spans)


def _time(frame: Frame, glyphs: Glyphs) -> Line:
    of = f" of {frame.horizon_s:g}" if frame.horizon_s is not None else ""
    words = [f"{frame.time_s:.2f}{of} s"]
    if frame.state == State.RUNNING.text and frame.speed > 0 and abs(frame.speed - 1) > 0.05:
        words.append(f"{frame.speed:.3g} s a second")
    if not math.isnan(frame.left_s):
        words.append(f"{duration(frame.left_s)} left")
    if frame.progress is None:
        return _labelled("time", Span("  ".join(words)))
    count = filled(frame.progress, _BAR)
    bar = (Span(glyphs.full * count, "good"), Span(glyphs.empty * (_BAR - count), "dim"))
    return _labelled("time", *bar, Span(f" {100 * frame.progress:.0f} %  " + "  ".join(words)))


def _updates(frame: Frame) -> str:
    if not frame.counted or frame.updates is None or frame.server_steps is None:
        return "no event log is kept: they are told at the end"
    rates, parts = frame.rates, [f"{frame.updates:,}"]
    if not math.isnan(rates.overall):
        nominal = "" if math.isnan(rates.nominal) else f", of {rates.nominal:.4g}/s nominal"
        parts.append(f"{rates.recent:.4g}/s lately, {rates.overall:.4g}/s overall{nominal}")
    discarded = f", {frame.discarded:,} discarded" if frame.discarded else ""
    return f"{': '.join(parts)}; {frame.server_steps:,} server steps{discarded}"


def _staleness(frame: Frame, glyphs: Glyphs) -> tuple[Span, ...]:
    counts = frame.staleness.counts
    if not counts:
        return (Span("-"),)
    most = _quantile(counts, _CHARTED)
    return (
        Span(f"{frame.staleness.mean:.2f} versions on average  0 "),
        Span(sparkline(counts[: most + 1], _SPARKS, glyphs), "chart"),
        Span(f" {most:,}  (99 %; {len(counts) - 1:,} at most)"),
    )


def _quantile(counts: Sequence[int], share: float) -> int:
    """The least value that this share of the values does not exceed; `counts` has how many are 0, 1, 2, ..."""
    sums = list(itertools.accumulate(counts))
    return bisect.bisect_left(sums, share * sums[-1])


def _quality(frame: Frame) -> tuple[Span, ...]:
    quality, remark = frame.quality, Span(f" ({frame.quality_remark})" if frame.quality_remark else "", "dim")
    if quality is None:
        return (Span("-"), remark)
    values = [f"loss {number(quality.train_loss, 4)}"]
    if not math.isnan(quality.test_accuracy):
        values.append(f"accuracy {quality.test_accuracy:.2f} %")
    if not math.isnan(quality.squared_distance):
        values.append(f"squared distance {quality.squared_distance:.4g}")
    return (Span(", ".join(values), "bold"), Span(f" at {quality.time_s:g} s, version {quality.version:,}"), remark)


def _faults(frame: Frame) -> str:
    parts = [f"{frame.refused:,} update{'s' * (frame.refused > 1)} refused"] if frame.refused else []
    if frame.lost:
        named = ", ".join(map(str, frame.lost[:8])) + (", ..." if len(frame.lost) > 8 else "")
        parts.append(f"{len(frame.lost):,} client{'s' * (len(frame.lost) > 1)} lost: {named}")
    return "; ".join(parts)


def _age(frame: Frame) -> str:
    return f"{frame.age_s:.1f} s" if frame.age_s < 10 else duration(frame.age_s)


# ---------------------------------------------------------------------------------------------------- one line


def one_line(frame: Frame) -> str:
    """A frame for a log: the same places in each line."""
    if frame.state == WAITING:
        return f"waiting     {frame.reason}"
    of = f" / {frame.horizon_s:g}" if frame.horizon_s is not None else ""
    parts = [f"{frame.state:<10}", f"{frame.time_s:.1f}{of} s"]
    parts += [] if frame.updates is None else [f"{frame.updates:,} updates"]
    if not math.isnan(frame.rates.recent):
        nominal = "" if math.isnan(frame.rates.nominal) else f" of {frame.rates.nominal:.4g}"
        parts.append(f"{frame.rates.recent:.4g}{nominal}/s")
    if frame.staleness.counts:
        parts.append(f"staleness {frame.staleness.mean:.2f}")
    if frame.quality is not None:
        parts.append(plain_text(_quality(frame)[:1]))
    if frame.refused or frame.lost:
        parts.append(_faults(frame))
    return "  ".join([*parts, size(frame.size_bytes)])
