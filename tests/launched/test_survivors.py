"""Ranks that die, as the others see it: with a fault-tolerant MPI they meet again and do not wait for the dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from areabench.launching.families import Family, mpi4py_family
from areabench.launching.mpirun import FaultTolerance, find_launcher, rank_command

if TYPE_CHECKING:
    from tests.launched.conftest import Ended, Launcher

pytestmark = pytest.mark.slow

RANKS = 4
SCRIPT = """
import os
import signal
import sys
import time

from areabench.launching.ranks import on_ranks
from areabench.launching.families import started_by


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def play(world) -> int:
    world.together(lambda: None)
{part}
    return 0


code = on_ranks(play, started_by(os.environ))
print("code", code, flush=True)
sys.exit(code)
"""
MEETING = """
    world.survives_losses = True
    if world.rank == {victim}:
        die()
    gathered = world.gather(world.rank)
    first = world.from_server(lambda: 10 * world.rank + 7)
    if world.rank == 0:
        print("met", gathered, first, world.lost(), world.lost_ranks, world.comm.size, flush=True)
"""
SHRINKING = """
    if world.rank in (1, 2):
        die()
    while len(world.lost()) < 2:
        time.sleep(0.001)
        world.comm.Iprobe(source=0) if not world.lost() else world._let_mpi_progress(0.001)
    world.shrink()
    world.survives_losses = True
    if world.rank == 0:
        print("left", world.gather(world.rank), world.lost_ranks, flush=True)
    else:
        world.gather(world.rank)
"""
SETTING_UP = """
    if world.rank == 2:
        {end}
    world.together(lambda: None)
"""
ABORTING = """
    if world.rank == 2:
        raise KeyboardInterrupt
    world.together(lambda: None)
"""


def survived(launcher: Launcher, part: str, ranks: int = RANKS) -> Ended:
    """Run a part of the script on this many ranks of a fault-tolerant MPI."""
    if not find_launcher(mpi4py_family()).survives:
        pytest.skip("this MPI cannot continue without a rank")
    return started(launcher, part, ranks, FaultTolerance.ON)


def started(launcher: Launcher, part: str, ranks: int, tolerance: FaultTolerance) -> Ended:
    script = launcher.folder / "script.py"
    script.write_text(SCRIPT.format(part=part))
    return launcher.start(rank_command(ranks, [str(script)], tolerance=tolerance))


@pytest.mark.parametrize("victim", [2])
def test_survivors_meet_without_a_rank_that_died_before(quadratic: Launcher, victim: int) -> None:
    ended = survived(quadratic, MEETING.format(victim=victim))
    left = [rank for rank in range(RANKS) if rank != victim]
    assert f"met {left} 7 [{victim}] ({victim},) 3" in ended.output
    assert "code" not in ended.output  # they leave at once, without MPI's own end, which may wait for the dead
    assert ended.code == 0


def test_survivors_shrink_by_two_at_once(quadratic: Launcher) -> None:
    ended = survived(quadratic, SHRINKING, 5)
    assert "left [0, 3, 4] (1, 2)" in ended.output
    assert ended.code == 0


@pytest.mark.parametrize("end", ["die()", "os._exit(1)", "os._exit(0)"])
def test_a_death_before_the_run_begins_ends_all(quadratic: Launcher, end: str) -> None:
    ended = survived(quadratic, SETTING_UP.format(end=end))
    assert ended.code != 0
    assert "code 0" not in ended.output


def test_an_interrupt_on_one_rank_ends_all(quadratic: Launcher) -> None:
    ended = survived(quadratic, ABORTING)
    assert ended.code != 0
    assert "code 0" not in ended.output


@pytest.mark.parametrize("tolerance", [FaultTolerance.AUTO, FaultTolerance.OFF])
def test_ranks_end_when_the_server_dies(quadratic: Launcher, tolerance: FaultTolerance) -> None:
    ended = started(quadratic, SETTING_UP.format(end="pass") + MEETING.format(victim=0), RANKS, tolerance)
    assert "met" not in ended.output
    if find_launcher(mpi4py_family()).survives and tolerance == FaultTolerance.AUTO:
        assert ended.errors.count("is gone: all ranks are ended") == 1
    if tolerance == FaultTolerance.OFF or mpi4py_family() == Family.MPICH:
        assert ended.code != 0
