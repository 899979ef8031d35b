"""Reading the folder of a sweep (`open_sweep`): its plan, what is done, what is missing, and what failed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from areabench.errors import RunFileError, UserError
from areabench.experiment.files import base_folder
from areabench.experiment.labels import flatten
from areabench.files import check_checksum, with_checksum
from areabench.runfile.export import Columns, columns_of, inside, write_columns
from areabench.runfile.read import frame_of
from areabench.settings.parse import Location
from areabench.settings.toml import block, read_text, read_toml
from areabench.sweeps.choose import TunedChoice, choose_settings, read_choice, write_choice
from areabench.sweeps.file import SweepFile, anchored_sweep, check_sweep
from areabench.sweeps.plan import Member, SweepPlan, expand
from areabench.sweeps.result import Result, read_ended
from areabench.sweeps.tune import Tune

if TYPE_CHECKING:
    import pandas as pd


SWEEP_FILE = "sweep.toml"
FAILURES = "failures"  # .csv; each share of a sweep has a list of its own, such as failures-1-of-3.csv
FAILURE_COLUMNS = ("file", "reason", "crc32")


@dataclass(frozen=True)
class Failure:
    """A run that failed: the file it would have, and the reason in one line."""

    file: str
    reason: str

    @property
    def row(self) -> list[str]:
        """A line of the list of failures, with its checksum."""
        return [self.file, self.reason, f"{crc32(f'{self.file},{self.reason}'.encode()):08x}"]


@dataclass(frozen=True)
class Tuning:
    """What was tuned and chosen in a sweep, for readers of its tables."""

    tune: Tune
    plan: SweepPlan  # of the tuning runs
    folder: Path
    choice: TunedChoice | None  # None: nothing is chosen yet, because some of them are missing

    @property
    def keys(self) -> tuple[str, ...]:
        """The tuned keys."""
        return tuple(one.key for one in self.tune.keys)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said about the choice."""
        if self.choice is None:
            return ()
        return self.choice.notes

    @property
    def sentence(self) -> str:
        """What the tables show, in words."""
        tune = self.tune
        seeds = f"seed {tune.seed}"
        if tune.trials > 1:
            seeds = f"seeds {tune.seed} to {tune.seeds[-1]}"
        return (
            f"of each method the setting with the {tune.words}, of at most {tune.budget} tried "
            f"({tune.search} search over {', '.join(self.keys)}) on {seeds}; shown on other seeds"
        )

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """The tuning runs that are done; they are read now."""
        return tuple(_read_members(self.folder, self.plan)[0])


@dataclass(frozen=True)
class Sweep:
    """The folder of a sweep, read: what is done, what is missing and what failed."""

    plan: SweepPlan
    results: tuple[Result, ...]  # those done, in the order of the plan
    missing: tuple[Member, ...]
    failures: tuple[Failure, ...]
    folder: Path = Path()
    transport: str = "simulator"
    tuning: Tuning | None = None  # where settings were chosen; plan and results are those of the test seeds then

    @property
    def tuned_keys(self) -> tuple[str, ...]:
        """Keys in which the runs of one method may differ because each has its best value."""
        if self.tuning is None:
            return ()
        return self.tuning.keys

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per run that is done: the keys of the grid, the seed and the end, as a pandas frame."""
        return frame_of(self._rows)

    @property
    def _rows(self) -> list[dict[str, object]]:
        keys = dict.fromkeys(key for member in self.plan.members for key, _ in member.settings)
        rows = []
        for result in self.results:
            given = dict(flatten(result.experiment))
            end = {
                "seed": result.experiment.seed,
                "method": result.experiment.method.name,
                "step_size": result.experiment.method.step_size,
                "state": result.status.state.text,
                "end_s": result.status.end_s,
                "updates": result.status.updates,
                "final_loss": result.final_loss,
                "final_accuracy": result.final_accuracy,
                "time_to_80_s": result.time_to_accuracy(80.0),
                "file": result.path.name,
            }
            # None where the run's variant of the section has no such key
            rows.append({key: given.get(key) for key in keys} | end)
        return rows

    def columns(self) -> dict[str, Columns]:
        """Two tables by column: `runs`, as `frame`, and `metrics`, one row per snapshot of each run."""
        metrics: dict[str, list[Any]] = {}
        for result in self.results:
            method = result.experiment.method
            about = {
                "file": result.path.name,
                "method": method.name,
                "step_size": method.step_size,
                "seed": result.experiment.seed,
            }
            for name, value in about.items():
                metrics.setdefault(name, []).extend([value] * len(result.time_s))
            for name in ("time_s", "updates", "server_steps", "train_loss", "test_accuracy"):
                metrics.setdefault(name, []).extend(getattr(result, name).tolist())
        return {"runs": columns_of(self._rows), "metrics": metrics}

    def to_parquet(self, folder: str | Path | None = None, *, force: bool = False) -> list[Path]:
        """Write `columns` as Parquet files into a folder, or into `export` in the sweep's own; the paths."""
        chosen = inside(self.folder) if folder is None else Path(folder)
        return write_columns(self.columns(), chosen, "parquet", force=force)


