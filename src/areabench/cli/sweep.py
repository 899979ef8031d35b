"""`areabench sweep`: run grids of experiments, and print their outcome."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import CommandContext
from areabench.engine.diagnosis import Cause
from areabench.errors import UserError
from areabench.experiment.labels import MPI
from areabench.host import peak_bytes
from areabench.kernels import require_bits
from areabench.launching.ranks import on_ranks
from areabench.progress import Style, duration
from areabench.runfile.read import open_run
from areabench.sweeps.file import SweepFile, read_sweep_file
from areabench.sweeps.folder import check_contents, sweep_state
from areabench.sweeps.plan import SweepPlan, bits_of, expected_tests, load_sweep, read_share
from areabench.sweeps.pool import group_passes
from areabench.sweeps.read import Failure, with_tests
from areabench.sweeps.run import (
    FolderReport,
    SweepOptions,
    SweepReport,
    check_folders,
    run_sweep,
    with_code_checked,
)
from areabench.transports.options import RunOptions
from areabench.views.styled import counted

if TYPE_CHECKING:
    from areabench.transports.world import World


_MOST_FAILURES_SHOWN = 20
_KEPT_DELAYS = Cause.DELAYS.value


def sweep(options: argparse.Namespace, context: CommandContext) -> int:
    """Run sweeps, or print what there is to run; with --on-ranks called on every rank."""
    sweep_options = _sweep_options(options, context)
    run_options = RunOptions(
        options.output, context.cache, context.command_line, force=True, progress=Style.NONE, remarks=False
    )
    if not options.on_ranks:
        return _run(options, sweep_options, run_options)

    with suppress(UserError):  # rank 0 reports it
        asked = [read_sweep_file(path, options.overrides).base.get("bits") for path in options.sweeps]
        require_bits("portable" if "portable" in asked else "native")

    def on_rank(world: World) -> int:
        """Rank 0 runs the sweeps, and the other ranks follow it."""
        from areabench.sweeps.mpi_leader import Leader
        from areabench.sweeps.mpi_ranks import follow

        if world.rank:
            return follow(world, run_options)
        if world.size == 1:
            print(
                "areabench: --on-ranks: 1 rank, which is the server's, leaves none for the clients; type "
                "`mpirun -n 9 areabench sweep ... --transport mpi --on-ranks`, or leave --on-ranks out",
                file=sys.stderr,
            )
            return 2
        leader, exit_code = Leader(world, run_options), 2
        try:
            exit_code = _run(options, replace(sweep_options, leader=leader), run_options)
        except UserError as error:
            print(f"areabench: {error}", file=sys.stderr)
        leader.dismiss(exit_code)
        return exit_code

    return on_ranks(on_rank, context.started)


def _sweep_options(options: argparse.Namespace, context: CommandContext) -> SweepOptions:
    """How the sweeps are run, if the options fit each other."""
    if options.jobs is not None and options.transport == MPI:
        raise UserError(f"--jobs {options.jobs}: on MPI there is one run at a time, with all cores; leave --jobs out")
    if (options.ranks is not None or options.on_ranks) and options.transport != MPI:
        raise UserError("--ranks and --on-ranks are for runs on MPI; add --transport mpi or leave them out")
    if options.ranks is not None and (options.on_ranks or options.ranks < 2):
        raise UserError(f"--ranks {options.ranks}: is for a launch by this command, of 2 ranks or more; leave it out")
    jobs, share = options.jobs or context.cores, read_share(options.share)
    return SweepOptions(jobs, options.transport, options.force, context.progress, share, options.ranks)


def _run(options: argparse.Namespace, sweep_options: SweepOptions, run_options: RunOptions) -> int:
    """Run the sweeps, or print what would be run; returns the exit code."""
    whole = [load_sweep(path, options.overrides, options.trials) for path in options.sweeps]
    bits = bits_of(whole)
    if sweep_options.leader is None:  # MPI has not started
        require_bits(bits)
    plans = [sweep_options.share.taken_from(with_code_checked(plan)) for plan in whole]
    folders = [_folder(plan, options.output, sweep_options, alone=len(plans) == 1) for plan in plans]
    if options.dry_run:
        return _describe(plans, folders, sweep_options)
    began_s = time.perf_counter()
    report = run_sweep(plans, folders, sweep_options, run_options)
    if report.interrupted:
        _say_interrupted(report, sweep_options)
        return report.exit_code
    last = {part.folder: part for part in report.folders}
    for part in report.folders:
        _say_ended(part)
        if sweep_options.transport == MPI and part.done and part is last[part.folder]:
            _say_verdicts(part.folder)
    tested = {part.folder for part in report.folders if part.phase == "test"}
    if any(part.phase == "tuning" and part.folder not in tested for part in report.folders):
        again = "the same command" if sweep_options.share.whole else "every share, started again,"
        print(f"the test runs begin when all tuning runs are done; {again} continues then")
    _say_cost(sum(part.now for part in report.folders), time.perf_counter() - began_s, sweep_options)
    if report.stopped:
        _say_stopped(report, sweep_options)
    return report.exit_code


def _say_cost(runs: int, elapsed_s: float, options: SweepOptions) -> None:
    """Print how long it took, and the memory of the largest process."""
    if runs:
        whose = resource.RUSAGE_CHILDREN if options.leader is None else resource.RUSAGE_SELF
        processes = f"{options.jobs} process{'es' * (options.jobs != 1)} at a time"
        how = "one run at a time" if options.transport == MPI else processes
        memory = f"{peak_bytes(whose) / 1e9:.2f} GB"
        print(f"{counted(runs, 'run')} in {duration(elapsed_s)}, {how}, the largest took {memory} of memory")


def _folder(plan: SweepPlan, output: Path | None, options: SweepOptions, *, alone: bool) -> Path:
    """The folder of a sweep: the one asked for, or one named after the file."""
    name = f"{plan.name}-mpi" if options.transport == MPI else plan.name
    if output is None:
        return Path("runs") / name
    return output if alone else output / name


def _describe(plans: Sequence[SweepPlan], folders: Sequence[Path], options: SweepOptions) -> int:
    """Print what would be run; 1 where something cannot be run."""
    check_folders(folders)
    impossible = 0
    for plan, folder in zip(plans, folders, strict=True):
        check_contents(folder, plan, options.transport)
        found = sweep_state(plan, folder, force=options.force)
        passes = group_passes(found.pending)
        in_passes = f" in {len(passes):,} passes" if options.transport != MPI else ""
        steps = sum(each.steps for each in passes)
        print(
            f"{folder}: {counted(found.runs, 'run')}: {found.done:,} done, {len(found.pending):,} pending{in_passes}, "
            f"about {steps:,.0f} gradient steps, {len(found.invalid):,} that cannot be run"
        )
        if plan.file is not None:
            _describe_tests(plan, plan.file, folder, options)
        _list(found.invalid)
        impossible += len(found.invalid)
    return int(impossible > 0)


def _describe_tests(plan: SweepPlan, file: SweepFile, folder: Path, options: SweepOptions) -> None:
    """Print what follows the tuning runs."""
    tests = None if options.force else with_tests(plan, folder)
    if tests is None:
        expected = len(expected_tests(file)[options.share.number - 1 :: options.share.of])
        print(f"  then {counted(expected, 'run')} of what they choose")
        return
    found = sweep_state(options.share.taken_from(tests), folder, force=False)
    print(
        f"  then {counted(found.runs, 'run')} of what they chose: {found.done:,} done, {len(found.pending):,} pending"
    )


def _say_ended(report: FolderReport) -> None:
    """Print the outcome of a sweep."""
    what = f"{report.folder}, {report.phase}" if report.phase else report.folder
    print(
        f"{what}: {counted(report.runs, 'run')}: {report.now:,} done now, {report.before:,} done before, "
        f"{report.diverged:,} of them diverged, {len(report.failures):,} failed"
    )
    _list(report.failures)


def _say_verdicts(folder: Path) -> None:
    """Print what decided the cycle times of the runs, and name one run of each kind that did not keep its delays."""
    runs: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.h5")):
        with open_run(path) as run:
            verdict = "without diagnosis" if run.diagnosis is None else run.diagnosis.verdict
            runs.setdefault(verdict, []).append(path.name)
    others = [names[0] for verdict, names in runs.items() if verdict != _KEPT_DELAYS]
    parts = [f"{len(names):,} {verdict}" for verdict, names in runs.items()]
    parts += [f"see `areabench diagnose {folder / name}`" for name in others]
    print(f"  {', '.join(parts)}")


def _list(failures: Sequence[Failure]) -> None:
    for failure in failures[:_MOST_FAILURES_SHOWN]:
        print(f"  {failure.file}: {failure.reason}")
    if len(failures) > _MOST_FAILURES_SHOWN:
        print(f"  and {len(failures) - _MOST_FAILURES_SHOWN:,} more")


def _say_interrupted(report: SweepReport, options: SweepOptions) -> None:
    done, runs = sum(part.done for part in report.folders), sum(part.runs for part in report.folders)
    with suppress(OSError):  # the terminal may be closed
        print(
            f"areabench: interrupted: {done:,} of {counted(runs, 'run')} are done; {_remedy(options)}", file=sys.stderr
        )


def _say_stopped(report: SweepReport, options: SweepOptions) -> None:
    print(
        f"areabench: stopped early: {report.stopped}; {counted(report.not_attempted, 'run')} not attempted; when "
        f"that is fixed, {_remedy(options)}",
        file=sys.stderr,
    )


def _remedy(options: SweepOptions) -> str:
    """How to continue."""
    if not options.force:
        return "the same command continues from there"
    return "leave --force out to run only what has no result, old or new; with it, everything is run again"
