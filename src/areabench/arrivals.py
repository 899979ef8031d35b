"""The arrivals of two runs against each other: their order and their times. An arrival is a client and its round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.schema import Kind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """The updates that the server used, in its order."""

    client: Integers
    round: Integers
    time_s: Floats


@dataclass(frozen=True)
class Quantiles:
    """Percentiles of a distribution; NaN where it is empty."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Order:
    """How far apart the orders of arrivals are."""

    common: int  # arrivals, told apart by (client, round), that both runs have
    only_first: int
    only_second: int
    distance: float  # share of the pairs of common arrivals that come in the other order: 0 same, 1/2 random
    places_moved: Quantiles  # by which a common arrival is earlier or later in the second order
    differs_at: int | None  # place, from 0, of the first arrival that is not the same one; None: equal sequences
    differs_at_s: float  # its time in the first run, or the end of that run's arrivals; NaN for equal sequences


@dataclass(frozen=True)
class Shift:
    """By how much later the arrivals that both runs have come in the second."""

    seconds: Quantiles
    offset_s: float  # of the line that fits the shifts best over time: how late the second run begins
    drift_percent: float  # its slope: how much slower the second run's clients are


def arrivals(events: NDArray[Any]) -> Arrivals:
    """The updates among the events of a run file."""
    used = events[events["kind"] == Kind.UPDATE]
    return Arrivals(used["client"].astype(np.int64), used["round"], used["time_s"])


def order_of(first: Arrivals, second: Arrivals) -> Order:
    """How far apart two orders of arrivals are; O(N log N)."""
    keys_first, keys_second = _keys(first, second)
    at_first, at_second = _common(first, second)
    permutation = np.argsort(np.argsort(at_second))
    moved = np.abs(permutation - np.arange(len(permutation)))
    place = first_difference(keys_first, keys_second)
    ends_s = np.append(first.time_s, first.time_s[-1:])  # where the first is the beginning of the second: its end
    return Order(
        common=len(at_first),
        only_first=len(keys_first) - len(at_first),
        only_second=len(keys_second) - len(at_first),
        distance=discordance(permutation),
        places_moved=quantiles(moved),
        differs_at=place,
        differs_at_s=math.nan if place is None or not len(ends_s) else float(ends_s[place]),
    )


def discordance(permutation: Integers) -> float:
    """Share of all pairs that stand in the wrong order: (1 - Kendall's tau)/2; 0 for fewer than two entries."""
    count = len(permutation)
    return 2.0 * inversions(permutation) / (count * (count - 1)) if count > 1 else 0.0


def inversions(permutation: Integers) -> int:
    """Pairs i < j with permutation[i] > permutation[j], in O(N log N).

    Bit by bit from the top, entries whose higher bits agree stand together in their old order: a pair in which a 1 of
    this bit comes before a 0 is an inversion. Then zeros and ones are parted. Entries are 0 to N - 1, each once, so the
    higher bits alone say where a group begins.
    """
    values, index, total = permutation.astype(np.int64), np.arange(len(permutation)), 0
    for bit in reversed(range(max(len(values) - 1, 0).bit_length())):
        start, ones = values >> bit + 1 << bit + 1, values >> bit & 1
        counted = np.concatenate(([0], np.cumsum(ones)))
        ones_before = counted[index] - counted[start]
        total += int(ones_before[ones == 0].sum())
        rank = np.where(ones, ones_before, index - start - ones_before)
        parted = np.empty_like(values)
        parted[(values >> bit << bit) + rank] = values
        values = parted
    return total


def first_difference(first: Integers, second: Integers) -> int | None:
    """The first place where two sequences differ; the length of the shorter where it begins the longer one."""
    shorter = min(len(first), len(second))
    differ = np.flatnonzero(first[:shorter] != second[:shorter])
    if len(differ):
        return int(differ[0])
    return None if len(first) == len(second) else shorter


def _keys(first: Arrivals, second: Arrivals) -> tuple[Integers, Integers]:
    """A number for each (client, round)."""
    rounds = 1 + max(int(one.round.max(initial=0)) for one in (first, second))
    return first.client * rounds + first.round, second.client * rounds + second.round


def _common(first: Arrivals, second: Arrivals) -> tuple[Integers, Integers]:
    """The places of the arrivals that both have, in the order of the first."""
    _, at_first, at_second = np.intersect1d(*_keys(first, second), assume_unique=True, return_indices=True)
    by_first = np.argsort(at_first)
    return at_first[by_first], at_second[by_first]


# ---------------------------------------------------------------------------------------------------- time


def time_shifts(first: Arrivals, second: Arrivals) -> tuple[Floats, Floats]:
    """Of each common arrival its time in the first run, and by how much later it is in the second, in seconds."""
    at_first, at_second = _common(first, second)
    time_s = first.time_s[at_first]
    return time_s, second.time_s[at_second] - time_s


def shift_of(time_s: Floats, shift_s: Floats) -> Shift:
    """Quantiles, and the straight line that fits best; NaN where all arrivals are at one time."""
    mean_s, variance = time_s.mean() if len(time_s) else math.nan, time_s.var() if len(time_s) else 0.0
    slope = float(((time_s - mean_s) * shift_s).mean() / variance) if variance else math.nan
    offset_s = float(shift_s.mean() - slope * mean_s) if variance else math.nan
    return Shift(quantiles(shift_s), offset_s, 100.0 * slope)


def quantiles(values: NDArray[Any]) -> Quantiles:
    """The three percentiles; NaN of nothing."""
    found = np.percentile(values, (50, 95, 99)).tolist() if len(values) else [math.nan] * 3
    return Quantiles(*found)
