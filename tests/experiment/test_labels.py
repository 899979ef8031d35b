"""Experiments in words."""

from __future__ import annotations

import pytest

from areabench.experiment.labels import method_colour, method_label
from areabench.methods import METHODS
from areabench.timing.rates import ListedRates, LognormalRates, NormalRates, RateSettings, UniformRates


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (UniformRates(rate=2.5), "uniform (λ = 2.5)"),
        (NormalRates(), "non-uniform (λ ~ N(10, 5))"),
        (LognormalRates(sigma=0.5), "lognormal (median λ = 10, σ = 0.5)"),
        (ListedRates(values=(3.0, 1.0, 2.0)), "listed (λ from 1 to 3)"),
    ],
)
def test_rates_in_words(rates: RateSettings, words: str) -> None:
    assert rates.describe() == words


def test_an_own_method_is_labelled_with_its_function_and_has_a_colour_of_its_own() -> None:
    assert method_label("package.module:my_method") == "my_method"
    own = {method_colour(f"package.module:method_{number}") for number in range(20)}
    assert len(own) == 3
    assert not own & {record.colour for record in METHODS.values()}
