"""From a sweep file to its runs: every point of every grid, times trials.

The seeds of the trials are the same for every point of the grid, so methods and step sizes are compared on the same
split, rates, delays, mini-batches and starting point.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from areabench.errors import ConfigError, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.files import written_text
from areabench.experiment.parse import check_trace, checked_experiment
from areabench.kernels import Bits
from areabench.settings.keys import slug
from areabench.settings.paths import as_written
from areabench.settings.toml import literal
from areabench.sweeps.file import SEEDS, Axis, SweepFile, Table, merged, read_sweep_file
from areabench.sweeps.tune import Setting

_DIGEST_DIGITS = 10


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    settings: tuple[tuple[str, object], ...]  # what the grid sets: dotted keys and values; a section key by key
    seed: int
    experiment: Experiment | None  # None where the settings make no experiment
    error: str  # why there is none
    file: str  # name of the run file in the sweep's folder


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a sweep; of a tuned one the tuning runs, or those that test what they have chosen."""

    name: str
    file: SweepFile
    members: tuple[Member, ...]

    @property
    def title(self) -> str:
        """What its tables and figures are called."""
        return self.file.title or self.name

    @property
    def is_tuned(self) -> bool:
        """Whether settings are chosen before the runs that are shown."""
        return self.file.tune is not None

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments of the members whose settings are valid, in their order."""
        return [member.experiment for member in self.members if member.experiment is not None]


def load_sweep(path: Path, overrides: Sequence[str] = (), trials: int | None = None) -> SweepPlan:
    """Read, override (`section.key=value`, number of trials) and expand a sweep file, or an experiment file."""
    return plan_sweep(read_sweep_file(path, overrides, trials), path.stem)


def plan_sweep(file: SweepFile, name: str) -> SweepPlan:
    """Expand a sweep; an error where none of its runs can be made."""
    plan = SweepPlan(name, file, tuple(checked(expand(file), _trace, check_trace)))
    if not plan.experiments:  # the file itself is wrong, and the first error says where
        raise ConfigError(plan.members[0].error)
    if file.tune is not None and file.tune.metric != "loss":
        place = file.place.inner("tune").inner("metric")
        for experiment in plan.experiments:
            if not experiment.problem.has_accuracy:
                name = experiment.problem.name
                raise place.error(f'the problem {name} has no accuracy to choose by; write metric = "loss"')
            if file.tune.metric == "time" and experiment.record.snapshots == "none":
                raise place.error(
                    'no time to a target is known where record.snapshots = "none"; write metric = "accuracy"'
                )
    return plan


# ---------------------------------------------------------------------------------------------------- expanding


def expand(file: SweepFile) -> tuple[Member, ...]:
    """Every run once, trials innermost; of a tuned sweep the tuning runs, since the test runs depend on them."""
    if file.tune is not None:
        groups = candidates_of(file)
        return tuple(member for group in groups for point in group.points for member in group.tuning_runs(point))
    members: dict[str, Member] = {}
    for axes in _grid_points(file):
        for member in _trials(file, axes):
            # Grids may overlap; the name of a run's file tells what it is.
            members.setdefault(member.file, member)
    return tuple(members.values())


def _grid_points(file: SweepFile) -> Iterator[list[Axis]]:
    for grid in file.grids:
        for values in product(*(axis.values for axis in grid)):
            yield [Axis(axis.key, (value,)) for axis, value in zip(grid, values, strict=True)]


@dataclass(frozen=True)
class Candidates:
    """A point of the grids of a tuned sweep, and the settings that are tried at it."""

    file: SweepFile
    axes: tuple[Axis, ...]  # of the point
    method: str
    points: tuple[Setting, ...]

    def tuning_runs(self, point: Setting) -> list[Member]:
        """The trials of one of the settings on which the choice is made."""
        tune = self.file.tune
        assert tune is not None
        file = replace(self.file, base={**self.file.base, "seed": tune.seed}, trials=tune.trials)
        return list(_trials(file, self._axes_at(point)))

    def test_runs(self, point: Setting) -> list[Member]:
        """The trials of one of the settings that are shown."""
        return list(_trials(self.file, self._axes_at(point)))

    def _axes_at(self, point: Setting) -> list[Axis]:
        return [*self.axes, *(Axis(key, (value,)) for key, value in point)]


def candidates_of(file: SweepFile) -> list[Candidates]:
    """What a tuned sweep tries, by point of the grids; equal points once."""
    assert file.tune is not None
    found: dict[str, Candidates] = {}
    for axes in _grid_points(file):
        table = merged(file.base, _nested(axes))
        method = _name_in(table, "method", "")
        points = file.tune.points(method, _name_in(table, "aggregation", "updates"))
        # Grids may overlap: a point is tuned once.
        found.setdefault(literal(table), Candidates(file, tuple(axes), method, tuple(points)))
    return list(found.values())


def _name_in(table: Table, section: str, default: str) -> str:
    """The part that a section names; a section of another shape is refused with its experiment."""
    entries = table.get(section)
    return str(entries.get("name", default)) if isinstance(entries, dict) else default


def expected_tests(file: SweepFile) -> list[Member]:
    """As many runs as the test of a tuned sweep has, with the first setting that is tried in place of the best."""
    return [member for group in candidates_of(file) for member in group.test_runs(group.points[0])]


def _trials(file: SweepFile, point: Sequence[Axis]) -> Iterator[Member]:
    """The trials of one point of a grid; their experiments differ in the seed only."""
    table = merged(file.base, _nested(point))
    settings = tuple(setting for axis in point for setting in _flat(axis.key, axis.values[0]))
    try:
        first = checked_experiment(table, file.place)
    except UserError as error:
        yield from (_invalid(settings, table, trial, str(error)) for trial in range(file.trials))
        return
    # Reading the tables takes longer than changing the seed.
    for trial in range(file.trials):
        experiment = replace(first, seed=first.seed + trial)
        yield Member(settings, experiment.seed, experiment, "", run_file_name(experiment))


def run_file_name(experiment: Experiment) -> str:
    """What the run file of an experiment is called in a sweep's folder: readable, and different for different runs."""
    method = experiment.method
    return f"{slug(method.name)}-{method.step_size:g}-{experiment.seed}-{_digest(written_text(experiment))}.h5"


