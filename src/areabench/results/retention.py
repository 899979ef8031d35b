"""Which step sizes a table keeps: named rules over the runs of one table, rates setting and method.

A rule takes all runs of the grid that ended, diverged ones included, and the planned seeds; it says which step sizes
are shown, and on which trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from areabench.errors import UserError
from areabench.sweeps.choose import edges, score_of
from areabench.sweeps.read import Sweep
from areabench.sweeps.result import Result
from areabench.sweeps.tune import Metric

RuleName = Literal["best", "all"]


@dataclass(frozen=True)
class Selection:
    """What a rule keeps."""

    step_sizes: tuple[float, ...]  # ascending
    seeds: tuple[int, ...]  # of the trials to show, done or not, ascending
    reason: str = ""  # why there is no step size, where the runs are not to blame
    note: str = ""  # what else to say about the choice


@dataclass(frozen=True)
class Rule:
    """A rule with its name and a sentence for readers of the table."""

    name: str
    sentence: str
    choose: Callable[[Sequence[Result], Sequence[int]], Selection]  # from runs and planned seeds
    notes: tuple[str, ...] = ()  # about all that it keeps


def named_rule(name: RuleName, metric: Metric = "accuracy", target: float = 80.0) -> Rule:
    """The rule of a name; `metric` and `target` (%) are options of `best`."""
    if name == "all":
        if metric != "accuracy":
            raise UserError(f"--metric {metric}: has no meaning with --keep all; add --keep best, or leave it out")
        return Rule(name, "every step size of the grid", every)
    words = {
        "accuracy": "highest mean accuracy",
        "loss": "lowest mean loss",
        "time": f"shortest mean time to {target:g} %",
    }
    sentence = (
        f"of each method the step size with the {words[metric]}, chosen on the first half of the trials (the lower "
        "seeds) and reported on the second half, so the choice is not made on the numbers shown"
    )
    return Rule(name, sentence, partial(best_by, metric=metric, target=target))


def rule_of(sweep: Sweep, rule: Rule) -> Rule:
    """The rule for a sweep: a tuned one has made its choice."""
    if sweep.tuning is None:
        return rule
    return Rule("tuned", sweep.tuning.sentence, every, sweep.tuning.notes)


# ---------------------------------------------------------------------------------------------------- rules


def best_by(results: Sequence[Result], seeds: Sequence[int], metric: Metric, target: float = 80.0) -> Selection:
    """The step size with the best mean of the metric on the first half of the trials, reported on the second half.

    The planned seeds are halved, so all methods are shown on the same ones. A step size with a diverged trial in the
    first half is out. The smaller of two equally good ones is kept.
    """
    ordered = tuple(sorted(set(seeds)))
    if len(ordered) < 2:
        raise UserError(
            f"the best step size is chosen on half of the trials and shown on the others, but {len(ordered)} is "
            "planned; run at least 2 trials, or keep another way: --keep all"
        )
    chosen_on = ordered[: len(ordered) // 2]
    shown_on = ordered[len(ordered) // 2 :]
    validation = [result for result in results if result.experiment.seed in chosen_on]
    if not validation:
        words = ", ".join(map(str, chosen_on))
        return Selection((), shown_on, f"none of the trials to choose on is done (seeds {words})")
    scores = [
        (score_of(trials, metric, target), size)
        for size, trials in by_step_size(validation)
        if not any(trial.has_diverged for trial in trials)
    ]
    if not scores:
        return Selection((), shown_on)
    best = min(scores)[1]
    # The edge is that of all step sizes that were run, diverged ones included: they were tried.
    tried = by_step_size(results)
    if not any(trial.experiment.seed in shown_on for trial in dict(tried)[best]):
        words = ", ".join(map(str, shown_on))
        return Selection((), shown_on, f"none of the trials to show is done at {best:g} (seeds {words})")
    at_edge = edges([(("step_size", size),) for size, _ in tried], (("step_size", best),))
    return Selection((best,), shown_on, note=", ".join(at_edge))


def every(results: Sequence[Result], seeds: Sequence[int]) -> Selection:
    """All step sizes, all trials."""
    return Selection(tuple(size for size, _ in by_step_size(results)), tuple(sorted(set(seeds))))


def by_step_size(results: Sequence[Result]) -> list[tuple[float, list[Result]]]:
    """Runs by step size, ascending."""
    groups: dict[float, list[Result]] = {}
    for result in results:
        groups.setdefault(result.experiment.method.step_size, []).append(result)
    return sorted(groups.items())
