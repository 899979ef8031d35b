"""The section [method] as frozen records, one per method, and the section [local]: what clients do in addition.

`client_driven` methods answer every update with an order to the same client, so their runs have the same arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from areabench.experiment.fields import OwnMethod, key


@dataclass(frozen=True, kw_only=True)
class Local:
    """What local steps do in addition to the method's own rule."""

    prox: float = key("rho: adds rho·(y - x) to each gradient, x the model that the client was sent", 0.0, minimum=0)
    control_variates: bool = key("SCAFFOLD: clients and server keep control variates, which correct gradients", False)
    momentum: float = key(
        "beta: local steps follow v <- beta·v + gradient, from v = 0 in each round", 0.0, minimum=0, below=1
    )


# ---------------------------------------------------------------------------------------------------- the paper's


@dataclass(frozen=True, kw_only=True)
class Area:
    """AREA, the paper's Algorithms 1 and 2: residuals against a client-side memory."""

    client_driven: ClassVar[bool] = True
    name: Literal["area"] = "area"
    step_size: float = key(
        "step size alpha; of iteration 0 with a schedule, a factor with a theorem's schedule", above=0
    )
    first_message: Literal["trained", "zero"] = key(
        "a client's first message: from M local steps on x_s0, as in Algorithm 2, or zero, as in the paper's appendix, "
        "where x_i0 = x_s0 and a client first trains on the reply to it",
        "trained",
        written=False,
    )


@dataclass(frozen=True, kw_only=True)
class AsFedAvg:
    """Asynchronous FedAvg: the server takes the plain mean of the buffered models."""

    client_driven: ClassVar[bool] = True
    name: Literal["as-fedavg"] = "as-fedavg"
    step_size: float = key("step size alpha", above=0)


@dataclass(frozen=True, kw_only=True)
class FedBuff:
    """FedBuff as the AREA paper runs it: buffered pseudo-gradients, applied with a server step size."""

    client_driven: ClassVar[bool] = True
    name: Literal["fedbuff"] = "fedbuff"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float | None = key("step size eta of the server; left out: alpha", None, above=0)


@dataclass(frozen=True, kw_only=True)
class SFedAvg:
    """Synchronous FedAvg: each round waits for all clients that it drew."""

    client_driven: ClassVar[bool] = False
    name: Literal["s-fedavg"] = "s-fedavg"
    step_size: float = key("step size alpha", above=0)
    clients_per_round: int = key("clients drawn per round, uniformly without replacement", 4, minimum=1)


# ---------------------------------------------------------------------------------------------------- asynchronous SGD


@dataclass(frozen=True, kw_only=True)
class AsyncSgd:
    """Asynchronous SGD: each update is a server step, whatever the criterion, and the reply carries the new model."""

    name: Literal["async-sgd"] = "async-sgd"
    step_size: float = key("step size gamma", above=0)
    step: Literal["constant", "adaptive", "threshold"] = key(
        "factor of an update that is tau versions old: 1; C/max(C, tau), C the concurrency; or 1 up to `threshold` and "
        "less beyond",
        "constant",
    )
    threshold: int | None = key('tau_C of step = "threshold"; left out: the concurrency', None, minimum=0)
    smoothness: float | None = key(
        'L of step = "threshold": older updates get min(gamma, 1/(4·L·tau)); left out: they are dropped', None, above=0
    )
    assignment: Literal["continue", "uniform", "importance", "shuffled", "idle-uniform"] = key(
        "who works next: the same client; one drawn from all, uniformly or by `probabilities`; one after the other in "
        "an order that is drawn again for each epoch; or one drawn from those without an order",
        "continue",
    )
    concurrency: int | None = key("C: orders that are out at any time; left out: n", None, minimum=1)
    probabilities: tuple[float, ...] | None = key(
        'p of assignment = "importance", one per client; updates of client j are divided by n·p_j; left out: the '
        "shares of the samples",
        None,
        above=0,
    )

    @property
    def client_driven(self) -> bool:
        """Whether every client works all the time."""
        return self.assignment == "continue" and self.concurrency is None


