"""The points of the cost benchmark: their experiments and memory, and one measured in a process of its own.

python benchmarks/perf/cost_point.py CACHE < experiment.toml     prints one line of JSON

Seconds are processor time, which a busy machine disturbs less than wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from areabench.engine.events import State, Status
from areabench.engine.scenario import build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.experiment.parse import parse_experiment
from areabench.host import peak_bytes
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import MethodSettings
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.iid import Iid
from areabench.progress import Style
from areabench.settings.parse import to_toml
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_run
from areabench.transports.simulator import LaneRecorder, Simulator

METHODS: tuple[MethodSettings, ...] = (
    Area(step_size=1.0),
    FedBuff(step_size=1.0),
    AsFedAvg(step_size=1.0),
    SFedAvg(step_size=1.0),
)
DELTA = 4  # updates between two server steps, and clients per round of S-FedAvg
ROUNDS = 4  # of each client on average, at least: then 97 % of the models that will be in use are
_WORK = 2e8  # parameters times local steps times updates: some seconds
_MNIST_PARAMETERS = 7840
_BYTES = 4  # of a float32

Letter = Literal["n", "d", "M"]


@dataclass(frozen=True)
class Point:
    """One measurement: an experiment, and its place on an axis."""

    letter: Letter
    value: int
    experiment: Experiment

    @property
    def method(self) -> str:
        """Name of its method."""
        return self.experiment.method.name


@dataclass(frozen=True)
class Measured:
    """A point with its cost; no cost where its memory would pass the limit."""

    point: Point
    cost: Cost | None


@dataclass(frozen=True)
class Sizes:
    """How far each axis reaches."""

    clients: tuple[int, ...] = (128, 1_000, 10_000, 100_000)
    parameters: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    local_steps: tuple[int, ...] = (1, 5, 20, 50, 200)
    set_up: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)  # clients that are made ready to work
    many_clients: int = 10_000  # of the claim that many clients fit into little memory
    methods: tuple[MethodSettings, ...] = METHODS
    samples: int = 100_000
    updates: int = 20_000  # of a run, unless they take long


QUICK = Sizes((8, 64), (100,), (5,), (40,), 40, METHODS[:2], 200, 50)
_FEATURES, _CLASSES, _CLIENTS = 784, 10, 128  # the paper's, on the axes that do not vary them
_FEW_FEATURES, _QUADRATIC = 20, 10  # the defaults of synthetic data and of quadratics
_MANY_CLASSES, _FEW_SAMPLES = 100, 512  # many classes keep the data of a large model small


def plan(sizes: Sizes) -> list[Point]:
    """All points, axis by axis."""
    axes: tuple[tuple[Letter, tuple[int, ...], Callable[[int, Sizes], Experiment]], ...] = (
        ("n", sizes.clients, _with_clients),
        ("d", sizes.parameters, _with_parameters),
        ("M", sizes.local_steps, _with_local_steps),
    )
    points = []
    for letter, values, build in axes:
        for value, method in product(values, sizes.methods):
            named = replace(build(value, sizes), name=f"{letter}-{value}-{method.name}", method=method)
            points.append(Point(letter, value, timed(named, sizes.updates)))
    return points


def set_up(sizes: Sizes) -> list[Experiment]:
    """AREA until its first update: per number of clients synthetic data of few and of many features, and quadratics."""
    experiments = []
    for clients in sizes.set_up:
        base = replace(_base(clients), name=f"ready-{clients}", method=METHODS[0])
        for features in (_FEW_FEATURES, _FEATURES):
            data = Synthetic(train_samples=clients, test_samples=1, features=features, classes=_CLASSES)
            experiments.append(replace(base, data=data))
        experiments.append(replace(base, problem=Quadratic(dimension=_QUADRATIC), data=None, split=None))
    return experiments


def many_clients(sizes: Sizes) -> list[Experiment]:
    """The paper's problem with many clients, for the methods without client memory; each client works a few times."""
    base = replace(_base(sizes.many_clients), data=Mnist(), split=Dirichlet())
    base = replace(base, stop=Stop(iterations=iterations(ROUNDS * sizes.many_clients)), record=Record(snapshots="none"))
    return [replace(base, name=f"many-{method.name}", method=method) for method in METHODS if method.name != "area"]


def warm_up() -> Experiment:
    """A run that does nothing but unpack the data."""
    return replace(_base(1), name="warm-up", data=Mnist(), stop=Stop(iterations=1))


def _base(clients: int, local_steps: int = 1) -> Experiment:
    record = Record(snapshots="none", events=False)
    settings = Clients(count=clients, local_steps=local_steps)
    stop = Stop(iterations=1)
    split = Iid()
    return Experiment(clients=settings, method=METHODS[1], stop=stop, problem=Logistic(), split=split, record=record)


def _with_clients(clients: int, sizes: Sizes) -> Experiment:
    data = Synthetic(train_samples=sizes.samples, test_samples=1, features=_FEATURES, classes=_CLASSES)
    return replace(_base(clients), data=data)


