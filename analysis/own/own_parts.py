"""A method, a problem, a data set, a split and delays of your own, for own.toml. docs/extending.md explains them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import gamma
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.extend import (
    Arrival,
    Buffer,
    Dataset,
    Method,
    Metrics,
    Minibatches,
    Purpose,
    Report,
    Step,
    Vector,
    Work,
    remember_nothing,
    stream,
)

Rows = NDArray[np.int64]

# ---------------------------------------------------------------------------------------------------- method


class MomentumState(NamedTuple):
    """The server's model, its velocity, and the updates that came in since it last stepped."""

    model: Vector
    velocity: Vector
    buffer: Buffer


def server_momentum(clients: int, beta: float = 0.9) -> Method:
    """FedBuff with a heavy ball: v <- beta v + mean of the updates, x_s <- x_s + v."""

    def report(memory: None, work: Work) -> Report:
        return Report(payload=work.local - work.model, memory=None)

    def start(model: Vector) -> Step:
        return Step(MomentumState(model, np.zeros_like(model), Buffer()), calls=tuple(range(clients)))

    def receive(state: MomentumState, arrival: Arrival) -> Step:
        return Step(state._replace(buffer=state.buffer.add(arrival.payload)), calls=(arrival.client,))

    def aggregate(state: MomentumState) -> Step:
        if state.buffer.size == 0:
            return Step(state)
        velocity = beta * state.velocity + state.buffer.mean()
        return Step(MomentumState(state.model + velocity, velocity, Buffer()))

    def add(state: MomentumState, total: Vector) -> MomentumState:
        return state._replace(buffer=state.buffer.plus(total))

    return Method("server_momentum", remember_nothing, report, start, receive, aggregate, add=add)


# ---------------------------------------------------------------------------------------------------- problem


class RobustMean:
    """f_i(x) = sum_j sqrt(1 + (x_j - c_ij)^2) - 1: smooth, and nearly as flat as |x - c_i| far away."""

    dtype = np.dtype(np.float64)

    def __init__(self, clients: int, local_steps: int, seed: int, dimension: int, noise: float) -> None:
        self.centres = stream(seed, Purpose.PROBLEM).standard_normal((clients, dimension))
        self.dimension = dimension
        self.local_steps = local_steps
        self.seed = seed
        self.noise = noise

    def start(self) -> Vector:
        return np.full(self.dimension, 5.0)

    def local(self, client: int) -> LocalMean:
        return LocalMean(self, client)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        return Metrics.of([self.loss(model) if with_loss else np.nan for model in models])

    def loss(self, model: Vector) -> float:
        return float((np.sqrt(1.0 + (model - self.centres) ** 2) - 1.0).sum(axis=1).mean())


class LocalMean:
    """One client's function f_i; its gradient has noise, drawn from the client's own stream."""

    def __init__(self, problem: RobustMean, client: int) -> None:
        self._problem = problem
        self._centre = problem.centres[client]
        self._generator = stream(problem.seed, Purpose.SAMPLES, client)

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        for _ in range(self._problem.local_steps if steps is None else steps):
            model = model - step_size * self.gradient(model)
        return model

    def gradient(self, model: Vector) -> Vector:
        away: Vector = model - self._centre
        return away / np.sqrt(1.0 + away**2) + self._noise()

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self._noise()

    def _noise(self) -> Vector:
        return self._problem.noise * self._generator.standard_normal(len(self._centre))


def robust_mean(clients: int, local_steps: int, seed: int, dimension: int = 10, noise: float = 0.1) -> RobustMean:
    """The problem of robust.toml: it draws its functions itself, and needs no data."""
    return RobustMean(clients, local_steps, seed, dimension, noise)


# ---------------------------------------------------------------------------------------------------- problem on data


