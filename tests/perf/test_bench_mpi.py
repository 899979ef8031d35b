"""The MPI benchmarks without MPI: what they plan, how it is passed on, and the numbers that they compute."""

from __future__ import annotations

import json
import math
import subprocess
import sys
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


# ---------------------------------------------------------------------------------------------------- plan


def test_every_number_of_clients_is_measured_at_the_papers_size_at_all_depths() -> None:
    for yields in (True, False):
        launches = mpi_plan.plan_launches(mpi_plan.FULL, yields=yields)[:-1]
        assert [launch.clients for launch in launches] == [1, 4, 32, 128]
        assert all(launch.cells[0].size == 64 + 4 * 7_840 for launch in launches)
        assert all(launch.cells[0].depths == ("server", "wire", "rule", "all") for launch in launches)


def test_sizes_reach_from_a_kilobyte_to_100_megabytes_and_the_largest_has_one_client() -> None:
    launches = mpi_plan.plan_launches(mpi_plan.FULL, yields=True)[:-1]
    sizes = {launch.clients: [cell.size for cell in launch.cells[1:]] for launch in launches}
    assert (min(sizes[1]), max(sizes[1])) == (10**3, 10**8)
    assert max(sizes[4]) < 10**8
    assert not sizes[32] + sizes[128]


def test_polls_are_measured_at_128_and_10_000_clients_on_two_ranks() -> None:
    launch = mpi_plan.plan_launches(mpi_plan.FULL, yields=True)[-1]
    assert (launch.clients, launch.cells, launch.polls) == (2, (), (128, 10_000))


def test_a_large_message_gets_more_time() -> None:
    small, large = (mpi_plan.size_cell(size, ("yielding",), mpi_plan.FULL) for size in (10**3, 10**8))
    assert large.duration_s > 3 * small.duration_s


def test_no_bare_loop_starves_a_server_whose_mpi_does_not_yield() -> None:
    for clients in (32, 128):
        styles = [mpi_plan.STYLES[name] for name in mpi_plan.bare_styles(clients, yields=False)]
        assert all(style.client != "blocking" for style in styles)


def test_all_pieces_together_stay_within_minutes() -> None:
    launches = mpi_plan.plan_launches(mpi_plan.FULL, yields=True) + mpi_plan.plan_launches(mpi_plan.FULL, yields=False)
    assert sum(launch.measuring_s for launch in launches) < 300


def test_a_launch_and_a_report_survive_their_way_through_a_file() -> None:
    for launch in mpi_plan.plan_launches(mpi_plan.FULL, yields=True):
        assert mpi_plan.launch_from(json.loads(json.dumps(asdict(launch)))) == launch
    report = mpi_plan.Report("Some MPI 1.0", [measured()], [mpi_plan.Polled(128, 1e-6, 2e-6)])
    assert mpi_plan.report_from(json.loads(json.dumps(report.as_values()))) == report


def test_a_piece_counts_the_parameters_behind_the_header() -> None:
    assert mpi_plan.Piece(1, mpi_plan.PAPER_BYTES, 1.0).dimension == 7_840


# ---------------------------------------------------------------------------------------------------- tables


def test_the_limit_is_the_fastest_bare_loop_and_ratios_are_of_the_same_turn() -> None:
    row = bench_mpi.crowd_row(measured())
    assert row[:3] == ["4", "40,000", "yielding"]
    assert row[5:7] == ["32,000", "80 %"]  # of 80, 90 and 80 %
    assert row[-1] == "26 %"


def test_a_poll_is_shown_in_microseconds() -> None:
    assert bench_mpi.poll_row(mpi_plan.Polled(10_000, 0.82e-6, 7.26e-6)) == ["10,000", "0.8", "7.3"]


def test_a_turn_without_a_bare_message_gives_no_ratio() -> None:
    assert bench_mpi.ratio([1.0, 3.0], [0.0, 6.0]) == 0.5
    assert math.isnan(bench_mpi.ratio([1.0], [0.0]))


# ---------------------------------------------------------------------------------------------------- arguments


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The benchmark's driver, which needs no MPI before it starts ranks."""
    command = [sys.executable, str(BENCHMARKS / "bench_mpi.py"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_a_python_without_mpirun_is_refused(tmp_path: Path) -> None:
    done = run_script("--quick", str(tmp_path / "python"))
    assert done.returncode == 2
    assert "no mpirun beside it" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_python_must_be_named() -> None:
    assert run_script("--quick").returncode == 2
