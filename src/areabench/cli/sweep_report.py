"""What `areabench sweep` prints: what there is to run, and what has been done."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from areabench.engine.diagnosis import Cause
from areabench.experiment.labels import MPI
from areabench.host import peak_bytes
from areabench.progress import duration
from areabench.runfile.read import stored_diagnosis
from areabench.runfile.reader import RunReader
from areabench.sweeps.cost import expected_steps
from areabench.sweeps.folder import check_contents, look_into
from areabench.sweeps.plan import SweepPlan, expected_tests
from areabench.sweeps.pool import group_passes
from areabench.sweeps.read import Failure, with_tests
from areabench.sweeps.run import SweepOptions, SweepReport, check_folders
from areabench.views.styled import counted

_MOST_FAILURES_SHOWN = 20


def print_plans(plans: Sequence[SweepPlan], folders: Sequence[Path], options: SweepOptions) -> int:
    """Print what would be run; 1 where something cannot be run."""
    check_folders(folders)
    impossible = 0
    for plan, folder in zip(plans, folders, strict=True):
        check_contents(folder, plan, options.transport)
        found = look_into(folder, plan, force=options.force)
        passes = group_passes(found.pending)
        in_passes = ""
        if options.transport != MPI:
            in_passes = f" in {len(passes):,} passes"
        steps = sum(expected_steps(task.experiment) for task in found.pending)
        print(
            f"{folder}: {counted(found.runs, 'run')}: {found.done:,} done, {len(found.pending):,} pending{in_passes}, "
            f"about {steps:,.0f} gradient steps, {len(found.failures):,} that cannot be run"
        )
        _print_tests(plan, folder, options)
        _print_failures(found.failures)
        impossible += len(found.failures)
    return int(impossible > 0)


def _print_tests(plan: SweepPlan, folder: Path, options: SweepOptions) -> None:
    """Print what follows the tuning runs."""
    if not plan.is_tuned:
        return
    tests = None
    if not options.force:  # which makes the tuning runs again, and then chooses anew
        tests = with_tests(plan, folder)
    if tests is None:
        expected = len(expected_tests(plan.file)[options.share.number - 1 :: options.share.of])
        print(f"  then {counted(expected, 'run')} of what they choose")
        return
    found = look_into(folder, options.share.taken_from(tests), force=False)
    print(
        f"  then {counted(found.runs, 'run')} of what they chose: {found.done:,} done, {len(found.pending):,} pending"
    )


def print_report(report: SweepReport, options: SweepOptions, elapsed_s: float) -> None:
    """Print how sweeps have ended."""
    if options.force:
        remedy = "leave --force out to run only what has no result, old or new; with it, everything is run again"
    else:
        remedy = "the same command continues from there"
    if report.interrupted:
        done = sum(part.done for part in report.folders)
        runs = sum(part.runs for part in report.folders)
        with suppress(OSError):  # the terminal may be closed
            print(f"areabench: interrupted: {done:,} of {counted(runs, 'run')} are done; {remedy}", file=sys.stderr)
        return
    last = {part.folder: part for part in report.folders}
    for part in report.folders:
        what = str(part.folder)
        if part.phase:
            what += f", {part.phase}"
        print(
            f"{what}: {counted(part.runs, 'run')}: {part.now:,} done now, {part.before:,} done before, "
            f"{part.diverged:,} of them diverged, {len(part.failures):,} failed"
        )
        _print_failures(part.failures)
        if options.transport == MPI and part.done and part is last[part.folder]:
            _print_verdicts(part.folder)
    tested = {part.folder for part in report.folders if part.phase == "test"}
    if any(part.phase == "tuning" and part.folder not in tested for part in report.folders):
        again = "the same command"
        if not options.share.whole:
            again = "every share, started again,"
        print(f"the test runs begin when all tuning runs are done; {again} continues then")
    if now := sum(part.now for part in report.folders):
        _print_cost(now, elapsed_s, options)
    if report.stopped:
        print(
            f"areabench: stopped early: {report.stopped}; {counted(report.not_attempted, 'run')} not attempted; when "
            f"that is fixed, {remedy}",
            file=sys.stderr,
        )


def _print_cost(runs: int, elapsed_s: float, options: SweepOptions) -> None:
    """Print how long it took, and the memory of the largest process."""
    whose = resource.RUSAGE_CHILDREN
    if options.leader is not None:  # the runs are made in this process
        whose = resource.RUSAGE_SELF
    if options.transport == MPI:
        how = "one run at a time"
    else:
        how = f"{options.jobs} process{'es' * (options.jobs != 1)} at a time"
    memory = f"{peak_bytes(whose) / 1e9:.2f} GB"
    print(f"{counted(runs, 'run')} in {duration(elapsed_s)}, {how}, the largest took {memory} of memory")


def _print_verdicts(folder: Path) -> None:
    """Print what decided the cycle times of the runs, and name one run of each kind that did not keep its delays."""
    runs: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.h5")):
        with RunReader(path) as reader:
            diagnosis = stored_diagnosis(reader)
            verdict = "without diagnosis" if diagnosis is None else diagnosis.verdict
            runs.setdefault(verdict, []).append(path.name)
    parts = [f"{len(names):,} {verdict}" for verdict, names in runs.items()]
    for verdict, names in runs.items():
        if verdict != Cause.DELAYS.value:
            parts.append(f"see `areabench diagnose {folder / names[0]}`")
    print(f"  {', '.join(parts)}")


def _print_failures(failures: Sequence[Failure]) -> None:
    for failure in failures[:_MOST_FAILURES_SHOWN]:
        print(f"  {failure.file}: {failure.reason}")
    if len(failures) > _MOST_FAILURES_SHOWN:
        print(f"  and {len(failures) - _MOST_FAILURES_SHOWN:,} more")
