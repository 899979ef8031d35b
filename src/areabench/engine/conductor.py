"""One run from start to end, on any clock: feeds the server, records events and snapshots, decides when to stop.

A transport owns time and messages. It calls `start`, then `update` or `timer` for what happens, asks `ended` in
between, and calls `finish` at the end. Until `next_check_s` nothing but updates can happen, and `ended` need not be
asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

from areabench.arrays import Vector
from areabench.engine.events import (
    Event,
    Kind,
    Reason,
    State,
    Status,
)
from areabench.engine.messages import INTERRUPTS, Flag, Order, Update, UpdateHeader
from areabench.engine.server import Server
from areabench.engine.state import FirstOrders, OpenOrder, OpenOrders, RunState, Tally, refusal_reason
from areabench.errors import RunFailure
from areabench.experiment.experiment import Experiment
from areabench.methods.criteria import Criterion


class TargetWatch(Protocol):
    """Checks snapshots for the target that ends a run."""

    def offer(self, time_s: float, model: Vector) -> None:
        """Take a snapshot to check."""
        ...

    def reached(self) -> str | None:
        """What was reached and when, once a snapshot that was offered meets the target."""
        ...

    def conclude(self) -> str | None:
        """The same when the run is over, with the last snapshot checked too."""
        ...


class Recording(Protocol):
    """Takes events and snapshots of a run."""

    tally: Tally  # counts all events
    snapshots: int  # so far

    @property
    def keeps_events(self) -> bool:
        """Whether there is an event log."""
        ...

    def event(self, event: Event) -> None:
        """Add an event to the event log."""
        ...

    def digest(self, vector: Vector) -> Any:
        """The checksum of a vector for the event log; of a stack of lanes one for each."""
        ...

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None) -> None:
        """The model after the events so far, and the average of all models so far where it is kept."""
        ...

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot shows the model at `time_s`, after all events so far."""
        ...

    def flush_if_overdue(self) -> None:
        """Write what has waited for long."""
        ...

    def diverged(self, server: Server, bound: float) -> str:
        """Why the run ends because of the server's model after a step; empty where it does not."""
        ...


_LEAST_REFUSALS = 3  # before a run ends in which every client sends nothing but refused updates
_NO_UPDATE = UpdateHeader(client=-1, round=-1, base_version=-1)  # what the row of a server step has in its place
_UPDATE = int(Kind.UPDATE)
_CLIPPED = int(Flag.CLIPPED)
_make_tuple = tuple.__new__  # a named tuple of values that are known to fit, in a third of the time


