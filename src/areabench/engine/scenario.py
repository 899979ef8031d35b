"""An experiment's parts as objects: problem, method, delays, clients; every transport and rank builds the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.client import Client, Placement
from areabench.engine.data import absurd_loss, check_fit, guessing_loss, load_data
from areabench.engine.events import CLIENT
from areabench.engine.messages import Order, Shapes
from areabench.engine.server import ErgodicMean, Server
from areabench.errors import RunFileError
from areabench.experiment.checks import check_updates
from areabench.experiment.experiment import Experiment
from areabench.methods.base import Method, MethodInputs
from areabench.methods.criteria import Criterion, build_criterion
from areabench.methods.fixed_point import in_fixed_point
from areabench.methods.local import with_local
from areabench.methods.schedules import build_schedule
from areabench.plugins.call import check_parts, refuse
from areabench.plugins.callables import look_in
from areabench.plugins.modules import modules_of
from areabench.plugins.trust import check_trusted, trusted_folders
from areabench.privacy.keys import require_cryptography
from areabench.privacy.masks import Secrecy, in_one_process
from areabench.privacy.seal import client_secret, sealed_like, secret_path
from areabench.problems.base import ClientData, LocalProblem, Problem
from areabench.problems.datasets import Dataset
from areabench.problems.splits.rows import part_sizes
from areabench.settings.keys import is_own
from areabench.timing.delays import Delays, RoundTime, drawn_steps
from areabench.timing.rates import client_rates

if TYPE_CHECKING:
    from areabench.engine.lanes import LaneGroup


def method_of(experiment: Experiment, inputs: MethodInputs, start: Vector) -> Method:
    """The experiment's method, with what [local] and [privacy] add to it."""
    method = with_local(experiment.method.build_checked(inputs, start), experiment.local, inputs.clients)
    if experiment.privacy is None:
        return method
    require_cryptography()
    return in_fixed_point(method, experiment.privacy, start)


