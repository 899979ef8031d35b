"""Theorem 1's step sizes: the limit D with its four terms, and the sequence alpha_k that starts at D."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from areabench.theory.checks import require_computable, require_count, require_positive
from areabench.theory.constants import Constants


@dataclass(frozen=True)
class StepLimit:
    """The four terms of D in Theorem 1, in its order; those with M - 1 are infinite for M = 1.

    For M >= 2 `drift_squared_norm` is always the least: see docs/theory-corrections.md.
    """

    smoothness: float
    drift_norm: float
    drift_squared_norm: float
    drift_cubed: float

    @property
    def value(self) -> float:
        """D = the least of the four terms."""
        return min(self.smoothness, self.drift_norm, self.drift_squared_norm, self.drift_cubed)

    @property
    def active(self) -> str:
        """The name of the term that is D."""
        return next(field.name for field in fields(self) if getattr(self, field.name) == self.value)


def step_limit(constants: Constants, local_steps: int) -> StepLimit:
    """D = min{2/(M(mu+L)), gamma/(L²(M-1)), sqrt(M gamma²/(64 L⁴(M-1)³)), cbrt(gamma/(32 L⁴(M-1)³))}, Theorem 1."""
    require_count("the number of local steps M", local_steps)
    M, L, gamma = local_steps, constants.L, constants.gamma
    smoothness = 2 / (M * (constants.mu + L))
    if M == 1:
        return StepLimit(smoothness, math.inf, math.inf, math.inf)
    drift = L**4 * (M - 1) ** 3
    return StepLimit(
        smoothness=smoothness,
        drift_norm=gamma / (L**2 * (M - 1)),
        drift_squared_norm=math.sqrt(M * gamma**2 / (64 * drift)),
        drift_cubed=math.cbrt(gamma / (32 * drift)),
    )


@dataclass(frozen=True)
class TheoremSchedule:
    """alpha_k = c/(k + d), eq. (step size_definition)."""

    c: float
    d: float

    def step_size(self, iteration: int) -> float:
        """alpha_k for k = `iteration`."""
        return self.c / (iteration + self.d)

    def step_sizes(self, count: int) -> NDArray[np.float64]:
        """alpha_0 to alpha_{count-1}."""
        return self.c / (np.arange(count, dtype=np.float64) + self.d)


def theorem_schedule(constants: Constants, local_steps: int, minimum_probability: float) -> TheoremSchedule:
    """Theorem 1's alpha_k = 1/(p_min M gamma k/48 + 1/D) as c/(k + d): c = 48/(p_min M gamma), d = c/D."""
    require_positive("the least event probability p_min", minimum_probability)
    require_computable("the least event probability p_min", minimum_probability)
    c = 48 / (minimum_probability * local_steps * constants.gamma)
    return TheoremSchedule(c, c / step_limit(constants, local_steps).value)
