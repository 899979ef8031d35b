"""An error on one rank ends all ranks, is reported once, and leaves a file that says so."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import own_parts

from areabench.engine.events import State
from areabench.launching.families import Family, mpi4py_family
from areabench.launching.mpirun import mpirun_command

if TYPE_CHECKING:
    from tests.launched.conftest import Ended, Launcher

pytestmark = pytest.mark.slow

FAILING_CLIENT = """
from areabench.problems.quadratic import LocalQuadratic

descend, rounds = LocalQuadratic.descend, iter(range(10**6))

def fail(self, *given, **named):
    if rank in {ranks} and next(rounds) == {round}:
        raise ArithmeticError("the sum is wrong" + {padding} * "!")
    return descend(self, *given, **named)

LocalQuadratic.descend = fail
"""
FAILING_SERVER = """
from areabench.engine.conductor import Conductor

update = Conductor.update

def fail(self, message, time_s, queue_s):
    if self.updates == 7:
        raise LookupError("no such model")
    update(self, message, time_s, queue_s)

Conductor.update = fail
"""
FAILING_SET_UP = """
from areabench.transports import mpi_run as real_time

def fail(*_, **__):
    raise EOFError("the data end here")

if rank == 1:
    real_time.build_scenario = fail
"""
FAILING_LINK = """
from areabench.transports.{module} import {link}

def fail(self, *_):
    raise MemoryError("no room for the buffers")

if rank == {rank}:
    {link}.__init__ = fail
"""
SILENT_CLIENT = """
import time

from areabench.problems.quadratic import LocalQuadratic
from areabench.transports import server_loop as serve

serve._STOP_LIMIT_S = 0.5

def sleep(self, *given, **named):
    time.sleep(1000)

if rank == 2:
    LocalQuadratic.descend = sleep
"""
DYING_CLIENT = """
import os

from areabench.problems.quadratic import LocalQuadratic

descend, rounds = LocalQuadratic.descend, iter(range(10**6))

def die(self, *given, **named):
    if rank == 2 and next(rounds) == 5:
        os._exit(9)
    return descend(self, *given, **named)

