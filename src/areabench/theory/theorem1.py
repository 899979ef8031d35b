"""Theorem 1, strongly convex functions: step sizes, and bounds of E|x_s - x*|².

The bound exists twice: by the proof's recursion, and in closed form with all constants written out. The closed form
follows eq. (Lamba_convergence_starter) to eq. (Lambda_k_bound_final) without an O(.): tau = d - 1, T = K + d - 1, and
sums are bounded by integrals. docs/theory-corrections.md lists what differs from print.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.theory.constants import (
    Constants,
    delta,
    require_computable,
    require_count,
    require_not_negative,
    require_positive,
)
from areabench.theory.probabilities import EventProbabilities

# ---------------------------------------------------------------------------------------------------- step sizes


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


class Convention(Enum):
    """How iterations are counted: the paper's algorithms and its appendix differ at the start and by one index.

    ALGORITHM: clients train on x_{s,0} with alpha_0 before iteration 1, and alpha_{k+1} is sent with x_{s,k}, as in
    areabench. APPENDIX: x_{i,0} = x_{s,0}, and alpha_k is sent with x_{s,k}, eq. (x_k). ZERO_FIRST: x_{i,0} = x_{s,0},
    and alpha_{k+1} is sent with x_{s,k}, as areabench runs AREA with `method.first_message = "zero"`.
    """

    ALGORITHM = "algorithm"
    APPENDIX = "appendix"
    ZERO_FIRST = "zero first"

    @property
    def lag(self) -> int:
        """By how many iterations the index of the step size is ahead of that of the model it is sent with."""
        return 0 if self is Convention.APPENDIX else 1


@dataclass(frozen=True)
class Setting:
    """A strongly convex problem, its event probabilities, M local steps, and |x_{s,0} - x*|."""

    constants: Constants
    probabilities: EventProbabilities
    local_steps: int
    start_distance: float
    convention: Convention = Convention.ALGORITHM

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        require_count("the number of local steps M", self.local_steps)
        require_not_negative("the distance |x_{s,0} - x*|", self.start_distance)

    @property
    def schedule(self) -> TheoremSchedule:
        """Theorem 1's alpha_0, alpha_1, ..."""
        return theorem_schedule(self.constants, self.local_steps, self.probabilities.minimum)

    @property
    def sent(self) -> TheoremSchedule:
        """The step sizes sent with x_{s,0}, x_{s,1}, ...: alpha_1, alpha_2, ..., in the appendix alpha_0, ..."""
        return TheoremSchedule(self.schedule.c, self.schedule.d + self.convention.lag)


# ---------------------------------------------------------------------------------------------------- contraction


def contraction_beta(step_size: float, local_steps: int, gamma: float) -> float:
    """beta_k = 1 - alpha_k M gamma/4, Lemma properties_of_Ak; positive for alpha_k < 4/(M gamma)."""
    beta = 1 - step_size * local_steps * gamma / 4
    if beta <= 0:
        limit = 4 / (local_steps * gamma)
        raise UserError(f"the step size is {step_size}, the limit is below 4/(M gamma) = {limit}; take a smaller one")
    return beta


def lyapunov_weights(probabilities: EventProbabilities, beta: float) -> NDArray[np.float64]:
    """w_k, eq. (w_k_definition), shape (2n+1,)."""
    inverse = 1 / (probabilities.count * probabilities.clients)
    return np.concatenate([inverse / beta ** (2 / 3), inverse / beta ** (1 / 3), [1 / probabilities.server]])


# ---------------------------------------------------------------------------------------------------- one iteration


@dataclass(frozen=True)
class LemmaConstants:
    """The constants of one iteration: Lemma x_norm (`norm_...`) and Lemma x_norm_squared (`squared_...`), corrected."""

    norm_zeta: float
    norm_sigma: float
    squared_zeta: float
    squared_sigma: float
    shift: float


