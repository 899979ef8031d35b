"""Fixed delays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar, Literal

import numpy as np

from areabench.settings.keys import key
from areabench.timing.delays import PER, DelaySettings, Generators, Rates, Traces


@dataclass(frozen=True, kw_only=True)
class FixedDelays(DelaySettings):
    """Exactly 1/rate between two updates of a client, computing included."""

    follows_rates: ClassVar[bool] = True
    certain: ClassVar[bool] = True

    name: Literal["fixed"] = "fixed"
    per: Literal["round", "step"] = key(PER, "round", written=False)

    def counts(self, rates: Rates, duration_s: float, traces: Traces) -> Rates | None:
        """Whole rounds."""
        return np.floor(rates * duration_s + 1e-9)

    def durations(self, client: int, rate: float, generator: Generators, traces: Traces) -> Iterator[float]:
        """Always the same."""
        return repeat(1 / rate)
