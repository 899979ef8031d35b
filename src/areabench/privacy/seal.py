"""Sealed memories: what a client remembers travels to the server, for a checkpoint, under a key of the clients.

AES-256-GCM with a random nonce (NIST SP 800-38D). The key comes from a secret in a file that client ranks read and the
server's rank does not: keys of a launch end with it, and a resumed run must open what an earlier one has sealed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.privacy.keys import KEY_BYTES, derive

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET = "AREABENCH_CLIENT_SECRET"
_NONCE_BYTES = 12
_TAG_BYTES = 16


def sealed_like(memory: Vector) -> Vector:
    """An array with the shape and type of a sealed memory."""
    return np.zeros(_NONCE_BYTES + memory.nbytes + _TAG_BYTES, np.uint8)


class Seal:
    """Seals and opens what one client remembers; the secret is read when it is first needed."""

    def __init__(self, client: int) -> None:
        self._client = client

    def close(self, memory: Vector) -> Vector:
        """The memory, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        content = self._cipher.encrypt(nonce, np.ascontiguousarray(memory).tobytes(), self._bound_to)
        return np.frombuffer(nonce + content, np.uint8)

    def open(self, sealed: Vector, like: Vector) -> Vector:
        """The memory, which is like `like`; a UserError where it was sealed with another secret or changed."""
        from cryptography.exceptions import InvalidTag

        content = sealed.tobytes()
        try:
            plain = self._cipher.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], self._bound_to)
        except InvalidTag:
            raise UserError(
                f"the memory of client {self._client} was not sealed with the secret in "
                f"{secret_path(os.environ)}, or was changed; name the file with the old secret: {SECRET}=FILE"
            ) from None
        return np.frombuffer(plain, like.dtype).reshape(like.shape).copy()

    @property
    def _bound_to(self) -> bytes:
        return str(self._client).encode()

    @cached_property
    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        secret = client_secret(secret_path(os.environ))
        return AESGCM(derive(secret, f"areabench memory of client {self._client}"))


def secret_path(environment: Mapping[str, str]) -> Path:
    """The file with the clients' secret: what AREABENCH_CLIENT_SECRET names, or one in the user's state folder."""
    if chosen := environment.get(SECRET):
        return Path(chosen)
    return Path(environment.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "areabench/client-secret"


def client_secret(path: Path) -> bytes:
    """The secret in a file that only this user may read; it is made where there is none."""
    try:
        if not path.exists():
            _make_secret(path)
        secret = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: the secret of the clients cannot be read or made: {error.strerror or error}; name a file that "
            f"the clients' ranks can read, of {KEY_BYTES} bytes or more: {SECRET}=FILE"
        ) from error
    if len(secret) < KEY_BYTES:
        raise UserError(f"{path}: a secret of {len(secret)} bytes is too short; use {KEY_BYTES} random bytes or more")
    return secret


def _make_secret(path: Path) -> None:
    """Write a new secret, whole or not at all: other ranks may do the same now, and the first one counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # for this user only
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(KEY_BYTES))
    # A link appears whole, and only where there is none; a rename would replace what another rank has read.
    with suppress(FileExistsError):
        os.link(name, path)
    Path(name).unlink()
