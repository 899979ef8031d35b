"""The verdict on small cases: each cause, and the stretch that is advised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from areabench.engine.diagnosis import (
    Case,
    Cause,
    Excess,
    Loads,
    excess_of,
    judge,
    round_stretches,
)
from areabench.engine.messages import Flag
from areabench.engine.timings import TIMING

IDLE = Loads(server=0.1, rank=0.1, cores=0.2, workers=0.5, waiting=0.0)


def rows(count: int = 10, **columns: float) -> NDArray[Any]:
    """So many updates with the same times: 100 ms drawn and kept, but for the columns given."""
    table = np.zeros(count, TIMING)
    for name, value in {"drawn_s": 0.1, "realised_s": 0.1, **columns}.items():
        table[name] = value
    return table


def case(table: NDArray[Any], loads: Loads = IDLE, *, shared: bool = False, **others: Any) -> Case:
    return Case(table, np.array([shared]), loads, **others)


OVERRUN = float(Flag.OVERRUN)
SLOW_REPLY = rows(realised_s=0.4, reply_s=0.3, compute_s=0.1, service_s=0.02, flags=OVERRUN)
SLOW_ROUND = rows(realised_s=0.2, reply_s=0.0, compute_s=0.2, flags=OVERRUN)
WOKEN_LATE = rows(realised_s=0.12, reply_s=0.001, compute_s=0.001)


def test_the_excess_of_an_overrun_is_divided_in_proportion() -> None:
    found = excess_of(case(SLOW_REPLY))
    assert (found.server_s, found.compute_s, found.machine_s) == pytest.approx((0.225, 0.075, 0.0))
    assert found.total_s == pytest.approx(0.3)


def test_what_is_left_of_an_overrun_is_due_to_the_rank_if_it_hosts_others_else_to_the_machine() -> None:
    table = rows(realised_s=0.2, reply_s=0.05, compute_s=0.05, flags=OVERRUN)
    alone, shared = excess_of(case(table)), excess_of(case(table, shared=True))
    assert (alone.server_s, alone.compute_s, alone.machine_s) == pytest.approx((0.025, 0.025, 0.05))
    assert (shared.server_s, shared.compute_s, shared.machine_s) == pytest.approx((0.025, 0.075, 0.0))


def test_an_update_that_was_ready_and_left_late_met_half_a_round_of_another_client_at_most() -> None:
    table = rows(realised_s=0.13, compute_s=0.04)
    busy = Loads(rank=0.5)
    assert excess_of(case(table, busy)).compute_s == 0.0
    shared = excess_of(case(table, busy, shared=True))
    assert (shared.compute_s, shared.machine_s) == pytest.approx((0.01, 0.02))


def test_the_reply_to_an_update_that_was_ready_in_time_is_not_to_blame() -> None:
    found = excess_of(case(rows(realised_s=0.13, reply_s=0.065, compute_s=0.01)))
    assert (found.server_s, found.compute_s, found.machine_s) == pytest.approx((0.0, 0.0, 0.03))


def test_an_order_that_was_no_reply_blames_no_reply() -> None:
    table = rows(realised_s=0.2, reply_s=math.nan, compute_s=0.2, flags=OVERRUN)
    found = excess_of(case(table))
    assert (found.server_s, found.compute_s) == pytest.approx((0.0, 0.1))


def test_kept_delays_are_delay_bound() -> None:
    verdict = judge(case(rows(realised_s=0.1029)))
    assert verdict.cause == Cause.DELAYS
    assert verdict.line == "delay-bound: cycles are as long as the delays drawn (+2.9 %)"
    assert math.isnan(verdict.stretch)
    assert judge(case(rows(realised_s=0.1031))).cause != Cause.DELAYS
    assert judge(case(rows(drawn_s=100.0, realised_s=103.0))).cause == Cause.DELAYS  # 3 % exactly


def test_a_slow_server_is_named() -> None:
    verdict = judge(case(SLOW_REPLY, Loads(server=0.99, rank=0.2, cores=0.4, workers=0.2)))
    assert verdict.cause == Cause.SERVER
    assert verdict.line.startswith("server-bound: the results measure the server, not the delays (cycles +300.0 %")
    assert f"clock.stretch = {verdict.stretch:g}" in verdict.line
    assert "fewer clients" in verdict.line
    assert verdict.stretch == 8.0  # 0.99 busy at a quarter of the pace is a load of 3.96, and 6.6 times that is 0.6


def test_slow_computing_is_named() -> None:
    verdict = judge(case(SLOW_ROUND, Loads(server=0.1, rank=1.0, cores=0.4, workers=0.9, waiting=0.01)))
    assert verdict.cause == Cause.COMPUTING
    assert verdict.line.startswith("compute-bound: delays are overrun by computing (cycles +100.0 %")
    assert "the busiest rank computes 100 %" in verdict.line
    assert "more cores" in verdict.line
    assert verdict.stretch == 4.0  # at 3 the load would be 2/3, and twice 200 ms would not fit into 300 ms


def test_a_rank_with_too_many_clients_asks_for_more_ranks() -> None:
    table = rows(realised_s=0.2, reply_s=0.01, compute_s=0.01, flags=OVERRUN)
    verdict = judge(case(table, Loads(server=0.1, rank=1.0, cores=0.3, workers=0.9), shared=True))
    assert verdict.cause == Cause.COMPUTING
    assert "more worker ranks" in verdict.line


def test_full_cores_are_to_blame_even_where_the_replies_are_late() -> None:
    verdict = judge(case(SLOW_REPLY, Loads(server=0.9, rank=0.3, cores=0.97, workers=0.9)))
    assert verdict.cause == Cause.COMPUTING
    assert "at full pace the ranks need 388 % of the cores" in verdict.line


def test_cores_that_would_be_full_at_full_pace_are_too_few() -> None:
    verdict = judge(case(SLOW_ROUND, Loads(server=0.2, rank=0.9, cores=0.6, workers=0.9, waiting=0.8)))
    assert verdict.cause == Cause.COMPUTING  # 60 % at half the pace are 120 %, whatever else uses the cores
    assert "at full pace the ranks need 120 % of the cores" in verdict.line
    assert verdict.stretch == 2.0  # 120 % / 0.6; computing waits for a core for 4/5 of its time, and fits alone


def test_a_server_that_fills_its_core_is_no_computing() -> None:
    assert judge(case(SLOW_REPLY, Loads(server=1.0, rank=0.1, cores=1.0, workers=0.1))).cause == Cause.SERVER


def test_late_wake_ups_are_due_to_a_busy_machine() -> None:
    verdict = judge(case(WOKEN_LATE))
    assert verdict.cause == Cause.MACHINE
    assert verdict.line.startswith("late wake-ups: the machine is busy with something else (cycles +20.0 %)")
    assert verdict.stretch == 8.0  # 20 % are 6.7 times 3 %


def test_ranks_that_use_the_cores_themselves_are_too_many() -> None:
    verdict = judge(case(WOKEN_LATE, Loads(server=0.2, rank=0.1, cores=0.6, workers=0.9)))
    assert verdict.cause == Cause.MACHINE
    assert "busy with too many ranks (cycles +20.0 %); start fewer worker ranks, or set" in verdict.line


def test_late_replies_of_an_idle_server_are_due_to_a_busy_machine() -> None:
    assert judge(case(SLOW_REPLY, Loads(server=0.05, cores=0.1, workers=0.5))).cause == Cause.MACHINE


def test_a_server_is_busy_from_three_tenths_of_the_time_on() -> None:
    assert judge(case(SLOW_REPLY, Loads(server=0.3, cores=0.1, workers=0.5))).cause == Cause.SERVER
    assert judge(case(SLOW_REPLY, Loads(server=0.29, cores=0.1, workers=0.5))).cause == Cause.MACHINE


def test_a_server_that_waits_for_a_core_is_not_busy() -> None:
    assert judge(case(SLOW_REPLY, Loads(server=0.9, starved=0.7, cores=0.4, workers=0.5))).cause == Cause.MACHINE
    assert judge(case(SLOW_REPLY, Loads(server=0.9, starved=0.1, cores=0.4, workers=0.5))).cause == Cause.SERVER


def test_on_a_busy_machine_the_stretch_lets_the_same_lateness_fit() -> None:
    table = rows(100, realised_s=0.4, reply_s=0.35, compute_s=0.01, flags=OVERRUN)
    assert judge(case(table)).stretch == 4.0  # 400 ms / 4 fit into 100 ms


def test_computing_that_waits_for_a_core_is_due_to_a_busy_machine() -> None:
    assert judge(case(SLOW_ROUND, Loads(server=0.1, rank=0.9, cores=0.3, waiting=0.8))).cause == Cause.MACHINE


def test_without_any_load_known_the_times_decide() -> None:
    assert judge(case(SLOW_REPLY, Loads())).cause == Cause.SERVER
    assert judge(case(SLOW_ROUND, Loads())).cause == Cause.COMPUTING
    assert judge(case(WOKEN_LATE, Loads())).cause == Cause.MACHINE


def test_a_server_that_is_busy_while_its_called_clients_wait() -> None:
    table = rows(reply_s=math.nan)
    assert judge(case(table, Loads(server=0.9), called=True)).cause == Cause.SERVER
    assert judge(case(table, Loads(server=0.1), called=True)).cause == Cause.DELAYS
    assert judge(case(table, Loads(server=0.9))).cause == Cause.DELAYS


def test_no_updates_no_verdict() -> None:
    assert judge(case(rows(0))).cause == Cause.NOTHING


def test_the_advice_starts_from_the_current_stretch() -> None:
    loads = Loads(server=0.1, rank=1.0, cores=0.4, workers=0.9, waiting=0.01)
    assert judge(case(SLOW_ROUND, loads, stretch=4.0)).stretch == 16.0


def test_stretches_are_round() -> None:
    assert round_stretches(1.0)[:6] == [1.5, 2.0, 3.0, 4.0, 6.0, 8.0]
    assert round_stretches(5.0)[0] == 6.0
    assert round_stretches(0.4)[0] == 0.5
    assert round_stretches(1e6) == []


def test_an_excess_is_the_sum_of_its_parts() -> None:
    assert Excess(1.0, 2.0, 4.0).total_s == 7.0
