"""Samples of a running run, from /proc: the memory of every rank, the size of the run file and of its checkpoint."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import Kind, Status
from areabench.runfile.reader import RunReader

TOKEN = "AREABENCH_SOAK"
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_HEAD = ("time_s", "what", "rank", "bytes")
FILE = "file"
CHECKPOINT = "checkpoint"
MEMORY = "memory"


@dataclass(frozen=True)
class Series:
    """One quantity over time."""

    time_s: NDArray[np.float64]
    value: NDArray[np.float64]  # bytes

    def after(self, time_s: float) -> Series:
        """The part from a time on."""
        kept = self.time_s >= time_s
        return Series(self.time_s[kept], self.value[kept])


@dataclass(frozen=True)
class Samples:
    """All that was sampled."""

    memory: dict[int, Series]  # by rank
    file: Series
    checkpoint: Series


class Sampler:
    """Writes samples to a CSV file; time counts from its creation."""

    def __init__(self, path: Path, token: str, run_file: Path) -> None:
        self._path = path
        self._token = token
        self._run_file = run_file
        self._begun_s = time.monotonic()
        self._path.write_text(",".join(_HEAD) + "\n", encoding="utf-8")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun_s

    def sample(self) -> int:
        """Take one sample; returns the memory of all ranks together, in bytes."""
        time_s = self.elapsed_s
        ranks = self._memory_by_rank()
        rows = [(MEMORY, rank, size) for rank, size in sorted(ranks.items())]
        checkpoint = self._run_file.with_name(self._run_file.name + ".checkpoint")
        rows += [(what, -1, _size(path)) for what, path in ((FILE, self._run_file), (CHECKPOINT, checkpoint))]
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([(f"{time_s:.2f}", *row) for row in rows])
        return sum(ranks.values())

    def _memory_by_rank(self) -> dict[int, int]:
        found = {}
        for process, environment in processes_of(self._token).items():
            rank = next((environment[name] for name in _RANKS if name in environment), None)
            if rank is not None and (size := _memory(process)):
                found[int(rank)] = size
        return found


def processes_of(token: str) -> dict[int, dict[str, str]]:
    """The environment of every process that carries the token, by process id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (environment := _environment(folder)).get(TOKEN) == token:
            found[int(folder.name)] = environment
    return found


def _environment(folder: Path) -> dict[str, str]:
    try:
        words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended, or is another user's
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _memory(process: int) -> int:
    """Its memory in bytes, shared pages divided among their processes; 0 where it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^Pss:\s*(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def read_samples(path: Path) -> Samples:
    """All samples of a CSV file; a last line that was cut off is left out."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == len(_HEAD)][1:]
    ranks = sorted({int(row[2]) for row in rows if row[1] == MEMORY})
    memory = {rank: _series(rows, MEMORY, rank) for rank in ranks}
    return Samples(memory, _series(rows, FILE, -1), _series(rows, CHECKPOINT, -1))


def _series(rows: list[list[str]], what: str, rank: int) -> Series:
    chosen = [(float(row[0]), float(row[3])) for row in rows if row[1] == what and int(row[2]) == rank]
    table = np.array(chosen, dtype=np.float64).reshape(-1, 2)
    return Series(table[:, 0], table[:, 1])


WINDOW_S = 60.0
SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Window:
    """The updates of one minute."""

    begin_s: float
    updates: int
    reply_s: tuple[float, ...]  # quantiles, by SHARES
    service_s: tuple[float, ...]

    @property
    def middle_s(self) -> float:
        """The middle of the minute."""
        return self.begin_s + WINDOW_S / 2


def read_windows(path: Path) -> tuple[list[Window], Status]:
    """The windows of a run in order, and how it ended; memory holds at most one window and one block."""
    with RunReader(path) as reader:
        return list(_windows(reader.blocks("events"))), reader.stored_status


def _windows(blocks: Iterable[NDArray[Any]]) -> Iterator[Window]:
    waiting: list[NDArray[Any]] = []
    number = 0
    for events in blocks:
        block = events[events["kind"] == Kind.UPDATE][["time_s", "reply_s", "service_s"]]
        numbers = (block["time_s"] // WINDOW_S).astype(int)
        for found in np.unique(numbers):
            if found != number and waiting:
                yield _window(number, np.concatenate(waiting))
                waiting = []
            number = int(found)
            waiting.append(block[numbers == found])
    if waiting:
        yield _window(number, np.concatenate(waiting))


def _window(number: int, rows: NDArray[Any]) -> Window:
    reply_s = rows["reply_s"][np.isfinite(rows["reply_s"])]
    return Window(number * WINDOW_S, len(rows), _quantiles(reply_s), _quantiles(rows["service_s"]))


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(values, SHARES).tolist()) if len(values) else (np.nan,) * len(SHARES)
