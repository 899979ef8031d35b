"""Rennala SGD: asynchronous mini-batches, S gradients at one model, from whoever is fast.

A. Tyurin, P. Richtárik: Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed
Computation Model, NeurIPS 2023: Method 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import (
    Arrival,
    Buffer,
    BufferedState,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    noise_step,
    remember_nothing,
)
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Rennala(MethodSettings):
    """Rennala SGD: S gradients at one model, from whoever is fast; older ones are ignored."""

    label = "Rennala"
    colour = "#6C8EBF"
    page = "methods-optimal-time.md#rennala"
    paper = "Tyurin and Richtárik, NeurIPS 2023"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"
    advice_from = "noise"

    name: str = "rennala"
    step_size: float = key("step size gamma", above=0)
    batch: int = key("S: gradients per server step", minimum=1)

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """The step for the least epsilon, the squared norm of the gradient that is wanted, that S is for."""
        return batch_advice(self.batch, "1", L, sigma)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return rennala(inputs.clients, self.batch)


def rennala(clients: int, batch: int) -> Method:
    """Rennala SGD with `clients` clients and S = `batch`."""

    def start(model: Vector) -> Step:
        return Step(BufferedState(model, Buffer()), tuple(range(clients)))

    def receive(state: BufferedState, arrival: Arrival) -> Step:
        fresh = arrival.staleness == 0
        return Step(state._replace(buffer=state.buffer.add(arrival.payload)) if fresh else state, (arrival.client,))

    def aggregate(state: BufferedState) -> Step:
        # x <- x - gamma · mean of the S gradients
        return Step(BufferedState(state.model - state.buffer.mean(), Buffer()))

    def due(state: BufferedState) -> bool:
        return state.buffer.size >= batch

    return Method("rennala", remember_nothing, send_pseudo_gradient, start, receive, aggregate, reply="after", due=due)


def batch_advice(S: float, least: str, L: float, sigma: float) -> Iterator[str]:
    """What Rennala and Malenia advise for S gradients per step, of which there must be at least so many."""
    epsilon = sigma**2 / S
    step = min(1 / L, noise_step(epsilon * S, 2 * L, sigma))
    yield f"S = {S:g} = max({least}, ceil(sigma²/epsilon)) fits epsilon = {epsilon:.4g}"
    yield f"gamma = min(1/L, epsilon·S/(2·L·sigma²)) = {step:.4g}"
