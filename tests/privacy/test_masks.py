"""The helper: what it gives, and what it refuses; and what a masked update looks like to the server."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from areabench.arrays import Vector
from areabench.privacy.masks import MaskKeeper, MaskRefusal, MaskStream, in_one_process

LIKE = np.zeros(5, np.uint32)


def key_of(client: int) -> bytes:
    return bytes([client]) * 32


def keeper(threshold: int = 2, clients: int = 4) -> MaskKeeper:
    return MaskKeeper(key_of, clients, LIKE, threshold)


def mask(client: int, number: int) -> Vector:
    return MaskStream(key_of(client), LIKE).mask(number)


def test_a_sum_is_that_of_the_masks() -> None:
    total = keeper().total([(0, 0), (2, 7), (0, 3)])
    assert np.array_equal(total, mask(0, 0) + mask(2, 7) + mask(0, 3))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "a sum of 0 clients is below the threshold of 2"),
        ([(1, 0)], "a sum of 1 clients is below the threshold of 2"),
        ([(1, 0), (1, 1), (1, 2)], "a sum of 1 clients is below the threshold of 2"),
        ([(1, 0), (2, 0), (1, 0)], "update 0 of client 1 was part of a sum before"),
        ([(1, 0), (4, 0)], "there is no update 0 of client 4"),
        ([(1, 0), (-1, 0)], "there is no update 0 of client -1"),
        ([(1, 0), (2, -1)], "there is no update -1 of client 2"),
    ],
)
def test_the_helper_refuses(names: list[tuple[int, int]], why: str) -> None:
    with pytest.raises(MaskRefusal, match=f"^{why}$"):
        keeper().total(names)


def test_an_update_is_part_of_one_sum_at_most() -> None:
    helper = keeper()
    helper.total([(0, 1), (1, 1)])
    for again in ([(0, 1), (2, 0)], [(0, 0), (2, 0)]):  # an earlier one, too: the server had its chance
        with pytest.raises(MaskRefusal, match="was part of a sum before"):
            helper.total(again)
    assert np.array_equal(helper.total([(0, 2), (1, 2)]), mask(0, 2) + mask(1, 2))


def test_a_refusal_changes_nothing() -> None:
    helper = keeper()
    with pytest.raises(MaskRefusal):
        helper.total([(0, 5), (1, 5), (0, 5)])
    assert np.array_equal(helper.total([(0, 0), (1, 0)]), mask(0, 0) + mask(1, 0))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=5)), min_size=2),
    st.sampled_from([np.uint32, np.uint64]),
)
def test_a_sum_without_its_masks_is_the_plain_sum(updates: list[tuple[int, list[int]]], dtype: type) -> None:
    like: Vector = np.zeros(5, dtype)
    secrecy = in_one_process(4, like, threshold=1)
    assert secrecy.cover is not None
    assert secrecy.unmask is not None
    rounds = dict.fromkeys(range(4), 0)
    covered, plain, names = like, like, []
    for client, values in updates:
        update: Vector = np.array(values, dtype)
        covered, plain = covered + secrecy.cover(client)(update, rounds[client]), plain + update
        names.append((client, rounds[client]))
        rounds[client] += 1
    assert np.array_equal(covered - secrecy.unmask(names), plain)


# ---------------------------------------------------------------------------------------------------- the server's view


def views(values: int, dimension: int, count: int) -> Vector:
    """Masked updates whose entries are all `values`, each under a new key, as bytes."""
    like = np.zeros(dimension, np.uint32)
    found = []
    for _ in range(count):
        secrecy = in_one_process(1, like, threshold=1)
        assert secrecy.cover is not None
        found.append(secrecy.cover(0)(np.full(dimension, values, np.uint32), 0))
    return np.stack(found).view(np.uint8)


@pytest.mark.parametrize("values", [0, 1, 2**31])
def test_a_masked_update_is_uniform_whatever_it_hides(values: int) -> None:
    """The bytes are as frequent as chance has it, and so are pairs of neighbours (chi-squared, p above 1e-6)."""
    seen = views(values, 4096, 32)
    counts = np.bincount(seen.ravel(), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    pairs = (seen[:, :-1] >> 4).astype(int) * 16 + (seen[:, 1:] >> 4)
    assert stats.chisquare(np.bincount(pairs.ravel(), minlength=256)).pvalue > 1e-6


def test_the_views_of_two_data_sets_have_one_distribution() -> None:
    """Two-sample test on the words, and no correlation with what is hidden."""
    one, other = views(0, 4096, 16), views(12345, 4096, 16)
    assert stats.ks_2samp(one.view(np.uint32).ravel(), other.view(np.uint32).ravel()).pvalue > 1e-6
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2**32, 65536, np.uint32)
    secrecy = in_one_process(1, hidden, threshold=1)
    assert secrecy.cover is not None
    seen = secrecy.cover(0)(hidden, 0)
    assert abs(np.corrcoef(seen.astype(float), hidden.astype(float))[0, 1]) < 5 / np.sqrt(hidden.size)
