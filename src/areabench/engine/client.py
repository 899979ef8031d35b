"""A client's side of a run, without clock or wire: its data, its memory and its round counter; and its rank on MPI.

Rank 0 is the server. Client i is hosted by worker rank 1 + i mod (worker ranks). With [privacy] the last rank is the
helper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from areabench.arrays import Vector
from areabench.engine.messages import Flag, Order
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.methods.base import Method, Work
from areabench.privacy.seal import Seal
from areabench.problems.base import LocalProblem

_FIT_FLAGS = (0, int(Flag.CLIPPED), int(Flag.OUTSIDE))  # by `Fit`


class LocalRound:
    """A client's round under way, one local step at a time."""

    def __init__(self, method: Method, local: LocalProblem, memory: Vector | None, order: Order) -> None:
        self._method = method
        self._local = local
        self._memory = memory
        start = order.model
        if method.begin is not None:
            start = method.begin(memory, order.model, order.attached)
        self.work = Work(order.model, order.step_size, 0, start, start, order.attached)
        self.before = self.work  # before the last step
        self._velocity: Vector | None = None

    def step(self) -> None:
        """One more local step."""
        self.before = self.work
        self.work = self.work._replace(local=self._next(), steps=self.work.steps + 1)

    def _next(self) -> Vector:
        method = self._method
        work = self.work
        if method.correct is None and not method.momentum:
            return self._local.descend(work.local, work.step_size, 1)
        direction = self._local.gradient(work.local)
        if method.correct is not None:
            direction = method.correct(self._memory, work, direction)
        if method.momentum:
            if self._velocity is not None:
                direction = method.momentum * self._velocity + direction
            self._velocity = direction
        return np.asarray(work.local - work.step_size * direction)


class Client:
    """Client i: answers the r-th order with its r-th round of local steps."""

    flags = 0  # of the last update: whether it fits into the range of [privacy]

    def __init__(
        self,
        method: Method,
        local: LocalProblem,
        start: Vector,
        *,
        stepwise: bool = False,
        lends: bool = False,
        cover: Callable[[Vector, int], Vector] | None = None,
        seal: Seal | None = None,
    ) -> None:
        """`stepwise` clients make one step at a time, whether they are interrupted or not.

        `lends`: `local` uses the array again in which local steps end, so that a client must copy what it remembers.
        `cover` hides the update of a round under its mask, and `seal` hides what the client remembers from the server.
        """
        self._method = method
        self._local = local
        self._cover = cover
        self._seal = seal
        plain = method.begin is None and method.correct is None and not method.momentum
        self._at_once = plain and not stepwise
        self._lends = lends
        self.memory = method.remember(start)
        self._before = self.memory  # when the last round began
        self.round = 0
        self.trains = method.trains_first  # whether the next round makes local steps

    def work(self, order: Order, made: int | None = None) -> Vector:
        """The local steps of an order, or the first `made` of them; returns what goes to the server."""
        steps = made
        if steps is None:
            steps = order.local_steps
        if self._at_once and self.trains:
            model = order.model
            step_size = order.step_size
            local = self._local.descend(model, step_size, steps) if steps else model
            return self.finish(order, Work(model, step_size, steps, model, local, order.attached))
        begun = self.begin(order)
        while begun.work.steps < steps and self.trains:
            begun.step()
        return self.finish(order, begun.work)

    def begin(self, order: Order) -> LocalRound:
        """Begin a round, to be made step by step."""
        return LocalRound(self._method, self._local, self.memory, order)

    def finish(self, order: Order, work: Work, computed: int | None = None) -> Vector:
        """End a round with `work`; returns what goes to the server.

        A round takes the samples of all local steps that were ordered; `computed` are those that were made, where they
        are more than those of `work`.
        """
        if computed is None:
            computed = work.steps
        if computed < order.local_steps:
            self._local.skip(order.local_steps - computed)
        # Without a local step the result is still the model that was lent.
        if not work.steps:
            work = work._replace(local=work.local.copy())
        payload, memory, fit = self._method.report(self.memory, work)
        self.flags = _FIT_FLAGS[fit]
        if memory is not None and (self._lends or memory is not work.local):
            lent = (order.model, order.attached, work.local if self._lends else None)
            if any(each is not None and np.may_share_memory(memory, each) for each in lent):
                memory = memory.copy()
        self._before = self.memory
        self.memory = memory
        if self._cover is not None:
            payload = self._cover(payload, self.round)
        self.round = self.round + 1
        self.trains = True
        return payload

    def cancel(self, order: Order, made: int = 0) -> None:
        """Drop a round after `made` of its local steps."""
        self._local.skip(order.local_steps - made)
        self._before = self.memory
        self.round = self.round + 1
        self.trains = True

    def take_back(self) -> None:
        """The server does not use the last update: remember what was remembered before it, as the server does."""
        self.memory = self._before

    def settle(self) -> None:
        """The last update will not be taken back: what was remembered before it is needed no more."""
        self._before = self.memory

    def memory_at(self, number: int) -> Vector | None:
        """What the client remembered when its round `number` began, the one to come or the last one; sealed."""
        assert number in (self.round, self.round - 1), f"round {number} was asked for, the next is {self.round}"
        memory = self._before
        if number == self.round:
            memory = self.memory
        if self._seal is None or memory is None:
            return memory
        return self._seal.close(memory)

    def resume(self, rounds: int, local_steps: int, memory: Vector | None) -> None:
        """Continue after this many rounds, which took the samples of this many local steps, with a sealed memory."""
        self._local.skip(local_steps)
        if self._seal is not None and memory is not None:
            assert self.memory is not None
            memory = self._seal.open(memory, self.memory)
        self.round = rounds
        self.memory = memory
        self._before = memory
        self.trains = rounds > 0 or self._method.trains_first


