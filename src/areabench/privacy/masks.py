"""Masks: integers that a client adds to its update, and whose sums the helper gives to the server.

The mask of a client's round is the key stream of AES-256 in counter mode under the client's key, with the round's
number as nonce. A round has one update at most and a key lives for one launch, so no part of the stream is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from areabench.arrays import Vector
from areabench.privacy.keys import KeyPair
from areabench.privacy.seal import Seal

Name = tuple[int, int]
"""An update: its client, and the round of that client."""


class MaskRefusal(Exception):
    """The helper does not give the sum of masks that it was asked for."""


class MaskStream:
    """The masks of one client, as the client and the helper know them."""

    def __init__(self, key: bytes, like: Vector) -> None:
        """`like` has the shape and the unsigned type of an update."""
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._cipher = AES(key)
        self._like = like

    def mask(self, number: int) -> Vector:
        """The mask of the client's round `number`."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.modes import CTR

        nonce = number.to_bytes(8, "big") + bytes(8)  # the last half counts the blocks
        # The key stream is what zeros become under the cipher; in place, as a mask is as long as a model.
        mask = np.zeros_like(self._like)
        plain = mask.view(np.uint8).data
        Cipher(self._cipher, CTR(nonce)).encryptor().update_into(plain, plain)
        return mask

    def cover(self, update: Vector, number: int) -> Vector:
        """The update of round `number` under its mask, modulo 2^32 or 2^64."""
        mask = self.mask(number)
        return np.add(update, mask, out=mask)


class MaskKeeper:
    """The helper: it knows the key of every client and no update, and gives sums of masks.

    Never the mask of an update alone, never fewer clients than the threshold, and never an update twice: of each
    client only rounds after the last one given, which are those that a server has not asked for.
    """

    def __init__(self, key_of: Callable[[int], bytes], clients: int, like: Vector, threshold: int) -> None:
        self._key_of = key_of
        self._clients = clients
        self._like = like
        self._threshold = threshold
        self._streams: dict[int, MaskStream] = {}
        self._given: dict[int, int] = {}  # the last round of each client whose mask was part of a sum

    def total(self, names: Sequence[Name]) -> Vector:
        """The sum of the masks of these updates, modulo 2^32 or 2^64; a MaskRefusal says why there is none."""
        given = self._after(names)
        total = np.zeros_like(self._like)
        for client, number in names:
            np.add(total, self._stream(client).mask(number), out=total)
        self._given.update(given)
        return total

    def _after(self, names: Sequence[Name]) -> dict[int, int]:
        """The last round of each client once these are given."""
        # All are checked before any mask is made: a refusal must leave nothing behind.
        given: dict[int, int] = {}
        for client, number in names:
            if not 0 <= client < self._clients or not 0 <= number < 2**63:
                raise MaskRefusal(f"there is no update {number} of client {client}")
            if number <= max(given.get(client, -1), self._given.get(client, -1)):
                raise MaskRefusal(f"update {number} of client {client} was part of a sum before")
            given[client] = number
        if len(given) < self._threshold:
            raise MaskRefusal(f"a sum of {len(given)} clients is below the threshold of {self._threshold}")
        return given

    def _stream(self, client: int) -> MaskStream:
        if client not in self._streams:
            self._streams[client] = MaskStream(self._key_of(client), self._like)
        return self._streams[client]


@dataclass(frozen=True)
class Secrecy:
    """What one process has of it: a worker's rank covers and seals, the server's asks for masks. Nothing: a replay."""

    cover: Callable[[int], Callable[[Vector, int], Vector]] | None = None  # by client
    seal: Callable[[int], Seal] | None = None  # by client
    unmask: Callable[[Sequence[Name]], Vector] | None = None


def covering(keys: Mapping[int, KeyPair], helper: bytes, like: Vector) -> Secrecy:
    """The part of clients with these keys, beside a helper with this public key."""
    return Secrecy(
        cover=lambda client: MaskStream(keys[client].agree(helper, client), like).cover,
        seal=Seal,
    )


class _KeyPairs(dict[int, KeyPair]):
    """The keys of clients, each made when it is first needed."""

    def __missing__(self, client: int) -> KeyPair:
        self[client] = pair = KeyPair()
        return pair


def in_one_process(clients: int, like: Vector, threshold: int) -> Secrecy:
    """All parties in one process, for the simulator: the same keys, masks and refusals."""
    helper = KeyPair()
    pairs = _KeyPairs()
    keeper = MaskKeeper(lambda client: helper.agree(pairs[client].public, client), clients, like, threshold)
    part = covering(pairs, helper.public, like)
    return Secrecy(part.cover, part.seal, keeper.total)
