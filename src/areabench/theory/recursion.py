"""Theorem 1 by iteration: the one-step inequalities of Appendix B, applied to all 2n+1 distances, for k = 0..K.

Sharper than the closed form: neither p_min nor a Lyapunov function nor a simplified constant enters. The matrix A_k
has no negative element, so an upper bound of all distances at k gives one at k + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.theory.contraction import contraction_beta
from areabench.theory.schedule import step_limit
from areabench.theory.setting import Distances, LemmaConstants, Setting, lemma_constants, start_squared


@dataclass(frozen=True)
class _Step:
    """One iteration: alpha_k, beta_k, and (alpha_k - alpha_{k+1}) LM zeta, the most that x_{i,k}* may move."""

    alpha: float
    beta: float
    moved: float


def recursion_bound(setting: Setting, iterations: int) -> NDArray[np.float64]:
    """An upper bound of E|x_{s,k} - x*|² for k = 0..`iterations` with Theorem 1's step sizes, shape (iterations+1,)."""
    return recursion_bound_for(setting, setting.schedule.step_sizes(iterations + 1 + setting.convention.lag))


def recursion_bound_for(setting: Setting, step_sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for any step sizes that never grow and start at most at D.

    `step_sizes` holds the paper's alpha_0, alpha_1, ..., shape (K+1,), or (K+2,) where alpha_0 is for the first round.
    """
    _check(setting, step_sizes)
    trained, sent = float(step_sizes[0]), step_sizes[setting.convention.lag :]
    lemma = lemma_constants(setting.constants, setting.local_steps)
    squared = start_squared(setting, trained, float(sent[0]))
    norms = squared.roots()
    bounds = np.empty(len(sent))
    bounds[0] = squared.server
    for k in range(len(sent) - 1):
        step = _step(setting, lemma, float(sent[k]), float(sent[k + 1]))
        norms, squared = _next_norms(setting, lemma, step, norms), _next_squared(setting, lemma, step, norms, squared)
        norms = _jensen(norms, squared)
        bounds[k + 1] = squared.server
    return bounds


def _check(setting: Setting, step_sizes: NDArray[np.float64]) -> None:
    limit = step_limit(setting.constants, setting.local_steps).value
    if len(step_sizes) <= setting.convention.lag:
        least = setting.convention.lag + 1
        raise UserError(f"there are {len(step_sizes)} step sizes, the least is {least}; give alpha_0, alpha_1, ...")
    if not 0 < step_sizes[0] <= limit * (1 + 1e-12):
        raise UserError(f"the first step size is {step_sizes[0]}, the limit is D = {limit}; take a smaller one")
    if (np.diff(step_sizes) > 0).any() or (step_sizes <= 0).any():
        raise UserError("the step sizes grow or are not positive, the limit is a sequence that never grows; sort them")


def _step(setting: Setting, lemma: LemmaConstants, alpha: float, following: float) -> _Step:
    beta = contraction_beta(alpha, setting.local_steps, setting.constants.gamma)
    return _Step(alpha, beta, (alpha - following) * lemma.shift)


def _next_norms(setting: Setting, lemma: LemmaConstants, step: _Step, norms: Distances) -> Distances:
    """Lemmas s_norm, y_norm and x_norm."""
    p, p_s, constants = setting.probabilities.clients, setting.probabilities.server, setting.constants
    noise = step.alpha**2 * lemma.norm_zeta * constants.zeta + step.alpha * lemma.norm_sigma * constants.sigma
    return Distances(
        local=(1 - p) * norms.local + step.moved + p * (step.beta * norms.server + noise),
        memory=(1 - p) * norms.memory + p * norms.local + step.moved,
        server=(1 - p_s) * norms.server + p_s * float(norms.memory.mean()),
    )


def _next_squared(
    setting: Setting, lemma: LemmaConstants, step: _Step, norms: Distances, squared: Distances
) -> Distances:
    """Lemmas s_norm_squared, y_norm_squared and x_norm_squared, in the last 1 + p_i times the squared shift."""
    p, p_s, constants = setting.probabilities.clients, setting.probabilities.server, setting.constants
    noise = step.alpha**2 * lemma.squared_sigma * constants.sigma**2
    drift = step.alpha**3 * lemma.squared_zeta * constants.zeta**2
    shrunk = 2 * step.beta - 1  # 1 - alpha_k M gamma/2
    return Distances(
        local=(1 - p) * (squared.local + 2 * step.moved * norms.local)
        + (1 + p) * step.moved**2
        + p * (step.beta * squared.server + 2 * step.moved * shrunk * norms.server + noise + drift),
        memory=(1 - p) * (squared.memory + 2 * step.moved * norms.memory)
        + step.moved**2
        + p * (squared.local + 2 * step.moved * norms.local),
        server=(1 - p_s) * squared.server + p_s * float(squared.memory.mean()),
    )


def _jensen(norms: Distances, squared: Distances) -> Distances:
    """The lesser of each norm's bound and the root of its square's: E|v| <= sqrt(E|v|²)."""
    return Distances(
        local=np.minimum(norms.local, np.sqrt(squared.local)),
        memory=np.minimum(norms.memory, np.sqrt(squared.memory)),
        server=min(norms.server, squared.server**0.5),
    )
