"""The server's loop in real time. It owns the clock; the wire is a `ServerLink`, so it runs without MPI in tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from areabench.conductor import Conductor
from areabench.errors import RunFailure
from areabench.messages import Flag, Order, Update
from areabench.onlookers import TargetWatch
from areabench.recording import Recorder
from areabench.scenario import Scenario
from areabench.schema import Status
from areabench.timings import Timings
from areabench.transports.waiting import Backoff, Clock

_ORDINARY = (Flag.NONE, Flag.OVERRUN)  # before the end there is nothing else but failures
_SPIN_S = 200e-6  # where no other rank wants the core
_FAREWELL_LIMIT_S = 60.0  # how long a client may compute on after it was told to stop


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


class ClientFailure(RunFailure):
    """An exception on a client's rank."""


@dataclass
class Watchers:
    """Who looks on: the target and the progress line."""

    target: TargetWatch
    progress: Callable[[float, int], None]


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
    ) -> None:
        self._link, self._recorder, self._watchers = link, recorder, watchers
        self._clients = scenario.experiment.clients.count
        self._clock = Clock(scenario.experiment.clock.stretch)
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watchers.target, link.order,
            self._clock.now_s,
        )  # fmt: skip
        self._spin_s = _SPIN_S if spare_cores else 0.0
        self.idle_s = 0.0  # slept for want of anything to do, in seconds of the experiment
        self.timings = Timings(self._clients)
        self._departed: set[int] = set()
        self._dismissed = False
        self._late_failures: list[str] = []

    @property
    def alone(self) -> bool:
        """Whether every client has said farewell."""
        return len(self._departed) == self._clients

    def run(self) -> Status:
        """Serve to the end, stop the clients, drain what is in flight; returns how it ended."""
        conductor, clock, backoff = self._conductor, self._clock, Backoff(10e-6, 200e-6, self._spin_s)
        clock.start()
        conductor.start()
        while not (ended := conductor.ended(clock.now_s())):
            if self._serve() | self._step_by_clock():  # both: a stream of updates must not hold the clock's steps up
                backoff.reset()
                self._recorder.relieve()
            elif not self._use_spare_moment():
                self._pause(backoff)
        begun_s = clock.now_s()
        self.dismiss()
        drain_s = clock.now_s() - begun_s
        if self._late_failures:  # in the round that the end cut short
            raise ClientFailure(self._late_failures[0])
        return replace(conductor.finish(ended), drain_s=drain_s)

    def dismiss(self) -> None:
        """Stop every client and take in what is still in flight, until each has said farewell."""
        if self._dismissed:
            return
        self._dismissed = True
        self._link.stop_all()
        backoff, limit_s = Backoff(10e-6, 1e-3), time.perf_counter() + _FAREWELL_LIMIT_S
        while not self.alone:
            for update in self._link.arrivals():
                self._part(update)
            if time.perf_counter() > limit_s:
                missing = sorted(set(range(self._clients)) - self._departed)
                raise ClientFailure(f"clients {missing} did not stop within {_FAREWELL_LIMIT_S:g} s")
            backoff.pause(1.0)

    def _serve(self) -> bool:
        """Handle all updates that are here; none starves, for none is taken twice before the others."""
        arrivals, found_s = self._link.arrivals(), self._clock.now_s()
        failed = [update.header.client for update in arrivals if update.header.flags not in _ORDINARY]
        self._departed.update(failed)
        for update in arrivals:
            if update.header.client not in failed:
                self._use(update, found_s)
        if failures := [f"client {client} failed:\n{self._link.failure(client)}" for client in failed]:
            raise ClientFailure(failures[0])  # the others said the same, or fell with it
        return bool(arrivals)

    def _use(self, update: Update, found_s: float) -> None:
        """Answer an update, or count it as discarded where an earlier one of the same poll has ended the run."""
        now_s = self._clock.now_s()
        if self._conductor.ended(now_s):
            self._conductor.discard(update, now_s)
        else:
            self._conductor.update(update, now_s, now_s - found_s)
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
        self._watchers.progress(self._clock.now_s(), self._conductor.updates)
        return self._recorder.spare_moment()

    def _pause(self, backoff: Backoff) -> None:
        """Sleep for a moment, but not beyond what the clock has in store."""
        begun_s, conductor = self._clock.now_s(), self._conductor
        backoff.pause(self._clock.real_s(min(conductor.timer_s, conductor.horizon_s) - begun_s))
        self.idle_s += self._clock.now_s() - begun_s
