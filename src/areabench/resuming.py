"""Going on with a run that was stopped or killed, from its checkpoint: wherever it was, in virtual or in real time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from areabench.errors import UserError
from areabench.placement import place
from areabench.rank_commands import on_ranks, report, tell
from areabench.started_by import StartedBy
from areabench.surroundings import Surroundings

if TYPE_CHECKING:
    from areabench.launch import LaunchWishes
    from areabench.transports.world import World


def resume(path: Path, how: LaunchWishes, around: Surroundings, started: StartedBy | None) -> int:
    """Go on with a run; called on every rank where a launcher has started several."""
    if started is not None:
        return _on_ranks(path, around, started)
    from areabench.execute import resumable, resume_simulation
    from areabench.reading import open_run

    with open_run(path) as run:
        resumable(run)
        if run.provenance.transport != "mpi":
            if how.ranks is not None:
                raise UserError(f"--ranks {how.ranks}: {path} was simulated; leave it out")
            return report(resume_simulation(run, around), path)
        wanted = run.provenance.ranks if how.ranks is None else how.ranks
        place(run.experiment.clients.count, wanted)
    from areabench.commands import launch_ranks

    return launch_ranks(["resume", str(path)], wanted, around, how.tolerance)


def _on_ranks(path: Path, around: Surroundings, started: StartedBy) -> int:
    def play(world: World) -> int:
        from areabench.real_time import resume_on_mpi

        return tell(world, *resume_on_mpi(path, around, world))

    return on_ranks(play, started)
