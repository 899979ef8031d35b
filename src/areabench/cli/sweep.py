"""`areabench sweep`: run grids of experiments. With `--on-ranks` every rank of a launch loads this file."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext
from areabench.cli.options import force_option, positive, progress_option, ranks_option, set_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.sweeps.run import SweepOptions
    from areabench.transports.options import RunOptions
    from areabench.transports.world import World


def sweep_options(parser: argparse.ArgumentParser) -> None:
    """The files, what is changed in them, and where and how the runs are made."""
    parser.add_argument("sweeps", type=Path, nargs="+", metavar="FILE", help="sweep file (TOML)")
    set_option(parser)
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each point, instead of the file's")
    parser.add_argument(
        "-j", "--jobs", type=positive, metavar="N", help="processes (default: one per core); not on MPI"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="folder of the sweep (default runs/STEM), or of the folders of several sweeps",
    )  # fmt: skip
    parser.add_argument(
        "--transport", choices=("simulator", "mpi"), default="simulator",
        help="virtual time (default), or real time, one run after the other, in runs/STEM-mpi",
    )  # fmt: skip
    ranks_option(parser)
    parser.add_argument(
        "--on-ranks", action="store_true",
        help="on MPI: use the ranks of this mpirun or srun instead of starting mpirun",
    )  # fmt: skip
    parser.add_argument(
        "--share", default="1/1", metavar="K/N",
        help="run only every N-th run, from the K-th on; shares may run at once, into one folder",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only print what would be run")
    force_option(parser, "run again what is done")
    progress_option(parser)


def sweep_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Run sweeps, or print what there is to run; with --on-ranks called on every rank."""
    from areabench.progress import Style
    from areabench.sweeps.plan import read_share
    from areabench.sweeps.run import SweepOptions
    from areabench.transports.options import RunOptions

    on_mpi = options.transport == "mpi"
    if options.jobs is not None and on_mpi:
        raise UserError(f"--jobs {options.jobs}: on MPI there is one run at a time, with all cores; leave --jobs out")
    if (options.ranks is not None or options.on_ranks) and not on_mpi:
        raise UserError("--ranks and --on-ranks are for runs on MPI; add --transport mpi or leave them out")
    if options.ranks is not None and (options.on_ranks or options.ranks < 2):
        raise UserError(f"--ranks {options.ranks}: is for a launch by this command, of 2 ranks or more; leave it out")
    how = SweepOptions(
        options.jobs or context.cores,
        options.transport,
        options.force,
        context.progress,
        read_share(options.share),
        options.ranks,
    )
    run_options = RunOptions(
        options.output, context.cache, context.command_line, force=True, progress=Style.NONE, remarks=False
    )
    if options.on_ranks:
        return _sweep_on_ranks(options, context, how, run_options)
    return _sweep(options, how, run_options)


def _sweep_on_ranks(
    options: argparse.Namespace, context: CommandContext, how: SweepOptions, run_options: RunOptions
) -> int:
    """Rank 0 runs the sweeps, and the other ranks follow it."""
    from areabench.kernels import require_bits
    from areabench.launching.ranks import on_ranks
    from areabench.sweeps.file import read_sweep_file

    with suppress(UserError):  # rank 0 reports it
        asked = [read_sweep_file(path, options.overrides).base.get("bits") for path in options.sweeps]
        if "portable" in asked:
            require_bits("portable")

    def on_rank(world: World) -> int:
        from areabench.sweeps.on_ranks import Leader, follow

        if world.rank:
            return follow(world, run_options)
        if world.size == 1:
            print(
                "areabench: --on-ranks: 1 rank, which is the server's, leaves none for the clients; type "
                "`mpirun -n 9 areabench sweep ... --transport mpi --on-ranks`, or leave --on-ranks out",
                file=sys.stderr,
            )
            return 2
        leader = Leader(world, run_options)
        exit_code = 2
        try:
            exit_code = _sweep(options, replace(how, leader=leader), run_options)
        except UserError as error:
            print(f"areabench: {error}", file=sys.stderr)
        leader.dismiss(exit_code)
        return exit_code

    return on_ranks(on_rank, context.started)


def _sweep(options: argparse.Namespace, how: SweepOptions, run_options: RunOptions) -> int:
    """Run the sweeps, or print what would be run; returns the exit code."""
    import time

    from areabench.cli.sweep_report import print_plans, print_report
    from areabench.kernels import require_bits
    from areabench.sweeps.plan import bits_of, load_sweep
    from areabench.sweeps.run import run_sweep, with_code_checked

    whole = [load_sweep(path, options.overrides, options.trials) for path in options.sweeps]
    bits = bits_of(whole)
    if how.leader is None:  # MPI has not started
        require_bits(bits)
    plans = [how.share.taken_from(with_code_checked(plan)) for plan in whole]
    folders = []
    for plan in plans:
        name = plan.name
        if options.transport == "mpi":
            name += "-mpi"
        if options.output is None:
            folders.append(Path("runs") / name)
        elif len(plans) == 1:
            folders.append(options.output)
        else:
            folders.append(options.output / name)
    if options.dry_run:
        return print_plans(plans, folders, how)
    began_s = time.perf_counter()
    report = run_sweep(plans, folders, how, run_options)
    print_report(report, how, time.perf_counter() - began_s)
    return report.exit_code


COMMAND = Command(
    "benchmarks/experiments/paper/tables/grid.toml --jobs 2 --trials 1",
    sweep_options,
    sweep_command,
    {
        "0": "done, also where runs diverged",
        "1": "a run failed, was not evaluated, or cannot be run",
        "2": "bad input",
        "129, 130 or 143": "interrupted",
    },
)
