"""Processes with a token in their environment: starting, finding, signalling and ending them, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TOKEN = "AREABENCH_CAMPAIGN"
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
POLL_S = 0.005
LEAVING_S = 15.0  # seconds that ranks may take to end after the command


def new_token(name: str) -> str:
    """A token that no other campaign on this machine uses."""
    return f"{name}-{os.getpid()}"


def processes_of(token: str) -> dict[int, dict[str, str]]:
    """The environment of every process that carries the token, by process id; those that are dead have none."""
    return {process: environment for process, environment in _marked().items() if environment[TOKEN] == token}


def _marked() -> dict[int, dict[str, str]]:
    """The environment of every process that carries a token."""
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    environments = {int(folder.name): _environment(folder) for folder in folders}
    return {process: environment for process, environment in environments.items() if TOKEN in environment}


def _environment(folder: Path) -> dict[str, str]:
    try:
        words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended, or is another user's
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def rank_process(token: str, rank: int) -> int | None:
    """The process of an MPI rank of this token's launch."""
    for process, environment in processes_of(token).items():
        number = next((environment[name] for name in RANK_VARIABLES if name in environment), None)
        if number == str(rank) and _is_python(process):
            return process
    return None


def _is_python(process: int) -> bool:
    """A rank inherits nothing of mpirun but its environment: mpirun's helpers are recognised by their program."""
    try:
        return b"python" in Path(f"/proc/{process}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return False


def send_signal(process: int | None, number: signal.Signals) -> bool:
    """Send a signal; returns whether there was a process to take it."""
    if process is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(process, number)
        return True
    return False


def end_all(token: str) -> int:
    """Kill everything that carries the token; returns how many there were."""
    killed: set[int] = set()
    while remaining := processes_of(token):
        for process in remaining:
            send_signal(process, signal.SIGKILL)
        killed.update(remaining)
        time.sleep(0.05)
    return len(killed)


def end_own() -> None:
    """Kill everything that this campaign has started."""
    for process, environment in _marked().items():
        if environment[TOKEN].endswith(new_token("")):
            send_signal(process, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str
    hung: bool
    left: int  # processes that were still there, and had to be killed
    ended_at: float  # when nothing of it was left, Unix time


@dataclass
class Started:
    """A running command, with its output in files of its folder."""

    process: subprocess.Popen[bytes]
    token: str
    folder: Path
    name: str

    @property
    def alive(self) -> bool:
        """Whether the command has not ended."""
        return self.process.poll() is None

    def wait_until(self, there: Callable[[], bool], limit_s: float) -> bool:
        """Wait for something to happen while the command is alive; returns whether it has."""
        until_s = time.monotonic() + limit_s
        while not there():
            if not self.alive or time.monotonic() > until_s:
                return there()
            time.sleep(POLL_S)
        return True

    def end(self, limit_s: float) -> Ended:
        """Wait for the end of the command and of all that it started; what is left is killed."""
        hung = False
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            hung, code = True, -signal.SIGKILL
        left = self._wait_for_the_rest(0.0 if hung else LEAVING_S)
        ended_at = time.time()
        killed = end_all(self.token) if left else 0
        self.process.wait()
        return Ended(code, self.text("stdout"), self.text("stderr"), hung, killed, ended_at)

    def _wait_for_the_rest(self, limit_s: float) -> bool:
        """Whether a process is left after this many seconds."""
        until_s = time.monotonic() + limit_s
        while processes_of(self.token):
            if time.monotonic() >= until_s:
                return True
            time.sleep(0.02)
        return False

    def text(self, stream: str) -> str:
        """What it wrote to this stream."""
        return (self.folder / f"{self.name}.{stream}").read_text(errors="replace")


def start(
    command: Sequence[str],
    folder: Path,
    name: str,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
) -> Started:
    """Start a command in a session of its own; `environment` holds the token."""
    with (folder / f"{name}.stdout").open("wb") as output, (folder / f"{name}.stderr").open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, stdin=stdin, env=dict(environment), cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    return Started(process, environment[TOKEN], folder, name)
