"""What every rank of a launch does first and last: start MPI, run an action, and end together.

Worker ranks load this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from areabench.errors import ServerGone, SilentExit, UserError, one_line
from areabench.launching.families import StartedBy, mpi4py_family, refuse_foreign_launcher, refuse_lone_ranks
from areabench.launching.steps import REPORTED, START_LIMIT_S, rank_step, reporter
from areabench.transports.clock import lengthened_sleep

if TYPE_CHECKING:
    from areabench.transports.world import World


END_LIMIT_S = 10  # for a fault-tolerant MPI to end: it takes 0.1 s, but sometimes waits for ever
_LATER_S = 2  # that the other ranks leave the first one to speak: where it ends, most launchers end all


def on_ranks(play: Callable[[World], int], started: StartedBy | None) -> int:
    """Run an action on all ranks of this launch, each of which calls this; a failure on one ends all."""
    report = reporter(os.environ)
    try:
        world = _start(started, report)
        refuse_lone_ranks(started, world.size)
    except (UserError, SilentExit):
        report(REPORTED)
        raise
    from areabench.transports.world import AbortRequired, SharedFailure

    try:
        return _end(world, play(world), started)
    except SharedFailure as failure:
        report(REPORTED)
        if world.rank == 0:
            told = failure.failure.message
            if failure.failure.rank:
                told = f"rank {failure.failure.rank}: {told}"
            print(f"areabench: {told}", file=sys.stderr, flush=True)
        if failure.failure.user_error:
            return _end(world, 2, started)
        return _end(world, 1, started)
    except ServerGone as error:  # every rank finds it by itself, and one of them reports it
        if world.rank == min(set(range(world.size)) - {0, *world.lost()}):
            print(f"areabench: {error}: all ranks are ended", file=sys.stderr, flush=True)
        os._exit(1)  # an abort would print a page, and MPI's finalisation would wait for the server
    except BaseException as error:  # an interrupt, or a failure that needs an abort; the others would wait forever
        if isinstance(error, AbortRequired):
            print(f"areabench: rank {world.rank}: {error}", file=sys.stderr)
        elif not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
        sys.stderr.flush()
        _end_after(END_LIMIT_S, started)  # an abort, too, may wait forever
        world.abort()
        if isinstance(error, AbortRequired):  # MPICH's abort may return, and all is said
            os._exit(1)
        raise


def _start(started: StartedBy | None, report: Callable[[str], None]) -> World:
    """Start MPI; returns when all ranks have met."""
    refuse_foreign_launcher(started, mpi4py_family())
    with StartLimit(started) as limit:
        rank = 0 if started is None else started.rank
        report(rank_step(rank))
        try:
            with lengthened_sleep():  # Open MPI sleeps for 100 µs at a time until the last of the ranks is here
                from areabench.transports.world import World
        except (ImportError, RuntimeError) as error:  # no mpi4py, or none of the libraries that it tries
            raise UserError(
                f"MPI cannot be used: {one_line(error)}; install it with `make install`, or use `areabench simulate`"
            ) from error
        limit.first_meeting()
        world = World(fault_tolerant=started is not None and started.fault_tolerant, report=report)
    if started is not None:  # a run handles it; before and after, Hydra may send it because another rank has ended
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return world


def _end(world: World, code: int, started: StartedBy | None) -> int:
    """The exit code of a rank that has finished its work with the others.

    MPI's finalisation is collective, and Open MPI may wait in it for lost ranks too; after a loss it is left out.
    """
    # MPI would wait for the lost ranks where it is finalised, so nothing of Python's end is run.
    if world.lost_ranks:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    limit_s = 0
    if world.fault_tolerant:  # a rank may be lost even now
        limit_s = END_LIMIT_S
    _end_after(limit_s, started)
    return code


def _end_after(limit_s: int, started: StartedBy | None) -> None:
    """Have the system end this rank after `limit_s`, also inside MPI, where no handler runs; 0: never.

    The other ranks notice it: MPI reports an end by a signal to all, but not an end with an exit code.
    """
    if started is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit_s)


class StartLimit:
    """A context in which MPI starts; it ends this rank, with one line, where that takes longer than the limit.

    MPI_Init keeps Python's lock: no thread and no handler of this process runs until it returns. So a child of this
    process keeps the time. It ends the rank by a signal, because MPI reports that to the other ranks, unlike an exit.
    """

    def __init__(self, started: StartedBy | None) -> None:
        self._started = started
        self._pipe = -1
        self._child = 0

    def __enter__(self) -> StartLimit:
        if self._started is not None:
            read_end, self._pipe = os.pipe()
            rank_process = os.getpid()
            self._child = os.fork()
            if not self._child:
                os.close(self._pipe)
                _keep_time(read_end, rank_process, self._started)
            os.close(read_end)
        return self

    def first_meeting(self) -> None:
        """MPI_Init has returned; the ranks meet for the first time."""
        if self._child:
            with suppress(OSError):  # the child was killed: the run needs it no longer
                os.write(self._pipe, b"!")

    def __exit__(self, *_: object) -> None:
        if self._child:
            os.close(self._pipe)
            with suppress(ChildProcessError):
                os.waitpid(self._child, 0)


def _keep_time(pipe: int, rank_process: int, started: StartedBy) -> None:
    """Wait until the rank closes the pipe or ends; at the limit, say so and end it. Does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard's goes to the rank too
        waits_for = "in MPI_Init"
        end_s = time.monotonic() + START_LIMIT_S
        if started.rank:
            end_s += _LATER_S
        while select.select([pipe], [], [], max(0.0, end_s - time.monotonic()))[0]:
            if not os.read(pipe, 1):
                os._exit(0)
            waits_for = "for the first meeting of all ranks"
        os.write(
            2,
            f"areabench: rank {started.rank} of {started.ranks} has waited {waits_for} for {START_LIMIT_S:,} s, the "
            "limit, and ends; a rank may have died: see the other lines\n".encode(),
        )
        os.kill(rank_process, signal.SIGALRM)
    finally:
        os._exit(1)
