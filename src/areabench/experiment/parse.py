"""Experiment files: TOML as an experiment that is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from areabench.errors import ConfigError, UserError
from areabench.experiment.checks import check_combinations, check_updates
from areabench.experiment.experiment import Experiment
from areabench.kernels import Bits
from areabench.plugins.paths import anchored_folders
from areabench.settings.parse import Location, apply_overrides, overridden_keys, read_record
from areabench.settings.paths import anchored_path
from areabench.settings.toml import read_text, read_toml


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file, apply overrides (`section.key=value`), and check it."""
    experiment = parse_experiment(read_text(path), str(path), overrides, path.parent)
    check_trace(experiment)  # before anything starts; a replay needs no trace
    return experiment


def check_trace(experiment: Experiment) -> None:
    """Refuse an experiment whose trace, if it has one, cannot be used."""
    if traces := experiment.delays.traces(experiment.clients.count):
        check_updates(experiment, sum(len(delays) / sum(delays) for delays in traces), "delays.file")


def parse_experiment(
    text: str,
    source: str = "experiment",
    overrides: Sequence[str] = (),
    folder: Path | None = None,
    *,
    with_modules: bool = True,
) -> Experiment:
    """Read an experiment from TOML text; relative paths in it are relative to `folder`.

    With `with_modules` that folder is searched for the modules that the experiment names.
    """
    table = read_toml(text, source)
    for key in ("sweep", "extends"):
        if key in table:
            raise ConfigError(f"{source}: {key}: this is a sweep, not one experiment; use `areabench sweep {source}`")
    apply_overrides(Experiment, table, overrides)
    table = anchored(table, folder, with_modules=with_modules)
    return checked_experiment(table, Location(source, overridden_keys(overrides)))


def bits_asked(path: Path, overrides: Sequence[str] = ()) -> Bits:
    """The key `bits` of an experiment file, without a check of the others: every rank of a launch looks at it."""
    table = read_toml(read_text(path), str(path))
    apply_overrides(Experiment, table, overrides)
    return "portable" if table.get("bits") == "portable" else "native"


def checked_experiment(table: Mapping[str, Any], location: Location) -> Experiment:
    """Check the tables of an experiment file, its paths absolute, and build the experiment."""
    experiment = read_record(Experiment, table, location)
    assert isinstance(experiment, Experiment)
    try:
        return check_combinations(experiment)
    except UserError as error:
        raise ConfigError(f"{location.source}: {error}") from None


def anchored(
    table: dict[str, Any], folder: Path | None, origin: Path | None = None, *, with_modules: bool = True
) -> dict[str, Any]:
    """The table with absolute paths, and with the folder of the modules that it names.

    Paths are written relative to `origin`, by default `folder`: where the file lies that extends this one.
    """
    if folder is None:
        return table
    for section in table:
        entries = table[section]
        if not isinstance(entries, dict):
            continue
        paths = {
            name: entries[name]
            for name in path_keys_of(section, entries.get("name"))
            if isinstance(entries.get(name), str)
        }
        if paths:
            anchors = {name: anchored_path(path, folder, origin) for name, path in paths.items()}
            table = {**table, section: {**entries, **anchors}}
    return anchored_folders(table, folder, origin, with_modules=with_modules)


def path_keys_of(section: str, name: object = None) -> set[str]:
    """The keys of a section that are paths of files: those of the part that it names, or of any of its parts."""
    parts = next((item.metadata.get("parts") for item in fields(Experiment) if item.name == section), None)
    if parts is None:
        return set()
    named = parts.named(name)
    records = parts.records() if named is None else (named,)
    return {item.name for record in records for item in fields(record) if item.metadata.get("path")}
