"""How close the simulator comes to its floor: one run to the bare gradient, a pass of 21 lanes to two bare products.

make bench-simulator, or: OPENBLAS_NUM_THREADS=1 python benchmarks/perf/bench_simulator.py [--quick] [--output FILE]

Both sides of a comparison alternate in the same process, and the median of the turns is shown. Run and pass are timed
without loading the data and without evaluation, which has a row of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from bench_page import describe_machine, markdown_table, page_options, print_page

from areabench.arrays import FLOAT32, Vector
from areabench.engine.lanes import build_pass
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import load_experiment
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.ca2fl import Ca2fl
from areabench.methods.fedasync import FedAsync
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fedbuff_published import FedBuffPublished
from areabench.methods.fedstaleweight import FedStaleWeight
from areabench.methods.gradient_tables import Ace, AfaCs
from areabench.methods.server_optimisers import Fadas, ServerMomentum
from areabench.problems.logistic import LocalLogistic, LogisticProblem
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.settings.parse import to_toml
from areabench.sweeps.plan import load_sweep
from areabench.transports.simulator import Simulator, evaluate_lanes, simulate_lanes

PAPER = Path(__file__).parents[1] / "experiments" / "paper" / "paper.toml"
SMALL_FILES = ("record.events=false", "record.models=last")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    turns: int
    bare_steps: int
    run_horizon_s: float
    passes: tuple[tuple[int, float, float], ...]  # local steps M, horizon (s), time between two snapshots (s)
    evaluated: tuple[int, float, float]  # the same of the pass whose snapshots are evaluated
    step_sizes: tuple[float, ...]


GRID = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
FULL = Sizes(3, 5000, 15.0, ((1, 6.0, 0.15), (50, 0.3, 0.02)), (1, 15.0, 0.15), GRID)  # snapshots as in the tables
QUICK = Sizes(1, 100, 0.1, ((1, 0.05, 0.025), (50, 0.01, 0.005)), (1, 0.05, 0.025), (1.0,))


def seconds(work: Callable[[], object]) -> float:
    """The time that something takes."""
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def nothing(_time_s: float, _updates: int) -> None:
    """Show no progress."""


def logistic(scenario: Scenario) -> LogisticProblem:
    """The scenario's problem."""
    assert isinstance(scenario.problem, LogisticProblem)
    return scenario.problem


# ---------------------------------------------------------------------------------------------------- a pass


@dataclass(frozen=True)
class PassCost:
    """Seconds per lane-step: in a whole pass, in the wide local step alone, and of the two bare products."""

    pass_s: float
    step_s: float
    products_s: float


def products_s(problem: LogisticProblem, lanes: int, steps: int) -> float:
    """Seconds per lane of the two matrix products of a wide gradient alone."""
    classes, features = problem.shape
    generator = np.random.default_rng(0)
    models = generator.random((lanes * classes, features), dtype=FLOAT32)
    inputs = generator.random((problem.settings.batch_size, features), dtype=FLOAT32)
    scores = np.empty((len(models), len(inputs)), dtype=FLOAT32)
    gradient = np.empty_like(models)

    def loop() -> None:
        for _ in range(steps):
            np.dot(models, inputs.T, out=scores)
            np.dot(scores, inputs, out=gradient)

    return seconds(loop) / steps / lanes


