"""Updates as integers: numbers worked out by hand, and the rules of AREA and FedBuff with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areabench.arrays import Vector
from areabench.errors import RunFailure, UserError
from areabench.methods.area import area
from areabench.methods.base import Arrival, Fit, Method, Work
from areabench.methods.fedasync import fedasync
from areabench.methods.fedbuff import fedbuff
from areabench.methods.fixed_point import FixedPoint, Privacy, in_fixed_point

QUARTERS = FixedPoint(bits=32, fraction_bits=2, range=8.0, clips=True)
STRICT = FixedPoint(bits=32, fraction_bits=2, range=8.0, clips=False)
COARSE = Privacy(range=8.0, most_updates=2**25)  # 31 bits, 28 for the range and the sum, one for the limit itself
START = np.array([1.0, 2.0], np.float32)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


# ---------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("number", "values", "integers", "fit"),
    [
        (QUARTERS, (0.3, -0.3, 1.1, 8.0, -8.0, 0.125, 0.375), [1, -1, 4, 32, -32, 0, 2], Fit.WHOLE),  # halves to even
        (QUARTERS, (9.0, -100.0, 1.0), [32, -32, 4], Fit.CLIPPED),
        (STRICT, (9.0, 1.0), [0, 0], Fit.OUTSIDE),
        *((QUARTERS, (1.0, bad), [0, 0], Fit.OUTSIDE) for bad in (np.nan, np.inf, -np.inf)),
    ],
)
def test_entries_are_rounded_clipped_or_not_sent(
    number: FixedPoint, values: tuple[float, ...], integers: list[int], fit: Fit
) -> None:
    found, how = number.encode(vector(*values))
    assert found.tolist() == [each % 2**32 for each in integers]
    assert number.as_signed(found).tolist() == integers
    assert how is fit
    assert number.decode(number.as_signed(found), np.float32).tolist() == [each / 4 for each in integers]


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
    assert number.decode(number.as_signed(total), np.float64).tolist() == [256 * limit]


@given(
    st.lists(st.lists(st.floats(-16, 16, width=32), min_size=3, max_size=3), min_size=1, max_size=256),
    st.sampled_from([32, 64]),
)
def test_a_sum_of_the_most_updates_does_not_overflow(updates: list[list[float]], bits: int) -> None:
    number = FixedPoint.of(Privacy(bits=bits))
    encoded = [number.encode(vector(*values))[0] for values in updates]
    total = number.as_signed(np.add.reduce(encoded, dtype=number.dtype))
    columns = zip(*(number.as_signed(one).tolist() for one in encoded), strict=True)
    assert total.tolist() == [sum(column) for column in columns]  # as integers without a limit have it
    plain = np.sum(np.array(updates, np.float64), axis=0)
    assert np.all(np.abs(number.decode(total, np.float64) - plain) <= len(updates) * number.resolution / 2)


# ---------------------------------------------------------------------------------------------------- rules


def arrival(client: int, payload: Any, number: int = 0) -> Arrival:
    return Arrival(client, np.asarray(payload, np.uint32), number, 0, START, 0, 0.1, 1, 0.0)


def received(method: Method, *arrivals: Arrival, state: Any = None) -> Any:
    """The state after these arrivals."""
    state = method.start(START).state if state is None else state
    for each in arrivals:
        step = method.receive(state, each)
        assert step.calls == (each.client,)
        state = step.state
    return state


def work(*local: float) -> Work:
    return Work(START, 0.1, 1, START, vector(*local))


def test_area_by_hand() -> None:
    """Client 0 goes to (1.3, 2), client 1 to (1, 1.1), in quarters: residuals (1, 0) and (0, -4) of them."""
    method = in_fixed_point(area(2), COARSE, START)
    first, second = (method.report(method.remember(START), work(*local)) for local in ((1.3, 2.0), (1.0, 1.1)))
    assert [QUARTERS.as_signed(report.payload).tolist() for report in (first, second)] == [[1, 0], [0, -4]]
    state = received(method, arrival(0, first.payload), arrival(1, second.payload))
    step = method.aggregate(state)
    assert step.state.model.tolist() == [1.0 + 0.25 / 2, 2.0 - 1.0 / 2]
    assert step.stepped
    # Client 0 goes on to (1.3, 2) again: it has sent 1.25 so far, and 0.05 is less than half a quarter.
    again = method.report(first.memory, work(1.3, 2.0))
    assert QUARTERS.as_signed(again.payload).tolist() == [0, 0]
    assert again.memory is not None
    assert again.memory.tolist() == [1, 0]


def test_fedbuff_by_hand() -> None:
    method = in_fixed_point(fedbuff(2, 2.0), COARSE, START)
    assert method.remember(START) is None
    payloads = [method.report(None, work(*local)).payload for local in ((0.5, 2.0), (1.0, 1.3))]
    state = received(method, *(arrival(client, payload) for client, payload in enumerate(payloads)))
    assert method.aggregate(state).state.model.tolist() == [1.0 - 2 * 0.5 / 2, 2.0 - 2 * 0.75 / 2]


def test_updates_of_one_client_wait_for_those_of_another() -> None:
    method = in_fixed_point(area(3), COARSE, START)
    assert method.masked is not None
    state = received(method, arrival(1, [4, 0]), arrival(1, [4, 0], 1))
    assert method.masked.covered(state) == ()
    step = method.aggregate(state)
    assert (step.stepped, step.state) == (False, state)
    assert not method.masked.settled(state)
    state = received(method, arrival(0, [4, 0]), state=state)
    assert method.masked.covered(state) == ((1, 0), (1, 1), (0, 0))
    step = method.aggregate(state)
    assert step.state.model.tolist() == [1.0 + 3 * 1.0 / 3, 2.0]
    assert method.masked.settled(step.state)


def test_masks_are_subtracted_modulo_the_bits() -> None:
    method = in_fixed_point(area(2), COARSE, START)
    assert method.masked is not None
    masks = np.array([[2**32 - 1, 7], [5, 2**31]], np.uint32)
    covered = np.array([4, 8], np.uint32) + masks
    state = received(method, arrival(0, covered[0]), arrival(1, covered[1]))
    state = method.masked.uncover(state, masks[0] + masks[1])
    assert method.aggregate(state).state.model.tolist() == [1.0 + 1.0, 2.0 + 2.0]


def test_a_step_without_updates_changes_nothing() -> None:
    method = in_fixed_point(area(2), COARSE, START)
    step = method.aggregate(method.start(START).state)
    assert (step.stepped, step.state.model.tolist()) == (True, [1.0, 2.0])


def test_more_updates_than_the_integers_have_room_for_end_the_run() -> None:
    method = in_fixed_point(area(2), Privacy(most_updates=3), START)
    state = received(method, *(arrival(1, [0, 0], number) for number in range(3)))
    with pytest.raises(RunFailure, match=r"more than privacy.most_updates = 3 .* at least 2 clients; raise it"):
        method.receive(state, arrival(1, [0, 0], 3))


def test_a_method_that_needs_more_than_sums_is_refused() -> None:
    method: Method = fedasync(2, 0.5, lambda _staleness: 1.0)
    with pytest.raises(UserError, match='method "fedasync" has no function `add`, so it cannot do with sums'):
        in_fixed_point(method, COARSE, START)


def test_an_update_that_is_not_sent_is_not_remembered() -> None:
    method = in_fixed_point(area(2), Privacy(range=0.5, outside="refuse"), START)
    report = method.report(method.remember(START), work(9.0, 2.0))
    assert (report.fit, report.payload.tolist()) == (Fit.OUTSIDE, [0, 0])
    assert report.memory is not None
    assert report.memory.tolist() == [0, 0]
