"""A comparison of two runs as text and as a record for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from areabench.arrivals import Order, Shift
from areabench.comparison import Pair, RunComparison, Trajectory, is_within
from areabench.reading import Run
from areabench.tables.runs import align, number
from areabench.tables.words import describe_setting

_CLOCKS = {"simulator": "simulated", "mpi": "real time"}
_NO_EVENTS = "not known: a run has no event log (record.events = false)"


@dataclass(frozen=True)
class Tolerances:
    """By how many per cent the second run may differ from the first."""

    updates: float = 3.0
    loss: float = 2.0


def holds(found: RunComparison, within: Tolerances) -> bool:
    """Whether updates and final loss are both within their tolerances."""
    return is_within(found.updates, within.updates) and is_within(found.loss.final, within.loss)


def run_names(first: Run, second: Run) -> tuple[str, str]:
    """What to call two runs: by their clocks where these differ."""
    names = [_CLOCKS.get(run.provenance.transport, run.provenance.transport) for run in (first, second)]
    return (names[0], names[1]) if names[0] != names[1] else ("first", "second")


def comparison_record(first: Run, second: Run, found: RunComparison, within: Tolerances) -> dict[str, Any]:
    """Every number, for a program."""
    runs = [{"file": str(run.path), "transport": run.provenance.transport} for run in (first, second)]
    verdict = {
        "updates_within_percent": within.updates,
        "updates_hold": is_within(found.updates, within.updates),
        "loss_within_percent": within.loss,
        "loss_holds": is_within(found.loss.final, within.loss),
    }
    return {"runs": runs, **asdict(found), "verdict": verdict}


# ---------------------------------------------------------------------------------------------------- text


def comparison_text(first: Run, second: Run, found: RunComparison, within: Tolerances) -> str:
    """Which runs, a table of counts and ends, how far apart the two are, and the verdict."""
    names, experiment = run_names(first, second), first.experiment
    method = experiment.method
    width = max(map(len, names))
    heading = f"{method.name}, step size {method.step_size:g}, {describe_setting(experiment)}, seed {experiment.seed}\n"
    files = "".join(f"  {name:<{width}}  {run.path}\n" for name, run in zip(names, (first, second), strict=True))
    return f"{heading}{files}\n{_counts(found, names)}\n{_distances(found, names)}\n{_verdict(found, within)}"


def _counts(found: RunComparison, names: tuple[str, str]) -> str:
    rows = [
        _row("updates", found.updates, 0),
        _row(f"of client {found.client}, where they differ most", found.client_updates, 0),
        _row("server steps", found.server_steps, 0),
        _row("mean staleness", found.mean_staleness, 2),
        _row("final loss", found.loss.final, 4),
        _row("final accuracy %", found.accuracy.final, 2),
    ]
    return align([["", *names, "difference"], *rows])


def _row(name: str, pair: Pair, digits: int) -> list[str]:
    return [name, number(pair.first, digits), number(pair.second, digits), _percent(pair)]


def _percent(pair: Pair) -> str:
    return f"{pair.difference_percent:+.2f} %" if math.isfinite(pair.difference_percent) else "-"


def _distances(found: RunComparison, names: tuple[str, str]) -> str:
    lines = [("staleness", f"distributions {number(found.staleness_distance, 3)} server steps apart")]
    lines += _order_lines(found.order, names) if found.order else [("order", _NO_EVENTS)]
    lines += [("time shift", _shift_words(found.shift, names) if found.shift else _NO_EVENTS)]
    lines += [("loss", _trajectory_words(found.loss, 4)), ("accuracy %", _trajectory_words(found.accuracy, 2))]
    return "".join(f"{name:<12}{words}\n" for name, words in lines)


def _order_lines(order: Order, names: tuple[str, str]) -> list[tuple[str, str]]:
    alone = f"{order.only_first:,} only {names[0]}, {order.only_second:,} only {names[1]}"
    moved = order.places_moved
    begins = "the sequences are equal"
    if order.differs_at is not None:
        begins = f"the sequences first differ at arrival {order.differs_at + 1:,} ({order.differs_at_s:.4f} s)"
    return [
        ("arrivals", f"{order.common:,} in both runs, {alone}; {begins}"),
        ("order", f"{100 * order.distance:.3f} % of the pairs of common arrivals come in the other order"),
        ("", f"places moved: {moved.p50:,.0f} (p50), {moved.p95:,.0f} (p95), {moved.p99:,.0f} (p99)"),
    ]


def _shift_words(shift: Shift, names: tuple[str, str]) -> str:
    late = shift.seconds
    quantiles = f"{1e3 * late.p50:+.1f} ms (p50), {1e3 * late.p95:+.1f} ms (p95), {1e3 * late.p99:+.1f} ms (p99)"
    line = f"{1e3 * shift.offset_s:+.1f} ms at the start and {shift.drift_percent:+.2f} % of the time"
    return f"{names[1]} minus {names[0]}: {quantiles}; as a line, {line}"


def _trajectory_words(trajectory: Trajectory, digits: int) -> str:
    if not trajectory.times:
        return "no values at common times"
    largest = f"{number(trajectory.largest, digits)} apart at most, at {trajectory.largest_at_s:g} s"
    return f"{largest} ({trajectory.times:,} common times)"


def _verdict(found: RunComparison, within: Tolerances) -> str:
    checks = (("updates", found.updates, within.updates), ("final loss", found.loss.final, within.loss))
    return "".join(
        f"{name} within {percent:g} %: {'yes' if is_within(pair, percent) else 'NO'} ({_percent(pair)})\n"
        for name, pair, percent in checks
    )