class Conductor:
    """Drives one server through one run."""

    def __init__(
        self,
        experiment: Experiment,
        server: Server,
        criterion: Criterion,
        recorder: Recording,
        watch: TargetWatch,
        deliver: Callable[[Order], None],
        clock: Callable[[], float],
        payload: Vector | None = None,
        deliver_first: Callable[[FirstOrders], None] | None = None,
    ) -> None:
        """`payload` has the shape and type of every payload; None: updates of many lanes, which are not checked.

        `deliver_first` delivers the orders of the start where they are alike; None: one by one.
        """
        privacy = experiment.privacy
        self._stop = experiment.stop
        self._record = experiment.record
        self._faults = experiment.faults
        self._clients = experiment.clients.count
        self._masked = privacy is not None  # updates have no checksum that anybody could compare
        self._refuses_outside = privacy is not None and privacy.outside == "refuse"
        self._server = server
        self._criterion = criterion
        self._recorder = recorder
        self._watch = watch
        self._deliver = deliver
        self._deliver_first = deliver_first
        self._clock = clock
        self._payload = payload

        self.horizon_s = _or_infinite(self._stop.horizon_s)  # the end at the latest
        self._iterations = _or_infinite(self._stop.iterations)
        self._step_after = _or_infinite(criterion.updates)
        self._over_s: float | None = None  # when an event ended the run
        self._diverged = ""
        self.next_check_s = -math.inf
        self._wake_s = math.inf  # when the rule wants to step by the clock
        self._grid_number = 0  # the grid's next point
        self._grid_s = 0.0 if self._record.snapshots == "grid" else math.inf  # the time of that point
        self._shown_s = 0.0  # the time of the last snapshot

        self.updates = 0
        self.service_s = 0.0  # how long the server took to answer the last update
        self._takes_fast_path = server.answers_at_once
        self._open_orders = OpenOrders()
        self._refusals: dict[int, int] = {}  # in a row, of each client whose last update was refused
        self._lost: list[int] = []
        self._removed = 0  # of those that are lost
        self._cancelled: dict[int, set[int]] = {}  # by client, the rounds that the rule has cancelled
        self._unnoted: list[OpenOrder] = []  # cancelled by the current event

    @property
    def timer_s(self) -> float:
        """When the server steps next by the clock; infinite where updates decide."""
        return min(self._criterion.next_s, self._wake_s)

    def start(self) -> None:
        """Send the starting model out."""
        orders = self._server.first_orders()
        if self._deliver_first is not None and isinstance(orders, FirstOrders):
            self._open_orders.begin_first(orders)
            self._deliver_first(orders)
        else:
            self._send(orders, 0.0)
        self._wake_s = self._server.wake_s
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Note when the next thing that is not an update is to be expected."""
        if self._over_s is not None or self._stop.has_target:  # any event may end the run
            self.next_check_s = -math.inf
        else:
            self.next_check_s = min(self._grid_s, self.horizon_s, self.timer_s)

    def update(self, update: Update, time_s: float, queue_s: float = 0.0) -> None:
        """Handle an update at `time_s`, after `queue_s` in a queue: answer it, then step if the criterion says so."""
        if self._grid_s < time_s:
            self.pass_time(time_s)
        header, payload = update
        (client, number, base_version, drawn_s, realised_s, reply_s, compute_s, flags, local_steps) = header
        server = self._server
        recorder = self._recorder
        orders = self._open_orders
        open_order = orders.out.get(client) or orders.find(client)
        if reason := refusal_reason(update, open_order, self._payload):
            if not self._was_cancelled(header):
                self.refuse(client, reason, time_s, update)
            return
        assert open_order is not None
        if flags and flags & _CLIPPED:
            recorder.tally.clipped += 1
        if self._refusals:
            self._refusals.pop(client, None)
        order = open_order.order
        step = server.take(update, order, time_s)
        # Nearly always the rule calls just the sender, and no order waits. One order then replaces the other, without
        # lists of what to send: an update takes 4.3 to 6.4 µs so, and 1.2 µs more otherwise.
        if self._takes_fast_path and not orders.queued and (reply := server.reply(step, client)) is not None:
            orders.replace(open_order, reply, local_steps, time_s)
            self._deliver(reply)
        else:
            self._end_round(client, local_steps, time_s)
            self._send(server.answer(step, client), time_s)
        # The reply is out: what follows delays no client.
        self.updates += 1
        self.service_s = service_s = self._clock() - time_s
        iteration = server.iteration
        version = server.version
        staleness = version - base_version
        recorder.tally.count_update(time_s, client, staleness)
        if recorder.keeps_events:
            row = (
                time_s, _UPDATE, client, number, base_version, staleness, iteration, version, order.step_size, drawn_s,
                realised_s, reply_s, compute_s, queue_s, service_s, flags, 0, local_steps,
                0 if self._masked else recorder.digest(payload),
            )  # fmt: skip
            recorder.event(_make_tuple(Event, row))
        # The last iteration may be an update; a step that it would make due is one iteration too many.
        if iteration >= self._iterations:
            self._check_end()
        elif (server.updates_since_step >= self._step_after or server.decides) and self._step_if_due(time_s):
            return
        if server.replies_after:
            self._send(server.replies(), time_s)
        if self._unnoted or server.decides:
            self._settle(time_s)

    def _end_round(self, client: int, made: int, time_s: float, flag: Flag = Flag.REPLY) -> None:
        """A client is free again; it gets the next order that waits for it, as a reply if it has sent an update."""
        self._open_orders.end(client, made)
        if (order := self._open_orders.release(client, time_s, flag)) is not None:
            self._deliver(order)

    def _was_cancelled(self, header: UpdateHeader) -> bool:
        """Whether an update answers an order that was cancelled while it was in flight."""
        return header.round in self._cancelled.get(header.client, ())

    def refuse(self, client: int, reason: Reason, time_s: float, update: Update | None = None) -> None:
        """Refuse an update, and send its client a new order; without `update`, the message could not be read.

        The client restores the memory from before that update, as the server has it.
        """
        self.pass_time(time_s)
        header = (_NO_UPDATE if update is None else update.header)._replace(client=client)
        open_order = self._open_orders.end(client, header.local_steps)
        self._note(Kind.REFUSED, header, time_s, _step_size(open_order), digest_of=update, reason=reason)
        what = f"an update of client {client} has {reason.text}"
        if self._faults.bad_update == "stop":
            raise RunFailure(f'{what}; look for the cause, or continue without it: faults.bad_update = "refuse"')
        if open_order is not None:
            self._refusals[client] = self._refusals.get(client, 0) + 1
            self._send([self._server.again(open_order.order, time_s)], time_s)
            self._end_if_all_refused(reason, what)

    def _end_if_all_refused(self, reason: Reason, what: str) -> None:
        """End a run in which the last update of every client with an open order was refused."""
        # Where few clients are at work, one refusal of each is no sign yet.
        if sum(self._refusals.values()) < _LEAST_REFUSALS:
            return
        if any(client not in self._refusals for client in self._open_orders.clients()):
            return
        said = f"the last update of every client at work was refused: {what}"
        if reason == Reason.OUTSIDE and self._refuses_outside:
            raise RunFailure(f"{said}; raise privacy.range, or use a smaller step size")
        if reason not in (Reason.NOT_FINITE, Reason.OUTSIDE):
            raise RunFailure(f"{said}; start all ranks from one installation")
        self._diverged = said
        self._check_end()

    def lose(self, clients: Sequence[int], time_s: float) -> None:
        """Continue without these clients, which are lost; some may have been lost before the run was resumed."""
        self.pass_time(time_s)
        for client in clients:
            if client in self._lost:
                continue
            open_orders = self._open_orders.drop(client)
            self._lost.append(client)
            self._refusals.pop(client, None)
            orders = self._server.lose(client, open_orders, time_s)
            self._note(Kind.LOST, UpdateHeader(client, self.round_of(client), -1), time_s, math.nan)
            self._send(orders, time_s)
        if len(self._lost) == self._clients:
            raise RunFailure("all clients are lost")
        if not self._step_if_due(time_s):
            self._settle(time_s)

    @property
    def settled(self) -> bool:
        """Whether a checkpoint can be taken now."""
        return self._server.settled

    @property
    def over(self) -> bool:
        """Whether an event has ended the run."""
        return self._over_s is not None

    @property
    def lost(self) -> Sequence[int]:
        """The lost clients, in the order in which they were lost."""
        return self._lost

    @property
    def to_remove(self) -> int:
        """How many lost clients are to be taken out of the average."""
        if self._faults.lost_client != "remove" or not self._server.removes:
            return 0
        return len(self._lost) - self._removed

    def round_of(self, client: int) -> int:
        """The number of a client's current or next round."""
        return self._open_orders.rounds.get(client, 0)

    @property
    def rounds_under_way(self) -> dict[int, int]:
        """The clients that are not lost, each with its current or next round."""
        return {client: self.round_of(client) for client in range(self._clients) if client not in self._lost}

    def recalled(self) -> Vector:
        """The sum of the memories of all clients in the average."""
        return self._server.recalled()

    def remove(self, memories: Vector, time_s: float) -> None:
        """Take the lost clients, whose memories add up to `memories`, out of the average."""
        self.pass_time(time_s)
        count = self.to_remove
        self._server.remove(count, memories)
        self._removed += count
        self._note(Kind.REMOVED, UpdateHeader(self._lost[-1], count, -1), time_s, math.nan, digest_of=memories)

    def timer(self, time_s: float) -> None:
        """The server steps by the clock."""
        self.pass_time(time_s)
        asked_s = self._wake_s
        # The criterion's next time is set before the step, after which the rule says when to wake it.
        if self._criterion.next_s <= asked_s:
            self._criterion.advance()
            self._look_ahead()
        self._step(time_s)
        if self._wake_s <= asked_s <= time_s:  # a real clock may be late for several times that differ
            raise RunFailure(
                f'method "{self._server.name}" asks at {time_s:g} s to be woken at {self._wake_s:g} s, which is over; '
                "let `wake` return a later time after each step by the clock"
            )

    def discard(self, update: Update, time_s: float) -> None:
        """Count an update that arrived after the end; it is logged as refused if something is wrong with it."""
        if self._was_cancelled(update.header):
            return
        open_order = self._open_orders.end(update.header.client, update.header.local_steps)
        reason = refusal_reason(update, open_order, self._payload)
        kind = Kind.REFUSED if reason else Kind.DISCARDED
        self._note(kind, update.header, time_s, _step_size(open_order), digest_of=update, reason=reason)

    def pass_time(self, time_s: float) -> None:
        """Take the grid's snapshots before `time_s`: a snapshot shows all events up to and including its time.

        A snapshot that meets the target is the last one.
        """
        while self._grid_s < time_s and not self._watch.reached():
            self._snapshot(self._grid_s)
            self._recorder.flush_if_overdue()
            self._grid_number += 1
            self._grid_s = self._grid_number * self._record.interval_s
        self._look_ahead()

    def ended(self, time_s: float) -> Status | None:
        """How the run ended, if it has; `time_s` is the time of the next thing to happen."""
        tally = self._recorder.tally
        if self._over_s is not None:
            if self._diverged:
                return tally.status(State.DIVERGED, self._diverged, self._over_s)
            return tally.status(State.DONE, f"{self._server.iteration} iterations", self._over_s)
        if time_s <= self._grid_s and time_s <= self.horizon_s and not self._stop.has_target:
            return None
        self.pass_time(min(time_s, self.horizon_s))
        if reached := self._watch.reached():
            return tally.status(State.TARGET, reached, max(self._clock(), self._shown_s))
        if time_s > self.horizon_s:
            return tally.status(State.DONE, f"horizon of {self.horizon_s:g} s", self.horizon_s)
        return None

    def require_progress(self) -> None:
        """A RunFailure where nothing can happen any more: no update will come, no step is due, there is no horizon."""
        if self.over or self.timer_s < math.inf or self.horizon_s < math.inf:
            return
        flags = [open_order.order.flags for open_order in self._open_orders.all()]
        if all(Flag.WAITS in each and Flag.CONTACT not in each for each in flags):
            what = "no client has an order"
            if flags:
                what = "all clients with an order wait to be contacted"
            raise RunFailure(
                f'method "{self._server.name}" does not continue: {what}, and no server step is due; let it call or '
                "contact clients, or give stop.horizon_s"
            )

    def finish(self, status: Status) -> Status:
        """Take the last snapshot; returns the status with the final counts."""
        self.pass_time(status.end_s)
        if not self._recorder.covers(status.end_s):
            self._snapshot(status.end_s)
        tally = self._recorder.tally
        if status.state == State.DONE and (reached := self._watch.conclude()):
            return tally.status(State.TARGET, reached, status.end_s)
        return tally.status(status.state, status.reason, status.end_s)

    def run_state(self, time_s: float) -> RunState:
        """Everything that is needed to continue from here, except what the clients remember."""
        orders = self._open_orders
        return RunState(
            time_s,
            server=self._server.run_state(),
            rounds=dict(orders.rounds),
            local_steps=dict(orders.local_steps),
            open_orders=tuple(orders.all()),
            queued=tuple(chain.from_iterable(orders.queued.values())),
            refusals=dict(self._refusals),
            lost=tuple(self._lost),
            removed=self._removed,
            grid_number=self._grid_number,
            shown_s=self._shown_s,
            timers_passed=self._criterion.passed,
            tally=self._recorder.tally.copy(),
            snapshots=self._recorder.snapshots,
        )

    def resume(self, run_state: RunState) -> None:
        """Continue from a saved state."""
        self._server.resume(run_state.server, run_state.lost)
        self._wake_s = self._server.wake_s
        self._open_orders.resume(run_state)
        self._refusals = dict(run_state.refusals)
        self._lost = list(run_state.lost)
        self._removed = run_state.removed
        self._shown_s = run_state.shown_s
        self._grid_number = run_state.grid_number
        if self._record.snapshots == "grid":
            self._grid_s = self._grid_number * self._record.interval_s
        # A criterion draws its times: the same draws are made again.
        while self._criterion.passed < run_state.timers_passed:
            self._criterion.advance()
        self.updates = run_state.tally.kinds[Kind.UPDATE]
        self._look_ahead()

    def _step_if_due(self, time_s: float) -> bool:
        """Step if the rule says so, or enough updates have arrived; returns whether it was due."""
        server = self._server
        due = server.due if server.decides else self._criterion.counted(server.updates_since_step)
        if not due or server.iteration >= self._iterations:
            return False
        self._step(time_s)
        return True

    def _step(self, time_s: float) -> None:
        server = self._server
        recorder = self._recorder
        begun_s = self._clock()
        step_size = math.nan
        if orders := server.aggregate(time_s):
            self._send(orders, time_s)
            step_size = next((order.step_size for order in orders if order.flags not in INTERRUPTS), math.nan)
        kind = Kind.STEP if server.stepped else Kind.NO_STEP
        self._note(kind, _NO_UPDATE, time_s, step_size, service_s=self._clock() - begun_s)
        if server.stepped:
            self._diverged = recorder.diverged(server, self._stop.divergence_norm)
        self._check_end()
        if self._unnoted or server.decides:
            self._settle(time_s)
        recorder.flush_if_overdue()
        if self._record.snapshots == "aggregations" and server.stepped:
            self._snapshot(time_s)

    def _settle(self, time_s: float) -> None:
        """After an event: note which orders it has cancelled, and ask the rule when to wake it."""
        while self._unnoted:
            order, number, since_s = self._unnoted.pop(0)
            header = UpdateHeader(order.client, number, order.version, realised_delay_s=time_s - since_s)
            self._note(Kind.CANCELLED, header, time_s, order.step_size)
        if self._server.decides:
            self._wake_s = self._server.wake_s
            self._look_ahead()

    def _note(
        self,
        kind: Kind,
        header: UpdateHeader,
        time_s: float,
        step_size: float,
        *,
        digest_of: Update | Vector | None = None,
        service_s: float = 0.0,
        reason: Reason = Reason.NONE,
    ) -> None:
        """Count an event, and log it where there is a log: with the digest of what is given, or of the model."""
        server = self._server
        staleness = 0
        if header.base_version >= 0:
            staleness = server.version - header.base_version
        self._recorder.tally.count(kind, time_s, header.client, staleness)
        if not self._recorder.keeps_events:
            return
        if isinstance(digest_of, Update):
            checksum = 0 if self._masked else self._recorder.digest(digest_of.payload)
        else:
            checksum = self._recorder.digest(server.model if digest_of is None else digest_of)
        client, number, base_version, drawn_s, realised_s, reply_s, compute_s, flags, local_steps = header
        self._recorder.event(
            Event(
                time_s, kind, client, number, base_version, staleness, server.iteration, server.version, step_size,
                drawn_s, realised_s, reply_s, compute_s, 0.0, service_s, flags, reason, local_steps, checksum,
            )
        )  # fmt: skip

    def _check_end(self) -> None:
        """Set the time of the end once an event has ended the run; what arrives later is after the end."""
        if self._over_s is None and (self._diverged or self._server.iteration >= self._iterations):
            self._over_s = self._clock()
            self._look_ahead()

    def _snapshot(self, time_s: float) -> None:
        self._shown_s = time_s
        self._recorder.snapshot(time_s, self._server.version, self._server.model, self._server.average)
        self._watch.offer(time_s, self._server.model)

    def _send(self, orders: Iterable[Order], time_s: float) -> None:
        for order in orders:
            if order.flags in INTERRUPTS:
                self._interrupt(order, time_s)
            elif self._open_orders.begin(order, time_s):
                self._deliver(order)

    def _interrupt(self, order: Order, time_s: float) -> None:
        """Cancel a client's current order, or contact the client; the round is named in place of the version."""
        client = order.client
        open_order = self._open_orders.find(client)
        if open_order is None:
            does = "contacts"
            if order.flags is Flag.CANCEL:
                does = "cancels the order of"
            raise RunFailure(f'method "{self._server.name}" {does} client {client}, which has no order; call it first')
        # A message without a model has no version; the client must know which round is meant, as messages cross.
        self._deliver(order._replace(version=open_order.round))
        if order.flags is Flag.CONTACT:
            self._open_orders.contact(client)
        else:
            self._cancelled.setdefault(client, set()).add(open_order.round)
            self._unnoted.append(open_order)
            self._end_round(client, 0, time_s, Flag.NONE)


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _step_size(open_order: OpenOrder | None) -> float:
    """That of an order, in the row of an update which answers it; NaN where there is none."""
    return math.nan if open_order is None else open_order.order.step_size


def divergence(norm: float, bound: float, iteration: int) -> str:
    """The reason of a run that diverged."""
    return f"|x_s| = {norm:.3g} at iteration {iteration} is beyond {bound:g}"
