"""The command line: the only reader of argv and the environment."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from areabench.arguments import build_parser
from areabench.mpi_family import MPI_DEFAULTS, ONE_MACHINE
from areabench.overview import answer_without_command
from areabench.reading_calls import READING, Around

if TYPE_CHECKING:
    from areabench.launch import LaunchWishes
    from areabench.output import Output
    from areabench.progress import Style
    from areabench.surroundings import Surroundings

_LAUNCHING = ("launch", "resume", "sweep", "doctor")  # start ranks on this machine
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID")  # where mpirun may take other machines too
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name that is no text must not end in a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    for variable in _THREAD_VARIABLES:  # before numpy is loaded: one thread a rank, and the same bits on every machine
        os.environ.setdefault(variable, "1")
    for variable, value in MPI_DEFAULTS.items():  # before MPI is loaded
        os.environ.setdefault(variable, value)
    parser = build_parser()
    if (answer := answer_without_command(parser, arguments)) is not None:
        print(answer, file=sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    if options.command in _LAUNCHING and not any(variable in os.environ for variable in _ALLOCATIONS):
        for variable, value in ONE_MACHINE.items():
            os.environ.setdefault(variable, value)
    from areabench.errors import RunFailure, UserError
    from areabench.surroundings import check_paths

    try:
        check_paths(vars(options))
        if (reading := READING.get(options.command)) is not None:
            return reading(options, Around(_cache(), _style(options), _output(options)))
        return COMMANDS[options.command](options)
    except UserError as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 2
    except RunFailure as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"areabench: not enough memory: {error}; use fewer clients, a smaller problem or data", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("areabench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `areabench show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# ---------------------------------------------------------------------------------------------------- commands


def _run(options: argparse.Namespace) -> int:
    """Real time, on the ranks of this launch."""
    from areabench import rank_commands
    from areabench.started_by import started_by

    return rank_commands.run(options.experiment, options.overrides, _surroundings(options), started_by(os.environ))


def _simulate(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.simulate(options.experiment, options.overrides, _surroundings(options))


def _launch(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.launch(options.experiment, options.overrides, _launch_wishes(options), _surroundings(options))


def _resume(options: argparse.Namespace) -> int:
    """In virtual time, on the ranks of this launch, or under an mpirun of its own: wherever the run was."""
    from areabench.resuming import resume
    from areabench.started_by import started_by

    wishes = _launch_wishes(options)
    return resume(options.run, wishes, _surroundings(options), started_by(os.environ), options.trusted)


def _sweep(options: argparse.Namespace) -> int:
    from areabench.errors import UserError
    from areabench.progress import Style
    from areabench.rank_commands import on_ranks
    from areabench.started_by import started_by
    from areabench.surroundings import Surroundings
    from areabench.sweeps.commands import leading, sweep
    from areabench.sweeps.run import MPI, SweepOptions
    from areabench.sweeps.share import read_share

    if options.jobs is not None and options.transport == MPI:
        raise UserError(f"--jobs {options.jobs}: on MPI there is one run at a time, with all cores; leave --jobs out")
    if (options.ranks is not None or options.on_ranks) and options.transport != MPI:
        raise UserError("--ranks and --on-ranks are for runs on MPI; add --transport mpi or leave them out")
    if options.ranks is not None and (options.on_ranks or options.ranks < 2):
        raise UserError(f"--ranks {options.ranks}: is for a launch by this command, of 2 ranks or more; leave it out")
    share = read_share(options.share)
    how = SweepOptions(
        options.jobs or _cores(), options.transport, options.force, _style(options), share, options.ranks
    )
    around = Surroundings(options.output, _cache(), _command_line(), _threads(), force=True, progress=Style.NONE)

    def run(how: SweepOptions) -> int:
        return sweep(options.sweeps, options.overrides, options.trials, how, around, dry=options.dry_run)

    return on_ranks(leading(run, how, around), started_by(os.environ)) if options.on_ranks else run(how)


def _batch(options: argparse.Namespace) -> int:
    """What `sweep --transport mpi` starts under mpirun."""
    from areabench import rank_commands
    from areabench.progress import Style
    from areabench.started_by import started_by
    from areabench.surroundings import Surroundings

    around = Surroundings(None, _cache(), _command_line(), _threads(), force=True, progress=Style.NONE)
    return rank_commands.batch(options.file, around, started_by(os.environ))


def _job(options: argparse.Namespace) -> int:
    from areabench.jobs.arguments import read_request
    from areabench.jobs.command import job

    here = Path(sys.prefix) if sys.prefix != sys.base_prefix else None  # the environment that this command is in
    return job(read_request(options, here), options.output, force=options.force)


def _doctor(options: argparse.Namespace) -> int:
    """Everything around a run, looked at on this machine."""
    from areabench.doctor.commands import Patient, doctor

    return doctor(Patient(options.ranks, options.runs, _cache(), _cores(), os.environ), _output(options))


def _completion(options: argparse.Namespace) -> int:
    from areabench.completion.command import print_script

    return print_script(options.shell, build_parser())


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "simulate": _simulate,
    "launch": _launch,
    "run": _run,
    "resume": _resume,
    "sweep": _sweep,
    "batch": _batch,
    "job": _job,
    "doctor": _doctor,
    "completion": _completion,
}

# ------------------------------------------------------------------------------------------- argv and environment


def _surroundings(options: argparse.Namespace) -> Surroundings:
    from areabench.surroundings import Surroundings

    output, force = (options.run, True) if options.command == "resume" else (options.output, options.force)
    return Surroundings(output, _cache(), _command_line(), _threads(), force, _style(options), options.checkpoint_every)


def _launch_wishes(options: argparse.Namespace) -> LaunchWishes:
    from areabench.launch import LaunchWishes, Tolerance

    return LaunchWishes(options.ranks, Tolerance(options.fault_tolerant))


def _threads() -> str:
    return ",".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES)


def _command_line() -> str:
    return shlex.join(sys.argv).encode(errors="backslashreplace").decode()


def _cores() -> int:
    """Cores that this process may use."""
    from areabench.footprint import own_cores

    return len(own_cores())


def _style(options: argparse.Namespace) -> Style:
    """How progress is shown on stderr, for commands that show any."""
    from areabench.terminal import decided_style

    return decided_style(getattr(options, "progress", "never"), os.environ, is_terminal=sys.stderr.isatty())


def _output(options: argparse.Namespace) -> Output:
    """How to answer on stdout."""
    from areabench.output import Output
    from areabench.terminal import decided_colours, is_dumb

    is_terminal = sys.stdout.isatty()
    colours = decided_colours(os.environ, is_terminal=is_terminal)
    return Output(getattr(options, "json", False), colours, is_terminal and not is_dumb(os.environ))


def _cache() -> Path:
    from areabench.datasets import default_cache

    return default_cache(os.environ)
