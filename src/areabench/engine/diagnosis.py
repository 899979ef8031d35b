"""The diagnosis of a run: whether it kept its delays and served its clients alike, and if not, what to change.

Pure: from what was observed to one record. Times in seconds of the experiment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.experiment import Experiment, ExponentialDelays, SFedAvg
from areabench.fairness import expected_updates
from areabench.footprint import Footprint, fullest_host
from areabench.schema import DIAGNOSIS_CLIENT, QUANTILE
from areabench.verdict import TOLERANCE, Case, Cause, Excess, Loads, Verdict, excess_of, judge

SHARES = np.array([*range(100), 99.9, 100.0])  # percent, at which quantiles are kept


@dataclass(frozen=True, eq=False)
class Observed:
    """What is known of a run when it has ended."""

    experiment: Experiment
    virtual: bool  # whether it was simulated
    duration_s: float
    clients: NDArray[Any]  # rows of CLIENT
    served: NDArray[np.int64]  # updates used, one entry a client
    rows: NDArray[Any]  # of TIMING: of all updates used, or of an even sample
    overruns: int
    compute_s: NDArray[np.float64]  # all computing of each client
    idle_s: float = math.nan  # of the server
    footprints: tuple[Footprint, ...] = ()  # one a rank, the server's first
    start_up_s: float = math.nan
    lost: tuple[int, ...] = ()  # clients that were gone before the end: nobody expects a whole run of them


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The diagnosis; the fields up to `quantiles` are attributes in the run file. NaN where something is not known."""

    verdict: str
    advice: str  # the verdict in one line, with what to change
    advised_stretch: float
    stretch: float
    duration_s: float
    updates: int
    expected_updates: float  # of all clients; NaN where the server calls them
    mean_drawn_s: float
    mean_realised_s: float
    mean_reply_s: float
    mean_compute_s: float
    excess_server_s: float  # mean of an update
    excess_compute_s: float
    excess_machine_s: float
    overruns: int
    expected_overruns: float  # percent of the updates
    server_load: float  # percent of the time
    server_starved: float  # percent of the time in which it waited for a core
    busiest_rank: int
    busiest_load: float  # percent of the time
    cores: int  # of the host whose ranks use most of them
    core_load: float  # percent of these cores
    ranks: int
    memory_bytes: int
    start_up_s: float
    sampled: int  # updates that means and quantiles come from
    clients: NDArray[Any]  # rows of DIAGNOSIS_CLIENT
    quantiles: NDArray[Any]  # rows of QUANTILE

    @property
    def cause(self) -> Cause:
        """The verdict as a value."""
        return Cause(self.verdict)

    @property
    def short(self) -> NDArray[Any]:
        """The clients that were served less than chance allows, the worst first."""
        few = self.clients[self.clients["served"] < self.clients["low"]]
        return few[np.argsort(few["served"] / few["expected"], kind="stable")]

    def quantile(self, column: str, share: float) -> float:
        """A quantile in seconds; `share` in percent, one of SHARES. NaN where nothing was measured."""
        chosen = self.quantiles[column][self.quantiles["share"] == share]
        return float(chosen[0]) if len(chosen) else math.nan


def diagnose(seen: Observed) -> Diagnosis:
    """The diagnosis of what was observed."""
    rows, updates, loads = seen.rows, int(seen.served.sum()), loads_of(seen)
    clients = _client_rows(seen, updates)
    case = _case(seen, loads)
    verdict = Verdict(Cause.VIRTUAL, "virtual time: delays are exact") if seen.virtual else judge(case)
    excess = excess_of(case) if len(rows) else Excess(math.nan, math.nan, math.nan)
    loads_by_rank = _rank_loads(seen)
    return Diagnosis(
        verdict=verdict.cause.value,
        advice=verdict.line,
        advised_stretch=verdict.stretch,
        stretch=seen.experiment.clock.stretch,
        duration_s=seen.duration_s,
        updates=updates,
        expected_updates=math.nan if case.called else float(clients["expected"].sum()),
        mean_drawn_s=_mean(rows["drawn_s"]),
        mean_realised_s=_mean(rows["realised_s"]),
        mean_reply_s=_mean(rows["reply_s"]),
        mean_compute_s=_mean(rows["compute_s"]),
        excess_server_s=excess.server_s,
        excess_compute_s=excess.compute_s,
        excess_machine_s=excess.machine_s,
        overruns=seen.overruns,
        expected_overruns=100 * _overruns_by_chance(seen),
        server_load=100 * loads.server,
        server_starved=100 * loads.starved,
        busiest_rank=max(loads_by_rank, key=lambda rank: loads_by_rank[rank], default=-1),
        busiest_load=100 * loads.rank,
        cores=fullest_host(seen.footprints).cores,
        core_load=100 * loads.cores,
        ranks=len(seen.footprints),
        memory_bytes=sum(one.memory_bytes for one in seen.footprints),
        start_up_s=seen.start_up_s,
        sampled=len(rows),
        clients=clients,
        quantiles=_quantile_rows(rows),
    )


