"""A key of an experiment file: what it means, and which values it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What a key means and which values it takes: `minimum`/`maximum` inclusive, `above`/`below` exclusive."""

    doc: str
    unit: str = ""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Whether a number lies within the limits."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def describe(self) -> str:
        """The limits in words, empty when there are none."""
        bounds = [(">=", self.minimum), (">", self.above), ("<=", self.maximum), ("<", self.below)]
        return " and ".join(f"{sign} {bound:.15g}" for sign, bound in bounds if bound is not None)


NO_DEFAULT: Any = object()


def key(
    doc: str,
    default: Any = NO_DEFAULT,
    *,
    unit: str = "",
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
) -> Any:
    """One documented key of an experiment file."""
    metadata = {"limits": Limits(doc, unit, minimum, above, maximum, below)}
    return field(metadata=metadata) if default is NO_DEFAULT else field(default=default, metadata=metadata)
