"""Event probabilities, problem constants and the server's rate, in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from areabench.errors import UserError
from areabench.theory.constants import Constants, LipschitzConstants, delta
from areabench.theory.probabilities import EventProbabilities, measured_probabilities, poisson_probabilities


def test_poisson_probabilities_of_two_clients() -> None:
    events = poisson_probabilities(np.array([1.0, 3.0]), 4.0)  # p = 1/8, 3/8 and 4/8
    assert events.clients.tolist() == [0.125, 0.375]
    assert events.server == 0.5
    assert events.minimum == 0.125
    assert events.mean_inverse == pytest.approx(float(Fraction(8 + Fraction(8, 3)) / 2), rel=1e-15)  # 16/3
    assert events.server_ratio == 4.0
    assert events.count == 2


def test_the_server_may_be_the_rarest_event() -> None:
    events = poisson_probabilities(np.array([3.0]), 1.0)
    assert (events.minimum, events.mean_inverse, events.server_ratio) == (0.25, 4 / 3, 1.0)


def test_measured_probabilities_of_three_clients() -> None:
    events = measured_probabilities(np.array([1, 2, 5]), 8)
    assert events.clients.tolist() == [1 / 16, 2 / 16, 5 / 16]
    assert events.server == 0.5


def test_client_that_never_sent() -> None:
    with pytest.raises(UserError, match=r"client 1 sent 0 updates, the least is 1 .* measure a longer run, or leave"):
        measured_probabilities(np.array([3, 0, 4]), 2)


def test_server_that_never_stepped() -> None:
    with pytest.raises(UserError, match=r"the server made 0 steps, the least is 1; measure a longer run"):
        measured_probabilities(np.array([3, 1]), 0)


def test_probabilities_that_are_no_distribution() -> None:
    with pytest.raises(UserError, match=r"add up to 0\.75, the limit is 1; divide"):
        EventProbabilities(np.array([0.25]), 0.5)
    with pytest.raises(UserError, match=r"the probability of client 1 is 0\.0, the limit is above 0"):
        EventProbabilities(np.array([0.5, 0.0]), 0.5)


def test_rates_out_of_range() -> None:
    with pytest.raises(UserError, match=r"the rate of client 1 is -1\.0, the limit is above 0"):
        poisson_probabilities(np.array([1.0, -1.0]), 1.0)
    with pytest.raises(UserError, match=r"there are 0 rates"):
        poisson_probabilities(np.array([]), 1.0)
    with pytest.raises(UserError, match=r"the server's rate is inf"):
        poisson_probabilities(np.array([1.0]), float("inf"))


def test_strongly_convex_constants() -> None:
    constants = Constants(mu=1.0, L=3.0, sigma=0.5, zeta=2.0)
    assert (constants.gamma, constants.kappa) == (1.5, 3.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0.0, 1.0, 0.0, 0.0), r"mu is 0\.0"),
        ((2.0, 1.0, 0.0, 0.0), r"L is 1\.0, the least is mu = 2\.0"),
        ((1.0, float("inf"), 0.0, 0.0), r"L is inf"),
        ((1.0, 1.0, -1.0, 0.0), r"sigma is -1\.0"),
        ((1.0, 1.0, 0.0, float("nan")), r"zeta is nan"),
    ],
)
def test_constants_out_of_range(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Constants(*values)


def test_lipschitz_constants_out_of_range() -> None:
    with pytest.raises(UserError, match=r"B is 0\.0"):
        LipschitzConstants(0.0, 1.0, 1.0)
    with pytest.raises(UserError, match=r"distance .* is 0\.0"):
        LipschitzConstants(1.0, 1.0, 0.0)


def test_delta() -> None:
    assert [delta(M) for M in (1, 2, 4)] == [0.0, 0.5, 0.75]
    with pytest.raises(UserError, match=r"local steps M is 0, the least is 1"):
        delta(0)