def _invalid(settings: tuple[tuple[str, object], ...], table: Table, trial: int, error: str) -> Member:
    """A member without experiment; its name is made of what is known."""
    name = re.sub(r"[^A-Za-z0-9-]", "_", _name_in(table, "method", "invalid"))[:40]
    given = table.get("seed", 0)
    seed = trial
    if type(given) is int and abs(given) <= SEEDS:
        seed += given
    # The given seed may be no number at all, so it is in the digest as it was written.
    digest = _digest(literal(as_written({**table, "seed": (given, trial)})))
    return Member(settings, seed, None, error, f"{name}-invalid-{seed}-{digest}.h5")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def _nested(point: Sequence[Axis]) -> Table:
    """Dotted keys as tables."""
    tables: Table = {}
    for axis in point:
        *sections, key = axis.key.split(".")
        table = tables
        for section in sections:
            table = table.setdefault(section, {})
        table[key] = axis.values[0]
    return tables


def _flat(key: str, value: Any) -> Iterator[tuple[str, object]]:
    """A setting, or those of a whole section."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _flat(f"{key}.{name}", entry)
    else:
        if isinstance(value, list):
            value = tuple(value)
        yield key, value


def checked(
    members: Iterable[Member], subject: Callable[[Experiment], object], check: Callable[[Experiment], object]
) -> Iterator[Member]:
    """The members; without experiment where `check` refuses it. It is called once for each `subject` except None."""
    errors: dict[object, str] = {None: ""}
    for member in members:
        if member.experiment is None:
            yield member
            continue
        key = subject(member.experiment)
        if key not in errors:
            try:
                check(member.experiment)
                errors[key] = ""
            except UserError as error:
                errors[key] = str(error)
        if errors[key]:
            member = replace(member, experiment=None, error=errors[key])
        yield member


def bits_of(plans: Sequence[SweepPlan]) -> Bits:
    """The key `bits` of all runs, which the same processes make."""
    found = {experiment.bits for plan in plans for experiment in plan.experiments}
    if len(found) > 1:
        raise UserError("bits: some runs are to have native bits, others portable ones; give them to two sweeps")
    return found.pop() if found else "native"


def _trace(experiment: Experiment) -> object:
    """What the delays are read from, and for how many clients; None where they are drawn."""
    source = experiment.delays.source
    return source and (source, experiment.clients.count)


# ---------------------------------------------------------------------------------------------------- shares


@dataclass(frozen=True)
class Share:
    """Every `of`-th run of a sweep, beginning with run `number`, from 1 on in the order of the plan; 1 of 1 is all."""

    number: int = 1
    of: int = 1

    @property
    def whole(self) -> bool:
        """Whether it is the whole sweep."""
        return self.of == 1

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.number}/{self.of}"

    @property
    def suffix(self) -> str:
        """What the names of its own files in the folder end in; nothing for the whole sweep."""
        if self.whole:
            return ""
        return f"-{self.number}-of-{self.of}"

    def taken_from(self, plan: SweepPlan) -> SweepPlan:
        """The plan with the runs of this share only; its text stays that of the whole sweep."""
        return replace(plan, members=plan.members[self.number - 1 :: self.of])


def read_share(text: str) -> Share:
    """A share as it is typed: K/N."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--share {text}: is not K/N with 1 <= K <= N; the shares of three are 1/3, 2/3 and 3/3")
    return Share(int(match[1]), int(match[2]))
