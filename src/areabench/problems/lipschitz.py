"""Convex Lipschitz functions that need not be smooth: subgradient steps, l1 regression and the geometric median.

The clients of the two problems draw their samples. All in float64. Client i's function depends on the seed and on i
alone. A client draws only its own function; an evaluation, and the constants of the paper's assumptions, need all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from areabench.errors import UserError
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, LARGEST_SIZE, SMALLEST

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.problems.base import ClientData, Metrics, Problem, ProblemSettings
from areabench.problems.minibatches import Minibatches
from areabench.problems.optimum import Optimum, minimise
from areabench.streams import Purpose, stream
from areabench.threads import limited_threads


@dataclass(frozen=True, kw_only=True)
class Robust(ProblemSettings):
    """l1 regression f_i(x) = mean_j |a_ij'x - b_ij| in float64: convex, Lipschitz, not smooth, minimiser known."""

    takes_data = False
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
        return robust_problem(self, clients, local_steps, seed)


@dataclass(frozen=True, kw_only=True)
class Median(ProblemSettings):
    """Geometric median f_i(x) = mean_j |x - a_ij| in float64: convex, 1-Lipschitz, not smooth, minimiser known."""

    takes_data = False
    has_accuracy = False

    name: str = "median"
    dimension: int = key("length of x", 10, minimum=2, maximum=LARGEST_SIZE)
    samples: int = key("points a_ij of each client", 50, unit="samples", minimum=3, maximum=LARGEST_SIZE)
    heterogeneity: float = key(
        "standard deviation of the entries of each client's centre", 1.0, minimum=0, maximum=LARGEST
    )
    spread: float = key(
        "standard deviation of the entries of a_ij about that centre", 1.0, minimum=SMALLEST, maximum=LARGEST
    )
    batch_size: int = key("mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key("norm of the starting point, in a random direction", 5.0, minimum=0, maximum=LARGEST)

    @property
    def wants_minimiser(self) -> bool:
        """Its distance is recorded."""
        return True

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        return median_problem(self, clients, local_steps, seed)


FLOAT = np.dtype(np.float64)
Floats = NDArray[np.float64]


class Subgradient(Protocol):
    """A function that is a mean over samples."""

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """A subgradient of the mean over the samples `rows`, shape (d,)."""
        ...


class LocalSubgradient:
    """One client's function, seen through mini-batches of its samples."""

    def __init__(self, function: Subgradient, batches: Minibatches, weight: float = 1.0) -> None:
        self._function = function
        self._batches = batches
        self._weight = weight

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps x <- x - alpha·weight·(subgradient of a mini-batch); a new array."""
        result = np.array(model, dtype=FLOAT)
        for rows in self._batches.next_round() if steps is None else self._batches.next_batches(steps):
            result -= step_size * self._weight * self._function.subgradient(result, rows)
        return result

    def gradient(self, model: Vector) -> Vector:
        """weight·(subgradient of the next mini-batch); a new array."""
        return self._weight * self._function.subgradient(model, self._batches.next_batches(1)[0])

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self._batches.skip_batches(steps)


# ---------------------------------------------------------------------------------------------------- drawn samples


class LocalFunction(Subgradient, Protocol):
    """One client's function f_i(x) = mean_j loss_ij(x) over the samples that it drew."""

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d), result of shape (models,)."""
        ...

    def lipschitz(self) -> float:
        """A Lipschitz constant of f_i."""
        ...

    def mean_square(self) -> float:
        """A bound, for every x, on mean_j |d_ij|² over the subgradients d_ij that single samples give."""
        ...


class DrawnProblem:
    """f = mean f_i; `draw` gives client i's function, `solve` the optimum of all functions together."""

    dtype = FLOAT  # float32 cannot resolve the excess f - f* of a good model

    def __init__(
        self,
        settings: Robust | Median,
        clients: int,
        local_steps: int,
        seed: int,
        draw: Callable[[int], LocalFunction],
        solve: Callable[[Sequence[Any]], Optimum],
    ) -> None:
        self.settings = settings
        self.clients = clients
        self.local_steps = local_steps
        self.seed = seed
        self.draw = draw
        self._solve = solve
        self.dimension = settings.dimension

    @cached_property
    def functions(self) -> list[LocalFunction]:
        """The functions of all clients."""
        return [self.draw(client) for client in range(self.clients)]

    @cached_property
    def optimum(self) -> Optimum:
        """The minimiser, unique with probability one where there are enough samples, and the minimum."""
        return self._solve(self.functions)

    @cached_property
    def B(self) -> float:
        """A Lipschitz constant of every f_i."""
        return max(function.lipschitz() for function in self.functions)

    @cached_property
    def sigma(self) -> float:
        """Subgradient noise: b draws with replacement divide the variance of one, at most its mean square, by b."""
        return sqrt(max(function.mean_square() for function in self.functions) / self.settings.batch_size)

    def start(self) -> Vector:
        """A point of norm `start_norm` in a random direction; the samples lie about the origin."""
        direction = stream(self.seed, Purpose.START).standard_normal(self.dimension)
        return np.asarray(self.settings.start_norm * direction / np.linalg.norm(direction))

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        rows = np.arange(self.settings.samples)
        batches = Minibatches(self.seed, client, rows, self.local_steps, self.settings.batch_size)
        return LocalSubgradient(self.draw(client), batches)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """f, if asked for, and the squared distance to the minimiser; there is no accuracy."""
        points = np.asarray(models, dtype=FLOAT).reshape(len(models), self.dimension)
        nothing = np.full(len(points), np.nan)
        offsets = points - self.optimum.minimiser
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            loss = np.mean([function.losses(points) for function in self.functions], axis=0) if with_loss else nothing
            return Metrics(loss, nothing, np.einsum("md,md->m", offsets, offsets))


