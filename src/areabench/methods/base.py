"""What a method is: a client rule and a server rule. It owns no clock, no rank and no file.

A method is a value: a record of functions. Server states are named tuples of arrays, numbers, tuples of numbers and
other such states, so that a checkpoint can hold any of them. Arrays are replaced, never changed, so a model that was
sent stays as it was; only a table that the state alone holds may change a row in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


class Work(NamedTuple):
    """A client's round: what it was sent, and what it made of it so far."""

    model: Vector  # that the order carried
    step_size: float
    steps: int  # local steps made
    start: Vector  # where they began
    local: Vector  # where they led
    attached: Vector | None = None  # what the order carried besides the model


class Fit(IntEnum):
    """Whether an update fits into the range that [privacy] gives."""

    WHOLE = 0
    CLIPPED = 1  # some entries were cut to the range
    OUTSIDE = 2  # not sent: some entries are outside of the range, or not finite


class Report(NamedTuple):
    """What a client sends after its local steps, and what it remembers."""

    payload: Vector
    memory: Vector | None
    fit: Fit = Fit.WHOLE


class Arrival(NamedTuple):
    """An update as the server's rule gets it; `payload` is valid during the call only."""

    client: int
    payload: Vector
    round: int  # of this client, from 0
    version: int  # of the model that the client was sent
    model: Vector  # that model
    staleness: int  # server steps since it was sent
    step_size: float
    local_steps: int  # that the client made
    time_s: float


class Call(NamedTuple):
    """An order that the rule gives; what is None is as usual. A busy client takes its orders one after the other."""

    client: int
    model: Vector | None = None  # the server's
    step_size: float | None = None  # the schedule's
    local_steps: int | None = None  # the experiment's M
    waits: bool = False  # whether the client keeps its update until it is contacted
    version: int | None = None  # of `model`, where that is an earlier one


class Step(NamedTuple):
    """The server's state after an event, and what clients are told, in this sequence: cancels, calls, contacts.

    A call is a client, or a `Call`. Only `aggregate` uses `stepped`: False where this was no server step.
    """

    state: Any
    calls: tuple[int | Call, ...] = ()
    stepped: bool = True
    contacts: tuple[int, ...] = ()  # clients that send at once what they have
    cancels: tuple[int, ...] = ()  # clients that drop their current order


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """The section [method]; each method's file has a record of its own, with what is to be known about the method."""

    label: ClassVar[str]  # in tables and legends
    colour: ClassVar[str]  # in figures, as #RRGGBB
    page: ClassVar[str]  # and section of docs/ that has the pseudocode
    paper: ClassVar[str]
    chooses: ClassVar[str]  # who decides which client works next
    limit: ClassVar[str]  # where it ends under uneven rates, without noise: "exact", or what it is biased towards
    memory: ClassVar[str]  # of the server, in vectors of the model's length d
    own: ClassVar[bool] = False  # whether this is a part of the user's own
    needs: ClassVar[tuple[Need, ...]] = ()
    steps_each_update: ClassVar[bool] = False  # whatever the criterion
    has_theorems: ClassVar[bool] = False  # whether the AREA paper's theorems are about it
    advice_from: ClassVar[Literal["nothing", "smoothness", "noise"]] = "nothing"  # what its own theory must know

    name: str = ""
    step_size: float = key("step size alpha of the clients", above=0)

    @property
    def client_driven(self) -> bool:
        """Whether every update is answered with an order to the same client, so that arrivals are always the same."""
        return True

    @property
    def trains_first(self) -> bool:
        """Whether a client's first round makes local steps."""
        return True

    def shares_pass(self, clients: Clients) -> bool:
        """Whether runs that differ in the step size alone have the same arrivals and one rule on stacks of models."""
        return self.client_driven

    @property
    def calls_clients(self) -> bool:
        """Whether the server chooses who works, as far as it is known."""
        return not self.client_driven

    @property
    def drawn_per_round(self) -> int | None:
        """How many clients, drawn uniformly, each round waits for; None without such rounds."""
        return None

    @property
    def contacts_per_second(self) -> float | None:
        """Clients that the server contacts per second; None where clients send when they are ready."""
        return None

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """The step sizes that the method's own theory advises, with their formulas, for one gradient per update.

        L is the smoothness, and `sigma` the noise of a gradient. Constants of order 1 differ between papers.
        """
        return iter(())

    def remarks(self) -> Mapping[str, str]:
        """What a value does that its key does not say: by key, a few words."""
        return {}

    def check(self, experiment: Experiment) -> None:
        """Raise a UserError for what makes no sense together with other settings, and `needs` cannot say."""

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        raise NotImplementedError

    def build_checked(self, inputs: MethodInputs, start: Vector) -> Method:
        """The rule as a run uses it, for models like `start`."""
        return self.build(inputs)


