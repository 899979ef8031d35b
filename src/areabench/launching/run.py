"""One run on ranks of this machine: checked before they start, supervised, and judged by the file that it leaves."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.client import most_ranks, place_clients
from areabench.engine.events import State, exit_code
from areabench.errors import RunFailure, UserError
from areabench.experiment.experiment import Experiment
from areabench.files import refuse_existing
from areabench.launching.families import ALLOCATIONS
from areabench.launching.mpirun import FaultTolerance, check_machine, mpirun_command
from areabench.launching.watch import LauncherExit, say, supervise, without_signals
from areabench.progress import SHOWN_LIVE, shower_of
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.engine.events import Status
    from areabench.runfile.read import Run

_EXIT_CODES = (0, 1, 2, 3, 4, 5, 128 + signal.SIGINT)  # of a run; a launcher adds others, which say nothing of the run


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
    from areabench.plugins.call import check_parts
    from areabench.runfile.lock import refuse_busy

    if ranks is None:
        ranks = most_ranks(experiment)
    place_clients(experiment, ranks)
    check_parts(experiment, experiment.module_folders or ())  # every rank does, but its error is longer
    output = options.output_for(experiment)
    # Each of these would fail on the ranks too, but mpirun adds pages to every error.
    refuse_existing(output, force=options.force)
    refuse_busy(output)
    words = ["run", str(file), "--output", str(output)]
    if options.force:
        words.append("--force")
    words += [word for each in overrides for word in ("--set", each)]
    return _start_ranks(words, ranks, replace(options, output=output), tolerance, quiet=quiet)


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
    from areabench.plugins.trust import OPTION
    from areabench.runfile.lock import refuse_busy

    refuse_busy(run.path)
    if ranks is None:
        ranks = run.provenance.ranks
    place_clients(run.experiment, ranks)
    trust = [word for each in trusted for word in (OPTION, each)]
    words = ["resume", str(run.path), *trust]
    run.close()
    return _start_ranks(words, ranks, replace(options, output=run.path), tolerance, quiet=quiet)


def _start_ranks(
    arguments: Sequence[str], ranks: int, options: RunOptions, tolerance: FaultTolerance, *, quiet: bool
) -> int:
    """Start `areabench ARGUMENTS`, which writes one run file, on ranks of this machine; the exit code.

    `quiet`: what the ranks print on stdout, how the run has ended, is dropped.
    """
    from areabench.runfile.observers import description_of

    output = options.output
    assert output is not None
    words = [*arguments, *(word for each in options.observers for word in ("--observe", description_of(each)))]
    show = None
    if options.progress in SHOWN_LIVE:
        # mpirun passes on whole lines only: rank 0 marks its lines, and this process draws them as one bar.
        show = shower_of(options.progress)
        words += ["--progress", "marked"]
    else:
        words += ["--progress", "never"]
    words += ["--checkpoint-every", f"{options.checkpoint_s or 0:g}"]
    before = file_stamp(output)
    command = mpirun_command(ranks, words, tolerance)
    watched = 0
    # Within a job mpirun may take other machines too, whose ranks cannot be seen from here.
    if not any(variable in os.environ for variable in ALLOCATIONS):
        check_machine(ranks, os.environ)
        watched = ranks
    # A signal that comes while the file is marked as failed must not keep us from it.
    with without_signals():
        try:
            ending = supervise(command, show=show, ranks=watched, quiet=quiet)
        except OSError as error:
            raise RunFailure(f"cannot start {shlex.join(command)}: {error}") from error
        return code_of_launch(output, before, ending, trusted="--with-ft" not in command)


# ---------------------------------------------------------------------------------------------------- the end


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Which file is at a path and when it was written, to see later whether it has changed; None: there is none."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


def code_of_launch(output: Path, before: tuple[int, int] | None, ending: LauncherExit, *, trusted: bool) -> int:
    """The exit code of a launch, from the run file first: mpirun may have ended ranks whose run was done.

    A run that is still `running` in its file was killed, and is marked as failed. An mpirun that returns 0 even where
    all its ranks were killed is not `trusted`.
    """
    status = _final_status(output, before, ending)
    if status is None:
        return _code_without_run(ending, trusted=trusted)
    if status.state == State.STOPPED and ending.signal == signal.SIGINT:
        return 128 + signal.SIGINT
    if status.unevaluated or status.state in (State.STOPPED, State.DIVERGED, State.FAILED):
        return exit_code(status)
    if ending.code <= 0 or ending.signal:  # mpirun was ended after the run had ended
        return 0
    if ending.code not in _EXIT_CODES:
        return 1
    return ending.code


def _code_without_run(ending: LauncherExit, *, trusted: bool) -> int:
    """The exit code of a launch that has recorded nothing."""
    if ending.signal:
        say(f"{signal.Signals(ending.signal).name} came before the run began; nothing was recorded: start it again")
        if ending.signal == signal.SIGINT:
            return 130
        return 4
    if ending.code < 0 or ending.reason:
        say(_reason_of(ending))
        return 1
    if ending.code not in _EXIT_CODES:
        say(f"the ranks ended before the run began: mpirun returned {_code_text(ending)}")
        return 1
    if ending.code == 0 and not trusted:
        return 1
    return ending.code


def _final_status(output: Path, before: tuple[int, int] | None, ending: LauncherExit) -> Status | None:
    """The status of the file that a launch has written, marked as failed if the run was killed; None if there is none.

    A file that is locked belongs to another run: our ranks have ended.
    """
    from areabench.runfile.lock import lock_seen
    from areabench.runfile.reader import read_status
    from areabench.runfile.record import mark_killed_run

    if file_stamp(output) in (before, None):
        return None
    try:
        if lock_seen(output):
            return None
        status = read_status(output)
        if status.state == State.RUNNING:
            if mark_killed_run(output, _reason_of(ending)):
                say(f"{output}: failed: {_reason_of(ending)}")
            status = read_status(output)
        return status
    except UserError as error:  # `recover` saves what can be
        say(str(error))
    except OSError as error:
        say(f"{output}: cannot be read: {error.strerror or error}")
    return None


def _reason_of(ending: LauncherExit) -> str:
    """Why a run has failed whose server was killed, as far as mpirun reports it."""
    if ending.signal:
        name = signal.Signals(ending.signal).name
        return f"{name} came, and the run was ended before it could stop"
    if ending.reason:
        return ending.reason
    if ending.code < 0:
        return f"mpirun was killed by {signal.Signals(-ending.code).name}, and the ranks that it left were ended"
    return f"the server ended without a status, mpirun returned {_code_text(ending)}"


def _code_text(ending: LauncherExit) -> str:
    """The exit code of mpirun, with a remark where a rank was killed: Open MPI's, MPICH's."""
    if ending.shell_code in (128 + signal.SIGKILL, signal.SIGKILL):
        return f"{ending.shell_code} (a rank was killed)"
    return str(ending.shell_code)