class TwoLayers:
    """A network of two layers, tanh and softmax, whose weights are one flat vector."""

    dtype = np.dtype(np.float64)

    def __init__(
        self, data: Dataset, parts: Sequence[Rows], local_steps: int, seed: int, hidden: int, batch_size: int
    ) -> None:
        self.data = data
        self.parts = parts
        self.local_steps = local_steps
        self.seed = seed
        self.shapes = [(data.train_features.shape[1] + 1, hidden), (hidden + 1, data.classes)]
        self.batch_size = batch_size

    @property
    def dimension(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)

    def start(self) -> Vector:
        return 0.5 * stream(self.seed, Purpose.START).standard_normal(self.dimension)

    def local(self, client: int) -> LocalTwoLayers:
        batches = Minibatches(self.seed, client, self.parts[client], self.local_steps, self.batch_size)
        return LocalTwoLayers(self, batches)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        data = self.data
        losses = [self.loss(model) if with_loss else np.nan for model in models]
        right = [self.scores(model, data.test_features)[-1].argmax(axis=1) == data.test_labels for model in models]
        return Metrics.of(losses, test_accuracy=[100.0 * hits.mean() for hits in right])

    def loss(self, model: Vector) -> float:
        shares = _softmax(self.scores(model, self.data.train_features)[-1])
        return float(-np.log(shares[np.arange(len(shares)), self.data.train_labels] + 1e-300).mean())

    def layers(self, model: Vector) -> list[Vector]:
        first = self.shapes[0][0] * self.shapes[0][1]
        return [part.reshape(shape) for part, shape in zip(np.split(model, [first]), self.shapes, strict=True)]

    def scores(self, model: Vector, features: NDArray[Any]) -> list[Vector]:
        """What goes into each layer, a column of ones included, and what comes out of the last."""
        inputs = _with_ones(features * self.data.scale)
        inner = _with_ones(np.tanh(inputs @ self.layers(model)[0]))
        return [inputs, inner, inner @ self.layers(model)[1]]

    def gradient(self, model: Vector, rows: Rows) -> Vector:
        inputs, inner, scores = self.scores(model, self.data.train_features[rows])
        errors = _softmax(scores)
        errors[np.arange(len(rows)), self.data.train_labels[rows]] -= 1.0
        back = (errors @ self.layers(model)[1].T * (1.0 - inner**2))[:, 1:]
        return np.concatenate([(inputs.T @ back).ravel(), (inner.T @ errors).ravel()]) / len(rows)


class LocalTwoLayers:
    """One client's share of the network's objective."""

    def __init__(self, problem: TwoLayers, batches: Minibatches) -> None:
        self._problem = problem
        self._batches = batches

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        for rows in self._batches.next_batches(self._problem.local_steps if steps is None else steps):
            model = model - step_size * self._problem.gradient(model, rows)
        return model

    def gradient(self, model: Vector) -> Vector:
        return self._problem.gradient(model, self._batches.next_batches(1)[0])

    def skip(self, steps: int) -> None:
        self._batches.skip_batches(steps)


def two_layers(
    data: Dataset, parts: Sequence[Rows], local_steps: int, seed: int, hidden: int = 8, batch_size: int = 16
) -> TwoLayers:
    """The problem of own.toml."""
    return TwoLayers(data, parts, local_steps, seed, hidden, batch_size)


def _with_ones(rows: Vector) -> Vector:
    return np.hstack([np.ones((len(rows), 1)), rows])


def _softmax(scores: Vector) -> Vector:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Vector = weights / weights.sum(axis=1, keepdims=True)
    return shares


# ---------------------------------------------------------------------------------------------------- data


def spirals(cache: Path, arms: int = 3, samples_an_arm: int = 200) -> Dataset:
    """Points on the arms of a spiral, which arm is the label; drawn once into a CSV file, and read from there."""
    path = cache / f"spirals-{arms}-{samples_an_arm}.csv"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")  # another process may write it at the same time
        np.savetxt(part, _draw_spirals(arms, samples_an_arm), delimiter=",", header="x,y,arm")
        part.replace(path)
    table = np.loadtxt(path, delimiter=",")
    points = table[:, :2]
    labels = table[:, 2].astype(np.int64)
    test = np.arange(len(table)) % 5 == 0  # one in five
    return Dataset("spirals", points[~test], labels[~test], points[test], labels[test], classes=arms, scale=1.0)


def _draw_spirals(arms: int, samples_an_arm: int) -> NDArray[np.float64]:
    """Rows of x, y and arm; the same for every seed of an experiment."""
    generator = np.random.default_rng(7)
    arm = np.repeat(np.arange(arms), samples_an_arm)
    radius = generator.uniform(0.2, 2.0, arms * samples_an_arm)
    angle = 2 * np.pi * arm / arms + 1.5 * radius + 0.15 * generator.standard_normal(len(arm))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), arm])


# ---------------------------------------------------------------------------------------------------- split


def shards(labels: Rows, clients: int, generator: np.random.Generator, shards_a_client: int = 2) -> list[Rows]:
    """The samples sorted by label and cut into equal shards, of which each client is dealt some."""
    cut = np.array_split(np.argsort(labels, kind="stable"), clients * shards_a_client)
    dealt = generator.permutation(len(cut)).reshape(clients, shards_a_client)
    return [np.concatenate([cut[number] for number in hand]) for hand in dealt]


# ---------------------------------------------------------------------------------------------------- delays


def weibull(rate: float, generator: np.random.Generator, shape: float = 1.0) -> Iterator[float]:
    """Delays with a Weibull distribution of mean 1/rate: below shape 1 most are short, and some are very long."""
    scale_s = 1.0 / (rate * gamma(1.0 + 1.0 / shape))
    while True:
        yield scale_s * generator.weibull(shape)