# ---------------------------------------------------------------------------------------------------- l1 regression


def robust_problem(settings: Robust, clients: int, local_steps: int, seed: int) -> DrawnProblem:
    """The l1 regression of an experiment."""
    return DrawnProblem(settings, clients, local_steps, seed, partial(draw_samples, settings, seed), solve_robust)


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
        return np.asarray(np.sign(inputs @ model - self.targets[rows]) @ inputs) / len(rows)

    def lipschitz(self) -> float:
        """The smaller of mean_j |a_j| and the root of lambda_max(A'A/s): mean_j |a_j'u| <= either, for |u| = 1."""
        largest_singular = float(np.linalg.norm(self.inputs, 2))
        return min(float(np.linalg.norm(self.inputs, axis=1).mean()), largest_singular / sqrt(len(self.inputs)))

    def mean_square(self) -> float:
        """mean_j |a_j|²: a subgradient of one sample is a_j times a number from -1 to 1."""
        return float((self.inputs**2).sum(axis=1).mean())


def draw_samples(settings: Robust, seed: int, client: int) -> AbsoluteErrors:
    """Client `client`'s samples, with its own true parameter z_i."""
    generator = stream(seed, Purpose.PROBLEM, client)
    truth = settings.heterogeneity * generator.standard_normal(settings.dimension)
    inputs = generator.standard_normal((settings.samples, settings.dimension))
    noise = settings.noise * generator.standard_t(settings.degrees, settings.samples)
    return AbsoluteErrors(inputs, inputs @ truth + noise)


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


# ---------------------------------------------------------------------------------------------------- geometric median


_TOLERANCE = 1e-12  # norm of the gradient at the median, where unit vectors cancel
_WARM_UP = 200  # Weiszfeld steps before Newton's method: cheap, and they never increase f


def median_problem(settings: Median, clients: int, local_steps: int, seed: int) -> DrawnProblem:
    """The geometric median of an experiment."""
    return DrawnProblem(settings, clients, local_steps, seed, partial(draw_points, settings, seed), solve_median)


