"""Sweep files: an experiment file that may extend another one, and a section [sweep] with grids and trials.

Every error is one line: file, key, value, what is allowed, and the nearest valid name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import anchored, path_keys_of
from areabench.plugins.paths import joined_folders
from areabench.settings.keys import NO_SETTINGS, key
from areabench.settings.parse import (
    Location,
    apply_overrides,
    hints_of,
    overridden_keys,
    read_record,
    records_of,
    shown,
    unknown,
)
from areabench.settings.paths import as_written
from areabench.settings.toml import block, key_text, literal, read_text, read_toml
from areabench.sweeps.tune import Tune, read_tune

MOST_RUNS = 100_000
SEEDS = 2**32
_ANY = "*"  # what a function of the user's own takes as keyword arguments

Table = dict[str, Any]  # as TOML reads it


@dataclass(frozen=True)
class Axis:
    """One key of a grid and the values it takes; a value may be a whole section."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class _Section:
    """The section [sweep]."""

    title: str = key("title of its tables and figures", "")
    trials: int = key("trials of each point of the grids", 1, minimum=1, maximum=MOST_RUNS)
    grid: tuple[Axis, ...] = ()  # is read apart


@dataclass(frozen=True)
class SweepFile:
    """A sweep as it is written: everything that it extends and that overrides it put together, not yet expanded."""

    place: Location
    base: Table  # the experiment; what the grids give may still be missing
    title: str
    trials: int
    grids: tuple[tuple[Axis, ...], ...]  # of an ordinary experiment: one, without any key
    tune: Tune | None = None

    @property
    def runs(self) -> int:
        """Runs that the grids expand to, equal ones counted as often as they are named; with tuning, at most."""
        trials = self.trials
        if self.tune is not None:
            trials += self.tune.budget * self.tune.trials
        return trials * sum(math.prod(len(axis.values) for axis in grid) for grid in self.grids)

    def text(self) -> str:
        """The sweep as one TOML file without `extends`, paths as given; reading it again gives the same sweep."""
        base = as_written(self.base)
        sections = {name: value for name, value in base.items() if isinstance(value, dict)}
        blocks = [block({name: value for name, value in base.items() if name not in sections})]
        blocks += [f"[{key_text(name)}]\n{block(section)}" for name, section in sections.items()]
        section: Table = {"title": self.title, "trials": self.trials}
        if not self.title:
            del section["title"]
        blocks.append(f"[sweep]\n{block(section)}")
        for grid in self.grids:
            lines = ["[[sweep.grid]]\n"]
            for axis in grid:
                key = ".".join(map(key_text, axis.key.split(".")))
                lines.append(f"{key} = {literal(as_written(axis.values))}\n")
            blocks.append("".join(lines))
        if self.tune is not None:
            blocks.append(self.tune.text())
        return "\n".join(blocks)


def read_sweep_file(
    path: Path, overrides: Sequence[str] = (), trials: int | None = None, changes: Table | None = None
) -> SweepFile:
    """Read a sweep file and what it extends; `overrides` (`section.key=value`) and `changes` go below the grids."""
    table = _read_chain(path, (), path.parent)
    apply_overrides(Experiment, table, overrides)
    # Before the paths are made absolute: a path in a change is relative to the file, as in the file itself.
    table = merged(table, joined_folders(table, changes or {}))
    table = anchored(table, path.parent)
    place = Location(str(path), overridden_keys(overrides))
    if trials is not None:
        table = merged(table, {"sweep": {"trials": trials}})
    return check_sweep(table, place)


def check_sweep(table: Table, place: Location) -> SweepFile:
    """The tables of a sweep file, everything in [sweep] checked."""
    base = {name: value for name, value in table.items() if name not in ("sweep", "tune")}
    section = table.get("sweep", {"trials": 1})
    inner = place.inner("sweep")
    plain = section
    if isinstance(section, dict):
        # An empty title takes back the one of the file that is extended.
        plain = {name: value for name, value in section.items() if name != "grid" and (name, value) != ("title", "")}
    read: _Section = read_record(_Section, plain, inner)
    if "grid" not in section and "trials" not in section:
        raise inner.error("has neither trials nor a grid; add trials = 10, or a [[sweep.grid]] with lists of values")
    grids: list[tuple[Axis, ...]] = [()]
    if "grid" in section:
        written = section["grid"]
        inside = inner.inner("grid")
        if not isinstance(written, list) or not all(isinstance(grid, dict) for grid in written):
            raise inside.error(
                f"{shown(written)} is not a list of tables; write [[sweep.grid]], with two pairs of brackets"
            )
        if not written:
            raise inside.error("is empty; add a [[sweep.grid]] with lists of values")
        grids = [tuple(_read_axes(grid, "", inside)) for grid in written]
    sweep = SweepFile(place, base, read.title, read.trials, tuple(grids))
    if "tune" in table:
        sweep = replace(sweep, tune=_read_tune(table["tune"], sweep))
    _check_size(sweep)
    return sweep


def _read_tune(section: Any, sweep: SweepFile) -> Tune:
    """The section [tune]; the grids vary neither a tuned key nor the seed, which tells tuning and test apart."""
    start = sweep.base.get("seed", 0)
    if type(start) is not int or not 0 <= start < SEEDS:  # is refused with the experiment
        start = 0
    place = sweep.place.inner("tune")
    tune = read_tune(section, place, range(start, start + sweep.trials))
    varied = [axis.key for grid in sweep.grids for axis in grid]
    for tuned in ("seed", *(one.key for one in tune.keys)):
        if tuned in varied:
            raise place.inner("keys").error(f"{tuned} is also in a grid; leave it out of one of the two")
    return tune


