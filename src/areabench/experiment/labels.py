"""Experiments in words: names and colours of methods, rates, splits and settings as every table and figure has them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import PurePath
from typing import Any

from areabench.experiment.fields import Settings
from areabench.experiment.method_records import FedBuff, MethodSettings
from areabench.experiment.problem_records import File, ScikitLearn, SplitSettings
from areabench.experiment.records import (
    AggregationSettings,
    EveryPeriod,
    EveryUpdates,
    Experiment,
    ListedRates,
    LognormalRates,
    RateSettings,
    UniformRates,
)

SIMULATOR, MPI = "simulator", "mpi"  # transports of a sweep, as its folder names them


# ---------------------------------------------------------------------------------------------------- methods


METHOD_NAMES = {  # in the order of legends
    "area": "AREA", "fedbuff": "FedBuff", "as-fedavg": "AS-FedAvg", "s-fedavg": "S-FedAvg",
    "async-sgd": "AsyncSGD",
    "fedbuff-published": "FedBuff as published", "fedfix": "FedFix", "fedstaleweight": "FedStaleWeight",
    "server-momentum": "server momentum", "server-adam": "server Adam", "fadas": "FADAS",
    "fedasync": "FedAsync", "asyncfeded": "AsyncFedED",
    "ca2fl": "CA2FL", "afa-cs": "AFA-CS", "ia2sgd": "IA²SGD", "dude": "DuDe-ASGD", "ace": "ACE", "aced": "ACED",
    "afa-cd": "AFA-CD", "mifa": "MIFA",
    "ringmaster": "Ringmaster", "rennala": "Rennala", "malenia": "Malenia", "ringleader": "Ringleader",
    "asynccomm-sgd": "AsyncCommSGD", "fedcompass": "FedCompass", "quafl": "QuAFL", "favas": "FAVAS",
}  # fmt: skip
METHOD_COLOURS = {
    "area": "#0072B2", "fedbuff": "#E69F00", "as-fedavg": "#009E73", "s-fedavg": "#CC79A7",
    "async-sgd": "#D55E00",
    "fedbuff-published": "#B07D2B", "fedfix": "#8C6D00", "fedstaleweight": "#C2A83E", "server-momentum": "#7A5C99",
    "server-adam": "#9A7BC4", "fadas": "#5D3A9B",
    "fedasync": "#E1503F", "asyncfeded": "#9E2B25",
    "ca2fl": "#1B7F8C", "afa-cs": "#2E8B57", "ia2sgd": "#4C9A2A", "dude": "#76A21E", "ace": "#3B6E4F",
    "aced": "#6B8E73", "afa-cd": "#A0612B", "mifa": "#40B5AD",
    "ringmaster": "#4A6FE3", "rennala": "#6C8EBF", "malenia": "#2F4B7C", "ringleader": "#56B4E9",
    "asynccomm-sgd": "#A05195", "fedcompass": "#D45087", "quafl": "#665191", "favas": "#8F5B6A",
}  # fmt: skip
_OTHER_COLOURS = ("#000000", "#6E6E6E", "#A8A8A8")  # of own methods: no other method is grey


def method_label(name: str) -> str:
    """The usual name of a method; of a part that is named by import path the function."""
    return METHOD_NAMES.get(name) or name.rpartition(":")[2]


def method_colour(name: str) -> str:
    """The colour of the method, as #RRGGBB."""
    return METHOD_COLOURS.get(name) or _OTHER_COLOURS[zlib.crc32(name.encode()) % len(_OTHER_COLOURS)]


def without_step_size(method: MethodSettings) -> MethodSettings:
    """The settings that runs of one method with different step sizes share."""
    return replace(method, step_size=1.0)


def contender_labels(methods: Sequence[MethodSettings], aggregations: Sequence[AggregationSettings]) -> list[str]:
    """The labels of methods with their aggregations, which are named where they are not all the same."""
    several = len(set(aggregations)) > 1
    words = [
        [*variant_words(method, methods), *([describe_aggregation(aggregation)] if several else [])]
        for method, aggregation in zip(methods, aggregations, strict=True)
    ]
    return [
        method_label(method.name) + (f" ({', '.join(own)})" if own else "")
        for method, own in zip(methods, words, strict=True)
    ]


def describe_aggregation(aggregation: AggregationSettings) -> str:
    """When the server steps, in short."""
    if isinstance(aggregation, EveryUpdates):
        return f"Δ = {aggregation.updates}"
    if isinstance(aggregation, EveryPeriod):
        return f"a step every {aggregation.period_s:g} s"
    return f"λ_s = {aggregation.rate:g}"


def variant_words(method: MethodSettings, others: Sequence[MethodSettings]) -> list[str]:
    """The settings in which a method differs from others of the same name, as `key = value`."""
    variants = [dict(flatten(other)) for other in others if other.name == method.name]
    own = dict(flatten(method))
    keys = [key for key in own if len({other.get(key) for other in variants}) > 1]
    return [f"{key.removeprefix('settings.')} = {word(own[key])}" for key in keys]


def default_remarks(experiment: Experiment) -> dict[str, str]:
    """What a value does that its key does not say: by dotted key, a few words."""
    remarks: dict[str, str] = {}
    if getattr(experiment.method, "server_step_size", 0.0) is None:
        eta = "alpha" if isinstance(experiment.method, FedBuff) else "alpha·M"
        remarks["method.step_size"] = f"it sets the server's too: eta = {eta}, because server_step_size is left out"
    weighting = getattr(experiment.problem, "weighting", "")
    if weighting == "share":
        remarks["problem.weighting"] = 'client i descends (s_i/S)·f_i; "exact", the default of torch, is n times that'
    elif weighting == "exact":
        remarks["problem.weighting"] = 'client i descends n·(s_i/S)·f_i; "share", the default of logistic, is 1/n of it'
    if (privacy := experiment.privacy) is not None:
        places = privacy.fraction_bits
        remarks["privacy.bits"] = f"{places} of them behind the point: entries are rounded to {2.0**-places:.2g}"
    return remarks


# ---------------------------------------------------------------------------------------------------- settings


def describe_rates(rates: RateSettings) -> str:
    """The rates in the words of the paper's tables; λ in updates per second."""
    if isinstance(rates, UniformRates):
        return f"uniform (λ = {rates.rate:g})"
    if isinstance(rates, LognormalRates):
        return f"lognormal (median λ = {rates.median:g}, σ = {rates.sigma:g})"
    if isinstance(rates, ListedRates):
        return f"listed (λ from {min(rates.values):g} to {max(rates.values):g})"
    return f"non-uniform (λ ~ N({rates.mean:g}, {rates.deviation:g}))"


def describe_split(split: SplitSettings | None) -> str:
    """The paper's word for a split; empty where the problem has no data to split."""
    words = {"dirichlet": "non-IID", "dirichlet-equal": "non-IID (equal-sized)", "iid": "IID", "nearly-iid": "IID"}
    return "" if split is None else words.get(split.name) or method_label(split.name)


def describe_data(experiment: Experiment) -> str:
    """The data and their split, or the problem where it has no data."""
    if experiment.data is None or experiment.split is None:
        return f"{method_label(experiment.problem.name)} problem"
    split = experiment.split
    concentration = getattr(split, "concentration", None)
    variant = f" ({concentration:g})" if concentration else ""
    data = experiment.data
    source = data.set if isinstance(data, ScikitLearn) else data.name
    name = PurePath(data.file).name if isinstance(data, File) else method_label(source)
    return f"split {method_label(split.name)}{variant} of {name}"


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
        value, key = getattr(record, item.name), prefix + item.name
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
