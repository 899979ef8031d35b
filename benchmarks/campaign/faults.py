"""Faults that are caused from outside the affected processes: signals, and a full disc."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from benchmarks.campaign.cases import Case
from benchmarks.campaign.commands import Room
from benchmarks.campaign.defects import MARK
from benchmarks.campaign.kinds import MPI, Act, Kind
from benchmarks.campaign.processes import Started, rank_process, send_signal

TMPFS_BYTES = 24 * 2**20
_BALLAST = "ballast"


@dataclass(frozen=True)
class Disc:
    """Where the run file goes; `mounted` where it is a tmpfs of its own."""

    folder: Path
    mounted: bool

    def fill(self, process: int | None, run_file: Path) -> bool:
        """Fill the disc; returns whether there was a process to affect."""
        if self.mounted:
            return self._write_ballast()
        if process is None:
            return False
        size = run_file.stat().st_size
        with suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, size))
            return True
        return False

    def _write_ballast(self) -> bool:
        block = bytes(4096)
        with (self.folder / _BALLAST).open("wb", buffering=0) as file, suppress(OSError):
            while file.write(block):
                pass
        return True

    def make_room(self) -> None:
        """Free the space again."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; its files are kept in its place."""
        self.make_room()
        if self.mounted:
            kept = self.folder.with_name("kept")
            shutil.copytree(self.folder, kept)
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
            self.folder.rmdir()
            kept.rename(self.folder)


def open_disc(folder: Path, *, small: bool) -> Disc:
    """A folder, on a small disc where that is asked for, root may mount one and tests may change the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    allowed = os.environ.get("AREABENCH_SYSTEM_TESTS") == "1" and os.geteuid() == 0
    if not (small and allowed and shutil.which("mount")):
        return Disc(folder, mounted=False)
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    return Disc(folder, mounted=subprocess.run(command, capture_output=True, check=False).returncode == 0)


APPEARS_S = 60.0  # how long a run may take until its file is there
SECOND_SIGNAL_S = 1.0
_FROM_INSIDE = (Act.NOTHING, Act.DAMAGE, Act.DAMAGE_CACHE, Act.DEFECT, Act.DIE_AT_START)


@dataclass(frozen=True)
class Strike:
    """Whether a fault came about, when (Unix time), when the run file had appeared, and which faults those were."""

    delivered: bool
    at: float
    begun_at: float
    faults: tuple[Kind, ...] = ()


def strike(case: Case, room: Room, started: Started, disc: Disc, duration_s: float) -> Strike:
    """Wait for the run file and for the fault's moment, then cause the fault."""
    there = started.wait_until(room.run_file.exists, APPEARS_S)
    begun_at = time.time()
    if not there or case.kind.act in _FROM_INSIDE:  # nothing is done from outside
        return Strike(there, begun_at, begun_at)
    started.wait_until(lambda: time.time() >= begun_at + case.share * duration_s, duration_s)
    came, at = [], time.time()
    for turn, fault in enumerate(case.pair or [case.kind]):
        time.sleep(turn * case.gap_s)
        if started.alive and _Act(case, room, started, disc, turn).act(fault):
            came.append(fault)
            at = time.time() if len(came) == 1 else at
    return Strike(bool(came), at, begun_at, tuple(came))


@dataclass(frozen=True)
class _Act:
    """One fault that is about to be caused."""

    case: Case
    room: Room
    started: Started
    disc: Disc
    turn: int  # 1: it is the second fault

    def act(self, fault: Kind) -> bool:
        """Cause the fault; returns whether there was a process to affect."""
        match fault.act:
            case Act.SIGNAL_LAUNCH:
                return send_signal(self.started.process.pid, signal.Signals[fault.detail])
            case Act.SIGNAL_RANK_0 | Act.DAMAGE_CHECKPOINT:
                return send_signal(self._process("server"), signal.Signals[fault.detail])
            case Act.KILL_CLIENT:
                return send_signal(self._process("client"), signal.SIGKILL)
            case Act.KILL_MPIRUN:
                return send_signal(self._process("mpirun"), signal.SIGKILL)
            case Act.STOP:
                return self._stop(self._process(fault.detail))
            case Act.STOP_FOR_GOOD:
                return self._stop_for_good(fault.detail)
            case Act.FILL_DISC:
                return self.disc.fill(self._process("server"), self.room.run_file)
        return True

    def _process(self, who: str) -> int | None:
        """The process of a client's rank, of the server's rank or of mpirun."""
        if who == "mpirun":
            return _child(self.started.process.pid)
        if self.case.kind.transport != MPI:
            return self.started.process.pid
        return rank_process(self.started.token, 0 if who == "server" else self.case.victim_of(self.turn) + 1)

    def _stop(self, process: int | None) -> bool:
        """Stop a process for a while; it continues afterwards, whatever happens to the others."""
        again = threading.Timer(self.case.pause_s, send_signal, (process, signal.SIGCONT))
        again.daemon = True
        again.start()
        return send_signal(process, signal.SIGSTOP)

    def _stop_for_good(self, who: str) -> bool:
        """Stop a rank; a signal ends the run, and a second one if it is the server that is stopped."""
        stopped = send_signal(self._process(who), signal.SIGSTOP)
        if self.case.waits_for_limit:
            return stopped
        time.sleep(self.case.gap_s)
        send_signal(self.started.process.pid, signal.SIGTERM)
        if who == "server":
            time.sleep(SECOND_SIGNAL_S)
            send_signal(self.started.process.pid, signal.SIGTERM)
        return stopped


def _child(process: int) -> int | None:
    """The only child of `areabench launch` while a run is under way."""
    with suppress(psutil.Error):
        return next((child.pid for child in psutil.Process(process).children()), None)
    return None


def defect_shown(room: Room) -> tuple[int, float]:
    """How often a defect has shown, and when first (Unix time)."""
    mark = room.folder / MARK
    if not mark.exists():
        return 0, 0.0
    lines = mark.read_text().splitlines()
    return len(lines), float(lines[0].split()[1])
