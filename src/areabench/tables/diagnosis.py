"""The diagnosis of a run as text: a dozen aligned lines, the verdict last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from areabench.diagnosis import Diagnosis
from areabench.verdict import Cause

_NAMED = 3  # clients that were served too little and are named; the others are counted
_STARVED = 5.0  # percent of the time that a server waits for a core, from which on it is said
_MEASURED = (
    ("late_s", "late (ms)"),
    ("reply_s", "reply (ms)"),
    ("queue_s", "queue wait (ms)"),
    ("service_s", "service (ms)"),
    ("compute_s", "computing (ms)"),
)


def diagnosis_text(found: Diagnosis) -> str:
    """The whole diagnosis; of a simulated run without what only real time has."""
    entries = [("updates", _updates(found)), ("clients", _clients(found)), ("delay", _delay(found))]
    if found.cause not in (Cause.VIRTUAL, Cause.NOTHING):
        entries += [("", f"{'p50':>10}{'p95':>10}{'p99':>10}")]
        entries += [(label, _quantiles(found, column)) for column, label in _MEASURED]
        entries += [("overruns", _overruns(found)), ("load", _load(found)), ("launch", _launch(found))]
    entries.append(("verdict", found.advice))
    return "diagnosis\n" + "".join(f"  {label:<17}{text}\n" for label, text in entries if text)


def _updates(found: Diagnosis) -> str:
    rate = found.updates / found.duration_s
    if not found.expected_updates > 0:  # a method that calls its clients, or a horizon shorter than every delay
        return f"{found.updates:,} in {found.duration_s:g} s, {rate:.4g}/s"
    share, nominal = 100 * found.updates / found.expected_updates, found.expected_updates / found.duration_s
    return f"{found.updates:,} of {found.expected_updates:,.0f} expected ({share:.1f} %): {rate:.4g} of {nominal:.4g}/s"


def _clients(found: Diagnosis) -> str:
    """Those who were served less than chance allows, by name as far as there is room."""
    count, short = len(found.clients), found.short
    if np.isnan(found.clients["expected"]).any():
        why = "their trace is gone, or the method or the delays are from outside the package"
        return f"{count:,}; nobody knows how often each should have been served: {why}"
    if not len(short):
        return f"{count:,}, none served less than chance allows"
    named = ", ".join(_short_client(row) for row in short[:_NAMED])
    others = f" and {len(short) - _NAMED:,} more" if len(short) > _NAMED else ""
    return f"{len(short):,} of {count:,} served less than chance allows: {named}{others}"


def _short_client(row: Any) -> str:
    return f"client {row['client']} ({row['served']:,} of {row['expected']:,.4g}, at least {row['low']:,.0f})"


def _delay(found: Diagnosis) -> str:
    drawn_s, realised_s = found.mean_drawn_s, found.mean_realised_s
    if math.isnan(drawn_s):
        return ""
    if found.cause == Cause.VIRTUAL:
        return f"{1e3 * drawn_s:,.4g} ms on average"
    longer = 100 * (realised_s / drawn_s - 1)
    return f"drawn {1e3 * drawn_s:,.4g} ms, realised {1e3 * realised_s:,.4g} ms on average ({longer:+.1f} %)"


def _quantiles(found: Diagnosis, column: str) -> str:
    values = [1e3 * found.quantile(column, share) for share in (50, 95, 99)]
    return "".join(f"{'-':>10}" if math.isnan(value) else f"{value:>10,.3f}" for value in values)


def _overruns(found: Diagnosis) -> str:
    share = 100 * found.overruns / max(found.updates, 1)
    usual = found.expected_overruns
    expected = "" if math.isnan(usual) else f"; {usual:.1f} % of the delays are shorter than reply and computing"
    return f"{found.overruns:,} of {found.updates:,} updates were not ready when due ({share:.1f} %){expected}"


def _load(found: Diagnosis) -> str:
    parts = []
    if not math.isnan(found.server_load):
        starved = f" (short of a core {_share(found.server_starved)})" if found.server_starved > _STARVED else ""
        parts.append(f"server busy {_share(found.server_load)}{starved}")
    if found.busiest_rank > 0:
        parts.append(f"rank {found.busiest_rank}, the busiest, computes {_share(found.busiest_load)}")
    if not math.isnan(found.core_load):
        parts.append(f"ranks use {_share(found.core_load)} of their host's {found.cores} cores")
    return "; ".join(parts)


def _share(value: float) -> str:
    """Percent, with a decimal where there are few."""
    return f"{value:.{0 if value >= 10 else 1}f} %"


def _launch(found: Diagnosis) -> str:
    if not found.ranks:
        return ""
    stretch = "" if found.stretch == 1 else f"; clock.stretch = {found.stretch:g}"
    return f"ready after {found.start_up_s:.1f} s; {size(found.memory_bytes)} in {found.ranks} ranks{stretch}"


def size(count: float) -> str:
    """A number of bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
