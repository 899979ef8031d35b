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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType

from areabench.engine.lanes import group_lanes
from areabench.errors import RunFileError, WriteFailure, one_line
from areabench.progress import SweepProgress
from areabench.sweeps.outcomes import PassOutcome, files_of_pass, part_of
from areabench.sweeps.plan import Pass, Task
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_together
from areabench.transports.signals import INTERRUPT_SIGNALS, Interrupts


def group_passes(tasks: Sequence[Task]) -> list[Pass]:
    """The tasks in passes, the longest first: a long one at the end would leave the other cores idle."""
    groups = group_lanes([task.experiment for task in tasks])
    passes = [Pass(tuple(tasks[number] for number in group)) for group in groups]
    return sorted(passes, key=lambda each: each.cost, reverse=True)


def run_here(passes: Sequence[Pass], options: RunOptions, interrupts: Interrupts) -> Iterator[PassOutcome]:
    """Simulate all passes one after the other in this process, for parts that another one could not import."""
    waiting = deque(passes)
    while waiting and not interrupts.number:
        outcome = _attempt(waiting.popleft(), options)
        if outcome.divides:
            waiting.extendleft(Pass((task,)) for task in outcome.attempted.tasks)
        else:
            yield outcome


class Pool:
    """A number of workers, started when they are needed, each busy with one pass at a time."""

    def __init__(self, jobs: int, options: RunOptions, interrupts: Interrupts, progress: SweepProgress) -> None:
        self._jobs, self._options, self._interrupts, self._progress = jobs, options, interrupts, progress
        self._workers: list[_Worker] = []

    def close(self) -> None:
        """End all workers and remove what they had begun to write."""
        for worker in self._workers:
            worker.end()

    def run(self, passes: Sequence[Pass]) -> Iterator[PassOutcome]:
        """Simulate all passes, begun in their order, until there is an interrupt; yields each outcome as it comes."""
        waiting = deque(passes)
        while waiting or any(worker.busy for worker in self._workers):
            self._assign(waiting)
            for worker in self._ready():
                outcome = worker.result()
                if outcome.divides:
                    waiting.extendleft(Pass((task,)) for task in outcome.attempted.tasks)
                else:
                    yield outcome
            if self._interrupts.number:
                return

    def _ready(self) -> list[_Worker]:
        """Wait until some worker has ended its pass, or for an interrupt."""
        busy = [worker for worker in self._workers if worker.busy]
        while True:
            ready = wait([*(worker.connection for worker in busy), self._interrupts.file], self._progress.refresh_s)
            if ready:
                return [worker for worker in busy if worker.connection in ready]
            self._progress.show()

    def _assign(self, waiting: deque[Pass]) -> None:
        """Give a pass to every idle worker."""
        while waiting and sum(worker.busy for worker in self._workers) < self._jobs:
            idle = [worker for worker in self._workers if not worker.busy]
            if not idle:
                idle = [_Worker(self._options)]
                self._workers += idle
            if idle[0].start(waiting[0]):
                waiting.popleft()
            else:
                idle[0].end()
                self._workers.remove(idle[0])


class _Worker:
    """One process, seen from the parent."""

    def __init__(self, options: RunOptions) -> None:
        context = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # starting it would let through the signals that are blocked below
        self.connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_work, args=(theirs, options), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT_SIGNALS)  # the child inherits it from its start
        try:
            with _nameless_main():
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._pass: Pass | None = None
        self._new = True

    @property
    def busy(self) -> bool:
        """Whether it has a pass."""
        return self._pass is not None

    def start(self, attempted: Pass) -> bool:
        """Hand over a pass; False where the process ended after an earlier one. A new one that ended fails the pass."""
        try:
            self.connection.send(attempted)
        except OSError:
            if not self._new:
                return False
        self._pass = attempted
        self._new = False
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
        for task in self._pass.tasks if self._pass is not None else ():
            part_of(task.output, self._process.pid or 0).unlink(missing_ok=True)

    def _exit_reason(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by signal {name}{hint}"


@contextmanager
def _nameless_main() -> Iterator[None]:
    """A context in which processes start without running the user's script again, which may not guard against it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


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
    os._exit(1)


def _attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
    """Simulate the tasks of a pass together; their statuses, or what went wrong in one line."""
    with files_of_pass(attempted, os.getpid()) as files:
        try:
            experiments = [task.experiment for task in attempted.tasks]
            return files.published(simulate_together(experiments, files.paths, options))
        except (WriteFailure, RunFileError) as error:
            return PassOutcome(attempted, (), one_line(error), is_fatal=True)
        except (Exception, SystemExit) as error:  # whatever it is, the other passes continue
            return PassOutcome(attempted, (), one_line(error))
