"""The server's loop in real time. It owns the clock; the wire is a `ServerLink`, so it runs without MPI in tests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from areabench.engine.conductor import Conductor, TargetWatch
from areabench.engine.events import Reason, State, Status
from areabench.engine.messages import Flag, Order, Update
from areabench.engine.scenario import Scenario
from areabench.engine.state import RunState
from areabench.engine.timings import Timings
from areabench.errors import ClientsLost, RunFailure
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.record import Recorder
from areabench.transports.clock import Backoff, Clock
from areabench.transports.keeper import Keeper, Recall
from areabench.transports.signals import Breaks


class ServerLink(Protocol):
    """The server's end of the wire."""

    def arrivals(self) -> Sequence[Update]:
        """All updates that are here now; each is lent until `rearm`."""
        ...

    def rearm(self, client: int) -> None:
        """The client's update has been used: be ready for its next message."""
        ...

    def order(self, order: Order) -> None:
        """Send an order; returns at once."""
        ...

    def stop_all(self) -> None:
        """Tell every client to stop."""
        ...

    def failure(self, client: int) -> str:
        """What a client that has failed says about it."""
        ...

    def flawed(self) -> Sequence[tuple[int, Reason]]:
        """The clients whose messages could not be read, since the last call, and why."""
        ...

    def lost(self) -> Sequence[int]:
        """The clients whose rank has died, since the last call."""
        ...

    @property
    def recall(self) -> Recall:
        """Asks clients what they remember."""
        ...


_ORDINARY = (Flag.NONE, Flag.OVERRUN)  # before the end there is nothing else but failures
_SPIN_S = 200e-6  # where no other rank wants the core
_FAREWELL_LIMIT_S = 60.0  # how long a client may compute on after it was told to stop
_HASTY_FAREWELL_S = 10.0  # likewise where a signal has stopped the run
_RECALL_LIMIT_S = 10.0  # how long clients may take to tell what they remember, when a signal stops the run
_LOOK_S = 2.0  # how often to look for clients whose processes have ended


class ClientFailure(RunFailure):
    """An exception on a client's rank."""


@dataclass
class Watchers:
    """Who looks on: the target, the progress line, signals and checkpoints, and who tells which clients have died.

    `gone` tells what the wire does not: clients whose processes have ended.
    """

    target: TargetWatch
    progress: Callable[[float, int], None]
    breaks: Breaks = field(default_factory=lambda: Breaks(None))
    gone: Callable[[], Sequence[int]] = list
    signals_tell: bool = True  # of clients that have died: where the wire does not


