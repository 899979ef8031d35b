"""l1 regression on drawn samples, which need not be smooth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector, each_times, times_each
from areabench.errors import UserError
from areabench.problems.base import ClientData, Problem, ProblemSettings
from areabench.problems.optimum import Optimum
from areabench.problems.subgradients import DrawnProblem, Floats
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, LARGEST_SIZE
from areabench.threads import limited_threads

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Robust(ProblemSettings):
    """l1 regression f_i(x) = mean_j |a_ij'x - b_ij| in float64: convex, Lipschitz, not smooth, minimiser known."""

    takes_data = False
    computes_lanes = True
    has_accuracy = False

    name: str = "robust"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    samples: int = key(
        "samples of each client; entries of a_ij from N(0, 1)",
        50,
        unit="samples",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    heterogeneity: float = key(
        "standard deviation of the entries of z_i in b_ij = a_ij'z_i + noise", 1.0, minimum=0, maximum=LARGEST
    )
    noise: float = key("scale of the noise in b_ij, of Student's t distribution", 1.0, minimum=0, maximum=LARGEST)
    degrees: float = key("its degrees of freedom; fewer give heavier tails", 1.5, minimum=1, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key("norm of the starting point, in a random direction", 5.0, minimum=0, maximum=LARGEST)

    @property
    def wants_minimiser(self) -> bool:
        """Its distance is recorded."""
        return True

    def check(self, experiment: Experiment) -> None:
        """The minimiser is unique."""
        clients = experiment.clients.count
        if self.samples * clients < self.dimension:
            raise UserError(
                f"problem.samples: {self.samples} for each of {clients} clients are fewer in all than "
                f"problem.dimension = {self.dimension}, so the minimiser is not unique; take more samples"
            )

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        return DrawnProblem(self, clients, local_steps, seed, solve_robust)

    def draw(self, generator: np.random.Generator) -> AbsoluteErrors:
        """The samples of a client, with its own true parameter z_i, from its stream."""
        truth = self.heterogeneity * generator.standard_normal(self.dimension)
        inputs = generator.standard_normal((self.samples, self.dimension))
        noise = self.noise * generator.standard_t(self.degrees, self.samples)
        return AbsoluteErrors(inputs, inputs @ truth + noise)


@dataclass(frozen=True)
class AbsoluteErrors:
    """One client's samples: a_ij as rows, shape (samples, d), and b_ij, shape (samples,)."""

    inputs: Floats
    targets: Floats

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d)."""
        return np.asarray(np.abs(models @ self.inputs.T - self.targets).mean(axis=1))

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """mean_j sign(a_j'x - b_j)·a_j over the samples `rows`; 0 is a subgradient of |.| at its kink."""
        inputs = self.inputs[rows]
        return each_times(np.sign(times_each(inputs, model) - self.targets[rows]), inputs) / len(rows)

    def lipschitz(self) -> float:
        """The smaller of mean_j |a_j| and the root of lambda_max(A'A/s): mean_j |a_j'u| <= either, for |u| = 1."""
        largest_singular = float(np.linalg.norm(self.inputs, 2))
        return min(float(np.linalg.norm(self.inputs, axis=1).mean()), largest_singular / sqrt(len(self.inputs)))

    def mean_square(self) -> float:
        """mean_j |a_j|²: a subgradient of one sample is a_j times a number from -1 to 1."""
        return float((self.inputs**2).sum(axis=1).mean())


@limited_threads()
def solve_robust(functions: Sequence[AbsoluteErrors]) -> Optimum:
    """The linear program of all clients' samples together; all clients hold the same number of them.

    It is solved in its dual form, max b'y subject to A'y = 0 and |y_j| <= 1, which has only d rows; x is among the
    multipliers. Any such y proves f(x) >= b'y/N, and A'y = r shifts that by r'x at most. 6,400 samples in 10 dimensions
    took 0.1 s, 25,600 in 100 dimensions a minute.
    """
    from scipy.optimize import linprog  # slow to import; no client needs it

    inputs = np.concatenate([function.inputs for function in functions])
    targets = np.concatenate([function.targets for function in functions])
    found = linprog(-targets, A_eq=inputs.T, b_eq=np.zeros(inputs.shape[1]), bounds=(-1, 1), method="highs")
    if found.x is None:
        raise UserError(
            f"problem robust: the linear program of its minimiser failed ({found.message}); try other seeds"
        )
    minimiser = -np.asarray(found.eqlin.marginals, dtype=np.float64)
    minimum = float(np.abs(inputs @ minimiser - targets).mean())
    dual = np.clip(found.x, -1, 1)
    proven = float(targets @ dual - np.linalg.norm(inputs.T @ dual) * np.linalg.norm(minimiser)) / len(targets)
    return Optimum(minimiser, minimum, max(0.0, minimum - proven))
