"""What `areabench sweep` does, once argv and the environment have been read."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.diagnosis import Cause
from areabench.errors import UserError
from areabench.experiment.labels import MPI
from areabench.host import peak_bytes
from areabench.progress import duration
from areabench.runfile.read import open_run
from areabench.sweeps.folder import check_transport, sweep_state
from areabench.sweeps.plan import SweepPlan, load_sweep
from areabench.sweeps.pool import group_passes
from areabench.sweeps.read import Failure
from areabench.sweeps.run import (
    FolderReport,
    SweepOptions,
    SweepReport,
    check_folders,
    run_sweep,
    with_code_checked,
)
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.transports.world import World


_MOST_FAILURES_SHOWN = 20
_GOOD = Cause.DELAYS.value


def sweep(
    files: Sequence[Path],
    overrides: Sequence[str],
    trials: int | None,
    options: SweepOptions,
    around: RunOptions,
    *,
    dry: bool,
) -> int:
    """Run sweeps, or say what there is to run."""
    plans = [options.share.taken_from(with_code_checked(load_sweep(path, overrides, trials))) for path in files]
    folders = [_folder(plan, around.output, options, alone=len(plans) == 1) for plan in plans]
    if dry:
        return _describe(plans, folders, options)
    begun_s = time.perf_counter()
    report = run_sweep(plans, folders, options, around)
    if report.interrupted:
        _say_interrupted(report, options)
    else:
        for part in report.folders:
            _say_ended(part)
            if options.transport == MPI and part.done:
                _say_verdicts(part.folder)
        _say_cost(sum(part.now for part in report.folders), time.perf_counter() - begun_s, options)
        if report.stopped:
            _say_stopped(report, options)
    return report.exit_code


def leading(run: Callable[[SweepOptions], int], options: SweepOptions, around: RunOptions) -> Callable[[World], int]:
    """What makes sweeps on the ranks of a launch: rank 0 does what `run` does without, the others follow it."""

    def play(world: World) -> int:
        from areabench.sweeps.mpi_leader import Leader
        from areabench.sweeps.mpi_ranks import follow

        if world.rank:
            return follow(world, around)
        leader = Leader(world, around)
        exit_code = 2
        if world.size == 1:
            print(
                "areabench: --on-ranks: 1 rank, which is the server's, leaves none for the clients; type "
                "`mpirun -n 9 areabench sweep ... --transport mpi --on-ranks`, or leave --on-ranks out",
                file=sys.stderr,
            )
            return exit_code
        try:
            exit_code = run(replace(options, leader=leader))
        except UserError as error:
            print(f"areabench: {error}", file=sys.stderr)
        leader.dismiss(exit_code)
        return exit_code

    return play


def _say_cost(runs: int, elapsed_s: float, options: SweepOptions) -> None:
    """Say how long it took, and how large the largest process became."""
    if runs:
        whose = resource.RUSAGE_CHILDREN if options.leader is None else resource.RUSAGE_SELF
        gigabytes = peak_bytes(whose) / 1e9
        how = f"{options.jobs} processes at a time" if options.transport != MPI else "one run at a time"
        print(f"{runs:,} runs in {duration(elapsed_s)}, {how}, the largest took {gigabytes:.2f} GB of memory")


def _folder(plan: SweepPlan, output: Path | None, options: SweepOptions, *, alone: bool) -> Path:
    """The folder of a sweep: the one asked for, or one named after the file."""
    name = f"{plan.name}-mpi" if options.transport == MPI else plan.name
    if output is None:
        return Path("runs") / name
    return output if alone else output / name


def _describe(plans: Sequence[SweepPlan], folders: Sequence[Path], options: SweepOptions) -> int:
    """Say what would be run; 1 where something cannot be run."""
    check_folders(folders)
    impossible = 0
    for plan, folder in zip(plans, folders, strict=True):
        check_transport(folder, options.transport)
        found = sweep_state(plan, folder, force=options.force)
        passes = group_passes(found.pending)
        in_passes = f" in {len(passes):,} passes" if options.transport != MPI else ""
        steps = sum(each.steps for each in passes)
        print(
            f"{folder}: {found.runs:,} runs: {found.done:,} done, {len(found.pending):,} pending{in_passes}, about "
            f"{steps:,.0f} gradient steps, {len(found.invalid):,} that cannot be run"
        )
        _list(found.invalid)
        impossible += len(found.invalid)
    return int(impossible > 0)


def _say_ended(report: FolderReport) -> None:
    """Say what has become of a sweep."""
    print(
        f"{report.folder}: {report.runs:,} runs: {report.now:,} done now, {report.before:,} done before, "
        f"{report.diverged:,} of them diverged, {len(report.failures):,} failed"
    )
    _list(report.failures)


def _say_verdicts(folder: Path) -> None:
    """Say what decided the cycles of the runs in real time, and name one of each kind that did not keep its delays."""
    runs: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.h5")):
        with open_run(path) as run:
            verdict = "without diagnosis" if run.diagnosis is None else run.diagnosis.verdict
            runs.setdefault(verdict, []).append(path.name)
    told = [f"{len(names):,} {verdict}" for verdict, names in runs.items()]
    told += [f"see `areabench diagnose {folder / names[0]}`" for verdict, names in runs.items() if verdict != _GOOD]
    print(f"  {', '.join(told)}")


def _list(failures: Sequence[Failure]) -> None:
    for failure in failures[:_MOST_FAILURES_SHOWN]:
        print(f"  {failure.file}: {failure.reason}")
    if len(failures) > _MOST_FAILURES_SHOWN:
        print(f"  and {len(failures) - _MOST_FAILURES_SHOWN:,} more")


def _say_interrupted(report: SweepReport, options: SweepOptions) -> None:
    done, runs = sum(part.done for part in report.folders), sum(part.runs for part in report.folders)
    with suppress(OSError):  # the terminal may be what has gone
        print(f"areabench: interrupted: {done:,} of {runs:,} runs are done; {_remedy(options)}", file=sys.stderr)


def _say_stopped(report: SweepReport, options: SweepOptions) -> None:
    print(
        f"areabench: stopped early: {report.stopped}; {report.not_attempted:,} runs were not attempted; when that is "
        f"mended, {_remedy(options)}",
        file=sys.stderr,
    )


def _remedy(options: SweepOptions) -> str:
    """How to go on."""
    if not options.force:
        return "the same command goes on from there"
    return "leave --force out to run only what has no result, old or new; with it, everything is run again"
