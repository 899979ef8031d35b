"""Which rank hosts which client: rank 0 is the server, the clients go round the worker ranks like dealt cards."""

from __future__ import annotations

from dataclasses import dataclass

from areabench.errors import UserError


@dataclass(frozen=True)
class Placement:
    """So many clients on the ranks 1 to `workers`."""

    clients: int
    workers: int

    def rank(self, client: int) -> int:
        """The rank that hosts a client."""
        return 1 + client % self.workers

    def hosted(self, rank: int) -> range:
        """The clients that a worker rank hosts; the server's rank hosts none."""
        return range(rank - 1, self.clients, self.workers) if rank else range(0)


def place(clients: int, ranks: int) -> Placement:
    """The clients on all ranks but the server's, at least one on each; a UserError says how many ranks fit."""
    if 2 <= ranks <= clients + 1:
        return Placement(clients, ranks - 1)
    if ranks < 2:
        what = "1 rank, which is the server's, leaves none for the clients; start 2"
    else:
        what = f"{ranks:,} ranks are more than one server and clients.count = {clients:,} clients can use; start 2"
    among = f" to {clients + 1:,}" if clients > 1 else ""
    raise UserError(
        f"{what}{among}: type `mpirun -n {min(clients, 8) + 1} areabench run ...`, or `areabench launch ...`, which "
        "does it for you, or `areabench simulate ...`, which needs no MPI"
    )
