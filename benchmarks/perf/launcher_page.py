"""The table of bench_launchers.py: what happened to the ranks that were left, in milliseconds after the event."""

from __future__ import annotations

import signal
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_COLUMNS = ("launcher", "event", "signals at the other ranks", "MPI raises at the server", "at clients", "they end")
_RAISED = "raised"


@dataclass(frozen=True)
class Way:
    """How ranks are started: with which Python, by which command."""

    name: str
    python: Path
    command: Sequence[str]


@dataclass(frozen=True)
class Case:
    """What is done: signals to a rank, or to the launcher."""

    name: str
    signals: tuple[signal.Signals, ...]
    rank: int | None = None
    watched_s: float = 0.8  # after the event


@dataclass(frozen=True)
class Tried:
    """What became of one launch, by rank, in milliseconds after the event; of the ranks that it did not happen to."""

    notes: Mapping[int, Mapping[str, float]]  # signals, and errors of MPI
    ended: Mapping[int, float]
    code: int


def page(found: Mapping[tuple[str, str], Sequence[Tried]], tries: int, machine: str) -> str:
    """One row a launcher and a case."""
    columns = [*_COLUMNS, "exit code"]
    rows = [[way, case, *row(tried)] for (way, case), tried in found.items()]
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
    said = f"Milliseconds after the event, median (range) over the ranks of {tries} launches of 4 ranks each; {machine}"
    return "\n".join([said.rstrip(".") + ".", "", *lines, ""])


def row(tried: Sequence[Tried]) -> list[str]:
    """What the launches of one case have in common."""
    names = sorted({name for each in tried for notes in each.notes.values() for name in notes if name != _RAISED})
    times = {name: [_of(each.notes, name) for each in tried] for name in names}
    ordered = sorted(names, key=lambda name: min(sum(times[name], [])))
    signals = ", ".join(f"{name} {summary(times[name])}" for name in ordered)
    server = [_of({0: each.notes.get(0, {})}, _RAISED) for each in tried]
    clients = [_of({rank: notes for rank, notes in each.notes.items() if rank}, _RAISED) for each in tried]
    ended = [list(each.ended.values()) for each in tried]
    codes = Counter(each.code for each in tried)
    return [signals or "none", summary(server), summary(clients), summary(ended), _codes(codes)]


def summary(times_ms: Sequence[Sequence[float]]) -> str:
    """Median and range over all ranks of all tries; in how many tries, where not in all."""
    all_ms = [each for one in times_ms for each in one]
    if not all_ms:
        return "no"
    count, tries = sum(bool(one) for one in times_ms), len(times_ms)
    among = f", in {count} of {tries}" if count < tries else ""
    return f"{_ms(statistics.median(all_ms))} ({_ms(min(all_ms))}–{_ms(max(all_ms))}{among})"


def _of(notes: Mapping[int, Mapping[str, float]], name: str) -> list[float]:
    return [each[name] for each in notes.values() if name in each]


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _codes(codes: Counter[int]) -> str:
    return ", ".join(str(code) if len(codes) == 1 else f"{code} ({count})" for code, count in sorted(codes.items()))