def check_round(drawn: int, clients: int) -> None:
    """Refuse rounds of more clients than there are."""
    if drawn > clients:
        raise UserError(
            f"method.clients_per_round: {drawn} is more than clients.count = {clients}; use at most {clients}"
        )


@dataclass(frozen=True, kw_only=True)
class ServerStepSettings(MethodSettings):
    """Of a method whose server's step size eta follows alpha where it is left out."""

    server_step_size: float | None = key("step size eta of the server; left out: alpha", None, above=0)

    @property
    def eta_left_out(self) -> Literal["alpha", "alpha·M"]:
        """What eta is where it is left out: "alpha", or "alpha·M", as long as a round."""
        return "alpha"

    def server_step(self, inputs: MethodInputs) -> Any:
        """The server's step size; of several lanes a column."""
        if self.server_step_size is not None:
            return self.server_step_size
        return inputs.step_size if self.eta_left_out == "alpha" else inputs.step_size * inputs.local_steps

    def remarks(self) -> Mapping[str, str]:
        """What alpha sets besides."""
        if self.server_step_size is not None:
            return {}
        return {
            "step_size": f"it sets the server's too: eta = {self.eta_left_out}, because server_step_size is left out"
        }

    def check(self, experiment: Experiment) -> None:
        """One alpha is needed where eta is left out."""
        schedule = experiment.schedule.name
        if self.server_step_size is None and schedule != "constant":
            raise UserError(
                f'method.server_step_size: is needed with schedule "{schedule}", where alpha changes and eta = '
                f"{self.eta_left_out} has no single meaning; give a number"
            )


def noise_step(numerator: float, factor: float, sigma: float) -> float:
    """The step size numerator/(factor·sigma²), which only noise limits."""
    return numerator / (factor * sigma**2) if sigma else math.inf


class Masked(NamedTuple):
    """Functions of the state of a method whose updates arrive under masks."""

    settled: Callable[[Any], bool]  # whether no update waits for its mask; only then a checkpoint can be taken
    covered: Callable[[Any], tuple[tuple[int, int], ...]]  # client and round of each update that `aggregate` will use
    uncover: Callable[[Any, Vector], Any]  # the state without this sum of their masks


def remember_nothing(_start: Vector) -> None:
    """A client without a memory."""
    return


def remember_start(start: Vector) -> Vector:
    """A client that begins with the starting point in its memory."""
    return start


@dataclass(frozen=True)
class Method:
    """One federated method: five functions, and others for what only some methods do.

    What every method has:

        remember  (x0) -> memory: what a client starts with; every later memory has its shape and type
        report    (memory, work) -> Report: after the local steps of a round
        start     (x0) -> Step: the server's first state (it has an attribute `model`) and who works first
        receive   (state, arrival) -> Step: an update arrived
        aggregate (state) -> Step: the aggregation criterion is met, or `due` or `wake` say so

    When the server steps:

        reply     whether the calls of `receive` leave before or after the server step that the same update triggers
        due       (state) -> whether to step now, asked after every update, in place of the experiment's criterion
        wake      (state) -> the time (s) at which to step by the clock; infinite: never. Asked after every event.

    What clients do:

        begin     (memory, model, attached) -> where the local steps start; otherwise at the order's model
        correct   (memory, work, gradient) -> what takes the place of the gradient at `work.local`
        momentum  of the local steps within a round: v <- momentum·v + gradient
        attach    (state) -> an array that goes out with every model
        payload_like (x0) -> an array with the shape and type of every payload; otherwise they are like the model
        trains_first whether a client's first round makes local steps; else it reports what it was sent
        interrupts whether clients are cancelled or contacted, so that they look for messages between local steps

    For methods that keep a record of orders, or that a lost client concerns:

        again     (state, client, version) -> state: the client's update was refused; it works again, on this version
        lose      (state, client, orders) -> Step: the client is lost with this many open orders; who works instead
        recalled  (state) -> the sum of the memories of all clients in the average, in double precision
        remove    (state, count, memories) -> state without `count` clients, whose memories add up to `memories`

    For secure aggregation:

        add       (state, total) -> state: the updates since the last step, which `receive` got as zeros, add up to
                  `total`; for methods that need no more than this sum, and whose clients remember the sum of what they
                  have sent
        masked    what the engine must know of masked updates (`fixed_point`)
    """

    name: str
    remember: Callable[[Vector], Vector | None]
    report: Callable[[Any, Work], Report]
    start: Callable[[Vector], Step]
    receive: Callable[[Any, Arrival], Step]
    aggregate: Callable[[Any], Step]
    reply: Literal["before", "after"] = "before"
    due: Callable[[Any], bool] | None = None
    wake: Callable[[Any], float] | None = None
    begin: Callable[[Any, Vector, Any], Vector] | None = None
    correct: Callable[[Any, Work, Vector], Vector] | None = None
    momentum: float = 0.0
    attach: Callable[[Any], Vector] | None = None
    payload_like: Callable[[Vector], Vector] | None = None
    trains_first: bool = True
    interrupts: bool = False
    again: Callable[[Any, int, int], Any] | None = None
    lose: Callable[[Any, int, int], Step] | None = None
    recalled: Callable[[Any], Vector] | None = None
    remove: Callable[[Any, int, Vector], Any] | None = None
    add: Callable[[Any, Vector], Any] | None = None
    masked: Masked | None = None

    @property
    def decides(self) -> bool:
        """Whether the rule itself says when the server steps."""
        return self.due is not None or self.wake is not None


