"""Names of tables, column blocks and rows."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from areabench.experiment.fields import Settings
from areabench.experiment.problem_records import SplitSettings
from areabench.experiment.records import (
    Experiment,
    ListedRates,
    LognormalRates,
    MethodSettings,
    NormalRates,
    RateSettings,
    UniformRates,
)

if TYPE_CHECKING:
    pass  # needs mpi4py


METHOD_NAMES = {"area": "AREA", "fedbuff": "FedBuff", "as-fedavg": "AS-FedAvg", "s-fedavg": "S-FedAvg"}  # AREA first
METHOD_COLOURS = {"area": "#0072B2", "fedbuff": "#E69F00", "as-fedavg": "#009E73", "s-fedavg": "#CC79A7"}
_OTHERS = ("#D55E00", "#56B4E9", "#000000")


def method_label(name: str) -> str:
    """What people call the method, or any other part that may be named by import path."""
    return METHOD_NAMES.get(name) or name.rpartition(":")[2]


def method_colour(name: str) -> str:
    """The colour of the method, as #RRGGBB."""
    return METHOD_COLOURS.get(name) or _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)]


def without_step_size(method: MethodSettings) -> MethodSettings:
    """What the rows of one method share."""
    return replace(method, step_size=1.0)


def method_labels(methods: Sequence[MethodSettings]) -> list[str]:
    """The paper's names; where a method occurs in several variants, with the keys that tell them apart."""
    return [", ".join([method_label(method.name), *variant_words(method, methods)]) for method in methods]


def variant_words(method: MethodSettings, others: Sequence[MethodSettings]) -> list[str]:
    """The settings in which a method differs from others of its name."""
    variants = [dict(flatten(other)) for other in others if other.name == method.name]
    own = dict(flatten(method))
    keys = [key for key in own if len({other.get(key) for other in variants}) > 1]
    return [f"{key.removeprefix('settings.')} = {_word(own[key])}" for key in keys]


def describe_setting(setting: Experiment) -> str:
    """The setting in a few words: n, M, split, horizon."""
    parts = [f"n = {setting.clients.count}", f"M = {setting.clients.local_steps}"]
    if setting.split is not None:
        parts.append(describe_split(setting.split))
    if setting.stop.horizon_s is not None:
        parts.append(f"horizon {setting.stop.horizon_s:g} s")
    return ", ".join(parts)


def describe_split(split: SplitSettings | None) -> str:
    """The paper's word, with the variant where it has two; empty where the problem has no data to split."""
    words = {"dirichlet": "non-IID", "dirichlet-equal": "non-IID (equal-sized)", "iid": "IID", "nearly-iid": "IID"}
    return "" if split is None else words.get(split.name) or method_label(split.name)


def titles(settings: Sequence[Experiment]) -> list[str]:
    """A title a setting; where two would be the same, with the keys that tell them apart."""
    plain = [describe_setting(setting) for setting in settings]
    if len(set(plain)) == len(plain):
        return plain
    said = ("clients.count", "clients.local_steps", "stop.horizon_s")
    flat = [{key: value for key, value in flatten(setting) if key not in said} for setting in settings]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if len({one.get(key) for one in flat}) > 1]
    return [
        ", ".join([title, *(f"{key} = {_word(one[key])}" for key in keys if key in one)])
        for title, one in zip(plain, flat, strict=True)
    ]


def flatten(record: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Every key of a record, dotted, with its value."""
    entries: list[tuple[str, Any]] = []
    for item in fields(record):
        value, key = getattr(record, item.name), prefix + item.name
        if isinstance(value, Settings):
            entries += [(f"{key}.{name}", entry) for name, entry in value.items()]
        else:
            entries += flatten(value, f"{key}.") if hasattr(value, "__dataclass_fields__") else [(key, value)]
    return entries


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe_rates(rates: RateSettings) -> str:
    """A rates setting in the words of the paper's tables."""
    if isinstance(rates, UniformRates):
        return f"uniform (λ = {rates.rate:g})"
    if isinstance(rates, LognormalRates):
        return f"lognormal (median λ = {rates.median:g}, σ = {rates.sigma:g})"
    if isinstance(rates, ListedRates):
        return f"listed (λ from {min(rates.values):g} to {max(rates.values):g})"
    return f"non-uniform (λ ~ N({rates.mean:g}, {rates.deviation:g}))"


def split_name(experiment: Experiment) -> str:
    """Data and split in words."""
    if experiment.data is None or experiment.split is None:
        return f"{method_label(experiment.problem.name)} problem"
    split = experiment.split
    concentration = getattr(split, "concentration", None)
    shape = f" ({concentration:g})" if concentration else ""
    return f"split {method_label(split.name)}{shape} of {method_label(experiment.data.name)}"


def rates_name(rates: RateSettings) -> str:
    """A rates setting in words, with units."""
    if isinstance(rates, UniformRates):
        return f"uniform rates, {rates.rate:g} updates/s"
    if isinstance(rates, NormalRates):
        return f"normal rates, {rates.mean:g} ± {rates.deviation:g} updates/s"
    if isinstance(rates, LognormalRates):
        return f"lognormal rates, median {rates.median:g} updates/s, σ = {rates.sigma:g}"
    return f"listed rates, {min(rates.values):g} to {max(rates.values):g} updates/s"


SIMULATOR, MPI = "simulator", "mpi"
