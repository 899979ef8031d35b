"""The verdict on small cases, with the stretch that it advises, and on runs in which each cause is rigged."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.runs import nothing, recorder_of
from tests.support.wires import EXPERIMENT, Clock, ScriptedLink, own_clock

from areabench.engine.diagnosis import (
    Case,
    Cause,
    Diagnosis,
    Loads,
    RunObservations,
    diagnose,
    excess_of,
    judge,
    round_stretches,
)
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import CLIENT
from areabench.engine.messages import Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import build_scenario
from areabench.engine.timings import TIMING
from areabench.experiment.experiment import Clients, Stop
from areabench.transports.server_loop import RealTimeServer, RunMonitors

IDLE = Loads(server=0.1, serving=0.05, rank=0.1, cores=0.2, workers=0.5, looking=0.0, waiting=0.0)


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
    found = excess_of(case(SLOW_REPLY, Loads()))
    assert (found.server_s, found.compute_s, found.machine_s) == pytest.approx((0.225, 0.075, 0.0))
    assert found.total_s == pytest.approx(0.3)


def test_what_is_left_of_an_overrun_is_due_to_the_rank_if_it_hosts_others_else_to_the_machine() -> None:
    table = rows(realised_s=0.2, reply_s=0.05, compute_s=0.05, flags=OVERRUN)
    alone, shared = excess_of(case(table, Loads())), excess_of(case(table, Loads(), shared=True))
    assert (alone.server_s, alone.compute_s, alone.machine_s) == pytest.approx((0.025, 0.025, 0.05))
    assert (shared.server_s, shared.compute_s, shared.machine_s) == pytest.approx((0.025, 0.075, 0.0))


def test_waiting_at_a_rank_is_due_to_what_the_rank_did_meanwhile() -> None:
    """Of 60 ms, a third without a core; a quarter of the rest it computed."""
    table = rows(realised_s=0.2, reply_s=0.04, compute_s=0.04, flags=OVERRUN)
    found = excess_of(case(table, Loads(looking=0.75, waiting=1 / 3), shared=True))
    parts = (found.polling_s, found.server_s, found.compute_s, found.machine_s)
    assert parts == pytest.approx((0.03, 0.02, 0.02 + 0.01, 0.02))


@pytest.mark.parametrize(
    ("loads", "charged"),
    [
        (Loads(server=0.9, serving=0.2), "polling_s"),
        (Loads(server=0.9, serving=0.7), "server_s"),
        (Loads(server=0.9), "server_s"),
        (Loads(server=0.2, serving=0.1), "machine_s"),
    ],
)
def test_a_late_reply_is_due_to_what_the_server_does_most(loads: Loads, charged: str) -> None:
    found = excess_of(case(SLOW_REPLY, loads))
    assert getattr(found, charged) == pytest.approx(0.225)
    assert (found.compute_s, found.total_s) == pytest.approx((0.075, 0.3))


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


# Ten thousand clients on three ranks: a look takes longer than a hundred updates.
MANY_CLIENTS = Loads(server=0.97, serving=0.12, rank=0.07, cores=0.9, workers=0.45, looking=0.9, waiting=0.1)
CROWDED = replace(MANY_CLIENTS, workers=0.6)  # worker ranks use most of the cores, and hardly compute
ONE_BUSY_RANK = Loads(server=0.1, rank=1.0, cores=0.4, workers=0.9, waiting=0.01)
NO_REPLY = rows(realised_s=0.4, reply_s=math.nan, compute_s=0.001, flags=OVERRUN)  # as first orders
CALLED = rows(reply_s=math.nan)
QUIET = Loads(cores=0.1, workers=0.5)
STARVED = Loads(server=0.9, cores=0.4, workers=0.5)


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (case(rows(realised_s=0.1029)), Cause.DELAYS),
        (case(rows(realised_s=0.1031)), Cause.MACHINE),
        (case(rows(drawn_s=100.0, realised_s=103.0)), Cause.DELAYS),  # 3 % exactly
        (case(rows(0)), Cause.NOTHING),
        # looks that fill the cores are no computing, and neither is a server that fills its core
        (case(SLOW_REPLY, CROWDED, shared=True), Cause.POLLING),
        (case(SLOW_REPLY, replace(CROWDED, looking=0.1), shared=True), Cause.COMPUTING),
        (case(SLOW_REPLY, Loads(server=1.0, rank=0.1, cores=1.0, workers=0.1)), Cause.SERVER),
        # a server that sleeps for longer than it looks is not late because of its looks
        (case(SLOW_REPLY, Loads(server=0.50, serving=0.03)), Cause.MACHINE),
        (case(SLOW_REPLY, Loads(server=0.53, serving=0.03)), Cause.POLLING),
        (case(SLOW_REPLY, Loads(server=0.52, serving=0.26)), Cause.SERVING),
        # it is busy from three tenths of the time on, and not while it waits for a core
        (case(SLOW_REPLY, replace(QUIET, server=0.05)), Cause.MACHINE),
        (case(SLOW_REPLY, replace(QUIET, server=0.29)), Cause.MACHINE),
        (case(SLOW_REPLY, replace(QUIET, server=0.3)), Cause.SERVER),
        (case(SLOW_REPLY, replace(STARVED, starved=0.7)), Cause.MACHINE),
        (case(SLOW_REPLY, replace(STARVED, starved=0.1)), Cause.SERVER),
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.05, starved=0.51)), Cause.MACHINE),
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.9, starved=0.51)), Cause.MACHINE),
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.05, starved=0.2)), Cause.POLLING),
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.9, starved=0.2)), Cause.SERVING),
        # it waits for a core while it looks: MPI gives the core away there
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.4)), Cause.POLLING),
        (case(SLOW_REPLY, Loads(server=1.0, serving=0.4, starved=0.25)), Cause.SERVING),
        # computing that waits for a core is due to a busy machine
        (case(SLOW_ROUND, Loads(server=0.1, rank=0.9, cores=0.3, waiting=0.8)), Cause.MACHINE),
        # without any load known the times decide
        (case(SLOW_REPLY, Loads()), Cause.SERVER),
        (case(SLOW_ROUND, Loads()), Cause.COMPUTING),
        (case(WOKEN_LATE, Loads()), Cause.MACHINE),
        # called clients wait for a busy server, unless it looks while they work
        (case(CALLED, Loads(server=0.9), called=True), Cause.SERVER),
        (case(CALLED, Loads(server=0.9, serving=0.6), called=True), Cause.SERVING),
        (case(CALLED, Loads(server=0.9, serving=0.4), called=True), Cause.DELAYS),
        (case(CALLED, Loads(server=0.1), called=True), Cause.DELAYS),
        (case(CALLED, Loads(server=0.9)), Cause.DELAYS),
    ],
)
def test_the_cause(seen: Case, cause: Cause) -> None:
    assert judge(seen).cause == cause


@pytest.mark.parametrize(
    ("seen", "cause", "stretch", "said"),
    [
        (case(rows(realised_s=0.1029)), Cause.DELAYS, math.nan, ["delay-bound: cycles are as long as", "(+2.9 %)"]),
        (  # 0.99 busy at a quarter of the pace is a load of 3.96, and 6.6 times that is 0.6
            case(SLOW_REPLY, Loads(server=0.99, rank=0.2, cores=0.4, workers=0.2)),
            Cause.SERVER,
            8.0,
            ["server-bound: the results measure the server, not the delays (cycles +300.0 %", "fewer clients"],
        ),
        (  # 0.9 at a quarter of the pace is a load of 3.6: looks are left out
            case(SLOW_REPLY, Loads(server=0.99, serving=0.9, rank=0.2, cores=0.4, workers=0.2)),
            Cause.SERVING,
            6.0,
            ["serving-bound: the results", "it serves 90 % of the time", "lower rates or fewer server steps"],
        ),
        (  # 400 ms / 4 fit into 100 ms
            case(SLOW_REPLY, MANY_CLIENTS, shared=True),
            Cause.POLLING,
            4.0,
            [
                "polling-bound: the time goes into looking for messages (cycles +300.0 %, the server looks 85 % of the",
                "and serves 12 %); use fewer clients or fewer worker ranks",
            ],
        ),
        (
            case(NO_REPLY, replace(MANY_CLIENTS, server=0.2, serving=0.1), shared=True),
            Cause.POLLING,
            4.0,
            ["worker ranks look 90 % of the time in which they run); use fewer clients per worker rank"],
        ),
        (  # at 3 the load would be 2/3, and twice 200 ms would not fit into 300 ms
            case(SLOW_ROUND, ONE_BUSY_RANK),
            Cause.COMPUTING,
            4.0,
            ["compute-bound: delays are overrun by computing (cycles +100.0 %", "rank computes 100 %", "more cores"],
        ),
        (case(SLOW_ROUND, ONE_BUSY_RANK, stretch=4.0), Cause.COMPUTING, 16.0, []),  # it starts from the current one
        (
            case(
                rows(realised_s=0.2, reply_s=0.01, compute_s=0.01, flags=OVERRUN),
                Loads(server=0.1, rank=1.0, cores=0.3, workers=0.9),
                shared=True,
            ),
            Cause.COMPUTING,
            4.0,
            ["more worker ranks"],
        ),
        (  # full cores are to blame even where the replies are late
            case(SLOW_REPLY, Loads(server=0.9, rank=0.3, cores=0.97, workers=0.9)),
            Cause.COMPUTING,
            8.0,
            ["at full pace the ranks need 388 % of the cores"],
        ),
        (  # 120 % / 0.6; computing waits for a core for 4/5 of its time, and fits alone
            case(SLOW_ROUND, Loads(server=0.2, rank=0.9, cores=0.6, workers=0.9, waiting=0.8)),
            Cause.COMPUTING,
            2.0,
            ["at full pace the ranks need 120 % of the cores"],
        ),
        (  # 20 % are 6.7 times 3 %
            case(WOKEN_LATE),
            Cause.MACHINE,
            8.0,
            ["late wake-ups: the machine is busy with something else (cycles +20.0 %)"],
        ),
        (
            case(WOKEN_LATE, Loads(server=0.2, rank=0.1, cores=0.6, workers=0.9)),
            Cause.MACHINE,
            8.0,
            ["busy with too many ranks (cycles +20.0 %); start fewer worker ranks, or set"],
        ),
        (  # the same lateness fits: 400 ms / 4 into 100 ms
            case(rows(100, realised_s=0.4, reply_s=0.35, compute_s=0.01, flags=OVERRUN)), Cause.MACHINE, 4.0, []
        ),
    ],
)  # fmt: skip
def test_the_verdict_advises_a_stretch(seen: Case, cause: Cause, stretch: float, said: list[str]) -> None:
    verdict = judge(seen)
    assert verdict.cause == cause
    assert verdict.stretch == pytest.approx(stretch, nan_ok=True)
    assert all(words in verdict.line for words in said)
    assert f"clock.stretch = {stretch:g}" in verdict.line or cause == Cause.DELAYS


def test_stretches_are_round() -> None:
    assert round_stretches(1.0)[:6] == [1.5, 2.0, 3.0, 4.0, 6.0, 8.0]
    assert round_stretches(5.0)[0] == 6.0
    assert round_stretches(0.4)[0] == 0.5
    assert round_stretches(1e6) == []


# ------------------------------------------------------------------------------------------------------ rigged runs


@dataclass(frozen=True)
class Rig:
    """How long things take, in seconds: a look for messages, an order, local steps, and waking up."""

    look_s: float = 5e-6
    order_s: float = 10e-6
    compute_s: float = 1e-3
    oversleep_s: float = 0.0


@dataclass
class RiggedLink(ScriptedLink):
    """A wire to clients with delays of 10 ms, each on a rank of its own; the clock moves as the rig says."""

    clock: Clock = field(default_factory=Clock)
    rig: Rig = field(default_factory=Rig)
    sent_s: dict[int, float] = field(default_factory=dict)  # when each client sent its last update
    under_way: list[tuple[float, UpdateHeader]] = field(default_factory=list)  # a heap of updates and when they leave

    def arrivals(self) -> Sequence[Update]:
        if self.stopped:
            return super().arrivals()
        self.clock.now_s += self.rig.look_s
        found = []
        while self.under_way and self.under_way[0][0] <= self.clock.now_s:
            found.append(Update(heapq.heappop(self.under_way)[1], np.ones(2)))
        return found

    def order(self, order: Order) -> None:
        self.clock.now_s += self.rig.order_s
        seen_s, number = self.clock.now_s, sum(1 for each in self.orders if each.client == order.client)
        begun_s = self.sent_s.get(order.client, seen_s)
        due_s, ready_s = begun_s + 0.01, seen_s + self.rig.compute_s
        leaves_s = self.sent_s[order.client] = max(due_s + self.rig.oversleep_s, ready_s)
        flags, reply_s = Flag.OVERRUN if ready_s > due_s else Flag.NONE, seen_s - begun_s if number else math.nan
        header = UpdateHeader(
            order.client, number, order.version, 0.01, leaves_s - begun_s, reply_s, self.rig.compute_s, flags, 1
        )
        heapq.heappush(self.under_way, (leaves_s, header))
        super().order(order)


def rigged(rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    """The diagnosis of two seconds with 20 clients."""
    link = RiggedLink([], clients=20, clock=own_clock(monkeypatch), rig=rig)
    experiment = replace(EXPERIMENT, clients=Clients(count=20), stop=Stop(horizon_s=2.0))
    recorder = recorder_of(folder / "run.h5", experiment)
    clients = np.zeros(20, CLIENT)
    clients["client"], clients["rank"], clients["rate"] = np.arange(20), np.arange(1, 21), 100.0
    monitors = RunMonitors(NoTarget(), nothing)
    server = RealTimeServer(build_scenario(experiment, folder), link, recorder, monitors)
    status = server.run()
    recorder.close()
    timings = server.timings
    return diagnose(
        RunObservations(
            experiment, virtual=False, duration_s=status.end_s, clients=clients, served=recorder.tally.served(20),
            rows=timings.rows, overruns=timings.overruns, compute_s=timings.compute_s, idle_s=server.idle_s,
            serving_s=server.serving_s,
        )
    )  # fmt: skip


def test_a_run_in_which_nothing_is_rigged_keeps_its_delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rigged(Rig(), tmp_path, monkeypatch)
    assert found.cause == Cause.DELAYS
    assert found.updates > 3900
    assert found.server_serving == pytest.approx(2.0, rel=0.05)  # 2,000 orders per second of 10 us each
    assert found.server_load == pytest.approx(found.server_polling + found.server_serving)


@pytest.mark.parametrize(
    ("rig", "cause"),
    [
        (Rig(look_s=0.015), Cause.POLLING),
        (Rig(order_s=0.001), Cause.SERVING),
        (Rig(compute_s=0.02), Cause.COMPUTING),
        (Rig(oversleep_s=0.002), Cause.MACHINE),
    ],
    ids=lambda given: given.name if isinstance(given, Cause) else "",
)
def test_what_is_rigged_is_named(rig: Rig, cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rigged(rig, tmp_path, monkeypatch)
    assert found.cause == cause
    assert found.advice.startswith(f"{cause.value}: ")
    assert f"clock.stretch = {found.advised_stretch:g}" in found.advice
    if cause == Cause.POLLING:
        assert (found.server_polling, found.server_serving) == pytest.approx((98.7, 1.3), abs=0.2)
        assert found.excess_polling_s > 0.9 * (found.mean_realised_s - found.mean_drawn_s)