@dataclass(frozen=True)
class Scenario:
    """The parts of one run."""

    experiment: Experiment
    problem: Problem
    method: Method
    start: Vector
    rates: NDArray[np.float64]  # updates per second, one entry per client
    samples: NDArray[np.int64]  # training samples held, one entry per client
    data: Dataset | None  # None where the problem draws its own functions
    secrecy: Secrecy = Secrecy()  # what this process has of secure aggregation
    group: LaneGroup | None = None  # the lanes that this one stands for

    @cached_property
    def data_digest(self) -> str:
        """The SHA-256 of the data, empty if there are none; for the server only, as it takes tens of milliseconds."""
        return "" if self.data is None else self.data.digest()

    def check_data(self, recorded: str, path: Path) -> None:
        """A RunFileError unless the data have the digest that run file `path` recorded; empty: it recorded none."""
        if recorded and recorded != self.data_digest:
            raise RunFileError(
                f"{path}: the data have changed since this run: their SHA-256 was {recorded[:12]}, it is "
                f"{self.data_digest[:12] or 'none'} now; put the old data back, or run the experiment again"
            )

    def first_loss_remark(self, loss: float) -> str:
        """What to say about the loss of the starting point where it is absurd; empty elsewhere."""
        if self.data is None or is_own(self.experiment.problem):
            return ""
        return absurd_loss(loss, guessing_loss(self.problem, self.data), self.data)

    @cached_property
    def theorem(self) -> Callable[[int], float] | None:
        """The step sizes of the theorem that the schedule names, if it names one; the problem may have to be solved."""
        if not self.experiment.schedule.of_theorem:
            return None
        from areabench.theory.applied import (
            theorem_steps,  # with all of the theory, which a worker's rank does not need
        )

        return theorem_steps(self.experiment, self.problem, self.rates)

    def server(self) -> Server:
        """The server, before its first event."""
        alpha: Any = self.experiment.method.step_size
        if self.group is not None:
            alpha = self.group.step_sizes
        schedule = build_schedule(self.experiment.schedule, alpha, self.theorem)
        mean = None
        if self.experiment.record.average:
            mean = ErgodicMean(self.start)
        return Server(
            self.method, schedule, self.start, self.experiment.clients.count, self._ordered_steps, mean,
            self.secrecy.unmask,
        )  # fmt: skip

    @property
    def _ordered_steps(self) -> int:
        """The local steps that an order asks for; 0 where the clients choose."""
        if self.experiment.clients.work != "fixed":
            return 0
        return self.experiment.clients.local_steps

    @property
    def stepwise(self) -> bool:
        """Whether clients make their local steps one at a time, so that they can be interrupted."""
        return self.method.interrupts or self.experiment.delays.per == "step"

    def client(self, number: int, steps: LocalProblem | None = None) -> Client:
        """Client `number`, before its first round; `steps` make its local steps where they are those of lanes."""
        problem = self.experiment.problem
        local = steps or problem.local(self.problem, number, self.experiment.clients.local_steps)
        cover = self.secrecy.cover
        seal = self.secrecy.seal
        return Client(
            self.method, local, self.start, stepwise=self.stepwise, lends=steps is not None,
            cover=None if cover is None else cover(number), seal=None if seal is None else seal(number),
        )  # fmt: skip

    def delays(self) -> Delays:
        """The clients' delays, from the first round on."""
        return Delays(self.experiment.delays, self.rates, self.experiment.seed)

    @property
    def plain_rounds(self) -> bool:
        """Whether every round has the local steps that its order asks for, and one duration for all of them."""
        return self.experiment.clients.work == "fixed" and self.experiment.delays.per == "round"

    def begin_round(self, delays: Delays, order: Order, number: int) -> tuple[Order, RoundTime]:
        """An order with its local steps, which the client may choose, and the time of its round `number`.

        A client that chooses and does not train first makes none in its first round.
        """
        client = order.client
        clients = self.experiment.clients
        trains = number > 0 or self.method.trains_first
        if clients.work == "ticks":  # the ticks pass in every round, also in one whose local steps the rule gave
            assert clients.tick_s is not None
            time = delays.ticking_round(client, clients.tick_s, clients.local_steps)
            if order.local_steps:
                return order, time._replace(local_steps=order.local_steps)
            if not trains:
                return order._replace(local_steps=0), time
            return order._replace(local_steps=time.local_steps), time
        if order.local_steps or clients.work == "fixed":
            return order, delays.round_time(client, order.local_steps)
        steps = 0
        if trains:
            steps = drawn_steps(clients, self.experiment.seed, client, number)
        return order._replace(local_steps=steps), delays.round_time(client, steps)

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes and types of what travels between server and clients."""
        method = self.method
        start = self.start
        attached = None
        if method.attach is not None:
            attached = method.attach(method.start(start).state)
        payload = start
        if method.payload_like is not None:
            payload = method.payload_like(start)
        memory = method.remember(start)
        if self.experiment.privacy is not None and memory is not None:
            memory = sealed_like(memory)
        return Shapes(start, attached, payload, memory)

    def in_one_process(self) -> Scenario:
        """The scenario with all parties of secure aggregation in this process, where there are any."""
        privacy = self.experiment.privacy
        if privacy is None:
            return self
        secrecy = in_one_process(self.experiment.clients.count, self.shapes.payload, privacy.threshold)
        return replace(self, secrecy=secrecy)

    def check_secret(self) -> None:
        """A UserError where clients could not seal what they remember, now and not at the first checkpoint."""
        if self.experiment.privacy is not None and self.shapes.memory is not None:
            client_secret(secret_path(os.environ))

    def criterion(self) -> Criterion:
        """The aggregation criterion, before its first time."""
        return build_criterion(self.experiment.aggregation, self.method, self.experiment.seed)

    def client_table(self, placement: Placement | None = None, hosts: Sequence[str] = ()) -> NDArray[Any]:
        """One row of CLIENT per client; on MPI there is a placement, and `hosts` has one entry per rank."""
        table = np.zeros(self.experiment.clients.count, CLIENT)
        table["client"] = np.arange(len(table))
        table["rate"] = self.rates
        table["samples"] = self.samples
        table["rank"] = -1
        if placement is not None:
            table["rank"] = [placement.rank(client) for client in range(len(table))]
            table["host"] = [hosts[rank].encode()[:64] for rank in table["rank"]]
        return table


class ClientPool(dict[int, Client]):
    """The clients of a process that hosts them all; each is built when it first works."""

    def __init__(self, scenario: Scenario, steps: LocalProblem | None = None) -> None:
        super().__init__()
        self._scenario = scenario
        self._steps = steps

    def __missing__(self, number: int) -> Client:
        """Build client `number`."""
        self[number] = client = self._scenario.client(number, self._steps)
        return client


def build_scenario(
    experiment: Experiment, cache: Path, folders: Sequence[str] = (), *, prepared: bool = False
) -> Scenario:
    """Load the data and build every part; a UserError for what does not fit together.

    Modules that the experiment names are looked for in `folders` first. The folders that an experiment in
    a run file names are not trusted: the caller says where to look. `prepared`: a process of this node has called
    `DataSettings.prepare` just now.
    """
    experiment.problem.load_libraries()  # before the user's folders are searched
    if modules_of(experiment):
        look_in(folders)
    check_parts(experiment, folders)
    count = experiment.clients.count
    rates = client_rates(experiment.rates, count, experiment.seed)
    if experiment.delays.follows_rates:
        check_updates(experiment, float(rates.sum()), "rates")  # as drawn
    held = _load(experiment, cache, prepared=prepared)
    problem, samples = _build_problem(experiment, held)
    start = problem.start()
    start.flags.writeable = False
    method = method_of(experiment, experiment.method_inputs(rates, samples), start)
    experiment.delays.try_out(rates, experiment.seed)
    data = None if held is None else held.data
    return Scenario(experiment, problem, method, start, rates, samples, data)


def trusted_scenario(experiment: Experiment, path: Path, cache: Path, trusted: Sequence[str] = ()) -> Scenario:
    """The parts of the run in file `path`, built again; a UserError if it names code that the user does not trust."""
    check_trusted(experiment, path, trusted)
    return build_scenario(experiment, cache, trusted_folders(trusted))


def try_parts(scenario: Scenario, cache: Path) -> None:
    """Build the user's own data and problem a second time, which must give the same; try the problem."""
    experiment = scenario.experiment
    data = scenario.experiment.data
    if not experiment.problem.own and not is_own(data):
        return
    held = _load(experiment, cache)
    if is_own(data) and held is not None and held.data.digest() != scenario.data_digest:
        refuse(data, "gives other data each time", "draw from a generator with a fixed seed only")
    if experiment.problem.own:
        again, _ = _build_problem(experiment, held)
        step_size = experiment.method.step_size
        local_steps = experiment.clients.local_steps
        experiment.problem.try_out(scenario.problem, again, step_size, local_steps)


def _build_problem(experiment: Experiment, held: ClientData | None) -> tuple[Problem, NDArray[np.int64]]:
    """The problem, and how many training samples each client holds."""
    settings = experiment.problem
    clients = experiment.clients
    samples = np.full(clients.count, settings.samples_held, np.int64)
    if held is not None:
        samples = part_sizes(held.parts)
    return settings.build(held, clients.count, clients.local_steps, experiment.seed), samples


def _load(experiment: Experiment, cache: Path, *, prepared: bool = False) -> ClientData | None:
    """The data and which client holds what of it, if there is any."""
    if experiment.data is None or experiment.split is None or not experiment.problem.takes_data:
        return None
    data = load_data(experiment.data, cache, prepared=prepared)
    if not is_own(experiment.problem):
        check_fit(experiment.problem, experiment.data, data)
    return ClientData(data, experiment.split.rows(data.groups, experiment.clients.count, experiment.seed))
