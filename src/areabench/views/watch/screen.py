"""A frame of a watch as a page on a terminal, as plain text, and as one line of a log."""

from __future__ import annotations

import bisect
import io
import itertools
import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from areabench.engine.events import Kind, State
from areabench.errors import SilentExit, escape_controls
from areabench.host import restore_handlers, set_handlers
from areabench.progress import duration
from areabench.views.styled import BAD, DOUBTFUL, GOOD, Styled, counted, method_word, number, state_word
from areabench.views.terminal import stdout_console
from areabench.views.text import size
from areabench.views.watch.frame import WAITING, ClientFrame, Frame
from areabench.views.watch.quality import Quality

_LABEL = "bold cyan"
_FAINT = "bright_black"
_CHART = "magenta"
_LABEL_WIDTH = 12  # characters, as the next four
_TIME_BAR = 30
_STALENESS_CHART = 40
_CLIENT_BAR = 10
_GAP = 3
_CHARTED = 0.99  # share of the updates that the chart of staleness shows: a few come very late
_NAMED_LOST = 8  # clients
_PLAIN_COLUMNS = 100  # of a page without a terminal
_PLAIN_ROWS = 40
StyledPart = str | tuple[str, str]  # text, or text and style


@dataclass(frozen=True)
class Glyphs:
    """Characters for bars and charts."""

    full: str
    empty: str
    heights: str  # from least to most; the first is for zero alone

    def bar(self, share: float, length: int, style: str) -> list[StyledPart]:
        """A share from 0 to 1, or NaN, as a bar."""
        full = 0 if math.isnan(share) else round(length * min(max(share, 0.0), 1.0))
        return [(self.full * full, style), (self.empty * (length - full), _FAINT)]

    def chart(self, counts: Sequence[int], width: int) -> str:
        """Counts as heights, at most `width` characters: neighbours are added up where there are more."""
        step = -(-len(counts) // width) or 1
        sums = [sum(counts[first : first + step]) for first in range(0, len(counts), step)]
        highest = len(self.heights) - 1
        most = max([1, *sums])
        return "".join(self.heights[-(-value * highest // most)] for value in sums)  # rounded up


PLAIN = Glyphs("#", ".", " .:-=+*#")
BLOCKS = Glyphs("█", "░", "▁▂▃▄▅▆▇█")


class Screen:
    """Shows frames on the whole terminal, and leaves the last one on it."""

    def __init__(self, *, in_colour: bool) -> None:
        self._console = stdout_console(in_colour=in_colour)
        self._glyphs = BLOCKS if self._console.encoding.startswith("utf") else PLAIN
        self._live = Live(console=self._console, screen=True, auto_refresh=False, vertical_overflow="crop")
        self._last: Frame | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the terminal over, and give it back, also when a signal ends the process."""
        before = set_handlers((signal.SIGTERM, signal.SIGHUP), _end)
        try:
            with self._live:
                yield
        finally:
            restore_handlers(before)
            if self._last is not None:
                self.leave(self._last)

    def show(self, frame: Frame) -> None:
        """Show a frame in the present size of the terminal."""
        self._last = frame
        self._live.update(WatchPage(frame, self._glyphs, spare=1), refresh=True)  # a line for the cursor

    def leave(self, frame: Frame) -> None:
        """Print a frame to stay, with room for what the shell writes next."""
        self._console.print(WatchPage(frame, self._glyphs, spare=3))


def _end(number: int, _frame: FrameType | None) -> None:
    raise SilentExit(128 + number)


def plain_page(frame: Frame) -> str:
    """A whole frame without a terminal."""
    paper = Console(file=io.StringIO(), width=_PLAIN_COLUMNS, height=_PLAIN_ROWS, color_system=None)
    with paper.capture() as captured:
        paper.print(WatchPage(frame, PLAIN), soft_wrap=True)  # soft: a line is as long as it is
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@dataclass(frozen=True)
class WatchPage:
    """A frame as a renderable of rich, in as many lines as the terminal has but `spare`."""

    frame: Frame
    glyphs: Glyphs
    spare: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines of a label and a text, then the clients as far as there is room."""
        rows = (options.height or options.max_height) - self.spare
        parts: list[RenderableType] = list(itertools.islice(self._lines(), max(rows, 0)))
        if self.frame.counted and self.frame.clients:
            parts += client_bars(self.frame.clients, options.max_width, rows - len(parts), self.glyphs)
        cut = options.update(no_wrap=True, overflow=options.overflow or "ellipsis")
        for part in parts:
            yield from console.render(part, cut)

    def _lines(self) -> Iterator[Text]:
        frame = self.frame
        yield _text((frame.file, "bold"))
        if frame.state == WAITING:
            yield _labelled("state", *state_word(WAITING).parts, f" {frame.reason}")
            return
        (method, colour), *_ = method_word(frame.method).parts
        alpha = f", alpha = {frame.step_size:g}, {frame.setting}"
        yield _labelled("experiment", f"{frame.name}: ", (method, f"bold {colour}"), alpha)
        where = " in virtual time"
        if frame.transport == "mpi":
            where = f" in real time, {frame.ranks} ranks"
        if frame.reason:
            where += f": {frame.reason}"
        yield _labelled("state", *state_word(frame.state).parts, where)
        yield _labelled("time", *self._time())
        yield _labelled("updates", _update_counts(frame))
        yield _labelled("staleness", *self._staleness())
        quality: list[StyledPart] = ["-"]
        if frame.quality is not None:
            when = f" at {frame.quality.time_s:g} s, version {frame.quality.version:,}"
            quality = [(_quality_values(frame.quality), "bold"), when]
        if frame.quality_remark:
            quality.append((f" ({frame.quality_remark})", _FAINT))
        yield _labelled("quality", *quality)
        if faults := _faults(frame):
            yield _labelled("faults", (faults, BAD))
        age = duration(frame.age_s)
        if frame.age_s < 10:
            age = f"{frame.age_s:.1f} s"
        yield _labelled("file", f"{size(frame.size_bytes)}, {counted(frame.snapshots, 'snapshot')}, written {age} ago")

    def _time(self) -> list[StyledPart]:
        frame = self.frame
        words = f"{frame.time_s:.2f}{_of(frame, ' of ')} s"
        if frame.state == State.RUNNING.text and frame.speed > 0 and abs(frame.speed - 1) > 0.05:
            words += f"  {frame.speed:.3g} s per second"
        if not math.isnan(frame.left_s):
            words += f"  {duration(frame.left_s)} left"
        if frame.progress is None:
            return [words]
        return [*self.glyphs.bar(frame.progress, _TIME_BAR, GOOD), f" {100 * frame.progress:.0f} %  {words}"]

    def _staleness(self) -> list[StyledPart]:
        counts = self.frame.staleness.counts
        if not counts:
            return ["-"]
        # The few updates that come very late would take most of the chart.
        sums = list(itertools.accumulate(counts))
        most = bisect.bisect_left(sums, _CHARTED * sums[-1])  # the quantile, since counts are of 0, 1, 2, ... versions
        return [
            f"{self.frame.staleness.mean:.2f} versions on average  0 ",
            (self.glyphs.chart(counts[: most + 1], _STALENESS_CHART), _CHART),
            f" {most:,}  (99 %; {len(counts) - 1:,} at most)",
        ]


def _labelled(label: str, *parts: StyledPart) -> Text:
    return _text((f"{label:<{_LABEL_WIDTH}}", _LABEL), *parts)


def _text(*parts: StyledPart) -> Text:
    """Parts without control characters, which a file may have brought in."""
    return Text.assemble(*((escape_controls(text), style) for text, style in Styled(*parts).parts))


def _of(frame: Frame, between: str) -> str:
    """The horizon, behind the time; nothing where iterations end the run."""
    return "" if frame.horizon_s is None else f"{between}{frame.horizon_s:g}"


def _update_counts(frame: Frame) -> str:
    if not frame.counted or frame.updates is None or frame.server_steps is None:
        return "no event log is kept: they are counted at the end"
    rates = frame.rates
    words = f"{frame.updates:,}"
    if not math.isnan(rates.overall):
        words += f": {rates.recent:.4g}/s lately, {rates.overall:.4g}/s overall"
        if not math.isnan(rates.nominal):
            words += f", of {rates.nominal:.4g}/s nominal"
    words += f"; {counted(frame.server_steps, 'server step')}"
    kinds = {Kind.DISCARDED: frame.discarded, Kind.NO_STEP: frame.no_steps, Kind.CANCELLED: frame.cancelled}
    return words + "".join(f", {count:,} {kind.text}" for kind, count in kinds.items() if count)


def _quality_values(quality: Quality) -> str:
    values = [f"loss {number(quality.train_loss, 4)}"]
    if not math.isnan(quality.test_accuracy):
        values.append(f"accuracy {quality.test_accuracy:.2f} %")
    if not math.isnan(quality.squared_distance):
        values.append(f"squared distance {quality.squared_distance:.4g}")
    return ", ".join(values)


def _faults(frame: Frame) -> str:
    """Refused updates and lost clients; empty where there are none."""
    parts = []
    if frame.refused:
        parts.append(f"{counted(frame.refused, 'update')} refused")
    if frame.lost:
        named = [str(client) for client in frame.lost[:_NAMED_LOST]]
        if len(frame.lost) > _NAMED_LOST:
            named.append("...")
        parts.append(f"{counted(len(frame.lost), 'client')} lost: {', '.join(named)}")
    return "; ".join(parts)


# ---------------------------------------------------------------------------------------------------- clients


def client_bars(clients: Sequence[ClientFrame], columns: int, rows: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """A heading and a bar per client, column by column; where there is no room for all, the worst of them."""
    digits = len(str(max(client.client for client in clients)))
    across = max(1, (columns + _GAP) // (digits + _CLIENT_BAR + 8 + _GAP))
    below = rows - 1
    if below < 1:
        return
    words = "updates used of those expected by now"
    shown = clients
    others: Sequence[ClientFrame] = ()
    if len(clients) > below * across:
        words += ", the worst first"
        below -= 1  # for a line about the others
        # There is no room for all: those that somebody should look at come first.
        ranked = sorted(clients, key=_urgency)
        shown = ranked[: below * across]
        others = ranked[below * across :]
    heading: list[StyledPart] = [words]
    if short := sum(client.is_short for client in clients):
        heading.append((f"; {short:,} of {len(clients):,} served less than chance allows", DOUBTFUL))
    yield _labelled("clients", *heading)
    if shown:
        cells = [_client_bar(client, digits, glyphs) for client in shown]
        height = min(below, -(-len(cells) // across))
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        for _ in range(-(-len(cells) // height)):
            grid.add_column(no_wrap=True)
        for row in range(height):
            grid.add_row(*cells[row::height])  # one below the other, then in the next column
        yield grid
    if others:
        words = f"and {len(others):,} more"
        if shares := [100 * client.share for client in others if not math.isnan(client.share)]:
            words += f", {min(shares):.0f} to {max(shares):.0f} %"
        yield _text((words, _FAINT))


def _urgency(client: ClientFrame) -> tuple[bool, bool, float]:
    """Lost clients first, then by the share of their updates; sorting keeps the order of the others."""
    return (not client.lost, math.isnan(client.share), client.share)


def _client_bar(client: ClientFrame, digits: int, glyphs: Glyphs) -> Text:
    bar_style = GOOD
    style = ""
    if client.lost or client.is_short:
        bar_style = style = BAD
    words = f"{min(100 * client.share, 9999):>4.0f} %"
    if client.lost:
        words = "  lost"
    elif math.isnan(client.share):
        words = f"{'-':>6}"
    bar = glyphs.bar(client.share, _CLIENT_BAR, bar_style)
    return _text((f"{client.client:>{digits}} ", _FAINT), *bar, (f" {words}", style))


# ---------------------------------------------------------------------------------------------------- one line


def log_line(frame: Frame) -> str:
    """A frame as a line of a log: the same facts in the same order in each line."""
    if frame.state == WAITING:
        return f"waiting     {frame.reason}"
    parts = [f"{frame.state:<10}", f"{frame.time_s:.1f}{_of(frame, ' / ')} s"]
    if frame.updates is not None:
        parts.append(counted(frame.updates, "update"))
    if not math.isnan(frame.rates.recent):
        nominal = ""
        if not math.isnan(frame.rates.nominal):
            nominal = f" of {frame.rates.nominal:.4g}"
        parts.append(f"{frame.rates.recent:.4g}{nominal}/s")
    if frame.staleness.counts:
        parts.append(f"staleness {frame.staleness.mean:.2f}")
    if frame.quality is not None:
        parts.append(_quality_values(frame.quality))
    if faults := _faults(frame):
        parts.append(faults)
    return "  ".join([*parts, size(frame.size_bytes)])
