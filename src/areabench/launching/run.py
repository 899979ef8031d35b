"""One run on ranks of this machine: checked before they start, supervised, and judged by the file that it leaves."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.client import most_ranks, place_clients
from areabench.errors import RunFailure
from areabench.experiment.records import Experiment
from areabench.files import refuse_existing
from areabench.launching.families import ALLOCATIONS
from areabench.launching.limits import check_limits
from areabench.launching.mpirun import FaultTolerance, file_stamp, mpirun_command, settle, supervise, without_signals
from areabench.launching.start import start_limit_s
from areabench.progress import SHOWN_LIVE, shower_of
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.runfile.read import Run


def launch_run(
    experiment: Experiment,
    file: Path,
    options: RunOptions,
    ranks: int | None = None,
    tolerance: FaultTolerance = FaultTolerance.AUTO,
    *,
    overrides: Sequence[str] = (),
    quiet: bool = False,
) -> int:
    """Check the experiment of a file with overrides, then start mpirun, which makes its run; the exit code.

    Without `ranks` there is one for the server and one per client.
    """
    from areabench.engine.plugins.load import check_parts
    from areabench.runfile.lock import refuse_busy

    ranks = most_ranks(experiment) if ranks is None else ranks
    place_clients(experiment, ranks)
    check_parts(experiment, experiment.module_folders or ())  # every rank does, but its error is longer
    output = options.output_for(experiment)
    refuse_existing(output, force=options.force)  # before mpirun starts, which adds pages to every error
    refuse_busy(output)
    forced = ["--force"] if options.force else []
    changed = [word for each in overrides for word in ("--set", each)]
    words = ["run", str(file), "--output", str(output), *forced, *changed, *_observe_words(options)]
    return start_ranks(words, ranks, replace(options, output=output), tolerance, quiet=quiet)


def resume_on_ranks(
    run: Run,
    options: RunOptions,
    ranks: int | None = None,
    tolerance: FaultTolerance = FaultTolerance.AUTO,
    trusted: Sequence[str] = (),
    *,
    quiet: bool = False,
) -> int:
    """Start mpirun, which continues a run from its checkpoint, on as many ranks as before unless told; the exit code.

    The run, which is read here, is closed: another file takes its place.
    """
    from areabench.engine.plugins.trust import OPTION
    from areabench.runfile.lock import refuse_busy

    refuse_busy(run.path)
    ranks = run.provenance.ranks if ranks is None else ranks
    place_clients(run.experiment, ranks)
    trust = [word for each in trusted for word in (OPTION, each)]
    words = ["resume", str(run.path), *trust, *_observe_words(options)]
    run.close()
    return start_ranks(words, ranks, replace(options, output=run.path), tolerance, quiet=quiet)


def _observe_words(options: RunOptions) -> list[str]:
    from areabench.runfile.observers import description_of

    return [word for each in options.observers for word in ("--observe", description_of(each))]


def start_ranks(
    arguments: Sequence[str], ranks: int, options: RunOptions, tolerance: FaultTolerance, *, quiet: bool = False
) -> int:
    """Start `areabench ARGUMENTS`, which writes one run file, on ranks of this machine; the exit code.

    `quiet`: what the ranks print on stdout, how the run has ended, is dropped.
    """
    output = options.output
    assert output is not None
    limit_s, alone = start_limit_s(os.environ), not any(variable in os.environ for variable in ALLOCATIONS)
    show = shower_of(options.progress) if options.progress in SHOWN_LIVE else None
    before = file_stamp(output)
    passed = ["--progress", "marked" if show else "never", "--checkpoint-every", f"{options.checkpoint_s or 0:g}"]
    command = mpirun_command(ranks, [*arguments, *passed], tolerance)
    if alone:
        check_limits(ranks, os.environ)
    with without_signals():  # a signal that comes while the file is marked must not keep us from it
        try:
            ending = supervise(command, show=show, ranks=ranks * alone, limit_s=limit_s, quiet=quiet)
        except OSError as error:
            raise RunFailure(f"cannot start {shlex.join(command)}: {error}") from error
        return settle(output, before, ending, trusted="--with-ft" not in command)