class RealTimeServer:
    """One run on the wall clock."""

    def __init__(
        self,
        scenario: Scenario,
        link: ServerLink,
        recorder: Recorder,
        watchers: Watchers,
        *,
        spare_cores: bool = False,
        run_state: RunState | None = None,
    ) -> None:
        self._link, self._recorder, self._watchers = link, recorder, watchers
        self._clients, self._run_state = scenario.experiment.clients.count, run_state
        self._clock = Clock(scenario.experiment.clock.stretch, 0.0 if run_state is None else run_state.time_s)
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watchers.target, link.order,
            self._clock.now_s,
        )  # fmt: skip
        self._keeper = Keeper(scenario, self._conductor, link.recall, recorder, watchers.breaks)
        self._spin_s = _SPIN_S if spare_cores else 0.0
        self.idle_s = 0.0  # slept for want of anything to do, in seconds of the experiment
        self.timings = Timings(self._clients)
        self._departed: set[int] = set()
        self._dismissed = False
        self._late_failures: list[str] = []
        self._looked_s, self._missed = time.perf_counter(), set[int]()  # for clients whose processes have ended
        self._stop_by_s, self._asked_s = 0.0, math.inf  # real time, where a signal came; when a checkpoint was begun

    @property
    def lost(self) -> tuple[int, ...]:
        """The clients that are gone."""
        return tuple(self._conductor.lost)

    @property
    def alone(self) -> bool:
        """Whether every client has said farewell."""
        return len(self._departed) == self._clients

    def run(self) -> Status:
        """Serve to the end, stop the clients, drain what is in flight; returns how it ended."""
        conductor, clock, backoff = self._conductor, self._clock, Backoff(10e-6, 200e-6, self._spin_s)
        clock.start()
        self._begin()
        while not (ended := conductor.ended(clock.now_s()) or self._stopped()):
            # All three: a stream of updates must not hold up the clock's steps or a checkpoint.
            if self._serve() | self._step_by_clock() | self._keeper.look(clock.now_s()):
                backoff.reset()
                self._recorder.relieve()
            elif not self._use_spare_moment():
                self._pause(backoff)
        begun_s, halted = clock.now_s(), ended.state in (State.STOPPED, State.FAILED)
        if halted:  # in haste, for the time may be up: the file first, and those who do not leave are left behind
            self._recorder.set_status(ended)
            with suppress(ClientFailure):
                self.dismiss(_HASTY_FAREWELL_S)
            return ended
        self.dismiss()
        drain_s = clock.now_s() - begun_s
        if self._late_failures:  # in the round that the end cut short
            raise ClientFailure(self._late_failures[0])
        return replace(conductor.finish(ended), drain_s=drain_s)

    def _begin(self) -> None:
        """Send the first orders out, or those that were under way when the run stopped."""
        if self._run_state is None:
            self._conductor.start()
            return
        self._conductor.resume(self._run_state)
        self._departed.update(self._run_state.lost)
        for order, _, _ in self._run_state.open_orders:
            self._link.order(order._replace(flags=Flag.RESUMED))

    def _stopped(self) -> Status | None:
        """How the run stands if a signal stops it: it goes on until there is a checkpoint, if the clients answer."""
        breaks, keeper = self._watchers.breaks, self._keeper
        if not breaks.signal and not breaks.roused:
            return None
        now_s, real_s = self._clock.now_s(), time.perf_counter()
        first = breaks.roused or not self._stop_by_s
        if first and self._watchers.signals_tell:
            self._look_around(at_once=True)
        if breaks.signal and not self._stop_by_s:
            self._stop_by_s = real_s + _RECALL_LIMIT_S
        breaks.roused = False  # a signal may follow, or none
        if breaks.signal and keeper.kept_s >= self._asked_s:
            return self._recorder.status(State.STOPPED, breaks.signal, now_s)
        if breaks.signal and real_s > self._stop_by_s:
            return self._without_answers(now_s)
        if not keeper.busy or (first and not keeper.removing):
            self._asked_s = now_s
            keeper.checkpoint(now_s)
        return None

    def _without_answers(self, now_s: float) -> Status:
        """A signal stops the run, and clients have not told in time what they remember."""
        self._keeper.abandon()
        reason = f"{self._watchers.breaks.signal}; clients did not answer within {_RECALL_LIMIT_S:g} s for a checkpoint"
        if checkpoint_path(self._recorder.path).exists():
            return self._recorder.status(State.STOPPED, reason, now_s)
        return self._recorder.status(State.FAILED, f"{reason}, and there is none", now_s)

    def _look_around(self, *, at_once: bool = False) -> None:
        """Fail if clients have died without a word: at a signal, or found so twice, some time apart."""
        gone = set(self._watchers.gone()) - self._departed
        if lost := sorted(gone if at_once else gone & self._missed):
            self._keeper.abandon()
            with suppress(RunFailure):  # that all are lost is no other failure
                self._conductor.lose(lost, self._clock.now_s())
            raise ClientsLost(lost)
        self._missed = gone

    def _look_around_at_times(self) -> None:
        if time.perf_counter() > self._looked_s + _LOOK_S:
            self._looked_s = time.perf_counter()
            self._look_around()

    def dismiss(self, limit_s: float | None = None) -> None:
        """Stop every client and take in what is still in flight, until each has said farewell."""
        if self._dismissed:
            return
        self._dismissed = True
        self._keeper.abandon()
        self._link.stop_all()
        limit_s = _FAREWELL_LIMIT_S if limit_s is None else limit_s
        backoff, end_s = Backoff(10e-6, 1e-3), time.perf_counter() + limit_s
        while not self.alone or self._link.recall.awaited:
            for update in self._link.arrivals():
                self._part(update)
            self._link.recall.answer()  # to what is not wanted any more
            for client, _ in self._link.flawed():
                self._link.rearm(client)
            self._mourn(self._link.lost())
            if time.perf_counter() > end_s:
                missing = sorted(set(range(self._clients)) - self._departed)
                raise ClientFailure(f"clients {missing} did not stop within {limit_s:g} s")
            self._look_around_at_times()
            backoff.pause(1.0)

    def _serve(self) -> bool:
        """Handle all updates that are here; none starves, for none is taken twice before the others."""
        arrivals, found_s = self._link.arrivals(), self._clock.now_s()
        flawed, lost = self._link.flawed(), self._link.lost()
        if flawed or lost:
            self._cope(flawed, lost)
        failed = [update.header.client for update in arrivals if update.header.flags not in _ORDINARY]
        self._departed.update(failed)
        for update in arrivals:
            if update.header.client not in failed:
                self._use(update, found_s)
        if failures := [f"client {client} failed:\n{self._link.failure(client)}" for client in failed]:
            raise ClientFailure(failures[0])  # the others said the same, or fell with it
        return bool(arrivals)

    def _cope(self, flawed: Sequence[tuple[int, Reason]], lost: Sequence[int]) -> None:
        """Messages that cannot be read, and clients that are gone."""
        now_s = self._clock.now_s()
        for client, reason in flawed:
            self._conductor.refuse(client, reason, now_s)
            self._link.rearm(client)
        if lost:
            self._mourn(lost)
            self._conductor.lose(lost, now_s)
            self._keeper.lose(lost)
            if not self._watchers.breaks.enabled:  # one of many runs on these ranks, which the others need too
                raise ClientsLost(lost)

    def _mourn(self, lost: Sequence[int]) -> None:
        """These clients will not say farewell."""
        self._departed.update(lost)
        if lost:
            self._link.recall.give_up(lost)

    def _use(self, update: Update, found_s: float) -> None:
        """Answer an update, or count it as discarded where an earlier one of the same poll has ended the run."""
        now_s = self._clock.now_s()
        if self._conductor.ended(now_s):
            self._conductor.discard(update, now_s)
        else:
            used = self._conductor.updates
            self._conductor.update(update, now_s, now_s - found_s)
            if self._conductor.updates > used:  # a refused one may tell any times
                self.timings.add(update.header, *self._conductor.handling)
        self._link.rearm(update.header.client)

    def _part(self, update: Update) -> None:
        """One message after the end: a farewell, or an update that comes too late."""
        client = update.header.client
        if update.header.flags & (Flag.FAREWELL | Flag.FAILED):
            self._departed.add(client)
            if Flag.FAILED in update.header.flags:
                self._late_failures.append(f"client {client} failed:\n{self._link.failure(client)}")
            return
        self._conductor.discard(update, self._clock.now_s())
        self._link.rearm(client)

    def _step_by_clock(self) -> bool:
        now_s = self._clock.now_s()
        if now_s < self._conductor.timer_s or self._conductor.ended(now_s):
            return False
        self._conductor.timer(now_s)
        return True

    def _use_spare_moment(self) -> bool:
        """Do what must not delay a reply; returns whether there was something to do."""
        self._look_around_at_times()
        self._watchers.progress(self._clock.now_s(), self._conductor.updates)
        return self._recorder.spare_moment()

    def _pause(self, backoff: Backoff) -> None:
        """Sleep for a moment, but not beyond what the clock has in store."""
        begun_s, conductor = self._clock.now_s(), self._conductor
        backoff.pause(self._clock.real_s(min(conductor.timer_s, conductor.horizon_s) - begun_s))
        self.idle_s += self._clock.now_s() - begun_s
