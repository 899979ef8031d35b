"""Updates in fixed point, so that masked ones can be added up: around a method whose server needs sums only.

An update is a vector of integers modulo 2^32 or 2^64: each entry times 2^f, rounded. A client adds its mask. The rule
adds up what arrives, and the engine subtracts the sum of the masks before a server step.

A client remembers the sum of what it has sent, in integers. So the invariants of AREA, CA2FL and the tables hold
exactly: the sum of all updates that were used or wait is the sum of what the clients remember.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import RunFailure, UserError
from areabench.methods.base import Arrival, Buffer, Fit, Masked, Method, Report, Step, Work, within
from areabench.settings.keys import is_own, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Secure aggregation: updates are masked integers, and a helper gives the server the masks of sums alone."""

    bits: int = key("of the integers that an update is made of: 32 or 64", 32, minimum=32, maximum=64)
    range: float = key("largest absolute value of an entry of an update", 16.0, above=0, maximum=1e6)
    outside: Literal["clip", "refuse"] = key(
        "an update with an entry beyond `range`: clip it, or refuse it and let its client work again; one that is not "
        "finite is always refused",
        "clip",
    )
    threshold: int = key("fewest clients whose updates are summed", 2, minimum=2)
    most_updates: int = key(
        "most updates in a sum; the integers keep room for so many", 256, minimum=2, maximum=1_000_000
    )

    @property
    def fraction_bits(self) -> int:
        """Bits behind the point: as many as leave room for a sum of `most_updates` entries at the range, at most 40.

        The sums that clients remember have 64 bits, and 23 of them before the point.
        """
        bits = 40
        widest = self.range * (1 + 1e-6)  # single precision may round the range up
        while bits > 0 and self.most_updates * math.ceil(widest * 2**bits) >= 2 ** (self.bits - 1):
            bits -= 1
        return bits

    def check(self, experiment: Experiment) -> None:
        """Sums reach the threshold, and nothing asks for what they hide."""
        delta = experiment.aggregation.delta
        method = experiment.method
        count = experiment.clients.count
        # a method of the user's own is not imported yet: `in_fixed_point` refuses it
        if (
            not is_own(method)
            and method.build(experiment.method_inputs(np.ones(count), np.zeros(count, np.int64))).add is None
        ):
            raise UserError(
                f'privacy: method "{method.name}" uses each update by itself, so it cannot do with sums; use one that '
                "docs/privacy.md names, or remove the section [privacy]"
            )
        if self.bits not in (32, 64):
            raise UserError(f"privacy.bits: {self.bits} is not supported; use 32 or 64")
        if self.fraction_bits < 1:
            raise UserError(
                f"privacy.range: {self.range:g} and most_updates = {self.most_updates} leave no bits behind the "
                "point; use bits = 64, a smaller range, or fewer updates in a sum"
            )
        if self.threshold > count:
            raise UserError(
                f"privacy.threshold: {self.threshold} is more than clients.count = {count}; use at most so many"
            )
        if delta is not None and not self.threshold <= delta <= self.most_updates:
            raise UserError(
                f"aggregation.updates: sums of {delta} are not within privacy.threshold = "
                f"{self.threshold} and privacy.most_updates = {self.most_updates}; change one of them"
            )
        if experiment.faults.lost_client == "remove":
            raise UserError(
                'faults.lost_client: "remove" asks clients for their memories, which [privacy] hides; use "keep"'
            )
        if experiment.local.control_variates:
            raise UserError(
                "local.control_variates: the server uses each change by itself, which [privacy] hides; use false"
            )


@dataclass(frozen=True)
class FixedPoint:
    """Numbers as integers: how many bits, how many of them behind the point, and what is within the range."""

    bits: int
    fraction_bits: int
    range: float
    clips: bool  # entries beyond the range; otherwise the update is not sent

    @classmethod
    def of(cls, settings: Privacy) -> FixedPoint:
        """As an experiment says."""
        return cls(settings.bits, settings.fraction_bits, settings.range, settings.outside == "clip")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Unsigned: sums are modulo 2^bits."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def resolution(self) -> float:
        """The distance of two neighbouring numbers."""
        return 2.0**-self.fraction_bits

    def encode(self, vector: Vector) -> tuple[Vector, Fit]:
        """The integers of a vector, and whether it is within the range; zeros for what is not sent."""
        fit = Fit.WHOLE
        if not np.abs(vector).max(initial=0.0) <= self.range:  # NaN, too
            if not self.clips or not np.isfinite(vector).all():
                return np.zeros(vector.shape, self.dtype), Fit.OUTSIDE
            vector = np.clip(vector, -self.range, self.range)
            fit = Fit.CLIPPED
        scaled = vector * 2.0**self.fraction_bits
        return np.rint(scaled, out=scaled).astype(f"i{self.bits // 8}").view(self.dtype), fit

    def as_signed(self, integers: Vector) -> NDArray[np.int64]:
        """The integers with their signs, if they are those of a vector within the range or of a sum of such."""
        return integers.view(f"i{self.bits // 8}").astype(np.int64, copy=False)

    def decode(self, integers: Vector, dtype: Any) -> Vector:
        """The numbers that integers with signs stand for."""
        return (integers * self.resolution).astype(dtype)