# ---------------------------------------------------------------------------------------------------- buffered


@dataclass(frozen=True, kw_only=True)
class FedBuffPublished:
    """FedBuff as published: a given concurrency, clients drawn when a slot is free, updates scaled by staleness."""

    name: Literal["fedbuff-published"] = "fedbuff-published"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    concurrency: int | None = key("clients at work at any time; left out: n", None, minimum=1)
    staleness: Literal["constant", "inverse-root"] = key(
        "factor of an update that is tau versions old: 1, or 1/sqrt(1 + tau)", "inverse-root"
    )

    @property
    def client_driven(self) -> bool:
        """Whether every client works all the time: then the one that has answered is the only free one."""
        return self.concurrency is None


@dataclass(frozen=True, kw_only=True)
class FedFix:
    """FedFix: steps by the clock, for which clients wait; one that has answered weighs inverse to its chance to."""

    client_driven: ClassVar[bool] = False
    name: Literal["fedfix"] = "fedfix"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)


@dataclass(frozen=True, kw_only=True)
class FedStaleWeight:
    """FedStaleWeight: the buffered updates weigh in proportion to their clients' mean staleness."""

    client_driven: ClassVar[bool] = True
    name: Literal["fedstaleweight"] = "fedstaleweight"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    added: float = key("what is added to the mean staleness, in server steps", 0.0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class ServerMomentum:
    """Buffered updates with momentum at the server: m <- beta·m + mean, x <- x - eta·m."""

    client_driven: ClassVar[bool] = True
    name: Literal["server-momentum"] = "server-momentum"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    momentum: float = key("beta", 0.9, minimum=0, below=1)


@dataclass(frozen=True, kw_only=True)
class ServerAdam:
    """Buffered updates with Adam at the server, without bias correction."""

    client_driven: ClassVar[bool] = True
    name: Literal["server-adam"] = "server-adam"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 0.01, above=0)
    beta1: float = key("decay of the mean", 0.9, minimum=0, below=1)
    beta2: float = key("decay of the mean square", 0.99, minimum=0, below=1)
    epsilon: float = key("added to the root of the mean square", 1e-8, above=0)


@dataclass(frozen=True, kw_only=True)
class Fadas:
    """FADAS: buffered updates with AMSGrad at the server, and a step that shrinks with the delay."""

    client_driven: ClassVar[bool] = True
    name: Literal["fadas"] = "fadas"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 0.01, above=0)
    beta1: float = key("decay of the mean", 0.9, minimum=0, below=1)
    beta2: float = key("decay of the mean square", 0.99, minimum=0, below=1)
    epsilon: float = key("added to the root of the mean square", 1e-8, above=0)
    delay_threshold: int | None = key(
        "tau_c: the step is min(eta, 1/tau_max) if an update of the buffer is older; left out: always eta",
        None,
        minimum=1,
    )


# ---------------------------------------------------------------------------------------------------- mixing


@dataclass(frozen=True, kw_only=True)
class FedAsync:
    """FedAsync: each arrival mixes the client's model into the server's, less if it is stale."""

    client_driven: ClassVar[bool] = True
    name: Literal["fedasync"] = "fedasync"
    step_size: float = key("step size alpha of the clients", above=0)
    mixing: float = key("a: weight of a fresh model", 0.6, above=0, maximum=1)
    staleness: Literal["constant", "polynomial", "hinge"] = key(
        "factor of a model that is tau versions old: 1; (1 + tau)^-p; or 1 up to tau = b, then 1/(h·(tau - b) + 1)",
        "polynomial",
    )
    exponent: float = key("p", 0.5, minimum=0)
    hinge_slope: float = key("h", 10.0, above=0)
    hinge_delay: int = key("b", 4, minimum=0)
    prox: float = key("rho: adds rho·(y - x) to each local gradient", 0.005, minimum=0)


