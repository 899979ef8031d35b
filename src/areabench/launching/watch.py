"""The launching process: it starts mpirun, watches its ranks from start to end, and passes its signals on to them.

MPI waits for ever for a rank that dies while it starts, and a fault-tolerant mpirun says nothing. So the launching
process looks itself until the run has begun; from then on the ranks look after each other. mpirun never outlives it.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from areabench.errors import OutputFailure
from areabench.host import Process, is_alive, restore_handlers, set_handlers, start_ticks, this_machine
from areabench.launching.steps import FOLDER, REPORTED, START_LIMIT_S, rank_step
from areabench.progress import Show, relay
from areabench.transports.signals import BEGUN, LISTENING, STOP_SIGNALS

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # of Open MPI, of any PMIx, of MPICH
PATIENCE_S = 30.0  # how long a run may take to stop: it writes a checkpoint and waits for its clients
_FORWARDED_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)  # SIGHUP: the terminal is closed
_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_S = 0.2
_SHARE = 9.0  # pauses are at least so many times as long as the looks, which take 0.1 s for 1,000 ranks
_REPORT_EVERY_S = 10.0
_OWN_END_S = 3.0  # for mpirun and the ranks to end by themselves after a death, with what they have to say
_APPEAR_S = 5.0  # after the last new rank: a launcher starts all ranks of a machine at once
_LAUNCHER_END_S = 3.0  # that mpirun may take to end after its ranks
_LEFT_BEHIND_S = 20.0  # that ranks and mpirun may take to end after the server
_KILL_DELAY_S = 5.0  # between asking mpirun to end its ranks, which takes Open MPI half a second, and killing it


class LauncherExit(NamedTuple):
    """How mpirun ended: its exit code, the signal that had come to us before (0: none), and why we ended it."""

    code: int
    signal: int = 0
    reason: str = ""  # also which ranks died before the run began

    @property
    def shell_code(self) -> int:
        """The code as a shell reports it: 128 and more for an end by a signal."""
        return self.code if self.code >= 0 else 128 - self.code


def supervise(command: Sequence[str], *, show: Show | None = None, ranks: int = 0, quiet: bool = False) -> LauncherExit:
    """Start mpirun and wait for its end; `show`, if given, shows its progress.

    It has its own session, because an interrupt from the keyboard would reach it too and end its ranks at once. Its
    `ranks` are watched until the run has begun, if they are all on this machine (0: they are not).
    """
    with private_tmpdir() as environment, _SignalForwarder() as forwarder:
        folder = Path(environment["TMPDIR"])
        environment[FOLDER] = str(folder)
        mpirun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.PIPE if show else None,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with_parent(),
            env=environment,
        )
        with mpirun:
            forwarder.attach(mpirun, (folder / LISTENING).exists if ranks else lambda: True)
            watch = LaunchWatch(mpirun.pid, ranks, folder)
            thread = threading.Thread(target=watch.follow, args=(mpirun,), daemon=True)
            thread.start()
            if mpirun.stderr is not None and show is not None:
                relay(mpirun.stderr, show)
            code = mpirun.wait()
            thread.join()
        # An mpirun that was killed has left its ranks, which may still run, and write to the file.
        if code < 0:
            end_ranks(str(folder))
        return LauncherExit(0 if watch.left_behind else code, forwarder.first, watch.reason)


@contextmanager
def private_tmpdir() -> Iterator[dict[str, str]]:
    """An environment in which mpirun has its own temporary folder, which only this user can read.

    Otherwise all mpiruns of a user share a folder: one that ends sometimes removes what another has just made, and
    one that is killed leaves everything there.
    """
    with tempfile.TemporaryDirectory(prefix="areabench-", ignore_cleanup_errors=True) as folder:
        yield {**os.environ, "TMPDIR": folder}


def end_with_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes mpirun, so that it gets SIGTERM when we end, even by SIGKILL. Linux only.

    The parent is the thread that starts the child, so that must be the main one.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # we have ended already
            os._exit(1)

    return tie


def say(text: str) -> None:
    """Print a line of the launching process."""
    with suppress(OSError, OutputFailure):
        print(f"areabench: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------- the watch


class LaunchWatch:
    """Follows the ranks of one mpirun to their end; without `ranks` (0), which are elsewhere, only mpirun itself."""

    def __init__(self, mpirun: int, ranks: int, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""  # why the launch was ended, or which ranks have died before the run began
        self.left_behind = False  # mpirun was killed because it stayed after its ranks
        self._mpirun = mpirun
        self._ranks = ranks
        self._folder = folder
        self._clock = clock
        self._began_s = clock()
        self._report_s = self._began_s + _REPORT_EVERY_S  # when to say what it waits for
        self._found: dict[int, Process] = {}
        self._found_s = self._began_s  # when a rank was found last
        self._dead: dict[int, Process] = {}  # the first ranks that died
        self._death_s = 0.0
        self._ranks_seen_s = math.inf
        self._server_seen_s = math.inf
        self._begun = False

    def follow(self, mpirun: subprocess.Popen[str]) -> None:
        """Look several times a second until mpirun has ended, and end it where it would wait for ever."""
        while mpirun.poll() is None:
            began_s = time.monotonic()
            if self.stays():
                self.left_behind = True
                mpirun.kill()
                break
            if reason := self.look():
                self.reason = reason
                mpirun.terminate()  # which ends its ranks
                try:
                    mpirun.wait(_KILL_DELAY_S)
                except subprocess.TimeoutExpired:
                    mpirun.kill()
                return
            time.sleep(max(_LOOK_EVERY_S, _SHARE * (time.monotonic() - began_s)))
        self.reason = self.deaths()

    def stays(self) -> bool:
        """Whether mpirun waits for nothing: for ranks that have all ended, or for those that the server has left.

        In fault-tolerant mode Open MPI's sometimes never ends where ranks have returned something other than 0. Neither
        does it always kill a rank that is stopped (SIGSTOP) when the server ends all. The run file says how it ended.
        """
        now_s = self._clock()
        if has_children(self._mpirun):
            self._ranks_seen_s = now_s
        if 0 not in self._found or is_alive(self._found[0]):
            self._server_seen_s = now_s
        return now_s > self._ranks_seen_s + _LAUNCHER_END_S or now_s > self._server_seen_s + _LEFT_BEHIND_S

    def look(self) -> str:
        """Why the launch is to be ended before its run begins; empty if it is not. Says at times what it waits for."""
        if self._begun or not self._ranks:
            return ""
        now_s = self._clock()
        self._begun = self._made(BEGUN)
        if len(self._found) < self._ranks:
            for rank, process in _ranks_below(self._mpirun):
                if rank not in self._found:  # parents come first: a rank before its children
                    self._found[rank] = process
                    self._found_s = now_s
        if self._begun:
            return ""
        if not self._dead:
            self._dead = {rank: each for rank, each in sorted(self._found.items()) if not is_alive(each)}
            self._death_s = now_s
        if self._dead and now_s > self._death_s + _OWN_END_S:
            return self.deaths()
        # A launcher starts all ranks of a machine at once: one that is not there by now was there, and is dead.
        missing = [str(rank) for rank in range(self._ranks) if rank not in self._found]
        if self._found and missing and now_s > self._found_s + _APPEAR_S:
            return _died(missing)
        if now_s > self._began_s + START_LIMIT_S and not self._made(LISTENING):
            return f"{self._waits_for(now_s)}: that is the limit, and all ranks were ended"
        if now_s >= self._report_s:
            self._report_s += _REPORT_EVERY_S
            say(self._waits_for(now_s))
        return ""

    def deaths(self) -> str:
        """Which ranks died first, before the run began; empty if none did, or if the ranks have said why they end."""
        if self._begun or self._made(BEGUN) or self._made(REPORTED):
            return ""
        if len(self._dead) in (0, self._ranks):  # nobody knows which of them was the first
            return ""
        about = {rank: "the server, " if rank == 0 else "" for rank in self._dead}
        return _died([f"{rank} ({about[rank]}PID {process.pid})" for rank, process in self._dead.items()])

    def _made(self, step: str) -> bool:
        """Whether the ranks have made a step."""
        return (self._folder / step).exists()

    def _waits_for(self, now_s: float) -> str:
        so_far = f"({now_s - self._began_s:.0f} s)"
        late = [str(rank) for rank in range(self._ranks) if not self._made(rank_step(rank))]
        if late:
            return f"waiting for {len(late)} of {self._ranks} ranks to start {so_far}: {_named(late)}"
        if not self._made(LISTENING):
            return f"waiting for MPI to start on {self._ranks} ranks {so_far}"
        return f"waiting for {self._ranks} ranks to prepare the run {so_far}"


def _died(ranks: Sequence[str]) -> str:
    return f"{_named(ranks)} died before the run began; all ranks were ended"


def _named(ranks: Sequence[str]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}"


def _ranks_below(mpirun: int) -> Iterator[tuple[int, Process]]:
    """The ranks among the processes below mpirun, parents before their children; one just forked is none yet."""
    import psutil  # only a launch needs it

    with suppress(psutil.Error):
        for child in psutil.Process(mpirun).children(recursive=True):
            with suppress(psutil.Error, OSError):  # it may have ended
                rank = rank_of(child.environ())
                if rank is not None:
                    yield rank, Process(this_machine(), child.pid, start_ticks(child.pid) or 0)


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Which rank a process is, from its environment; None if it is none."""
    numbers = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def has_children(pid: int) -> bool:
    """Whether a process has children that run, not only dead ones; also true where the system does not say."""
    import psutil

    try:
        return any(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process(pid).children())
    except psutil.Error:
        return True


