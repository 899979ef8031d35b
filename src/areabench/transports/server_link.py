"""What the server's loop asks of a wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from areabench.messages import Order, Update
from areabench.schema import Reason
from areabench.transports.keeping import Recall


class ServerLink(Protocol):
    """The server's end of the wire."""

    def arrivals(self) -> Sequence[Update]:
        """All updates that are here now; each is lent until `rearm`."""
        ...

    def rearm(self, client: int) -> None:
        """The client's update has been used: be ready for its next message."""
        ...

    def order(self, order: Order) -> None:
        """Send an order; returns at once."""
        ...

    def stop_all(self) -> None:
        """Tell every client to stop."""
        ...

    def failure(self, client: int) -> str:
        """What a client that has failed says about it."""
        ...

    def flawed(self) -> Sequence[tuple[int, Reason]]:
        """The clients whose messages could not be read, since the last call, and why."""
        ...

    def lost(self) -> Sequence[int]:
        """The clients whose rank has died, since the last call."""
        ...

    @property
    def recall(self) -> Recall:
        """Asks clients what they remember."""
        ...
