"""Runs from Python: simulate, launch, resume, sweep, replay and evaluate, and experiments to run.

An experiment is the path of its file, TOML text, a dict of its sections, or an `Experiment`; whichever it is, it is
checked in the same way, and `overrides` change it: `seed=3`, `split="iid"`, `method={"step_size": 0.1}`. A section
whose `name` changes is replaced as a whole. With `output=None` no file is left: the run lives as long as its `Run`.

`observers` are told of events and snapshots (`areabench.observers`): objects, or texts such as `csv=FOLDER`; those of a
launch live on rank 0 and are texts, ready ones, or `module:function`. `checkpoint_s` is the real time between
checkpoints for `resume`; a signal leaves another one. 0, and None of a launch: only a signal does; None of a
simulation: there are none.

`progress` is a live line on a terminal and a bar in a notebook; False shows none, True shows it elsewhere too.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from areabench.engine.events import State, Status
from areabench.errors import ConfigError, RunFailure, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import MPI
from areabench.experiment.parse import anchored, check_trace, checked_experiment
from areabench.experiment.tables import grid_of, part_name, passed_parts, tables_of
from areabench.host import own_cores
from areabench.kernels import Bits, environment_for
from areabench.problems.datasets import default_cache
from areabench.progress import ProgressLine, Style, in_notebook
from areabench.runfile.export import ExportForm, beside, inside, run_columns, write_columns
from areabench.runfile.read import Run, open_run
from areabench.runfile.reader import read_status
from areabench.settings.keys import PythonObject
from areabench.settings.parse import Location, to_toml
from areabench.settings.toml import read_text, read_toml
from areabench.sweeps.file import check_sweep, merged, read_sweep_file
from areabench.sweeps.plan import SweepPlan, bits_of, plan_sweep
from areabench.sweeps.read import Sweep, open_sweep
from areabench.threads import VARIABLES
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.transports.replay import ReplayResult

ExperimentSource = str | Path | Mapping[str, Any] | Experiment

_IN_MEMORY = Path("in memory")  # the path of a run without a file


def read_experiment(experiment: ExperimentSource, /, **overrides: Any) -> Experiment:
    """The experiment, with its overrides, checked and with all defaults filled in."""
    table, source, folder = _read(experiment)
    for key in ("sweep", "extends"):
        if key in table:
            raise ConfigError(f"{source}: {key}: this is a sweep, not one experiment; use areabench.sweep")
    found = checked_experiment(anchored(merged(table, tables_of(overrides)), folder), Location(source))
    check_trace(found)
    return found


def simulate(
    experiment: ExperimentSource,
    /,
    *,
    output: str | Path | None = None,
    force: bool = False,
    observers: Sequence[object] = (),
    checkpoint_s: float | None = None,
    progress: bool | None = None,
    **overrides: Any,
) -> Run:
    """Make one run in virtual time, in this process, and open it; `force` overwrites an existing file."""
    from areabench.transports.session import simulate_run

    chosen = read_experiment(experiment, **overrides)
    with _run_file(output) as path:
        options = _options("simulate", path, observers, force=force, checkpoint_s=checkpoint_s, progress=progress)
        _check_status(simulate_run(chosen, options), output)
        return _opened(path, output)


def launch(
    experiment: ExperimentSource,
    /,
    *,
    ranks: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    observers: Sequence[object] = (),
    checkpoint_s: float | None = None,
    progress: bool | None = None,
    **overrides: Any,
) -> Run:
    """Make one run in real time on MPI ranks of this machine, and open it; one rank per client and one for the server.

    What the ranks print on stderr goes to that of this process. A run that fails raises a RunFailure.
    """
    from areabench.launching.run import launch_run

    chosen = read_experiment(experiment, **overrides)
    if passed := passed_parts(chosen):
        raise UserError(
            f"{', '.join(map(repr, passed))}: an object of this process cannot be sent to MPI ranks; put the function "
            "into a module, and pass it from there"
        )
    # The ranks read the experiment from a file: what has been passed is written with all its defaults.
    ranks_get = _environment_of_ranks(chosen.bits)
    with TemporaryDirectory(prefix="areabench-") as folder, _run_file(output) as path, ranks_get:
        file = Path(folder, "experiment.toml")
        file.write_text(to_toml(chosen), encoding="utf-8")
        options = _options("launch", path, observers, force=force, checkpoint_s=checkpoint_s, progress=progress)
        _check_code(launch_run(chosen, file, options, ranks, quiet=True), path)
        return _opened(path, output)


def resume(
    run: Run | str | Path,
    /,
    *,
    ranks: int | None = None,
    observers: Sequence[object] = (),
    checkpoint_s: float | None = None,
    trust: Sequence[str | Path] = (),
    progress: bool | None = None,
    **parts: Any,
) -> Run:
    """Continue a run that was stopped or killed from its checkpoint, in its file, and open it.

    In virtual time it leaves what a run without a stop leaves; one on MPI continues on new ranks of this machine.
    `trust` and `parts` are those of `replay`.
    """
    from areabench.launching.run import resume_on_ranks
    from areabench.plugins.trust import check_trusted, trusted_folders
    from areabench.transports.session import resumable, resume_simulation

    path = _path_of(run)
    trusted = [str(each) for each in trust]
    options = _options("resume", path, observers, force=True, checkpoint_s=checkpoint_s, progress=progress)
    with open_run(path) as recorded, _environment_of_ranks(recorded.experiment.bits):
        resumable(recorded)
        experiment = _with_parts(recorded, parts)
        check_trusted(experiment, path, trusted)
        if recorded.provenance.transport == MPI:
            _check_code(resume_on_ranks(recorded, options, ranks, trusted=trusted, quiet=True), path)
        elif ranks is not None:
            raise UserError(f"ranks={ranks}: {path} was simulated; leave it out")
        else:
            _check_status(resume_simulation(recorded, options, trusted_folders(trusted), experiment), path)
    return open_run(path)


def sweep(
    experiment: ExperimentSource,
    /,
    *,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    trials: int | None = None,
    output: str | Path | None = None,
    jobs: int | None = None,
    transport: Literal["simulator", "mpi"] = "simulator",
    ranks: int | None = None,
    force: bool = False,
    progress: bool | None = None,
    **overrides: Any,
) -> Sweep:
    """Run a sweep, or an experiment over a grid, and read it; with `output`, a folder, it continues what is there.

    `grid` is a dict of `section.key` and list of values, or several of them. `jobs` processes run at a time, as many as
    there are cores; an object that another process could not import keeps all runs in this one.
    """
    from areabench.sweeps.run import SweepOptions, run_sweep, with_code_checked

    plan = _planned(experiment, grid, trials, overrides)
    alone = any(passed_parts(member) for member in plan.experiments)
    if alone and transport == "mpi":
        raise UserError("an object of this process cannot be sent to MPI ranks; put the function into a module")
    count = jobs or len(own_cores())
    if alone:
        count = 0  # no process beside this one
    sweep_options = SweepOptions(count, transport, force, _style(progress), ranks=ranks)
    place = None if output is None else Path(output)
    with _path_or_temporary(place, "sweep") as folder, _environment_of_ranks(bits_of([plan])):
        options = _options("sweep", folder, force=True, progress=False)
        report = run_sweep([with_code_checked(plan)], [folder], sweep_options, options)
        if report.interrupted:
            raise KeyboardInterrupt
        if report.stopped:
            raise RunFailure(report.stopped)
        found = open_sweep(folder)
        # The folder is removed now, and results are kept once they were read.
        if output is None and found.tuning is not None:
            _ = found.tuning.results
        return found


def replay(
    run: Run | str | Path, /, *, trust: Sequence[str | Path] = (), progress: bool | None = None, **parts: Any
) -> ReplayResult:
    """Replay a run and compare it bit for bit; `parts` are the objects that it was made with, by section.

    `trust` names modules that the run file names and that may be called, by import path or by file.
    """
    from areabench.engine.scenario import trusted_scenario
    from areabench.plugins.modules import changes
    from areabench.transports.replay import replay_run

    recorded = run if isinstance(run, Run) else open_run(run)
    experiment = _with_parts(recorded, parts)
    scenario = trusted_scenario(experiment, recorded.path, _cache(), [str(each) for each in trust])
    for changed in changes(recorded.provenance.modules, experiment):
        warnings.warn(f"{recorded.path}: {changed}", stacklevel=2)
    scenario.check_data(recorded.provenance.data_digest, recorded.path)
    line = ProgressLine("replay", recorded.status.end_s, _style(progress))
    try:
        return replay_run(recorded, scenario, line)
    finally:
        line.close()
        if recorded is not run:
            recorded.close()


def evaluate(
    run: Run | str | Path, /, *, trust: Sequence[str | Path] = (), progress: bool | None = None, **parts: Any
) -> Run:
    """Compute the metrics of a run that has ended again, put them into its file, and open it.

    A RunFailure where the evaluation fails; the file is as it was then. `trust` and `parts` are those of `replay`.
    """
    from areabench.engine.scenario import trusted_scenario
    from areabench.transports.evaluate import evaluate_file

    path = _path_of(run)
    trusted = [str(each) for each in trust]
    evaluate_file(
        path,
        lambda recorded: trusted_scenario(_with_parts(recorded, parts), path, _cache(), trusted),
        _style(progress),
    )
    return open_run(path)


def export(
    source: Run | Sweep | str | Path,
    /,
    folder: str | Path | None = None,
    *,
    to: ExportForm = "parquet",
    force: bool = False,
) -> list[Path]:
    """Write a run or a sweep as plain tables for other programs, one file each, and return the paths.

    A run has events, metrics and clients; a sweep has runs, metrics and its table. Without `folder` they are written
    beside the run file, or into `export` in the sweep's folder.
    """
    from areabench.results.table import table_columns

    if isinstance(source, str | Path):
        opened = open_sweep(source) if Path(source).is_dir() else open_run(source)
        paths = export(opened, folder, to=to, force=force)
        if isinstance(opened, Run):
            opened.close()
        return paths
    # what was kept in memory has no folder of its own, so that is looked for only where none is given
    if isinstance(source, Run):
        return write_columns(run_columns(source), Path(folder or beside(source.path)), to, force=force)
    tables = {**source.columns(), "table": table_columns(source)}
    return write_columns(tables, Path(folder or inside(source.folder)), to, force=force)


# ---------------------------------------------------------------------------------------------------- experiments


def _read(experiment: ExperimentSource) -> tuple[dict[str, Any], str, Path]:
    """The tables of an experiment, what its errors call it, and the folder of its relative paths."""
    if isinstance(experiment, Mapping | Experiment):
        return tables_of(experiment), "experiment", Path.cwd()
    if _is_toml(experiment):
        return read_toml(str(experiment), "experiment"), "experiment", Path.cwd()
    path = Path(experiment)
    return read_toml(read_text(path), str(path)), str(path), path.parent


def _is_toml(experiment: str | Path) -> bool:
    """Whether this is TOML text, and not the path of a file."""
    return isinstance(experiment, str) and ("\n" in experiment or "=" in experiment)


def _planned(
    experiment: ExperimentSource,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    trials: int | None,
    overrides: Mapping[str, Any],
) -> SweepPlan:
    """The runs of a sweep."""
    changes = tables_of(overrides)
    given: dict[str, Any] = {}
    if grid:
        given["grid"] = [grid_of(each) for each in ([grid] if isinstance(grid, Mapping) else grid)]
    if trials is not None:
        given["trials"] = trials
    if given:
        changes["sweep"] = given
    if isinstance(experiment, str | Path) and not _is_toml(experiment):
        path = Path(experiment)
        return plan_sweep(read_sweep_file(path, changes=changes), path.stem)
    table, source, folder = _read(experiment)
    whole = anchored(merged(table, changes), folder)
    return plan_sweep(check_sweep(whole, Location(source)), str(whole.get("name", "sweep")))


def _with_parts(run: Run, parts: Mapping[str, Any]) -> Experiment:
    """The experiment of a run, with the objects that it was made with."""
    table = tables_of(run.experiment)
    for section, part in parts.items():
        if not isinstance(table.get(section), dict):
            raise UserError(f"{section}: the run has no such section; pass method, problem, data, split or delays")
        given = part_name(part)
        function = given.function if isinstance(given, PythonObject) else part
        table[section]["name"] = PythonObject(table[section]["name"], function)
    return checked_experiment(table, Location(str(run.path)))


# ---------------------------------------------------------------------------------------------------- files


@contextmanager
def _path_or_temporary(output: Path | None, name: str) -> Iterator[Path]:
    """The path of a run file or a sweep; without output, in a folder that is removed when it has been opened."""
    if output is not None:
        yield output
        return
    with TemporaryDirectory(prefix="areabench-") as folder:
        yield Path(folder, name)


def _run_file(output: str | Path | None) -> AbstractContextManager[Path]:
    from areabench.files import run_file_path

    return _path_or_temporary(None if output is None else run_file_path(str(output)), "run.h5")


def _path_of(run: Run | str | Path) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def _opened(path: Path, output: str | Path | None) -> Run:
    run = open_run(path)
    if output is None:
        run.path = _IN_MEMORY
    return run


def _check_status(status: Status, output: str | Path | None) -> None:
    """Pass an interrupt on that has stopped a run, which has left a checkpoint; warn of a run without metrics."""
    if status.state == State.STOPPED and status.reason == signal.SIGINT.name:
        raise KeyboardInterrupt
    if status.unevaluated:
        remedy = "areabench.evaluate tries again"
        if output is None:
            remedy = "with output=... it can be tried again"
        warnings.warn(
            f"the evaluation of the run failed ({status.unevaluated}), so it has no metrics; {remedy}", stacklevel=3
        )


def _check_code(code: int, path: Path) -> None:
    """Raise where a launch that ended with this exit code has no run to return."""
    if code == 130:
        raise KeyboardInterrupt
    if path.exists() and code not in (1, 2):
        if code == 5:
            warnings.warn(f"{path}: the evaluation of the run failed; the lines on stderr say why", stacklevel=3)
        return
    if path.exists():
        status = read_status(path)
        if status.state == State.FAILED:
            raise RunFailure(f"the run failed: {status.reason}")
    raise RunFailure(f"the launch ended with exit code {code}; its lines on stderr say why")


# ---------------------------------------------------------------------------------------------------- options


def _options(
    function: str,
    output: Path,
    observers: Sequence[object] = (),
    *,
    force: bool,
    checkpoint_s: float | None = None,
    progress: bool | None,
) -> RunOptions:
    if checkpoint_s is not None and not checkpoint_s >= 0:
        raise UserError(f"checkpoint_s={checkpoint_s}: is not a time in seconds; give a number >= 0, or None")
    if isinstance(observers, str):
        observers = (observers,)
    return RunOptions(
        output,
        _cache(),
        f"areabench.{function}() in Python",
        force,
        _style(progress),
        checkpoint_s,
        observers=tuple(observers),
    )


def _cache() -> Path:
    return default_cache(os.environ)


def _style(progress: bool | None) -> Style:
    """How progress is shown: in a notebook or on a terminal unless told otherwise."""
    from areabench.views.terminal import progress_style

    if progress is not False and in_notebook():
        return Style.NOTEBOOK
    choice = {None: "auto", True: "always", False: "never"}[progress]
    return progress_style(choice, os.environ, is_terminal=sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def _environment_of_ranks(bits: Bits) -> Iterator[None]:
    """Variables for processes that are started here, as the commands set them: one thread each, MPI's and kernels."""
    from areabench.host import spare_home
    from areabench.launching.families import set_mpi_defaults

    wanted = dict(os.environ)
    set_mpi_defaults(wanted, one_machine=True)
    for variable in VARIABLES.values():
        wanted.setdefault(variable, "1")
    if not wanted.get("HOME"):
        wanted["HOME"] = str(spare_home())
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with environment_for(bits):
            yield
    finally:
        for name in added:
            os.environ.pop(name, None)
