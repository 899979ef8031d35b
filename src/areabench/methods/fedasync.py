"""FedAsync: each arrival mixes the client's model into the server's, less if it is stale.

C. Xie, O. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.as_fedavg import send_model
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Step, remember_nothing
from areabench.methods.local import with_prox
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


@dataclass(frozen=True, kw_only=True)
class FedAsync(MethodSettings):
    """FedAsync: each arrival mixes the client's model into the server's, less if it is stale."""

    label = "FedAsync"
    colour = "#E1503F"
    page = "methods-mixing.md#fedasync"
    paper = "Xie et al., 2019"
    chooses = "clients"
    limit = "biased to fast clients, more if scaled"
    memory = "2 d"
    needs = (Need("aggregation.name", ("updates",), "which steps at each arrival"),)

    name: str = "fedasync"
    mixing: float = key("a: weight of a fresh model", 0.6, above=0, maximum=1)
    staleness: Literal["constant", "polynomial", "hinge"] = key(
        "factor of a model that is tau versions old: 1; (1 + tau)^-p; or 1 up to tau = b, then 1/(h·(tau - b) + 1)",
        "polynomial",
    )
    exponent: float = key("p", 0.5, minimum=0)
    hinge_slope: float = key("h", 10.0, above=0)
    hinge_delay: int = key("b", 4, minimum=0)
    prox: float = key("rho: adds rho·(y - x) to each local gradient", 0.005, minimum=0)

    def shares_pass(self, clients: Clients) -> bool:
        """The proximal term corrects the gradients of one model at a time."""
        return not self.prox or clients.local_steps == 1

    def check(self, experiment: Experiment) -> None:
        """There is one proximal term."""
        if self.prox and experiment.local.prox:
            raise UserError(
                f"local.prox: {experiment.local.prox} would be added to method.prox = {self.prox}; set one to 0"
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        scale = {
            "constant": constant,
            "polynomial": polynomial(self.exponent),
            "hinge": hinge(self.hinge_slope, self.hinge_delay),
        }[self.staleness]
        method = fedasync(inputs.clients, self.mixing, scale)
        return with_prox(method, self.prox) if self.prox and inputs.local_steps > 1 else method


class MixingState(NamedTuple):
    """The server's model, and the one that takes its place at the step, which follows each update."""

    model: Vector
    mixed: Vector | None


def step_to_mixed(state: MixingState) -> Step:
    """The server's model becomes the mixed one."""
    assert state.mixed is not None
    return Step(MixingState(state.mixed, None))


def has_mixed(state: MixingState) -> bool:
    """Whether an update has arrived since the last step."""
    return state.mixed is not None


def fedasync(clients: int, mixing: float, scale: Callable[[int], float]) -> Method:
    """FedAsync with the weight a = `mixing` of a fresh model, and the factor s(tau) = `scale` of a stale one."""

    def start(model: Vector) -> Step:
        return Step(MixingState(model, None), tuple(range(clients)))

    def receive(state: MixingState, arrival: Arrival) -> Step:
        # x_s <- (1 - a_t) x_s + a_t x_i, a_t = a · s(tau)
        weight = mixing * scale(arrival.staleness)
        mixed = (1 - weight) * state.model + weight * arrival.payload
        return Step(MixingState(state.model, mixed), (arrival.client,))

    return Method("fedasync", remember_nothing, send_model, start, receive, step_to_mixed, reply="after", due=has_mixed)


def constant(_staleness: int) -> float:
    """The factor 1."""
    return 1.0


def polynomial(exponent: float) -> Callable[[int], float]:
    """The factor (1 + tau)^-p."""
    return lambda staleness: float((1 + staleness) ** -exponent)


def hinge(slope: float, delay: int) -> Callable[[int], float]:
    """The factor 1 up to tau = b, then 1/(h (tau - b) + 1)."""
    return lambda staleness: 1 / (slope * max(0, staleness - delay) + 1)
