"""The experiment as frozen records: every key of the TOML file, with its unit, range and default.

A field's metadata has its limits (`fields.key`); `parse` enforces them, so a record that was read is valid. A section
with several variants is a union of records that differ in `name`. `problem_records` has [problem], [data] and [split].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from areabench.experiment.fields import OwnMethod, OwnPart, key
from areabench.experiment.problem_records import DataSettings, ProblemSettings, SplitSettings


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What a run does when a client is lost or sends something that cannot be used."""

    lost_client: Literal["keep", "remove"] = key(
        "a lost client's last memory in AREA's average: keep or remove it",
        "keep",
    )
    bad_update: Literal["refuse", "stop"] = key(
        "an update that is not finite or belongs to no order: refuse it and let its client work again, or end the run "
        "as failed",
        "refuse",
    )
    lost: tuple[int, ...] = key("clients that the simulator loses, each at its time in `lost_at_s`", (), minimum=0)
    lost_at_s: tuple[float, ...] = key("when it loses them", (), unit="s", minimum=0)


# ---------------------------------------------------------------------------------------------------- clients, time


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The clients, and how much each computes between two messages."""

    count: int = key("number of clients n", minimum=1, maximum=1_000_000)
    local_steps: int = key("local gradient steps M per round", 1, minimum=1)


@dataclass(frozen=True, kw_only=True)
class UniformRates:
    """Every client has the same update rate."""

    name: Literal["uniform"] = "uniform"
    rate: float = key("updates per second of each client", 10.0, unit="1/s", above=0)


@dataclass(frozen=True, kw_only=True)
class NormalRates:
    """Rates drawn once per trial from N(mean, deviation²); draws that are not positive are repeated."""

    name: Literal["normal"] = "normal"
    mean: float = key("mean rate", 10.0, unit="1/s", above=0)
    deviation: float = key("standard deviation of the rates", 5.0, unit="1/s", minimum=0)


@dataclass(frozen=True, kw_only=True)
class LognormalRates:
    """Rates drawn once per trial as median·exp(sigma·N(0, 1))."""

    name: Literal["lognormal"] = "lognormal"
    median: float = key("median rate", 10.0, unit="1/s", above=0)
    sigma: float = key("standard deviation of the logarithm", 1.0, minimum=0, maximum=20)


@dataclass(frozen=True, kw_only=True)
class ListedRates:
    """One given rate per client."""

    name: Literal["list"] = "list"
    values: tuple[float, ...] = key("rate of client 0, 1, ...", unit="1/s", above=0)


RateSettings = UniformRates | NormalRates | LognormalRates | ListedRates


@dataclass(frozen=True, kw_only=True)
class ExponentialDelays:
    """Exp(rate) between two updates of a client, computing included."""

    name: Literal["exponential"] = "exponential"


@dataclass(frozen=True, kw_only=True)
class FixedDelays:
    """Exactly 1/rate between two updates of a client, computing included."""

    name: Literal["fixed"] = "fixed"


@dataclass(frozen=True, kw_only=True)
class TraceDelays:
    """From a CSV file with the columns `client,delay_s`; a client's rows are used in order, then again."""

    name: Literal["trace"] = "trace"
    file: str = key("path of the CSV file, relative to the experiment file")


DelaySettings = ExponentialDelays | FixedDelays | TraceDelays | OwnPart


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How fast the experiment's time passes on MPI; the simulator ignores it."""

    stretch: float = key(
        "real seconds per second of the experiment; above 1 where computing does not fit into the delays",
        1.0,
        minimum=1e-3,
        maximum=1e6,
    )


# ---------------------------------------------------------------------------------------------------- method


@dataclass(frozen=True, kw_only=True)
class Area:
    """AREA, the paper's Algorithms 1 and 2: residuals against a client-side memory."""

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

    name: Literal["as-fedavg"] = "as-fedavg"
    step_size: float = key("step size alpha", above=0)


@dataclass(frozen=True, kw_only=True)
class FedBuff:
    """FedBuff: buffered pseudo-gradients, applied with a server step size."""

    name: Literal["fedbuff"] = "fedbuff"
    step_size: float = key("step size alpha of the clients", above=0)
    server_step_size: float | None = key("step size eta of the server; left out: alpha", None, above=0)


