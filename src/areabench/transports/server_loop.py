"""The server's loop in real time. It owns the clock; the wire is a `ServerLink`, so it runs without MPI in tests.

`RealTimeServer.run` is the loop. `MemoryTasks` does what needs the clients' memories while the loop continues:
checkpoints, and averages without lost clients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, TargetWatch
from areabench.engine.events import Reason, State, Status
from areabench.engine.messages import FINAL_FLAGS, Flag, Order, Update
from areabench.engine.scenario import Scenario
from areabench.engine.server import Removal
from areabench.engine.state import RunState
from areabench.engine.timings import Timings
from areabench.errors import ClientsLost, RunFailure
from areabench.experiment.files import written_text
from areabench.runfile.checkpoint import Checkpoint, CheckpointWriter, saved_memories
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.record import Recorder
from areabench.transports.clock import Backoff, RealClock
from areabench.transports.signals import CheckpointTriggers

_SPIN_S = 200e-6  # where no other rank wants the core
_STOP_LIMIT_S = 60.0  # how long a client may continue to compute after it was told to stop
_HASTY_STOP_LIMIT_S = 10.0  # the same where a signal has stopped the run
_RECALL_LIMIT_S = 10.0  # how long clients may take to send their memories when a signal stops the run
_LIVENESS_INTERVAL_S = 2.0  # between two looks for clients whose processes have ended


class Recall(Protocol):
    """Requests to clients for their memories."""

    def ask(self, rounds: Mapping[int, int], *, in_order: bool = False) -> None:
        """Ask clients for their memories at the beginning of these rounds; `in_order`: the answers come in this order.

        Otherwise they come as they are there, and a client that is silent holds up no other.
        """
        ...

    def give_up(self, lost: Collection[int]) -> None:
        """These clients will not answer; the answers of the others to earlier requests are dropped."""
        ...

    @property
    def awaited(self) -> bool:
        """Whether answers are still to come."""
        ...

    @property
    def owing(self) -> Collection[int]:
        """The clients of which answers are still to come, be it to earlier requests."""
        ...

    def answer(self) -> tuple[int, Vector] | None:
        """The next client and its memory, if the answer is here; the vector is lent until the next call."""
        ...


class ServerLink(Protocol):
    """The server's end of the wire."""

    def arrivals(self) -> Sequence[Update]:
        """The updates that are here now, all lent until the next call."""
        ...

    def order(self, order: Order) -> None:
        """Send an order; returns at once."""
        ...

    def stop_all(self) -> None:
        """Tell every client to stop."""
        ...

    def failure(self, client: int) -> str:
        """The text that a client that has failed sends about it."""
        ...

    def unreadable(self) -> Sequence[tuple[int, Reason]]:
        """The clients whose messages could not be read since the last call, and why."""
        ...

    def lost(self) -> Sequence[int]:
        """The clients whose ranks have died since the last call."""
        ...

    @property
    def recall(self) -> Recall:
        """Requests to clients for their memories."""
        ...


class ClientFailure(RunFailure):
    """An exception on a client's rank, or a client that does not stop."""


@dataclass
class RunMonitors:
    """What is checked beside the updates: target, progress line, signals and checkpoints, and dead clients."""

    target: TargetWatch
    progress: Callable[[float, int], None]
    triggers: CheckpointTriggers = field(default_factory=lambda: CheckpointTriggers(None))
    ended_clients: Callable[[], Sequence[int]] = list  # clients whose processes have ended, whatever the wire says
    signals_mean_losses: bool = True  # a signal may come because a client has died: where the wire reports no deaths
    warn: Callable[[str], None] = print