@dataclass(frozen=True, kw_only=True)
class AsyncFedEd:
    """AsyncFedED: the step of an update shrinks with the distance that the server's model has moved since."""

    client_driven: ClassVar[bool] = True
    name: Literal["asyncfeded"] = "asyncfeded"
    step_size: float = key("step size alpha of the clients", above=0)
    scale: float = key("lambda of the step lambda/(gamma + epsilon)", 1.0, above=0)
    epsilon: float = key("epsilon", 1.0, above=0)
    target: float = key("gamma that the number of local steps is steered to", 3.0, minimum=0)
    gain: float = key("kappa: how many local steps a unit of gamma adds or removes", 1.0, minimum=0)
    most_steps: int = key("greatest number of local steps", 50, minimum=1)


# ---------------------------------------------------------------------------------------------------- with memory


@dataclass(frozen=True, kw_only=True)
class Ca2fl:
    """CA2FL: a client sends how its update differs from its last one; the server adds the mean of the last ones."""

    client_driven: ClassVar[bool] = True
    name: Literal["ca2fl"] = "ca2fl"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)


@dataclass(frozen=True, kw_only=True)
class AfaCs:
    """AFA-CS: a table of the clients' last mean gradients, whose mean is applied at every step."""

    client_driven: ClassVar[bool] = True
    name: Literal["afa-cs"] = "afa-cs"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float | None = key("step size eta of the server; left out: alpha·M", None, above=0)


@dataclass(frozen=True, kw_only=True)
class Ia2Sgd:
    """IA²SGD: a gradient table as in AFA-CS, and a step for every arrival, whatever the criterion."""

    client_driven: ClassVar[bool] = True
    name: Literal["ia2sgd"] = "ia2sgd"
    step_size: float = key("step size gamma", above=0)


@dataclass(frozen=True, kw_only=True)
class Dude:
    """DuDe-ASGD: a gradient table, and a step after every c arrivals, c being `aggregation.updates`."""

    client_driven: ClassVar[bool] = True
    name: Literal["dude"] = "dude"
    step_size: float = key("step size gamma", above=0)


@dataclass(frozen=True, kw_only=True)
class Ace:
    """ACE: a gradient table of all clients, and a step for every arrival."""

    client_driven: ClassVar[bool] = True
    name: Literal["ace"] = "ace"
    step_size: float = key("step size gamma", above=0)


@dataclass(frozen=True, kw_only=True)
class Aced:
    """ACED: a gradient table at the server, of which only entries that are not too old count."""

    client_driven: ClassVar[bool] = True
    name: Literal["aced"] = "aced"
    step_size: float = key("step size gamma", above=0)
    max_delay: int = key("tau_algo: greatest age of an entry that counts, in server steps", 100, minimum=1)


@dataclass(frozen=True, kw_only=True)
class AfaCd:
    """AFA-CD: no table; the mean of the buffered mean gradients is applied."""

    client_driven: ClassVar[bool] = True
    name: Literal["afa-cd"] = "afa-cd"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float | None = key("step size eta of the server; left out: alpha·M", None, above=0)


@dataclass(frozen=True, kw_only=True)
class Mifa:
    """MIFA: rounds by the clock, in which clients that have not answered stand in with their last update."""

    client_driven: ClassVar[bool] = False  # one that has answered is free until the next round
    name: Literal["mifa"] = "mifa"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float = key("step size eta of the server", 1.0, above=0)


# ---------------------------------------------------------------------------------------------------- optimal time


@dataclass(frozen=True, kw_only=True)
class Ringmaster:
    """Ringmaster ASGD: updates that are too old are ignored, or their computation is stopped."""

    name: Literal["ringmaster"] = "ringmaster"
    step_size: float = key("step size gamma", above=0)
    max_delay: int = key("R: an update that is R or more versions old is not used", minimum=1)
    stops: bool = key("whether a client whose model has become R versions old is stopped and starts again", False)

    @property
    def client_driven(self) -> bool:
        """Whether no round is stopped."""
        return not self.stops


