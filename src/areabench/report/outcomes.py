"""What became of each trial on its way to the target accuracy: reached, or in which way that is not known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from areabench.report.records import Outcome
from areabench.schema import ENDED, State
from areabench.sweeps.results import Result


def outcome_of(result: Result, target: float) -> Outcome:
    """One trial; `target` in percent. The time is that of reaching it, else the end of what was seen."""
    time_s = result.time_to_accuracy(target)
    if math.isfinite(time_s):
        return Outcome("reached", time_s, result.experiment.seed)
    return Outcome(_other_end(result, time_s), result.status.end_s, result.experiment.seed)


def _other_end(result: Result, time_s: float) -> str:
    """Why the target was not reached: the run was long enough, or it ended otherwise."""
    state = result.status.state
    if state == State.DIVERGED:
        return "diverged"
    if state not in ENDED:
        return "unfinished"
    if state == State.TARGET or result.ended_early:
        return "ended early"
    return "not measured" if math.isnan(time_s) else "not reached"


def median_reached_s(outcomes: Sequence[Outcome]) -> float:
    """Median over all trials, those that are not known to have reached the target later than all; may be infinite.

    The mean of those that reached it would make a method look fast whose slow trials did not.
    """
    return statistics.median(outcome.time_s if outcome.kind == "reached" else math.inf for outcome in outcomes)
