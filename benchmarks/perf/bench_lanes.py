"""A pass of many lanes against the two bare matrix products of its width, and its evaluation against the pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from bench_sizes import PAPER, SMALL_FILES, Sizes, logistic, nothing, seconds

from areabench.engine.lanes import lane_scenario
from areabench.engine.scenario import build_scenario
from areabench.experiment.parse import load_experiment
from areabench.experiment.records import Area, AsFedAvg, Experiment, FedBuff
from areabench.problems.logistic import FLOAT, LogisticProblem
from areabench.sweeps.plan import load_sweep
from areabench.transports.simulator import evaluate_lanes, play_lanes

# ---------------------------------------------------------------------------------------------------- a pass


@dataclass(frozen=True)
class PassCost:
    """Seconds of a lane-step: in a whole pass, in the wide local step alone, and of the two bare products."""

    pass_s: float
    step_s: float
    products_s: float


def products_s(problem: LogisticProblem, lanes: int, steps: int) -> float:
    """Seconds a lane of the two matrix products of a wide gradient, with nothing around them."""
    classes, features = problem.shape
    generator = np.random.default_rng(0)
    models = generator.random((lanes * classes, features), dtype=FLOAT)
    inputs = generator.random((problem.settings.batch_size, features), dtype=FLOAT)
    scores, gradient = np.empty((len(models), len(inputs)), dtype=FLOAT), np.empty_like(models)

    def loop() -> None:
        for _ in range(steps):
            np.dot(models, inputs.T, out=scores)
            np.dot(scores, inputs, out=gradient)

    return seconds(loop) / steps / lanes


def wide_step_s(problem: LogisticProblem, step_sizes: Sequence[float], steps: int) -> float:
    """Seconds a lane of one wide local step, in rounds of the problem's M steps from the starting point."""
    local, rates = problem.lanes(0, len(step_sizes)), np.array(step_sizes)
    models = np.repeat(problem.start()[None], len(rates), axis=0)
    rounds = max(1, steps // problem.local_steps)

    def loop() -> None:
        for _ in range(rounds):
            local.descend(models, rates)

    return seconds(loop) / (rounds * problem.local_steps * len(rates))


def lane_experiments(sizes: Sizes, measured: tuple[int, float, float]) -> list[Experiment]:
    """The lanes of a pass: three methods with all step sizes, recorded as in a sweep."""
    local_steps, horizon_s, interval_s = measured
    settings = (f"clients.local_steps={local_steps}", f"stop.horizon_s={horizon_s}", f"record.interval_s={interval_s}")
    base = load_experiment(PAPER, (*SMALL_FILES, *settings))
    methods = [kind(step_size=step_size) for kind in (Area, AsFedAvg, FedBuff) for step_size in sizes.step_sizes]
    return [replace(base, method=method) for method in methods]


def measure_pass(folder: Path, sizes: Sizes, measured: tuple[int, float, float]) -> PassCost:
    """A pass of all lanes, in turns with its local steps alone and with the bare products."""
    local_steps, horizon_s, interval_s = measured
    experiments = lane_experiments(sizes, measured)
    scenario, lanes = build_scenario(experiments[0], folder), len(experiments)
    step_problem = logistic(build_scenario(lane_experiments(sizes, (50, horizon_s, interval_s))[0], folder))
    rates = [experiment.method.step_size for experiment in experiments]
    bare_s, step_s, whole_s = [], [], []
    for _ in range(sizes.turns):
        bare_s.append(products_s(step_problem, lanes, sizes.bare_steps))
        step_s.append(wide_step_s(step_problem, rates, sizes.bare_steps // 5))
        begun_s = time.perf_counter()
        ends = play_lanes(lane_scenario(scenario, experiments), nothing)
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
    played = play_lanes(lane_scenario(scenario, experiments), nothing)
    ends = [end for end in played if end is not None]
    pass_s = time.perf_counter() - begun_s
    evaluation_s = seconds(lambda: evaluate_lanes(scenario.problem, ends, loss_every_of_the_tables()))
    return EvaluationCost(sizes.evaluated[1], pass_s, evaluation_s, sum(len(end.snapshots) for end in ends))