@dataclass(frozen=True)
class MeanDistance:
    """One client's function, the mean distance to its points, shape (samples, d)."""

    points: Floats

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d)."""
        return np.array([np.linalg.norm(model - self.points, axis=1).mean() for model in models], dtype=np.float64)

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """The mean over the samples `rows` of the unit vectors away from them; 0 where the model is on a point."""
        offsets = model - self.points[rows]
        lengths = np.linalg.norm(offsets, axis=1)
        return np.asarray((offsets / np.where(lengths > 0, lengths, 1.0)[:, None]).mean(axis=0))

    def lipschitz(self) -> float:
        """1, by the triangle inequality."""
        return 1.0

    def mean_square(self) -> float:
        """1: the subgradient of one sample is a unit vector, or 0."""
        return 1.0

    def gradient(self, model: Vector) -> Floats:
        """The subgradient over all points."""
        return self.subgradient(model, np.arange(len(self.points)))

    def newton_step(self, model: Vector, gradient: Floats) -> Floats:
        """-H⁻¹·gradient with H = mean_j (I - u_j u_j')/|x - a_j|, u_j the unit vector from a_j to x."""
        offsets = model - self.points
        lengths = np.linalg.norm(offsets, axis=1)
        scaled = offsets / lengths[:, None] ** 1.5
        hessian = np.eye(len(model)) * (1 / lengths).mean() - scaled.T @ scaled / len(lengths)
        return np.asarray(np.linalg.solve(hessian, -gradient))

    def weiszfeld_step(self, model: Vector) -> Floats:
        """The mean of the other points, weighted by inverse distances; points at x hold it back (Vardi and Zhang)."""
        lengths = np.linalg.norm(model - self.points, axis=1)
        away = lengths > 0
        weights = 1 / lengths[away]
        pull = max(float(np.linalg.norm(self.gradient(model))), np.finfo(np.float64).tiny)
        held = min(1.0, float((~away).mean()) / pull)
        return np.asarray(held * model + (1 - held) * (weights @ self.points[away]) / weights.sum())

    def excess(self, model: Vector) -> float:
        """Norm of the shortest subgradient at x: points at x reduce it by up to their share of all points."""
        share = float((model == self.points).all(axis=1).mean())
        return max(0.0, float(np.linalg.norm(self.gradient(model))) - share)


def draw_points(settings: Median, seed: int, client: int) -> MeanDistance:
    """Client `client`'s points around its own centre."""
    generator = stream(seed, Purpose.PROBLEM, client)
    centre = settings.heterogeneity * generator.standard_normal(settings.dimension)
    return MeanDistance(centre + settings.spread * generator.standard_normal((settings.samples, settings.dimension)))


@limited_threads()
def solve_median(functions: Sequence[MeanDistance]) -> Optimum:
    """The median of all clients' points together; all clients hold the same number of them.

    Convexity proves the gap: f(x) - f(x*) <= |g|·|x - x*| for any subgradient g at x, and averaging the triangle
    inequality over the points gives |x - x*| <= f(x) + f(x*) <= 2·f(x).
    """
    together = MeanDistance(np.concatenate([function.points for function in functions]))
    minimiser = _median(together)
    minimum = float(together.losses(minimiser[None])[0])
    return Optimum(minimiser, minimum, 2 * minimum * together.excess(minimiser))


def _median(distances: MeanDistance) -> Floats:
    """The median: one of the points, or else a point where f is smooth and Newton's method finds it."""
    model = distances.points.mean(axis=0)
    for _ in range(_WARM_UP):
        model = distances.weiszfeld_step(model)
    nearest = distances.points[np.linalg.norm(model - distances.points, axis=1).argmin()]
    if distances.excess(nearest) == 0:
        return np.asarray(nearest)
    return minimise(distances.gradient, distances.newton_step, model, _TOLERANCE, "problem median")
