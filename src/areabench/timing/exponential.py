"""Exponential delays: updates of each client come as a Poisson process, as in the paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from areabench.timing.delays import DelaySettings, Generators, Traces

_DRAWS_AHEAD = 16  # durations drawn per call: few, because a simulator may have 100,000 clients


@dataclass(frozen=True, kw_only=True)
class ExponentialDelays(DelaySettings):
    """Exp(rate) between two updates of a client, computing included."""

    follows_rates = True
    memoryless = True

    name: str = "exponential"

    def durations(self, client: int, rate: float, generator: Generators, traces: Traces) -> Iterator[float]:
        """Drawn from the client's stream."""
        drawn = generator(client)
        yield drawn.standard_exponential() / rate  # alone: at the start no client needs more
        while True:
            yield from (drawn.standard_exponential(_DRAWS_AHEAD) / rate).tolist()