def lemma_constants(constants: Constants, local_steps: int) -> LemmaConstants:
    """c^_zeta, c^_sigma, c_zeta, c_sigma for step sizes up to D, and LM zeta, the speed at which x_{i,k}* moves.

    c_sigma = 2M(1 + delta^(3/2)/4 + gamma²/(64 L²)) holds with the third term of D; the paper's own value is valid too,
    but larger: it grows with kappa.
    """
    M, L, gamma, drifting = local_steps, constants.L, constants.gamma, local_steps > 1
    return LemmaConstants(
        norm_zeta=L**2 * M * (M - 1) / 2,
        norm_sigma=(1 + drifting * gamma / (4 * L)) * M,
        squared_zeta=4 * L**4 * (M - 1) ** 3 * (2 / gamma + 2 / (constants.mu + L)),
        squared_sigma=2 * M * (1 + delta(M) ** 1.5 / 4 + drifting * gamma**2 / (64 * L**2)),
        shift=L * M * constants.zeta,
    )


@dataclass(frozen=True)
class Distances:
    """Bounds of E|x_i - x_{i,k}*| and E|y_i - x_{i,k}*|, shape (clients,), and E|x_s - x*|; or of their squares."""

    local: NDArray[np.float64]
    memory: NDArray[np.float64]
    server: float

    def weighted(self, weights: NDArray[np.float64]) -> float:
        """The Lyapunov function w'u, shape of `weights` (2n+1,)."""
        return float(np.concatenate([self.local, self.memory, [self.server]]) @ weights)

    def roots(self) -> Distances:
        """The roots of all: E|v| <= sqrt(E|v|²), Jensen."""
        return Distances(np.sqrt(self.local), np.sqrt(self.memory), math.sqrt(self.server))


def start_squared(setting: Setting, trained: float, sent: float) -> Distances:
    """The squared distances u_0 to x* - sent M grad f_i(x*), where the first round of training used `trained`."""
    shift = lemma_constants(setting.constants, setting.local_steps).shift
    memory = (setting.start_distance + sent * shift) ** 2
    local = _first_round(setting, trained, sent) if setting.convention is Convention.ALGORITHM else memory
    n = setting.probabilities.count
    return Distances(np.full(n, local), np.full(n, memory), setting.start_distance**2)


def _first_round(setting: Setting, trained: float, sent: float) -> float:
    """E|x_{i,0} - x_{i,0}*|² after the first round of training: T_2 in the proof of Lemma x_norm_squared."""
    constants, M, distance = setting.constants, setting.local_steps, setting.start_distance
    lemma, beta = lemma_constants(constants, M), contraction_beta(trained, M, constants.gamma)
    moved = (trained - sent) * lemma.shift
    noise = trained**2 * lemma.squared_sigma * constants.sigma**2 + trained**3 * lemma.squared_zeta * constants.zeta**2
    return beta * distance**2 + 2 * moved**2 + 2 * moved * (2 * beta - 1) * distance + noise


# ---------------------------------------------------------------------------------------------------- recursion


def recursion_bound(setting: Setting, iterations: int) -> NDArray[np.float64]:
    """An upper bound of E|x_{s,k} - x*|² for k = 0..`iterations` with Theorem 1's step sizes, shape (iterations+1,)."""
    return recursion_bound_for(setting, setting.schedule.step_sizes(iterations + 1 + setting.convention.lag))


