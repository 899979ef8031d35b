"""The MPI benchmarks without MPI: what they plan, how it is passed on, and the numbers that they compute."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import bench_mpi
import mpi_plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "perf"


def measured(clients: int = 4, size: int = mpi_plan.PAPER_BYTES) -> mpi_plan.Measured:
    """A cell that was measured in three turns, the second of them disturbed."""
    bare = {"yielding": [50_000.0, 10_000.0, 40_000.0], "sleeping": [20_000.0, 20_000.0, 20_000.0]}
    depths = {"server": [45_000.0, 9_500.0, 36_000.0], "wire": [40_000.0, 9_000.0, 32_000.0]}
    if size == mpi_plan.PAPER_BYTES:
        depths |= {"rule": [25_000.0] * 3, "all": [20_000.0] * 3}
    return mpi_plan.Measured(clients, size, bare, depths, 0.256)


def test_no_bare_loop_starves_a_server_whose_mpi_does_not_yield() -> None:
    for clients in (32, 128):
        styles = [mpi_plan.STYLES[name] for name in mpi_plan.bare_styles(clients, yields=False)]
        assert all(style.client != "blocking" for style in styles)


def test_a_launch_and_a_report_survive_their_way_through_a_file() -> None:
    for launch in mpi_plan.plan_launches(mpi_plan.FULL, yields=True):
        assert mpi_plan.launch_from(json.loads(json.dumps(asdict(launch)))) == launch
    report = mpi_plan.Report("Some MPI 1.0", [measured()], [mpi_plan.Polled(128, 1e-6, 2e-6)])
    assert mpi_plan.report_from(json.loads(json.dumps(report.as_values()))) == report


def test_the_limit_is_the_fastest_bare_loop_and_ratios_are_of_the_same_turn() -> None:
    row = bench_mpi.crowd_row(measured())
    assert row[:3] == ["4", "40,000", "yielding"]
    assert row[5:7] == ["32,000", "80 %"]  # of 80, 90 and 80 %
    assert row[-1] == "26 %"


def test_a_turn_without_a_bare_message_gives_no_ratio() -> None:
    assert bench_mpi.ratio([1.0, 3.0], [0.0, 6.0]) == 0.5
    assert math.isnan(bench_mpi.ratio([1.0], [0.0]))
