"""Going on with a run that was stopped or killed, from its checkpoint: wherever it was, in virtual or in real time."""

from __future__ import annotations

from collections.abc import Sequence
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


def resume(
    path: Path, how: LaunchWishes, around: Surroundings, started: StartedBy | None, trusted: Sequence[str]
) -> int:
    """Go on with a run; called on every rank where a launcher has started several.

    It calls no code that the run file names and `trusted` does not.
    """
    if started is not None:
        return _on_ranks(path, around, started, trusted)
    from areabench.execute import resumable, resume_simulation
    from areabench.outside.paths import trusted_folders
    from areabench.reading import open_run
    from areabench.trust import OPTION, check_trusted

    with open_run(path) as run:
        resumable(run)
        check_trusted(run.experiment, path, trusted)
        if run.provenance.transport != "mpi":
            if how.ranks is not None:
                raise UserError(f"--ranks {how.ranks}: {path} was simulated; leave it out")
            return report(resume_simulation(run, around, trusted_folders(trusted)), path)
        wanted = run.provenance.ranks if how.ranks is None else how.ranks
        place(run.experiment.clients.count, wanted)
    from areabench.commands import launch_ranks

    vouched = [word for each in trusted for word in (OPTION, each)]
    return launch_ranks(["resume", str(path), *vouched], wanted, around, how.tolerance)


def _on_ranks(path: Path, around: Surroundings, started: StartedBy, trusted: Sequence[str]) -> int:
    def play(world: World) -> int:
        from areabench.real_time import resume_on_mpi

        return tell(world, *resume_on_mpi(path, around, world, trusted))

    return on_ranks(play, started)