class RealTimeServer:
    """One run on the wall clock."""

    def __init__(
        self,
        scenario: Scenario,
        link: ServerLink,
        recorder: Recorder,
        monitors: RunMonitors,
        *,
        spare_cores: bool = False,
        run_state: RunState | None = None,
        forgotten: Collection[int] = (),
    ) -> None:
        """A resumed run continues from `run_state`; it loses the clients whose memories are forgotten."""
        self._link = link
        self._recorder = recorder
        self._monitors = monitors
        self._clients = scenario.experiment.clients.count
        self._run_state = run_state
        self._forgotten = sorted(forgotten)
        starts_at_s = 0.0
        saved: Mapping[int, int] = {}
        if run_state is not None:
            starts_at_s = run_state.time_s
            saved = run_state.rounds
        self._clock = RealClock(scenario.experiment.clock.stretch, starts_at_s)
        self._deliver = self._deliver_unless_forgotten if forgotten else link.order
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, monitors.target, self._deliver,
            self._clock.now_s, scenario.shapes.payload,
        )  # fmt: skip
        self._memory_tasks = MemoryTasks(scenario, self._conductor, link.recall, recorder, monitors, saved)
        self._backoff = Backoff(10e-6, 200e-6, _SPIN_S if spare_cores else 0.0)
        self.idle_s = 0.0  # slept because there was nothing to do, in seconds of the experiment
        self.serving_s = 0.0  # from each look that found something until all of it was handled, log included
        self._looked_s = 0.0  # when the last look for messages ended
        self.timings = Timings(self._clients)
        self._left: set[int] = set()  # clients that have sent their last message, or are lost
        self._stops_sent = False
        self._late_failures: list[str] = []
        self._liveness_checked_s = time.perf_counter()
        self._missing: set[int] = set()  # clients, at that look
        self._stop_by_s = 0.0  # real time; 0 until a signal stops the run
        self._checkpoint_asked_s = math.inf  # when the checkpoint for that signal was begun

    @property
    def lost(self) -> tuple[int, ...]:
        """The clients that are lost."""
        return tuple(self._conductor.lost)

    @property
    def all_left(self) -> bool:
        """Whether every client has sent its last message or is lost."""
        return len(self._left) == self._clients

    def run(self) -> Status:
        """Serve until the run ends, stop the clients and take in what is in flight; returns how the run ended."""
        clock = self._clock
        tasks = self._memory_tasks
        backoff = self._backoff
        clock.start()
        self._looked_s = clock.now_s()
        self._send_first_orders()
        self.serving_s = clock.now_s() - self._looked_s
        while not (ended := self._ended()):
            # All three are called: a stream of updates must not delay a step by the clock or a checkpoint.
            if self._serve_arrivals() | self._step_if_due() | tasks.advance(clock.now_s()):
                backoff.reset()
                self._recorder.flush_if_overdue()
            elif not self._use_spare_moment():
                self._pause()
                continue
            self.serving_s += clock.now_s() - self._looked_s
        if ended.state in (State.STOPPED, State.FAILED):
            return self._end_in_haste(ended)
        return self._end(ended)

    def _ended(self) -> Status | None:
        """How the run ended, if it has: by an event, by the clock or by a signal."""
        conductor = self._conductor
        triggers = self._monitors.triggers
        now_s = self._clock.now_s()
        if now_s > conductor.next_check_s and (ended := conductor.ended(now_s)):
            return ended
        if triggers.stop_signal or triggers.continued:
            return self._stopped_by_signal()
        return None

    def stop_clients(self, limit_s: float | None = None) -> None:
        """Tell every client to stop, and take in what is in flight until each has sent its last message."""
        if self._stops_sent:
            return
        self._stops_sent = True
        self._memory_tasks.abandon()
        self._link.stop_all()
        limit_s = limit_s or _STOP_LIMIT_S
        backoff = Backoff(10e-6, 1e-3)
        end_s = time.perf_counter() + limit_s
        while not self.all_left or self._link.recall.awaited:
            for update in self._link.arrivals():
                self._take_late_message(update)
            self._link.recall.answer()  # to a request that was given up
            self._drop_clients(self._link.lost())
            if time.perf_counter() > end_s:
                missing = sorted(set(range(self._clients)) - self._left)
                raise ClientFailure(f"clients {missing} did not stop within {limit_s:g} s")
            self._check_liveness_at_intervals()
            backoff.pause(1.0)

    def _send_first_orders(self) -> None:
        """Send the first orders, or those that were in flight when the run stopped."""
        if self._run_state is None:
            self._conductor.start()
            return
        self._conductor.resume(self._run_state)
        self._left.update(self._run_state.lost)
        for order, number, _ in self._run_state.open_orders:
            self._deliver(order._replace(flags=Flag.RESUMED | (order.flags & Flag.WAITS)))
            if Flag.CONTACT in order.flags:
                self._deliver(order._replace(version=number, flags=Flag.CONTACT))
        if self._forgotten:
            self._monitors.warn(f"{_name(self._forgotten)} lost: no answer when the checkpoint was written")
            self._handle_lost_clients(self._forgotten)

    def _deliver_unless_forgotten(self, order: Order) -> None:
        """The rank of a forgotten client is there, but the client cannot work."""
        if order.client not in self._forgotten:
            self._link.order(order)

    def _serve_arrivals(self) -> bool:
        """Handle all updates that are here. None starves: none is taken twice before the others."""
        arrivals = self._link.arrivals()
        found_s = self._looked_s = self._clock.now_s()
        for client, reason in self._link.unreadable():
            self._conductor.refuse(client, reason, found_s)
        if lost := self._link.lost():
            self._handle_lost_clients(lost)
        # A client that has failed has sent its last message; the others of this poll are served before it is reported.
        failed = [update.header.client for update in arrivals if update.header.flags >= FINAL_FLAGS]
        self._left.update(failed)
        for update in arrivals:
            if update.header.flags < FINAL_FLAGS:
                self._handle_update(update, found_s)
        if failures := [self._failure_text(client) for client in failed]:  # a client waits until its text is taken
            raise ClientFailure(failures[0])
        return bool(arrivals)

    def _handle_update(self, update: Update, found_s: float) -> None:
        """Answer an update, or count it as discarded where an earlier one of the same poll has ended the run."""
        conductor = self._conductor
        now_s = self._clock.now_s()
        if now_s > conductor.next_check_s and conductor.ended(now_s):
            conductor.discard(update, now_s)
            return
        used = conductor.updates
        conductor.update(update, now_s, now_s - found_s)
        if conductor.updates > used:  # the times of a refused update may be anything
            self.timings.add(update.header, now_s - found_s, conductor.service_s)

    def _handle_lost_clients(self, lost: Sequence[int]) -> None:
        """Continue without these clients, or fail where this is one of several runs that need all ranks."""
        self._drop_clients(lost)
        self._conductor.lose(lost, self._clock.now_s())
        self._memory_tasks.lose(lost, self._clock.now_s())
        if not self._monitors.triggers.enabled:
            raise ClientsLost(lost)

    def _drop_clients(self, lost: Sequence[int]) -> None:
        """Expect no more messages of these clients."""
        self._left.update(lost)
        if lost:
            self._link.recall.give_up(lost)

    def _take_late_message(self, update: Update) -> None:
        """Take one message after the end: a client's last one, or an update that comes too late."""
        client = update.header.client
        if update.header.flags & (Flag.LEAVING | Flag.FAILED):
            self._left.add(client)
            if update.header.flags == Flag.FAILED:
                self._late_failures.append(self._failure_text(client))
            return
        self._conductor.discard(update, self._clock.now_s())

    def _failure_text(self, client: int) -> str:
        return f"client {client} failed:\n{self._link.failure(client)}"

    def _step_if_due(self) -> bool:
        """Make the server step whose time has come; returns whether there was one."""
        conductor = self._conductor
        now_s = self._clock.now_s()
        if now_s <= conductor.next_check_s or now_s < conductor.timer_s or conductor.ended(now_s):
            return False
        conductor.timer(now_s)
        return True

    def _use_spare_moment(self) -> bool:
        """Do what must not delay a reply; returns whether there was something to do."""
        self._check_liveness_at_intervals()
        self._conductor.require_progress()
        self._monitors.progress(self._clock.now_s(), self._conductor.updates)
        return self._recorder.spare_moment()

    def _pause(self) -> None:
        """Sleep for a moment, but not beyond the next step or the end."""
        conductor = self._conductor
        begun_s = self._clock.now_s()
        self._backoff.pause(self._clock.real_s(min(conductor.timer_s, conductor.horizon_s) - begun_s))
        self.idle_s += self._clock.now_s() - begun_s

    def _stopped_by_signal(self) -> Status | None:
        """The status if a signal has stopped the run: it continues until its checkpoint is written or time is up."""
        triggers = self._monitors.triggers
        tasks = self._memory_tasks
        now_s = self._clock.now_s()
        real_s = time.perf_counter()
        # A launcher may warn by SIGCONT before SIGTERM: whichever comes first begins a checkpoint of this moment.
        first = triggers.continued or not self._stop_by_s
        if first and self._monitors.signals_mean_losses:
            self._check_liveness(at_once=True)
        if triggers.stop_signal and not self._stop_by_s:
            self._stop_by_s = real_s + _RECALL_LIMIT_S
        triggers.continued = False  # a stop signal may follow, or none
        if triggers.stop_signal and tasks.last_checkpoint_s >= self._checkpoint_asked_s:
            return self._recorder.tally.status(State.STOPPED, triggers.stop_signal, now_s)
        if triggers.stop_signal and real_s > self._stop_by_s:
            return self._stopped_without_answers(now_s)
        if self._conductor.settled and (not tasks.busy or (first and not tasks.removing)):
            self._checkpoint_asked_s = now_s
            tasks.begin_checkpoint(now_s)
        return None

    def _stopped_without_answers(self, now_s: float) -> Status:
        """The status where clients have not sent their memories in time."""
        signal_name = self._monitors.triggers.stop_signal
        if self._memory_tasks.complete_with_saved(now_s):
            return self._recorder.tally.status(State.STOPPED, signal_name, now_s)
        self._memory_tasks.abandon()
        reason = f"{signal_name}; clients did not answer within {_RECALL_LIMIT_S:g} s for a checkpoint"
        if checkpoint_path(self._recorder.path).exists():
            return self._recorder.tally.status(State.STOPPED, reason, now_s)
        return self._recorder.tally.status(State.FAILED, f"{reason}, and there is none", now_s)

    def _check_liveness(self, *, at_once: bool = False) -> None:
        """Fail if processes of clients have ended unnoticed: at once, or if they were missing at the last look too."""
        # A process that has just ended may still have its last message on the wire: it is found at two looks.
        missing = set(self._monitors.ended_clients()) - self._left
        if lost := sorted(missing if at_once else missing & self._missing):
            self._memory_tasks.abandon()
            with suppress(RunFailure):  # of a run without clients: the error below says more
                self._conductor.lose(lost, self._clock.now_s())
            raise ClientsLost(lost)
        self._missing = missing

    def _check_liveness_at_intervals(self) -> None:
        if time.perf_counter() > self._liveness_checked_s + _LIVENESS_INTERVAL_S:
            self._liveness_checked_s = time.perf_counter()
            self._check_liveness()

    def _end(self, ended: Status) -> Status:
        """Stop the clients and complete the status."""
        begun_s = self._clock.now_s()
        self.stop_clients()
        drain_s = self._clock.now_s() - begun_s
        if self._late_failures:  # in the round that the end cut short
            raise ClientFailure(self._late_failures[0])
        return replace(self._conductor.finish(ended), drain_s=drain_s)

    def _end_in_haste(self, ended: Status) -> Status:
        """A signal stops the run and the job may be killed soon: the file comes first, clients may be left behind."""
        self._recorder.set_status(ended)
        with suppress(ClientFailure):
            self.stop_clients(_HASTY_STOP_LIMIT_S)
        return ended


