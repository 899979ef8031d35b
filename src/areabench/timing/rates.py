"""Update rates of the clients: given, or drawn once per trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment.records import (
    ListedRates,
    LognormalRates,
    NormalRates,
    RateSettings,
    UniformRates,
)
from areabench.streams import Purpose, stream

_RATE_MIN, _RATE_MAX = 1e-300, 1e300  # 1/s; beyond these limits a duration overflows or is 0


def client_rates(settings: RateSettings, clients: int, seed: int) -> NDArray[np.float64]:
    """Updates per second of each client, shape (clients,)."""
    generator = stream(seed, Purpose.RATES)
    with np.errstate(over="ignore", under="ignore"):  # `_checked` names what overflowed
        match settings:
            case UniformRates():
                rates = np.full(clients, settings.rate, dtype=np.float64)
            case NormalRates():
                rates = _positive_normal(settings, clients, generator)
            case LognormalRates():
                rates = settings.median * np.exp(settings.sigma * generator.standard_normal(clients))
            case ListedRates():
                rates = np.array(settings.values, dtype=np.float64)
    return _checked(rates)


def _positive_normal(settings: NormalRates, clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Rates from N(mean, deviation²), drawn again where not positive.

    Each pass draws for all clients, so that no client's rate depends on how often another client had to draw. The mean
    is positive, so a draw succeeds with a probability of at least one half.
    """
    rates = np.zeros(clients)
    while (pending := rates <= 0).any():
        draws = settings.mean + settings.deviation * generator.standard_normal(clients)
        rates[pending] = draws[pending]
    return rates


def _checked(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates, or an error that names the first rate from which no duration can be computed."""
    bad = np.flatnonzero(~((rates >= _RATE_MIN) & (rates <= _RATE_MAX)))
    if len(bad):
        raise UserError(
            f"the rate of client {bad[0]} is {rates[bad[0]]:g} 1/s, the limits are {_RATE_MIN:g} and {_RATE_MAX:g}; "
            "choose other values under [rates]"
        )
    return rates
