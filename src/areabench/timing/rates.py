"""Update rates of the clients: given, or drawn once per trial."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.settings.keys import key
from areabench.streams import Purpose, stream

Rates = NDArray[np.float64]  # updates per second, shape (clients,)

# In 1/s; beyond these limits a duration overflows or is 0.
_RATE_MIN = 1e-300
_RATE_MAX = 1e300


@dataclass(frozen=True, kw_only=True)
class RateSettings:
    """The section [rates]."""

    name: str = ""

    @property
    def typical(self) -> float:
        """Updates per second of one client, as far as it is known before rates are drawn."""
        raise NotImplementedError

    @property
    def mean_rate(self) -> float:
        """Mean updates per second of one client."""
        return self.typical

    def describe(self) -> str:
        """The rates in the words of tables; λ in updates per second."""
        raise NotImplementedError

    def check_clients(self, clients: int) -> None:
        """Raise a UserError where these are not the rates of so many clients."""

    def draw(self, clients: int, generator: np.random.Generator) -> Rates:
        """The rate of each client, shape (clients,)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class UniformRates(RateSettings):
    """Every client has the same update rate."""

    name: str = "uniform"
    rate: float = key("updates per second of each client", 10.0, unit="1/s", above=0)

    @property
    def typical(self) -> float:
        """The rate."""
        return self.rate

    def describe(self) -> str:
        """In words."""
        return f"uniform (λ = {self.rate:g})"

    def draw(self, clients: int, generator: np.random.Generator) -> Rates:
        """All the same."""
        return np.full(clients, self.rate, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class NormalRates(RateSettings):
    """Rates drawn once per trial from N(mean, deviation²); draws that are not positive are repeated."""

    name: str = "normal"
    mean: float = key("mean rate", 10.0, unit="1/s", above=0)
    deviation: float = key("standard deviation of the rates", 5.0, unit="1/s", minimum=0)

    @property
    def typical(self) -> float:
        """The mean."""
        return self.mean

    def describe(self) -> str:
        """In the words of the paper's tables."""
        return f"non-uniform (λ ~ N({self.mean:g}, {self.deviation:g}))"

    def draw(self, clients: int, generator: np.random.Generator) -> Rates:
        """Drawn again where not positive.

        Each pass draws for all clients, so that no client's rate depends on how often another client had to draw. The
        mean is positive, so a draw succeeds with a probability of at least one half.
        """
        rates = np.zeros(clients)
        while (pending := rates <= 0).any():
            draws = self.mean + self.deviation * generator.standard_normal(clients)
            rates[pending] = draws[pending]
        return rates


@dataclass(frozen=True, kw_only=True)
class LognormalRates(RateSettings):
    """Rates drawn once per trial as median·exp(sigma·N(0, 1))."""

    name: str = "lognormal"
    median: float = key("median rate", 10.0, unit="1/s", above=0)
    sigma: float = key("standard deviation of the logarithm", 1.0, minimum=0, maximum=20)

    @property
    def typical(self) -> float:
        """The median."""
        return self.median

    @property
    def mean_rate(self) -> float:
        """The mean, or a bound of it where sigma is large."""
        return self.median * math.exp(min(self.sigma**2 / 2, 50.0))

    def describe(self) -> str:
        """In words."""
        return f"lognormal (median λ = {self.median:g}, σ = {self.sigma:g})"

    def draw(self, clients: int, generator: np.random.Generator) -> Rates:
        """One draw for each client."""
        return self.median * np.exp(self.sigma * generator.standard_normal(clients))


@dataclass(frozen=True, kw_only=True)
class ListedRates(RateSettings):
    """One given rate per client."""

    name: str = "list"
    values: tuple[float, ...] = key("rate of client 0, 1, ...", unit="1/s", above=0)

    @property
    def typical(self) -> float:
        """The mean."""
        return sum(self.values) / len(self.values)

    def describe(self) -> str:
        """In words."""
        return f"listed (λ from {min(self.values):g} to {max(self.values):g})"

    def check_clients(self, clients: int) -> None:
        """There is one for each."""
        if len(self.values) != clients:
            given = f"{len(self.values)} rate{'s' * (len(self.values) != 1)}"
            raise UserError(f"rates.values: {given} for clients.count = {clients}; give one rate per client")

    def draw(self, clients: int, generator: np.random.Generator) -> Rates:
        """As given."""
        return np.array(self.values, dtype=np.float64)


def client_rates(settings: RateSettings, clients: int, seed: int) -> Rates:
    """Updates per second of each client, shape (clients,)."""
    with np.errstate(over="ignore", under="ignore"):  # the error below names what overflowed
        rates = settings.draw(clients, stream(seed, Purpose.RATES))
    bad = np.flatnonzero(~((rates >= _RATE_MIN) & (rates <= _RATE_MAX)))
    if len(bad):
        raise UserError(
            f"the rate of client {bad[0]} is {rates[bad[0]]:g} 1/s, the limits are {_RATE_MIN:g} and {_RATE_MAX:g}; "
            "choose other values under [rates]"
        )
    return rates