def _with_parameters(parameters: int, _sizes: Sizes) -> Experiment:
    features = parameters // _MANY_CLASSES
    data = Synthetic(train_samples=_FEW_SAMPLES, test_samples=1, features=features, classes=_MANY_CLASSES)
    return replace(_base(_CLIENTS), data=data)


def _with_local_steps(local_steps: int, _sizes: Sizes) -> Experiment:
    return replace(_base(_CLIENTS, local_steps), data=Mnist())


def timed(experiment: Experiment, most_updates: int) -> Experiment:
    """The experiment, ended after some seconds, but not before each client has worked a few times."""
    clients = experiment.clients
    updates = min(most_updates, int(_WORK / (dimension(experiment) * clients.local_steps)))
    return replace(experiment, stop=Stop(iterations=iterations(max(updates, ROUNDS * clients.count))))


def iterations(updates: int) -> int:
    """The iteration at which this many updates have arrived."""
    return updates + updates // DELTA


# ---------------------------------------------------------------------------------------------------- memory


def dimension(experiment: Experiment) -> int:
    """Number of parameters d."""
    data = experiment.data
    return data.classes * data.features if isinstance(data, Synthetic) else _MNIST_PARAMETERS


def memories_bytes(experiment: Experiment) -> int:
    """AREA's memories: one model per client."""
    return experiment.clients.count * dimension(experiment) * _BYTES


def versions_bytes(experiment: Experiment) -> int:
    """The models that clients of an asynchronous method work on at the same time, on average.

    A version goes to Delta clients and is in use until the slowest of them is done; their times are exponential, so
    this lasts 1 + 1/2 + ... + 1/Delta mean rounds, in each of which the server makes n/Delta versions.
    """
    rounds = sum(1 / number for number in range(1, DELTA + 1))
    return int(rounds * experiment.clients.count / DELTA * dimension(experiment) * _BYTES)


def models_bytes(experiment: Experiment) -> int:
    """All models that a run holds at the same time: those sent out, and AREA's memories."""
    match experiment.method:
        case SFedAvg():
            return DELTA * dimension(experiment) * _BYTES
        case Area():
            return versions_bytes(experiment) + memories_bytes(experiment)
        case _:
            return versions_bytes(experiment)


@dataclass(frozen=True)
class Cost:
    """What a run took: until the first update and from then on (s), its updates, its peak memory (bytes)."""

    start_s: float
    run_s: float
    updates: int
    peak_bytes: int

    @property
    def update_s(self) -> float:
        """Seconds per update; a client's first update includes making the client."""
        return self.run_s / max(1, self.updates)


class Stopwatch:
    """Notes when the first update has been served."""

    def __init__(self) -> None:
        self.first_s = 0.0

    def __call__(self, _time_s: float, _updates: int) -> None:
        """Note the time of the first update."""
        self.first_s = self.first_s or time.process_time()


def measure_here(experiment: Experiment, cache: Path) -> Cost:
    """Simulate in this process, without run file and evaluation."""
    begun_s = time.process_time()
    watch = Stopwatch()
    scenario = build_scenario(experiment, cache)
    status = checked(Simulator(scenario, LaneRecorder(1), watch).run())
    ended_s = time.process_time()
    return Cost(watch.first_s - begun_s, ended_s - watch.first_s, status.updates - 1, peak_bytes(resource.RUSAGE_SELF))


def measure_whole(experiment: Experiment, cache: Path) -> Cost:
    """Simulate in this process as `areabench simulate` does: run file and evaluation count."""
    begun_s = time.process_time()
    options = RunOptions(cache / "whole.h5", cache, "", force=True, progress=Style.NONE)
    status = checked(simulate_run(experiment, options))
    return Cost(0.0, time.process_time() - begun_s, status.updates, peak_bytes(resource.RUSAGE_SELF))


def checked(status: Status) -> Status:
    """The status of a run that was completed; the cost of any other says nothing."""
    if status.state != State.DONE:
        raise UserError(f"the run ended as {status.state.text} ({status.reason}); lower its step size")
    return status


def measure_apart(experiment: Experiment, cache: Path, *, whole: bool = False) -> Cost:
    """Simulate in a process of its own, on one thread."""
    command = [sys.executable, str(Path(__file__)), *(["--whole"] if whole else []), str(cache)]
    alone = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    text = to_toml(experiment)
    done = subprocess.run(command, input=text, check=False, stdout=subprocess.PIPE, text=True, env=alone)
    if done.returncode != 0:
        raise UserError(f"the run `{experiment.name}` ended with exit code {done.returncode}; its error is above")
    return Cost(**json.loads(done.stdout))


def main() -> None:
    """Read the experiment, simulate it, print its cost."""
    parser = argparse.ArgumentParser(description="Measure one simulated run, an experiment on standard input.")
    parser.add_argument("--whole", action="store_true", help="with run file and evaluation")
    parser.add_argument("cache", type=Path, help="where unpacked data sets are kept")
    arguments = parser.parse_args()
    measure = measure_whole if arguments.whole else measure_here
    print(json.dumps(asdict(measure(parse_experiment(sys.stdin.read()), arguments.cache))))


if __name__ == "__main__":
    main()