def within(method: Method) -> Method:
    """The method for states that hold its own as `inner`; what receives and reports updates is left to the caller.

    The memories of such clients are not the method's alone, so that lost ones cannot be removed from an average.
    """
    due = method.due
    wake = method.wake
    again = method.again
    lose = method.lose
    attach = method.attach

    def wrap(step: Step, state: Any) -> Step:
        return step._replace(state=state._replace(inner=step.state))

    return replace(
        method,
        aggregate=lambda state: wrap(method.aggregate(state.inner), state),
        due=due and (lambda state: due(state.inner)),
        wake=wake and (lambda state: wake(state.inner)),
        again=again and (lambda state, *order: state._replace(inner=again(state.inner, *order))),
        lose=lose and (lambda state, *lost: wrap(lose(state.inner, *lost), state)),
        attach=attach and (lambda state: attach(state.inner)),
        recalled=None,
        remove=None,
    )


class Buffer(NamedTuple):
    """The sum of the updates received since the last server step, and their number."""

    total: Vector | None = None  # nothing yet
    size: int = 0

    def add(self, payload: Vector) -> Buffer:
        """The buffer with one more update; the sum, which nobody else holds, is changed in place."""
        if self.total is None:
            # a copy, as the payload is valid during the call only
            return Buffer(payload.copy(), self.size + 1)
        return Buffer(np.add(self.total, payload, out=self.total), self.size + 1)

    def plus(self, total: Vector) -> Buffer:
        """The buffer with a sum of updates that are counted already."""
        return Buffer(total if self.total is None else self.total + total, self.size)

    def added_to(self, vector: Vector) -> Vector:
        """The vector plus the sum of the updates."""
        return vector if self.total is None else vector + self.total

    def mean(self) -> Vector:
        """The plain mean of the updates; the buffer must not be empty."""
        assert self.total is not None
        return self.total / self.size


def without(entries: tuple[int, ...], client: int) -> tuple[int, ...]:
    """The clients but this one."""
    return tuple(other for other in entries if other != client)


def with_entry(entries: tuple[int, ...], client: int, value: int) -> tuple[int, ...]:
    """One number per client, with another one for this client."""
    return (*entries[:client], value, *entries[client + 1 :])


class BufferedState(NamedTuple):
    """The server's model, and the updates that it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def add_to_buffer(state: Any, total: Vector) -> Any:
    """What `Method.add` is where a state has a buffer named so."""
    return state._replace(buffer=state.buffer.plus(total))


def buffered(
    name: str,
    clients: int,
    report: Callable[[Any, Work], Report],
    step: Callable[[Vector, Vector], Vector],
    *,
    reply: Literal["before", "after"] = "before",
) -> Method:
    """A method without memories, whose server makes a `step` (model, mean of the updates) -> model."""

    def start(model: Vector) -> Step:
        return Step(BufferedState(model, Buffer()), tuple(range(clients)))

    def receive(state: BufferedState, arrival: Arrival) -> Step:
        return Step(BufferedState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: BufferedState) -> Step:
        if state.buffer.size == 0:
            # a step by the clock may find nothing
            return Step(state)
        return Step(BufferedState(step(state.model, state.buffer.mean()), Buffer()))

    return Method(name, remember_nothing, report, start, receive, aggregate, reply=reply, add=add_to_buffer)


class MethodInputs(NamedTuple):
    """What a method may want to know of its experiment."""

    clients: int
    seed: int
    step_size: Any  # alpha; of several lanes a column, shape (lanes, 1)
    local_steps: int
    rates: Any  # updates per second of each client, shape (clients,)
    samples: Any  # training samples of each client, shape (clients,)
    updates: int | None  # Delta; None where the server steps by the clock
    period_s: float | None  # between two steps by the clock, on average; None where updates decide
    random_steps: bool = False  # whether the clock is a Poisson process
    delays: str = "exponential"  # the name of the delays' law
    per: str = "round"  # what a delay is for: "round" or "step"

    @property
    def weights(self) -> Any:
        """Each client's share of the samples; equal where there are none."""
        total = self.samples.sum()
        return self.samples / total if total else np.full(self.clients, 1 / self.clients)
