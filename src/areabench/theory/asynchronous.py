"""Step sizes that the theory of other methods advises: asynchronous SGD, Ringmaster, Rennala, Malenia, Ringleader.

All are for one gradient per update (M = 1), with the smoothness L, the noise sigma of a gradient, and epsilon, the mean
squared norm of the gradient that is wanted. Constants of order 1 differ between papers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]  # updates per second, shape (clients,)


def slowest_delay(rates: Rates) -> float:
    """tau_max, about: the updates of all others during a mean round of the slowest client."""
    return float((rates.sum() - rates.min()) / rates.min())


def delay_dependent_step(L: float, tau_max: float) -> float:
    """1/(4 L tau_max), at most 1/(4 L): the least step of Koloskova et al.'s rule, as a constant."""
    return 1 / (4 * L * max(tau_max, 1.0))


def concurrency_step(L: float, concurrency: int) -> float:
    """About 1/(L C), whatever the delays: Mishchenko et al.; C orders are out at any time."""
    return 1 / (L * concurrency)


def ringmaster_step(L: float, sigma: float, epsilon: float, threshold: int) -> float:
    """min(1/(2 R L), epsilon/(4 L sigma²))."""
    return min(1 / (2 * threshold * L), _noise_step(epsilon, 4 * L, sigma))


def batch_step(L: float, sigma: float, epsilon: float, batch: float) -> float:
    """Rennala's and Malenia's min(1/L, epsilon S/(2 L sigma²))."""
    return min(1 / L, _noise_step(epsilon * batch, 2 * L, sigma))


def ringleader_batch(rates: Rates) -> float:
    """B, at least: half of the slowest client's time over the mean time, and never below 1."""
    times = 1 / rates
    return max(1.0, float(times.max() / (2 * times.mean())))


def ringleader_step(L: float, sigma: float, epsilon: float, clients: int, batch: float) -> float:
    """min(1/(8 n L), epsilon B/(10 L sigma²))."""
    return min(1 / (8 * clients * L), _noise_step(epsilon * batch, 10 * L, sigma))


def _noise_step(numerator: float, factor: float, sigma: float) -> float:
    return numerator / (factor * sigma**2) if sigma else math.inf
