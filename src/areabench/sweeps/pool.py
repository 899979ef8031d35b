"""Processes that simulate the passes of a sweep: where one dies, its pass fails, and nothing else.

Only the parent handles signals: a worker blocks them, and ends when its parent ends it or has ended itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType

from areabench.engine.lanes import group_lanes
from areabench.errors import RunFileError, WriteFailure, one_line
from areabench.progress import SweepProgress
from areabench.sweeps.cost import expected_cost
from areabench.sweeps.passes import Pass, PassOutcome, Task, part_of, parts_of, published
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_together
from areabench.transports.signals import INTERRUPT_SIGNALS, Interrupts


def group_passes(tasks: Sequence[Task]) -> list[Pass]:
    """The tasks in passes, the longest first: a long one at the end would leave the other cores idle."""
    # Runs that differ in the method or its step size share their draws, so a pass costs little more than one of them.
    groups = group_lanes([task.experiment for task in tasks])
    passes = [Pass(tuple(tasks[number] for number in group)) for group in groups]
    return sorted(passes, key=lambda each: sum(expected_cost(task.experiment) for task in each.tasks), reverse=True)


def run_here(passes: Sequence[Pass], options: RunOptions, interrupts: Interrupts) -> Generator[PassOutcome]:
    """Simulate all passes one after the other in this process, for parts that another one could not import."""
    for each in passes:
        if interrupts.number:
            return
        yield _attempt(each, options)


def run_in_pool(
    passes: Sequence[Pass], jobs: int, options: RunOptions, interrupts: Interrupts, progress: SweepProgress
) -> Generator[PassOutcome]:
    """Simulate all passes in up to `jobs` processes, begun in their order, until there is an interrupt."""
    waiting = deque(passes)
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.busy for worker in workers):
            # Workers are started when they are needed: a sweep of two runs takes two processes, not one per core.
            while waiting and sum(worker.busy for worker in workers) < jobs:
                idle = next((worker for worker in workers if not worker.busy), None)
                if idle is None:
                    idle = _Worker(options)
                    workers.append(idle)
                if idle.start(waiting[0]):
                    waiting.popleft()
                else:
                    idle.end()
                    workers.remove(idle)
            busy = [worker for worker in workers if worker.busy]
            ready = wait([*(worker.connection for worker in busy), interrupts.file], progress.refresh_s)
            if not ready:
                progress.show()
            for worker in busy:
                if worker.connection in ready:
                    yield worker.result()
            if interrupts.number:
                return
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process, seen from the parent, busy with one pass at a time."""

    def __init__(self, options: RunOptions) -> None:
        context = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # starting it would let through the signals that are blocked below
        self.connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_work, args=(theirs, options), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT_SIGNALS)  # the child inherits it from its start
        main = sys.modules["__main__"]
        # the process would run the user's script again, which may not guard against it
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            self._process.start()
        finally:
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._pass: Pass | None = None
        self._is_new = True

    @property
    def busy(self) -> bool:
        """Whether it has a pass."""
        return self._pass is not None

    def start(self, attempted: Pass) -> bool:
        """Hand over a pass; False where the process ended after an earlier one. A new one that ended fails the pass."""
        try:
            self.connection.send(attempted)
        except OSError:
            # An idle worker may have been killed, by a lack of memory say; the pass is then given to another one.
            if not self._is_new:
                return False
        self._pass = attempted
        self._is_new = False
        return True

    def result(self) -> PassOutcome:
        """How the pass ended."""
        assert self._pass is not None
        try:
            outcome: PassOutcome = self.connection.recv()
        except (EOFError, OSError):
            outcome = PassOutcome(self._pass, (), self._exit_reason())
            self._clean_up()
        self._pass = None
        return outcome

    def end(self) -> None:
        """End the process whatever it does."""
        self._process.kill()
        self._process.join()
        self._clean_up()
        self.connection.close()

    def _clean_up(self) -> None:
        """Remove what the process had begun to write."""
        if self._pass is not None:
            for task in self._pass.tasks:
                part_of(task.output, self._process.pid or 0).unlink(missing_ok=True)

    def _exit_reason(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return f"its process ended with exit code {code}"
        names = {int(each): each.name for each in signal.Signals}
        reason = f"its process was ended by signal {names.get(-code, str(-code))}"
        if -code == signal.SIGKILL:
            reason += ", perhaps because memory ran out"
        return reason


# ---------------------------------------------------------------------------------------------------- in the worker


def _work(connection: Connection, options: RunOptions) -> None:
    """Simulate what the parent sends until there is no more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            connection.send(_attempt(connection.recv(), options))


def _end_with_parent() -> None:
    """End at once when the parent has ended: the result of the current pass is of no use."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # sys.exit would end this thread only.
    os._exit(1)


def _attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
    """Simulate the tasks of a pass together; their statuses, or what went wrong in one line."""
    with parts_of(attempted, os.getpid()) as parts:
        try:
            experiments = [task.experiment for task in attempted.tasks]
            return published(attempted, parts, simulate_together(experiments, parts, options))
        except (WriteFailure, RunFileError) as error:
            return PassOutcome(attempted, (), one_line(error), is_fatal=True)
        except (Exception, SystemExit) as error:  # whatever it is, the other passes continue
            return PassOutcome(attempted, (), one_line(error))
