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
from areabench.experiment.parse import check_trace, checked_experiment
from areabench.kernels import Bits
from areabench.settings.keys import slug
from areabench.settings.parse import Location, to_toml
from areabench.settings.toml import literal
from areabench.sweeps.file import SEEDS, Axis, SweepFile, Table, merged, read_sweep_file
from areabench.sweeps.tune import Metric

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
    """All runs of a sweep."""

    name: str
    title: str
    members: tuple[Member, ...]
    text: str  # the sweep as one TOML file
    file: SweepFile | None = None  # where the sweep is tuned: its members are the tuning runs, or the test runs

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments of the members whose settings are valid, in their order."""
        return [member.experiment for member in self.members if member.experiment is not None]


def load_sweep(path: Path, overrides: Sequence[str] = (), trials: int | None = None) -> SweepPlan:
    """Read, override (`section.key=value`, number of trials) and expand a sweep file, or an experiment file."""
    return plan_sweep(read_sweep_file(path, overrides, trials), path.stem)


def plan_sweep(file: SweepFile, name: str) -> SweepPlan:
    """Expand a sweep; an error where none of its runs can be made."""
    members = tuple(checked(expand(file), _trace, check_trace))
    if all(member.experiment is None for member in members):  # the file itself is wrong, and the first error says where
        raise ConfigError(members[0].error)
    plan = SweepPlan(name, file.title, members, file.text(), file if file.tune is not None else None)
    if file.tune is not None:
        _check_metric(file.place.inner("tune").inner("metric"), file.tune.metric, plan.experiments)
    return plan


def _check_metric(place: Location, metric: Metric, experiments: Sequence[Experiment]) -> None:
    """Refuse a metric that the tuning runs will not have, before they are made."""
    for experiment in experiments if metric != "loss" else ():
        if not experiment.problem.has_accuracy:
            raise place.error(
                f'the problem {experiment.problem.name} has no accuracy to choose by; write metric = "loss"'
            )
        if metric == "time" and experiment.record.snapshots == "none":
            raise place.error('no time to a target is known where record.snapshots = "none"; write metric = "accuracy"')


# ---------------------------------------------------------------------------------------------------- expanding


def expand(file: SweepFile) -> tuple[Member, ...]:
    """Every run once, trials innermost; of a tuned sweep the tuning runs, since the test runs depend on them."""
    if file.tune is None:
        members: dict[str, Member] = {}
        for point in _grid_points(file):
            for member in _trials(file, point):
                members.setdefault(member.file, member)
        return tuple(members.values())
    return tuple(
        member
        for group in candidates_of(file)
        for point in group.points
        for member in members_at(file, group, point, file.tune.seeds)
    )


def _grid_points(file: SweepFile) -> Iterator[list[Axis]]:
    for grid in file.grids:
        for values in product(*(axis.values for axis in grid)):
            yield [Axis(axis.key, (value,)) for axis, value in zip(grid, values, strict=True)]


@dataclass(frozen=True)
class Candidates:
    """A point of the grids and the settings that are tried at it."""

    point: tuple[Axis, ...]
    method: str
    points: tuple[tuple[tuple[str, Any], ...], ...]  # keys and values


def candidates_of(file: SweepFile) -> list[Candidates]:
    """What a tuned sweep tries, by point of the grids; equal points once."""
    assert file.tune is not None
    found: dict[str, Candidates] = {}
    for point in _grid_points(file):
        table = merged(file.base, _nested(point))
        method, aggregation = (table.get(section, {}) for section in ("method", "aggregation"))
        name = str(method.get("name", "")) if isinstance(method, dict) else ""
        stepping = str(aggregation.get("name", "updates")) if isinstance(aggregation, dict) else "updates"
        group = Candidates(tuple(point), name, tuple(file.tune.points(name, stepping)))
        found.setdefault(literal(table), group)
    return list(found.values())


def members_at(
    file: SweepFile, group: Candidates, point: Sequence[tuple[str, Any]], seeds: Sequence[int] | None
) -> list[Member]:
    """The trials of one of the settings that are tried, with these seeds or those of the test."""
    axes = [*group.point, *(Axis(key, (value,)) for key, value in point)]
    if seeds is None:
        return list(_trials(file, axes))
    tuning = replace(file, base={**file.base, "seed": seeds[0]}, trials=len(seeds))
    return list(_trials(tuning, axes))


def expected_tests(file: SweepFile) -> list[Member]:
    """As many runs as the test of a tuned sweep has, with the first setting that is tried in place of the best."""
    return [member for group in candidates_of(file) for member in members_at(file, group, group.points[0], None)]


def _trials(file: SweepFile, point: Sequence[Axis]) -> Iterator[Member]:
    """The trials of one point of a grid; their experiments differ in the seed only."""
    table = merged(file.base, _nested(point))
    settings = tuple(setting for axis in point for setting in _flat(axis.key, axis.values[0]))
    try:
        first = checked_experiment(table, file.place)
    except UserError as error:
        yield from (_invalid(settings, table, trial, str(error)) for trial in range(file.trials))
        return
    for trial in range(file.trials):
        experiment = replace(first, seed=first.seed + trial)
        yield Member(settings, experiment.seed, experiment, "", run_file_name(experiment))


def run_file_name(experiment: Experiment) -> str:
    """What the run file of an experiment is called in a sweep's folder: readable, and different for different runs."""
    method = experiment.method
    return f"{slug(method.name)}-{method.step_size:g}-{experiment.seed}-{_digest(to_toml(experiment))}.h5"


