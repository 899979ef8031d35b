"""Key agreement between a client and the helper: X25519, then HKDF with SHA-256 (RFC 7748, RFC 5869).

Keys live in the memory of the process that made them and nowhere else: a run that is resumed agrees on new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areabench.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32


def require_cryptography() -> None:
    """A UserError where the package `cryptography` is missing."""
    try:
        import cryptography  # noqa: F401  # an extra
    except ImportError as error:
        raise UserError(
            "[privacy] needs the package `cryptography`; install it with `pip install 'areabench[privacy]'`, or remove "
            "the section [privacy]"
        ) from error


class KeyPair:
    """A private key, which never leaves this process, and the public key that belongs to it."""

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate() if private is None else private
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes, client: int) -> bytes:
        """The key of a client's masks, from the other party's public key: the same for client and helper."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        return derive(shared, f"areabench mask of client {client}")

    def __repr__(self) -> str:
        """Without the private key, whatever prints it."""
        return f"KeyPair(public={self.public.hex()[:8]}...)"


def derive(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose, from a secret."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(secret)