def _name(clients: Collection[int]) -> str:
    """Clients in words."""
    return f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))}"


class Silent(NamedTuple):
    """A client that owes an answer for long; while its round is this one it remembers what it did at its beginning."""

    round: int
    memory: Vector | None  # None: not known


class MemoryTasks:
    """Checkpoints, and averages without lost clients: one at a time, while the run continues.

    Both may need the clients' memories. All clients are asked at one moment, at which the server's state is noted, and
    each answers with its memory at the beginning of the round that it was in then. So the answers fit together however
    late they come, and are not waited for.

    A checkpoint does not wait for ever for a client that is silent. If the client has sent no update since the last
    checkpoint, its memory is the one in there. Otherwise the checkpoint is without it, and a run that is resumed from
    there loses this client.
    """

    def __init__(
        self,
        scenario: Scenario,
        conductor: Conductor,
        recall: Recall,
        recorder: Recorder,
        monitors: RunMonitors,
        saved: Mapping[int, int],
    ) -> None:
        """`saved` are the rounds at whose beginnings the memories in the last checkpoint were."""
        self._experiment = scenario.experiment
        self._dtype = scenario.problem.dtype
        self._memory = scenario.shapes.memory
        self._conductor = conductor
        self._recall = recall
        self._recorder = recorder
        self._triggers = monitors.triggers
        self._warn = monitors.warn
        self.last_checkpoint_s = -math.inf  # the moment that the last complete checkpoint shows
        self._begun_s = 0.0  # the moment that the current checkpoint shows
        self._task: CheckpointWriter | Removal | None = None
        self._rounds: Mapping[int, int] = {}  # of the clients whose memories the task needs
        self._awaited: dict[int, int] = {}  # those that were asked and have not answered, in the order of asking
        self._patient_until_s = math.inf  # real time
        self._saved = saved
        self._silent: dict[int, Silent] = {}
        self._named: set[int] = set()  # in a warning

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return self._task is not None

    @property
    def removing(self) -> bool:
        """Whether lost clients are still to be removed from the average."""
        return isinstance(self._task, Removal)

    def advance(self, time_s: float) -> bool:
        """Take in an answer, or begin a checkpoint that is due; returns whether there was something to do."""
        if self._task is not None:
            return self._take_answer(time_s) or self._lose_patience(time_s)
        if self._silent:
            self._recall.answer()  # it comes too late, and is dropped
        if self._conductor.over or not self._conductor.settled or not self._triggers.due():
            return False
        self.begin_checkpoint(time_s)
        return True

    def begin_checkpoint(self, time_s: float) -> None:
        """Note the state of the run, and ask the clients that have worked for their memories."""
        self.abandon()
        self._begun_s = time_s
        self._recorder.flush()
        run_state = self._conductor.run_state(time_s)
        checkpoint = Checkpoint(written_text(self._experiment), run_state, held=self._recorder.held)
        under_way = self._conductor.rounds_under_way
        rounds = {client: number for client, number in under_way.items() if number and self._memory is not None}
        if self._silent:
            owing = self._recall.owing
            self._silent = {
                client: silent
                for client, silent in self._silent.items()
                if client in owing and rounds.get(client) == silent.round
            }
        if len(self._silent) == len(under_way):  # there is nothing without them
            self._silent = {}
        writer = CheckpointWriter(self._recorder.path, checkpoint, self._experiment.clients.count)
        self._begin(writer, rounds, time_s)

    def lose(self, clients: Collection[int], time_s: float) -> None:
        """Cancel a running checkpoint, and remove the memories of these lost clients where that is wanted."""
        self.abandon(clients)
        if self._conductor.to_remove:
            self._begin(Removal(self._conductor.recalled()), self._conductor.rounds_under_way, time_s)

    def abandon(self, lost: Collection[int] = ()) -> None:
        """Cancel the running task."""
        if isinstance(self._task, CheckpointWriter):
            self._task.abandon()
        if self._task is not None or lost:
            self._recall.give_up(lost)
        self._task = None

    def complete_with_saved(self, time_s: float) -> bool:
        """Complete the running checkpoint with memories from the last one; returns whether it has all that it needs."""
        if not isinstance(self._task, CheckpointWriter):
            return False
        unchanged = self._unchanged()
        if unchanged.keys() != self._awaited.keys():
            return False
        self._complete_without(unchanged, time_s)
        return True

    def _begin(self, task: CheckpointWriter | Removal, rounds: Mapping[int, int], time_s: float) -> None:
        # A sum needs every memory; a checkpoint can do without clients that are silent already.
        removes = isinstance(task, Removal)
        asked = {client: number for client, number in rounds.items() if removes or client not in self._silent}
        self._task = task
        self._rounds = rounds
        self._awaited = asked
        self._patient_until_s = time.perf_counter() + self._triggers.patience_s
        if asked:
            self._recall.ask(asked, in_order=removes)
        else:
            self._complete(time_s)

    def _take_answer(self, time_s: float) -> bool:
        """Take one answer, if it is here; the last one completes the task."""
        answer = self._recall.answer()
        if answer is None:
            return False
        client, memory = answer
        if isinstance(self._task, CheckpointWriter):
            self._task.memory(client, memory)
        elif self._task is not None:
            self._task.take(memory)
        del self._awaited[client]
        if not self._awaited:
            self._complete(time_s)
        return True

    def _lose_patience(self, time_s: float) -> bool:
        """Complete a checkpoint that has waited for long; returns whether there was one."""
        if time.perf_counter() < self._patient_until_s:
            return False
        if isinstance(self._task, CheckpointWriter):
            self._complete_without(self._unchanged(), time_s)
            return True
        self._patient_until_s = math.inf
        self._warn_of(list(self._awaited)[:1], "no checkpoint is written before, as lost clients are being removed")
        return False

    def _unchanged(self) -> dict[int, Vector]:
        """The memories in the last checkpoint of clients that are awaited, where they have sent no update since."""
        same = {client for client, number in self._awaited.items() if self._saved.get(client) == number}
        if not same or self._memory is None:
            return {}
        return saved_memories(self._recorder.path, self._memory, same)

    def _complete_without(self, unchanged: Mapping[int, Vector], time_s: float) -> None:
        """Complete the running checkpoint without the answers that are missing."""
        self._recall.give_up(())
        self._silent |= {client: Silent(number, unchanged.get(client)) for client, number in self._awaited.items()}
        self._complete(time_s)

    def _complete(self, time_s: float) -> None:
        """End the task: all answers that will come are here.

        A checkpoint without memories that are known to have changed replaces the last one unless no client is left.
        """
        task = self._task
        self._task = None
        if isinstance(task, Removal):
            self._conductor.remove(task.left(self._dtype), time_s)
        if not isinstance(task, CheckpointWriter):
            return
        forgotten = []
        for client, silent in sorted(self._silent.items()):
            if silent.memory is None:
                forgotten.append(client)
            else:
                task.memory(client, silent.memory)
        if forgotten and len(forgotten) == len(self._conductor.rounds_under_way):
            task.abandon()
            self._warn_of(forgotten, "the last checkpoint stays")
            return
        task.close()
        self.last_checkpoint_s = self._begun_s
        self._saved = {client: number for client, number in self._rounds.items() if client not in forgotten}
        self._warn_of(forgotten, "a checkpoint is written, but a run that is resumed from it has lost {}")

    def _warn_of(self, clients: Collection[int], what: str) -> None:
        """Say which clients are silent and what follows, once for each client."""
        if new := sorted(set(clients) - self._named):
            self._named.update(new)
            name = _name(new)
            self._warn(f"no answer from {name} for {self._triggers.patience_s:g} s: {what.format(name)}")
