"""Experiments in words: names and colours of methods, rates, splits and settings as every table and figure has them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from areabench.experiment.experiment import Experiment
from areabench.methods import METHODS
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings
from areabench.problems.splits.rows import SplitSettings
from areabench.settings.keys import Settings

# Transports of a sweep, as its folder names them.
SIMULATOR = "simulator"
MPI = "mpi"


# ---------------------------------------------------------------------------------------------------- methods


_OTHER_COLOURS = ("#000000", "#6E6E6E", "#A8A8A8")  # of own methods: no other method is grey


def method_label(name: str) -> str:
    """The usual name of a method; of a part that is named by import path the function."""
    return METHODS[name].label if name in METHODS else name.rpartition(":")[2]


def method_colour(name: str) -> str:
    """The colour of the method, as #RRGGBB."""
    if name in METHODS:
        colour: str = METHODS[name].colour
        return colour
    return _OTHER_COLOURS[zlib.crc32(name.encode()) % len(_OTHER_COLOURS)]


def without_step_size(method: MethodSettings) -> MethodSettings:
    """The settings that runs of one method with different step sizes share."""
    return replace(method, step_size=1.0)


def contender_labels(methods: Sequence[MethodSettings], aggregations: Sequence[AggregationSettings]) -> list[str]:
    """The labels of methods with their aggregations, which are named where they are not all the same."""
    several = len(set(aggregations)) > 1
    words = [
        [*variant_words(method, methods), *([aggregation.describe()] if several else [])]
        for method, aggregation in zip(methods, aggregations, strict=True)
    ]
    return [
        method_label(method.name) + (f" ({', '.join(own)})" if own else "")
        for method, own in zip(methods, words, strict=True)
    ]


def variant_words(method: MethodSettings, others: Sequence[MethodSettings]) -> list[str]:
    """The settings in which a method differs from others of the same name, as `key = value`."""
    variants = [dict(flatten(other)) for other in others if other.name == method.name]
    own = dict(flatten(method))
    keys = [key for key in own if len({other.get(key) for other in variants}) > 1]
    return [f"{key.removeprefix('settings.')} = {word(own[key])}" for key in keys]


def default_remarks(experiment: Experiment) -> dict[str, str]:
    """What a value does that its key does not say: by dotted key, a few words."""
    remarks: dict[str, str] = {}
    for section in ("method", "problem"):
        found = getattr(experiment, section).remarks()
        remarks |= {f"{section}.{key}": words for key, words in found.items()}
    if (privacy := experiment.privacy) is not None:
        places = privacy.fraction_bits
        remarks["privacy.bits"] = f"{places} of them behind the point: entries are rounded to {2.0**-places:.2g}"
    return remarks


# ---------------------------------------------------------------------------------------------------- settings


def describe_split(split: SplitSettings | None) -> str:
    """The paper's word for a split; empty where the problem has no data to split."""
    return "" if split is None else split.words or method_label(split.name)


def describe_data(experiment: Experiment) -> str:
    """The data and their split, or the problem where it has no data."""
    if experiment.data is None or experiment.split is None:
        return f"{method_label(experiment.problem.name)} problem"
    split = experiment.split
    concentration = getattr(split, "concentration", None)
    variant = f" ({concentration:g})" if concentration else ""
    return f"split {method_label(split.name)}{variant} of {method_label(experiment.data.title)}"


def describe_setting(setting: Experiment) -> str:
    """The setting in short: n, M, split, horizon."""
    parts = [f"n = {setting.clients.count}", f"M = {setting.clients.local_steps}"]
    if setting.split is not None:
        parts.append(describe_split(setting.split))
    if setting.stop.horizon_s is not None:
        parts.append(f"horizon {setting.stop.horizon_s:g} s")
    return ", ".join(parts)


def titles(settings: Sequence[Experiment]) -> list[str]:
    """One title per setting; where two would be equal, with the keys in which they differ."""
    plain = [describe_setting(setting) for setting in settings]
    if len(set(plain)) == len(plain):
        return plain
    words = _differences(settings, ("clients.count", "clients.local_steps", "stop.horizon_s"))
    return [", ".join([title, *own]) for title, own in zip(plain, words, strict=True)]


def difference_words(experiments: Sequence[Experiment]) -> list[str]:
    """For each experiment, the settings in which they differ, without method, step size and what changes no run."""
    methods = [without_step_size(experiment.method) for experiment in experiments]
    others = _differences(experiments, ("method.", "record.", "name", "module_folders"))
    return [", ".join([*variant_words(method, methods), *words]) for method, words in zip(methods, others, strict=True)]


def _differences(experiments: Sequence[Experiment], without: tuple[str, ...]) -> list[list[str]]:
    """For each experiment, the keys in which they differ, as `key = value`; none that begins with one of `without`."""
    flat = [{key: value for key, value in flatten(one) if not key.startswith(without)} for one in experiments]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if len({one.get(key) for one in flat}) > 1]
    return [[f"{key} = {word(one[key])}" for key in keys if key in one] for one in flat]


def flatten(record: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Every key of a record, dotted, with its value."""
    entries: list[tuple[str, Any]] = []
    for item in fields(record):
        value = getattr(record, item.name)
        key = prefix + item.name
        if isinstance(value, Settings):
            entries += [(f"{key}.{name}", entry) for name, entry in value.items()]
        else:
            entries += flatten(value, f"{key}.") if hasattr(value, "__dataclass_fields__") else [(key, value)]
    return entries


def word(value: object) -> str:
    """The value of a key as labels have it."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