@dataclass(frozen=True, kw_only=True)
class SFedAvg:
    """Synchronous FedAvg: each round waits for all clients that it drew."""

    name: Literal["s-fedavg"] = "s-fedavg"
    step_size: float = key("step size alpha", above=0)
    clients_per_round: int = key("clients drawn per round, uniformly without replacement", 4, minimum=1)


MethodSettings = Area | AsFedAvg | FedBuff | SFedAvg | OwnMethod


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


@dataclass(frozen=True, kw_only=True)
class Theorem1Schedule:
    """Theorem 1's alpha_k = 1/(p_min·M·gamma·k/48 + 1/D), times `method.step_size`: 1 for the theorem's own."""

    name: Literal["theorem1"] = "theorem1"
    strong_convexity: float | None = key("mu of every f_i; left out: the problem's", None, above=0)
    smoothness: float | None = key("L of every f_i; left out: the problem's", None, above=0)
    least_probability: float | None = key(
        "p_min of all events; left out: from the rates and the criterion",
        None,
        above=0,
        maximum=1,
    )


@dataclass(frozen=True, kw_only=True)
class Theorem2Schedule:
    """Theorem 2's constant alpha for K iterations, times `method.step_size`: 1 for the theorem's own."""

    name: Literal["theorem2"] = "theorem2"
    lipschitz: float | None = key("Lipschitz constant B of every f_i; left out: the problem's", None, above=0)
    noise: float | None = key("subgradient noise sigma; left out: the problem's", None, minimum=0)
    distance: float | None = key(
        "distance |x_s0 - x*| from a minimiser at the start; left out: the problem is solved", None, above=0
    )
    iterations: int | None = key(
        "iterations K; left out: `stop.iterations`, or those expected within `stop.horizon_s`", None, minimum=1
    )


ScheduleSettings = ConstantSchedule | InverseSchedule | InverseRootSchedule | Theorem1Schedule | Theorem2Schedule


@dataclass(frozen=True, kw_only=True)
class EveryUpdates:
    """The server steps after each `updates` client updates."""

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
    rate: float = key("server steps per second (lambda_s)", unit="1/s", above=0)


AggregationSettings = EveryUpdates | EveryPeriod | PoissonAggregation

# ---------------------------------------------------------------------------------------------------- end, record


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A run ends at the first limit that it reaches."""

    horizon_s: float | None = key(
        "horizon t_h: until then at most 1e10 updates and 1e10 server steps may be expected", None, unit="s", above=0
    )
    iterations: int | None = key("iterations K: updates used plus server steps", None, minimum=1)
    target_accuracy: float | None = key("test accuracy that ends the run", None, unit="%", above=0, maximum=100)
    target_loss: float | None = key("training loss that ends the run", None, minimum=0)
    divergence_norm: float = key("a larger or not finite |x_s| ends the run as `diverged`", 1e15, above=0)

    @property
    def has_target(self) -> bool:
        """Whether a run may end at a target."""
        return self.target_accuracy is not None or self.target_loss is not None


@dataclass(frozen=True, kw_only=True)
class Record:
    """Which models and events the run file keeps."""

    snapshots: Literal["grid", "aggregations", "none"] = key(
        "models kept: on a time grid, after every server step, or only the last", "grid"
    )
    interval_s: float = key("spacing of the time grid", 0.1, unit="s", minimum=1e-3)
    models: Literal["all", "last"] = key("`last` keeps only the last model, and a checksum of each", "all")
    loss_every: int = key("n: the training loss is computed for every n-th snapshot and the last", 1, minimum=1)
    average: bool = key("also keep the running mean of the server's models (Theorem 2's average) and its loss", False)
    events: bool = key("keep the event log, which `replay` follows", True)


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
    clock: Clock = Clock()
    schedule: ScheduleSettings = ConstantSchedule()
    aggregation: AggregationSettings = EveryUpdates()
    faults: Faults = Faults()
    record: Record = Record()
    name: str = key("begins the run file's name: at most 100 letters, digits, `.`, `_` and `-`", "experiment")
    seed: int = key("determines every random draw", 0, minimum=0, below=2**32)
    module_folders: tuple[str, ...] | None = key(
        "folders searched first for modules named by import path; left out: the experiment file's",
        None,
    )
