"""The experiment as frozen records: every key of the TOML file, with its unit, range and default.

A field's metadata has its limits (`fields.key`); `parse` enforces them, so a record that was read is valid. A section
with several variants is a union of records that differ in `name`. `method_records` has [method] and [local],
`problem_records` has [problem], [data] and [split].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from areabench.experiment.fields import OwnPart, key
from areabench.experiment.method_records import Local, MethodSettings
from areabench.experiment.problem_records import DataSettings, ProblemSettings, SplitSettings
from areabench.kernels import Bits


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What a run does when a client is lost or sends something that cannot be used."""

    lost_client: Literal["keep", "remove"] = key(
        "a lost client's last memory in the average of AREA, CA2FL, MIFA and the gradient tables: keep or remove it",
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
    local_steps: int = key("local gradient steps M per round; at most so many, where `work` is not fixed", 1, minimum=1)
    work: Literal["fixed", "uniform", "ticks"] = key(
        "local steps of a round: M; 1 to M, drawn by the client; or as many ticks as its delay has, at most M",
        "fixed",
        written=False,
    )
    tick_s: float | None = key('duration of a local step of work = "ticks"', None, unit="s", above=0)


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


PER = "what a delay is for: a round, or each local step of it; rates are then local steps per second"


@dataclass(frozen=True, kw_only=True)
class ExponentialDelays:
    """Exp(rate) between two updates of a client, computing included."""

    name: Literal["exponential"] = "exponential"
    per: Literal["round", "step"] = key(PER, "round", written=False)


@dataclass(frozen=True, kw_only=True)
class FixedDelays:
    """Exactly 1/rate between two updates of a client, computing included."""

    name: Literal["fixed"] = "fixed"
    per: Literal["round", "step"] = key(PER, "round", written=False)


@dataclass(frozen=True, kw_only=True)
class TraceDelays:
    """From a CSV file with the columns `client,delay_s`; a client's rows are used in order, then again."""

    name: Literal["trace"] = "trace"
    file: str = key("path of the CSV file, relative to the experiment file")
    per: Literal["round", "step"] = key(PER, "round", written=False)


@dataclass(frozen=True, kw_only=True)
class OwnDelays(OwnPart):
    """A function of the user's own, which is executed."""

    per: Literal["round", "step"] = key(PER, "round", written=False)


DelaySettings = ExponentialDelays | FixedDelays | TraceDelays | OwnDelays


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How fast the experiment's time passes on MPI; the simulator ignores it."""

    stretch: float = key(
        "real seconds per second of the experiment; above 1 where computing does not fit into the delays",
        1.0,
        minimum=1e-3,
        maximum=1e6,
    )


# ---------------------------------------------------------------------------------------------------- server


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
class InverseTimeSchedule:
    """alpha(t) = alpha / (1 + t/offset_s), t the time at which the order goes out."""

    name: Literal["1/t"] = "1/t"
    offset_s: float = key("time until the step size has halved", 1.0, unit="s", above=0)


@dataclass(frozen=True, kw_only=True)
class InverseRootTimeSchedule:
    """alpha(t) = alpha / sqrt(1 + t/offset_s), t the time at which the order goes out."""

    name: Literal["1/sqrt(t)"] = "1/sqrt(t)"
    offset_s: float = key("time until the squared step size has halved", 1.0, unit="s", above=0)


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


ScheduleSettings = (
    ConstantSchedule
    | InverseSchedule
    | InverseRootSchedule
    | InverseTimeSchedule
    | InverseRootTimeSchedule
    | Theorem1Schedule
    | Theorem2Schedule
)


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


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Secure aggregation: updates are masked integers, and a helper gives the server the masks of sums alone."""

    bits: int = key("of the integers that an update is made of: 32 or 64", 32, minimum=32, maximum=64)
    range: float = key("largest absolute value of an entry of an update", 16.0, above=0, maximum=1e6)
    outside: Literal["clip", "refuse"] = key(
        "an update with an entry beyond `range`: clip it, or refuse it and let its client work again; one that is not "
        "finite is always refused",
        "clip",
    )
    threshold: int = key("fewest clients whose updates are summed", 2, minimum=2)
    most_updates: int = key(
        "most updates in a sum; the integers keep room for so many", 256, minimum=2, maximum=1_000_000
    )

    @property
    def fraction_bits(self) -> int:
        """Bits behind the point: as many as leave room for a sum of `most_updates` entries at the range, at most 40.

        The sums that clients remember have 64 bits, and 23 of them before the point.
        """
        bits, widest = 40, self.range * (1 + 1e-6)  # single precision may round the range up
        while bits > 0 and self.most_updates * math.ceil(widest * 2**bits) >= 2 ** (self.bits - 1):
            bits -= 1
        return bits


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
    local: Local = key("", Local(), written=False)
    rates: RateSettings = UniformRates()
    delays: DelaySettings = ExponentialDelays()
    clock: Clock = Clock()
    schedule: ScheduleSettings = ConstantSchedule()
    aggregation: AggregationSettings = EveryUpdates()
    faults: Faults = Faults()
    privacy: Privacy | None = None
    record: Record = Record()
    name: str = key("begins the run file's name: at most 100 letters, digits, `.`, `_` and `-`", "experiment")
    seed: int = key("determines every random draw", 0, minimum=0, below=2**32)
    bits: Bits = key(
        "kernels that compute: `native`, the fastest of this processor; `portable`, those of every x86-64 processor "
        "with AVX2, so that machines give the same bits",
        "native",
        written=False,
    )
    module_folders: tuple[str, ...] | None = key(
        "folders searched first for modules named by import path; left out: the experiment file's",
        None,
    )
