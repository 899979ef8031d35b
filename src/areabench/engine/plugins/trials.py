"""Data sets, splits and delays from outside the package: what they return is looked at before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.errors import RunFailure
from areabench.outside.calling import blaming, call, caller, refuse
from areabench.outside_settings import OutsidePart
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.datasets import Dataset

_TRIED = 16  # delays of each of the first clients that are drawn before a run begins
_TRIED_CLIENTS = 4
_PARTS = "let it return an array of row numbers a client"


# ---------------------------------------------------------------------------------------------------- data


def outside_data(settings: OutsidePart, cache: Path) -> Dataset:
    """The data set that a function of the user's own loads or makes; its arrays are read-only from here on."""
    from areabench.datasets import Dataset  # which loads this module when it is asked for such a data set

    data = call("data", settings, cache=cache)
    if not isinstance(data, Dataset):
        refuse("data", settings, f"returned {type(data).__name__}", "let it return areabench.extend.Dataset")
    for part in ("train", "test"):
        if flaw := _samples_flaw(data, part):
            refuse("data", settings, f"gave {flaw}", "see docs/extending.md for what a data set holds")
    if not math.isfinite(data.scale):
        refuse("data", settings, f"gave the scale {data.scale}", "give a finite number, such as 1.0")
    for array in (data.train_features, data.train_labels, data.test_features, data.test_labels):
        array.flags.writeable = False
    return data


def _samples_flaw(data: Dataset, part: str) -> str:
    features, labels = getattr(data, f"{part}_features"), getattr(data, f"{part}_labels")
    if not isinstance(features, np.ndarray) or features.ndim != 2 or not features.size:
        return f"{part}_features of shape {np.shape(features)}, not (samples, features)"
    if features.dtype.kind not in "uif" or features.shape[1] != data.train_features.shape[1]:
        return f"{part}_features of type {features.dtype} and {features.shape[1]} columns"
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != (len(features),):
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        return f"{part}_labels of type {kind} and shape {np.shape(labels)} for {len(features)} samples, not int64"
    if labels.min() < 0 or labels.max() >= data.classes:
        return f"{part}_labels from {labels.min()} to {labels.max()}, not 0 to classes - 1 = {data.classes - 1}"
    return ""


# ---------------------------------------------------------------------------------------------------- split


def outside_split(settings: OutsidePart, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """The rows of each client, sorted; two clients may hold the same row, and some rows may be held by nobody."""
    found, again = (_drawn_parts(settings, labels, clients, seed) for _ in range(2))
    if len(found) != clients:
        refuse("split", settings, f"returned {len(found)} parts for {clients} clients", "return one a client")
    for client, part in enumerate(found):
        if flaw := _part_flaw(part, len(labels)):
            refuse("split", settings, f"gave client {client} {flaw}", f"give row numbers from 0 to {len(labels) - 1}")
    if any(not np.array_equal(*pair) for pair in zip(found, again, strict=True)):
        refuse("split", settings, "gives other parts each time", "draw from its generator only")
    return [np.sort(part).astype(np.int64, copy=False) for part in found]


def _drawn_parts(settings: OutsidePart, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[Any]]:
    generator = stream(seed, Purpose.SPLIT)
    parts = call("split", settings, labels=labels, clients=clients, generator=generator)
    if not hasattr(parts, "__iter__"):
        refuse("split", settings, f"returned {type(parts).__name__}", _PARTS)
    with blaming("split", settings):  # its code may be a generator, and fail only now
        found = list(parts)
    try:
        return [np.asarray(part) for part in found]
    except (TypeError, ValueError):
        refuse("split", settings, f"returned {type(parts).__name__}", _PARTS)


def _part_flaw(part: NDArray[Any], samples: int) -> str:
    if part.ndim != 1 or not len(part):
        return "no rows" if not part.size else f"an array of shape {part.shape}"
    if part.dtype.kind not in "iu":
        return f"row numbers of type {part.dtype}"
    if part.min() < 0 or part.max() >= samples:
        return f"rows from {part.min()} to {part.max()}"
    return "some row twice" if len(np.unique(part)) < len(part) else ""


# ---------------------------------------------------------------------------------------------------- delays


def outside_delays(
    settings: OutsidePart, client: int, rate: float, seed: int, function: Callable[..., Any] | None = None
) -> Iterator[float]:
    """All durations (s) of a client's rounds from its first one on, as a function of the user's own has them.

    `function` is that of `caller`, where it is at hand: to find it takes longer than to call it.
    """
    generator = stream(seed, Purpose.DELAYS, client)
    durations = (function or caller("delays", settings))(client=client, rate=rate, generator=generator)
    if not hasattr(durations, "__iter__"):
        refuse("delays", settings, f"returned {type(durations).__name__}", "let it yield seconds, one a round")
    number = 0
    for number, duration_s in enumerate(durations, 1):
        if not isinstance(duration_s, float | int | np.floating) or not 0 < duration_s < math.inf:
            raise RunFailure(
                f"delays.name = {settings.name!r} gave {duration_s!r} in round {number - 1} of client {client}; give a "
                "finite number of seconds above 0"
            )
        yield float(duration_s)
    raise RunFailure(
        f"delays.name = {settings.name!r} ended after {number} rounds of client {client}; let it yield for ever"
    )


def try_delays(settings: OutsidePart, rates: NDArray[np.float64], seed: int) -> None:
    """Draw the first delays of some clients, twice: they must be good, and the same."""
    for client in range(min(len(rates), _TRIED_CLIENTS)):
        first, again = (_first_delays(settings, client, float(rates[client]), seed) for _ in range(2))
        if first != again:
            refuse("delays", settings, f"gives client {client} others each time", "draw from its generator only")


def _first_delays(settings: OutsidePart, client: int, rate: float, seed: int) -> list[float]:
    with blaming("delays", settings):
        return list(islice(outside_delays(settings, client, rate, seed), _TRIED))
