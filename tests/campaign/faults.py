"""Faults that are caused from outside the affected processes: signals, and a full disc."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.cases import Case
from tests.campaign.commands import Room
from tests.campaign.defects import MARK
from tests.campaign.kinds import MPI, Act
from tests.campaign.processes import Started, rank_process, send_signal

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


@dataclass(frozen=True)
class Strike:
    """Whether a fault came about, when (Unix time), and when the run file had appeared."""

    delivered: bool
    at: float
    begun_at: float


def strike(case: Case, room: Room, started: Started, disc: Disc, duration_s: float) -> Strike:
    """Wait for the run file and for the fault's moment, then cause the fault."""
    there = started.wait_until(room.run_file.exists, APPEARS_S)
    begun_at = time.time()
    if case.kind.act in (Act.NOTHING, Act.DAMAGE, Act.DEFECT):  # nothing is done from outside
        return Strike(there, begun_at, begun_at)
    if not there:
        return Strike(False, begun_at, begun_at)
    started.wait_until(lambda: time.time() >= begun_at + case.share * duration_s, duration_s)
    delivered = started.alive and _act(case, room, started, disc)
    return Strike(delivered, time.time(), begun_at)


def _act(case: Case, room: Room, started: Started, disc: Disc) -> bool:
    """Cause the fault; returns whether there was a process to affect."""
    match case.kind.act:
        case Act.SIGNAL_LAUNCH:
            return send_signal(started.process.pid, signal.Signals[case.kind.detail])
        case Act.SIGNAL_RANK_0:
            return send_signal(_server(case, started), signal.Signals[case.kind.detail])
        case Act.KILL_CLIENT:
            return send_signal(rank_process(started.token, case.victim + 1), signal.SIGKILL)
        case Act.PAUSE_CLIENT:
            return _pause(case, started)
        case Act.FILL_DISC:
            return disc.fill(_server(case, started), room.run_file)
    return True


def _server(case: Case, started: Started) -> int | None:
    return rank_process(started.token, 0) if case.kind.transport == MPI else started.process.pid


def _pause(case: Case, started: Started) -> bool:
    """Stop the client's rank for a while; it continues afterwards, whatever happens to the others."""
    process = rank_process(started.token, case.victim + 1)
    stopped = send_signal(process, signal.SIGSTOP)
    time.sleep(case.pause_s)
    send_signal(process, signal.SIGCONT)
    return stopped


def defect_shown(room: Room) -> tuple[int, float]:
    """How often a defect has shown, and when first (Unix time)."""
    mark = room.folder / MARK
    if not mark.exists():
        return 0, 0.0
    lines = mark.read_text().splitlines()
    return len(lines), float(lines[0].split()[1])
