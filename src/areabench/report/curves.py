"""Accuracy and loss along three axes, thinned to what a screen can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.figures.data import Band, Quantity, band
from areabench.report.records import Axes, Curves, Line
from areabench.sweeps.results import Result

Axis = Callable[[Result], NDArray[np.float64]]
_NOTHING = np.empty(0)


def axes_of(results: Sequence[Result], most: int) -> Axes:
    """Mean and range of some trials over time, updates received and server steps, at most so many points each."""
    return Axes(
        time=_curves(results, lambda result: result.time_s, most),
        updates=_curves(results, lambda result: result.updates.astype(np.float64), most),
        aggregations=_curves(results, lambda result: result.server_steps.astype(np.float64), most),
    )


def _curves(results: Sequence[Result], axis: Axis, most: int) -> Curves:
    return Curves(_line(results, axis, "test_accuracy", most), _line(results, axis, "train_loss", most))


def _line(results: Sequence[Result], axis: Axis, quantity: Quantity, most: int) -> Line | None:
    along = [_along(result, axis(result), quantity) for result in results if len(axis(result))]
    shown = band(along, quantity)
    if not len(shown.time_s):
        return None
    kept = thinned(shown, most)
    ranges = (shown.low[kept], shown.high[kept]) if len(results) > 1 else (_NOTHING, _NOTHING)
    return Line(shown.time_s[kept], shown.mean[kept], *ranges)


def _along(result: Result, x: NDArray[np.float64], quantity: Quantity) -> Result:
    """The result with another axis in place of time, and the last of the values that share a place on it."""
    values: NDArray[np.float64] = getattr(result, quantity)
    there = np.flatnonzero(np.isfinite(values))
    last = there[np.append(x[there][1:] > x[there][:-1], True)] if len(there) else there
    changed: Any = {quantity: values[last]}
    return replace(result, time_s=x[last], **changed)


def thinned(line: Band, most: int) -> NDArray[np.int64]:
    """Which points to keep: both ends, and of each stretch between them the lowest and the highest."""
    count = len(line.mean)
    if count <= most:
        return np.arange(count)
    stretches = np.array_split(np.arange(1, count - 1), max((most - 2) // 2, 1))
    extremes = [part[[line.mean[part].argmin(), line.mean[part].argmax()]] for part in stretches]
    return np.unique(np.concatenate([[0, count - 1], *extremes]))
