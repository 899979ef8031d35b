"""Delays: how long each round of each client takes.

Durations are drawn per client and in the order of its rounds, so a simulated and a real run have the same durations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from areabench.experiment.fields import OwnPart
from areabench.experiment.records import (
    DelaySettings,
    ExponentialDelays,
    FixedDelays,
    TraceDelays,
)
from areabench.experiment.traces import read_trace
from areabench.streams import Purpose, stream

_DRAWS_AHEAD = 16  # durations drawn per call: few, because a simulator may have 100,000 clients


class Delays:
    """Durations of all clients' rounds; a client's stream is opened at its first use."""

    def __init__(
        self,
        settings: DelaySettings,
        rates: NDArray[np.float64],
        seed: int,
        own: Callable[[int], Iterator[float]] | None = None,
    ) -> None:
        """`own` gives all durations of a client, where the settings name a function of the user's own."""
        self._settings, self._rates, self._seed = settings, rates, seed
        self._traces = read_trace(Path(settings.file), len(rates)) if isinstance(settings, TraceDelays) else []
        self._own = own
        self._durations: dict[int, Iterator[float]] = {}

    def next_s(self, client: int) -> float:
        """The duration of the client's next round, in seconds."""
        durations = self._durations.get(client)
        if durations is None:
            durations = self._durations[client] = self._open(client)
        return next(durations)

    def skip(self, client: int, rounds: int) -> None:
        """Skip this number of the client's rounds."""
        for _ in range(rounds):
            self.next_s(client)

    def _open(self, client: int) -> Iterator[float]:
        """All durations of a client, from its first round on."""
        rate = float(self._rates[client])
        match self._settings:
            case ExponentialDelays():
                return _exponential(rate, stream(self._seed, Purpose.DELAYS, client))
            case FixedDelays():
                return repeat(1 / rate)
            case TraceDelays():
                return _cycle(self._traces[client])
            case OwnPart():
                assert self._own is not None
                return self._own(client)


def _exponential(rate: float, generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from (generator.standard_exponential(_DRAWS_AHEAD) / rate).tolist()


def _cycle(values: Sequence[float]) -> Iterator[float]:
    """The values again and again; unlike itertools.cycle, without a copy of them."""
    while True:
        yield from values
