"""Theorem 1 in closed form, all constants written out, and the four terms of its rate.

Follows eq. (Lamba_convergence_starter) to eq. (Lambda_k_bound_final) without an O(.): tau = d - 1, T = K + d - 1, and
sums are bounded by integrals. What differs from print is listed in docs/theory-corrections.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from areabench.theory.checks import require_count
from areabench.theory.constants import delta
from areabench.theory.contraction import contraction_beta, lyapunov_weights
from areabench.theory.setting import Setting, lemma_constants, start_squared


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
    except OverflowError:  # a client that sends next to never
        return math.inf


def _refined(setting: Setting, rough: RoughBound, T: float) -> float:
    """Eq. (Lambda_k_bound_final): lambda_k <= sqrt(psi Lambda_k) put into eq. (Lamba_convergence_starter) once more."""
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


@dataclass(frozen=True)
class RateTerms:
    """The four terms of eq. (short_rate_strong_convex), in its order and without constant factors."""

    noise: float
    synchronization_noise: float
    synchronization_heterogeneity: float
    drift: float

    @property
    def dominating(self) -> str:
        """The name of the greatest term."""
        return max((field.name for field in fields(self)), key=lambda name: float(getattr(self, name)))


def printed_rate_terms(setting: Setting, iterations: int) -> RateTerms:
    """The terms as the paper prints them; they depend on the units of x and f, as they take gamma for at least 1."""
    constants, events, K, M = setting.constants, setting.probabilities, iterations, setting.local_steps
    require_count("the number of iterations K", K)
    L, sigma, zeta, q, p = constants.L, constants.sigma, constants.zeta, events.mean_inverse, events.minimum
    drifting = 1 + delta(M) * constants.kappa
    return RateTerms(
        noise=events.server_ratio * drifting * sigma**2 / (p * M * K),
        synchronization_noise=events.server_ratio * math.sqrt(q * drifting / M) * L * sigma * zeta / (p * K**1.5),
        synchronization_heterogeneity=events.server_ratio * math.sqrt(q * L**3 * sigma * zeta**3 / p) / K**1.5,
        drift=events.server_ratio * (delta(M) + math.sqrt(p) * q) * L**4 * zeta**2 / (p * K) ** 2,
    )


def rate_terms(setting: Setting, iterations: int) -> RateTerms:
    """The terms corrected: L/gamma, sigma/gamma, q_bar + 1/p_s for q_bar, p_min for its root in the third, no kappa."""
    constants, events, K, M = setting.constants, setting.probabilities, iterations, setting.local_steps
    require_count("the number of iterations K", K)
    L, sigma, zeta = constants.L / constants.gamma, constants.sigma / constants.gamma, constants.zeta
    p, q = events.minimum, events.mean_inverse + 1 / events.server
    return RateTerms(
        noise=events.server_ratio * sigma**2 / (p * M * K),
        synchronization_noise=events.server_ratio * math.sqrt(q / M) * L * sigma * zeta / (p * K**1.5),
        synchronization_heterogeneity=events.server_ratio * math.sqrt(q * L**3 * sigma * zeta**3) / (p * K**1.5),
        drift=events.server_ratio * (delta(M) + math.sqrt(p) * q) * L**4 * zeta**2 / (p * K) ** 2,
    )
