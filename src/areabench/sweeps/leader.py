"""Rank 0 of a launch that makes one run after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from areabench.config import to_toml
from areabench.errors import one_line
from areabench.schema import ENDED
from areabench.surroundings import Surroundings
from areabench.sweeps.passes import Pass, Task
from areabench.sweeps.pool import Outcome
from areabench.sweeps.ranks import Call, play
from areabench.transports.world import SharedFailure, World


class Leader:
    """Rank 0 of a launch that runs one experiment after the other."""

    def __init__(self, world: World, around: Surroundings) -> None:
        self._world, self._around = world, around

    def attempt(self, task: Task, part: Path) -> Outcome:
        """One run, written to `part`; its file takes its name when it is complete."""
        attempted, around = Pass((task,)), replace(self._around, output=part, force=True)
        call = Call(to_toml(task.experiment))
        try:
            status = play(self._world, self._world.of_server(lambda: call), around)
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
