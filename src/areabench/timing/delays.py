"""Delays: how long each round of each client takes, and how many local steps it has where the client chooses.

Durations are drawn per client and in the order of its rounds, so a simulated and a real run have the same durations.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from areabench.settings.keys import key
from areabench.streams import Purpose, Streams, stream
from areabench.timing.rates import Rates

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients

Traces = Sequence["array[float]"]  # the delays of each client, where they are known

PER = "what a delay is for: a round, or each local step of it; rates are then local steps per second"


@dataclass(frozen=True, kw_only=True)
class DelaySettings:
    """The section [delays]; the file of each delay model has a record of its own."""

    own: ClassVar[bool] = False  # whether this is a part of the user's own
    follows_rates: ClassVar[bool] = False  # whether the mean duration is 1/rate
    memoryless: ClassVar[bool] = False  # whether updates come as a Poisson process
    certain: ClassVar[bool] = False  # whether no duration is drawn
    opened_once: ClassVar[bool] = False  # whether a client's durations are asked for once

    name: str = ""
    per: Literal["round", "step"] = key(PER, "round", written=False)

    @property
    def source(self) -> str | None:
        """The file that lists the delays, if there is one."""
        return None

    def traces(self, clients: int) -> Traces:
        """The delays of each client where a file lists them; a UserError if it cannot be used."""
        return ()

    def counts(self, rates: Rates, duration_s: float, traces: Traces) -> Rates | None:
        """How many delays of each client fit into `duration_s`; None where that is random, or not known."""
        return None

    def durations(self, client: int, rate: float, generator: Generators, traces: Traces) -> Iterator[float]:
        """All durations (s) of a client, from its first round on."""
        raise NotImplementedError

    def opened(self) -> Durations:
        """What gives the durations of each client of a run."""
        return self.durations

    def try_out(self, rates: Rates, seed: int) -> None:
        """Raise a UserError where delays that are not the package's cannot be used."""


Generators = Callable[[int], np.random.Generator]  # opens the stream of a client
Durations = Callable[[int, float, Generators, Traces], Iterator[float]]


def drawn_steps(settings: Clients, seed: int, client: int, number: int) -> int:
    """How many local steps a client makes in its round `number`: 1 to M, each with the same probability."""
    generator = stream(seed, Purpose.WORK, client + (number << 32))  # no draw depends on earlier rounds
    return int(generator.integers(1, settings.local_steps, endpoint=True))


class RoundTime(NamedTuple):
    """The duration of a round, and when each of its local steps ends; seconds since its begin."""

    duration_s: float
    local_steps: int
    step_ends_s: tuple[float, ...] = ()  # empty: the steps are equally long

    def step_end_s(self, number: int) -> float:
        """When local step `number`, counted from 1, ends."""
        if self.step_ends_s:
            return self.step_ends_s[number - 1]
        return self.duration_s * (number / self.local_steps)

    def steps_in(self, elapsed_s: float) -> int:
        """How many local steps have ended after this time."""
        made = 0
        while made < self.local_steps and self.step_end_s(made + 1) <= elapsed_s:
            made += 1
        return made


class Delays:
    """Durations of all clients' rounds.

    A client's stream is opened for its first duration, and again for its second one, to stay open: a simulator may have
    a million clients most of which have begun one round. A function of the user's own is called once per client.
    """

    def __init__(self, settings: DelaySettings, rates: Rates, seed: int) -> None:
        self._settings = settings
        self._rates = rates
        self._traces = settings.traces(len(rates))
        self._open = settings.opened()
        self.per_step = settings.per == "step"
        self._streams = Streams(seed, Purpose.DELAYS, len(rates))
        self._durations: dict[int, Iterator[float]] = {}
        self._begun = np.zeros(len(rates), np.bool_)  # by client, whether its first duration was drawn
        self._passed_s: dict[int, float] = {}  # by client, the sum of its durations where its rounds are made of ticks

    def round_time(self, client: int, local_steps: int) -> RoundTime:
        """The time of the client's next round of this many local steps."""
        if not self.per_step:
            return RoundTime(self.next_s(client), local_steps)
        ends_s = tuple(accumulate(self.next_s(client) for _ in range(local_steps)))
        return RoundTime(ends_s[-1] if ends_s else 0.0, local_steps, ends_s)

    def ticking_round(self, client: int, tick_s: float, most: int) -> RoundTime:
        """The client's next round, with a local step at each tick in it, but at most `most`.

        All clients tick at multiples of `tick_s`. Where each round begins as the one before ends, no tick is left out
        between two rounds, so that clients with short rounds make as many steps in all as others.
        """
        begun_s = self._passed_s.get(client, 0.0)
        duration_s = self.next_s(client)
        ended_s = begun_s + duration_s
        self._passed_s[client] = ended_s
        return RoundTime(duration_s, min(int(ended_s / tick_s) - int(begun_s / tick_s), most))

    def skip_rounds(self, client: int, rounds: int, local_steps: int) -> None:
        """Skip this number of the client's rounds, which had this number of local steps together."""
        passed_s = self._passed_s.get(client, 0.0)
        for _ in range(local_steps if self.per_step else rounds):
            passed_s += self.next_s(client)
        self._passed_s[client] = passed_s

    def next_s(self, client: int) -> float:
        """The client's next duration, in seconds."""
        durations = self._durations.get(client)
        if durations is None:
            # Of a client that begins its second round, the first duration is drawn once more and left out.
            durations = self._open(client, float(self._rates[client]), self._streams.open, self._traces)
            if self._begun[client]:
                next(durations)
            elif not self._settings.opened_once:
                self._begun[client] = True
                return next(durations)
            self._durations[client] = durations
        return next(durations)
