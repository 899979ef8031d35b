"""Which step sizes a table keeps: named rules over the runs of one table, rates setting and method.

A rule takes all runs of the grid that ended, diverged ones included, and the planned seeds; it says which step sizes
are shown, and on which trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from areabench.errors import UserError
from areabench.results.published import published
from areabench.sweeps.choose import edges, score_of
from areabench.sweeps.read import Result, Sweep
from areabench.sweeps.tune import Metric

RuleName = Literal["published", "paper-rule", "best", "all", "tuned"]
SINGLE_PRECISION_GAP = 103.0  # exp(-103.3) is the smallest positive float32; beyond it log(softmax) is -inf


@dataclass(frozen=True)
class Choice:
    """What a rule keeps."""

    step_sizes: tuple[float, ...]  # ascending
    seeds: tuple[int, ...]  # of the trials to show, done or not, ascending
    reason: str = ""  # why there is no step size, where the runs are not to blame
    note: str = ""  # what else to say about the choice


@dataclass(frozen=True)
class Rule:
    """A rule with its name and a sentence for readers of the table."""

    name: RuleName
    sentence: str
    choose: Callable[[Sequence[Result], Sequence[int]], Choice]  # from runs and planned seeds
    notes: tuple[str, ...] = ()  # about all that it keeps


def named_rule(
    name: RuleName, metric: Metric = "accuracy", bound: float = math.inf, gap: float = math.inf, target: float = 80.0
) -> Rule:
    """The rule of a name; `metric` and `target` (%) are options of `best`, `bound` and `gap` of `paper-rule`."""
    _check_options(name, metric, bound, gap)
    match name:
        case "paper-rule":
            beyond = f", and at most {bound:g}," if math.isfinite(bound) else ""
            beyond += f", with a score gap of at most {gap:g}," if math.isfinite(gap) else ""
            sentence = f"of each method the two largest step sizes whose final loss is finite{beyond} in all trials"
            return Rule(name, sentence, partial(largest_finite, bound=bound, gap=gap))
        case "best":
            words = {"accuracy": "highest mean accuracy", "loss": "lowest mean loss"}
            words["time"] = f"shortest mean time to {target:g} %"
            sentence = (
                f"of each method the step size with the {words[metric]}, chosen on the first half of the trials (the "
                "lower seeds) and reported on the second half, so the choice is not made on the numbers shown"
            )
            return Rule(name, sentence, partial(best_by, metric=metric, target=target))
        case "published":
            return Rule(name, "of each method the step sizes that the paper's table shows", as_published)
        case "all" | "tuned":
            return Rule(name, "every step size of the grid", every)


def rule_of(sweep: Sweep, rule: Rule) -> Rule:
    """The rule for a sweep: a tuned one has made its choice."""
    if sweep.tuning is None:
        return rule
    return Rule("tuned", sweep.tuning.sentence, every, sweep.tuning.notes)


def _check_options(name: RuleName, metric: Metric, bound: float, gap: float) -> None:
    """Options of another rule are refused, not ignored."""
    if name != "best" and metric != "accuracy":
        raise UserError(f"--metric {metric}: has no meaning with --keep {name}; add --keep best, or leave it out")
    for option, value in (("--bound", bound), ("--gap", gap)):
        if math.isnan(value):
            raise UserError(f"{option} nan: is not a number; give one, or leave it out")
        if name != "paper-rule" and value != math.inf:
            raise UserError(f"{option} {value:g}: has no meaning with --keep {name}; use --keep paper-rule")


# ---------------------------------------------------------------------------------------------------- rules


def largest_finite(
    results: Sequence[Result], seeds: Sequence[int], count: int = 2, bound: float = math.inf, gap: float = math.inf
) -> Choice:
    """The paper's rule: the `count` largest step sizes that end with a finite loss (see `is_finite`) in all trials."""
    finite = [size for size, trials in _by_step_size(results) if all(is_finite(trial, bound, gap) for trial in trials)]
    return Choice(tuple(finite[-count:]), _ascending(seeds))


def best_by(results: Sequence[Result], seeds: Sequence[int], metric: Metric, target: float = 80.0) -> Choice:
    """The step size with the best mean of the metric on the first half of the trials, reported on the second half.

    The planned seeds are halved, so all methods are shown on the same ones. A step size with a diverged trial in the
    first half is out. The smaller of two equally good ones is kept.
    """
    chosen_on, shown_on = _halves(seeds)
    validation = [result for result in results if result.experiment.seed in chosen_on]
    if not validation:
        return Choice((), shown_on, f"none of the trials to choose on is done (seeds {_listed(chosen_on)})")
    scores = [
        (score_of(trials, metric, target), size)
        for size, trials in _by_step_size(validation)
        if all(is_finite(trial) for trial in trials)
    ]
    if not scores:
        return Choice((), shown_on)
    best = min(scores)[1]
    if not any(trial.experiment.seed in shown_on for trial in results if trial.experiment.method.step_size == best):
        return Choice((), shown_on, f"none of the trials to show is done at {best:g} (seeds {_listed(shown_on)})")
    sizes = [size for size, _ in _by_step_size(results)]
    at_edge = edges([(("step_size", size),) for size in sizes], (("step_size", best),))
    return Choice((best,), shown_on, note=", ".join(at_edge))


def _halves(seeds: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lower seeds and the higher ones, of which there may be one more."""
    ordered = _ascending(seeds)
    if len(ordered) < 2:
        raise UserError(
            f"the best step size is chosen on half of the trials and shown on the others, but {len(ordered)} is "
            "planned; run at least 2 trials, or keep another way: --keep all"
        )
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]


def every(results: Sequence[Result], seeds: Sequence[int]) -> Choice:
    """All step sizes, all trials."""
    return Choice(tuple(size for size, _ in _by_step_size(results)), _ascending(seeds))


def as_published(results: Sequence[Result], seeds: Sequence[int]) -> Choice:
    """The step sizes that the paper's table shows, as far as they were run."""
    shown = {result.experiment.method.step_size for result in results if published(result.experiment) is not None}
    return Choice(tuple(sorted(shown)), _ascending(seeds))


# ---------------------------------------------------------------------------------------------------- parts


def is_finite(result: Result, bound: float = math.inf, gap: float = math.inf) -> bool:
    """Whether a run ended with a finite loss that is at most `bound` and a score gap that is at most `gap`.

    A run that diverged did not. Where the score gap is not known, it rules nothing out.
    """
    return not result.has_diverged and result.final_loss <= bound and not final_gap(result) > gap


def final_gap(result: Result) -> float:
    """By how much a wrong class outscores the right one at the end, at worst; NaN where it is not known."""
    return float(result.score_gap[-1]) if len(result.score_gap) else math.nan


def _by_step_size(results: Sequence[Result]) -> list[tuple[float, list[Result]]]:
    """Runs by step size, ascending."""
    sizes = sorted({result.experiment.method.step_size for result in results})
    return [(size, [result for result in results if result.experiment.method.step_size == size]) for size in sizes]


def _ascending(seeds: Sequence[int]) -> tuple[int, ...]:
    """Each once."""
    return tuple(sorted(set(seeds)))


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
