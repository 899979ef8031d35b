"""Random numbers: one stream per (seed, purpose, client), so that no draw depends on the order of arrivals."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of the definition of a run and never change."""

    SPLIT = 1
    RATES = 2
    DELAYS = 3
    SAMPLES = 4
    START = 5
    PROBLEM = 6
    SELECTION = 7
    AGGREGATION = 8
    REPLACEMENT = 9
    WORK = 10
    RULE = 11  # whatever a rule draws


def stream(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """The stream of one purpose; `index` is the client, or the number of the draw where the server draws."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose, index])))
