"""The clock of the clients: an update rate for each, and how long each of its rounds takes.

Both are drawn per client and in round order, so a simulated and a real run see the same durations.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment import (
    DelaySettings,
    ExponentialDelays,
    FixedDelays,
    ListedRates,
    LognormalRates,
    NormalRates,
    RateSettings,
    TraceDelays,
    UniformRates,
)
from areabench.outside.calling import caller
from areabench.outside.data import outside_delays
from areabench.outside_settings import OutsidePart
from areabench.streams import Purpose, stream

_DRAWS_AHEAD = 16  # durations drawn in one call: few, because a simulator may hold 100,000 clients
_RATE_MIN, _RATE_MAX = 1e-300, 1e300  # 1/s; beyond these a duration overflows or vanishes
_HEADER = ["client", "delay_s"]


def client_rates(settings: RateSettings, clients: int, seed: int) -> NDArray[np.float64]:
    """Updates a second of each client, shape (clients,)."""
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
                rates = _listed(settings, clients)
    return _checked(rates)


def _positive_normal(settings: NormalRates, clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Rates from N(mean, deviation²), drawn again where not positive.

    Each pass draws for all clients, so that no client's rate depends on how often another one had to draw. As the mean
    is positive, a draw succeeds with a probability of at least one half.
    """
    rates = np.zeros(clients)
    while (pending := rates <= 0).any():
        draws = settings.mean + settings.deviation * generator.standard_normal(clients)
        rates[pending] = draws[pending]
    return rates


def _listed(settings: ListedRates, clients: int) -> NDArray[np.float64]:
    if len(settings.values) != clients:
        raise UserError(
            f"rates.values lists {len(settings.values)} rates for {clients} clients; write one rate a client, "
            f"or set clients.count to {len(settings.values)}"
        )
    return np.array(settings.values, dtype=np.float64)


def _checked(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates themselves, or an error that names the first one no duration can be computed from."""
    bad = np.flatnonzero(~((rates >= _RATE_MIN) & (rates <= _RATE_MAX)))
    if len(bad):
        raise UserError(
            f"the rate of client {bad[0]} is {rates[bad[0]]:g} 1/s, the limits are {_RATE_MIN:g} and {_RATE_MAX:g}; "
            "choose other values under [rates]"
        )
    return rates


class Delays:
    """Durations of all clients' rounds; a client's stream is opened when it is first asked for."""

    def __init__(self, settings: DelaySettings, rates: NDArray[np.float64], seed: int) -> None:
        self._settings, self._rates, self._seed = settings, rates, seed
        self._traces = read_trace(Path(settings.file), len(rates)) if isinstance(settings, TraceDelays) else []
        self._function = caller("delays", settings) if isinstance(settings, OutsidePart) else None
        self._durations: dict[int, Iterator[float]] = {}

    def next_s(self, client: int) -> float:
        """The duration of the client's next round, in seconds."""
        durations = self._durations.get(client)
        if durations is None:
            durations = self._durations[client] = self._open(client)
        return next(durations)

    def skip(self, client: int, rounds: int) -> None:
        """Go past so many of the client's rounds."""
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
                return _again_and_again(self._traces[client])
            case OutsidePart():
                return outside_delays(self._settings, client, rate, self._seed, self._function)


def _exponential(rate: float, generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from (generator.standard_exponential(_DRAWS_AHEAD) / rate).tolist()


def _again_and_again(values: Sequence[float]) -> Iterator[float]:
    """Like itertools.cycle, without its copy of the values."""
    while True:
        yield from values


# ---------------------------------------------------------------------------------------------------- traces


def read_trace(path: Path, clients: int) -> list[array[float]]:
    """The delays (s) of each client in file order, from a CSV file with the header `client,delay_s`."""
    if path.exists() and not path.is_file():  # a pipe would wait, a device may never end
        raise UserError(f"trace {path}: is not a regular file; check delays.file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            traces = _read_rows(file, path, clients)
    except OSError as error:
        raise UserError(f"trace {path}: {error.strerror or error}; check delays.file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"trace {path}: not a CSV text file ({error}); check delays.file") from error
    for client, delays in enumerate(traces):
        if not delays:
            raise UserError(f"trace {path}: no line for client {client} of {clients}; each client needs a delay")
    return traces


def _read_rows(file: TextIO, path: Path, clients: int) -> list[array[float]]:
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    if header != _HEADER:
        raise UserError(f"trace {path}, line 1: header {','.join(header)[:80]!r}, expected {','.join(_HEADER)!r}")
    traces = [array("d") for _ in range(clients)]
    for row in reader:
        if row:  # a blank line is an empty row
            _read_row(row, traces, f"trace {path}, line {reader.line_num}")
    return traces


def _read_row(row: list[str], traces: list[array[float]], place: str) -> None:
    """Append one row's delay to its client's trace; `place` begins the error."""
    if len(row) != len(_HEADER):
        raise UserError(f"{place}: {len(row)} columns, expected {len(_HEADER)}: {','.join(_HEADER)}")
    client, delay_s = _client_number(row[0], len(traces), place), _delay(row[1], place)
    traces[client].append(delay_s)


def _client_number(text: str, clients: int, place: str) -> int:
    try:
        client = int(text)
    except ValueError as error:
        raise UserError(f"{place}: client {text[:40]!r} is not a whole number; write 0 to {clients - 1}") from error
    if not 0 <= client < clients:
        raise UserError(f"{place}: unknown client {str(client)[:40]}; write 0 to {clients - 1}, or raise clients.count")
    return client


def _delay(text: str, place: str) -> float:
    try:
        delay_s = float(text)
    except ValueError as error:
        raise UserError(f"{place}: delay {text[:40]!r} is not a number; write seconds, such as 0.1") from error
    if not (math.isfinite(delay_s) and delay_s > 0):
        raise UserError(f"{place}: delay {text.strip()} s is not allowed; write a finite number of seconds above 0")
    return delay_s
