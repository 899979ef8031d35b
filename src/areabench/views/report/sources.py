"""From the paths on the command line to runs: files, folders of them, folders of sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from areabench.engine.events import ENDED
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.labels import method_label
from areabench.runfile.read import open_run
from areabench.sweeps.plan import Member
from areabench.sweeps.read import SWEEP_FILE, Result, Sweep, open_sweep, read_result
from areabench.views.report.records import Absent

SIMULATOR = "simulator"
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

    @property
    def planned(self) -> Counter[tuple[Path, Experiment]]:
        """How many runs the sweeps ask for, by folder and experiment without its seed."""
        asked = [(sweep.folder, member.experiment) for sweep in self.sweeps for member in sweep.plan.members]
        return Counter((folder, without_seed(experiment)) for folder, experiment in asked if experiment is not None)


def without_seed(experiment: Experiment) -> Experiment:
    """What the trials of a point share."""
    return replace(_without_name(experiment), seed=0)


def _without_name(experiment: Experiment) -> Experiment:
    """Without the name, the folders of modules and what is recorded, which change nothing in a run."""
    return replace(experiment, name="", module_folders=None, record=Record())


def gather(paths: Sequence[Path], progress: Progress) -> Sources:
    """Read every path once, even if it is named twice."""
    parts = [_read(path, progress, named=path in paths) for path in _distinct(paths)]
    trials: dict[Path, Trial] = {}
    for trial in (trial for part in parts for trial in part.trials):
        trials.setdefault(trial.result.path.resolve(), trial)
    absent = tuple(entry for part in parts for entry in part.absent)
    sweeps = tuple(sweep for part in parts for sweep in part.sweeps)
    return Sources(tuple(_with_remarks(list(trials.values()))), absent, sweeps)


def _distinct(paths: Sequence[Path]) -> list[Path]:
    """Files and folders of sweeps, each once; a folder without sweep means its contents."""
    found = [inner for path in paths for inner in _inside(path)]
    return list({path.resolve(): path for path in found}.values())


def _inside(path: Path) -> list[Path]:
    if not path.is_dir() or (path / SWEEP_FILE).is_file():
        return [path]
    inner = [*sorted(path.glob("*.h5")), *sorted(file.parent for file in path.glob(f"*/{SWEEP_FILE}"))]
    if not inner:
        raise RunFileError(f"{path}: holds no run file (.h5) and no sweep; give run files, or the folder of a sweep")
    return inner


def _read(path: Path, progress: Progress, *, named: bool) -> Sources:
    """One file or sweep. A file that cannot be read is absent; it is an error where the user named it."""
    if path.is_dir():
        return _read_sweep(path, progress)
    progress(1)
    try:
        return Sources((_read_run(path),), ())
    except UserError as error:
        if named:
            raise
        return Sources((), (Absent(str(path), "", "unreadable", str(error)),))


def _read_run(path: Path) -> Trial:
    with open_run(path) as run:
        verdict = run.diagnosis.verdict if run.diagnosis is not None else ""
        transport = run.provenance.transport
    return Trial(read_result(path), transport, path.stem, verdict)


def _read_sweep(folder: Path, progress: Progress) -> Sources:
    sweep = open_sweep(folder, progress)
    name = folder.resolve().name
    has_verdict = sweep.transport != SIMULATOR
    trials = [
        Trial(result, sweep.transport, name, _verdict(result.path) if has_verdict else "") for result in sweep.results
    ]
    return Sources(tuple(trials), tuple(_absent(sweep)), (sweep,))


def _verdict(path: Path) -> str:
    with open_run(path) as run:
        return run.diagnosis.verdict if run.diagnosis is not None else ""


# ------------------------------------------------------------------------------------------------ absent runs


def _absent(sweep: Sweep) -> Iterator[Absent]:
    """The runs of a sweep without a result, in the order of the plan."""
    failures = {failure.file: failure.reason for failure in sweep.failures}
    for member in sweep.missing:
        state, reason = _why(member, sweep.folder / member.file, failures.get(member.file))
        yield Absent(str(sweep.folder / member.file), _what(member), state, reason)


def _why(member: Member, path: Path, failure: str | None) -> tuple[str, str]:
    """The state in a word, and the reason in a sentence."""
    if member.experiment is None:
        return "invalid", member.error
    if failure is not None:
        return "failed", failure
    if not path.exists():
        return "missing", "it has not been run; `areabench sweep` runs it"
    try:
        with open_run(path) as run:
            if not run.is_evaluated:
                return "not evaluated", "its evaluation failed; `areabench evaluate` tries again"
            return run.status.state.text, run.status.reason or "it has not ended"
    except UserError as error:
        return "unreadable", str(error)


def _what(member: Member) -> str:
    experiment = member.experiment
    if experiment is None:
        return ", ".join(f"{key} = {value}" for key, value in member.settings) + f", seed {member.seed}"
    method = experiment.method
    rates = experiment.rates.describe()
    return f"{method_label(method.name)}, α = {method.step_size:g}, {rates}, seed {experiment.seed}"


# ---------------------------------------------------------------------------------------------------- remarks


def _with_remarks(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Trials with remarks, so that only repetitions with other seeds are averaged."""
    several = len({trial.transport for trial in trials}) > 1
    seen = Counter((_without_name(trial.result.experiment), trial.transport) for trial in trials)
    twice = {without_seed(experiment) for (experiment, _), count in seen.items() if count > 1}
    for trial in trials:
        state = trial.result.status.state
        words = [trial.transport] if several else []
        words += [trial.source] if without_seed(trial.result.experiment) in twice else []
        if not trial.result.is_done:
            why = "not evaluated" if state in ENDED else state.text
            words.append(f"{why}, seed {trial.result.experiment.seed}")
        yield replace(trial, remark=", ".join(words))