LocalQuadratic.descend = die
"""
LONG = "stop.horizon_s=600"  # so that a run that hangs or continues is noticed


def failing_client(ranks: str, at_round: int, padding: int = 0) -> str:
    """The defect: clients on these ranks raise in a round."""
    return FAILING_CLIENT.format(ranks=ranks, round=at_round, padding=padding)


ERRORS = {
    "a client": (
        failing_client("{2}", 5),
        ("client 1 failed:", "ArithmeticError: the sum is wrong", "in fail\n"),
        "client 1 failed: ... ArithmeticError: the sum is wrong",
    ),
    "clients together, with long messages": (
        failing_client("{1, 2, 3}", 0, padding=200_000),
        ("ArithmeticError: the sum is wrong!!!",),
        "ArithmeticError: the sum is wrong!!!",
    ),
    "the server": (FAILING_SERVER, ("LookupError: no such model",), "LookupError: no such model"),
}


@pytest.mark.parametrize("who", ERRORS)
def test_an_exception_ends_all_ranks_with_its_traceback(who: str, quadratic: Launcher) -> None:
    defect, said, reason = ERRORS[who]
    ended = quadratic.run(4, "clients.count=3", "delays.name=fixed", LONG, defect=defect)
    assert ended.code == 1
    assert ended.errors.count("Traceback (most recent call last)") == 1
    assert all(words in ended.errors for words in said)
    with quadratic.recorded() as run:
        assert run.status.state == State.FAILED
        assert reason in run.status.reason
        if who == "a client":
            assert np.count_nonzero(run.events_array["client"] == 1) == 5
        else:
            assert run.status.updates == (7 if who == "the server" else 0)
    assert quadratic.replay() == 0


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ("problem", {"descend": "self.n = getattr(self, 'n', 0) + 1; self.n < 9 or __import__('sys').exit(0)"}),
        ("method", {"fields": "steps: int = 0", "aggregate": "state.steps < 3 or __import__('sys').exit(0)",
                    "after": "State(state.model + gain * state.buffer.mean(), steps=state.steps + 1)"}),
    ],
)  # fmt: skip
def test_sys_exit_of_a_part_ends_all_ranks_and_names_the_part(
    section: str, part: dict[str, str], quadratic: Launcher
) -> None:
    quadratic.experiment = own_parts.write(quadratic.folder / "there", section, **part)
    ended = quadratic.run(3, "stop.iterations=100000")
    line = f"{section}.name = 'mine:make' called sys.exit(0) at mine.py, line "
    assert ended.code == 1
    assert ended.errors.count(line) == 1
    assert "Traceback" not in ended.errors
    with quadratic.recorded() as run:
        assert run.status.state == State.FAILED
        assert line in run.status.reason


def test_an_exception_while_a_client_is_set_up_ends_all_ranks(quadratic: Launcher) -> None:
    ended = quadratic.run(3, LONG, defect=FAILING_SET_UP)
    assert ended.code == 1
    assert "areabench: rank 1: Traceback" in ended.errors
    assert ended.errors.count("EOFError: the data end here") == 1
    assert not quadratic.run_file.exists()


@pytest.mark.parametrize(
    ("rank", "module", "link"), [(0, "mpi_server", "MpiServerLink"), (2, "mpi_worker", "MpiWorkerLink")]
)
def test_a_rank_without_room_for_its_buffers_ends_all_ranks(
    quadratic: Launcher, rank: int, module: str, link: str
) -> None:
    ended = quadratic.run(3, LONG, defect=FAILING_LINK.format(rank=rank, module=module, link=link))
    assert "not enough memory: no room for the buffers" in told_once(ended)
    with quadratic.recorded() as run:
        assert run.status.state == State.FAILED
        assert "no room for the buffers" in run.status.reason


def test_a_client_that_never_stops_is_ended_and_the_run_is_named_failed(quadratic: Launcher) -> None:
    ended = quadratic.run(3, defect=SILENT_CLIENT)
    assert ended.code != 0
    assert "clients [1] did not stop within 0.5 s" in ended.errors
    with quadratic.recorded() as run:
        assert run.status.state == State.FAILED
        assert "clients [1] did not stop" in run.status.reason


def test_a_rank_that_dies_ends_all_others(quadratic: Launcher) -> None:
    ended = quadratic.run(3, LONG, defect=DYING_CLIENT)
    assert ended.code != 0


# ---------------------------------------------------------------------------------------------------- bad input


def told_once(ended: Ended) -> str:
    """The one line that areabench says about bad input."""
    assert ended.code == 2
    assert ended.output == ""
    assert "Traceback" not in ended.errors
    lines = [line for line in ended.errors.splitlines() if line.startswith("areabench: ")]
    assert len(lines) == 1
    return lines[0]


def test_a_wrong_key_is_reported_once_and_nothing_is_written(quadratic: Launcher) -> None:
    line = told_once(quadratic.run(3, "method.stepsize=1"))
    assert "stepsize" in line
    assert "step_size" in line
    assert not quadratic.run_file.exists()


def test_a_run_file_that_exists_is_kept(quadratic: Launcher) -> None:
    quadratic.run_file.write_text("precious")
    assert "run.h5: exists already" in told_once(quadratic.run(3))
    assert quadratic.run_file.read_text() == "precious"


def test_launch_starts_the_ranks_and_passes_their_exit_code_on(quadratic: Launcher) -> None:
    python = sys.executable
    words = ["launch", str(quadratic.experiment), "--output", str(quadratic.run_file), "--set", "rates.rate=100"]
    ended = quadratic.start([python, "-m", "areabench", *words])
    assert (ended.code, ended.errors) == (0, "")
    with quadratic.recorded() as run:
        assert (run.status.state, run.provenance.ranks) == (State.DONE, 3)
    assert quadratic.start([python, "-m", "areabench", *words]).code == 2


# ------------------------------------------------------------------------------------------------------- launchers


def test_a_launcher_of_another_mpi_is_refused_once_with_the_right_one(quadratic: Launcher) -> None:
    command = mpirun_command(3, ["run", str(quadratic.experiment), "--output", str(quadratic.run_file)])
    foreign = quadratic.folder / "mpirun"  # starts three ranks as the other MPI does, as far as variables show
    other = "OMPI_COMM_WORLD" if mpi4py_family() == Family.MPICH else "PMI"
    size, rank = f"{other}_SIZE", f"{other}_RANK"
    lines = [f"{size}=3 {rank}={number} {shlex.join(command[-8:])} || code=$?" for number in range(3)]
    foreign.write_text("\n".join(["#!/bin/sh", *lines, "exit $code", ""]))
    foreign.chmod(0o755)
    line = told_once(quadratic.start([str(foreign)]))
    assert f"has started 3 ranks ({size} = 3), but mpi4py uses {mpi4py_family()}: each of them would be alone" in line
    assert f"use {command[0]}; `areabench doctor` says more" in line
    assert not quadratic.run_file.exists()


def test_mpiexec_works_like_mpirun(quadratic: Launcher) -> None:
    mpirun, *rest = mpirun_command(3, ["run", str(quadratic.experiment), "--output", str(quadratic.run_file)])
    mpiexec = Path(mpirun.replace("mpirun", "mpiexec"))
    assert mpiexec.exists()
    ended = quadratic.start([str(mpiexec), *rest])
    assert (ended.code, ended.errors) == (0, "")
    assert quadratic.replay() == 0


def test_the_doctor_finds_this_machine_fit_for_a_message(quadratic: Launcher) -> None:
    ended = quadratic.areabench("doctor", "--json")
    marks = {found["name"]: (found["mark"], found["text"]) for found in json.loads(ended.output)["findings"]}
    assert ended.errors == ""
    for name in ("mpi4py", "MPI library", "launcher", "two ranks", "HDF5"):
        assert marks[name][0] == "ok", marks[name]
    assert marks["MPI library"][1].startswith(str(mpi4py_family()))


@pytest.mark.timeout(200)  # two launches at most
@pytest.mark.parametrize("command", ["run", "launch"])
def test_a_run_is_not_lost_to_its_evaluation(command: str, quadratic: Launcher) -> None:
    metrics = (
        "Metrics.of([float(model @ model) for model in models] if len(models) < 3 or with_loss == 'mended' else 1)"
    )
    quadratic.experiment = own_parts.write(quadratic.folder, "problem", metrics=metrics)
    words = [str(quadratic.experiment), "--output", str(quadratic.run_file), "--set", "rates.rate=40"]
    start = mpirun_command(3, ["run"]) if command == "run" else [sys.executable, "-m", "areabench", "launch", "-n", "3"]
    ended = quadratic.start([*start, *words])
    assert ended.code == 5
    assert "done (20 iterations): 16 updates, 4 server steps" in ended.output
    (said,) = (line for line in ended.errors.splitlines() if line.startswith("areabench: "))
    assert "run.h5: its evaluation failed (TypeError: object of type 'int' has no len() (at mine.py, line 16))" in said
    assert said.endswith(f"; to try again: areabench evaluate {quadratic.run_file} --trust-module mine.py")
    assert "Traceback" not in ended.errors
    with quadratic.recorded() as run:
        assert (run.status.state, run.provenance.ranks, run.diagnosis is not None) == (State.DONE, 3, True)
        assert len(run.events_array) >= 20
        assert (len(run.models), len(run.metrics_array)) == (len(run.snapshot_index), 0)
    module = quadratic.experiment.with_name("mine.py")
    module.write_text(module.read_text().replace("with_loss == 'mended'", "True"))
    again = [sys.executable, "-m", "areabench", "evaluate", str(quadratic.run_file), "--trust-module", str(module)]
    assert quadratic.start(again).code == 0
    with quadratic.recorded() as run:
        assert len(run.metrics_array) == len(run.snapshot_index)
