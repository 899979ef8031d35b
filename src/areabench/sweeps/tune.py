"""The section [tune] of a sweep file: which keys are tuned, how the settings to try are drawn, and on which seeds.

Every point of the grids, that is every method under every setting, gets the same budget of settings to try.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from areabench.methods import AGGREGATIONS, METHODS
from areabench.settings.keys import key
from areabench.settings.parse import Location, hints_of, options_of, read_record, shown, unknown
from areabench.settings.toml import block, literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Metric = Literal["accuracy", "loss", "time"]
Search = Literal["grid", "random", "quasi-random"]
Scale = Literal["log", "linear"]
Setting: TypeAlias = tuple[tuple[str, Any], ...]  # tuned keys and their values
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
        # Rounding to few digits may step over an end of the range.
        return [min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high) for value in values.tolist()]


@dataclass(frozen=True)
class TunedKey:
    """A key and what is tried of it."""

    key: str  # such as method.step_size
    values: tuple[Any, ...] | Span

    def at(self, shares: NDArray[np.float64]) -> list[Any]:
        """What is tried at these shares of the list or range, from 0 to 1."""
        if isinstance(self.values, Span):
            return self.values.at(shares)
        last = len(self.values) - 1
        return [self.values[min(int(share * len(self.values)), last)] for share in shares]

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

    budget: int = key("settings tried of each method", minimum=1, maximum=_MOST)
    trials: int = key("trials of each setting, on which the choice is made", 3, minimum=1, maximum=_MOST)
    seed: int = key("seed of the first of these trials", 0, minimum=0, maximum=2**32 - 1)
    metric: Metric = key("what a setting is chosen by", "accuracy")
    target: float = key("test accuracy, for the metric time", 80.0, unit="%", above=0, maximum=100)
    search: Search = key("how the settings to try are drawn", "grid")
    keys: tuple[TunedKey, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the trials that the choice is made on."""
        return tuple(range(self.seed, self.seed + self.trials))

    def text(self) -> str:
        """The section as TOML."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "keys"}
        lines = [f"{one.key} = {one.text}\n" for one in self.keys]
        return f"[tune]\n{block(values)}\n[tune.keys]\n{''.join(lines)}"

    @property
    def words(self) -> str:
        """What a setting is chosen by."""
        goal = {"accuracy": "highest mean accuracy", "loss": "lowest mean loss"}
        return goal.get(self.metric, f"fewest trials that miss {self.target:g} % and shortest mean time to it")

    def points(self, method: str, aggregation: str) -> list[Setting]:
        """The settings to try of a method, each once; keys that it does not have are left out."""
        kinds: dict[str, Any] = {}  # the types of the keys that it has
        for section, name in (("method", method), ("aggregation", aggregation)):
            if (record := _SECTIONS[section].named(name)) is not None:
                kinds |= {f"{section}.{field}": kind for field, kind in hints_of(record).items()}
        own = {one: kind for one in self.keys if (kind := kinds.get(".".join(one.key.split(".")[:2]))) is not None}
        drawn = [
            tuple((one.key, _typed(value, kind)) for (one, kind), value in zip(own.items(), values, strict=True))
            for values in self._draw(list(own))
        ]
        # Rounding may make two settings equal.
        return list(dict.fromkeys(drawn))

    def _draw(self, own: Sequence[TunedKey]) -> Iterable[tuple[Any, ...]]:
        """Values of these keys to try together."""
        import numpy as np  # a job script is written without it

        if not own:
            return [()]
        if self.search == "grid":
            # ranges are divided so finely that their product with the lists stays within the budget
            spans = sum(isinstance(one.values, Span) for one in own)
            each = int((self.budget / _listed(own)) ** (1 / max(spans, 1)) + 1e-9)
            shares = np.array([0.5])
            if each > 1:
                shares = np.linspace(0, 1, each)
            return product(*(one.at(shares) if isinstance(one.values, Span) else one.values for one in own))
        if self.search == "random":
            drawn = np.random.default_rng(self.seed).random((self.budget, len(own)))
        else:
            from scipy.stats import qmc  # slow to import

            sequence = qmc.Halton(len(own), scramble=False)  # as defined: every version of scipy draws these settings
            sequence.fast_forward(1)  # the first point is a corner
            drawn = sequence.random(self.budget)
        return zip(*(one.at(shares) for one, shares in zip(own, drawn.T, strict=True)), strict=True)


def _typed(value: Any, kind: Any) -> Any:
    """A drawn number as a key of this type takes it: rounded where it takes whole numbers."""
    options = options_of(kind)
    if isinstance(value, float) and int in options and float not in options:
        return round(value)
    return value


def _listed(keys: Iterable[TunedKey]) -> int:
    """How many settings the keys with lists have together."""
    return math.prod(len(one.values) for one in keys if not isinstance(one.values, Span))


# ---------------------------------------------------------------------------------------------------- reading


def read_tune(section: Any, place: Location, test_seeds: Sequence[int]) -> Tune:
    """The section [tune], checked; `test_seeds` are those of the trials that are shown."""
    plain = section
    if isinstance(section, dict):
        plain = {"seed": max(test_seeds) + 1, **section}
        plain.pop("keys", None)
    tune: Tune = read_record(Tune, plain, place)
    tune = replace(tune, keys=tuple(_read_keys(section.get("keys", {}), "", place.inner("keys"))))
    if not tune.keys:
        raise place.inner("keys").error("names nothing to tune; write, for instance, method.step_size = [0.1, 1.0]")
    if tune.seeds[-1] >= 2**32:
        raise place.inner("seed").error(f"{tune.trials} trials from {tune.seed} on go beyond {2**32 - 1}; begin lower")
    # Results on the seeds that a setting was chosen on would flatter it.
    if shared := sorted(set(tune.seeds) & set(test_seeds)):
        raise place.inner("seed").error(
            f"tuning and test would share seed {shared[0]}; the test has {min(test_seeds)} to {max(test_seeds)}, "
            "so begin elsewhere or leave it out"
        )
    if tune.search == "grid" and _listed(tune.keys) > tune.budget:
        raise place.inner("budget").error(
            f'{tune.budget} is less than the {_listed(tune.keys)} settings of the lists; raise it, or search = "random"'
        )
    return tune


def _read_keys(table: Any, prefix: str, place: Location) -> Iterator[TunedKey]:
    """The leaves: lists, and tables with `from` and `to`."""
    if not isinstance(table, dict):
        raise place.error(
            f"{shown(table)} is neither a list nor a range; write [0.1, 1.0], or {{ from = 0.1, to = 1.0 }}"
        )
    for name, leaf in table.items():
        inner = place.inner(name)
        if not prefix and name not in _SECTIONS:
            raise inner.error(f"is not tuned; tuned are keys of {' and '.join(_SECTIONS)}")
        if prefix[:-1] in _SECTIONS:
            known = {item.name for record in _SECTIONS[prefix[:-1]].records() for item in fields(record)} - {"name"}
            if name not in known:
                raise inner.error(unknown("key", name, known))
        if isinstance(leaf, list):
            if not leaf or not prefix:
                raise inner.error("is an empty list or a section; give at least one value of a key")
            yield TunedKey(prefix + name, tuple(leaf))
        elif isinstance(leaf, dict) and {"from", "to"} <= leaf.keys():
            yield TunedKey(prefix + name, _read_span(leaf, inner))
        else:
            yield from _read_keys(leaf, f"{prefix}{name}.", inner)


def _read_span(table: Mapping[str, Any], place: Location) -> Span:
    for name in table:
        if name not in ("from", "to", "scale"):
            raise place.inner(name).error(unknown("key", name, ("from", "to", "scale")))
    ends = [table["from"], table["to"]]
    if not all(type(end) in (int, float) and math.isfinite(end) for end in ends):
        raise place.error(f"{shown(ends)} are not two numbers; write {{ from = 0.1, to = 100.0 }}")
    low, high = map(float, ends)
    scale = table.get("scale", "log" if low > 0 else "linear")
    if scale not in ("log", "linear"):
        raise place.inner("scale").error(unknown("value", scale, ("log", "linear")))
    if not low < high or (scale == "log" and low <= 0):
        raise place.error(
            f'from {low:g} to {high:g} is no range on this scale; from < to, and above 0 for scale = "log"'
        )
    return Span(low, high, scale)
