"""Delays of the user's own: yielded by their function, and tried before a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from areabench.errors import RunFailure
from areabench.plugins.call import blaming, caller, record_of, refuse
from areabench.settings.keys import NO_SETTINGS, SAMPLE_PATH, SETTINGS_DOC, Settings, key
from areabench.streams import Purpose, Streams
from areabench.timing.delays import DelaySettings, Durations, Generators, Traces
from areabench.timing.rates import Rates

_TRIED_DELAYS = 16  # of each of the first clients, before a run
_TRIED_CLIENTS = 4


@dataclass(frozen=True, kw_only=True)
class OwnDelays(DelaySettings):
    """A function of the user's own, which is executed."""

    own = True
    opened_once = True
    section: ClassVar[str] = "delays"
    base: ClassVar[type] = DelaySettings
    given: ClassVar[tuple[str, ...]] = ("client", "rate", "generator")

    name: str = SAMPLE_PATH
    settings: Settings = key(SETTINGS_DOC, NO_SETTINGS)

    def opened(self) -> Durations:
        """The user's function, looked up once: that takes longer than a call."""
        if (record := record_of(self)) is not None:
            return record.opened()  # type: ignore[no-any-return]
        function = caller(self)

        def durations(client: int, rate: float, generator: Generators, _traces: Traces) -> Iterator[float]:
            found = function(client=client, rate=rate, generator=generator(client))
            if not hasattr(found, "__iter__"):
                refuse(self, f"returned {type(found).__name__}", "let it yield seconds, one per round")
            number = 0
            for number, duration_s in enumerate(found, 1):
                if not isinstance(duration_s, float | int | np.floating) or not 0 < duration_s < math.inf:
                    raise RunFailure(
                        f"delays.name = {self.name!r} gave {duration_s!r} in round {number - 1} of client {client}; "
                        "give a finite number of seconds above 0"
                    )
                yield float(duration_s)
            rounds = f"{number} round{'s' * (number != 1)}"
            raise RunFailure(
                f"delays.name = {self.name!r} ended after {rounds} of client {client}; let it yield without end"
            )

        return durations

    def try_out(self, rates: Rates, seed: int) -> None:
        """Draw the first delays of some clients twice: they must be positive and finite, and the same."""
        durations = self.opened()
        streams = Streams(seed, Purpose.DELAYS, len(rates))
        # Twice, because the simulator, every rank and every replay draw their own.
        for client in range(min(len(rates), _TRIED_CLIENTS)):
            with blaming(self):
                first, again = (
                    list(islice(durations(client, float(rates[client]), streams.open, ()), _TRIED_DELAYS))
                    for _ in range(2)
                )
            if first != again:
                refuse(self, f"gives client {client} others each time", "draw from its generator only")
