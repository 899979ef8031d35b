"""The page of a soak: verdicts with their thresholds, and a table over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from bench_page import describe_machine, markdown_table
from soak_samples import SHARES, WINDOW_S, Samples, Series, Window

from areabench.engine.events import State, Status

MOST_GROWTH_MB_AN_HOUR = 4.0  # of a rank that hosts clients
MOST_SERVER_GROWTH_MB_AN_HOUR = 8.0  # it keeps an even sample of the times of updates: 4 to 8 MB, halved when full
LEAST_LINEARITY = 0.999  # R² of the file's size over time
MOST_RESIDUAL = 0.02  # of the file's growth
MOST_DRIFT = 1.25  # median and 95 % quantile of the reply latency, last against first
WARM_UP_S = 300.0  # or a quarter of a shorter run
COMPARED_S = 600.0  # length in seconds of the first and the last part, or a third of a shorter run
ROWS = 12  # of the table


@dataclass(frozen=True)
class Soak:
    """The settings of a soak, and what was measured."""

    minutes: float
    clients: int
    rate: float
    ranks: int
    samples: Samples
    windows: Sequence[Window]
    status: Status
    sample_s: float = 10.0

    @property
    def warm_s(self) -> float:
        """The time from which memory and file are judged."""
        return min(WARM_UP_S, 15 * self.minutes)


@dataclass(frozen=True)
class Verdict:
    """One line: what was measured, against which threshold."""

    text: str
    holds: bool


def holds(soak: Soak) -> bool:
    """Whether everything is within its threshold."""
    return all(verdict.holds for verdict in verdicts(soak))


def verdicts(soak: Soak) -> list[Verdict]:
    """All verdicts."""
    done = soak.status.state == State.DONE
    return [
        Verdict(f"the run ended as {soak.status.state.text} ({soak.status.reason})", done),
        *_memory_verdicts(soak),
        _file_verdict(soak.samples.file.after(soak.warm_s)),
        *(_latency_verdict(soak, share) for share in (0, 1)),
    ]


def slope_an_hour(series: Series) -> float:
    """The slope of the line of least squares, units per hour."""
    if len(series.time_s) < 2:
        return math.nan
    return float(np.polyfit(series.time_s / 3600, series.value, 1)[0])


def _memory_verdicts(soak: Soak) -> list[Verdict]:
    slopes = {rank: slope_an_hour(series.after(soak.warm_s)) / 1e6 for rank, series in soak.samples.memory.items()}
    workers = {rank: slope for rank, slope in slopes.items() if rank > 0}
    worst = max(workers, key=lambda rank: abs(workers[rank]), default=-1)
    return [
        _memory_verdict("the server's rank", slopes.get(0, math.nan), MOST_SERVER_GROWTH_MB_AN_HOUR),
        _memory_verdict(
            f"of the {len(workers)} other ranks the one with the steepest slope",
            workers.get(worst, math.nan),
            MOST_GROWTH_MB_AN_HOUR,
        ),
    ]


def _memory_verdict(who: str, slope: float, most: float) -> Verdict:
    return Verdict(f"memory, {who}: {slope:+.2f} MB per hour (at most {most:g})", abs(slope) <= most)


def linearity(series: Series) -> tuple[float, float]:
    """R² of the line of least squares, and the largest residual as a share of the growth; NaN for too few samples."""
    if len(series.time_s) < 2:
        return math.nan, math.nan
    line = np.polynomial.Polynomial.fit(series.time_s, series.value, 1)(series.time_s)
    residual = series.value - line
    spread = series.value - series.value.mean()
    growth = max(float(np.ptp(series.value)), 1.0)
    return 1 - float((residual**2).sum() / max((spread**2).sum(), 1e-9)), float(np.abs(residual).max()) / growth


def _file_verdict(series: Series) -> Verdict:
    squared, residual = linearity(series)
    return Verdict(
        f"the run file grows by {slope_an_hour(series) / 1e6:,.1f} MB per hour, on a line: R² = {squared:.5f} "
        f"(at least {LEAST_LINEARITY:g}), largest residual {100 * residual:.2f} % of the growth "
        f"(at most {100 * MOST_RESIDUAL:g} %)",
        squared >= LEAST_LINEARITY and residual <= MOST_RESIDUAL,
    )


def _latency_verdict(soak: Soak, share: int) -> Verdict:
    compared_s = max(WINDOW_S, min(COMPARED_S, 20 * soak.minutes))
    first = [one.reply_s[share] for one in soak.windows if one.middle_s < compared_s]
    last = [one.reply_s[share] for one in soak.windows if one.middle_s >= 60 * soak.minutes - compared_s]
    early_ms, late_ms = (1e3 * median(part) if part else float("nan") for part in (first, last))
    ratio = late_ms / early_ms
    return Verdict(
        f"reply latency, {100 * SHARES[share]:g} %: {early_ms:.2f} ms in the first and {late_ms:.2f} ms in the last "
        f"{compared_s / 60:.2g} minutes (medians of the minutes), {ratio:.2f} times (at most {MOST_DRIFT:g})",
        ratio <= MOST_DRIFT,
    )


# ------------------------------------------------------------------------------------------------------ the page


def page(soak: Soak, figure: str) -> str:
    """The whole page."""
    lines = [f"- {'holds' if verdict.holds else '**does not hold**'}: {verdict.text}" for verdict in verdicts(soak)]
    command = f"python benchmarks/perf/soak.py --minutes {soak.minutes:g} --clients {soak.clients} --rate {soak.rate:g}"
    if soak.ranks != soak.clients + 1:
        command += f" --ranks {soak.ranks}"
    parts = [
        "# Soak",
        f"`{command}`: AREA, logistic regression on MNIST, {soak.clients} clients on {soak.ranks} ranks, "
        f"{soak.rate:,.0f} updates per second nominal, event log on; "
        f"{soak.status.updates:,} updates in {soak.status.end_s / 60:.3g} minutes.",
        "\n".join(lines),
        f"![Memory of the ranks, size of the run file and reply latency over time]({figure})",
        f"Memory is a rank's own and its part of shared pages (Pss), one sample every {soak.sample_s:g} seconds; "
        f"slopes are those of lines of least squares after the first {soak.warm_s / 60:g} minutes. *Reply*: from a "
        "client's update until the answer was there, on the client's clock; *service*: what the server took to answer.",
        markdown_table([_head(), *(_row(soak, *pair) for pair in pairwise(_borders(soak)))]).rstrip(),
        describe_machine(),
    ]
    return "\n\n".join(parts) + "\n"


def _head() -> tuple[str, ...]:
    return (
        "minutes", "updates/s", "reply p50", "p95", "p99 ms", "service p50", "p99 ms", "server MB", "largest other MB",
        "file MB", "checkpoint MB",
    )  # fmt: skip


def _borders(soak: Soak) -> list[float]:
    """Where the rows of the table begin and end, in seconds: whole minutes."""
    every = max(1, round(soak.minutes / ROWS))
    return [60.0 * every * number for number in range(math.ceil(soak.minutes / every) + 1)]


def _row(soak: Soak, begin_s: float, end_s: float) -> tuple[str, ...]:
    windows = [one for one in soak.windows if begin_s <= one.begin_s < end_s]
    samples = soak.samples
    taken_s = min(end_s, 60 * soak.minutes)
    others = [_latest(series, taken_s) for rank, series in samples.memory.items() if rank > 0]
    replies = (
        [f"{1e3 * median(one.reply_s[share] for one in windows):.2f}" for share in range(3)] if windows else [""] * 3
    )
    services = (
        [f"{1e3 * median(one.service_s[share] for one in windows):.3f}" for share in (0, 2)] if windows else [""] * 2
    )
    rate = sum(one.updates for one in windows) / max(taken_s - begin_s, 1e-9)
    server = _latest(samples.memory[0], taken_s) if 0 in samples.memory else 0.0
    files = (_latest(series, taken_s) for series in (samples.file, samples.checkpoint))
    sizes = (server, max(others, default=0.0), *files)
    return (
        f"{begin_s / 60:g} – {taken_s / 60:g}", f"{rate:,.0f}", *replies, *services,
        *(f"{size / 1e6:,.1f}" for size in sizes),
    )  # fmt: skip


def _latest(series: Series, time_s: float) -> float:
    """The last sample before a time; 0 where there is none."""
    before = series.value[series.time_s <= time_s]
    return float(before[-1]) if len(before) else 0.0
