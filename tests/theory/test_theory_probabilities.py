"""Event probabilities, problem constants and the server's rate, in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from areabench.errors import UserError
from areabench.theory.constants import Constants, LipschitzConstants, delta
from areabench.theory.probabilities import EventProbabilities, measured_probabilities, poisson_probabilities
from areabench.theory.theorem1 import Setting, contraction_beta
from areabench.theory.theorem2 import lipschitz_step_size


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


def test_delta() -> None:
    assert [delta(M) for M in (1, 2, 4)] == [0.0, 0.5, 0.75]


SMOOTH, LIPSCHITZ = Constants(1.0, 1.0, 1.0, 1.0), LipschitzConstants(1.0, 1.0, 1.0)
HALVES = EventProbabilities(np.array([0.5]), 0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measured_probabilities(np.array([3, 0, 4]), 2), r"client 1 sent 0 updates, the least is 1 .* leave"),
        (lambda: measured_probabilities(np.array([3, 1]), 0), r"the server made 0 steps, the least is 1; measure"),
        (lambda: EventProbabilities(np.array([0.25]), 0.5), r"add up to 0\.75, the limit is 1; divide"),
        (lambda: EventProbabilities(np.array([0.5, 0.0]), 0.5), r"the probability of client 1 is 0\.0, the limit is"),
        (lambda: poisson_probabilities(np.array([1.0, -1.0]), 1.0), r"the rate of client 1 is -1\.0, the limit is"),
        (lambda: poisson_probabilities(np.array([]), 1.0), r"there are 0 rates"),
        (lambda: poisson_probabilities(np.array([1.0]), float("inf")), r"the server's rate is inf"),
        (lambda: LipschitzConstants(0.0, 1.0, 1.0), r"B is 0\.0"),
        (lambda: LipschitzConstants(1.0, 1.0, 0.0), r"distance .* is 0\.0"),
        (lambda: delta(0), r"local steps M is 0, the least is 1"),
        (lambda: contraction_beta(2.0, 2, 1.0), r"step size is 2\.0, the limit is below 4/\(M gamma\) = 2\.0"),
        (lambda: lipschitz_step_size(LIPSCHITZ, HALVES, 1, 0), r"iterations K is 0"),
        (lambda: lipschitz_step_size(LIPSCHITZ, HALVES, 0, 1), r"local steps M is 0"),
        (lambda: Setting(SMOOTH, HALVES, 0, 2.0), r"local steps M is 0"),
        (lambda: Setting(SMOOTH, HALVES, 1, -1.0), r"distance .* is -1\.0"),
    ],
)
def test_numbers_out_of_range_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
