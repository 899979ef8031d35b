"""A client's side of a run, without clock or wire: its data, its memory and its round counter; and its rank on MPI.

Rank 0 is the server. Client i is hosted by worker rank 1 + i mod (worker ranks).
"""

from __future__ import annotations

from dataclasses import dataclass

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Method
from areabench.problems.base import LocalProblem


class Client:
    """Client i: answers the r-th order with its r-th round of local steps."""

    def __init__(self, method: Method, local: LocalProblem, start: Vector, local_steps: int) -> None:
        self._method, self._local, self._local_steps = method, local, local_steps
        self.memory = self._before = method.remember(start)
        self.round = 0

    def work(self, model: Vector, step_size: float) -> Vector:
        """M local steps from `model`, none in a first round without training; returns what goes to the server."""
        if self.round or self._method.trains_first:
            local = self._local.descend(model, step_size)
        else:
            self._local.skip(self._local_steps)  # so that each later round has the samples that it always has
            local = model.copy()  # the transport may use the array again
        report = self._method.report(self.memory, model, local)
        self._before, self.memory = self.memory, report.memory
        self.round += 1
        return report.payload

    def take_back(self) -> None:
        """The server has refused the last update: remember what was remembered before it, as the server does."""
        self.memory = self._before

    def memory_at(self, number: int) -> Vector | None:
        """What the client remembered when its round `number` began: the one to come, or the last one."""
        assert number in (self.round, self.round - 1), f"round {number} was asked for, the next is {self.round}"
        return self.memory if number == self.round else self._before

    def resume(self, rounds: int, memory: Vector | None) -> None:
        """Continue after this many rounds."""
        self._local.skip(rounds * self._local_steps)
        self.round, self.memory, self._before = rounds, memory, memory


@dataclass(frozen=True)
class Placement:
    """Which of the worker ranks 1 to `workers` hosts which client."""

    clients: int
    workers: int

    def rank(self, client: int) -> int:
        """The rank that hosts a client."""
        return 1 + client % self.workers

    def hosted(self, rank: int) -> range:
        """The clients that a worker rank hosts; the server's rank hosts none."""
        return range(rank - 1, self.clients, self.workers) if rank else range(0)


def place(clients: int, ranks: int) -> Placement:
    """All clients on the worker ranks, at least one on each; a UserError says how many ranks fit."""
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
