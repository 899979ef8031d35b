"""Splits: who holds which rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems.splits import dirichlet
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.problems.splits.rows import ClientRows, SplitSettings, part_sizes

COVERING: list[SplitSettings] = [Dirichlet(), Dirichlet(concentration=1e-6), Dirichlet(concentration=1e6), Iid()]
ALL: list[SplitSettings] = [*COVERING, DirichletEqual(), NearlyIid()]


def tens(samples: int) -> NDArray[np.int64]:
    """Labels 0..9 in turn."""
    return np.arange(samples, dtype=np.int64) % 10


def class_counts(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> list[int]:
    """How many rows of each label a client holds."""
    return [int(np.count_nonzero(labels[rows] == label)) for label in np.unique(labels)]


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_parts_are_sorted_disjoint_and_not_empty(settings: SplitSettings) -> None:
    parts = settings.rows(tens(300), 7, seed=3)
    rows = np.concatenate(parts)
    assert len(parts) == 7
    assert min(map(len, parts)) >= 1
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert len(np.unique(rows)) == len(rows)
    assert 0 <= rows.min() <= rows.max() < 300


def test_parts_are_cut_where_the_sizes_say() -> None:
    parts = ClientRows(np.array([4, 7, 1, 0, 9]), np.array([2, 1, 2]))
    assert [part.tolist() for part in parts] == [[4, 7], [1], [0, 9]]
    assert [part.tolist() for part in parts[1:]] == [[1], [0, 9]]
    assert parts[-1].tolist() == [0, 9]
    assert part_sizes(parts).tolist() == part_sizes(list(parts)).tolist() == [2, 1, 2]


@pytest.mark.parametrize("settings", [*COVERING, NearlyIid()], ids=str)
def test_all_rows_are_assigned(settings: SplitSettings) -> None:
    parts = settings.rows(tens(301), 7, seed=3)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(301))


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_the_seed_decides(settings: SplitSettings) -> None:
    first, same, other = (settings.rows(tens(300), 7, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one, two) for one, two in zip(first, same, strict=True))
    assert any(not np.array_equal(one, two) for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_one_client_gets_everything(settings: SplitSettings) -> None:
    (rows,) = settings.rows(tens(50), 1, seed=0)
    assert np.array_equal(rows, np.arange(50))


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_more_clients_than_samples(settings: SplitSettings) -> None:
    with pytest.raises(UserError, match=r"31 clients .* has 30; lower clients.count"):
        settings.rows(tens(30), 31, seed=0)


def test_nearly_iid_by_hand() -> None:
    # label 0 seven times: 2 + 2 + 3; label 1 five times: 1 + 1 + 3
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0])
    parts = NearlyIid().rows(labels, 3, seed=0)
    assert [class_counts(part, labels) for part in parts] == [[2, 1], [2, 1], [3, 3]]


def test_nearly_iid_refuses_empty_clients() -> None:
    with pytest.raises(UserError, match=r"8 clients.* label has 7 samples.*lower clients.count to 7"):
        NearlyIid().rows(np.array([0] * 7 + [1] * 5), 8, seed=0)


def test_nearly_iid_at_its_limit() -> None:
    labels = np.array([0] * 7 + [1] * 5)
    parts = NearlyIid().rows(labels, 7, seed=0)
    assert [class_counts(part, labels) for part in parts] == [[1, 0]] * 6 + [[1, 5]]


def test_iid_sizes_differ_by_one() -> None:
    assert [len(part) for part in Iid().rows(tens(11), 4, seed=0)] == [3, 3, 3, 2]


def test_iid_is_shuffled() -> None:
    assert not np.array_equal(Iid().rows(tens(100), 2, seed=0)[0], np.arange(50))


@pytest.mark.parametrize("concentration", [1e-300, 1e-6, 0.1, 1e6, 1e300])
def test_dirichlet_keeps_the_minimum(concentration: float) -> None:
    parts = Dirichlet(concentration=concentration, minimum=3).rows(tens(100), 30, seed=5)
    assert min(map(len, parts)) >= 3
    assert sum(map(len, parts)) == 100


def test_dirichlet_minimum_that_takes_every_row() -> None:
    parts = Dirichlet(concentration=1e-6, minimum=4).rows(tens(40), 10, seed=5)
    assert [len(part) for part in parts] == [4] * 10


def test_dirichlet_minimum_out_of_reach() -> None:
    with pytest.raises(UserError, match=r"10 clients with at least 5 samples each need 50 samples.* has 40"):
        Dirichlet(minimum=5).rows(tens(40), 10, seed=0)


def sizes_of(settings: Dirichlet, samples: int = 100, clients: int = 4, seed: int = 5) -> list[int]:
    return [len(part) for part in settings.rows(tens(samples), clients, seed)]


def test_a_client_with_exactly_the_minimum_has_enough() -> None:
    first = sizes_of(Dirichlet(concentration=1.0))
    least = min(first)
    assert least > 1
    assert sizes_of(Dirichlet(concentration=1.0, minimum=least)) == first  # the first draw is taken
    assert sizes_of(Dirichlet(concentration=1.0, minimum=least, draws=1)) == first
    assert sizes_of(Dirichlet(concentration=1.0, minimum=least + 1)) != first
    with pytest.raises(UserError, match=rf"best of 1 draws .* {least} samples, split.minimum is {least + 1};"):
        sizes_of(Dirichlet(concentration=1.0, minimum=least + 1, draws=1))


def test_the_draw_that_is_taken_is_the_first_with_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    # ten rows of one class: 9 + 1, 8 + 2, 7 + 3, 5 + 5
    drawn = iter([[[0.9, 0.1]], [[0.8, 0.2]], [[0.7, 0.3]], [[0.5, 0.5]]])
    monkeypatch.setattr(dirichlet, "draw_shares", lambda *_: np.array(next(drawn)))
    parts = Dirichlet(minimum=3, draws=1_000_000).rows(np.zeros(10, dtype=np.int64), 2, seed=0)
    assert [len(part) for part in parts] == [7, 3]
    assert next(drawn) == [[0.5, 0.5]]


def test_draws_are_those_of_the_split_that_is_repaired() -> None:
    """Where the minimum is reached within 100 draws, nothing is repaired, and both are the same."""
    plain = Dirichlet(minimum=5).rows(tens(300), 5, seed=2)
    drawn = Dirichlet(minimum=5, draws=100).rows(tens(300), 5, seed=2)
    assert all(np.array_equal(one, two) for one, two in zip(plain, drawn, strict=True))


def test_drawing_reaches_what_is_else_repaired() -> None:
    settings = Dirichlet(minimum=9)  # by repair, several clients end up with exactly 9
    with pytest.raises(UserError, match=r"in the best of 100 draws a client has \d samples, split.minimum is 9; all"):
        sizes_of(replace(settings, draws=100), 300, 15)
    assert sizes_of(settings, 300, 15).count(9) > 3
    drawn = sizes_of(replace(settings, draws=1_000_000), 300, 15)
    assert min(drawn) >= 9
    assert drawn.count(9) <= 3


def test_repair_leaves_a_client_with_exactly_the_minimum_alone() -> None:
    owners = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    dirichlet.repair(owners, 3, 2, np.random.default_rng(0))
    assert np.bincount(owners).tolist() == [4, 2, 2]
    assert owners[5:].tolist() == [1, 1, 2]


def test_repair_takes_from_the_largest_only() -> None:
    # one class goes whole to one client: the other three get their minimum of 2 from it, one row at a time
    parts = Dirichlet(concentration=1e-9, minimum=2).rows(np.zeros(100, dtype=np.int64), 4, seed=1)
    assert sorted(map(len, parts)) == [2, 2, 2, 94]


def test_dirichlet_small_concentration_gives_a_class_to_one_client() -> None:
    labels = tens(1000)
    parts = Dirichlet(concentration=1e-6).rows(labels, 2, seed=1)
    assert all(count in (0, 100) for part in parts for count in class_counts(part, labels))


def test_dirichlet_large_concentration_is_even() -> None:
    labels = tens(1000)
    parts = Dirichlet(concentration=1e9).rows(labels, 4, seed=1)
    assert all(24 <= count <= 26 for part in parts for count in class_counts(part, labels))


def test_dirichlet_rounding_favours_no_client() -> None:
    # 0.6 rows of each of 10 classes per client: 6 on average; equal rounding in each class would give 0 or 10
    sizes = np.array([len(part) for part in Dirichlet(concentration=1e9).rows(tens(300), 50, seed=1)])
    assert np.count_nonzero((sizes >= 3) & (sizes <= 9)) >= 40


def test_dirichlet_of_many_clients() -> None:
    parts = Dirichlet(concentration=1e-6).rows(tens(20_000), 10_000, seed=1)
    assert min(map(len, parts)) == 1
    assert sum(map(len, parts)) == 20_000


@pytest.mark.parametrize("concentration", [1e-300, 1e-6, 0.1, 1.0, 1e300])
def test_dirichlet_equal_sizes(concentration: float) -> None:
    parts = DirichletEqual(concentration=concentration).rows(tens(103), 10, seed=2)
    assert [len(part) for part in parts] == [10] * 10


def test_dirichlet_equal_continues_when_a_class_runs_out() -> None:
    # 8 clients want all of their 5 rows from one class; the label that occurs twice cannot serve any of them alone
    labels = np.array([0] * 38 + [1] * 2)
    parts = DirichletEqual(concentration=1e-6).rows(labels, 8, seed=0)
    assert [len(part) for part in parts] == [5] * 8
    assert sum(class_counts(part, labels)[1] for part in parts) == 2


def test_large_labels_are_split_like_small_ones() -> None:
    """Numbers of more than 16 bits are sorted in another way."""
    parts = Dirichlet(concentration=1.0).rows(tens(60), 4, seed=5)
    for part, other in zip(parts, Dirichlet(concentration=1.0).rows(tens(60) * 10_000, 4, seed=5), strict=True):
        np.testing.assert_array_equal(part, other)


def test_labels_with_gaps() -> None:
    labels = np.array([3, 200, 3, 200, 3, 200])
    for settings in ALL:
        parts = settings.rows(labels, 2, seed=0)
        assert sum(map(len, parts)) == 6
