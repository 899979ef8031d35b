"""How sure a mean or a difference is: against scipy, by hand, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from areabench.results.statistics import (
    Floats,
    fewest_trials,
    holm,
    kaplan_meier,
    mean_interval,
    paired_difference,
    performance_profiles,
    sign_flip_p,
    spread_of,
)

ACCURACIES = np.array([84.1, 86.3, 85.0, 88.2, 83.9, 86.0, 85.5, 87.1, 84.8, 86.6])
OTHERS = np.array([83.0, 86.9, 84.1, 86.0, 83.1, 85.2, 85.9, 85.7, 84.0, 85.8])
Draw = Callable[[np.random.Generator, int], Floats]


DRAWS: dict[str, tuple[float, Draw]] = {  # with their means
    "normal": (0.0, lambda generator, trials: generator.normal(size=trials)),
    "gamma": (4.0, lambda generator, trials: generator.gamma(4.0, size=trials)),  # skewed, like times to a target
    "beta": (0.8, lambda generator, trials: generator.beta(8.0, 2.0, size=trials)),  # like accuracies below a ceiling
    "exponential": (1.0, lambda generator, trials: generator.exponential(size=trials)),
}


def coverage(name: str, trials: int, seed: int = 1) -> float:
    """The share of 2,000 samples whose interval holds the true mean; all intervals at once."""
    mean, draw = DRAWS[name]
    generator = np.random.default_rng(seed)
    low, high = mean_interval(np.stack([draw(generator, trials) for _ in range(2000)], axis=1))
    return float(np.mean((low <= mean) & (mean <= high)))


# ---------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("name", ["normal", "gamma", "beta"])
def test_the_interval_of_ten_trials_holds_the_mean_in_93_to_97_percent_of_samples(name: str) -> None:
    assert 0.93 <= coverage(name, 10) <= 0.97


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trials", [8, 10, 20, 40])
@pytest.mark.parametrize("name", DRAWS)
def test_the_interval_holds_its_level_over_many_samples(name: str, trials: int) -> None:
    assert 0.93 <= np.mean([coverage(name, trials, seed) for seed in range(10)]) <= 0.97


NORMAL = stats.norm.ppf((np.arange(40) + 0.5) / 40)


@pytest.mark.parametrize(
    ("sample", "within"),
    [(NORMAL, 0.02), ([1.0, 2.0, 4.0], 1e-9), ([5.0] * 9 + [6.0], 1e-9)],  # nearly normal; no spread in resamples
)
def test_where_the_interval_is_student_s(sample: Sequence[float], within: float) -> None:
    values = np.array(sample)
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    assert tuple(map(float, mean_interval(values))) == pytest.approx(expected, abs=within)


def test_equal_trials_have_an_interval_of_one_point_and_one_trial_has_none() -> None:
    equal = spread_of([3.0, 3.0, 3.0, 3.0, 3.0, math.nan])
    one = spread_of([3.0])
    assert equal is not None
    assert one is not None
    assert (equal.low, equal.high) == (3.0, 3.0)
    assert math.isnan(one.low)
    assert math.isnan(one.high)


def test_intervals_of_many_columns_are_those_of_each() -> None:
    together = mean_interval(np.stack([ACCURACIES, OTHERS], axis=1))
    apart = [mean_interval(ACCURACIES), mean_interval(OTHERS)]
    assert np.allclose(np.array(together).T, np.array(apart))


# ---------------------------------------------------------------------------------------------------- tests


def test_the_permutation_test_is_that_of_scipy() -> None:
    exact = stats.permutation_test(
        (ACCURACIES - OTHERS,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_p(ACCURACIES - OTHERS) == pytest.approx(exact.pvalue)


def test_of_many_pairs_random_signs_are_close_to_all_signs() -> None:
    differences = np.concatenate([ACCURACIES, ACCURACIES[:4] + 0.05]) - np.concatenate([OTHERS + 0.6, OTHERS[:4] + 0.6])
    exact = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(differences) == pytest.approx(exact.pvalue, abs=0.015)


@pytest.mark.parametrize(
    ("differences", "p"), [([0.0, 0.0], 1.0), ([1.0, 1.0, 1.0], 0.25), ([1.0, -1.0], 1.0), ([1.0], math.nan)]
)
def test_small_permutation_tests_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip_p(np.array(differences)) == pytest.approx(p, nan_ok=True)


def test_a_paired_difference_is_first_minus_second() -> None:
    found = paired_difference(ACCURACIES, OTHERS)
    assert found.mean == pytest.approx(0.78)
    assert found.low < found.mean < found.high
    assert (found.pairs, found.p) == (10, sign_flip_p(ACCURACIES - OTHERS))


def test_holm_s_correction_by_hand() -> None:  # the example of the method's usual tables: 4p, 3p, 2p, p, monotone
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_fewest_trials_are_those_with_which_all_differences_can_be_significant() -> None:
    assert fewest_trials(1) == 6  # 2/2^6 = 0.03
    assert fewest_trials(3) == 7  # 3 * 2/2^7 = 0.047


# ---------------------------------------------------------------------------------------------------- times to a target


def test_the_share_that_reached_a_target_by_hand() -> None:
    """Of seven trials one reaches it at 1 s, two of the five left do at 3 s, and one of two at 7 s."""
    times_s = np.array([3.0, 1.0, 2.0, 3.0, 4.0, 7.0, 10.0])
    found = kaplan_meier(times_s, np.array([1, 1, 0, 1, 0, 1, 0], bool), 10.0)
    assert found.time_s.tolist() == [0.0, 1.0, 3.0, 7.0]
    assert found.share == pytest.approx([0.0, 1 - 6 / 7, 1 - 6 / 7 * 3 / 5, 1 - 6 / 7 * 3 / 5 / 2])
    assert (found.low[1:] < found.share[1:]).all()
    assert (found.share[1:] < found.high[1:]).all()
    assert (found.censored_s.tolist(), found.end_s) == ([2.0, 4.0, 10.0], 10.0)


def test_where_none_or_all_reached_it_there_is_no_interval() -> None:
    assert kaplan_meier(np.array([9.0, 9.0]), np.array([False, False]), 9.0).share.tolist() == [0.0]
    both = kaplan_meier(np.array([1.0, 1.0]), np.array([True, True]), 9.0)
    assert both.share.tolist() == [0.0, 1.0]
    assert np.isnan(both.low[-1])


@pytest.mark.parametrize(
    ("times_s", "profiles"),
    [
        # four settings, two methods; what no method solves counts as not solved
        (
            [[1.0, 2.0], [3.0, 3.0], [math.inf, 4.0], [math.inf, math.inf]],
            [([1.0], [0.5]), ([1.0, 2.0], [0.5, 0.75])],
        ),
        # a method is judged on the settings that it was run in
        ([[1.0, math.nan], [2.0, 1.0]], [([1.0, 2.0], [0.5, 1.0]), ([1.0], [1.0])]),
    ],
)
def test_performance_profiles_by_hand(times_s: list[list[float]], profiles: list[tuple[list[float], ...]]) -> None:
    found = performance_profiles(np.array(times_s))
    assert [(one.factor.tolist(), one.share.tolist()) for one in found] == profiles
