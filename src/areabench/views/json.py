"""What commands print as JSON: any record as plain values, and the records of runs and comparisons."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from areabench.engine.events import Kind
from areabench.results.comparison import RunComparison, is_within
from areabench.runfile.read import Run, Summary
from areabench.runfile.schema import METRIC
from areabench.views.text import QUANTILES, Tolerances, measured_columns

Shorten = Callable[[float], float]


def to_json(value: Any, *, in_one_line: bool = False) -> str:
    """A record, table, list or mapping as JSON; ends with a line break, and has no control character elsewhere."""
    return json.dumps(plain(value), indent=None if in_one_line else 2, allow_nan=False) + "\n"


def plain(value: Any, shorten: Shorten | None = None) -> Any:
    """The same value in types that JSON has; NaN and infinity become null.

    `shorten` rounds every number that is not whole; a field of a record may have its own in its metadata.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if shorten is None:
            return value
        rounded = shorten(value)
        if rounded.is_integer() and abs(rounded) < 1e15:
            return int(rounded)
        return rounded
    if isinstance(value, list | tuple):
        return [plain(entry, shorten) for entry in value]
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [dict(zip(value.dtype.names, plain(row), strict=True)) for row in value.tolist()]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), shorten)
    if isinstance(value, Enum):
        if isinstance(value, str):
            return value.value
        return getattr(value, "text", value.name.lower())
    if is_dataclass(value):
        return {
            item.name: plain(getattr(value, item.name), item.metadata.get("shorten", shorten)) for item in fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(entry, shorten) for key, entry in value.items()}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Path):
        return str(value)
    return value


def summary_record(path: Path, summary: Summary, settings: str) -> dict[str, Any]:
    """One run in short, and the settings in which it differs from the others."""
    return {"file": path, **asdict(summary), "settings": settings}


def run_record(run: Run) -> dict[str, Any]:
    """One run in full; what a run has not recorded is None."""
    events = None
    quantiles = None
    if run.experiment.record.events:
        rows = run.events_array
        counts = np.bincount(rows["kind"], minlength=len(Kind)).tolist()
        events = {kind.text: counts[kind] for kind in Kind}
        updates = rows[rows["kind"] == Kind.UPDATE]
        if len(updates):
            names = [f"p{share}" for share in QUANTILES]
            quantiles = {
                name: dict(zip(names, np.percentile(values, QUANTILES).tolist(), strict=True))
                for name, values in measured_columns(updates).items()
            }
    clients = plain(run.clients_array)
    served = run.served.tolist() or [None] * len(clients)  # a killed run may not know them
    index = run.snapshot_index[["time_s", "version", "event"]]
    metrics = run.metrics_array
    if not len(metrics):  # not evaluated
        metrics = np.full(len(index), np.nan, METRIC)
    return {
        "file": run.path,
        "status": {name: value for name, value in vars(run.status).items() if name != "unevaluated"},  # not in the file
        "events": events,
        "clipped": run.clipped if run.experiment.privacy is not None else None,
        "mean_staleness": run.summary().mean_staleness,
        "staleness": run.staleness,
        "quantiles": quantiles,
        "clients": [{**row, "served": count} for row, count in zip(clients, served, strict=True)],
        "snapshots": [{**when, **found} for when, found in zip(plain(index), plain(metrics), strict=True)],
        "diagnosis": run.diagnosis,
        "experiment": run.experiment,
        "provenance": run.provenance,
    }


def comparison_record(first: Run, second: Run, found: RunComparison, within: Tolerances) -> dict[str, Any]:
    """Two runs compared: every number, and the verdict."""
    runs = [{"file": run.path, "transport": run.provenance.transport} for run in (first, second)]
    verdict = {
        "updates_within_percent": within.updates,
        "updates_hold": is_within(found.updates, within.updates),
        "loss_within_percent": within.loss,
        "loss_holds": is_within(found.loss.final, within.loss),
    }
    return {"runs": runs, **asdict(found), "verdict": verdict}
