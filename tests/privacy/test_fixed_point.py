"""Updates as integers: numbers worked out by hand, and the rules of AREA and FedBuff with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areabench.arrays import Vector
from areabench.errors import RunFailure, UserError
from areabench.methods.area import area
from areabench.methods.base import Arrival, Fit, Method, Report, Work
from areabench.methods.fedasync import fedasync
from areabench.methods.fedbuff import fedbuff
from areabench.methods.fixed_point import FixedPoint, Privacy, in_fixed_point

QUARTERS = FixedPoint(bits=32, fraction_bits=2, range=8.0, clips=True)
COARSE = Privacy(range=8.0, most_updates=2**25)  # 31 bits, 28 for the range and the sum, one for the limit itself
START = np.array([1.0, 2.0], np.float32)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


# ---------------------------------------------------------------------------------------------------- numbers


def test_entries_are_rounded_to_the_nearest_number() -> None:
    integers, fit = QUARTERS.encode(vector(0.3, -0.3, 1.1, 8.0, -8.0, 0.125, 0.375))
    assert QUARTERS.signed(integers).tolist() == [1, -1, 4, 32, -32, 0, 2]  # halves to even
    assert integers.tolist()[1] == 2**32 - 1
    assert fit is Fit.WHOLE
    assert QUARTERS.decode(QUARTERS.signed(integers), np.float32).tolist() == [0.25, -0.25, 1.0, 8.0, -8.0, 0.0, 0.5]


def test_entries_outside_are_clipped_or_not_sent() -> None:
    integers, fit = QUARTERS.encode(vector(9.0, -100.0, 1.0))
    assert (QUARTERS.signed(integers).tolist(), fit) == ([32, -32, 4], Fit.CLIPPED)
    strict = FixedPoint(32, 2, 8.0, clips=False)
    integers, fit = strict.encode(vector(9.0, 1.0))
    assert (integers.tolist(), fit) == ([0, 0], Fit.OUTSIDE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_sent(bad: float) -> None:
    integers, fit = QUARTERS.encode(vector(1.0, bad))
    assert (integers.tolist(), fit) == ([0, 0], Fit.OUTSIDE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Privacy(), 18),  # 16 · 256 · 2^19 is 2^31, one too many
        (Privacy(range=0.5, most_updates=4), 29),
        (Privacy(range=9.0, most_updates=5), 25),  # 45 · 2^25 is below 2^31, 45 · 2^26 is not
        (Privacy(bits=64), 40),
    ],
)
def test_bits_behind_the_point(settings: Privacy, expected: int) -> None:
    assert settings.fraction_bits == expected


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("limit", [16.0, -16.0])
def test_a_sum_of_the_largest_updates_keeps_its_sign(bits: int, limit: float) -> None:
    number = FixedPoint.of(Privacy(bits=bits, most_updates=256))
    total = np.add.reduce([number.encode(vector(limit))[0]] * 256, dtype=number.dtype)
    assert number.decode(number.signed(total), np.float64).tolist() == [256 * limit]


@given(
    st.lists(st.lists(st.floats(-16, 16, width=32), min_size=3, max_size=3), min_size=1, max_size=256),
    st.sampled_from([32, 64]),
)
def test_a_sum_of_the_most_updates_does_not_overflow(updates: list[list[float]], bits: int) -> None:
    number = FixedPoint.of(Privacy(bits=bits))
    encoded = [number.encode(vector(*values))[0] for values in updates]
    total = number.signed(np.add.reduce(encoded, dtype=number.dtype))
    columns = zip(*(number.signed(one).tolist() for one in encoded), strict=True)
    assert total.tolist() == [sum(column) for column in columns]  # as integers without a limit have it
    plain = np.sum(np.array(updates, np.float64), axis=0)
    assert np.all(np.abs(number.decode(total, np.float64) - plain) <= len(updates) * number.resolution / 2)


# ---------------------------------------------------------------------------------------------------- rules


def arrival(client: int, payload: Vector, number: int = 0) -> Arrival:
    return Arrival(client, payload, number, 0, START, 0, 0.1, 1, 0.0)


def work(local: Vector) -> Work:
    return Work(START, 0.1, 1, START, local)


def test_area_by_hand() -> None:
    """Client 0 goes to (1.3, 2), client 1 to (1, 1.1), in quarters: residuals (1, 0) and (0, -4) of them."""
    method = in_fixed_point(area(2), COARSE, START)
    state = method.start(START).state
    memories = [method.remember(START), method.remember(START)]
    reports = [method.report(memories[0], work(vector(1.3, 2.0))), method.report(memories[1], work(vector(1.0, 1.1)))]
    assert [QUARTERS.signed(report.payload).tolist() for report in reports] == [[1, 0], [0, -4]]
    for client, report in enumerate(reports):
        step = method.receive(state, arrival(client, report.payload))
        assert step.calls == (client,)
        state = step.state
    step = method.aggregate(state)
    assert step.state.model.tolist() == [1.0 + 0.25 / 2, 2.0 - 1.0 / 2]
    assert step.stepped
    # Client 0 goes on to (1.3, 2) again: it has sent 1.25 so far, and 0.05 is less than half a quarter.
    again = method.report(reports[0].memory, work(vector(1.3, 2.0)))
    assert QUARTERS.signed(again.payload).tolist() == [0, 0]
    assert again.memory is not None
    assert again.memory.tolist() == [1, 0]


def test_fedbuff_by_hand() -> None:
    method = in_fixed_point(fedbuff(2, 2.0), COARSE, START)
    assert method.remember(START) is None
    state = method.start(START).state
    for client, local in enumerate((vector(0.5, 2.0), vector(1.0, 1.3))):
        state = method.receive(state, arrival(client, method.report(None, work(local)).payload)).state
    assert method.aggregate(state).state.model.tolist() == [1.0 - 2 * 0.5 / 2, 2.0 - 2 * 0.75 / 2]


def test_updates_of_one_client_wait_for_those_of_another() -> None:
    method = in_fixed_point(area(3), COARSE, START)
    assert method.masked is not None
    state = method.start(START).state
    for number in range(2):
        state = method.receive(state, arrival(1, np.array([4, 0], np.uint32), number)).state
    assert method.masked.covered(state) == ()
    step = method.aggregate(state)
    assert (step.stepped, step.state) == (False, state)
    assert not method.masked.settled(state)
    state = method.receive(state, arrival(0, np.array([4, 0], np.uint32))).state
    assert method.masked.covered(state) == ((1, 0), (1, 1), (0, 0))
    step = method.aggregate(state)
    assert step.state.model.tolist() == [1.0 + 3 * 1.0 / 3, 2.0]
    assert method.masked.settled(step.state)


def test_masks_are_subtracted_modulo_the_bits() -> None:
    method = in_fixed_point(area(2), COARSE, START)
    assert method.masked is not None
    masks = np.array([[2**32 - 1, 7], [5, 2**31]], np.uint32)
    state = method.start(START).state
    for client, mask in enumerate(masks):
        state = method.receive(state, arrival(client, np.array([4, 8], np.uint32) + mask)).state
    state = method.masked.uncover(state, masks[0] + masks[1])
    assert method.aggregate(state).state.model.tolist() == [1.0 + 1.0, 2.0 + 2.0]


def test_a_step_without_updates_changes_nothing() -> None:
    method = in_fixed_point(area(2), COARSE, START)
    state = method.start(START).state
    step = method.aggregate(state)
    assert (step.stepped, step.state.model.tolist()) == (True, [1.0, 2.0])


def test_more_updates_than_the_integers_have_room_for_end_the_run() -> None:
    method = in_fixed_point(area(2), Privacy(most_updates=3), START)
    state = method.start(START).state
    for number in range(3):
        state = method.receive(state, arrival(1, np.zeros(2, np.uint32), number)).state
    with pytest.raises(RunFailure, match=r"more than privacy.most_updates = 3 .* at least 2 clients; raise it"):
        method.receive(state, arrival(1, np.zeros(2, np.uint32), 3))


def test_a_method_that_needs_more_than_sums_is_refused() -> None:
    method: Method = fedasync(2, 0.5, lambda _staleness: 1.0)
    with pytest.raises(UserError, match='method "fedasync" has no function `add`, so it cannot do with sums'):
        in_fixed_point(method, COARSE, START)


def test_an_update_that_is_not_sent_is_not_remembered() -> None:
    method = in_fixed_point(area(2), Privacy(range=0.5, outside="refuse"), START)
    report: Report = method.report(method.remember(START), work(vector(9.0, 2.0)))
    assert (report.fit, report.payload.tolist()) == (Fit.OUTSIDE, [0, 0])
    assert report.memory is not None
    assert report.memory.tolist() == [0, 0]
