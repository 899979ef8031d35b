"""What launchers do when a rank dies or a signal comes: which signals the other ranks get, and after how long.

make bench-launchers, or: python benchmarks/perf/bench_launchers.py [--tries N] [--output FILE] PYTHON ...

Each PYTHON belongs to an environment that has areabench and an MPI with its mpirun, e.g. .venv/bin/python for Open MPI
and .venv-mpich/bin/python for MPICH. Needs Linux. docs/faults.md states what was found.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench_mpi import mpirun_of
from bench_page import describe_machine

from areabench.errors import UserError
from areabench.launching.families import MPI_DEFAULTS, ONE_MACHINE
from areabench.launching.mpirun import FaultTolerance, launcher_flags, tolerance_flags

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
    """The event: signals to a rank, or to the launcher."""

    name: str
    signals: tuple[signal.Signals, ...]
    rank: int | None = None
    watched_s: float = 0.8  # after the event


@dataclass(frozen=True)
class Tried:
    """What one launch did, by rank, in milliseconds after the event; without the ranks that the event hit."""

    notes: Mapping[int, Mapping[str, float]]  # signals, and errors of MPI
    ended: Mapping[int, float]
    code: int


def page(found: Mapping[tuple[str, str], Sequence[Tried]], tries: int, machine: str) -> str:
    """One row per launcher and case."""
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
    count = sum(bool(one) for one in times_ms)
    tries = len(times_ms)
    among = f", in {count} of {tries}" if count < tries else ""
    return f"{_ms(statistics.median(all_ms))} ({_ms(min(all_ms))}–{_ms(max(all_ms))}{among})"


def _of(notes: Mapping[int, Mapping[str, float]], name: str) -> list[float]:
    return [each[name] for each in notes.values() if name in each]


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _codes(codes: Counter[int]) -> str:
    return ", ".join(str(code) if len(codes) == 1 else f"{code} ({count})" for code, count in sorted(codes.items()))


RANKS = 4
VICTIM = 2
_START_LIMIT_S = 60.0
_END_LIMIT_S = 5.0
_BETWEEN_S = 0.3  # from one Ctrl-C to the next
_PROGRAM = Path(__file__).with_name("launcher_rank.py")
_ALONE = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_ENVIRONMENT = MPI_DEFAULTS | ONE_MACHINE | dict(os.environ) | _ALONE  # as `areabench launch` has it

CASES = (
    Case("a client's rank is killed", (signal.SIGKILL,), VICTIM),
    Case("the server's rank is killed", (signal.SIGKILL,), 0),
    Case("SIGUSR1 to the launcher", (signal.SIGUSR1,)),
    Case("SIGTERM to the launcher", (signal.SIGTERM,)),
    Case("Ctrl-C twice to the launcher", (signal.SIGINT, signal.SIGINT)),
    Case("the launcher is killed", (signal.SIGKILL,), watched_s=1.5),
)


def ways_of(python: Path) -> list[Way]:
    """How ranks are started with the MPI of a Python: plainly, and as `areabench launch` does it."""
    mpirun = mpirun_of(python)
    plain = [mpirun.path, *launcher_flags(mpirun)]
    tolerant = tolerance_flags(mpirun, FaultTolerance.AUTO)
    name = str(mpirun).partition("(")[2].rstrip(")")
    return [Way(name, python, plain), Way(f"{name}, `{' '.join(tolerant)}`", python, [*plain, *tolerant])]


@dataclass
class Launch:
    """A running launch; it ends only processes that it has started."""

    folder: Path
    mpirun: subprocess.Popen[bytes]
    ranks: list[int] = field(default_factory=list)  # handles of their processes, which outlive them

    @classmethod
    def begin(cls, way: Way, folder: Path) -> Launch:
        """Start the ranks, and wait until all have reported."""
        command = [*way.command, "-n", str(RANKS), str(way.python), str(_PROGRAM), str(folder)]
        with (folder / "output").open("wb") as output:
            mpirun = subprocess.Popen(
                command, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        launch = cls(folder, mpirun)
        limit_s = time.monotonic() + _START_LIMIT_S
        while not all(launch.notes(rank) for rank in range(RANKS)):
            if time.monotonic() > limit_s or mpirun.poll() is not None:
                launch.end()
                said = (folder / "output").read_text(errors="replace").strip()
                raise UserError(f"{way.name}: the ranks did not start within {_START_LIMIT_S:g} s: {said}")
            time.sleep(0.01)
        launch.ranks = [os.pidfd_open(int(launch.notes(rank)[0][1])) for rank in range(RANKS)]
        return launch

    def notes(self, rank: int) -> list[tuple[float, str]]:
        """What a rank has noted so far, with times."""
        path = self.folder / str(rank)
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(time_s), what) for time_s, what in (line.split() for line in lines)]

    def strike(self, case: Case) -> float:
        """Cause the case's event; returns its time."""
        begun_s = time.monotonic()
        for number, each in enumerate(case.signals):
            if number:
                time.sleep(_BETWEEN_S)
            if case.rank is not None:
                signal.pidfd_send_signal(self.ranks[case.rank], each)
            else:
                self.mpirun.send_signal(each)
        return begun_s

    def watch(self, until_s: float) -> dict[int, float]:
        """The times at which ranks ended."""
        ended: dict[int, float] = {}
        watched = {handle: rank for rank, handle in enumerate(self.ranks)}
        poll = select.poll()
        for handle in self.ranks:
            poll.register(handle, select.POLLIN)
        while watched and (left_s := until_s - time.monotonic()) > 0:
            for handle, _ in poll.poll(1000 * left_s):
                ended[watched.pop(handle)] = time.monotonic()
                poll.unregister(handle)
        return ended

    def end(self, *, in_order: bool = True) -> int:
        """Let the ranks end, without MPI_Finalize where it would wait for dead ranks; the launcher's exit code."""
        (self.folder / ("end" if in_order else "leave")).touch()
        for insistence in (None, signal.SIGTERM, signal.SIGKILL):
            if insistence is not None:
                self.mpirun.send_signal(insistence)
            with suppress(subprocess.TimeoutExpired):
                self.mpirun.wait(_END_LIMIT_S)
                break
        for handle in self.ranks:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        return self.mpirun.wait()


