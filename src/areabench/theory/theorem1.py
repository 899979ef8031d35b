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
    M = local_steps
    L = constants.L
    gamma = constants.gamma
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
    M = local_steps
    L = constants.L
    gamma = constants.gamma
    drifting = M > 1
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
    constants = setting.constants
    distance = setting.start_distance
    lemma = lemma_constants(constants, setting.local_steps)
    memory = (distance + sent * lemma.shift) ** 2
    local = memory
    if setting.convention is Convention.ALGORITHM:  # T_2 in the proof of Lemma x_norm_squared
        beta = contraction_beta(trained, setting.local_steps, constants.gamma)
        moved = (trained - sent) * lemma.shift
        noise = trained**2 * lemma.squared_sigma * constants.sigma**2
        noise += trained**3 * lemma.squared_zeta * constants.zeta**2
        local = beta * distance**2 + 2 * moved**2 + 2 * moved * (2 * beta - 1) * distance + noise
    n = setting.probabilities.count
    return Distances(np.full(n, local), np.full(n, memory), distance**2)


# ---------------------------------------------------------------------------------------------------- recursion


def recursion_bound(setting: Setting, iterations: int) -> NDArray[np.float64]:
    """An upper bound of E|x_{s,k} - x*|² for k = 0..`iterations` with Theorem 1's step sizes, shape (iterations+1,)."""
    return recursion_bound_for(setting, setting.schedule.step_sizes(iterations + 1 + setting.convention.lag))


def recursion_bound_for(setting: Setting, step_sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same bound for any step sizes that never grow and do not exceed D.

    `step_sizes` holds the paper's alpha_0, alpha_1, ..., shape (K+1,), or (K+2,) where alpha_0 is for the first round.
    """
    limit = step_limit(setting.constants, setting.local_steps).value
    if len(step_sizes) <= setting.convention.lag:
        least = setting.convention.lag + 1
        raise UserError(f"there are {len(step_sizes)} step sizes, the least is {least}; give alpha_0, alpha_1, ...")
    if not 0 < step_sizes[0] <= limit * (1 + 1e-12):
        raise UserError(f"the first step size is {step_sizes[0]}, the limit is D = {limit}; take a smaller one")
    if (np.diff(step_sizes) > 0).any() or (step_sizes <= 0).any():
        raise UserError("the step sizes grow or are not positive, the limit is a sequence that never grows; sort them")
    sent = step_sizes[setting.convention.lag :]
    lemma = lemma_constants(setting.constants, setting.local_steps)
    squared = start_squared(setting, float(step_sizes[0]), float(sent[0]))
    norms = squared.roots()
    bounds = np.empty(len(sent))
    bounds[0] = squared.server
    for k in range(len(sent) - 1):
        alpha = float(sent[k])
        moved = (alpha - float(sent[k + 1])) * lemma.shift
        norms, squared = _next_distances(setting, lemma, alpha, moved, norms, squared)
        bounds[k + 1] = squared.server
    return bounds


def _next_distances(
    setting: Setting, lemma: LemmaConstants, alpha: float, moved: float, norms: Distances, squared: Distances
) -> tuple[Distances, Distances]:
    """The bounds after an iteration with step size alpha_k.

    `moved` is (alpha_k - alpha_{k+1}) LM zeta, the most that x_{i,k}* may move.
    """
    p = setting.probabilities.clients
    p_s = setting.probabilities.server
    constants = setting.constants
    beta = contraction_beta(alpha, setting.local_steps, constants.gamma)
    # Lemmas s_norm, y_norm and x_norm
    noise = alpha**2 * lemma.norm_zeta * constants.zeta + alpha * lemma.norm_sigma * constants.sigma
    next_norms = Distances(
        local=(1 - p) * norms.local + moved + p * (beta * norms.server + noise),
        memory=(1 - p) * norms.memory + p * norms.local + moved,
        server=(1 - p_s) * norms.server + p_s * float(norms.memory.mean()),
    )
    # Lemmas s_norm_squared, y_norm_squared and x_norm_squared, in the last 1 + p_i times the squared shift
    noise = alpha**2 * lemma.squared_sigma * constants.sigma**2
    drift = alpha**3 * lemma.squared_zeta * constants.zeta**2
    shrunk = 2 * beta - 1  # 1 - alpha_k M gamma/2
    next_squared = Distances(
        local=(1 - p) * (squared.local + 2 * moved * norms.local)
        + (1 + p) * moved**2
        + p * (beta * squared.server + 2 * moved * shrunk * norms.server + noise + drift),
        memory=(1 - p) * (squared.memory + 2 * moved * norms.memory)
        + moved**2
        + p * (squared.local + 2 * moved * norms.local),
        server=(1 - p_s) * squared.server + p_s * float(squared.memory.mean()),
    )
    roots = next_squared.roots()  # E|v| <= sqrt(E|v|²): the lesser of the two bounds
    lesser = Distances(
        local=np.minimum(next_norms.local, roots.local),
        memory=np.minimum(next_norms.memory, roots.memory),
        server=min(next_norms.server, roots.server),
    )
    return lesser, next_squared


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
    constants = setting.constants
    M = setting.local_steps
    c = setting.sent.c
    tau = setting.sent.d - 1
    lemma = lemma_constants(constants, M)
    q_bar = setting.probabilities.mean_inverse
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
    proof = proof_constants(setting)
    sigma = setting.constants.sigma
    zeta = setting.constants.zeta
    start = proof.start_squared + proof.c_1 * zeta * proof.start_norm / (proof.tau - 0.5)
    return RoughBound(
        first=proof.spread * (proof.c_3 * sigma**2 / 3 + proof.c_1 * proof.S * zeta * sigma / 12),
        second=proof.spread * (proof.c_1 * proof.Q / 6 + proof.c_4 / 2) * zeta**2,
        third=proof.c_2 * zeta**2,
        fourth=proof.tau**4 * start,
    )


def closed_bound(setting: Setting, iterations: int) -> float:
    """An upper bound of E|x_{s,K} - x*|², K = `iterations` >= 0: the lesser of the proof's two passes, times p_s."""
    T = iterations + setting.sent.d - 1
    try:
        rough = rough_bound(setting)
        return setting.probabilities.server * min(rough.at(T), _refined(setting, rough, T))
    except OverflowError:  # a client that hardly ever sends
        return math.inf


def _refined(setting: Setting, rough: RoughBound, T: float) -> float:
    """Eq. (Lambda_k_bound_final): lambda_k <= sqrt(psi Lambda_k) put into eq. (Lamba_convergence_starter) again."""
    proof = proof_constants(setting)
    sigma = setting.constants.sigma
    zeta = setting.constants.zeta
    synchronization = (
        math.sqrt(rough.fourth) / T**3
        + 2 / 3 * math.sqrt(rough.third) / T**2.5
        + math.sqrt(rough.second) / (2 * T**2)
        + 2 / 5 * math.sqrt(rough.first) / T**1.5
    )
    noise = proof.spread * (proof.c_3 * sigma**2 / (3 * T) + proof.c_4 * zeta**2 / (2 * T**2))
    start = proof.tau**4 * proof.start_squared / T**4 + proof.c_2 * zeta**2 / T**3
    return float(start + noise + proof.c_1 * zeta * math.sqrt(proof.psi) * synchronization)
