"""Runs as records for JSON: one in full, several in one line each."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from areabench.as_json import plain
from areabench.reading import Run, Summary
from areabench.schema import METRIC, Kind
from areabench.tables.runs import QUANTILES, measured_columns


def summary_record(path: Path, summary: Summary) -> dict[str, Any]:
    """A run in one line."""
    return {"file": path, **asdict(summary)}


def run_record(run: Run) -> dict[str, Any]:
    """One run in full."""
    return {
        "file": run.path,
        "status": run.status,
        "mean_staleness": run.summary().mean_staleness,
        "staleness": run.staleness,
        "quantiles": _quantiles(run),
        "clients": _clients(run),
        "snapshots": _snapshots(run),
        "diagnosis": run.diagnosis,
        "experiment": run.experiment,
        "provenance": run.provenance,
    }


def _quantiles(run: Run) -> dict[str, dict[str, float]] | None:
    """Of the updates that were used; None where there is none, or no event log."""
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    if not len(updates):
        return None
    names = [f"p{share}" for share in QUANTILES]
    return {
        name: dict(zip(names, np.percentile(values, QUANTILES).tolist(), strict=True))
        for name, values in measured_columns(updates).items()
    }


def _clients(run: Run) -> list[dict[str, Any]]:
    """With the updates of each that were used; null where a killed run does not tell."""
    served: list[int | None] = run.served.tolist() or [None] * len(run.clients_array)
    return [{**row, "served": count} for row, count in zip(plain(run.clients_array), served, strict=True)]


def _snapshots(run: Run) -> list[dict[str, Any]]:
    """When each was taken, and how good it is; null where it was not evaluated."""
    index = run.snapshot_index[["time_s", "version", "event"]]
    metrics = run.metrics_array if len(run.metrics_array) else np.full(len(index), np.nan, METRIC)
    return [{**when, **quality} for when, quality in zip(plain(index), plain(metrics), strict=True)]
