"""The experiment as frozen records: every key of the TOML file, its unit, range and default.

A field's metadata carries its `Limits`; `config` enforces them, so a record that came from `config` is valid.
A section with several variants is a union of records told apart by their `name`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Limits:
    """What a key means and which values it takes: `minimum`/`maximum` inclusive, `above`/`below` exclusive."""

    doc: str
    unit: str = ""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Whether a number lies within the limits."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def describe(self) -> str:
        """The limits in words, empty when there are none."""
        bounds = [(">=", self.minimum), (">", self.above), ("<=", self.maximum), ("<", self.below)]
        return " and ".join(f"{sign} {bound:.15g}" for sign, bound in bounds if bound is not None)


NO_DEFAULT: Any = object()


def key(
    doc: str,
    default: Any = NO_DEFAULT,
    *,
    unit: str = "",
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
) -> Any:
    """One documented key of an experiment file."""
    metadata = {"limits": Limits(doc, unit, minimum, above, maximum, below)}
    return field(metadata=metadata) if default is NO_DEFAULT else field(default=default, metadata=metadata)


# ---------------------------------------------------------------------------------------------------- problem


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """l2-regularised multinomial logistic regression without bias, in float32 (the paper's section 5)."""

    name: Literal["logistic"] = "logistic"
    regularisation: float = key("weight nu of (nu/2)·|W|²", 1e-3, minimum=0)
    batch_size: int = key("images in a mini-batch, drawn with replacement", 32, unit="images", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "what client i descends: `share` (s_i/S)·f_i (recovered from the paper's tables) or `exact` n·(s_i/S)·f_i",
        "share",
    )
    start_width: float = key("W starts uniform on (-width, width); recovered from the paper's tables", 0.5, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Random strongly convex quadratics f_i(x) = ½ (x-c_i)'H_i(x-c_i) in float64, with known minimiser."""

    name: Literal["quadratic"] = "quadratic"
    dimension: int = key("length of x", 10, minimum=1)
    curvature_min: float = key("smallest eigenvalue mu of every H_i", 1.0, above=0)
    curvature_max: float = key("largest eigenvalue L of every H_i", 10.0, above=0)
    heterogeneity: float = key("standard deviation of the entries of the centres c_i", 1.0, minimum=0)
    noise: float = key("gradient noise sigma: E|g - grad f_i|² = sigma²", 0.0, minimum=0)
    start_distance: float = key("distance of the starting point from the minimiser", 1.0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """Any torch.nn.Module, trained as one flat float32 vector. Its import paths are executed: run files you trust."""

    name: Literal["torch"] = "torch"
    module: str = key("import path `package.module:factory` of a function (features, classes) -> torch.nn.Module")
    loss: str = key("import path of the loss (outputs, labels) -> scalar mean", "torch.nn.functional:cross_entropy")
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0)
    batch_size: int = key("samples in a mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "what client i descends: `share` (s_i/S)·f_i or `exact` n·(s_i/S)·f_i", "exact"
    )


ProblemSettings = Logistic | Quadratic | TorchModule

# ---------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True, kw_only=True)
class Mnist:
    """MNIST, 60,000 training and 10,000 test images of 28×28; travels inside the package."""

    name: Literal["mnist"] = "mnist"


@dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's 8×8 digits: 1,437 training and 360 test images (needs scikit-learn)."""

    name: Literal["digits"] = "digits"


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Gaussian blobs, one a class, as uint8 features; drawn from `seed`, the same for all trials."""

    name: Literal["synthetic"] = "synthetic"
    train_samples: int = key("training samples", 2000, unit="samples", minimum=1)
    test_samples: int = key("test samples", 500, unit="samples", minimum=1)
    features: int = key("features a sample", 20, minimum=1)
    classes: int = key("classes", 10, minimum=2, maximum=255)
    spread: float = key("standard deviation within a class, in units of the spread between classes", 1.0, minimum=0)
    seed: int = key("seed of the data, apart from the experiment's", 0, minimum=0, below=2**32)


DataSettings = Mnist | Digits | Synthetic

# ---------------------------------------------------------------------------------------------------- split


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """Per class, Dirichlet shares over the clients (the paper's non-IID split)."""

    name: Literal["dirichlet"] = "dirichlet"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0)
    minimum: int = key("samples every client ends with at the least", 1, unit="samples", minimum=1)


@dataclass(frozen=True, kw_only=True)
class DirichletEqual:
    """Per client, Dirichlet shares over the classes; all clients hold equally many samples."""

    name: Literal["dirichlet-equal"] = "dirichlet-equal"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0)


@dataclass(frozen=True, kw_only=True)
class Iid:
    """An even split of a shuffle."""

    name: Literal["iid"] = "iid"


@dataclass(frozen=True, kw_only=True)
class NearlyIid:
    """The paper's IID split for n = 128: all but the last client get equally many of each label, the last the rest."""

    name: Literal["nearly-iid"] = "nearly-iid"


SplitSettings = Dirichlet | DirichletEqual | Iid | NearlyIid

# ---------------------------------------------------------------------------------------------------- clients, time


@dataclass(frozen=True, kw_only=True)
class Clients:
    """How many clients there are and how much each computes between two messages."""

    count: int = key("number of clients n", minimum=1, maximum=1_000_000)
    local_steps: int = key("local gradient steps M a round", 1, minimum=1)


@dataclass(frozen=True, kw_only=True)
class UniformRates:
    """Every client has the same update rate."""

    name: Literal["uniform"] = "uniform"
    rate: float = key("updates a second of each client", 10.0, unit="1/s", above=0)


@dataclass(frozen=True, kw_only=True)
class NormalRates:
    """Rates drawn once a trial from N(mean, deviation²); draws that are not positive are drawn again (recovered)."""

    name: Literal["normal"] = "normal"
    mean: float = key("mean rate", 10.0, unit="1/s", above=0)
    deviation: float = key("standard deviation of the rates", 5.0, unit="1/s", minimum=0)


@dataclass(frozen=True, kw_only=True)
class LognormalRates:
    """Rates drawn once a trial as median·exp(sigma·N(0, 1))."""

    name: Literal["lognormal"] = "lognormal"
    median: float = key("median rate", 10.0, unit="1/s", above=0)
    sigma: float = key("standard deviation of the logarithm", 1.0, minimum=0, maximum=20)


@dataclass(frozen=True, kw_only=True)
class ListedRates:
    """One rate a client, written down."""

    name: Literal["list"] = "list"
    values: tuple[float, ...] = key("rate of client 0, 1, ...", unit="1/s", above=0)


RateSettings = UniformRates | NormalRates | LognormalRates | ListedRates


@dataclass(frozen=True, kw_only=True)
class ExponentialDelays:
    """A client's time between two consecutive updates is Exp(rate): the whole cycle, computing inside it."""

    name: Literal["exponential"] = "exponential"


@dataclass(frozen=True, kw_only=True)
class FixedDelays:
    """A client's time between two consecutive updates is exactly 1/rate."""

    name: Literal["fixed"] = "fixed"


@dataclass(frozen=True, kw_only=True)
class TraceDelays:
    """Delays read from a CSV file with the columns `client,delay_s`; a client's rows are used in order, then anew."""

    name: Literal["trace"] = "trace"
    file: str = key("path of the CSV file, relative to the experiment file")


DelaySettings = ExponentialDelays | FixedDelays | TraceDelays

# ---------------------------------------------------------------------------------------------------- method


@dataclass(frozen=True, kw_only=True)
class Area:
    """AREA, the paper's Algorithms 1 and 2: residuals against a client-side memory."""

    name: Literal["area"] = "area"
    step_size: float = key("step size alpha (at iteration 0 where there is a schedule)", above=0)


@dataclass(frozen=True, kw_only=True)
class AsFedAvg:
    """Asynchronous FedAvg: the server takes the plain mean of the buffered models."""

    name: Literal["as-fedavg"] = "as-fedavg"
    step_size: float = key("step size alpha", above=0)


@dataclass(frozen=True, kw_only=True)
class FedBuff:
    """FedBuff: buffered pseudo-gradients, applied with a server step size."""

    name: Literal["fedbuff"] = "fedbuff"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float | None = key(
        "step size eta of the server; left out: eta = alpha (recovered from the paper's tables)", None, above=0
    )


@dataclass(frozen=True, kw_only=True)
class SFedAvg:
    """Synchronous FedAvg: each round waits for all the clients it drew."""

    name: Literal["s-fedavg"] = "s-fedavg"
    step_size: float = key("step size alpha", above=0)
    clients_per_round: int = key("clients drawn a round, uniformly without replacement", 4, minimum=1)


MethodSettings = Area | AsFedAvg | FedBuff | SFedAvg


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule:
    """alpha_k = alpha."""

    name: Literal["constant"] = "constant"


@dataclass(frozen=True, kw_only=True)
class InverseSchedule:
    """alpha_k = alpha / (1 + k/offset)."""

    name: Literal["1/k"] = "1/k"
    offset: float = key("iterations until the step size has halved", 1.0, unit="iterations", above=0)


@dataclass(frozen=True, kw_only=True)
class InverseRootSchedule:
    """alpha_k = alpha / sqrt(1 + k/offset)."""

    name: Literal["1/sqrt(k)"] = "1/sqrt(k)"
    offset: float = key("iterations until the squared step size has halved", 1.0, unit="iterations", above=0)


ScheduleSettings = ConstantSchedule | InverseSchedule | InverseRootSchedule


@dataclass(frozen=True, kw_only=True)
class EveryUpdates:
    """The server steps after each `updates` client updates. S-FedAvg ignores it: its round is its criterion."""

    name: Literal["updates"] = "updates"
    updates: int = key("client updates between two server steps (Delta)", 4, minimum=1)


@dataclass(frozen=True, kw_only=True)
class EveryPeriod:
    """The server steps at fixed times."""

    name: Literal["period"] = "period"
    period_s: float = key("time between two server steps", unit="s", above=0)


@dataclass(frozen=True, kw_only=True)
class PoissonAggregation:
    """The server steps at the arrivals of a Poisson process (the paper's Example 1)."""

    name: Literal["poisson"] = "poisson"
    rate: float = key("server steps a second (lambda_s)", unit="1/s", above=0)


AggregationSettings = EveryUpdates | EveryPeriod | PoissonAggregation

# ---------------------------------------------------------------------------------------------------- end, record


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When a run ends: whichever comes first. A horizon or an iteration count is needed."""

    horizon_s: float | None = key("horizon t_h", None, unit="s", above=0)
    iterations: int | None = key("iterations K: updates received plus server steps", None, minimum=1)
    target_accuracy: float | None = key("test accuracy that ends the run", None, unit="%", above=0, maximum=100)
    target_loss: float | None = key("training loss that ends the run", None, minimum=0)
    divergence_norm: float = key("the run ends as `diverged` when |x_s| is not finite or beyond this", 1e15, above=0)

    @property
    def has_target(self) -> bool:
        """Whether a run may end at a target."""
        return self.target_accuracy is not None or self.target_loss is not None


@dataclass(frozen=True, kw_only=True)
class Record:
    """What of the models goes to the run file."""

    snapshots: Literal["grid", "aggregations", "none"] = key(
        "models kept: on a time grid, after every server step, or none but the last", "grid"
    )
    interval_s: float = key("spacing of the time grid", 0.1, unit="s", minimum=1e-3)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: everything that determines its trajectory, and when it ends."""

    clients: Clients
    method: MethodSettings
    stop: Stop
    problem: ProblemSettings
    data: DataSettings | None = None
    split: SplitSettings | None = None
    rates: RateSettings = UniformRates()
    delays: DelaySettings = ExponentialDelays()
    schedule: ScheduleSettings = ConstantSchedule()
    aggregation: AggregationSettings = EveryUpdates()
    record: Record = Record()
    name: str = key("name of the run file: at most 100 letters, digits, `.`, `_` and `-`", "experiment")
    seed: int = key("governs every random draw of the run", 0, minimum=0, below=2**32)
