"""Runs as text: one in detail, several side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.config import to_toml
from areabench.reading import Run, Summary
from areabench.schema import Kind
from areabench.tables.diagnosis import diagnosis_text

QUANTILES = (50, 95, 99)  # percent


def align(rows: Sequence[Sequence[str]]) -> str:
    """A table: the first row is the heading, the first column is flush left, the others flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [(cell, width) for cell, width in zip(row, widths, strict=True)]
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def number(value: float, digits: int) -> str:
    """A number for a table; a dash where there is none, an exponent where it is huge."""
    if math.isnan(value):
        return "-"
    return f"{value:,.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def summary_table(summaries: Sequence[Summary], target: float) -> str:
    """Runs side by side."""
    heading = [
        "method", "alpha", "accuracy %", "loss", f"time to {target:g} %", "updates", "steps", "mean staleness", "status"
    ]  # fmt: skip
    return align([heading, *(_summary_row(summary) for summary in summaries)])


def _summary_row(summary: Summary) -> list[str]:
    reached = "not reached" if math.isnan(summary.target_s) else f"{summary.target_s:.1f} s"
    return [
        summary.method,
        f"{summary.step_size:g}",
        number(summary.test_accuracy, 2),
        number(summary.train_loss, 3),
        reached,
        f"{summary.updates:,}",
        f"{summary.server_steps:,}",
        number(summary.mean_staleness, 2),
        summary.state,
    ]


def describe_run(run: Run) -> str:
    """One run in full, section by section."""
    parts = [_describe_status(run), _describe_quality(run), _describe_events(run), _describe_clients(run)]
    if run.diagnosis is not None:
        parts.append(diagnosis_text(run.diagnosis))
    provenance = [f"{item.name:<14} {getattr(run.provenance, item.name)}" for item in fields(run.provenance)]
    parts += ["experiment\n" + _indent(to_toml(run.experiment)), "provenance\n" + _indent("\n".join(provenance))]
    return f"{run.path}\n\n" + "\n".join(parts)


def _indent(text: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in text.splitlines())


def _describe_status(run: Run) -> str:
    status = run.status
    counts = f"{status.updates:,} updates, {status.server_steps:,} server steps, {status.discarded:,} discarded"
    return f"status\n  {status.state.text}: {status.reason}\n  {counts}; ended at {status.end_s:.3f} s\n"


def _describe_quality(run: Run) -> str:
    """Some of the snapshots, the last one among them."""
    index, metrics = run.snapshot_index, run.metrics_array
    if not len(metrics):
        return f"snapshots\n  {len(index):,}, not evaluated\n"
    chosen = np.unique(np.linspace(0, len(metrics) - 1, 7).astype(int))
    heading = ["time s", "version", "train loss", "accuracy %", "squared distance"]
    rows = [
        [
            f"{index[row]['time_s']:.2f}",
            str(index[row]["version"]),
            number(metrics[row]["train_loss"], 4),
            number(metrics[row]["test_accuracy"], 2),
            "-" if np.isnan(metrics[row]["squared_distance"]) else f"{metrics[row]['squared_distance']:.4g}",
        ]
        for row in chosen
    ]
    return f"snapshots ({len(index):,} in all)\n" + _indent(align([heading, *rows]))


def _describe_events(run: Run) -> str:
    """Delays, computing and service of the updates that were used."""
    if not run.experiment.record.events:
        return f"updates\n  no event log was kept; mean staleness {run.summary().mean_staleness:.2f} versions\n"
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    if not len(updates):
        return "updates\n  none\n"
    measured = measured_columns(updates)
    rows = [["", "p50", "p95", "p99"]]
    for name, column, scale, digits in (
        ("staleness (versions)", "staleness", 1, 0),
        ("drawn delay (ms)", "drawn_delay_s", 1e3, 2),
        ("late against it (ms)", "late_s", 1e3, 3),
        ("computing (ms)", "compute_s", 1e3, 3),
        ("service (ms)", "service_s", 1e3, 3),
    ):
        quantiles = np.percentile(scale * measured[column], QUANTILES)
        rows.append([name, *(f"{value:.{digits}f}" for value in quantiles)])
    overruns = int(np.count_nonzero(updates["flags"] & 1))
    return "updates\n" + _indent(align(rows)) + f"  {overruns:,} of {len(updates):,} were not ready when due\n"


def measured_columns(updates: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What is told of the updates that were used: columns of EVENT, and by how much each came later than drawn."""
    columns = {name: updates[name] for name in ("staleness", "drawn_delay_s", "compute_s", "service_s")}
    return {**columns, "late_s": updates["realised_delay_s"] - updates["drawn_delay_s"]}


def _describe_clients(run: Run) -> str:
    """How evenly the clients took part."""
    clients, served = run.clients_array, run.served
    updates = f", updates {served.min():,} to {served.max():,}" if len(served) else ""  # a killed run may not tell
    return (
        f"clients\n  {len(clients):,}; rates {clients['rate'].min():.3g} to {clients['rate'].max():.3g} 1/s, "
        f"samples {clients['samples'].min():,} to {clients['samples'].max():,}{updates}\n"
    )
