"""Random streams: those that are opened in bulk are those that are opened one by one."""

from __future__ import annotations

import numpy as np
import pytest

from areabench.streams import Purpose, Streams, seed_states, stream

SEEDS = (0, 1, 2**32 - 1, 2**32, 2**40 + 3, 2**64, 2**95 + 12345, 2**130 + 7)
INDICES = (0, 1, 77, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 3 << 32, 2**63, 2**64 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_states_are_those_of_numpy(seed: int) -> None:
    for purpose in Purpose:
        found = seed_states(seed, purpose, np.array(INDICES, np.uint64))
        for index, state in zip(INDICES, found, strict=True):
            expected = np.random.SeedSequence([seed, purpose, index]).generate_state(4, np.uint64)
            np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize("at_once", [1, 4, 10, 11])
def test_streams_in_bulk_draw_what_single_ones_draw(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("areabench.streams._AT_ONCE", at_once)
    streams = Streams(5, Purpose.SAMPLES, 10)
    for index in (9, 0, 4, 3):
        bulk, single = streams.open(index), stream(5, Purpose.SAMPLES, index)
        assert bulk.bit_generator.state == single.bit_generator.state
        assert bulk.standard_normal(3).tolist() == single.standard_normal(3).tolist()


def test_a_stream_begins_again_when_it_is_opened_again() -> None:
    streams = Streams(5, Purpose.SAMPLES, 2)
    assert streams.open(1).random() == streams.open(1).random() != streams.open(0).random()
