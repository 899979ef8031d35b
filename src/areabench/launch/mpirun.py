"""mpirun as our child: it hears of our signals in a form that lets a run end well, and it never outlives us."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

from areabench.hearing import Handlers, give_back, take_over
from areabench.launch import PATIENCE_S
from areabench.progress import relay, write_coloured, write_live

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_LOOKS_WITHOUT_RANKS = 6  # half seconds that mpirun may take to end after its ranks
_LAST_GRACE_S = 5.0  # between asking mpirun to end its ranks, which takes Open MPI half a second, and killing it


class Ending(NamedTuple):
    """How mpirun ended: what it returned, and which signal had come to us before (0: none)."""

    code: int
    signal: int = 0

    @property
    def shell_code(self) -> int:
        """The code as a shell tells it: 128 and more for an end by a signal."""
        return self.code if self.code >= 0 else 128 - self.code


def supervise(command: Sequence[str], *, live: bool, coloured: bool = False) -> Ending:
    """Start mpirun and wait for its end; its progress lines are shown where `live`, in colour where asked for.

    It has a session of its own: an interrupt from the keyboard would reach it beside us, and end its ranks at once.
    """
    with own_folder() as surroundings, _PassedOn() as passed_on:
        mpirun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE if live else None,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=tether(),
            env=surroundings,
        )
        with mpirun:
            passed_on.to(mpirun)
            watch = _Watch(mpirun)
            watch.start()
            if mpirun.stderr is not None:
                relay(mpirun.stderr, write_coloured if coloured else write_live)
            code = mpirun.wait()
            return Ending(0 if watch.has_ended_it else code, passed_on.first)


@contextmanager
def own_folder() -> Iterator[dict[str, str]]:
    """An environment in which mpirun has a temporary folder of its own, which only we can read.

    Those of one user share a folder otherwise: one that ends now and then removes what another has just made, and one
    that is killed leaves everything there.
    """
    with tempfile.TemporaryDirectory(prefix="areabench-", ignore_cleanup_errors=True) as folder:
        yield {**os.environ, "TMPDIR": folder}


class _Watch(threading.Thread):
    """Ends an mpirun that has no ranks any more: in fault-tolerant mode Open MPI's now and then stays for ever.

    That happens where ranks have returned something other than 0; the run file tells what became of the run.
    """

    def __init__(self, mpirun: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._mpirun, self.has_ended_it = mpirun, False

    def run(self) -> None:
        """Look twice a second until mpirun has ended."""
        looks = -1  # without any rank, since there were some
        while self._mpirun.poll() is None:
            if has_children(self._mpirun.pid):
                looks = 0
            elif looks >= 0:
                looks += 1
            if looks > _LOOKS_WITHOUT_RANKS:
                self.has_ended_it = True
                self._mpirun.kill()
                return
            time.sleep(0.5)


def has_children(pid: int) -> bool:
    """Whether a process has any; also where the system does not tell."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return any((task / "children").read_text().strip() for task in tasks)
    except OSError:
        return True


def tether() -> Callable[[], None] | None:
    """What a child does before it becomes mpirun: have it told to end when we end, even by SIGKILL. Linux only.

    The thread that starts the child counts as us, so that must be the main one.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # we have ended already
            os._exit(1)

    return tie


class _PassedOn:
    """Passes our signals on to mpirun while it is used as a context.

    The first becomes SIGUSR1, which mpirun gives to all ranks: the server writes a checkpoint, and ends the run. If
    that takes longer than PATIENCE_S, or another signal comes, mpirun is told to end its ranks, and at last killed.
    """

    def __init__(self) -> None:
        self._mpirun: subprocess.Popen[str] | None = None
        self.first = 0
        self._timer: threading.Timer | None = None
        self._before: Handlers = {}

    def __enter__(self) -> _PassedOn:
        ours = [each for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN]  # nohup ignores SIGHUP
        self._before = take_over(ours, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        give_back(self._before)
        if self._timer is not None:
            self._timer.cancel()

    def to(self, mpirun: subprocess.Popen[str]) -> None:
        """This is mpirun; a signal may have come already."""
        self._mpirun = mpirun
        if self.first:
            self._pass_on(mpirun)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        mpirun, again = self._mpirun, bool(self.first)
        self.first = self.first or number
        if mpirun is not None:
            (self._end if again else self._pass_on)(mpirun)

    def _pass_on(self, mpirun: subprocess.Popen[str]) -> None:
        mpirun.send_signal(signal.SIGUSR1)
        self._later(PATIENCE_S, lambda: self._end(mpirun))

    def _end(self, mpirun: subprocess.Popen[str]) -> None:
        mpirun.terminate()
        self._later(_LAST_GRACE_S, mpirun.kill)

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(delay_s, act)
        self._timer.daemon = True
        self._timer.start()
