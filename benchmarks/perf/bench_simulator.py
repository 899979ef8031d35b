"""How close the simulator comes to its floor: one run to the bare gradient, a pass of 21 lanes to two bare products.

make bench-simulator, or: OPENBLAS_NUM_THREADS=1 python benchmarks/perf/bench_simulator.py [--quick] [--output FILE]

What is compared is measured in the same process in turns, and the median of the turns is shown. Run and
pass are timed without loading the data and without evaluation, which has a row of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from bench_lanes import EvaluationCost, PassCost, measure_evaluation, measure_pass
from bench_page import describe_machine, markdown_table
from bench_sizes import FULL, PAPER, QUICK, SMALL_FILES, Sizes, logistic, nothing, seconds

from areabench.arrays import Vector
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.parse import load_experiment, to_toml
from areabench.problems.logistic import LocalLogistic, LogisticProblem
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.transports.simulator import Simulator

# ---------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class RunCost:
    """What one run takes: in all (s), how many updates that are, which share of it is the clients' local steps."""

    whole_s: float
    updates: int
    share: float
    bare_step_s: float

    @property
    def update_s(self) -> float:
        """Seconds an update."""
        return self.whole_s / self.updates


class TimedLocal:
    """A client's objective with a stopwatch around it; all clients share one stopwatch."""

    def __init__(self, local: LocalLogistic, spent_s: list[float]) -> None:
        self._local, self._spent_s = local, spent_s

    def descend(self, model: Vector, step_size: float) -> Vector:
        """The client's round, timed."""
        begun_s = time.perf_counter()
        result = self._local.descend(model, step_size)
        self._spent_s[0] += time.perf_counter() - begun_s
        return result

    def skip(self, rounds: int) -> None:
        """Draw what so many rounds draw."""
        self._local.skip(rounds)


class TimedProblem(LogisticProblem):
    """The problem with a stopwatch around every client's local steps."""

    spent_s: list[float]

    def local(self, client: int) -> TimedLocal:  # type: ignore[override]
        """Client `client`'s objective, timed."""
        return TimedLocal(super().local(client), self.spent_s)


def bare_step_s(problem: LogisticProblem, steps: int) -> float:
    """Seconds of one mini-batch step with nothing around it."""
    local, weights = problem.local(0), problem.start().reshape(problem.shape)
    samples = len(problem.data.train_labels)
    batches = np.random.default_rng(0).integers(0, samples, (steps, problem.settings.batch_size))

    def loop() -> None:
        for rows in batches:
            local._step(weights, weights, rows, 0.1)

    return seconds(loop) / steps


def play_run(scenario: Scenario, folder: Path) -> tuple[float, int]:
    """Seconds and updates of one run with its run file, without evaluation."""
    problem, experiment = scenario.problem, scenario.experiment
    size, record = (problem.dimension, problem.dtype), experiment.record
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
    """One run of the paper's first table, in turns with the bare gradient."""
    scenario = build_scenario(load_experiment(PAPER, (*settings, f"stop.horizon_s={sizes.run_horizon_s}")), folder)
    bare_s, whole_s, shares, updates = [], [], [], 0
    for _ in range(sizes.turns):
        bare_s.append(bare_step_s(logistic(scenario), sizes.bare_steps))
        run_s, updates = play_run(scenario, folder)
        whole_s.append(run_s)
        shares.append(local_share(scenario, folder))
    return RunCost(median(whole_s), updates, median(shares), median(bare_s))


# ---------------------------------------------------------------------------------------------------- page


def run_rows(name: str, cost: RunCost) -> list[tuple[str, str, str]]:
    """What one run takes, in words."""
    ratio = cost.update_s / cost.bare_step_s
    return [
        (f"{name}: {cost.updates:,} updates", f"{cost.whole_s:.2f} s", ""),
        (f"{name}: an update", microseconds(cost.update_s), ""),
        (f"{name}: inside the clients' local steps", f"{100 * cost.share:.0f} %", "75 %"),
        (f"{name}: the bare gradient step, in turns with it", microseconds(cost.bare_step_s), ""),
        (f"{name}: an update in bare gradient steps", f"{ratio:.2f}", ""),
    ]


def pass_rows(name: str, cost: PassCost) -> list[tuple[str, str, str]]:
    """What a lane-step takes, in words."""
    return [
        (f"{name}: a lane-step of the whole pass", microseconds(cost.pass_s), ""),
        (f"{name}: the two bare products, a lane", microseconds(cost.products_s), ""),
        (f"{name}: the pass in bare products", f"{cost.pass_s / cost.products_s:.2f}", "1.5"),
        (f"{name}: the wide local step alone in bare products", f"{cost.step_s / cost.products_s:.2f}", ""),
    ]


def evaluation_rows(name: str, cost: EvaluationCost) -> list[tuple[str, str, str]]:
    """What the evaluation takes, in words."""
    return [
        (f"{name}: the pass, horizon {cost.horizon_s:g} s", f"{cost.pass_s:.2f} s", ""),
        (f"{name}: evaluation of its {cost.models:,} snapshots", f"{cost.evaluation_s:.2f} s", ""),
        (f"{name}: evaluation in passes", f"{cost.evaluation_s / cost.pass_s:.2f}", ""),
    ]


def microseconds(time_s: float) -> str:
    """A duration in words."""
    return f"{1e6 * time_s:.1f} µs"


def measure(folder: Path, sizes: Sizes) -> list[tuple[str, str, str]]:
    """All rows of the table."""
    lanes = f"{3 * len(sizes.step_sizes)} lanes"
    small = (*SMALL_FILES, f"record.interval_s={sizes.run_horizon_s / 100}")
    rows = run_rows("one run, with event log", measure_run(folder, sizes))
    rows += run_rows("one run, without", measure_run(folder, sizes, small))
    for measured in sizes.passes:
        rows += pass_rows(f"{lanes}, M = {measured[0]}", measure_pass(folder, sizes, measured))
    return rows + evaluation_rows(f"{lanes}, M = 1", measure_evaluation(folder, sizes))


def main() -> None:
    """Measure, print the table, write it where asked to."""
    parser = argparse.ArgumentParser(description="Time the simulator against its bare matrix products.")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works; the numbers are bad")
    parser.add_argument("--output", type=Path, help="write the table to this Markdown file as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, np.errstate(over="ignore", invalid="ignore"):
        rows = measure(Path(name), QUICK if arguments.quick else FULL)
    table = markdown_table([("n = 128, MNIST", "measured", "goal"), *rows])
    print(table)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        text = f"# Speed of the simulator\n\n{describe_machine()}\n\n{table}"
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