def loads_of(seen: Observed) -> Loads:
    """How busy server, ranks and cores were."""
    busy = [one.busy for one in seen.footprints]
    waited, computed = sum(one.waited for one in seen.footprints[1:]), float(seen.compute_s.sum()) / seen.duration_s
    return Loads(
        server=1 - seen.idle_s / seen.duration_s,
        starved=float(np.nan_to_num(seen.footprints[0].waited)) if seen.footprints else 0.0,
        rank=max(_rank_loads(seen).values(), default=math.nan),
        cores=fullest_host(seen.footprints).load,
        workers=sum(busy[1:]) / sum(busy) if sum(busy) else math.nan,
        waiting=waited / computed if computed and seen.footprints else math.nan,
    )


def _rank_loads(seen: Observed) -> dict[int, float]:
    """The share of the time in which each worker rank computed; none in the simulator."""
    ranks = seen.clients["rank"]
    return {
        int(rank): float(seen.compute_s[ranks == rank].sum()) / seen.duration_s for rank in np.unique(ranks[ranks > 0])
    }


def _case(seen: Observed, loads: Loads) -> Case:
    ranks = seen.clients["rank"]
    shared = np.bincount(np.maximum(ranks, 0))[ranks] > 1
    called = isinstance(seen.experiment.method, SFedAvg)
    return Case(seen.rows, shared, loads, seen.experiment.clock.stretch, called)


def _client_rows(seen: Observed, updates: int) -> NDArray[Any]:
    """Rows of DIAGNOSIS_CLIENT."""
    tolerance = 0.0 if seen.virtual else TOLERANCE
    expected = expected_updates(seen.experiment, seen.clients["rate"], seen.duration_s, updates, tolerance)
    table = np.zeros(len(seen.clients), DIAGNOSIS_CLIENT)
    table["client"], table["served"], table["compute_s"] = seen.clients["client"], seen.served, seen.compute_s
    table["expected"], table["low"], table["high"] = expected.mean, expected.low, expected.high
    table["low"][list(seen.lost)] = 0.0
    return table


def _overruns_by_chance(seen: Observed) -> float:
    """The share of exponential delays that are shorter than reply and computing; none of fixed ones, NaN for others."""
    if not isinstance(seen.experiment.delays, ExponentialDelays):
        return 0.0 if seen.experiment.delays.name == "fixed" else math.nan
    rows = seen.rows
    needed_s = np.nan_to_num(rows["reply_s"]) + rows["compute_s"]
    return _mean(-np.expm1(-seen.clients["rate"][rows["client"]] * needed_s))


def _quantile_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of QUANTILE, one an entry of SHARES; none where there are no updates."""
    if not len(rows):
        return np.zeros(0, QUANTILE)
    table = np.zeros(len(SHARES), QUANTILE)
    table["share"] = SHARES
    table["late_s"] = np.percentile(rows["realised_s"] - rows["drawn_s"], SHARES)
    for name in ("drawn_s", "realised_s", "reply_s", "compute_s", "queue_s", "service_s"):
        known = rows[name][~np.isnan(rows[name])]
        table[name] = np.percentile(known, SHARES) if len(known) else math.nan
    return table


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of those that are not NaN; NaN where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
