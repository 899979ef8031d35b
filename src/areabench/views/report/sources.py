"""From the paths on the command line to runs: files, folders of them, folders of sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from areabench.engine.events import ENDED
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.labels import SIMULATOR, method_label
from areabench.runfile.read import open_run
from areabench.sweeps.read import SWEEP_FILE, Sweep, open_sweep
from areabench.sweeps.result import Result, read_result
from areabench.views.report.records import Absent

Progress = Callable[[int], object]  # called with the number of runs before each of them is read


@dataclass(frozen=True)
class Trial:
    """One run, and where it comes from."""

    result: Result
    transport: str
    source: str  # the sweep's folder, or the file
    verdict: str = ""  # of a run in real time that has ended
    remark: str = ""  # distinguishes it from other runs of the same settings; trials with the same remark are averaged


@dataclass(frozen=True)
class Sources:
    """The runs and sweeps that the command line names."""

    trials: tuple[Trial, ...]
    absent: tuple[Absent, ...]
    sweeps: tuple[Sweep, ...] = ()


def without_seed(experiment: Experiment) -> Experiment:
    """What the trials of a point share."""
    return replace(_without_name(experiment), seed=0)


def _without_name(experiment: Experiment) -> Experiment:
    """Without the name, the folders of modules and what is recorded, which change nothing in a run."""
    return replace(experiment, name="", module_folders=None, record=Record())


def gather(paths: Sequence[Path], progress: Progress) -> Sources:
    """Read every path once, even if it is named twice; a folder without a sweep means its contents.

    A file that cannot be read is absent; it is an error where the user named it.
    """
    # A file named by two paths is one run: it must not be averaged with itself.
    found = {inner.resolve(): inner for path in paths for inner in _inside(path)}
    trials: list[Trial] = []
    absent: list[Absent] = []
    sweeps: list[Sweep] = []
    for path in found.values():
        if path.is_dir():
            sweep = open_sweep(path, progress)
            sweeps.append(sweep)
            absent += _absent(sweep)
            source = path.resolve().name
            for result in sweep.results:
                if sweep.transport == SIMULATOR:  # then it has no verdict
                    trials.append(Trial(result, SIMULATOR, source))
                else:
                    trials.append(_trial(result, source))
            continue
        progress(1)
        try:
            trials.append(_trial(read_result(path), path.stem))
        except UserError as error:
            if path in paths:
                raise
            absent.append(Absent(str(path), "", "unreadable", str(error)))
    once: dict[Path, Trial] = {}
    for trial in trials:
        once.setdefault(trial.result.path.resolve(), trial)
    return Sources(tuple(_with_remarks(list(once.values()))), tuple(absent), tuple(sweeps))


def _inside(path: Path) -> list[Path]:
    if not path.is_dir() or (path / SWEEP_FILE).is_file():
        return [path]
    inner = [*sorted(path.glob("*.h5")), *sorted(file.parent for file in path.glob(f"*/{SWEEP_FILE}"))]
    if not inner:
        raise RunFileError(f"{path}: holds no run file (.h5) and no sweep; give run files, or the folder of a sweep")
    return inner


def _trial(result: Result, source: str) -> Trial:
    with open_run(result.path) as run:
        trial = Trial(result, run.provenance.transport, source)
        if run.diagnosis is not None:
            trial = replace(trial, verdict=run.diagnosis.verdict)
        return trial


# ------------------------------------------------------------------------------------------------ absent runs


def _absent(sweep: Sweep) -> Iterator[Absent]:
    """The runs of a sweep without a result, in the order of the plan."""
    # What the sweep says of a failed run is better than what its file shows.
    failures = {failure.file: failure.reason for failure in sweep.failures}
    for member in sweep.missing:
        path = sweep.folder / member.file
        experiment = member.experiment
        if experiment is None:
            settings = ", ".join(f"{key} = {value}" for key, value in member.settings)
            yield Absent(str(path), f"{settings}, seed {member.seed}", "invalid", member.error)
            continue
        method = experiment.method
        rates = experiment.rates.describe()
        what = f"{method_label(method.name)}, α = {method.step_size:g}, {rates}, seed {experiment.seed}"
        if member.file in failures:
            yield Absent(str(path), what, "failed", failures[member.file])
        elif not path.exists():
            yield Absent(str(path), what, "missing", "it has not been run; `areabench sweep` runs it")
        else:
            try:
                with open_run(path) as run:
                    state = run.status.state.text
                    reason = run.status.reason or "it has not ended"
                    if not run.is_evaluated:
                        state = "not evaluated"
                        reason = "its evaluation failed; `areabench evaluate` tries again"
                yield Absent(str(path), what, state, reason)
            except UserError as error:
                yield Absent(str(path), what, "unreadable", str(error))


# ---------------------------------------------------------------------------------------------------- remarks


def _with_remarks(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Trials with remarks, so that only repetitions with other seeds are averaged."""
    # Virtual and real time, sources and unfinished runs are kept apart: a mean over them says nothing.
    several = len({trial.transport for trial in trials}) > 1
    seen = Counter((_without_name(trial.result.experiment), trial.transport) for trial in trials)
    twice = {without_seed(experiment) for (experiment, _), count in seen.items() if count > 1}
    for trial in trials:
        state = trial.result.status.state
        words = []
        if several:
            words.append(trial.transport)
        if without_seed(trial.result.experiment) in twice:
            words.append(trial.source)
        if not trial.result.is_done:
            why = state.text
            if state in ENDED:
                why = "not evaluated"
            words.append(f"{why}, seed {trial.result.experiment.seed}")
        yield replace(trial, remark=", ".join(words))
