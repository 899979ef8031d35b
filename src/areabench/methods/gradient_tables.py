"""Gradient tables: the server steps along the mean of all clients' last gradients. The table is kept by the clients.

A client sends how its mean gradient differs from its last one, so that the server needs a running sum only.

- AFA-CS: H. Yang, X. Zhang, P. Khanduri, J. Liu: Anarchic Federated Learning, ICML 2022.
- IA²SGD: submission m3x4kDbYAK to ICLR 2025; one step for each arrival.
- DuDe-ASGD: X. Wang, Y. Sun, H.-T. Wai, J. Zhang: Dual-Delayed Asynchronous SGD for Arbitrarily Heterogeneous Data,
  arXiv:2405.16966, 2024; a step after c arrivals.
- ACE: X. Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, arXiv:2511.19066,
  2025; one step for each arrival.

Invariant, after every event: the sum at the server is the sum of what the clients remember.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Method, MethodInputs, Report, ServerStepSettings, Step, Work
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


_ETA = "what eta is where server_step_size is left out: alpha·M, as long as a round, or alpha, as long as a local step"
_STEPS = "whether the server steps as the criterion says, or for every arrival"


@dataclass(frozen=True, kw_only=True)
class GradientTable(ServerStepSettings):
    """A gradient table; what papers have given a name to are presets of its keys."""

    chooses = "clients"
    limit = "exact"
    memory = "2 d"
    needs = (Need("clients.work", ("fixed", "uniform"), "whose rounds need local steps"),)

    server_step_size: float | None = key("step size eta of the server; left out: as `eta` says", None, above=0)
    eta: Literal["alpha·M", "alpha"] = key(_ETA, "alpha·M", written=False)
    steps: Literal["criterion", "arrivals"] = key(_STEPS, "criterion", written=False)

    @property
    def eta_left_out(self) -> Literal["alpha", "alpha·M"]:
        """As `eta` says."""
        return self.eta

    def check(self, experiment: Experiment) -> None:
        """Steps for every arrival leave nothing to a clock."""
        super().check(experiment)
        if self.steps == "arrivals" and experiment.aggregation.name != "updates":
            raise UserError(
                f'aggregation.name: "{experiment.aggregation.name}" makes no sense with {self.name}, which steps for '
                'every update; use "updates"'
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        eta = self.server_step(inputs)
        return gradient_table(self.name, inputs.clients, eta, every_arrival=self.steps == "arrivals")


@dataclass(frozen=True, kw_only=True)
class AfaCs(GradientTable):
    """AFA-CS: a table of the clients' last mean gradients, whose mean is applied at every step."""

    label = "AFA-CS"
    colour = "#2E8B57"
    page = "methods-memory.md#gradient-tables"
    paper = "Yang et al., ICML 2022"

    name: str = "afa-cs"


@dataclass(frozen=True, kw_only=True)
class Dude(GradientTable):
    """DuDe-ASGD: a gradient table with steps of gamma, after every c arrivals, c being `aggregation.updates`."""

    label = "DuDe-ASGD"
    colour = "#76A21E"
    page = "methods-memory.md#gradient-tables"
    paper = "Wang et al., arXiv:2405.16966, 2024"

    name: str = "dude"
    eta: Literal["alpha·M", "alpha"] = key(_ETA, "alpha", written=False)


@dataclass(frozen=True, kw_only=True)
class Ace(GradientTable):
    """ACE: a gradient table with a step of gamma for every arrival, whatever the criterion."""

    label = "ACE"
    colour = "#3B6E4F"
    page = "methods-memory.md#gradient-tables"
    paper = "Chang et al., arXiv:2511.19066, 2025"

    name: str = "ace"
    eta: Literal["alpha·M", "alpha"] = key(_ETA, "alpha", written=False)
    steps: Literal["criterion", "arrivals"] = key(_STEPS, "arrivals", written=False)


