"""Running sweeps: several at once share one pool of processes and one progress line, and continue what is left."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.events import ENDED, State
from areabench.errors import ConfigError, RunFailure, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import MPI, SIMULATOR
from areabench.plugins.call import check_parts
from areabench.plugins.paths import user_functions
from areabench.plugins.trust import unevaluated_text
from areabench.progress import Style, SweepProgress
from areabench.sweeps.cost import expected_cost, expected_duration_s
from areabench.sweeps.folder import FolderReport, look_into, opened, write_failures
from areabench.sweeps.mpi import run_in_launches
from areabench.sweeps.passes import Executor, Pass, PassOutcome, Task
from areabench.sweeps.plan import Share, SweepPlan, checked
from areabench.sweeps.pool import group_passes, run_here, run_in_pool
from areabench.sweeps.read import Failure, make_choice, with_tests
from areabench.sweeps.result import ended_state
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
        if not plan.is_tuned:
            continue
        # New tuning runs can change the choice; without them it stays what was written down.
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
        reports = {}
        for plan, folder in zip(plans, folders, strict=True):
            report = look_into(folder, plan, options.share, force=options.force)
            if plan.is_tuned:
                report.phase = phase
            write_failures(report)
            reports[folder] = report
        interrupts = stack.enter_context(Interrupts())
        stopped = _compute(reports, options, run_options, interrupts)
        return SweepReport(tuple(reports.values()), interrupts.exit_code if interrupts.number else 0, stopped)


def check_folders(folders: Sequence[Path]) -> None:
    """Two sweeps cannot share a folder."""
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise UserError(f"{folder}: two of the sweeps would be written into it; rename one file or run it alone")
        seen.add(folder.resolve())


def _compute(
    reports: dict[Path, FolderReport], options: SweepOptions, run_options: RunOptions, interrupts: Interrupts
) -> str:
    """Run what is pending and count it as it ends; the error that made it pointless to continue, or an empty text."""
    tasks = [task for report in reports.values() for task in report.pending]
    if options.transport == MPI:
        passes = [Pass((task,)) for task in tasks]
        costs = {task.output: expected_duration_s(task.experiment) for task in tasks}
    else:
        passes = group_passes(tasks)
        costs = {task.output: expected_cost(task.experiment) for task in tasks}
    progress = SweepProgress(len(tasks), sum(costs.values()), options.progress)
    progress.show()
    execute = _executor(options, run_options, interrupts, progress)
    left = {task.output: task for task in tasks}
    stopped = ""
    try:
        while passes and not stopped and not interrupts.number:
            divided: list[Pass] = []
            with closing(execute(passes)) as outcomes:
                for outcome in outcomes:
                    if outcome.divides:
                        # They come last, so that one bad run keeps the others waiting as little as possible.
                        divided += outcome.attempted.divided()
                        continue
                    ended = outcome.attempted.tasks
                    for task in ended:
                        del left[task.output]
                    if outcome.is_fatal:
                        stopped = outcome.error
                    failed = _count(outcome, reports)
                    progress.add(len(ended) - failed, failed, sum(costs[task.output] for task in ended))
                    if stopped:
                        break
            passes = divided
    except RunFailure as error:  # the list of failures cannot be written
        stopped = stopped or str(error)
    finally:
        progress.close()
    if (interrupts.number or stopped) and not options.force:  # one may have become complete as its worker was ended
        for task in left.values():
            reports[task.output.parent].now += ended_state(task.output, task.experiment, evaluated=True) is not None
    return stopped


def _executor(
    options: SweepOptions, run_options: RunOptions, interrupts: Interrupts, progress: SweepProgress
) -> Executor:
    """What computes the passes."""
    if options.leader is not None:
        return partial(options.leader.run, interrupts=interrupts)
    if options.transport == MPI:
        return partial(
            run_in_launches,
            ranks=options.ranks, command=run_options.command, interrupts=interrupts, progress=progress,
        )  # fmt: skip
    if not options.jobs:
        return partial(run_here, options=run_options, interrupts=interrupts)
    return partial(run_in_pool, jobs=options.jobs, options=run_options, interrupts=interrupts, progress=progress)


def _count(outcome: PassOutcome, reports: dict[Path, FolderReport]) -> int:
    """Enter an outcome into the reports; how many of its runs failed."""
    failed = 0
    for number, task in enumerate(outcome.attempted.tasks):
        report = reports[task.output.parent]
        reason = _failure(outcome, number, task)
        if reason is None:
            report.now += 1
            report.diverged += outcome.statuses[number].state == State.DIVERGED
        else:
            failed += 1
            report.failures.append(Failure(task.output.name, reason))
    # The list is written after every failure: a sweep that is killed has it too.
    if failed:
        for folder in {task.output.parent for task in outcome.attempted.tasks}:
            write_failures(reports[folder])
    return failed


def _failure(outcome: PassOutcome, number: int, task: Task) -> str | None:
    """Why a run of a pass is not done; None where it is."""
    if not outcome.statuses:
        return outcome.error
    status = outcome.statuses[number]
    if status.unevaluated:
        return f"{status.state.text}, but {unevaluated_text(status.unevaluated, task.output, task.experiment)}"
    if status.state in ENDED:
        return None
    return status.reason or outcome.error


# ---------------------------------------------------------------------------------------------------- own code


def with_code_checked(plan: SweepPlan) -> SweepPlan:
    """The plan; a member has no experiment where a function that it names cannot be imported or called.

    Imports the user's own code that the sweep names, so it is only for sweeps that are about to be run.
    """
    # Importing user code can take seconds, so each combination is tried once, not once per run.
    members = tuple(checked(plan.members, _named_code, lambda each: check_parts(each, each.module_folders or ())))
    if members and all(member.experiment is None for member in members):
        raise ConfigError(members[0].error)
    return replace(plan, members=members)


def _named_code(experiment: Experiment) -> object:
    """What decides whether the functions that an experiment names can be called; None where it names none."""
    parts = user_functions(experiment)
    return (tuple(parts.items()), experiment.data is None, experiment.module_folders) if parts else None
