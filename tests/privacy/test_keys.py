"""Key agreement, key stream and sealing: against the vectors of their standards, and as areabench uses them."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.privacy.keys import KeyPair, derive, require_cryptography
from areabench.privacy.masks import MaskStream
from areabench.privacy.seal import SECRET, Seal, client_secret, sealed_like, secret_path

# RFC 7748: section 5.2, as the vectors of `cryptography` have it, and a key pair of section 6.1
SCALAR = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
POINT = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
PRODUCT = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
# NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt, first two blocks
AES_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
CIPHER = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
# RFC 5869, test case 3: no salt, no info
HKDF_OUT = bytes.fromhex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d")


def pair(private: bytes) -> KeyPair:
    return KeyPair(X25519PrivateKey.from_private_bytes(private))


@pytest.fixture(autouse=True)
def own_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SECRET, str(tmp_path / "secret"))
    return tmp_path / "secret"


# ---------------------------------------------------------------------------------------------------- keys


def test_public_keys_and_shared_secret_are_those_of_rfc_7748() -> None:
    assert pair(BOB).public == BOB_PUBLIC
    assert pair(SCALAR).agree(POINT, 3) == derive(PRODUCT, "areabench mask of client 3")


def test_derived_keys_are_those_of_rfc_5869() -> None:
    assert HKDF(SHA256(), 32, salt=None, info=b"").derive(bytes([11] * 22)) == HKDF_OUT
    assert derive(bytes([11] * 22), "") == HKDF_OUT


def test_client_and_helper_agree_and_nobody_else_does() -> None:
    client, helper, other = KeyPair(), KeyPair(), KeyPair()
    assert client.agree(helper.public, 0) == helper.agree(client.public, 0)
    assert client.agree(helper.public, 0) != helper.agree(client.public, 1)  # each client has a key of its own
    assert client.agree(helper.public, 0) != other.agree(client.public, 0)


def test_a_printed_key_pair_does_not_show_its_private_key() -> None:
    assert BOB.hex()[:6] not in repr(pair(BOB))


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "cryptography":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"needs the package `cryptography`; install it with .*areabench\[privacy\]"):
        require_cryptography()


# ---------------------------------------------------------------------------------------------------- stream


def test_the_key_stream_is_that_of_nist_sp_800_38a() -> None:
    encryptor = Cipher(AES(AES_KEY), CTR(COUNTER)).encryptor()
    assert encryptor.update(PLAIN) == CIPHER


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_mask_is_the_key_stream_with_the_round_as_nonce(dtype: type) -> None:
    like: Vector = np.zeros(8, dtype)
    nonce = (5).to_bytes(8, "big") + bytes(8)
    stream = Cipher(AES(AES_KEY), CTR(nonce)).encryptor().update(bytes(like.nbytes))
    assert MaskStream(AES_KEY, like).mask(5).tobytes() == stream


def test_masks_of_other_rounds_and_keys_are_others() -> None:
    like = np.zeros(1000, np.uint32)
    stream, other = MaskStream(AES_KEY, like), MaskStream(bytes(32), like)
    masks = [stream.mask(0), stream.mask(1), other.mask(0), stream.mask(2**40)]
    for place, one in enumerate(masks):
        for another in masks[place + 1 :]:
            assert np.count_nonzero(one == another) <= 1
    assert np.array_equal(stream.mask(0), masks[0])


# ---------------------------------------------------------------------------------------------------- seal


def test_a_sealed_memory_opens_to_the_same_bits() -> None:
    memory = np.array([1, -2, 2**60], np.int64)
    sealed = Seal(3).close(memory)
    assert (sealed.shape, sealed.dtype) == (sealed_like(memory).shape, sealed_like(memory).dtype)
    assert memory.tobytes() not in sealed.tobytes()
    assert np.array_equal(Seal(3).open(sealed, memory), memory)
    assert not np.array_equal(Seal(3).close(memory), sealed)  # a nonce is used once


def test_a_memory_opens_for_its_client_unchanged_and_with_its_secret_only(own_secret: Path) -> None:
    memory = np.arange(4, dtype=np.int64)
    sealed = Seal(3).close(memory)
    changed = sealed.copy()
    changed[20] ^= 1
    refused = rf"was not sealed with the secret in .*{SECRET}=FILE"
    for seal, content in ((Seal(4), sealed), (Seal(3), changed)):
        with pytest.raises(UserError, match=refused):
            seal.open(content, memory)
    own_secret.write_bytes(bytes(32))
    with pytest.raises(UserError, match=refused):
        Seal(3).open(sealed, memory)


def test_a_secret_is_made_once_and_for_this_user_only(own_secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client_secret(own_secret)
    assert client_secret(own_secret) == made
    assert (len(made), own_secret.stat().st_mode & 0o777) == (32, 0o600)
    monkeypatch.setattr(Path, "exists", lambda _path: False)  # what a second rank has seen before the first wrote
    assert client_secret(own_secret) == made
    assert own_secret.read_bytes() == made
    assert [path.name for path in own_secret.parent.iterdir()] == ["secret"]


def test_a_secret_that_is_too_short_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(UserError, match="3 bytes is too short; use 32"):
        client_secret(tmp_path / "short")
    with pytest.raises(UserError, match=f"cannot be read or made: .*{SECRET}=FILE"):
        client_secret(tmp_path / "short" / "below")


def test_the_secret_lies_in_the_state_folder_unless_named() -> None:
    assert secret_path({SECRET: "/a/b"}) == Path("/a/b")
    assert secret_path({"XDG_STATE_HOME": "/state"}) == Path("/state/areabench/client-secret")
    assert secret_path({}) == Path(os.path.expanduser("~/.local/state/areabench/client-secret"))  # noqa: PTH111
