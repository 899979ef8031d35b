"""Sweeps: grids over any keys of an experiment, times trials (`load_sweep`); the folder of one, read (`open_sweep`)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.errors import RunFileError
from areabench.experiment import Experiment
from areabench.place import Place
from areabench.sweeps.file import SweepFile, check_sweep
from areabench.sweeps.plan import Member, SweepPlan, expand, load_sweep
from areabench.sweeps.results import Result, read_ended
from areabench.toml_reading import read_text, read_toml
from areabench.toml_text import literal

if TYPE_CHECKING:
    import pandas as pd

    from areabench.tables.retention import RuleName

__all__ = ["Failure", "Member", "Sweep", "SweepPlan", "load_sweep", "open_sweep"]

SWEEP_FILE = "sweep.toml"
FAILURES = "failures"  # .csv; each share of a sweep has a list of its own, such as failures-1-of-3.csv
FAILURE_COLUMNS = ("file", "reason")


@dataclass(frozen=True)
class Failure:
    """A run that failed: the file it would have, and the reason in one line."""

    file: str
    reason: str


@dataclass(frozen=True)
class Sweep:
    """The folder of a sweep, read: what is done, what is missing and what failed."""

    plan: SweepPlan
    results: tuple[Result, ...]  # those done, in the order of the plan
    missing: tuple[Member, ...]
    failures: tuple[Failure, ...]
    folder: Path = Path()
    transport: str = "simulator"

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row a run that is done: the keys of the grid, the seed and the end, as a pandas frame."""
        import pandas as pd  # slow to import; only notebooks need it

        keys = dict.fromkeys(key for member in self.plan.members for key, _ in member.settings)
        return pd.DataFrame([_row(result, keys) for result in self.results])

    def table(self, keep: RuleName = "published", target: float = 80.0) -> pd.DataFrame:
        """What `areabench table` shows, every number in full, beside the paper's: a row a method, rates and step size.

        `keep` says of which step sizes (docs/tables.md), `target` is the test accuracy of the time to it, in percent.
        """
        import io

        import pandas as pd

        from areabench.tables.build import build_tables
        from areabench.tables.comma import to_csv
        from areabench.tables.retention import named_rule

        planned = [member.experiment for member in self.plan.members if member.experiment is not None]
        tables = build_tables(planned, self.results, named_rule(keep, target=target), target)
        return pd.read_csv(io.StringIO(to_csv([(self.plan.name, table) for table in tables], with_paper=True)))


def open_sweep(folder: str | Path, progress: Callable[[int], object] | None = None) -> Sweep:
    """Read the folder of a sweep; run files that do not belong to its sweep.toml are passed over.

    `progress` is told the number of runs before each is read.
    """
    folder = Path(folder)
    stored = read_stored(folder)
    plan = stored.plan()
    found = []
    for member in plan.members:
        if progress is not None:
            progress(len(plan.members))
        experiment = member.experiment
        found.append((member, None if experiment is None else read_ended(folder / member.file, experiment)))
    missing = tuple(member for member, result in found if result is None)
    awaited = {member.file for member in missing}
    return Sweep(
        plan=plan,
        results=tuple(result for _, result in found if result is not None),
        missing=missing,
        failures=tuple(failure for failure in _all_failures(folder) if failure.file in awaited),
        folder=folder,
        transport=stored.transport,
    )


@dataclass(frozen=True)
class StoredSweep:
    """What sweep.toml says: the sweep as it was written, not expanded, and what the folder is."""

    name: str
    transport: str
    file: SweepFile

    def plan(self) -> SweepPlan:
        """The sweep expanded again."""
        return SweepPlan(self.name, self.file.title, tuple(expand(self.file)), self.file.text())


def stored_text(plan: SweepPlan, transport: str) -> str:
    """The content of sweep.toml: the sweep, and what the folder is."""
    return f"{plan.text}\n[folder]\nname = {literal(plan.name)}\ntransport = {literal(transport)}\n"


def read_stored(folder: Path) -> StoredSweep:
    """Read sweep.toml."""
    path = folder / SWEEP_FILE
    if not path.is_file():
        raise RunFileError(f"{folder}: has no {SWEEP_FILE}; give the folder of a sweep, see `areabench sweep --help`")
    table = read_toml(read_text(path), str(path))
    about = table.pop("folder", None)
    if not isinstance(about, dict) or not all(isinstance(about.get(key), str) for key in ("name", "transport")):
        raise RunFileError(f"{path}: does not say which sweep it is; remove it and run the sweep again")
    return StoredSweep(about["name"], about["transport"], check_sweep(table, Place(str(path))))


def _all_failures(folder: Path) -> list[Failure]:
    """What the sweep and its shares have listed; a run once, with the reason that was written last."""
    paths = [*folder.glob(f"{FAILURES}.csv"), *folder.glob(f"{FAILURES}-*-of-*.csv")]
    listed = [each for path in sorted(paths, key=_written_ns) for each in _read_failures(path)]
    return list({failure.file: failure for failure in listed}.values())


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


def _read_failures(path: Path) -> list[Failure]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
            if header != list(FAILURE_COLUMNS):
                raise ValueError(f"its columns are {','.join(header)}")
            return [Failure(name, reason) for name, reason in rows]
    except (OSError, ValueError, csv.Error) as error:  # a ValueError also where a line has too many or few columns
        raise RunFileError(f"{path}: is no list of failures: {error}; remove it or run the sweep again") from error


def _row(result: Result, keys: Iterable[str]) -> dict[str, object]:
    """One row of the frame."""
    experiment, method = result.experiment, result.experiment.method
    return {key: _value(experiment, key) for key in keys} | {
        "seed": experiment.seed,
        "method": method.name,
        "step_size": method.step_size,
        "state": result.status.state.text,
        "end_s": result.status.end_s,
        "updates": result.status.updates,
        "final_loss": result.final_loss,
        "final_accuracy": result.final_accuracy,
        "time_to_80_s": result.time_to_accuracy(80.0),
        "file": result.path.name,
    }


def _value(experiment: Experiment, key: str) -> object:
    """What an experiment has under a dotted key; None where its variant of the section has no such key."""
    value: object = experiment
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