def recursion_bound_for(setting: Setting, step_sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same bound for any step sizes that never grow and do not exceed D.

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
        alpha, following = float(sent[k]), float(sent[k + 1])
        beta = contraction_beta(alpha, setting.local_steps, setting.constants.gamma)
        step = _Step(alpha, beta, (alpha - following) * lemma.shift)
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


@dataclass(frozen=True)
class _Step:
    """One iteration: alpha_k, beta_k, and (alpha_k - alpha_{k+1}) LM zeta, the most that x_{i,k}* may move."""

    alpha: float
    beta: float
    moved: float


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


# ---------------------------------------------------------------------------------------------------- closed form


@dataclass(frozen=True)
class ProofConstants:
    """The constants of Theorem 1's proof: Q, S = 2 c c^_sigma, c_1 to c_4, psi, tau, h, lambda_0 and Lambda_0.

    `spread` is h = (1 + 1/(2 tau))⁴: a sum of j^s over j = d..T is at most h T^(s+1)/(s+1) for s = 1, 2, 3.
    """

    Q: float
    S: float
    c_1: float
    c_2: float
    c_3: float
    c_4: float
    psi: float
    tau: float
    spread: float
    start_norm: float
    start_squared: float


def proof_constants(setting: Setting) -> ProofConstants:
    """The constants for a setting, with gamma kept and psi = 1/p_s + 4 q_bar."""
    constants, M, c, tau = setting.constants, setting.local_steps, setting.sent.c, setting.sent.d - 1
    lemma, q_bar = lemma_constants(constants, M), setting.probabilities.mean_inverse
    beta = contraction_beta(setting.sent.step_size(0), M, constants.gamma)
    start = start_squared(setting, setting.schedule.step_size(0), setting.sent.step_size(0))
    weights = lyapunov_weights(setting.probabilities, beta)
    return ProofConstants(
        Q=4 * c * q_bar * constants.L * M + 2 * c**2 * lemma.norm_zeta,
        S=2 * c * lemma.norm_sigma,
        c_1=2 * c * constants.L * M,
        c_2=8 * (c * constants.L * M) ** 2 * q_bar,
        c_3=2 * c**2 * lemma.squared_sigma,
        c_4=2 * c**3 * lemma.squared_zeta,
        psi=1 / setting.probabilities.server + 4 * q_bar,
        tau=tau,
        spread=(1 + 1 / (2 * tau)) ** 4,
        start_norm=start.roots().weighted(weights),
        start_squared=start.weighted(weights),
    )


@dataclass(frozen=True)
class RoughBound:
    """Lambda_K <= fourth/T⁴ + third/T³ + second/T² + first/T, eq. (rough_bound_Lambda)."""

    first: float
    second: float
    third: float
    fourth: float

    def at(self, shifted: float) -> float:
        """The bound of Lambda_K at T = K + d - 1."""
        return self.first / shifted + self.second / shifted**2 + self.third / shifted**3 + self.fourth / shifted**4


def rough_bound(setting: Setting) -> RoughBound:
    """The first pass of the proof: Lemma small_lyapunov put into eq. (Lamba_convergence_starter)."""
    proof, sigma, zeta = proof_constants(setting), setting.constants.sigma, setting.constants.zeta
    start = proof.start_squared + proof.c_1 * zeta * proof.start_norm / (proof.tau - 0.5)
    return RoughBound(
        first=proof.spread * (proof.c_3 * sigma**2 / 3 + proof.c_1 * proof.S * zeta * sigma / 12),
        second=proof.spread * (proof.c_1 * proof.Q / 6 + proof.c_4 / 2) * zeta**2,
        third=proof.c_2 * zeta**2,
        fourth=proof.tau**4 * start,
    )


def closed_bound(setting: Setting, iterations: int) -> float:
    """An upper bound of E|x_{s,K} - x*|², K = `iterations` >= 0: the lesser of the proof's two passes, times p_s."""
    try:
        rough, shifted = rough_bound(setting), iterations + setting.sent.d - 1
        return setting.probabilities.server * min(rough.at(shifted), _refined(setting, rough, shifted))
    except OverflowError:  # a client that hardly ever sends
        return math.inf


def _refined(setting: Setting, rough: RoughBound, T: float) -> float:
    """Eq. (Lambda_k_bound_final): lambda_k <= sqrt(psi Lambda_k) put into eq. (Lamba_convergence_starter) again."""
    proof, sigma, zeta = proof_constants(setting), setting.constants.sigma, setting.constants.zeta
    synchronization = (
        math.sqrt(rough.fourth) / T**3
        + 2 / 3 * math.sqrt(rough.third) / T**2.5
        + math.sqrt(rough.second) / (2 * T**2)
        + 2 / 5 * math.sqrt(rough.first) / T**1.5
    )
    noise = proof.spread * (proof.c_3 * sigma**2 / (3 * T) + proof.c_4 * zeta**2 / (2 * T**2))
    start = proof.tau**4 * proof.start_squared / T**4 + proof.c_2 * zeta**2 / T**3
    return float(start + noise + proof.c_1 * zeta * math.sqrt(proof.psi) * synchronization)
