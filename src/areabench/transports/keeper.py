"""What the server does for bad times while a run goes on: checkpoints, and an average without lost clients.

Both may need what the clients remember. All are asked at one moment, at which the server notes where it stands, and
each answers with what it remembered when the round began that it was in then; so the answers fit together, however late
they come, and nobody waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Protocol

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor
from areabench.engine.scenario import Scenario
from areabench.engine.server import Removal
from areabench.experiment.parse import to_toml
from areabench.runfile.checkpoint import Checkpoint, CheckpointWriter
from areabench.runfile.record import Recorder
from areabench.transports.signals import Breaks


class Recall(Protocol):
    """Asks clients what they remember."""

    def ask(self, rounds: Mapping[int, int]) -> None:
        """Ask clients what they remembered when these rounds began; answers come in this order."""
        ...

    def give_up(self, lost: Collection[int]) -> None:
        """These clients will not answer; what others still answer is thrown away."""
        ...

    @property
    def awaited(self) -> bool:
        """Whether answers are still to come."""
        ...

    def answer(self) -> tuple[int, Vector] | None:
        """The next answer, if it is here; the vector is lent until the next call."""
        ...


class Keeper:
    """Looks after checkpoints and removals, one at a time."""

    def __init__(
        self, scenario: Scenario, conductor: Conductor, recall: Recall, recorder: Recorder, breaks: Breaks
    ) -> None:
        self._experiment, self._dtype = scenario.experiment, scenario.problem.dtype
        self._remembers = scenario.method.remember(scenario.start) is not None
        self._conductor, self._recall, self._recorder, self._breaks = conductor, recall, recorder, breaks
        self.kept_s = -math.inf  # the moment that the last checkpoint shows
        self._shows_s = 0.0  # likewise of the one under way
        self._errand: CheckpointWriter | Removal | None = None
        self._left = 0  # answers to come

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._errand is not None

    def look(self, time_s: float) -> bool:
        """Take in an answer, or begin what is due; returns whether there was something to do."""
        if self._errand is not None:
            return self._take(time_s)
        if self._conductor.over or not self._breaks.due():
            return False
        self.checkpoint(time_s)
        return True

    def checkpoint(self, time_s: float) -> None:
        """Note where the run stands, and ask the clients that have worked what they remember."""
        self.abandon()
        self._shows_s = time_s
        self._recorder.flush()
        experiment, run_state = self._experiment, self._conductor.run_state(time_s)
        checkpoint = Checkpoint(to_toml(experiment), run_state, held=self._recorder.held)
        rounds = {client: number for client, number in self._conductor.rounds_under_way.items() if number}
        asked = rounds if self._remembers else {}
        writer = CheckpointWriter(self._recorder.path, checkpoint, experiment.clients.count, list(asked))
        if asked:
            self._begin(writer, asked)
        else:
            writer.close()
            self.kept_s = time_s

    def lose(self, clients: Collection[int]) -> None:
        """These clients are gone: give up a checkpoint under way, and remove their memories where that is wanted."""
        self.abandon(clients)
        if self._conductor.to_remove:
            self._begin(Removal(self._conductor.recalled()), self._conductor.rounds_under_way)

    def abandon(self, lost: Collection[int] = ()) -> None:
        """Give up what is under way."""
        if isinstance(self._errand, CheckpointWriter):
            self._errand.abandon()
        if self._errand is not None or lost:
            self._recall.give_up(lost)
        self._errand = None

    @property
    def removing(self) -> bool:
        """Whether the average still has clients that are to be removed."""
        return isinstance(self._errand, Removal)

    def _begin(self, errand: CheckpointWriter | Removal, rounds: Mapping[int, int]) -> None:
        self._errand, self._left = errand, len(rounds)
        self._recall.ask(rounds)

    def _take(self, time_s: float) -> bool:
        """One answer; the last one completes the errand."""
        answer = self._recall.answer()
        if answer is None:
            return False
        client, memory = answer
        errand = self._errand
        if isinstance(errand, CheckpointWriter):
            errand.memory(client, memory)
        elif errand is not None:
            errand.take(memory)
        self._left -= 1
        if self._left == 0:
            self._complete(time_s)
        return True

    def _complete(self, time_s: float) -> None:
        errand, self._errand = self._errand, None
        if isinstance(errand, CheckpointWriter):
            errand.close()
            self.kept_s = self._shows_s
        elif errand is not None:
            self._conductor.remove(errand.left(self._dtype), time_s)
