"""Mini-batches: the same sequence, however it is taken."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from areabench.problems.minibatches import Minibatches

ROWS = np.arange(37) * 3


def batches(steps: int = 3, batch_size: int = 7) -> Minibatches:
    """Those of one client; a block has 512 // (steps·batch_size) rounds."""
    return Minibatches(1, 2, ROWS, steps, batch_size)


@pytest.mark.parametrize(
    ("steps", "batch_size", "digest"),
    [
        (1, 1, "f3e5113b022b718e"),
        (3, 7, "08ed3e9eeb2e5055"),
        (20, 32, "1ac4830101a0935c"),
        (1, 600, "dd70080be5a8fe82"),
    ],
)
def test_the_sequence_is_that_of_earlier_runs(steps: int, batch_size: int, digest: str) -> None:
    found = batches(steps, batch_size)
    rounds = b"".join(found.next_round().tobytes() for _ in range(40))
    assert hashlib.sha256(rounds).hexdigest()[:16] == digest


@pytest.mark.parametrize("counts", [(1,) * 90, (90,), (0, 1, 71, 3, 15), (71, 2, 17)])
def test_any_counts_take_the_same_sequence(counts: tuple[int, ...]) -> None:
    rounds = batches()  # a block has 24 rounds, 72 mini-batches
    expected = np.concatenate([rounds.next_round() for _ in range(30)])
    found = batches()
    taken = [found.next_batches(count) for count in counts]
    assert [len(rows) for rows in taken] == list(counts)
    np.testing.assert_array_equal(np.concatenate(taken), expected)


@pytest.mark.parametrize("count", [0, 2, 72, 73, 300])
def test_skipped_mini_batches_are_those_not_taken(count: int) -> None:
    late, whole = batches(), batches()
    late.skip_batches(count)
    whole.next_batches(count)
    np.testing.assert_array_equal(late.next_batches(5), whole.next_batches(5))


def test_skipped_rounds_have_all_their_mini_batches() -> None:
    late, whole = batches(), batches()
    late.skip(25)
    whole.skip_batches(75)
    np.testing.assert_array_equal(late.next_round(), whole.next_round())


def test_mini_batches_hold_only_the_clients_own_rows() -> None:
    own = np.array([3, 17, 4, 39])
    found = Minibatches(1, 0, own, 5, 32)
    assert set(np.concatenate([found.next_round().ravel() for _ in range(20)])) == set(own)
    assert found.next_round().shape == (5, 32)