@dataclass(frozen=True, kw_only=True)
class Rennala:
    """Rennala SGD: S gradients at one model, from whoever is fast; older ones are ignored."""

    client_driven: ClassVar[bool] = True
    name: Literal["rennala"] = "rennala"
    step_size: float = key("step size gamma", above=0)
    batch: int = key("S: gradients per server step", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Malenia:
    """Malenia SGD: gradients at one model until every client has given enough; their means are averaged."""

    client_driven: ClassVar[bool] = True
    name: Literal["malenia"] = "malenia"
    step_size: float = key("step size gamma", above=0)
    batch: float = key("S: the server steps when the harmonic mean of the clients' counts is at least S/n", above=0)


@dataclass(frozen=True, kw_only=True)
class Ringleader:
    """Ringleader ASGD: a table of every client's gradients, then one step per client, then the next table."""

    client_driven: ClassVar[bool] = True
    name: Literal["ringleader"] = "ringleader"
    step_size: float = key("step size gamma", above=0)


# ---------------------------------------------------------------------------------------------------- local work


@dataclass(frozen=True, kw_only=True)
class AsyncCommSgd:
    """AsyncCommSGD: clients step by one clock; one that reports adds 1/n of its progress and continues."""

    client_driven: ClassVar[bool] = True
    name: Literal["asynccomm-sgd"] = "asynccomm-sgd"
    step_size: float = key("step size eta", above=0)


@dataclass(frozen=True, kw_only=True)
class FedCompass:
    """FedCompass: the server gives each client a number of steps so that groups of clients answer together."""

    client_driven: ClassVar[bool] = False
    name: Literal["fedcompass"] = "fedcompass"
    step_size: float = key("step size alpha of the clients", above=0)
    min_steps: int = key("Q_min: least number of local steps", 20, minimum=1)
    max_steps: int = key("Q_max: greatest number of local steps", 100, minimum=1)
    latency: float = key("lambda: a group waits at most so many times its expected duration", 1.2, minimum=1)
    mixing: float = key("a: factor of every update, besides 1/n and that of its staleness", 0.9, above=0, maximum=1)
    staleness: Literal["constant", "polynomial"] = key(
        "factor of an update that is tau versions old: 1, or (1 + tau)^-exponent", "polynomial"
    )
    exponent: float = key("exponent of the factor", 0.5, minimum=0)
    speed_weight: float = key(
        "weight of the newest round in the estimate of a client's seconds per step", 0.9, above=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True)
class QuAfl:
    """QuAFL without its quantiser: drawn clients send at once what they have, and average with the server."""

    client_driven: ClassVar[bool] = False
    name: Literal["quafl"] = "quafl"
    step_size: float = key("step size eta of the clients", above=0)
    clients_per_round: int = key("s: clients drawn per round", 4, minimum=1)
    period_s: float = key("time between two rounds", unit="s", above=0)


@dataclass(frozen=True, kw_only=True)
class Favas:
    """FAVAS: drawn clients send what they have, weighed by how much a client has on average."""

    client_driven: ClassVar[bool] = False
    name: Literal["favas"] = "favas"
    step_size: float = key("step size eta of the clients", above=0)
    clients_per_round: int = key("s: clients drawn per round", 4, minimum=1)
    period_s: float = key("time between two rounds", unit="s", above=0)
    expected_steps: tuple[float, ...] | None = key(
        "alpha_i: mean number of local steps that client i has made when it is contacted; left out: computed from "
        "rates and delays",
        None,
        above=0,
    )


MethodSettings = (
    Area | AsFedAvg | FedBuff | SFedAvg
    | AsyncSgd
    | FedBuffPublished | FedFix | FedStaleWeight | ServerMomentum | ServerAdam | Fadas
    | FedAsync | AsyncFedEd
    | Ca2fl | AfaCs | Ia2Sgd | Dude | Ace | Aced | AfaCd | Mifa
    | Ringmaster | Rennala | Malenia | Ringleader
    | AsyncCommSgd | FedCompass | QuAfl | Favas
    | OwnMethod
)  # fmt: skip


def calls_clients(method: MethodSettings) -> bool:
    """Whether the server chooses who works, as far as it is known: of an own method it is not."""
    return not method.client_driven and not isinstance(method, OwnMethod)
