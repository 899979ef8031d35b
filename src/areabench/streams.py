"""Random numbers: one stream per (seed, purpose, client), so that no draw depends on the order of arrivals.

`stream` opens one. `Streams` opens those of many clients, the same to the bit and in an eighth of the time: it computes
what numpy's SeedSequence computes for each of them, for all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise, permutations, repeat
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

_MASK = 0xFFFFFFFF
_POOL = 4  # 32-bit words that the entropy is mixed into
# constants of numpy's SeedSequence, whose algorithm is fixed
_INIT_A = 0x43B0D7E5
_MULTIPLIER_A = 0x931E8875
_INIT_B = 0x8B51F9DD
_MULTIPLIER_B = 0x58F38DED
_MIX_LEFT = np.uint32(0xCA01F9DD)
_MIX_RIGHT = np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_AT_ONCE = 2**14  # indices whose words are computed together: they fit into the cache

Words = NDArray[np.uint32]
Keys = Iterator[tuple[np.uint32, np.uint32]]


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of the definition of a run and never change."""

    SPLIT = 1
    RATES = 2
    DELAYS = 3
    SAMPLES = 4
    START = 5
    PROBLEM = 6
    SELECTION = 7
    AGGREGATION = 8
    REPLACEMENT = 9
    WORK = 10
    RULE = 11  # whatever a rule draws


def stream(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """The stream of one purpose; `index` is the client, or the number of the draw where the server draws."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose, index])))


class Streams:
    """The streams of one purpose with the indices 0 to `count` - 1; 32 bytes each until it is opened."""

    def __init__(self, seed: int, purpose: Purpose, count: int) -> None:
        # In blocks, because the words of all indices together would leave the cache.
        blocks = [
            seed_states(seed, purpose, np.arange(first, min(first + _AT_ONCE, count), dtype=np.uint64))
            for first in range(0, count, _AT_ONCE)
        ]
        self._states = np.concatenate(blocks)

    def open(self, index: int) -> np.random.Generator:
        """A stream, from its beginning."""
        seeded: Any = _Seeded(self._states[index])  # which numpy's type hints leave out
        return np.random.Generator(np.random.PCG64(seeded))


class _Seeded(ISeedSequence):
    """What a SeedSequence has computed."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        """The state that PCG64 asks for."""
        assert n_words == 4
        return self._state


def seed_states(seed: int, purpose: Purpose, indices: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SeedSequence([seed, purpose, index]).generate_state(4, np.uint64) of each index, shape (indices, 4)."""
    given = [np.array([word], np.uint32) for number in (seed, int(purpose)) for word in _words_of(number)]
    low = indices.astype(np.uint32)
    high = (indices >> np.uint64(32)).astype(np.uint32)
    states = np.empty((len(indices), 4), np.uint64)
    for some, words in ((high == 0, [low]), (high > 0, [low, high])):  # one word of entropy, or two
        if some.any():
            states[some] = _seed_state([*given, *(word[some] for word in words)])
    return states


def _words_of(number: int) -> list[int]:
    """The 32-bit words of a number, the lowest first."""
    return [number >> shift & _MASK for shift in range(0, max(number.bit_length(), 1), 32)]


def _seed_state(entropy: Sequence[Words]) -> NDArray[np.uint64]:
    """The four 64-bit words that PCG64 is seeded with, shape (indices, 4)."""
    # a pool of four words in which every bit depends on all of the entropy
    keys = _keys(_INIT_A, _MULTIPLIER_A)
    padded = [*entropy, *[np.zeros(1, np.uint32)] * (_POOL - len(entropy))]
    pool = [_hash(word, keys) for word in padded[:_POOL]]
    for source, target in permutations(range(_POOL), 2):
        pool[target] = _mix(pool[target], _hash(pool[source], keys))
    for word in padded[_POOL:]:
        pool = [_mix(each, _hash(word, keys)) for each in pool]
    keys = _keys(_INIT_B, _MULTIPLIER_B)
    # Two 32-bit words, the lower one first, are a 64-bit one.
    words = [_hash(word, keys).astype(np.uint64) for word in (*pool, *pool)]
    return np.stack([low | high << np.uint64(32) for low, high in zip(words[::2], words[1::2], strict=True)], axis=-1)


def _keys(key: int, multiplier: int) -> Keys:
    """The keys of each hash: the second one of a hash is the first one of the next."""
    powers = accumulate(repeat(multiplier), lambda last, factor: last * factor & _MASK, initial=key)
    return pairwise(map(np.uint32, powers))


def _hash(word: Words, keys: Keys) -> Words:
    first, second = next(keys)
    return _fold((word ^ first) * second)


def _mix(left: Words, right: Words) -> Words:
    return _fold(left * _MIX_LEFT - right * _MIX_RIGHT)


def _fold(word: Words) -> Words:
    return word ^ (word >> _SHIFT)
