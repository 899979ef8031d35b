"""Splits: who holds which rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems import SPLITS
from areabench.problems.splits import dirichlet
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.problems.splits.rows import ClientRows, SplitSettings, part_sizes

ALL: list[SplitSettings] = [
    *(SPLITS[name]() for name in SPLITS),
    Dirichlet(concentration=1e-6),
    Dirichlet(concentration=1e6),
]
TWELVE = np.array([0] * 7 + [1] * 5)
every = pytest.mark.parametrize("settings", ALL, ids=str)


def tens(samples: int) -> NDArray[np.int64]:
    """Labels 0..9 in turn."""
    return np.arange(samples, dtype=np.int64) % 10


def counts(settings: SplitSettings, labels: NDArray[np.int64], clients: int, seed: int = 0) -> list[list[int]]:
    """How many rows of each label each client holds."""
    return [
        np.bincount(labels[rows], minlength=max(labels) + 1).tolist() for rows in settings.rows(labels, clients, seed)
    ]


def sizes(settings: SplitSettings, samples: int = 100, clients: int = 4, seed: int = 5) -> list[int]:
    """How many rows each client holds."""
    return [len(part) for part in settings.rows(tens(samples), clients, seed)]


@every
def test_parts_are_sorted_disjoint_and_not_empty(settings: SplitSettings) -> None:
    parts = settings.rows(tens(305), 7, seed=3)
    rows = np.concatenate(parts)
    assert len(parts) == 7
    assert min(map(len, parts)) >= 1
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert len(np.unique(rows)) == len(rows)
    assert 0 <= rows.min() <= rows.max() < 305
    assert len(rows) == (301 if isinstance(settings, DirichletEqual) else 305)


@every
def test_the_seed_decides(settings: SplitSettings) -> None:
    first, same, other = (settings.rows(tens(300), 7, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one, two) for one, two in zip(first, same, strict=True))
    assert any(not np.array_equal(one, two) for one, two in zip(first, other, strict=True))


@every
def test_one_client_gets_everything_and_labels_may_have_gaps(settings: SplitSettings) -> None:
    (rows,) = settings.rows(tens(50), 1, seed=0)
    assert np.array_equal(rows, np.arange(50))
    assert sum(map(len, settings.rows(np.array([3, 200, 3, 200, 3, 200]), 2, seed=0))) == 6


@pytest.mark.parametrize(
    ("settings", "labels", "clients", "why"),
    [
        *((settings, tens(30), 31, r"31 clients .* has 30; lower clients.count") for settings in ALL),
        (NearlyIid(), TWELVE, 8, r"8 clients.* label has 7 samples.*lower clients.count to 7"),
        (Dirichlet(minimum=5), tens(40), 10, r"10 clients with at least 5 samples each need 50 samples.* has 40"),
        (Dirichlet(minimum=9, draws=100), tens(300), 15, r"of 100 draws a client has 8 samples, split.minimum is 9"),
    ],
)
def test_splits_that_leave_a_client_with_too_little_are_refused(
    settings: SplitSettings, labels: NDArray[np.int64], clients: int, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        settings.rows(labels, clients, seed=5)


def test_parts_are_cut_where_the_sizes_say() -> None:
    parts = ClientRows(np.array([4, 7, 1, 0, 9]), np.array([2, 1, 2]))
    assert [part.tolist() for part in parts] == [[4, 7], [1], [0, 9]]
    assert [part.tolist() for part in parts[1:]] == [[1], [0, 9]]
    assert parts[-1].tolist() == [0, 9]
    assert part_sizes(parts).tolist() == part_sizes(list(parts)).tolist() == [2, 1, 2]


def test_nearly_iid_by_hand() -> None:
    # label 0 seven times: 2 + 2 + 3; label 1 five times: 1 + 1 + 3
    assert counts(NearlyIid(), TWELVE, 3) == [[2, 1], [2, 1], [3, 3]]
    assert counts(NearlyIid(), TWELVE, 7) == [[1, 0]] * 6 + [[1, 5]]


def test_iid_is_an_even_split_of_a_shuffle() -> None:
    assert sizes(Iid(), 11) == [3, 3, 3, 2]
    assert not np.array_equal(Iid().rows(tens(100), 2, seed=0)[0], np.arange(50))


@pytest.mark.parametrize("concentration", [1e-300, 1e-6, 0.1, 1e6, 1e300])
def test_dirichlet_keeps_the_minimum(concentration: float) -> None:
    found = sizes(Dirichlet(concentration=concentration, minimum=3), clients=30)
    assert min(found) >= 3
    assert sum(found) == 100
    assert sizes(Dirichlet(concentration=concentration, minimum=4), 40, 10) == [4] * 10  # which takes every row
    assert sizes(DirichletEqual(concentration=concentration), 103, 10) == [10] * 10


def test_a_client_with_exactly_the_minimum_has_enough() -> None:
    first = sizes(Dirichlet(concentration=1.0))
    least = min(first)
    assert least > 1
    assert sizes(Dirichlet(concentration=1.0, minimum=least)) == first  # the first draw is taken
    assert sizes(Dirichlet(concentration=1.0, minimum=least, draws=1)) == first
    assert sizes(Dirichlet(concentration=1.0, minimum=least + 1)) != first
    with pytest.raises(UserError, match=rf"best of 1 draws .* {least} samples, split.minimum is {least + 1};"):
        sizes(Dirichlet(concentration=1.0, minimum=least + 1, draws=1))


def test_the_draw_that_is_taken_is_the_first_with_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    # ten rows of one class: 9 + 1, 8 + 2, 7 + 3, 5 + 5
    drawn = iter([[[0.9, 0.1]], [[0.8, 0.2]], [[0.7, 0.3]], [[0.5, 0.5]]])
    monkeypatch.setattr(dirichlet, "draw_shares", lambda *_: np.array(next(drawn)))
    assert counts(Dirichlet(minimum=3, draws=1_000_000), np.zeros(10, dtype=np.int64), 2) == [[7], [3]]
    assert next(drawn) == [[0.5, 0.5]]


def test_drawing_reaches_what_is_else_repaired() -> None:
    settings = Dirichlet(minimum=9)  # by repair, several clients end up with exactly 9
    assert sizes(settings, 300, 15).count(9) > 3
    drawn = sizes(replace(settings, draws=1_000_000), 300, 15)
    assert min(drawn) >= 9
    assert drawn.count(9) <= 3
    # where the minimum is reached within 100 draws, nothing is repaired, and both are the same
    assert sizes(Dirichlet(minimum=5), 300, 5) == sizes(Dirichlet(minimum=5, draws=100), 300, 5)


def test_repair_takes_from_the_largest_and_only_what_is_missing() -> None:
    owners = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    dirichlet.repair(owners, 3, 2, np.random.default_rng(0))
    assert np.bincount(owners).tolist() == [4, 2, 2]
    assert owners[5:].tolist() == [1, 1, 2]
    # one class goes whole to one client: the other three get their minimum of 2 from it, one row at a time
    found = counts(Dirichlet(concentration=1e-9, minimum=2), np.zeros(100, dtype=np.int64), 4)
    assert sorted(found) == [[2], [2], [2], [94]]


def test_dirichlet_follows_its_concentration() -> None:
    labels = tens(1000)
    whole = counts(Dirichlet(concentration=1e-6), labels, 2)
    assert {count for row in whole for count in row} == {0, 100}
    even = counts(Dirichlet(concentration=1e9), labels, 4)
    assert all(24 <= count <= 26 for row in even for count in row)


def test_dirichlet_rounding_favours_no_client() -> None:
    # 0.6 rows of each of 10 classes per client: 6 on average; equal rounding in each class would give 0 or 10
    found = np.array(sizes(Dirichlet(concentration=1e9), 300, 50))
    assert np.count_nonzero((found >= 3) & (found <= 9)) >= 40


def test_dirichlet_of_many_clients() -> None:
    found = sizes(Dirichlet(concentration=1e-6), 20_000, 10_000)
    assert (min(found), sum(found)) == (1, 20_000)


def test_dirichlet_equal_continues_when_a_class_runs_out() -> None:
    # 8 clients want all of their 5 rows from one class; the label that occurs twice cannot serve any of them alone
    found = np.array(counts(DirichletEqual(concentration=1e-6), np.array([0] * 38 + [1] * 2), 8))
    assert found.sum(axis=1).tolist() == [5] * 8
    assert found.sum(axis=0).tolist() == [38, 2]


def test_large_labels_are_split_like_small_ones() -> None:
    """Numbers of more than 16 bits are sorted in another way."""
    small, large = (Dirichlet(concentration=1.0).rows(tens(60) * factor, 4, seed=5) for factor in (1, 10_000))
    for one, other in zip(small, large, strict=True):
        np.testing.assert_array_equal(one, other)