def _invalid(settings: tuple[tuple[str, object], ...], table: Table, trial: int, error: str) -> Member:
    """A member without experiment; its name is made of what is known."""
    method = table.get("method")
    name = str(method.get("name")) if isinstance(method, dict) else "invalid"
    given = table.get("seed", 0)
    seed = given + trial if type(given) is int and abs(given) <= SEEDS else trial
    words = f"{re.sub(r'[^A-Za-z0-9-]', '_', name)[:40]}-invalid-{seed}"
    return Member(settings, seed, None, error, f"{words}-{_digest(literal({**table, 'seed': (given, trial)}))}.h5")


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
        yield key, tuple(value) if isinstance(value, list) else value


def checked(
    members: Iterable[Member], subject: Callable[[Experiment], object], check: Callable[[Experiment], object]
) -> Iterator[Member]:
    """The members; without experiment where `check` refuses it. It is called once for each `subject` except None."""
    errors: dict[object, str] = {}
    for member in members:
        experiment = member.experiment
        key = None if experiment is None else subject(experiment)
        if experiment is None or key is None:
            yield member
            continue
        if key not in errors:
            try:
                check(experiment)
                errors[key] = ""
            except UserError as error:
                errors[key] = str(error)
        yield replace(member, experiment=None, error=errors[key]) if errors[key] else member


def bits_of(plans: Sequence[SweepPlan]) -> Bits:
    """The key `bits` of all runs, which the same processes make."""
    found = {experiment.bits for plan in plans for experiment in plan.experiments}
    if len(found) > 1:
        raise UserError("bits: some runs are to have native bits, others portable ones; give them to two sweeps")
    return found.pop() if found else "native"


def _trace(experiment: Experiment) -> tuple[str, int] | None:
    """What the delays are read from, and for how many clients."""
    source = experiment.delays.source
    return None if source is None else (source, experiment.clients.count)


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
        return "" if self.whole else f"-{self.number}-of-{self.of}"

    def taken_from(self, plan: SweepPlan) -> SweepPlan:
        """The plan with the runs of this share only; its text stays that of the whole sweep."""
        return replace(plan, members=plan.members[self.number - 1 :: self.of])


def read_share(text: str) -> Share:
    """A share as it is typed: K/N."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        raise UserError(f"--share {text}: is not K/N with 1 <= K <= N; the shares of three are 1/3, 2/3 and 3/3")
    return Share(number, of)
