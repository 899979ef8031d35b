"""Running sweeps: several at once share one pool of processes and one progress line, and continue what is left."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.events import ENDED, State, Status
from areabench.errors import ConfigError, RunFailure, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import MPI, SIMULATOR
from areabench.plugins.call import check_parts
from areabench.plugins.paths import user_functions
from areabench.plugins.trust import unevaluated_text
from areabench.progress import Style, SweepProgress
from areabench.sweeps.folder import SweepState, opened, sweep_state, write_failures
from areabench.sweeps.mpi import run_in_launches
from areabench.sweeps.outcomes import PassOutcome
from areabench.sweeps.plan import (
    Share,
    SweepPlan,
    Task,
    checked,
    expected_cost,
    expected_duration_s,
)
from areabench.sweeps.pool import Pool, group_passes, run_here
from areabench.sweeps.read import Failure, ended_state, make_choice, with_tests
from areabench.transports.options import RunOptions
from areabench.transports.signals import Interrupts

if TYPE_CHECKING:
    from areabench.sweeps.on_ranks import Leader  # needs mpi4py


@dataclass(frozen=True)
class SweepOptions:
    """How sweeps are run."""

    jobs: int  # processes at a time, 0: in this one; on MPI there is one run at a time
    transport: str = SIMULATOR
    force: bool = False  # run again what is done
    progress: Style = Style.NONE
    share: Share = Share()  # of the runs; the plans hold no others
    ranks: int | None = None  # of a launch on MPI; None: as many as the largest run can use
    leader: Leader | None = None  # on MPI: makes the runs on the ranks of this launch instead of starting mpirun


@dataclass
class FolderReport:
    """What has been done of a sweep so far."""

    folder: Path
    runs: int
    before: int  # done by an earlier sweep
    now: int = 0
    diverged: int = 0  # of those done
    failures: list[Failure] = field(default_factory=list)
    share: Share = Share()
    phase: str = ""  # of a tuned sweep: tuning or test

    def list_failures(self) -> None:
        """Write down what has failed so far."""
        write_failures(self.folder, self.failures, self.share)

    @property
    def done(self) -> int:
        """Runs that are done."""
        return self.before + self.now


@dataclass(frozen=True)
class SweepReport:
    """What has been done of all sweeps, and why they stopped."""

    folders: tuple[FolderReport, ...]
    interrupted: int  # exit code of the signal that interrupted them, or 0
    stopped: str = ""  # the error after which nothing else was tried

    @property
    def not_attempted(self) -> int:
        """Runs that have neither ended nor failed."""
        return sum(report.runs - report.done - len(report.failures) for report in self.folders)

    @property
    def exit_code(self) -> int:
        """0 where everything is done; a run that diverged is a result."""
        return self.interrupted or int(bool(self.stopped) or any(report.failures for report in self.folders))


def run_sweep(
    plans: Sequence[SweepPlan], folders: Sequence[Path], options: SweepOptions, run_options: RunOptions
) -> SweepReport:
    """Compute what is pending of some sweeps, each in a folder of its own; of tuned ones also the test runs.

    The report has the folders of tuned sweeps a second time, for the test runs, as soon as all tuning runs are done.
    """
    report = _run_plans(plans, folders, options, run_options)
    if report.interrupted or report.stopped:
        return report
    tests = []
    test_folders = []
    for plan, part in zip(plans, report.folders, strict=True):
        if plan.file is None:
            continue
        if part.now or with_tests(plan, part.folder) is None:
            try:
                make_choice(plan, part.folder)
            except RunFailure as error:
                return replace(report, stopped=str(error))
        if (test := with_tests(plan, part.folder)) is not None:
            tests.append(options.share.taken_from(with_code_checked(test)))
            test_folders.append(part.folder)
    if not tests:
        return report
    second = _run_plans(tests, test_folders, options, run_options, phase="test")
    return replace(second, folders=(*report.folders, *second.folders))


def _run_plans(
    plans: Sequence[SweepPlan],
    folders: Sequence[Path],
    options: SweepOptions,
    run_options: RunOptions,
    *,
    phase: str = "tuning",
) -> SweepReport:
    check_folders(folders)
    with ExitStack() as stack:
        for plan, folder in zip(plans, folders, strict=True):
            stack.enter_context(opened(folder, plan, options.transport, options.share))
        found = [sweep_state(plan, folder, force=options.force) for plan, folder in zip(plans, folders, strict=True)]
        reports = {folder: _begin(folder, each, options.share) for folder, each in zip(folders, found, strict=True)}
        for plan, report in zip(plans, reports.values(), strict=True):
            report.phase = phase if plan.file is not None else ""
        tasks = [task for each in found for task in each.pending]
        interrupts = stack.enter_context(Interrupts())
        stopped = _compute(tasks, reports, options, run_options, interrupts)
        return SweepReport(tuple(reports.values()), interrupts.exit_code if interrupts.number else 0, stopped)


def check_folders(folders: Sequence[Path]) -> None:
    """Two sweeps cannot share a folder."""
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise UserError(f"{folder}: two of the sweeps would be written into it; rename one file or run it alone")
        seen.add(folder.resolve())


def _begin(folder: Path, found: SweepState, share: Share) -> FolderReport:
    """The report before anything has been computed: members without experiment have failed already."""
    report = FolderReport(folder, found.runs, found.done, 0, found.diverged, list(found.invalid), share)
    report.list_failures()
    return report


def _compute(
    tasks: Sequence[Task],
    reports: dict[Path, FolderReport],
    options: SweepOptions,
    run_options: RunOptions,
    interrupts: Interrupts,
) -> str:
    """Run everything and count it as it ends; the error that made it pointless to continue, or an empty text."""
    cost = expected_duration_s if options.transport == MPI else expected_cost
    progress = SweepProgress(len(tasks), sum(cost(task.experiment) for task in tasks), options.progress)
    progress.show()
    open_tasks = {task.output: task for task in tasks}
    stopped = ""
    try:
        with closing(_outcomes(tasks, options, run_options, interrupts, progress)) as outcomes:
            for outcome in outcomes:
                for task in outcome.attempted.tasks:
                    del open_tasks[task.output]
                stopped = outcome.error if outcome.is_fatal else ""
                failed = _count(outcome, reports)
                ended = outcome.attempted.tasks
                progress.add(len(ended) - failed, failed, sum(cost(task.experiment) for task in ended))
                if stopped:
                    break
    except RunFailure as error:  # the list of failures cannot be written
        stopped = stopped or str(error)
    finally:
        progress.close()
    if (interrupts.number or stopped) and not options.force:  # one may have become complete as its worker was ended
        for task in open_tasks.values():
            reports[task.output.parent].now += ended_state(task.output, task.experiment, evaluated=True) is not None
    return stopped


def _outcomes(
    tasks: Sequence[Task],
    options: SweepOptions,
    run_options: RunOptions,
    interrupts: Interrupts,
    progress: SweepProgress,
) -> Generator[PassOutcome]:
    """How the passes of the transport end, as they do."""
    if options.leader is not None:
        for task in tasks:
            yield options.leader.attempt(task, os.getpid())
            if interrupts.number:
                return
        return
    if options.transport == MPI:
        yield from run_in_launches(tasks, options.ranks, run_options.command, interrupts, progress)
        return
    if not options.jobs:
        yield from run_here(group_passes(tasks), run_options, interrupts)
        return
    with closing(Pool(options.jobs, run_options, interrupts, progress)) as pool:
        yield from pool.run(group_passes(tasks))


def _count(outcome: PassOutcome, reports: dict[Path, FolderReport]) -> int:
    """Enter an outcome into the reports; how many of its runs failed."""
    failed = 0
    touched = {}
    for number, task in enumerate(outcome.attempted.tasks):
        report = reports[task.output.parent]
        status = outcome.statuses[number] if outcome.statuses else None
        if status is not None and status.state in ENDED and not status.unevaluated:
            report.now += 1
            report.diverged += status.state == State.DIVERGED
        else:
            failed += 1
            report.failures.append(Failure(task.output.name, _reason(status, task) or outcome.error))
            touched[report.folder] = report
    for report in touched.values():
        report.list_failures()
    return failed


def _reason(status: Status | None, task: Task) -> str:
    """Why a run with this status is none that is done; empty without a status."""
    if status is not None and status.unevaluated:
        return f"{status.state.text}, but {unevaluated_text(status.unevaluated, task.output, task.experiment)}"
    return status.reason if status is not None else ""


# ---------------------------------------------------------------------------------------------------- own code


def with_code_checked(plan: SweepPlan) -> SweepPlan:
    """The plan; a member has no experiment where a function that it names cannot be imported or called.

    Imports the user's own code that the sweep names, so it is only for sweeps that are about to be run.
    """
    members = tuple(checked(plan.members, _named_code, lambda each: check_parts(each, each.module_folders or ())))
    if members and all(member.experiment is None for member in members):
        raise ConfigError(members[0].error)
    return replace(plan, members=members)


def _named_code(experiment: Experiment) -> object:
    """What decides whether the functions that an experiment names can be called; None where it names none."""
    parts = user_functions(experiment)
    return (tuple(parts.items()), experiment.data is None, experiment.module_folders) if parts else None
