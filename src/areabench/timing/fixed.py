"""Fixed delays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from areabench.timing.delays import DelaySettings, Generators, Traces
from areabench.timing.rates import Rates


@dataclass(frozen=True, kw_only=True)
class FixedDelays(DelaySettings):
    """Exactly 1/rate between two updates of a client, computing included."""

    follows_rates = True
    certain = True

    name: str = "fixed"

    def counts(self, rates: Rates, duration_s: float, traces: Traces) -> Rates | None:
        """Whole rounds."""
        # A round that ends with the duration counts, however the product was rounded.
        return np.floor(rates * duration_s + 1e-9)

    def durations(self, client: int, rate: float, generator: Generators, traces: Traces) -> Iterator[float]:
        """Always the same."""
        return repeat(1 / rate)
