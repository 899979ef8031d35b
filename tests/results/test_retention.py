"""Which step sizes are kept, on runs made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.results import run as made_run

from areabench.engine.events import State
from areabench.errors import UserError
from areabench.experiment.experiment import Record
from areabench.methods.area import Area
from areabench.results.retention import (
    Selection,
    best_by,
    named_rule,
)
from areabench.sweeps.result import Result
from areabench.sweeps.tune import Metric


def run(step_size: float, seed: int = 1, **changes: Any) -> Result:
    """A run of AREA over 10 s."""
    return made_run(Area(step_size=step_size), seed, **changes)


def seeds_of(results: Sequence[Result]) -> list[int]:
    """Those of a sweep that is done."""
    return [result.experiment.seed for result in results]


def best(results: Sequence[Result], metric: Metric) -> Selection:
    """Without what it says about edges."""
    return replace(best_by(results, seeds_of(results), metric), note="")


# ---------------------------------------------------------------------------------------------------- best


def test_best_is_chosen_on_the_lower_seeds_and_reported_on_the_others() -> None:
    good_first = [run(1.0, seed, accuracy=80.0 if seed <= 2 else 20.0) for seed in (4, 3, 2, 1)]
    good_later = [run(10.0, seed, accuracy=70.0 if seed <= 2 else 95.0) for seed in (1, 2, 3, 4)]
    assert best(good_first + good_later, "accuracy") == Selection((1.0,), (3, 4))


def test_a_best_step_size_at_the_edge_of_the_grid_is_named() -> None:
    results = [run(size, seed, accuracy=size) for size in (1.0, 10.0, 20.0) for seed in (1, 2)]
    words = "the best step_size = 20 is at the edge of the grid (1 to 20); a better one may lie beyond it"
    assert best_by(results, [1, 2], "accuracy").note == words
    inside = [*results, *(run(30.0, seed, state=State.DIVERGED) for seed in (1, 2))]
    assert best_by(inside, [1, 2], "accuracy").note == ""


def test_a_step_size_that_diverges_in_validation_is_out() -> None:
    results = [run(1.0, seed, accuracy=60.0) for seed in (1, 2)]
    results += [run(10.0, 1, accuracy=99.0, state=State.DIVERGED), run(10.0, 2, accuracy=99.0)]
    assert best(results, "accuracy").step_sizes == (1.0,)
    assert best(results[2:], "accuracy").step_sizes == ()


def test_best_by_time_prefers_to_reach_the_target_always() -> None:
    early_once = [run(1.0, 1, reached_s=0.0), run(1.0, 2), run(1.0, 3), run(1.0, 4)]
    late_always = [run(10.0, seed, reached_s=5.0) for seed in (1, 2, 3, 4)]
    assert best(early_once + late_always, "time") == Selection((10.0,), (3, 4))
    later_always = [run(100.0, seed, reached_s=9.0) for seed in (1, 2, 3, 4)]
    assert best(late_always + later_always, "time").step_sizes == (10.0,)


def test_best_needs_two_trials_and_what_it_is_chosen_by() -> None:
    with pytest.raises(UserError, match=r"but 1 is planned; run at least 2 trials"):
        best([run(1.0)], "accuracy")
    with pytest.raises(UserError, match=r"--metric loss"):
        best([run(1.0, seed, accuracy=math.nan) for seed in (1, 2)], "accuracy")
    trials = [run(1.0, seed, accuracy=95.0) for seed in (1, 2)]
    ends = [replace(one, experiment=replace(one.experiment, record=Record(snapshots="none"))) for one in trials]
    with pytest.raises(UserError, match=r"the time to 80 % is not known .*; use --metric accuracy"):
        best(ends, "time")


def test_the_planned_seeds_are_halved_however_many_are_done() -> None:
    done = [run(1.0, seed) for seed in (1, 2, 3)]
    assert best_by(done, range(1, 5), "accuracy") == Selection((1.0,), (3, 4))


def test_a_group_without_trials_in_a_half_is_skipped_with_a_reason() -> None:
    early = best_by([run(1.0, 1), run(1.0, 2)], range(1, 5), "accuracy")
    assert (early.step_sizes, early.reason) == ((), "none of the trials to show is done at 1 (seeds 3, 4)")
    late = best_by([run(1.0, 4)], range(1, 5), "accuracy")
    assert (late.step_sizes, late.reason) == ((), "none of the trials to choose on is done (seeds 1, 2)")


def test_rules_have_names_and_pass_their_options_on() -> None:
    assert "70 %" in named_rule("best", "time", target=70.0).sentence
    trials = [run(size, seed, loss=1 / size, accuracy=50 / size) for size in (10.0, 1.0) for seed in (2, 1, 3)]
    seeds = seeds_of(trials)
    assert named_rule("all").choose(trials, seeds) == Selection((1.0, 10.0), (1, 2, 3))
    assert named_rule("best", "loss").choose(trials, seeds).step_sizes == (10.0,)
    assert named_rule("best", "accuracy").choose(trials, seeds).step_sizes == (1.0,)
    with pytest.raises(UserError, match=r"--metric loss: has no meaning with --keep all; add --keep best"):
        named_rule("all", "loss")
