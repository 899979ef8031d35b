"""What Theorem 1 is evaluated for, the constants of its lemmas, and where the bounds start from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from areabench.theory.checks import require_count, require_not_negative
from areabench.theory.constants import Constants, delta
from areabench.theory.contraction import contraction_beta
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.schedule import TheoremSchedule, theorem_schedule


class Convention(Enum):
    """How iterations are counted: the paper's algorithms and its appendix differ at the start and by one index.

    ALGORITHM: clients train on x_{s,0} with alpha_0 before iteration 1, and alpha_{k+1} goes out with x_{s,k}; so
    does areabench. APPENDIX: x_{i,0} = x_{s,0}, and alpha_k goes out with x_{s,k}, eq. (x_k).
    """

    ALGORITHM = "algorithm"
    APPENDIX = "appendix"

    @property
    def lag(self) -> int:
        """By how many iterations the index of the step size sent is ahead of the model's."""
        return 1 if self is Convention.ALGORITHM else 0


@dataclass(frozen=True)
class Setting:
    """A strongly convex problem, who sends how often, M local steps, and |x_{s,0} - x*|."""

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
        """Which step sizes go out with x_{s,0}, x_{s,1}, ...: alpha_1, alpha_2, ..., in the appendix alpha_0, ..."""
        return TheoremSchedule(self.schedule.c, self.schedule.d + self.convention.lag)


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
    local = memory if setting.convention is Convention.APPENDIX else _first_round(setting, trained, sent)
    n = setting.probabilities.count
    return Distances(np.full(n, local), np.full(n, memory), setting.start_distance**2)


def _first_round(setting: Setting, trained: float, sent: float) -> float:
    """E|x_{i,0} - x_{i,0}*|² after the first round of training: T_2 in the proof of Lemma x_norm_squared."""
    constants, M, distance = setting.constants, setting.local_steps, setting.start_distance
    lemma, beta = lemma_constants(constants, M), contraction_beta(trained, M, constants.gamma)
    moved = (trained - sent) * lemma.shift
    noise = trained**2 * lemma.squared_sigma * constants.sigma**2 + trained**3 * lemma.squared_zeta * constants.zeta**2
    return beta * distance**2 + 2 * moved**2 + 2 * moved * (2 * beta - 1) * distance + noise
