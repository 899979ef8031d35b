"""The performance benchmarks at tiny sizes: that they measure what they say; no test looks at a duration."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cost
import cost_point
import pytest

from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.splits.iid import Iid

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "perf"
TINY = Experiment(
    clients=Clients(count=8),
    method=Area(step_size=1.0),
    stop=Stop(iterations=25),
    problem=Logistic(batch_size=2),
    data=Synthetic(train_samples=40, test_samples=5, features=3, classes=2),
    split=Iid(),
    record=Record(snapshots="none"),
)


def run_script(name: str, *arguments: str) -> str:
    """What a script prints; its warnings are errors."""
    command = [sys.executable, "-W", "error", str(BENCHMARKS / name), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout


# ---------------------------------------------------------------------------------------------------- simulator


def test_quick_simulator_benchmark(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "speed.md"
    printed = run_script("bench_simulator.py", "--quick", "--output", str(page))
    assert printed.strip() in page.read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- cost: one point


def test_point_counts_the_updates_after_the_first(tmp_path: Path) -> None:
    found = cost_point.measure_here(TINY, tmp_path)
    assert found.updates == 19  # 25 iterations: 20 updates, 5 server steps
    assert found.start_s > 0
    assert found.run_s > 0
    assert found.peak_bytes > 10e6
    assert cost_point.measure_whole(TINY, tmp_path).updates == 20


def test_run_that_diverges_has_no_cost(tmp_path: Path) -> None:
    wild = replace(TINY, stop=Stop(iterations=25, divergence_norm=1e-6))
    with pytest.raises(UserError, match="diverged"):
        cost_point.measure_here(wild, tmp_path)


def test_point_that_fails_names_the_run(tmp_path: Path) -> None:
    few = replace(TINY, name="too-few-samples", clients=Clients(count=41))
    with pytest.raises(UserError, match=r"too-few-samples.*exit code 1"):
        cost_point.measure_apart(few, tmp_path)


# ---------------------------------------------------------------------------------------------------- cost: plan


@pytest.mark.parametrize(
    ("clients", "local_steps", "iterations"),
    [(128, 1, 25_000), (100_000, 1, 500_000), (128, 20, 1593), (128, 200, 640)],
)
def test_run_ends_after_some_seconds_but_serves_all(clients: int, local_steps: int, iterations: int) -> None:
    # 20,000 updates; four per client; 2e8/(7840·20) = 1275 updates; four per client
    experiment = replace(TINY, data=Mnist(), clients=Clients(count=clients, local_steps=local_steps))
    assert cost_point.timed(experiment, 20_000).stop.iterations == iterations


@pytest.mark.parametrize(
    ("method", "floats"),
    [
        (Area(step_size=1.0), (12 + 12 / 4 * (1 + 1 / 2 + 1 / 3 + 1 / 4)) * 6),
        (FedBuff(step_size=1.0), 12 / 4 * (1 + 1 / 2 + 1 / 3 + 1 / 4) * 6),
        (SFedAvg(step_size=1.0), 4 * 6),
    ],
)
def test_memory_of_models(method: MethodSettings, floats: float) -> None:
    experiment = replace(TINY, clients=Clients(count=12), method=method)  # six parameters
    assert cost_point.models_bytes(experiment) == pytest.approx(4 * floats, abs=1)


# ---------------------------------------------------------------------------------------------------- cost: page


def measured(letter: cost_point.Letter, value: int, method: MethodSettings, update_us: float) -> cost_point.Measured:
    """A point made by hand, of 10 updates and 50 MB."""
    found = cost_point.Cost(start_s=0.25, run_s=10e-6 * update_us, updates=10, peak_bytes=50_000_000)
    experiment = replace(TINY, method=method, clients=Clients(count=value if letter == "n" else 12))
    return cost_point.Measured(cost_point.Point(letter, value, experiment), found)


def test_points_beyond_the_limit_are_left_out_and_named(tmp_path: Path) -> None:
    point = measured("n", 1000, Area(step_size=1.0), 60.0).point
    (found,) = cost.measure([point], 100.0, tmp_path)
    assert found.cost is None
    assert cost.left_out([found], 100.0).startswith("AREA at n = 1,000 is left out: its models alone take 3.6e-05 GB")


def points_of(line: Any) -> list[list[float]]:
    """The points of a line in a figure."""
    points: list[list[float]] = line.get_xydata().tolist()
    return points


def test_figure_has_one_line_per_method() -> None:
    pytest.importorskip("matplotlib")
    from cost_figure import draw

    points = [measured("n", value, method, 60.0) for value in (10, 100) for method in cost_point.METHODS]
    points += [measured("d", 6, Area(step_size=1.0), 70.0), measured("M", 5, Area(step_size=1.0), 80.0)]
    time_n, _, time_steps, memory_n, _, _ = draw(points).axes
    assert [line.get_label() for line in time_n.lines] == ["AREA", "FedBuff", "AS-FedAvg", "S-FedAvg"]
    assert points_of(time_n.lines[0]) == [[10, pytest.approx(60)], [100, pytest.approx(60)]]
    assert points_of(time_steps.lines[0]) == [[5, pytest.approx(80)]]
    assert memory_n.get_xlabel() == "clients n"
    assert len(memory_n.lines) == 6  # and what the models alone take


@pytest.mark.slow
@pytest.mark.long
def test_quick_cost_benchmark(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = run_script("cost.py", "--quick", "--memory-gb", "0.003", "--output", str(tmp_path))
    assert (tmp_path / "cost.md").read_text(encoding="utf-8") == printed.rstrip("\n") + "\n"
    assert {path.name for path in tmp_path.iterdir()} == {"cost.md", "cost.png", "cost.svg"}
    assert "AREA at n = 64 is left out" in printed
    assert "## 40 clients on the paper's problem" in printed
