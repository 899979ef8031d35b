"""The limits that rules imply: weights by hand, and where formulas coincide."""

from __future__ import annotations

import numpy as np
import pytest
from studies.certificate import (
    fedasync_factor,
    fresh_shares,
    idle_throughput,
    label_of,
    mean_factor,
    rennala_counts,
    steps_between,
    used_shares,
)

from areabench.methods.area import Area
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.fedasync import FedAsync

RATES = np.array([3.0, 1.0])


def test_mean_factor_of_a_geometric_staleness_by_hand() -> None:
    """Client 0 has p = 3/4: P(tau = 0) = 3/4, P(tau = 1) = 3/16."""
    only_fresh = mean_factor(RATES, lambda tau: np.where(tau == 0, 1.0, 0.0))
    np.testing.assert_allclose(only_fresh, [0.75, 0.25])
    up_to_one = mean_factor(RATES, lambda tau: np.where(tau <= 1, 1.0, 0.0))
    np.testing.assert_allclose(up_to_one, [0.75 + 0.1875, 0.25 + 0.1875])


def test_used_shares_are_the_chances_of_a_small_staleness() -> None:
    np.testing.assert_allclose(used_shares(RATES, 2, steps_always=True), [1 - (1 / 4) ** 2, 1 - (3 / 4) ** 2])


def test_updates_that_are_no_steps_make_others_less_stale() -> None:
    assert (used_shares(RATES, 1) > used_shares(RATES, 1, steps_always=True)).all()


def test_hinge_by_hand() -> None:
    factor = fedasync_factor(FedAsync(step_size=0.1, staleness="hinge", hinge_delay=2, hinge_slope=10.0))
    np.testing.assert_allclose(factor(np.array([0.0, 2.0, 3.0, 4.0])), [1, 1, 1 / 11, 1 / 21])


def test_rennala_counts_all_but_the_first_update_and_adds_up_to_the_batch() -> None:
    counts = rennala_counts(RATES, batch=4)
    assert counts.sum() == pytest.approx(4)
    assert counts[0] > 3 * counts[1]  # more uneven than the rates


def test_idle_clients_are_drawn_alike_where_all_are_equally_fast() -> None:
    np.testing.assert_allclose(idle_throughput(np.full(4, 2.0), 2), np.full(4, 1.0))


def test_idle_throughput_of_one_slot_by_hand() -> None:
    """One of two clients works at a time and each is drawn with 1/2: a cycle of both takes 1/3 + 1 s."""
    np.testing.assert_allclose(idle_throughput(RATES, 1), np.full(2, 1 / (1 / 3 + 1)))


def test_throughput_of_as_many_slots_as_clients_is_that_of_the_rates() -> None:
    np.testing.assert_allclose(idle_throughput(RATES, 2), RATES)


def test_entries_that_never_expire_weigh_alike() -> None:
    shares = fresh_shares(RATES, 10_000)
    np.testing.assert_allclose(shares / shares.sum(), [0.5, 0.5])


def test_steps_between_contacts_are_at_most_as_many_as_allowed() -> None:
    assert steps_between(1e3, 0.5, 4) == pytest.approx(4)
    assert steps_between(0.01, 1.0, 50) == pytest.approx(0.01, rel=1e-6)  # contacted in each period


def test_labels_have_the_keys_that_are_not_the_default() -> None:
    assert label_of(Area(step_size=1.0)) == "AREA"
    assert label_of(AsyncSgd(step_size=1.0, step="adaptive")) == "AsyncSGD (step = adaptive)"
