"""A server on a scripted wire whose polls act: signals, losses, and answers of clients about their memories."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from tests.support.runs import nothing, recorder_of
from tests.support.wires import EXPERIMENT, ScriptedLink, update

from areabench.arrays import Vector
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import Status
from areabench.engine.messages import Update
from areabench.engine.scenario import build_scenario
from areabench.engine.state import RunState
from areabench.experiment.experiment import Experiment, Faults
from areabench.methods.area import Area
from areabench.runfile.checkpoint import Checkpoint, read_checkpoint
from areabench.runfile.read import Run
from areabench.transports.server_loop import RealTimeServer, RunMonitors
from areabench.transports.signals import CheckpointTriggers

FLOAT = np.dtype(np.float64)
KEEP = replace(EXPERIMENT, method=Area(step_size=0.5))
REMOVE = replace(KEEP, faults=Faults(lost_client="remove"))
FIRST = [update(0, 1.0), update(1, 2.0), update(2, 6.0)]  # after these the server steps; residuals
RESIDUALS = {0: 1.0, 1: 2.0, 2: 6.0, 3: 11.0}
Action = Callable[[], None]


class ScriptedTriggers(CheckpointTriggers):
    """Checkpoints are due at the looks that the test names; no signal arrives."""

    def __init__(self, *due: int) -> None:
        super().__init__(0)
        self._due, self._looks = due, 0

    def due(self) -> bool:
        self._looks += 1
        return self._looks in self._due


@dataclass
class ScriptedRecall:
    """Answers come in the order of asking, as many as the test has let through; those to what was given up are stale.

    Clients that are silent answer later; where the order counts, they hold up the others.

    A client remembers its first residual once its first round is over, and zero before.
    """

    allowed: float = 0
    silent: set[int] = field(default_factory=set)
    asked: list[dict[int, int]] = field(default_factory=list)
    given_up: list[tuple[int, ...]] = field(default_factory=list)
    _number: int = 0
    _in_order: bool = False
    _queue: deque[tuple[int, int, int]] = field(default_factory=deque)

    def ask(self, rounds: Mapping[int, int], *, in_order: bool = False) -> None:
        self._number, self._in_order = self._number + 1, in_order
        self.asked.append(dict(rounds))
        self._queue.extend((client, number, self._number) for client, number in rounds.items())

    def give_up(self, lost: Collection[int]) -> None:
        self._number += 1
        self.given_up.append(tuple(lost))
        self._queue = deque(each for each in self._queue if each[0] not in lost)

    @property
    def awaited(self) -> bool:
        return bool(self._queue)

    @property
    def owing(self) -> set[int]:
        return {client for client, _, _ in self._queue}

    def answer(self) -> tuple[int, Vector] | None:
        while self.allowed:
            ready = [each for each in self._queue if each[0] not in self.silent]
            if not ready or (self._in_order and self._queue[0] is not ready[0]):
                return None
            self.allowed -= 1
            self._queue.remove(ready[0])
            client, number, question = ready[0]
            if question == self._number:
                return client, np.full(2, RESIDUALS[client] if number else 0.0)
        return None


class Scene:
    """A server on a wire on which each poll first does something, and then brings updates."""

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        triggers: CheckpointTriggers,
        run_state: RunState | None = None,
        forgotten: Collection[int] = (),
    ) -> None:
        self.path = folder / "run.h5"
        self.experiment = experiment
        self.triggers = triggers
        self.recall = ScriptedRecall()
        self.link = ScriptedLink([], experiment.clients.count, recall=self.recall, on_poll=self._poll)
        self._actions: list[Action] = []
        self.scenario = replace(build_scenario(experiment, folder), start=np.zeros(2))
        self.recorder = recorder_of(self.path, experiment)
        if run_state is not None:
            self.recorder.tally = run_state.tally.copy()
        self.gone: list[Sequence[int]] = []  # what is found at one look after the other; after that, nothing
        self.warnings: list[str] = []
        monitors = RunMonitors(NoTarget(), nothing, triggers, self._look, warn=self.warnings.append)
        self.server = RealTimeServer(
            self.scenario, self.link, self.recorder, monitors, run_state=run_state, forgotten=forgotten
        )

    def poll(self, updates: Sequence[Update] = (), action: Action = lambda: None) -> None:
        """What the next poll does and brings."""
        self.link.polls.append(list(updates))
        self._actions.append(action)

    def polls(self, *polls: Sequence[Update]) -> None:
        """What the next polls bring."""
        for updates in polls:
            self.poll(updates)

    def run(self) -> Status:
        """To the end; all clients have left then."""
        status = self.server.run()
        assert self.link.stopped
        assert self.server.all_left
        return status

    def events(self) -> np.ndarray:
        self.recorder.close()
        with Run(self.path) as run:
            return run.events_array

    @property
    def checkpoint(self) -> Checkpoint:
        method, start = self.scenario.method, self.scenario.start
        return read_checkpoint(self.path, method.start(start).state, method.remember(start))

    @property
    def files(self) -> set[str]:
        """What there is of a checkpoint."""
        return {each.name.removeprefix("run.h5.") for each in self.path.parent.glob("run.h5.*")}

    # what polls do

    def let_through(self, answers: float = math.inf) -> Action:
        return lambda: setattr(self.recall, "allowed", answers)

    def signal(self, name: str = "SIGTERM") -> Action:
        return lambda: setattr(self.triggers, "stop_signal", name)

    def lose(self, *clients: int) -> Action:
        return lambda: self.link.losses.extend(clients)

    def expect(self, *files: str) -> Action:
        def check() -> None:
            assert self.files == set(files)

        return check

    def _poll(self) -> None:
        if self._actions:
            self._actions.pop(0)()
        elif self.link.stopped:  # a client that was asked answers before its last message
            self.recall.allowed, self.recall.silent = math.inf, set()

    def _look(self) -> Sequence[int]:
        return self.gone.pop(0) if self.gone else []


def second(*clients: int, version: int = 0) -> list[Update]:
    """Updates of the second round that change nothing: each client is where it was."""
    return [update(client, 0.0, number=1, version=version) for client in clients]
