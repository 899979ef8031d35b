"""The command line: the only reader of argv and the environment."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from areabench.progress import Style
    from areabench.views.terminal import Output
import io
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NoReturn

from areabench.cli.parser import build_parser
from areabench.launch.families import MPI_DEFAULTS, ONE_MACHINE

if TYPE_CHECKING:
    from areabench.launch.mpirun import LaunchWishes
    from areabench.progress import Style
    from areabench.transports.options import RunOptions
    from areabench.views.terminal import Output


@dataclass(frozen=True)
class Around:
    """What a reading command gets besides its options: the folder of data sets, and how it shows what."""

    cache: Path
    progress: Style
    output: Output


def _check(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.run import check

    return check(options.experiment, options.overrides, options.ended_in, around.output)


def _theory(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.run import TheoryWishes, theory

    wishes = TheoryWishes(
        options.measured_in, options.solve, options.write, options.force, around.progress, around.output
    )
    return theory(options.experiment, options.overrides, wishes, around.cache)


def _watch(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.watch import Wishes, watch

    wait_s = options.wait if options.wait is not None else 0.0 if options.once else 60.0
    wishes = Wishes(options.interval, options.once, wait_s, options.evaluate, tuple(options.trusted))
    return watch(options.run, wishes, around.cache, around.output)


def _replay(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.read import replay

    return replay(options.run, around.cache, around.progress, options.trusted, around.output)


def _show(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.read import show

    return show(options.run, around.output, as_toml=options.toml)


def _recover(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.recover import recover

    return recover(options.run, options.output, around.cache, around.output, force=options.force, style=around.progress)


def _diagnose(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.read import diagnose

    return diagnose(options.run, options.output, around.output)


def _summary(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.read import summary

    return summary(options.runs, options.target, options.plot, around.output)


def _compare(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.read import compare
    from areabench.views.text import Tolerances

    within = Tolerances(options.updates_within, options.loss_within)
    return compare((options.first, options.second), within, options.plot, around.output)


def _figures(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.figures import Wishes, split_figure, sweep_figures
    from areabench.errors import UserError

    formats = ("png", "svg") if options.format == "both" else (options.format,)
    if options.folder is not None and options.overrides:
        raise UserError("--set goes with --split only: the settings of a sweep that has run are fixed; leave it out")
    if options.folder is not None:
        wishes = Wishes(formats, tuple(options.step_sizes), options.target)
        return sweep_figures(options.folder, options.output, wishes, around.output)
    output = options.output or Path("runs") / f"{options.split.stem}-labels"
    if output.is_dir():
        raise UserError(f"--output {output}: is a folder; name the file of the figure, for example {output}/labels.png")
    outputs = [output] if output.suffix else [output.with_suffix(f".{suffix}") for suffix in formats]
    return split_figure(options.split, options.overrides, around.cache, outputs, around.output)


def _report(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.report import Wishes, report

    wishes = Wishes(options.target, options.title, options.timeline, around.progress)
    return report(options.paths, options.output, around.cache, wishes, around.output, force=options.force)


def _table(options: argparse.Namespace, around: Around) -> int:
    from areabench.cli.table import answer_tables, print_tables
    from areabench.errors import UserError
    from areabench.results.retention import named_rule

    form, output = options.format, options.output
    if options.json and (output or form != "text"):
        raise UserError("--json: is printed and has a form of its own; leave out --output and --format")
    rule = named_rule(options.keep, options.metric, options.bound, options.gap, options.target)
    if form == "text" and output is None:
        return answer_tables(options.folders, rule, options.target, around.output, with_paper=options.paper)
    return print_tables(options.folders, rule, options.target, form, output, with_paper=options.paper)


READING: dict[str, Callable[[argparse.Namespace, Around], int]] = {
    "check": _check,
    "theory": _theory,
    "watch": _watch,
    "replay": _replay,
    "show": _show,
    "recover": _recover,
    "diagnose": _diagnose,
    "summary": _summary,
    "compare": _compare,
    "table": _table,
    "figures": _figures,
    "report": _report,
}


_OVERVIEW = """\
usage: areabench COMMAND ...

areabench benchmarks asynchronous federated optimization. A first run, in virtual time, and a look at it:

  areabench simulate benchmarks/demo.toml --output runs/first.h5
  areabench summary runs/first.h5

{commands}

`areabench COMMAND --help` tells a command's options and exit codes, `areabench --help` a line about each command."""
_GROUPS = {
    "run": ("simulate", "launch", "run", "resume", "sweep", "job"),
    "look": ("watch", "show", "summary", "compare", "diagnose", "table", "figures", "report"),
    "check": ("check", "theory", "replay", "recover", "doctor"),
    "shell": ("completion",),
}


