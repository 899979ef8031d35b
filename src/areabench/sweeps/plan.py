"""From a sweep file to its runs: every point of every grid, times trials.

The seeds of the trials are the same for every point of the grid, so methods and step sizes are compared on the same
split, rates, delays, mini-batches and starting point.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from areabench.config import read_experiment, to_toml
from areabench.delays import read_trace
from areabench.errors import ConfigError, UserError
from areabench.experiment import Experiment, TraceDelays
from areabench.sweeps.file import SEEDS, Axis, SweepFile, Table, merged, read_sweep_file
from areabench.toml_text import literal

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


def load_sweep(path: Path, overrides: Sequence[str] = (), trials: int | None = None) -> SweepPlan:
    """Read, override (`section.key=value`, number of trials) and expand a sweep file, or an experiment file."""
    file = read_sweep_file(path, overrides, trials)
    members = tuple(_with_traces_checked(expand(file)))
    if all(member.experiment is None for member in members):  # the file itself is wrong, and the first error says where
        raise ConfigError(members[0].error)
    return SweepPlan(path.stem, file.title, members, file.text())


# ---------------------------------------------------------------------------------------------------- expanding


def expand(file: SweepFile) -> Iterator[Member]:
    """Every run once, trials innermost."""
    seen = set()
    for grid in file.grids:
        for values in product(*(axis.values for axis in grid)):
            for member in _trials(file, [Axis(axis.key, (value,)) for axis, value in zip(grid, values, strict=True)]):
                if member.file not in seen:
                    seen.add(member.file)
                    yield member


def _trials(file: SweepFile, point: Sequence[Axis]) -> Iterator[Member]:
    """The trials of one point of a grid; their experiments differ in the seed only."""
    table = merged(file.base, _nested(point))
    settings = tuple(setting for axis in point for setting in _flat(axis.key, axis.values[0]))
    try:
        first = read_experiment(table, file.place)
    except UserError as error:
        yield from (_invalid(settings, table, trial, str(error)) for trial in range(file.trials))
        return
    for trial in range(file.trials):
        experiment = replace(first, seed=first.seed + trial)
        yield Member(settings, experiment.seed, experiment, "", run_file_name(experiment))


def run_file_name(experiment: Experiment) -> str:
    """What the run file of an experiment is called in a sweep's folder: readable, and different for different runs."""
    method = experiment.method
    return f"{method.name}-{method.step_size:g}-{experiment.seed}-{_digest(to_toml(experiment))}.h5"


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
        section, _, key = axis.key.rpartition(".")
        (tables.setdefault(section, {}) if section else tables)[key] = axis.values[0]
    return tables


def _flat(key: str, value: Any) -> Iterator[tuple[str, object]]:
    """A setting, or those of a whole section."""
    if isinstance(value, Mapping):
        yield from ((f"{key}.{name}", entry) for name, entry in value.items())
    else:
        yield key, tuple(value) if isinstance(value, list) else value


def _with_traces_checked(members: Iterator[Member]) -> Iterator[Member]:
    """The members; without experiment where its delays cannot be read. A file is read once a number of clients."""
    troubles: dict[tuple[str, int], str] = {}
    for member in members:
        experiment = member.experiment
        if experiment is None or not isinstance(experiment.delays, TraceDelays):
            yield member
            continue
        trace = (experiment.delays.file, experiment.clients.count)
        if trace not in troubles:
            troubles[trace] = _trouble_with(*trace)
        yield replace(member, experiment=None, error=troubles[trace]) if troubles[trace] else member


def _trouble_with(file: str, clients: int) -> str:
    try:
        read_trace(Path(file), clients)
    except UserError as error:
        return str(error)
    return ""
