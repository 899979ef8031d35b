"""A split of the user's own: drawn by their function, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from areabench.plugins.call import blaming, call, record_of, refuse
from areabench.problems.splits.rows import Rows, SplitSettings, check_enough
from areabench.settings.keys import NO_SETTINGS, SAMPLE_PATH, SETTINGS_DOC, Settings, key
from areabench.streams import Purpose, stream


@dataclass(frozen=True, kw_only=True)
class OwnSplit(SplitSettings):
    """A function of the user's own, which is executed."""

    own = True
    section: ClassVar[str] = "split"
    base: ClassVar[type] = SplitSettings
    given: ClassVar[tuple[str, ...]] = ("labels", "clients", "generator")

    name: str = SAMPLE_PATH
    settings: Settings = key(SETTINGS_DOC, NO_SETTINGS)

    def rows(self, labels: Rows, clients: int, seed: int) -> Sequence[Rows]:
        """The sorted rows of each client; two clients may hold the same row, and some rows may be held by none."""
        check_enough(self.name, 1, len(labels), clients)
        found, again = (self._draw(labels, clients, seed) for _ in range(2))
        if len(found) != clients:
            refuse(self, f"returned parts for {len(found)} of {clients} clients", "return one per client")
        # Drawn twice, because every rank and every replay draws its own.
        for client, (part, same) in enumerate(zip(found, again, strict=True)):
            if wrong := _wrong_rows(part, len(labels)):
                refuse(self, f"gave client {client} {wrong}", f"give row numbers from 0 to {len(labels) - 1}")
            if not np.array_equal(part, same):
                refuse(self, "gives other parts each time", "draw from its generator only")
        return [np.sort(part).astype(np.int64, copy=False) for part in found]

    def _draw(self, labels: Rows, clients: int, seed: int) -> list[NDArray[Any]]:
        """What the user's function or record gives."""
        if (record := record_of(self)) is not None:
            return list(record.rows(labels, clients, seed))
        parts = call(self, labels=labels, clients=clients, generator=stream(seed, Purpose.SPLIT))
        remedy = "let it return an array of row numbers per client"
        if not hasattr(parts, "__iter__"):
            refuse(self, f"returned {type(parts).__name__}", remedy)
        with blaming(self):  # the function may be a generator, which fails only now
            found = list(parts)
        try:
            return [np.asarray(part) for part in found]
        except (TypeError, ValueError):
            refuse(self, f"returned {type(parts).__name__}", remedy)


def _wrong_rows(part: NDArray[Any], samples: int) -> str:
    """What is wrong with the rows of a client; empty if nothing is."""
    if part.ndim != 1 or not len(part):
        return "no rows" if not part.size else f"an array of shape {part.shape}"
    if part.dtype.kind not in "iu":
        return f"row numbers of type {part.dtype}"
    if part.min() < 0 or part.max() >= samples:
        return f"rows from {part.min()} to {part.max()}"
    return "some row twice" if len(np.unique(part)) < len(part) else ""