@dataclass(frozen=True)
class Placement:
    """Which of the worker ranks 1 to `workers` hosts which client, and whether the rank behind them is the helper."""

    clients: int
    workers: int
    has_helper: bool = False

    def rank(self, client: int) -> int:
        """The rank that hosts a client."""
        return 1 + client % self.workers

    def hosted(self, rank: int) -> range:
        """The clients that a worker rank hosts; the server's and the helper's host none."""
        if not 0 < rank <= self.workers:
            return range(0)
        return range(rank - 1, self.clients, self.workers)

    @property
    def helper(self) -> int | None:
        """The helper's rank, if there is one."""
        return self.workers + 1 if self.has_helper else None


def most_ranks(experiment: Experiment) -> int:
    """One for each client, the server's, and the helper's where there is one."""
    return experiment.clients.count + (1 if experiment.privacy is None else 2)


def place_clients(experiment: Experiment, ranks: int) -> Placement:
    """The placement of an experiment's clients."""
    return place(experiment.clients.count, ranks, helper=experiment.privacy is not None)


def place(clients: int, ranks: int, *, helper: bool = False) -> Placement:
    """All clients on the worker ranks, at least one on each; a UserError says how many ranks fit."""
    others = 1 + helper
    if others < ranks <= clients + others:
        return Placement(clients, ranks - others, has_helper=helper)
    if ranks > others:
        apart = "one server, one helper" if helper else "one server"
        what = f"{ranks:,} ranks are more than {apart} and clients.count = {clients:,} clients can use"
    elif ranks == 1:
        what = "1 rank, which is the server's, leaves none for the clients"
    else:
        what = f"{ranks} ranks, the server's and the helper's, leave none for the clients"
    among = f" to {clients + others:,}" if clients > 1 else ""
    raise UserError(
        f"{what}; start {others + 1}{among}: type `mpirun -n {min(clients, 8) + others} areabench run ...`, or "
        "`areabench launch ...`, which does it for you, or `areabench simulate ...`, which needs no MPI"
    )