def answer_without_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> str | None:
    """What to say of a command line without a command, or with one that there is not; None where there is one."""
    if not arguments:
        return overview(commands_of(parser))
    known = commands_of(parser)
    if arguments[0].startswith("-") or arguments[0] in known:
        return None
    from areabench.experiment.parse import unknown  # loads numpy, whose threads are to be set before

    listed = [name for group in _GROUPS.values() for name in group if name in known]
    return f"areabench: {unknown('command', arguments[0], listed)}"


def overview(known: Collection[str]) -> str:
    """The commands by what they are for."""
    lines = [f"  {title:<6} {' '.join(name for name in names if name in known)}" for title, names in _GROUPS.items()]
    return _OVERVIEW.format(commands="\n".join(lines))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by name."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


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
    from areabench.files import check_paths

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
    from areabench.cli import run as commands
    from areabench.launch.families import started_by

    return commands.run(options.experiment, options.overrides, _run_options(options), started_by(os.environ))


def _simulate(options: argparse.Namespace) -> int:
    from areabench.cli import run as commands

    return commands.simulate(options.experiment, options.overrides, _run_options(options))


def _launch(options: argparse.Namespace) -> int:
    from areabench.cli import run as commands

    return commands.launch(options.experiment, options.overrides, _launch_wishes(options), _run_options(options))


def _resume(options: argparse.Namespace) -> int:
    """In virtual time, on the ranks of this launch, or under an mpirun of its own: wherever the run was."""
    from areabench.cli.run import resume
    from areabench.launch.families import started_by

    wishes = _launch_wishes(options)
    return resume(options.run, wishes, _run_options(options), started_by(os.environ), options.trusted)


def _sweep(options: argparse.Namespace) -> int:
    from areabench.cli.sweep import leading, sweep
    from areabench.errors import UserError
    from areabench.experiment.labels import MPI
    from areabench.launch.families import started_by
    from areabench.launch.ranks import on_ranks
    from areabench.progress import Style
    from areabench.sweeps.plan import read_share
    from areabench.sweeps.run import SweepOptions
    from areabench.transports.options import RunOptions

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
    around = RunOptions(options.output, _cache(), _command_line(), _threads(), force=True, progress=Style.NONE)

    def run(how: SweepOptions) -> int:
        return sweep(options.sweeps, options.overrides, options.trials, how, around, dry=options.dry_run)

    return on_ranks(leading(run, how, around), started_by(os.environ)) if options.on_ranks else run(how)


def _batch(options: argparse.Namespace) -> int:
    """What `sweep --transport mpi` starts under mpirun."""
    from areabench.cli import run as commands
    from areabench.launch.families import started_by
    from areabench.progress import Style
    from areabench.transports.options import RunOptions

    around = RunOptions(None, _cache(), _command_line(), _threads(), force=True, progress=Style.NONE)
    return commands.batch(options.file, around, started_by(os.environ))


def _job(options: argparse.Namespace) -> int:
    from areabench.cli.job import job
    from areabench.cli.parser import read_request

    here = Path(sys.prefix) if sys.prefix != sys.base_prefix else None  # the environment that this command is in
    return job(read_request(options, here), options.output, force=options.force)


def _doctor(options: argparse.Namespace) -> int:
    """Everything around a run, looked at on this machine."""
    from areabench.cli.doctor import Patient, doctor

    return doctor(Patient(options.ranks, options.runs, _cache(), _cores(), os.environ), _output(options))


def _completion(options: argparse.Namespace) -> int:
    import argcomplete

    print(argcomplete.shellcode(["areabench"], shell=options.shell))  # type: ignore[no-untyped-call]
    return 0


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


def _run_options(options: argparse.Namespace) -> RunOptions:
    from areabench.transports.options import RunOptions

    output, force = (options.run, True) if options.command == "resume" else (options.output, options.force)
    return RunOptions(output, _cache(), _command_line(), _threads(), force, _style(options), options.checkpoint_every)


def _launch_wishes(options: argparse.Namespace) -> LaunchWishes:
    from areabench.launch.mpirun import LaunchWishes, Tolerance

    return LaunchWishes(options.ranks, Tolerance(options.fault_tolerant))


def _threads() -> str:
    return ",".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES)


def _command_line() -> str:
    return shlex.join(sys.argv).encode(errors="backslashreplace").decode()


def _cores() -> int:
    """Cores that this process may use."""
    from areabench.host import own_cores

    return len(own_cores())


def _style(options: argparse.Namespace) -> Style:
    """How progress is shown on stderr, for commands that show any."""
    from areabench.views.terminal import decided_style

    return decided_style(getattr(options, "progress", "never"), os.environ, is_terminal=sys.stderr.isatty())


def _output(options: argparse.Namespace) -> Output:
    """How to answer on stdout."""
    from areabench.views.terminal import Output, decided_colours, is_dumb

    is_terminal = sys.stdout.isatty()
    colours = decided_colours(os.environ, is_terminal=is_terminal)
    return Output(getattr(options, "json", False), colours, is_terminal and not is_dumb(os.environ))


def _cache() -> Path:
    from areabench.problems.datasets import default_cache

    return default_cache(os.environ)