def try_once(way: Way, case: Case, folder: Path) -> Tried:
    """One launch, one event, and its effects."""
    launch = Launch.begin(way, folder)
    try:
        begun_s = launch.strike(case)
        ended = launch.watch(begun_s + case.watched_s + _BETWEEN_S * (len(case.signals) - 1))
    finally:
        code = launch.end(in_order=case.rank is None)
    others = [rank for rank in range(RANKS) if rank != case.rank]
    notes = {rank: _firsts(launch.notes(rank), begun_s) for rank in others}
    return Tried(notes, {rank: 1000 * (ended[rank] - begun_s) for rank in others if rank in ended}, code)


def _firsts(notes: Sequence[tuple[float, str]], begun_s: float) -> dict[str, float]:
    """Milliseconds from the event to the first note of each kind."""
    firsts: dict[str, float] = {}
    for time_s, what in notes:
        if not what.isdecimal() and time_s >= begun_s:
            firsts.setdefault(what, 1000 * (time_s - begun_s))
    return firsts


def measure(way: Way, case: Case, tries: int) -> list[Tried]:
    """Several launches of the same case."""
    print(f"{way.name}: {case.name}", file=sys.stderr)
    found = []
    for _ in range(tries):
        with tempfile.TemporaryDirectory(prefix="launchers-") as folder:
            found.append(try_once(way, case, Path(folder)))
    return found


def main() -> int:
    """Try all cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", type=Path, metavar="PYTHON")
    parser.add_argument("--tries", type=int, default=3, metavar="N", help="launches of each case (default: 3)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there instead of printing it")
    arguments = parser.parse_args()
    try:
        ways = [way for python in arguments.pythons for way in ways_of(python.absolute())]
        found = {(way.name, case.name): measure(way, case, arguments.tries) for way in ways for case in CASES}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = page(found, arguments.tries, describe_machine())
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
