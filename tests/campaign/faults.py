"""Bringing a fault about at its moment, from outside the processes that it strikes."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from tests.campaign.cases import Case
from tests.campaign.commands import Room
from tests.campaign.defects import MARK
from tests.campaign.disc import Disc
from tests.campaign.kinds import MPI, Act
from tests.campaign.processes import Started, rank_process, send_signal

APPEARS_S = 60.0  # how long a run may take until its file is there


@dataclass(frozen=True)
class Strike:
    """Whether a fault came about, when (Unix time), and when the run file had appeared."""

    delivered: bool
    at: float
    begun_at: float


def strike(case: Case, room: Room, started: Started, disc: Disc, duration_s: float) -> Strike:
    """Wait until the run file is there, then for the fault's moment, and strike."""
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
    """Returns whether there was anybody to strike."""
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
    """Stop the client's rank for a while; whatever happens to the others meanwhile, it goes on after that."""
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
