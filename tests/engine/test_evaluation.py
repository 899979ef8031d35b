"""Evaluation of many snapshots: equal ones once, the loss where it is wanted; and what a run has counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from areabench.arrays import Vector
from areabench.engine.evaluation import evaluate_models, loss_wanted
from areabench.engine.events import Kind, State, Status
from areabench.engine.state import Tally
from areabench.problems.base import Metrics
from areabench.problems.quadratic import Quadratic, QuadraticProblem


class Counting(QuadraticProblem):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(Quadratic(dimension=1), 1, 1, 0)
        self.asked: list[tuple[list[float], bool]] = []

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        values = [float(model[0]) for model in models]
        self.asked.append((values, with_loss))
        plain = np.array(values)
        nothing = np.full(len(values), np.nan)
        return Metrics(plain if with_loss else nothing, 10 * plain, nothing)


@pytest.mark.parametrize(
    ("count", "every", "places"), [(5, 2, [0, 2, 4]), (6, 2, [0, 2, 4, 5]), (3, 10, [0, 2]), (1, 4, [0]), (0, 1, [])]
)
def test_loss_wanted(count: int, every: int, places: list[int]) -> None:
    assert np.flatnonzero(loss_wanted(count, every)).tolist() == places


def test_equal_models_are_evaluated_once_and_the_loss_where_it_is_wanted() -> None:
    problem, versions = Counting(), [0, 0, 1, 2, 2]
    models = [np.array([float(version)]) for version in versions]
    found = evaluate_models(problem, versions, models, np.array([True, False, False, False, True]))
    assert problem.asked == [([0.0, 2.0], True), ([1.0], False)]
    assert found.test_accuracy.tolist() == [0, 0, 10, 20, 20]
    np.testing.assert_array_equal(found.train_loss, [0, np.nan, np.nan, np.nan, 2])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_problem_is_never_asked_about_no_models(chosen: bool) -> None:
    problem = Counting()
    found = evaluate_models(problem, [0], [np.ones(1)], np.array([chosen]))
    assert problem.asked == [([1.0], chosen)]
    assert found.test_accuracy.tolist() == [10.0]
    assert len(evaluate_models(problem, [], [], np.array([], np.bool_)).train_loss) == 0
    assert len(problem.asked) == 1


class Sparing(QuadraticProblem):
    """Evaluates the first model only."""

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        return super().evaluate(models[:1], with_loss=with_loss)


def test_a_problem_that_leaves_models_out_is_refused() -> None:
    problem = Sparing(Quadratic(dimension=1), 1, 1, 0)
    with pytest.raises(ValueError, match=r"evaluate\(\) returned train_loss of shape \(1,\) for 2 models; return area"):
        evaluate_models(problem, [0, 1], [np.ones(1)] * 2, np.array([True, True]))


def test_tally_counts_updates_by_client_and_staleness() -> None:
    tally = Tally()
    tally.count(Kind.UPDATE, 0.5, 2, 0)
    tally.count(Kind.UPDATE, 1.0, 0, 3)
    tally.count(Kind.STEP, 1.0)
    tally.count(Kind.UPDATE, 1.5, 2, 0)
    assert tally.staleness.tolist() == [2, 0, 0, 1]
    assert tally.served(4).tolist() == [1, 0, 2, 0]
    assert tally.events == 4
    assert tally.status(State.DONE, "why") == Status(State.DONE, "why", 1.5, updates=3, discarded=0, server_steps=1)


def test_discarded_updates_do_not_count_as_served() -> None:
    tally = Tally()
    tally.count(Kind.DISCARDED, 1.5, 0, 1)
    assert (tally.staleness.tolist(), tally.served(1).tolist(), tally.events) == ([], [0], 1)


def test_a_copy_does_not_continue_the_count() -> None:
    tally = Tally()
    tally.count(Kind.UPDATE, 1.5, 0, 0)
    twin = tally.copy()
    tally.count(Kind.UPDATE, 2.5, 1, 0)
    assert (twin.events, twin.served(2).tolist(), twin.staleness.tolist()) == (1, [1, 0], [1])
