"""How far the rows of a damaged run file make sense; pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.schema import Kind


def good_events(rows: NDArray[Any], clients: int) -> int:
    """How many events from the first on can be true: kinds and clients exist, time and counters go on as they must."""
    kind = rows["kind"]
    used, step = kind <= Kind.STEP, kind == Kind.STEP
    with np.errstate(invalid="ignore"):
        good = np.isfinite(rows["time_s"]) & (rows["time_s"] >= 0) & (kind <= max(Kind)) & _clients_exist(rows, clients)
        good[1:] &= np.diff(rows["time_s"]) >= 0
    good &= ~used | ((rows["iteration"] == np.cumsum(used)) & (rows["version"] == np.cumsum(step)))
    good &= (kind != Kind.UPDATE) | (rows["staleness"] == rows["version"] - rows["base_version"])
    return first_false(good)


def _clients_exist(rows: NDArray[Any], clients: int) -> NDArray[np.bool_]:
    """A step has no client; a refused update may say that it comes from anybody."""
    client = rows["client"]
    exists = (client >= 0) & (client < clients)
    named = np.where(rows["kind"] == Kind.STEP, client == -1, exists)
    return np.asarray(named | (rows["kind"] == Kind.REFUSED))


def good_snapshots(index: NDArray[Any], events: NDArray[Any] | None) -> int:
    """How many snapshots from the first on can be true, beside these events; None where a run kept none."""
    with np.errstate(invalid="ignore"):
        good = np.isfinite(index["time_s"]) & (index["time_s"] >= 0) & (index["event"] >= 0) & (index["version"] >= 0)
        for name in ("time_s", "event", "version"):
            good[1:] &= index[name][1:] >= index[name][:-1]
    if events is not None:
        steps = np.concatenate([[0], np.cumsum(events["kind"] == Kind.STEP)])
        good &= index["event"] <= len(events)
        good &= index["version"] == steps[np.clip(index["event"], 0, len(events))]
    return first_false(good)


def first_false(good: NDArray[np.bool_]) -> int:
    """The number of entries before the first that is false."""
    return len(good) if good.all() else int(good.argmin())