def open_sweep(folder: str | Path, progress: Callable[[int], object] | None = None) -> Sweep:
    """Read the folder of a sweep; run files that do not belong to its sweep.toml are ignored.

    `progress` is called with the number of runs before each is read.
    """
    folder = Path(folder)
    stored = read_stored(folder)
    plan = SweepPlan(stored.name, stored.file, expand(stored.file))
    tuning = None
    if plan.file.tune is not None:
        tuning = Tuning(plan.file.tune, plan, folder, read_choice(folder, plan))
        if tuning.choice is not None:
            plan = tuning.choice.tested(plan)
    results, missing = _read_members(folder, plan, progress)
    if tuning is not None and tuning.choice is None:  # there is nothing to show yet
        results = []
        missing = _to_be_run(missing)
    awaited = {member.file for member in missing}
    return Sweep(
        plan=plan,
        results=tuple(results),
        missing=tuple(missing),
        failures=tuple(failure for failure in read_failures(folder) if failure.file in awaited),
        folder=folder,
        transport=stored.transport,
        tuning=tuning,
    )


def _read_members(
    folder: Path, plan: SweepPlan, progress: Callable[[int], object] | None = None
) -> tuple[list[Result], list[Member]]:
    """The results of a plan's runs, and the members without one."""
    results = []
    missing = []
    for member in plan.members:
        if progress is not None:
            progress(len(plan.members))
        found = None if member.experiment is None else read_ended(folder / member.file, member.experiment)
        if found is None:
            missing.append(member)
        else:
            results.append(found)
    return results, missing


def _to_be_run(members: Sequence[Member]) -> list[Member]:
    """Those of which something can come: a setting that makes no experiment is out, as one that diverges is."""
    return [member for member in members if member.experiment is not None]


def with_tests(plan: SweepPlan, folder: Path) -> SweepPlan | None:
    """The plan of a tuned sweep with its test runs; None where nothing is chosen yet."""
    choice = read_choice(folder, plan)
    return None if choice is None else choice.tested(plan)


def make_choice(plan: SweepPlan, folder: Path) -> None:
    """Choose from the tuning runs of a sweep, and write it down; nothing where one of them is not done."""
    results, missing = _read_members(folder, replace(plan, members=expand(plan.file)))
    if not _to_be_run(missing):
        write_choice(folder, plan, choose_settings(plan.file, {one.path.name: one for one in results}))


def open_finished(folders: Sequence[Path]) -> list[Sweep]:
    """Read the folders of some sweeps; at least one run must be done in each."""
    sweeps = [open_sweep(folder) for folder in folders]
    for sweep in sweeps:
        if not sweep.results:
            if sweep.tuning is not None and sweep.tuning.choice is None:
                raise UserError(
                    f"{sweep.folder}: {len(sweep.missing):,} tuning runs are missing or have failed, so nothing "
                    "is chosen yet; run `areabench sweep` again"
                )
            failures = sweep.failures
            reason = f" ({len(failures):,} failed, the first: {failures[0].reason})" if failures else ""
            raise UserError(
                f"{sweep.folder}: 0 of {len(sweep.plan.members):,} planned runs done{reason}; "
                "run `areabench sweep` first"
            )
    return sweeps


@dataclass(frozen=True)
class StoredSweep:
    """What sweep.toml says: the sweep as it was written, not expanded, and what the folder is."""

    name: str
    transport: str
    file: SweepFile


def stored_text(plan: SweepPlan, transport: str, folder: Path) -> str:
    """The content of sweep.toml: the sweep, and what the folder is."""
    about = {"name": plan.name, "transport": transport}
    origins = (base_folder(member.experiment) for member in plan.members if member.experiment is not None)
    if origin := next(filter(None, origins), ""):
        about["paths_from"] = os.path.relpath(origin, folder.absolute())
    return with_checksum(f"{plan.file.text()}\n[folder]\n{block(about)}")


def read_stored(folder: Path) -> StoredSweep:
    """Read sweep.toml."""
    path = folder / SWEEP_FILE
    if not path.is_file():
        raise RunFileError(f"{folder}: has no {SWEEP_FILE}; give the folder of a sweep, see `areabench sweep --help`")
    text = read_text(path)
    table = read_toml(text, str(path))
    about = table.pop("folder", None)
    if not isinstance(about, dict) or not all(isinstance(about.get(key), str) for key in ("name", "transport")):
        raise RunFileError(f"{path}: does not say which sweep it is; remove it and run the sweep again")
    check_checksum(path, text)
    table = anchored_sweep(table, Path(os.path.normpath(folder / str(about.get("paths_from", "")))), with_modules=False)
    return StoredSweep(about["name"], about["transport"], check_sweep(table, Location(str(path))))


def read_failures(folder: Path) -> list[Failure]:
    """The failures that the sweep and its shares list; each run once, with the reason that was written last."""
    found = {}
    paths = [*folder.glob(f"{FAILURES}.csv"), *folder.glob(f"{FAILURES}-*-of-*.csv")]
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
        try:
            with path.open(encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file)
            if header != list(FAILURE_COLUMNS):
                raise ValueError(f"its columns are {','.join(header)}")
            for row in rows:
                failure = Failure(row[0], row[1])
                # The list names files that a reader would open, so a damaged line is not guessed at.
                if row != failure.row:
                    raise ValueError("a line does not have its checksum")
                found[failure.file] = failure
        except (OSError, ValueError, IndexError, csv.Error) as error:
            told = f"is not a list of failures: {error}; remove it or run the sweep again"
            raise RunFileError(f"{path}: {told}") from error
    return list(found.values())
