"""A page that is written over itself on a terminal."""

from __future__ import annotations

import bisect
import itertools
import math
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

from rich.live import Live
from rich.text import Text

from areabench.engine.events import State
from areabench.errors import harmless
from areabench.experiment.labels import METHOD_COLOURS
from areabench.host import restore_handlers, set_handlers
from areabench.progress import duration, has_blocks
from areabench.views.styled import BAD, DOUBTFUL, GOOD, STATE_STYLES, number
from areabench.views.terminal import Colours, console
from areabench.views.text import size
from areabench.views.watch.frame import WAITING, ClientFrame, Frame


class Span(NamedTuple):
    """A piece of a line; its look is a name of `LOOKS`, `state:NAME`, or a colour."""

    text: str
    look: str = ""


Line = tuple[Span, ...]


class Size(NamedTuple):
    """Of a page, or of what is left of it, in characters."""

    columns: int
    rows: int


def plain_text(line: Iterable[Span]) -> str:
    """The words alone."""
    return "".join(span.text for span in line)


@dataclass(frozen=True)
class Glyphs:
    """Characters for bars and charts."""

    full: str
    empty: str
    heights: str  # from least to most


PLAIN = Glyphs("#", ".", " .:-=+*#")
BLOCKS = Glyphs("█", "░", "▁▂▃▄▅▆▇█")


def filled(share: float, length: int) -> int:
    """How many characters of a bar a share from 0 to 1 fills; 0 where it is not known."""
    return 0 if math.isnan(share) else round(length * min(max(share, 0.0), 1.0))


def sparkline(counts: Sequence[int], width: int, glyphs: Glyphs) -> str:
    """Counts as heights, at most `width` characters: neighbours are added up where there are more."""
    step = -(-len(counts) // width) if counts else 1
    sums = [sum(counts[first : first + step]) for first in range(0, len(counts), step)]
    most = max(sums, default=0)
    return "".join(_height(value, most, glyphs.heights) for value in sums)


def _height(value: int, most: int, heights: str) -> str:
    """Nothing is the lowest, and whatever there is of something is higher than nothing."""
    return heights[0] if value == 0 else heights[max(1, math.ceil(value / most * (len(heights) - 1)))]


_BAR, _GAP = 10, 3


def client_lines(clients: Sequence[ClientFrame], room: Size, glyphs: Glyphs) -> list[Line]:
    """A heading and the bars, in columns, each of which goes down."""
    cells_across = max(1, (room.columns + _GAP) // (_width(clients) + _GAP))
    below = room.rows - 1
    if below < 1:
        return []
    shown = list(clients)
    if fold := len(shown) > below * cells_across:
        below -= 1  # for a line about the others
        shown = sorted(shown, key=_order)[: max(0, below * cells_across)]
    lines = [_heading(clients, folded=fold), *_columns(shown, below, cells_across, _width(clients), glyphs)]
    return lines + ([_others(clients, len(shown))] if fold else [])


def _heading(clients: Sequence[ClientFrame], *, folded: bool) -> Line:
    short = sum(client.is_short for client in clients)
    words = "updates used of those expected by now" + (", the worst first" if folded else "")
    said = Span(f"; {short:,} of {len(clients):,} served less than chance allows", "doubtful") if short else Span("")
    return (Span(f"{'clients':<12}", "label"), Span(words), said)


def _order(client: ClientFrame) -> tuple[bool, float, int]:
    """Lost ones first, then by what they lack."""
    return (not client.lost, math.inf if math.isnan(client.share) else client.share, client.client)


def _columns(shown: Sequence[ClientFrame], rows: int, across: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Cells one below the other, then in the next column; no more rows than needed."""
    height = min(rows, -(-len(shown) // across)) if shown else 0
    lines: list[Line] = []
    for row in range(height):
        cells = [(*_cell(client, width, glyphs), Span(" " * _GAP)) for client in shown[row::height]]
        lines.append(tuple(span for cell in cells for span in cell)[:-1])
    return lines


def _width(clients: Sequence[ClientFrame]) -> int:
    """Characters of a cell."""
    return len(str(max(client.client for client in clients))) + 1 + _BAR + 1 + 6


def _cell(client: ClientFrame, width: int, glyphs: Glyphs) -> tuple[Span, ...]:
    number, share = f"{client.client:>{width - _BAR - 8}} ", client.share
    full = filled(share, _BAR)
    look = "bad" if client.lost or client.is_short else "good"
    told = "  lost" if client.lost else f"{'-':>6}" if math.isnan(share) else f"{min(100 * share, 9999):>4.0f} %"
    return (
        Span(number, "dim"),
        Span(glyphs.full * full, look),
        Span(glyphs.empty * (_BAR - full), "dim"),
        Span(f" {told}", look if look == "bad" else ""),
    )


def _others(clients: Sequence[ClientFrame], shown: int) -> Line:
    rest = [100 * client.share for client in sorted(clients, key=_order)[shown:] if not math.isnan(client.share)]
    if not rest:
        return (Span(f"and {len(clients) - shown:,} more", "dim"),)
    return (Span(f"and {len(clients) - shown:,} more, {min(rest):.0f} to {max(rest):.0f} %", "dim"),)


_WORD_BAR = 30  # characters
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
    count = filled(frame.progress, _WORD_BAR)
    bar = (Span(glyphs.full * count, "good"), Span(glyphs.empty * (_WORD_BAR - count), "dim"))
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


LOOKS = {
    "good": GOOD,
    "bad": BAD,
    "doubtful": DOUBTFUL,
    "label": "bold cyan",
    "dim": "bright_black",
    "chart": "magenta",
}


class Screen:
    """Shows frames on the whole terminal, and leaves the last one on it."""

    def __init__(self, colours: Colours | None) -> None:
        self._console = console(colours)
        self._glyphs = BLOCKS if has_blocks(self._console.file) else PLAIN
        self._live = Live(console=self._console, screen=True, auto_refresh=False, vertical_overflow="crop")
        self._last: Frame | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the terminal over, and give it back, also when a signal ends us."""
        before = set_handlers((signal.SIGTERM, signal.SIGHUP), _end)
        try:
            with self._live:
                yield
        finally:
            restore_handlers(before)
            if self._last is not None:
                self.leave(self._last)

    def show(self, frame: Frame) -> None:
        """Show a frame in the size that the terminal has now."""
        self._last = frame
        self._live.update(self._text(frame, 1), refresh=True)

    def leave(self, frame: Frame) -> None:
        """Print a frame to stay."""
        self._console.print(self._text(frame, 3), soft_wrap=True)

    def _text(self, frame: Frame, spare: int) -> Text:
        """A frame with so many lines of the terminal left free, for the cursor or for what the shell writes next."""
        size = Size(self._console.width, self._console.height - spare)
        return painted_lines(page(frame, Form(size, self._glyphs)), size.columns)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def painted_lines(lines: Sequence[Line], columns: int) -> Text:
    """Lines in their colours, none longer than the terminal is wide."""
    shown = [Text.assemble(*(_painted(span) for span in line)) for line in lines]
    for line in shown:
        line.truncate(columns, overflow="ellipsis")
    return Text("\n").join(shown)


def _painted(span: Span) -> tuple[str, str]:
    kind, _, state = span.look.partition(":")
    return harmless(span.text), STATE_STYLES.get(state, "") if kind == "state" else LOOKS.get(span.look, span.look)
