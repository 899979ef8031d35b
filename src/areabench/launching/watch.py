"""What the launching process knows of its ranks: which processes they are, how far they are, and which have died.

MPI waits for ever for a rank that dies while it starts, and a fault-tolerant mpirun says nothing. So the launching
process looks itself, until the run has begun; from then on the ranks look after each other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from areabench.errors import OutputFailure
from areabench.host import Process, is_alive, start_ticks, this_machine
from areabench.launching.start import FOLDER, LIMIT, SPOKEN, rank_step
from areabench.transports.signals import BEGUN, LISTENING

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # of Open MPI, of any PMIx, of MPICH
_WORDS_EVERY_S = 10.0
_OWN_END_S = 3.0  # for mpirun and the ranks to end by themselves after a death, with what they have to say
_APPEAR_S = 5.0  # after the last new rank: a launcher starts all ranks of a machine at once
_KILL_S = 5.0  # for killed processes to end


class StartWatch:
    """Follows the ranks of one launch until their run has begun."""

    def __init__(
        self, mpirun: int, ranks: int, folder: Path, limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mpirun, self._ranks, self._folder, self._limit_s, self._clock = mpirun, ranks, folder, limit_s, clock
        self._began_s = self._new_s = clock()
        self._words_s = self._began_s + _WORDS_EVERY_S
        self._found: dict[int, Process] = {}
        self._dead: dict[int, Process] = {}  # the first ranks that died
        self._death_s = 0.0
        self._over = False

    def look(self) -> str:
        """Why the launch is to be ended now; empty if it is not. Says every ten seconds what it waits for."""
        if self._over:
            return ""
        now_s = self._clock()
        if self._made(BEGUN):
            self._over = True
            self._find_ranks(now_s)
            return ""
        self._find_ranks(now_s)
        self._find_dead(now_s)
        if self._dead and now_s > self._death_s + _OWN_END_S:
            return self.deaths()
        if self._found and len(self._found) < self._ranks and now_s > self._new_s + _APPEAR_S:
            return _ended({rank: None for rank in range(self._ranks) if rank not in self._found})
        if now_s > self._began_s + self._limit_s and not self._made(LISTENING):
            return f"{self._waits_for(now_s)}: that is the limit, and all ranks were ended; {LIMIT} sets another"
        if now_s >= self._words_s:
            self._words_s += _WORDS_EVERY_S
            say(self._waits_for(now_s))
        return ""

    def server_gone(self) -> bool:
        """Whether the server's rank has ended."""
        server = self._found.get(0)
        return server is not None and not is_alive(server)

    def deaths(self) -> str:
        """Which ranks died first, before the run began; empty if none did, or if the ranks have said why they end."""
        unknown = len(self._dead) in (0, self._ranks)  # which of them was the first
        return "" if unknown or self._over or self._made(BEGUN) or self._made(SPOKEN) else _ended(self._dead)

    def _made(self, step: str) -> bool:
        """Whether the ranks have made a step."""
        return (self._folder / step).exists()

    def _find_ranks(self, now_s: float) -> None:
        """Look for new ranks among the processes below mpirun; one that has just been forked is none yet."""
        if len(self._found) == self._ranks:
            return
        for pid, environment in _below(self._mpirun):
            rank = rank_of(environment)
            if rank is not None and rank not in self._found:  # parents come first: a rank before its children
                self._found[rank] = Process(this_machine(), pid, start_ticks(pid) or 0)
                self._new_s = now_s

    def _find_dead(self, now_s: float) -> None:
        """Note the ranks that died first."""
        if not self._dead:
            self._dead = {rank: each for rank, each in sorted(self._found.items()) if not is_alive(each)}
            self._death_s = now_s

    def _waits_for(self, now_s: float) -> str:
        late = [rank for rank in range(self._ranks) if not self._made(rank_step(rank))]
        so_far = f"({now_s - self._began_s:.0f} s)"
        if late:
            return f"waiting for {len(late)} of {self._ranks} ranks to start {so_far}: {_ranks(late)}"
        if not self._made(LISTENING):
            return f"waiting for MPI to start on {self._ranks} ranks {so_far}"
        return f"waiting for {self._ranks} ranks to prepare the run {so_far}"


def _ended(ranks: Mapping[int, Process | None]) -> str:
    """The line about ranks that died before a run began, with their processes where known."""
    words = []
    for rank, process in ranks.items():
        about = ["the server"] * (rank == 0) + ([f"PID {process.pid}"] if process is not None else [])
        words.append(f"{rank} ({', '.join(about)})" if about else str(rank))
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(words)} died before the run began; all ranks were ended"


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def say(text: str) -> None:
    """Print a line of the launching process."""
    with suppress(OSError, OutputFailure):
        print(f"areabench: {text}", file=sys.stderr, flush=True)


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Which rank a process is, from its environment; None if it is none."""
    numbers = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _below(pid: int) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The processes below a process, each with its environment; parents before their children."""
    import psutil  # only a launch needs it

    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error, OSError):  # it may have ended
                yield process.pid, process.environ()


def end_ranks(folder: str) -> None:
    """Kill the processes that a killed mpirun has left, and wait for their end; they know this folder of the launch."""
    import psutil

    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # other users' processes, and those that end
            if process.environ().get(FOLDER) == folder:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, _KILL_S)
