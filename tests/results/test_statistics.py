"""How sure a mean or a difference is: against scipy, by hand, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def gamma(generator: np.random.Generator, trials: int) -> Floats:
    """Skewed to the right, like times to a target; mean 4."""
    return generator.gamma(4.0, size=trials)


def beta(generator: np.random.Generator, trials: int) -> Floats:
    """Skewed to the left, like accuracies below a ceiling; mean 0.8."""
    return generator.beta(8.0, 2.0, size=trials)


def normal(generator: np.random.Generator, trials: int) -> Floats:
    return generator.normal(size=trials)


def exponential(generator: np.random.Generator, trials: int) -> Floats:
    return generator.exponential(size=trials)


def coverage(draw: Draw, mean: float, trials: int, seed: int = 1) -> float:
    """The share of 2,000 samples whose interval holds the true mean; all intervals at once."""
    generator = np.random.default_rng(seed)
    samples = np.stack([draw(generator, trials) for _ in range(2000)], axis=1)
    low, high = mean_interval(samples)
    return float(np.mean((low <= mean) & (mean <= high)))


# ---------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize(("draw", "mean"), [(normal, 0.0), (gamma, 4.0), (beta, 0.8)])
def test_the_interval_of_ten_trials_holds_the_mean_in_93_to_97_percent_of_samples(draw: Draw, mean: float) -> None:
    assert 0.93 <= coverage(draw, mean, 10) <= 0.97


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trials", [8, 10, 20, 40])
@pytest.mark.parametrize(("draw", "mean"), [(normal, 0.0), (gamma, 4.0), (beta, 0.8), (exponential, 1.0)])
def test_the_interval_holds_its_level_over_many_samples(draw: Draw, mean: float, trials: int) -> None:
    assert 0.93 <= np.mean([coverage(draw, mean, trials, seed) for seed in range(10)]) <= 0.97


def test_of_nearly_normal_numbers_the_interval_is_nearly_student_s() -> None:
    sample = stats.norm.ppf((np.arange(40) + 0.5) / 40)
    low, high = mean_interval(sample)
    expected = stats.t.interval(0.95, 39, loc=sample.mean(), scale=stats.sem(sample))
    assert (low, high) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("sample", [[1.0, 2.0, 4.0], [5.0] * 9 + [6.0]])  # too few, and too many resamples alike
def test_where_resamples_have_no_spread_the_interval_is_student_s(sample: list[float]) -> None:
    values = np.array(sample)
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    assert tuple(map(float, mean_interval(values))) == pytest.approx(expected)


def test_equal_trials_have_an_interval_of_one_point_and_one_trial_has_none() -> None:
    equal, one = spread_of([3.0, 3.0, 3.0, 3.0, 3.0, math.nan]), spread_of([3.0])
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


def test_of_whole_ranks_the_permutation_test_is_wilcoxon_s() -> None:
    differences = np.array([1.0, -2.0, 3.0, 4.0, 5.0, 6.0, -7.0, 8.0, 9.0])
    assert sign_flip_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_of_many_pairs_random_signs_are_close_to_all_signs() -> None:
    differences = np.concatenate([ACCURACIES, ACCURACIES[:4] + 0.05]) - np.concatenate([OTHERS + 0.6, OTHERS[:4] + 0.6])
    exact = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(differences) == pytest.approx(exact.pvalue, abs=0.015)


@pytest.mark.parametrize(("differences", "p"), [([0.0, 0.0], 1.0), ([1.0, 1.0, 1.0], 0.25), ([1.0, -1.0], 1.0)])
def test_small_permutation_tests_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip_p(np.array(differences)) == p


def test_one_pair_has_no_p_value() -> None:
    assert math.isnan(sign_flip_p(np.array([1.0])))


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


def test_the_share_that_reached_a_target_is_kaplan_and_meier_s_as_in_scipy() -> None:
    times_s, is_reached = np.array([3.0, 1.0, 2.0, 3.0, 4.0, 7.0, 10.0]), np.array([1, 1, 0, 1, 0, 1, 0], bool)
    found = kaplan_meier(times_s, is_reached, 10.0)
    left = stats.ecdf(stats.CensoredData.right_censored(times_s, ~is_reached)).sf
    interval = left.confidence_interval(method="log-log")
    assert found.time_s.tolist() == [0.0, 1.0, 3.0, 7.0]
    at = np.searchsorted(left.quantiles, found.time_s[1:])
    assert found.share[1:] == pytest.approx(1 - left.probabilities[at])
    assert found.low[1:] == pytest.approx(1 - interval.high.probabilities[at], abs=1e-6)
    assert found.high[1:] == pytest.approx(1 - interval.low.probabilities[at], abs=1e-6)
    assert (found.censored_s.tolist(), found.end_s) == ([2.0, 4.0, 10.0], 10.0)


def test_where_no_trial_ends_early_the_share_is_a_count() -> None:
    found = kaplan_meier(np.array([2.0, 5.0, 10.0, 10.0]), np.array([True, True, False, False]), 10.0)
    assert found.share.tolist() == pytest.approx([0.0, 0.25, 0.5])


def test_where_none_or_all_reached_it_there_is_no_interval() -> None:
    assert kaplan_meier(np.array([9.0, 9.0]), np.array([False, False]), 9.0).share.tolist() == [0.0]
    both = kaplan_meier(np.array([1.0, 1.0]), np.array([True, True]), 9.0)
    assert both.share.tolist() == [0.0, 1.0]
    assert np.isnan(both.low[-1])


def test_performance_profiles_by_hand() -> None:
    times_s = np.array([[1.0, 2.0], [3.0, 3.0], [math.inf, 4.0], [math.inf, math.inf]])  # four settings, two methods
    first, second = performance_profiles(times_s)
    assert (first.factor.tolist(), first.share.tolist()) == ([1.0], [0.5])
    assert (second.factor.tolist(), second.share.tolist()) == ([1.0, 2.0], [0.5, 0.75])


def test_a_method_is_profiled_on_the_settings_that_it_was_run_in() -> None:
    first, second = performance_profiles(np.array([[1.0, math.nan], [2.0, 1.0]]))
    assert (first.factor.tolist(), first.share.tolist()) == ([1.0, 2.0], [0.5, 1.0])
    assert second.share.tolist() == [1.0]