@dataclass(frozen=True, kw_only=True)
class Ia2Sgd(Ace):
    """IA²SGD: a gradient table with a step of gamma for every arrival; equal to ACE to the bit."""

    label = "IA²SGD"
    colour = "#4C9A2A"
    page = "methods-memory.md#gradient-tables"
    paper = "submission m3x4kDbYAK to ICLR 2025"

    name: str = "ia2sgd"


def mean_gradient(work: Work) -> Vector:
    """G = (x - x_i)/(alpha K): the mean of the K gradients of a round."""
    return (work.start - work.local) / (work.steps * work.step_size)


class ClientMean(NamedTuple):
    """The mean of what the clients remember, without what each remembers, and who has not reported yet."""

    total: Vector
    clients: int  # n
    awaited: int  # clients that have not reported, lost ones aside
    heard: NDArray[np.bool_]  # who has reported, shape (n,); changed in place
    silent: int = 0  # lost clients that have never reported: they are in n, and not in the mean

    @classmethod
    def begin(cls, model: Vector, clients: int) -> ClientMean:
        """All remember zero, and nobody has reported."""
        return cls(np.zeros_like(model), clients, clients, np.zeros(clients, np.bool_))

    def add(self, client: int, change: Vector) -> ClientMean:
        """A client reports how its memory has changed."""
        first = not self.heard[client]
        self.heard[client] = True
        return self._replace(total=self.total + change, awaited=self.awaited - first)

    def plus(self, total: Vector) -> ClientMean:
        """With a sum of changes whose clients are noted already."""
        return self._replace(total=self.total + total)

    def mean(self) -> Vector:
        """The mean over all clients that have reported."""
        return self.total / (self.clients - self.silent)

    def lose(self, client: int) -> ClientMean:
        """A client is lost: its memory stays; if it has none, it is not awaited, and not in the mean."""
        if self.heard[client]:
            return self
        return self._replace(awaited=self.awaited - 1, silent=self.silent + 1)

    def remove(self, count: int, memories: Vector) -> ClientMean:
        """Remove all lost clients, `count` of them, whose memories add up to `memories`."""
        return self._replace(total=self.total - memories, clients=self.clients - count, silent=0)


class TableState(NamedTuple):
    """The server's model, the clients' gradients, and the updates since the last server step."""

    model: Vector
    gradients: ClientMean
    pending: int = 0


def gradient_table(name: str, clients: int, server_step_size: Any, *, every_arrival: bool = False) -> Method:
    """A gradient table that steps when the criterion says so, or for every arrival; first when all have reported."""

    def start(model: Vector) -> Step:
        return Step(TableState(model, ClientMean.begin(model, clients)), tuple(range(clients)))

    def receive(state: TableState, arrival: Arrival) -> Step:
        # sum <- sum + (G - G_old)
        gradients = state.gradients.add(arrival.client, arrival.payload)
        return Step(TableState(state.model, gradients, state.pending + 1), (arrival.client,))

    def aggregate(state: TableState) -> Step:
        # x_s <- x_s - eta · sum/n
        if state.gradients.awaited:
            # before all have reported, the mean would be that of the fast clients
            return Step(state, stepped=False)
        return Step(TableState(state.model - server_step_size * state.gradients.mean(), state.gradients))

    def due(state: TableState) -> bool:
        return state.pending > 0 and not state.gradients.awaited

    def lose(state: TableState, client: int, _orders: int) -> Step:
        return Step(state._replace(gradients=state.gradients.lose(client)))

    def recalled(state: TableState) -> Vector:
        return state.gradients.total.astype(np.float64)

    def remove(state: TableState, count: int, memories: Vector) -> TableState:
        return state._replace(gradients=state.gradients.remove(count, memories))

    def add(state: TableState, total: Vector) -> TableState:
        return state._replace(gradients=state.gradients.plus(total))

    return Method(
        name, np.zeros_like, send_change, start, receive, aggregate, reply="after", due=due if every_arrival else None,
        lose=lose, recalled=recalled, remove=remove, add=None if every_arrival else add,
    )  # fmt: skip


def send_change(memory: Vector, work: Work) -> Report:
    """A client sends G - G_old, and remembers G."""
    gradient = mean_gradient(work)
    return Report(gradient - memory, gradient)