def merged(base: Table, changes: Table) -> Table:
    """Tables with changes on top, key by key; a section whose `name` changes is replaced as a whole."""
    result = dict(base)
    for name, value in changes.items():
        old = base.get(name)
        result[name] = value
        if isinstance(old, dict) and isinstance(value, dict):
            is_renamed = "name" in old and value.get("name", old["name"]) != old["name"]
            if not is_renamed:
                result[name] = merged(old, value)
    return result


# ---------------------------------------------------------------------------------------------------- extends


def _read_chain(path: Path, extended_by: tuple[Path, ...], origin: Path) -> Table:
    """A file on top of what it extends; a relative path in either starts at the file that wrote it.

    All are written relative to `origin`, the folder of the first file.
    """
    place = Location(str(extended_by[-1] if extended_by else path)).inner("extends")
    if path.resolve() in (known.resolve() for known in extended_by):
        chain = " -> ".join(map(str, (*extended_by, path)))
        raise place.error(f"the files extend each other in a circle ({chain}); remove one `extends`")
    if extended_by and not path.is_file():
        raise place.error(f"{path} does not exist; give a path relative to the file that extends it")
    table = anchored_sweep(read_toml(read_text(path), str(path)), path.parent, origin)
    extended = table.pop("extends", None)
    if extended is None:
        return table
    if not isinstance(extended, str) or not extended or "\0" in extended:
        raise Location(str(path)).inner("extends").error(f"{shown(extended)} is not the path of a file; write a string")
    base = _read_chain(path.parent / extended, (*extended_by, path), origin)
    return merged(base, joined_folders(base, table))


def anchored_sweep(table: Table, folder: Path, origin: Path | None = None, *, with_modules: bool = True) -> Table:
    """The table of a sweep file with absolute paths, also in its grids; grids of another shape are refused later."""
    table = anchored(table, folder, origin, with_modules=with_modules)
    sweep = table.get("sweep")
    if not isinstance(sweep, dict) or not isinstance(grids := sweep.get("grid"), list):
        return table
    found = []
    for grid in grids:
        changed: Table = {}
        for section, entries in grid.items() if isinstance(grid, dict) else ():
            if isinstance(entries, list):  # whole sections
                changed[section] = [anchored({section: entry}, folder, origin)[section] for entry in entries]
            elif isinstance(entries, dict):
                changed[section] = dict(entries)
                for name in path_keys_of(section) & entries.keys():
                    if isinstance(files := entries[name], list):
                        tables = [anchored({section: {name: file}}, folder, origin) for file in files]
                        changed[section][name] = [each[section][name] for each in tables]
        found.append({**grid, **changed} if changed else grid)
    return {**table, "sweep": {**sweep, "grid": found}}


# ---------------------------------------------------------------------------------------------------- [sweep]


def _read_axes(grid: Table, prefix: str, place: Location) -> Iterator[Axis]:
    """The leaves of a grid, in the order in which they are written."""
    section = prefix.rstrip(".")
    known = _known_keys()
    for name, leaf in grid.items():
        dotted = prefix + name
        inner = place.inner(name)
        if section not in known:
            raise inner.error(f"{section} is a key, not a section; write {section} = [...]")
        if name not in known[section] and _ANY not in known[section]:
            raise inner.error(unknown("key" if section else "key or section", name, known[section]))
        if isinstance(leaf, dict):
            yield from _read_axes(leaf, f"{dotted}.", inner)
            continue
        if not isinstance(leaf, list):
            raise inner.error(f"{shown(leaf)} is not a list; write [{literal(leaf)}]")
        if not leaf:
            raise inner.error("is an empty list; give at least one value, or remove the key")
        # The grid would win silently, so whoever types --set would believe in runs that were not made.
        for given in inner.overridden:
            if f"{dotted}.".startswith(f"{given}.") or f"{given}.".startswith(f"{dotted}."):
                raise Location(inner.source, (), inner.key).error(
                    f"--set {given} names what the grid varies; leave one of the two out"
                )
        yield Axis(dotted, tuple(leaf))


@cache
def _known_keys() -> Mapping[str, set[str]]:
    """The keys of each section, those of all its variants together; those on top under an empty name."""
    known = {"": {item.name for item in fields(Experiment)}}
    for item in fields(Experiment):
        if records := records_of(item, hints_of(Experiment)[item.name]):
            keys = [each for record in records for each in fields(record)]
            known[item.name] = {each.name for each in keys}
            known |= {f"{item.name}.{each.name}": {_ANY} for each in keys if each.default is NO_SETTINGS}
    return known


def _check_size(sweep: SweepFile) -> None:
    place = sweep.place.inner("sweep")
    if sweep.runs > MOST_RUNS:
        raise place.error(f"expands to {sweep.runs:,} runs, more than {MOST_RUNS:,}; use shorter lists or fewer trials")
    # Trials count their seeds up from these, and the last of them must be a seed too.
    seeds = [sweep.base.get("seed", 0)]
    seeds += [value for grid in sweep.grids for axis in grid if axis.key == "seed" for value in axis.values]
    largest = max((seed for seed in seeds if type(seed) is int), default=0)
    if largest < SEEDS < largest + sweep.trials:
        raise place.inner("trials").error(
            f"{sweep.trials} trials from seed {largest} on go beyond {SEEDS - 1}, the largest seed; use a smaller seed"
        )
