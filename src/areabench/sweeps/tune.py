"""The section [tune] of a sweep file: which keys are tuned, how the settings to try are drawn, and on which seeds.

Every point of the grids, that is every method under every setting, gets the same budget of settings to try.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

from areabench.methods import AGGREGATIONS, METHODS
from areabench.settings.parse import Location, hints_of, options_of, shown, unknown
from areabench.settings.parts import Parts
from areabench.settings.toml import block, literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Metric = Literal["accuracy", "loss", "time"]
Search = Literal["grid", "random", "quasi-random"]
Scale = Literal["log", "linear"]
_KEYS = ("keys", "budget", "trials", "seed", "metric", "target", "search")
_SPAN_KEYS = {"from", "to", "scale"}
_SECTIONS = {"method": METHODS, "aggregation": AGGREGATIONS}
_DIGITS = 4  # of a drawn number, so that file names and tables can be read
_MOST = 10_000


@dataclass(frozen=True)
class Span:
    """A range of numbers to try, both ends included."""

    low: float
    high: float
    scale: Scale

    def at(self, shares: NDArray[np.float64]) -> list[float]:
        """The numbers at these shares of the range, from 0 to 1."""
        if self.scale == "linear":
            values = self.low + (self.high - self.low) * shares
        else:
            values = self.low * (self.high / self.low) ** shares
        return [min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high) for value in values.tolist()]


@dataclass(frozen=True)
class TunedKey:
    """A key and what is tried of it."""

    key: str  # such as method.step_size
    values: tuple[Any, ...] | Span

    @property
    def text(self) -> str:
        """The values as TOML."""
        if isinstance(self.values, Span):
            span = self.values
            return f"{{ from = {literal(span.low)}, to = {literal(span.high)}, scale = {literal(span.scale)} }}"
        return literal(self.values)


@dataclass(frozen=True)
class Tune:
    """How every method of a sweep is tuned."""

    keys: tuple[TunedKey, ...]
    budget: int  # settings tried of each method
    seeds: tuple[int, ...]  # of the trials that the choice is made on
    metric: Metric
    target: float  # test accuracy in percent, for the metric `time`
    search: Search

    def text(self) -> str:
        """The section as TOML."""
        values = {"budget": self.budget, "trials": len(self.seeds), "seed": self.seeds[0], "metric": self.metric}
        lines = [f"{one.key} = {one.text}\n" for one in self.keys]
        body = block({**values, "target": self.target, "search": self.search})
        return f"[tune]\n{body}\n[tune.keys]\n{''.join(lines)}"

    @property
    def words(self) -> str:
        """What a setting is chosen by."""
        goal = {"accuracy": "highest mean accuracy", "loss": "lowest mean loss"}
        return goal.get(self.metric, f"fewest trials that miss {self.target:g} % and shortest mean time to it")

    def points(self, method: str, aggregation: str) -> list[tuple[tuple[str, Any], ...]]:
        """The settings to try of a method, each once; keys that it does not have are left out."""
        names = {"method": method, "aggregation": aggregation}
        kinds = {name: _kinds(_SECTIONS[name], variant) for name, variant in names.items()}
        own = [one for one in self.keys if one.key.split(".")[1] in kinds[one.key.split(".")[0]]]
        drawn = [
            tuple((one.key, _typed(value, kinds, one.key)) for one, value in zip(own, values, strict=True))
            for values in self._values(own)
        ]
        return list(dict.fromkeys(drawn))

    def _values(self, own: Sequence[TunedKey]) -> Iterator[tuple[Any, ...]]:
        if not own:
            yield ()
        elif self.search == "grid":
            yield from product(*_grid(own, self.budget))
        else:
            shares = _shares(self.search, self.budget, len(own), self.seeds[0])
            columns = [_picked(one.values, shares[:, index]) for index, one in enumerate(own)]
            yield from zip(*columns, strict=True)


def _grid(own: Sequence[TunedKey], budget: int) -> list[Sequence[Any]]:
    """The lists as they are; ranges divided so finely that the product stays within the budget."""
    import numpy as np  # a job script is written without it

    spans = [one for one in own if isinstance(one.values, Span)]
    listed = math.prod(len(one.values) for one in own if not isinstance(one.values, Span))
    each = max(1, int((budget / listed) ** (1 / len(spans)) + 1e-9)) if spans else 1
    shares = np.linspace(0, 1, each) if each > 1 else np.array([0.5])
    return [one.values.at(shares) if isinstance(one.values, Span) else one.values for one in own]


def _shares(search: Search, count: int, dimensions: int, seed: int) -> NDArray[np.float64]:
    """Points of the unit cube, shape (count, dimensions)."""
    import numpy as np

    if search == "random":
        return np.random.default_rng(seed).random((count, dimensions))
    from scipy.stats import qmc  # slow to import

    sequence = qmc.Halton(dimensions, scramble=False)  # as defined, so that no version of scipy draws other settings
    sequence.fast_forward(1)  # the first point is a corner
    drawn: NDArray[np.float64] = sequence.random(count)
    return drawn


def _picked(values: tuple[Any, ...] | Span, shares: NDArray[np.float64]) -> list[Any]:
    if isinstance(values, Span):
        return list(values.at(shares))
    return [values[min(int(share * len(values)), len(values) - 1)] for share in shares]


def _kinds(parts: Parts, variant: str) -> Mapping[str, Any]:
    """The keys of a part with their types; none of an unknown one."""
    record = parts.named(variant)
    hints = {} if record is None else hints_of(record)
    return {name: kind for name, kind in hints.items() if name != "name"}


def _typed(value: Any, kinds: Mapping[str, Mapping[str, Any]], key: str) -> Any:
    """A drawn number as the key takes it: rounded where it takes whole numbers."""
    section, name, *_ = key.split(".")
    options = options_of(kinds[section][name])
    return round(value) if int in options and float not in options and isinstance(value, float) else value


# ---------------------------------------------------------------------------------------------------- reading


def read_tune(section: Any, place: Location, test_seeds: Sequence[int]) -> Tune:
    """The section [tune], checked; `test_seeds` are those of the trials that are shown."""
    if not isinstance(section, dict):
        raise place.error(f"{shown(section)} is a value; write it as a section [tune]")
    for name in section:
        if name not in _KEYS:
            raise place.inner(name).error(unknown("key", name, _KEYS))
    keys = tuple(_read_keys(section.get("keys", {}), "", place.inner("keys")))
    if not keys:
        raise place.inner("keys").error("names nothing to tune; write, for instance, method.step_size = [0.1, 1.0]")
    budget = _whole(section.get("budget"), place.inner("budget"))
    trials = _whole(section.get("trials", 3), place.inner("trials"))
    first = section.get("seed", max(test_seeds) + 1)
    if type(first) is not int or not 0 <= first <= 2**32 - trials:
        raise place.inner("seed").error(f"{shown(first)} is not allowed; allowed is a whole number >= 0")
    seeds = tuple(range(first, first + trials))
    if shared := sorted(set(seeds) & set(test_seeds)):
        raise place.inner("seed").error(
            f"tuning and test would share seed {shared[0]}; the test has {min(test_seeds)} to {max(test_seeds)}, "
            "so begin elsewhere or leave it out"
        )
    metric = _choice(section.get("metric", "accuracy"), get_args(Metric), place.inner("metric"))
    search = _choice(section.get("search", "grid"), get_args(Search), place.inner("search"))
    target = section.get("target", 80.0)
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target <= 100:
        raise place.inner("target").error(f"{shown(target)} is not allowed; allowed is a number above 0, at most 100")
    tune = Tune(keys, budget, seeds, metric, float(target), search)  # type: ignore[arg-type]
    listed = math.prod(len(one.values) for one in keys if not isinstance(one.values, Span))
    if search == "grid" and listed > budget:
        raise place.inner("budget").error(
            f'{budget} is less than the {listed} settings of the lists; raise it, or search = "random"'
        )
    return tune


def _whole(value: Any, place: Location) -> int:
    if value is None:
        raise place.error("is missing (settings tried of each method); add budget = 16")
    if type(value) is not int or not 1 <= value <= _MOST:
        raise place.error(f"{shown(value)} is not allowed; allowed is a whole number >= 1 and <= {_MOST}")
    return value


def _choice(value: Any, allowed: Sequence[str], place: Location) -> str:
    if value not in allowed:
        raise place.error(f"{shown(value)} is not allowed; allowed are {', '.join(allowed)}")
    return str(value)


def _read_keys(table: Any, prefix: str, place: Location) -> Iterator[TunedKey]:
    """The leaves: lists, and tables with `from` and `to`."""
    if not isinstance(table, dict):
        raise place.error(
            f"{shown(table)} is neither a list nor a range; write [0.1, 1.0], or {{ from = 0.1, to = 1.0 }}"
        )
    for name, leaf in table.items():
        key, inner = prefix + name, place.inner(name)
        if not prefix and name not in _SECTIONS:
            raise inner.error(f"is not tuned; tuned are keys of {' and '.join(_SECTIONS)}")
        if prefix and prefix.rstrip(".") in _SECTIONS:
            known = {item.name for record in _SECTIONS[prefix[:-1]].records() for item in fields(record)} - {"name"}
            if name not in known:
                raise inner.error(unknown("key", name, sorted(known)))
        if isinstance(leaf, list):
            if not leaf or not prefix:
                raise inner.error("is an empty list or a section; give at least one value of a key")
            yield TunedKey(key, tuple(leaf))
        elif isinstance(leaf, dict) and {"from", "to"} <= leaf.keys():
            yield TunedKey(key, _read_span(leaf, inner))
        else:
            yield from _read_keys(leaf, f"{key}.", inner)


def _read_span(table: Mapping[str, Any], place: Location) -> Span:
    for name in table:
        if name not in _SPAN_KEYS:
            raise place.inner(name).error(unknown("key", name, sorted(_SPAN_KEYS)))
    ends = [table["from"], table["to"]]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in ends):
        raise place.error(f"{shown(ends)} are not two numbers; write {{ from = 0.1, to = 100.0 }}")
    low, high = map(float, ends)
    scale = _choice(table.get("scale", "log" if low > 0 else "linear"), get_args(Scale), place.inner("scale"))
    if not low < high or (scale == "log" and low <= 0):
        raise place.error(
            f'from {low:g} to {high:g} is no range on this scale; from < to, and above 0 for scale = "log"'
        )
    return Span(low, high, "log" if scale == "log" else "linear")
