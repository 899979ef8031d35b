"""Linear regression on data: losses and slopes by hand, and where it leads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from areabench.problems.datasets import Dataset
from areabench.problems.regression import Regression, RegressionProblem

# The model (2, 1) predicts 2·1/2 + 1 = 2 and 2·3/2 + 1 = 4 with the scale 1/2: its errors are 0.5 and -3.
DATA = Dataset(
    "two", np.array([[1.0], [3.0]]), np.array([1.5, 7.0]), np.array([[1.0]]), np.array([0.0]), classes=0, scale=0.5
)
MODEL = np.array([2.0, 1.0])


def problem(**settings: Any) -> RegressionProblem:
    """Both samples with one client."""
    return RegressionProblem(Regression(**settings), DATA, [np.arange(2)], 1, 0)


@pytest.mark.parametrize(
    ("settings", "losses", "slopes"),
    [
        ({"loss": "squared"}, (0.125, 4.5), (0.5, -3.0)),
        ({"loss": "absolute"}, (0.5, 3.0), (1.0, -1.0)),
        ({"loss": "huber"}, (0.125, 2.5), (0.5, -1.0)),
        ({"loss": "huber", "huber_width": 2.0}, (0.125, 4.0), (0.5, -2.0)),
    ],
)
def test_losses_and_slopes(settings: dict[str, Any], losses: tuple[float, ...], slopes: tuple[float, ...]) -> None:
    found = problem(**settings)
    assert found.evaluate([MODEL]).train_loss.tolist() == [sum(losses) / 2]
    assert np.isnan(found.evaluate([MODEL]).test_accuracy).all()
    both = found.subgradient(MODEL, np.arange(2))
    assert both.tolist() == [(0.5 * slopes[0] + 1.5 * slopes[1]) / 2, (slopes[0] + slopes[1]) / 2]
    assert found.subgradient(MODEL, np.array([1])).tolist() == [1.5 * slopes[1], slopes[1]]


def test_the_regulariser_counts_all_entries() -> None:
    plain, heavy = problem(), problem(regularisation=0.5)
    assert heavy.evaluate([MODEL]).train_loss[0] == plain.evaluate([MODEL]).train_loss[0] + 0.25 * 5
    rows = np.arange(2)
    assert (heavy.subgradient(MODEL, rows) - plain.subgradient(MODEL, rows)).tolist() == [1.0, 0.5]


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_a_line_is_found(loss: Any) -> None:
    inputs = np.linspace(-1, 1, 20)[:, None]
    data = replace(DATA, train_features=inputs, train_labels=3 * inputs[:, 0] - 1, scale=1.0)
    found = RegressionProblem(Regression(loss=loss, batch_size=8), data, [np.arange(20)], 2000, 0)
    model = found.local(0).descend(found.start(), 0.02)
    np.testing.assert_allclose(model, [3, -1], atol=0.05)


def test_a_class_is_its_number() -> None:
    data = replace(DATA, train_labels=np.array([0, 1]), classes=2)
    found = RegressionProblem(Regression(), data, [np.arange(2)], 1, 0)
    assert found.evaluate([np.zeros(2)]).train_loss.tolist() == [0.25]