def end_ranks(folder: str) -> None:
    """Kill the processes that a killed mpirun has left, and wait for their end; they know this folder of the launch."""
    import psutil

    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # other users' processes, and those that end
            if process.environ().get(FOLDER) == folder:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, _KILL_DELAY_S)


# ---------------------------------------------------------------------------------------------------- signals


@contextmanager
def without_signals() -> Iterator[None]:
    """A context in which the signals that are forwarded have no effect where nothing forwards them."""
    before = set_handlers(_heard(), lambda number, frame: None)
    try:
        yield
    finally:
        restore_handlers(before)


def _heard() -> list[signal.Signals]:
    """The signals that are forwarded, except those that are ignored: nohup ignores SIGHUP."""
    return [each for each in _FORWARDED_SIGNALS if signal.getsignal(each) != signal.SIG_IGN]


class _SignalForwarder:
    """A context that forwards our signals to mpirun.

    The first becomes SIGUSR1, which mpirun passes to all ranks: the server writes a checkpoint and ends the run. If
    that takes longer than PATIENCE_S, or another signal comes, or the ranks do not listen yet, mpirun is told to end
    its ranks, and at last killed.
    """

    def __init__(self) -> None:
        self.first = 0
        self._mpirun: subprocess.Popen[str] | None = None
        self._listens: Callable[[], bool] = lambda: True
        self._timer: threading.Timer | None = None

    def __enter__(self) -> _SignalForwarder:
        self._before = set_handlers(_heard(), self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        restore_handlers(self._before)
        if self._timer is not None:
            self._timer.cancel()

    def attach(self, mpirun: subprocess.Popen[str], listens: Callable[[], bool]) -> None:
        """Forward to this mpirun; a signal may have come already. `listens` says whether its ranks act on signals."""
        self._mpirun = mpirun
        self._listens = listens
        if self.first:
            self._forward(mpirun, again=False)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.first > 0
        self.first = self.first or number
        if self._mpirun is not None:
            self._forward(self._mpirun, again=again)

    def _forward(self, mpirun: subprocess.Popen[str], *, again: bool) -> None:
        if again or not self._listens():
            self._end(mpirun)
            return
        mpirun.send_signal(signal.SIGUSR1)
        self._later(PATIENCE_S, lambda: self._end(mpirun))

    def _end(self, mpirun: subprocess.Popen[str]) -> None:
        mpirun.terminate()
        self._later(_KILL_DELAY_S, mpirun.kill)

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(delay_s, act)
        self._timer.daemon = True
        self._timer.start()
