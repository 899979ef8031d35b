"""Many runs inside one launch: rank 0 leads, the other ranks follow from run to run, each run with fresh state."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from areabench.config import parse_experiment, to_toml
from areabench.errors import one_line
from areabench.execute import Surroundings
from areabench.real_time import run_on_mpi
from areabench.schema import Status
from areabench.sweeps.passes import Pass, Task
from areabench.sweeps.pool import Outcome
from areabench.sweeps.results import ENDED
from areabench.transports.mpi import SharedFailure, World


class Call(NamedTuple):
    """What rank 0 tells the others: the next experiment as TOML, or that there is none, and the exit code."""

    experiment: str
    exit_code: int = 0


class Leader:
    """Rank 0 of a launch that runs one experiment after the other."""

    def __init__(self, world: World, around: Surroundings) -> None:
        self._world, self._around = world, around

    def attempt(self, task: Task, part: Path) -> Outcome:
        """One run, written to `part`; its file takes its name when it is complete."""
        attempted, around = Pass((task,)), replace(self._around, output=part, force=True)
        call = Call(to_toml(task.experiment))
        try:
            status = _play(self._world, self._world.of_server(lambda: call), around)
            assert status is not None
            if status.state in ENDED:
                part.replace(task.output)
            return Outcome(attempted, (status,))
        except SharedFailure as failure:
            reason = one_line(failure)
            return Outcome(attempted, (), reason, hopeless="cannot be written" in reason)
        except OSError as error:
            return Outcome(attempted, (), one_line(error), hopeless=True)
        finally:
            part.unlink(missing_ok=True)

    def dismiss(self, exit_code: int) -> None:
        """There is no other run."""
        self._world.of_server(lambda: Call("", exit_code))


def follow(world: World, around: Surroundings) -> int:
    """Any other rank: take part in one run after the other; the exit code that rank 0 gives."""
    nothing = Call("")
    while (call := world.of_server(lambda: nothing)).experiment:
        with suppress(SharedFailure):  # rank 0 tells it
            _play(world, call, around)
    return call.exit_code


def _play(world: World, call: Call, around: Surroundings) -> Status | None:
    """One run on as many ranks as it can use, with messages of its own; None on the ranks that it leaves idle."""
    experiment = parse_experiment(call.experiment)
    part = world.first(experiment.clients.count + 1)
    if part is None:
        return None
    try:
        status, _ = run_on_mpi(lambda: experiment, around, part)
    except SharedFailure:
        part.leave()  # together; after any other failure some ranks are not there to leave, and all are ended
        raise
    part.leave()
    return status
