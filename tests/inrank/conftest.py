"""Tests inside three ranks: rank 0 is the server, ranks 1 and 2 are clients. A failure on one rank ends all."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest
from mpi4py import MPI

from areabench.transports.world import World

RANKS = 3


@pytest.fixture(scope="session")
def world() -> World:
    """The ranks of this launch."""
    world = World()
    assert world.size == RANKS, f"{world.size} ranks; type mpirun -n {RANKS} ... --with-mpi tests/inrank"
    return world


@pytest.fixture(autouse=True)
def in_step(world: World) -> None:
    """No rank begins a test before all have ended the one before."""
    world.barrier()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a failure and end all ranks at once: the others may wait for this one."""
    report = yield
    if report.failed:
        with item.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"{item.nodeid}, {report.when}, rank {MPI.COMM_WORLD.rank}:\n{report.longreprtext}", file=sys.stderr)
            sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
    return report