def wide_step_s(problem: LogisticProblem, step_sizes: Sequence[float], steps: int) -> float:
    """Seconds per lane of one wide local step, in rounds of the problem's M steps from the starting point."""
    local = problem.local(0)
    rates = np.array(step_sizes)
    models = np.repeat(problem.start()[None], len(rates), axis=0)
    rounds = max(1, steps // problem.local_steps)

    def loop() -> None:
        for _ in range(rounds):
            local.descend_lanes([models], rates)

    return seconds(loop) / (rounds * problem.local_steps * len(rates))


THREE = (Area, AsFedAvg, FedBuff)
TWELVE = (
    *THREE, AsyncSgd, FedBuffPublished, FedStaleWeight, ServerMomentum, Fadas, FedAsync, Ca2fl, AfaCs, Ace,
)  # fmt: skip


def lane_experiments(
    sizes: Sizes, measured: tuple[int, float, float], methods: Sequence[type] = THREE
) -> list[Experiment]:
    """The lanes of a pass: methods, whatever their criterion and reply, with all step sizes, recorded as in a sweep."""
    local_steps, horizon_s, interval_s = measured
    settings = (f"clients.local_steps={local_steps}", f"stop.horizon_s={horizon_s}", f"record.interval_s={interval_s}")
    base = load_experiment(PAPER, (*SMALL_FILES, *settings))
    chosen = [method(step_size=step_size) for method in methods for step_size in sizes.step_sizes]
    return [replace(base, method=method) for method in chosen]


def measure_twelve(folder: Path, sizes: Sizes, measured: tuple[int, float, float]) -> tuple[float, float]:
    """Seconds per lane-step of a pass of three methods and of one of twelve, in turns."""
    costs: list[list[float]] = [[], []]
    for _ in range(sizes.turns):
        for place, methods in enumerate((THREE, TWELVE)):
            experiments = lane_experiments(sizes, measured, methods)
            scenario = build_scenario(experiments[0], folder)
            begun_s = time.perf_counter()
            ends = simulate_lanes(build_pass(scenario, experiments), nothing)
            updates = max(end.status.updates for end in ends if end is not None)
            costs[place].append((time.perf_counter() - begun_s) / (updates * measured[0] * len(experiments)))
    return median(costs[0]), median(costs[1])


def measure_pass(folder: Path, sizes: Sizes, measured: tuple[int, float, float]) -> PassCost:
    """A pass of all lanes, alternating with its local steps alone and with the bare products."""
    local_steps, horizon_s, interval_s = measured
    experiments = lane_experiments(sizes, measured)
    scenario = build_scenario(experiments[0], folder)
    lanes = len(experiments)
    step_problem = logistic(build_scenario(lane_experiments(sizes, (50, horizon_s, interval_s))[0], folder))
    rates = [experiment.method.step_size for experiment in experiments]
    bare_s = []
    step_s = []
    whole_s = []
    for _ in range(sizes.turns):
        bare_s.append(products_s(step_problem, lanes, sizes.bare_steps))
        step_s.append(wide_step_s(step_problem, rates, sizes.bare_steps // 5))
        begun_s = time.perf_counter()
        ends = simulate_lanes(build_pass(scenario, experiments), nothing)
        run_s = time.perf_counter() - begun_s
        updates = max(end.status.updates for end in ends if end is not None)
        whole_s.append(run_s / (updates * local_steps * lanes))
    return PassCost(median(whole_s), median(step_s), median(bare_s))


# ---------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class EvaluationCost:
    """Seconds of a pass with one local step, and of the evaluation of its snapshots."""

    horizon_s: float
    pass_s: float
    evaluation_s: float
    models: int


def loss_every_of_the_tables() -> int:
    """For which snapshots the sweeps of the paper's tables compute the loss."""
    (first, *_) = load_sweep(PAPER.parent / "tables" / "grid.toml", trials=1).members
    assert first.experiment is not None
    return first.experiment.record.loss_every


def measure_evaluation(folder: Path, sizes: Sizes) -> EvaluationCost:
    """One pass, then its evaluation; once, as both are long."""
    experiments = lane_experiments(sizes, sizes.evaluated)
    scenario = build_scenario(experiments[0], folder)
    begun_s = time.perf_counter()
    played = simulate_lanes(build_pass(scenario, experiments), nothing)
    ends = [end for end in played if end is not None]
    pass_s = time.perf_counter() - begun_s
    evaluation_s = seconds(lambda: evaluate_lanes(scenario.problem, ends, loss_every_of_the_tables()))
    return EvaluationCost(sizes.evaluated[1], pass_s, evaluation_s, sum(len(end.snapshots) for end in ends))


# ---------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class RunCost:
    """What one run takes: seconds in all, updates, and the share of the clients' local steps."""

    whole_s: float
    updates: int
    share: float
    bare_step_s: float

    @property
    def update_s(self) -> float:
        """Seconds per update."""
        return self.whole_s / self.updates


class TimedLocal:
    """A client's objective with a stopwatch around it; all clients share one stopwatch."""

    def __init__(self, local: LocalLogistic, spent_s: list[float]) -> None:
        self._local = local
        self._spent_s = spent_s

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """The client's round, timed."""
        begun_s = time.perf_counter()
        result = self._local.descend(model, step_size, steps)
        self._spent_s[0] += time.perf_counter() - begun_s
        return result

    def gradient(self, model: Vector) -> Vector:
        """The client's gradient, timed."""
        begun_s = time.perf_counter()
        result = self._local.gradient(model)
        self._spent_s[0] += time.perf_counter() - begun_s
        return result

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self._local.skip(steps)


class TimedProblem(LogisticProblem):
    """The problem with a stopwatch around every client's local steps."""

    spent_s: list[float]

    def local(self, client: int) -> TimedLocal:  # type: ignore[override]
        """Client `client`'s objective, timed."""
        return TimedLocal(super().local(client), self.spent_s)


def bare_step_s(problem: LogisticProblem, steps: int) -> float:
    """Seconds of one mini-batch step alone, the draw of its rows included."""
    local = problem.local(0)
    start = problem.start()
    return seconds(lambda: local.descend(start, 0.1, steps)) / steps


def play_run(scenario: Scenario, folder: Path) -> tuple[float, int]:
    """Seconds and updates of one run with its run file, without evaluation."""
    problem = scenario.problem
    experiment = scenario.experiment
    size = (problem.dimension, problem.dtype)
    record = experiment.record
    recorder = Recorder(folder / "run.h5", to_toml(experiment), *size, force=True, record=record)
    recorder.begin(gather_provenance("simulator", "", "", experiment.seed), scenario.client_table())
    begun_s = time.perf_counter()
    status = Simulator(scenario, recorder, nothing).run()
    recorder.close()
    return time.perf_counter() - begun_s, status.updates


def local_share(scenario: Scenario, folder: Path) -> float:
    """Share of a run that is spent in the clients' local steps."""
    plain = logistic(scenario)
    timed = TimedProblem(plain.settings, plain.data, plain.parts, plain.local_steps, plain.seed)
    timed.spent_s = [0.0]
    whole_s, _ = play_run(replace(scenario, problem=timed), folder)
    return timed.spent_s[0] / whole_s


def measure_run(folder: Path, sizes: Sizes, settings: Sequence[str] = ()) -> RunCost:
    """One run of the paper's first table, alternating with the bare gradient."""
    scenario = build_scenario(load_experiment(PAPER, (*settings, f"stop.horizon_s={sizes.run_horizon_s}")), folder)
    bare_s = []
    whole_s = []
    shares = []
    updates = 0
    for _ in range(sizes.turns):
        bare_s.append(bare_step_s(logistic(scenario), sizes.bare_steps))
        run_s, updates = play_run(scenario, folder)
        whole_s.append(run_s)
        shares.append(local_share(scenario, folder))
    return RunCost(median(whole_s), updates, median(shares), median(bare_s))


# ---------------------------------------------------------------------------------------------------- page


def run_rows(name: str, cost: RunCost) -> list[tuple[str, str, str]]:
    """The rows of one run."""
    ratio = cost.update_s / cost.bare_step_s
    return [
        (f"{name}: {cost.updates:,} updates", f"{cost.whole_s:.2f} s", ""),
        (f"{name}: an update", microseconds(cost.update_s), ""),
        (f"{name}: inside the clients' local steps", f"{100 * cost.share:.0f} %", "75 %"),
        (f"{name}: the bare gradient step, in turns with it", microseconds(cost.bare_step_s), ""),
        (f"{name}: an update in bare gradient steps", f"{ratio:.2f}", ""),
    ]


def pass_rows(name: str, cost: PassCost) -> list[tuple[str, str, str]]:
    """The rows of a lane-step."""
    return [
        (f"{name}: a lane-step of the whole pass", microseconds(cost.pass_s), ""),
        (f"{name}: the two bare products, a lane", microseconds(cost.products_s), ""),
        (f"{name}: the pass in bare products", f"{cost.pass_s / cost.products_s:.2f}", "1.5"),
        (f"{name}: the wide local step alone in bare products", f"{cost.step_s / cost.products_s:.2f}", ""),
    ]


def evaluation_rows(name: str, cost: EvaluationCost) -> list[tuple[str, str, str]]:
    """The rows of the evaluation."""
    return [
        (f"{name}: the pass, horizon {cost.horizon_s:g} s", f"{cost.pass_s:.2f} s", ""),
        (f"{name}: evaluation of its {cost.models:,} snapshots", f"{cost.evaluation_s:.2f} s", ""),
        (f"{name}: evaluation in passes", f"{cost.evaluation_s / cost.pass_s:.2f}", ""),
    ]


def microseconds(time_s: float) -> str:
    """A duration as text."""
    return f"{1e6 * time_s:.1f} µs"


def measure(folder: Path, sizes: Sizes) -> list[tuple[str, str, str]]:
    """All rows of the table."""
    lanes = f"{3 * len(sizes.step_sizes)} lanes"
    small = (*SMALL_FILES, f"record.interval_s={sizes.run_horizon_s / 100}")
    rows = run_rows("one run, with event log", measure_run(folder, sizes))
    rows += run_rows("one run, without", measure_run(folder, sizes, small))
    for measured in sizes.passes:
        rows += pass_rows(f"{lanes}, M = {measured[0]}", measure_pass(folder, sizes, measured))
    three_s, twelve_s = measure_twelve(folder, sizes, sizes.passes[0])
    wide = f"{len(TWELVE) * len(sizes.step_sizes)} lanes of {len(TWELVE)} methods, M = {sizes.passes[0][0]}"
    rows.append((f"{wide}: a lane-step of the whole pass", microseconds(twelve_s), ""))
    rows.append((f"{wide}: in lane-steps of {lanes} of three methods", f"{twelve_s / three_s:.2f}", "1.3"))
    return rows + evaluation_rows(f"{lanes}, M = 1", measure_evaluation(folder, sizes))


def main() -> None:
    """Measure, print the table, write it to a file if asked."""
    arguments = page_options("Time the simulator against its bare matrix products.").parse_args()
    with tempfile.TemporaryDirectory() as name, np.errstate(over="ignore", invalid="ignore"):
        rows = measure(Path(name), QUICK if arguments.quick else FULL)
    table = markdown_table([("n = 128, MNIST", "measured", "goal"), *rows])
    print_page(table, arguments.output, f"# Speed of the simulator\n\n{describe_machine()}\n\n")


if __name__ == "__main__":
    main()
