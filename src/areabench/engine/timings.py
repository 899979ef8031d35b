"""The times of updates, kept in bounded memory during a run: all of them, or an even sample of very many."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import row_struct
from areabench.engine.messages import Flag, UpdateHeader

TIMING = np.dtype(
    [
        ("client", "<i4"), ("drawn_s", "<f8"), ("realised_s", "<f8"), ("reply_s", "<f8"), ("compute_s", "<f8"),
        ("queue_s", "<f8"), ("service_s", "<f8"), ("flags", "u1"),
    ]
)  # fmt: skip
MOST_ROWS = 2**17  # 7 MB; halving them takes some milliseconds, in which no client is served
_ROWS_AT_ONCE = 2**12  # that are thinned out: large pieces of memory that come and go leave holes
_ROW = row_struct(TIMING)
_OVERRUN = int(Flag.OVERRUN)


class Timings:
    """Takes the times of every update; costs half a microsecond and no input or output."""

    def __init__(self, clients: int, most_rows: int = MOST_ROWS) -> None:
        self.overruns = 0
        self._compute_s = [0.0] * clients
        self._room = bytearray(most_rows * _ROW.size)  # all of it from the start: one that grows leaves holes in memory
        self._used = 0  # bytes
        self._stride = self._countdown = 1
        # Gaps between the updates kept are drawn: clients that take turns would meet a fixed stride again and again.
        self._draw = random.Random(0)

    def add(self, header: UpdateHeader, queue_s: float, service_s: float) -> None:
        """Add an update."""
        self._compute_s[header.client] += header.compute_s
        if header.flags & _OVERRUN:  # integers; `in` takes longer than all the rest
            self.overruns += 1
        # Every update counts for the sums above; the row is kept only when its turn has come.
        self._countdown -= 1
        if self._countdown:
            return
        _ROW.pack_into(
            self._room, self._used, header.client, header.drawn_delay_s, header.realised_delay_s, header.reply_s,
            header.compute_s, queue_s, service_s, header.flags,
        )  # fmt: skip
        self._used += _ROW.size
        self._countdown = 1 if self._stride == 1 else self._draw.randrange(1, 2 * self._stride)
        if self._used == len(self._room):
            self._thin()

    @property
    def rows(self) -> NDArray[Any]:
        """What was kept, rows of TIMING."""
        return np.frombuffer(self._room, TIMING)[: self._used // _ROW.size].copy()

    @property
    def compute_s(self) -> NDArray[np.float64]:
        """How long each client has computed, all updates counted, shape (clients,)."""
        return np.array(self._compute_s)

    def _thin(self) -> None:
        """Keep a random half, and half as many of those to come."""
        rows = np.frombuffer(self._room, TIMING)
        used = 0
        draw = np.random.default_rng(self._stride)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            block = rows[first : first + _ROWS_AT_ONCE]
            kept = block[draw.random(len(block)) < 0.5]
            rows[used : used + len(kept)] = kept
            used += len(kept)
        self._used = used * _ROW.size
        self._stride *= 2