class SumState(NamedTuple):
    """The state of the method itself, the sum of the updates that wait for a step, and client and round of each."""

    inner: Any
    pending: Buffer
    names: tuple[int, ...] = ()

    @property
    def model(self) -> Vector:
        """The server's model."""
        model: Vector = self.inner.model
        return model


def in_fixed_point(method: Method, settings: Privacy, start: Vector) -> Method:
    """The method with updates in fixed point; a UserError where it needs more than their sums."""
    if method.add is None:
        raise UserError(
            f'privacy: method "{method.name}" has no function `add`, so it cannot do with sums of updates; give it '
            "one, or remove the section [privacy]"
        )
    if method.payload_like is not None:
        raise UserError(
            f'privacy: method "{method.name}" has a `payload_like`, and only updates like the model can be masked; '
            "leave it out, or remove the section [privacy]"
        )
    add = method.add
    number = FixedPoint.of(settings)
    origin = method.remember(start)
    nothing = np.zeros_like(start)

    def held_by(memory: Vector | None) -> Vector | None:
        """What the method's own client remembers."""
        return None if origin is None or memory is None else origin + number.decode(memory, origin.dtype)

    def remember(_start: Vector) -> Vector | None:
        return None if origin is None else np.zeros(origin.shape, np.int64)

    def report(memory: Vector | None, work: Work) -> Report:
        integers, fit = number.encode(method.report(held_by(memory), work).payload)
        return Report(integers, None if memory is None else memory + number.as_signed(integers), fit)

    def waiting_for_none(state: Any) -> SumState:
        return SumState(state, Buffer())

    def receive(state: SumState, arrival: Arrival) -> Step:
        if state.pending.size >= settings.most_updates:
            raise RunFailure(
                f"more than privacy.most_updates = {settings.most_updates} updates wait for a server step of at least "
                f"{settings.threshold} clients; raise it, or let the server step more often"
            )
        step = method.receive(state.inner, arrival._replace(payload=nothing))
        names = (*state.names, arrival.client, arrival.round)
        return step._replace(state=SumState(step.state, state.pending.add(arrival.payload), names))

    def aggregate(state: SumState) -> Step:
        """The step of the method with the sum of what waits, if it is of enough clients."""
        inner = state.inner
        total = state.pending.total
        if total is not None:
            if not covered(state):
                return Step(state, stepped=False)
            inner = add(inner, number.decode(number.as_signed(total), start.dtype))
        step = method.aggregate(inner)
        return step._replace(state=waiting_for_none(step.state))

    def covered(state: SumState) -> tuple[tuple[int, int], ...]:
        clients = state.names[::2]
        rounds = state.names[1::2]
        return tuple(zip(clients, rounds, strict=True)) if len(set(clients)) >= settings.threshold else ()

    def uncover(state: SumState, masks: Vector) -> SumState:
        total, size = state.pending
        assert total is not None
        return state._replace(pending=Buffer(total - masks, size))

    def start_waiting(model: Vector) -> Step:
        step = method.start(model)
        return step._replace(state=waiting_for_none(step.state))

    begin = method.begin
    correct = method.correct
    return replace(
        within(method),
        remember=remember,
        report=report,
        start=start_waiting,
        receive=receive,
        aggregate=aggregate,
        begin=begin and (lambda memory, *sent: begin(held_by(memory), *sent)),
        correct=correct and (lambda memory, *made: correct(held_by(memory), *made)),
        payload_like=lambda model: np.zeros(model.shape, number.dtype),
        masked=Masked(lambda state: not state.names, covered, uncover),
    )
