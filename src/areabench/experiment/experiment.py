"""The experiment as frozen records: every key of the TOML file, with its unit, range and default.

A field's metadata has its limits (`settings.keys.key`), which reading enforces, so a record that was read is valid. The
records of parts are in the files of the parts; here are the others, and the experiment, which holds all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.kernels import Bits
from areabench.methods import AGGREGATIONS, METHODS, SCHEDULES
from areabench.methods.base import MethodInputs, MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryUpdates
from areabench.methods.fixed_point import Privacy
from areabench.methods.local import Local
from areabench.methods.schedules import ConstantSchedule, ScheduleSettings
from areabench.problems import DATASETS, PROBLEMS, SPLITS
from areabench.problems.base import ProblemSettings
from areabench.problems.data.settings import DataSettings
from areabench.problems.splits.rows import SplitSettings
from areabench.settings.keys import key, section
from areabench.timing import DELAYS, RATES
from areabench.timing.delays import DelaySettings
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import RateSettings, UniformRates


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

    def check(self, experiment: Experiment) -> None:
        """Each lost client is one of the experiment's, with a time, and one is left."""
        count = experiment.clients.count
        if len(self.lost) != len(self.lost_at_s):
            raise UserError(
                f"faults.lost_at_s: {list(self.lost_at_s)} is not one time for each client in faults.lost; give as many"
            )
        if any(client >= count for client in self.lost) or len(set(self.lost)) < len(self.lost):
            raise UserError(
                f"faults.lost: {list(self.lost)} are not different clients from 0 to {count - 1}; name each once"
            )
        if len(self.lost) == count:
            raise UserError(f"faults.lost: names all clients, {count} in number; leave at least one")


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
class Clock:
    """How fast the experiment's time passes on MPI; the simulator ignores it."""

    stretch: float = key(
        "real seconds per second of the experiment; above 1 where computing does not fit into the delays",
        1.0,
        minimum=1e-3,
        maximum=1e6,
    )


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
    method: MethodSettings = section(METHODS)
    stop: Stop
    problem: ProblemSettings = section(PROBLEMS)
    data: DataSettings | None = section(DATASETS, None)
    split: SplitSettings | None = section(SPLITS, None)
    local: Local = key("", Local(), written=False)
    rates: RateSettings = section(RATES, UniformRates())
    delays: DelaySettings = section(DELAYS, ExponentialDelays())
    clock: Clock = Clock()
    schedule: ScheduleSettings = section(SCHEDULES, ConstantSchedule())
    aggregation: AggregationSettings = section(AGGREGATIONS, EveryUpdates())
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

    def method_inputs(
        self, rates: NDArray[np.float64], samples: NDArray[np.int64], step_size: Any = None
    ) -> MethodInputs:
        """What the method may want to know; `step_size` stands for that of the settings, as a column."""
        return MethodInputs(
            clients=self.clients.count,
            seed=self.seed,
            step_size=self.method.step_size if step_size is None else step_size,
            local_steps=self.clients.local_steps,
            rates=rates,
            samples=samples,
            updates=self.aggregation.delta,
            period_s=self.aggregation.mean_period_s,
            random_steps=self.aggregation.random_times,
            delays=self.delays.name,
            per=self.delays.per,
        )
