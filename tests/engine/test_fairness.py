"""How many updates each client should have contributed, on numbers that can be checked by hand."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.texts import quadratic

from areabench.engine.fairness import (
    CHANCE,
    binomial_interval,
    expected_updates,
    poisson_interval,
)
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.timing.trace import TraceDelays

EXPERIMENT = quadratic("horizon_s = 10")


def experiment(*overrides: str) -> Experiment:
    return parse_experiment(EXPERIMENT, overrides=overrides)


def poisson_share(count: int, mean: float) -> float:
    """The probability of at most `count`, summed up term by term."""
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def binomial_share(count: int, trials: int, share: float) -> float:
    return sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(count + 1))


@pytest.mark.parametrize("mean", [0.5, 4.0, 130.0])
@pytest.mark.parametrize("chance", [0.05, 0.01 / 128])
def test_the_ends_of_a_poisson_interval_leave_half_the_chance_each(mean: float, chance: float) -> None:
    lows, highs = poisson_interval(np.array([mean, 2 * mean]), chance)
    low, high = int(lows[0]), int(highs[0])
    assert poisson_share(low, mean) > chance / 2 >= (poisson_share(low - 1, mean) if low else 0.0)
    assert poisson_share(high, mean) > 1 - chance / 2 >= poisson_share(high - 1, mean)


def test_a_poisson_interval_known_from_tables() -> None:
    low, high = poisson_interval(np.array([10.0]), 0.05)
    assert (low.tolist(), high.tolist()) == ([4.0], [17.0])


def test_a_client_without_any_update_is_below_its_interval_when_ten_were_expected() -> None:
    (low,), _ = poisson_interval(np.array([10.0]), CHANCE)
    assert low > 0


@pytest.mark.parametrize(("trials", "share"), [(20, 0.5), (56, 0.25), (100, 1.0), (0, 0.5)])
def test_the_ends_of_a_binomial_interval(trials: int, share: float) -> None:
    low, high = (int(end) for end in binomial_interval(trials, share, 0.05))
    if share == 1.0 or not trials:
        assert (low, high) == (trials, trials)
        return
    assert binomial_share(low, trials, share) > 0.025 >= binomial_share(low - 1, trials, share)
    assert binomial_share(high, trials, share) > 0.975 >= binomial_share(high - 1, trials, share)


def test_exponential_delays_are_poisson_counts_around_rate_times_duration() -> None:
    rates = np.array([10.0, 4.0])
    expected = expected_updates(experiment(), rates, 10.0, 140, tolerance=0.0)
    assert expected.mean.tolist() == [100.0, 40.0]
    low, high = poisson_interval(np.array([100.0, 40.0]), CHANCE / 2)
    assert (expected.low.tolist(), expected.high.tolist()) == (low.tolist(), high.tolist())


def test_the_lower_end_allows_for_cycles_that_are_longer_by_the_tolerance() -> None:
    rates = np.array([1000.0, 1000.0])
    exact = expected_updates(experiment(), rates, 103.0, 0, tolerance=0.0)
    lenient = expected_updates(experiment(), rates, 103.0, 0, tolerance=0.03)
    assert lenient.mean.tolist() == exact.mean.tolist() == [103_000.0, 103_000.0]
    assert lenient.high.tolist() == exact.high.tolist()
    assert lenient.low.tolist() == poisson_interval(np.array([100_000.0, 100_000.0]), CHANCE / 2)[0].tolist()


def test_fixed_delays_are_counted_up_to_one() -> None:
    expected = expected_updates(experiment("delays.name=fixed"), np.array([10.0, 0.35]), 10.0, 0, tolerance=0.0)
    assert expected.mean.tolist() == [100.0, 3.0]
    assert expected.low.tolist() == [99.0, 2.0]
    assert expected.high.tolist() == [101.0, 4.0]


def test_a_trace_is_counted_again_and_again() -> None:
    traces = [array("d", [1.0, 2.0]), array("d", [4.0])]

    def counts(duration_s: float) -> Any:
        return TraceDelays(file="trace.csv").counts(np.ones(2), duration_s, traces)

    assert counts(10.0).tolist() == [7.0, 2.0]  # ends at 1, 3, 4, 6, 7, 9, 10 and at 4, 8
    assert counts(9.9).tolist() == [6.0, 2.0]
    assert counts(0.5).tolist() == [0.0, 0.0]


def test_traces_are_read_from_their_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("client,delay_s\n0,1.0\n0,2.0\n1,4.0\n")
    traced = experiment(f"delays={{name = 'trace', file = '{file}'}}")
    expected = expected_updates(traced, np.ones(2), 10.0, 0, tolerance=0.0)
    assert (expected.low.tolist(), expected.mean.tolist(), expected.high.tolist()) == ([6, 1], [7, 2], [8, 3])
    file.unlink()
    gone = expected_updates(traced, np.ones(2), 10.0, 0, tolerance=0.0)
    assert np.isnan(gone.mean).all()
    assert np.isnan(gone.low).all()


def test_clients_that_are_called_share_all_updates_in_binomial_numbers() -> None:
    called = experiment("method.name=s-fedavg", "method.clients_per_round=1")
    expected = expected_updates(called, np.array([10.0, 1.0]), 10.0, 41, tolerance=0.0)
    assert expected.mean.tolist() == [20.5, 20.5]
    assert (expected.low[0], expected.high[1]) == binomial_interval(41, 0.5, CHANCE / 2)
