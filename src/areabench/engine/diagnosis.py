"""The diagnosis of a run: whether it kept its delays and served its clients alike, and if not, what to change.

Pure: from what was observed to one record. Times in seconds of the experiment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Columns, row_type
from areabench.engine.fairness import expected_updates
from areabench.engine.messages import Flag
from areabench.experiment.experiment import Experiment
from areabench.host import Footprint, fullest_host

TOLERANCE = 0.03  # cycles longer by this share on average still count as long as their delays
FULL_CORES = 0.85  # ranks that would use this share of their cores at full pace wait for each other
CROWDED_CORES = 0.5  # ranks that use this share of their cores, and wait nonetheless, wait for each other
BUSY_SERVER = 0.3  # a server that works for less than this share of the time delays no reply
BUSY_CALLER = 0.5  # while a server that calls its clients serves, none of them works
TARGET_LOAD = 0.6  # what a stretch aims at; waiting takes about as long as the work itself there
LARGEST_STRETCH = 1e6
DIAGNOSIS_CLIENT_COLUMNS: Columns = {
    "client": ("<i4", "number of the client"),
    "served": ("<i8", "updates used"),
    "expected": ("<f8", "updates expected"),
    "low": ("<f8", "lower end of its interval; 0 for a lost client"),
    "high": ("<f8", "upper end"),
    "compute_s": ("<f8", "its total computing time"),
}
QUANTILE_COLUMNS: Columns = {
    "share": ("<f8", "% of updates at or below the values of the row"),
    "drawn_s": ("<f8", "delay drawn"),
    "realised_s": ("<f8", "realised delay"),
    "late_s": ("<f8", "realised minus drawn"),
    "reply_s": ("<f8", "reply latency, of replies"),
    "compute_s": ("<f8", "computing"),
    "queue_s": ("<f8", "queue wait"),
    "service_s": ("<f8", "service"),
}
DIAGNOSIS_CLIENT = row_type(DIAGNOSIS_CLIENT_COLUMNS)
QUANTILE = row_type(QUANTILE_COLUMNS)
SHARES = np.array([*range(100), 99.9, 100.0])  # percent, at which quantiles are kept


class Cause(Enum):
    """What determines the length of the cycles; the text goes to the file."""

    NOTHING = "no updates"
    VIRTUAL = "virtual time"
    DELAYS = "delay-bound"
    POLLING = "polling-bound"
    SERVING = "serving-bound"
    SERVER = "server-bound"  # polling or serving: it is not known which, as where a run has not ended
    COMPUTING = "compute-bound"
    MACHINE = "late wake-ups"


@dataclass(frozen=True, eq=False)
class RunObservations:
    """What is known of a run when it has ended."""

    experiment: Experiment
    virtual: bool  # whether it was simulated
    duration_s: float
    clients: NDArray[Any]  # rows of CLIENT
    served: NDArray[np.int64]  # updates used, one entry per client
    rows: NDArray[Any]  # of TIMING: of all updates used, or of an even sample
    overruns: int
    compute_s: NDArray[np.float64]  # all computing of each client
    idle_s: float = math.nan  # of the server: slept for lack of work
    serving_s: float = math.nan  # of the server: handled what it had found; the rest it looked for messages
    footprints: tuple[Footprint, ...] = ()  # one per rank, the server's first
    start_up_s: float = math.nan
    lost: tuple[int, ...] = ()  # clients that were lost before the end: no full number of updates is expected of them


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The diagnosis. Its single values are the columns of /diagnosis/summary; NaN where something is not known."""

    verdict: Annotated[str, "S32", "[verdict](diagnosis.md#the-verdict), or `no updates`"]
    advice: Annotated[str, "S1000", "the verdict and what to change, in one line"]
    advised_stretch: Annotated[float, "NaN in a delay-bound run"]
    stretch: Annotated[float, "`clock.stretch` of the run"]
    duration_s: Annotated[float, "of the run"]
    updates: Annotated[int, "updates used"]
    expected_updates: Annotated[float, "of all clients; NaN where the server calls them"]
    mean_drawn_s: Annotated[float, "mean drawn delay"]
    mean_realised_s: Annotated[float, "mean realised delay"]
    mean_reply_s: Annotated[float, "mean reply latency"]
    mean_compute_s: Annotated[float, "mean computing"]
    excess_polling_s: Annotated[
        float,
        "mean of realised minus drawn delay: the part charged to polling; NaN if not known, it is in the next one then",
    ]
    excess_server_s: Annotated[float, "the part charged to serving"]
    excess_compute_s: Annotated[float, "the part charged to computing"]
    excess_machine_s: Annotated[float, "the part charged to late wake-ups"]
    overruns: Annotated[int, "updates that were not ready when due"]
    expected_overruns: Annotated[
        float, "% of exponential delays shorter than reply and computing; 0 for fixed delays, NaN for others"
    ]
    server_load: Annotated[float, "% of the time that the server was busy: the sum of the next two"]
    server_polling: Annotated[float, "% of the time that it looked for messages"]
    server_serving: Annotated[float, "% of the time that it handled them"]
    server_starved: Annotated[float, "% of the time that it lacked a core; 0 if the system does not report it"]
    busiest_rank: Annotated[int, "worker rank that computed most"]
    busiest_load: Annotated[float, "% of the time that it computed"]
    cores: Annotated[int, "cores of the fullest host"]
    core_load: Annotated[float, "% of them that its ranks used"]
    ranks: Annotated[int, "MPI ranks"]
    memory_bytes: Annotated[int, "memory of all ranks at the end, before the evaluation"]
    start_up_s: Annotated[float, "real seconds until all ranks were ready"]
    sampled: Annotated[int, "updates behind means and quantiles"]
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
        return _mean(chosen)


def diagnose(seen: RunObservations) -> Diagnosis:
    """The diagnosis of what was observed."""
    rows = seen.rows
    updates = int(seen.served.sum())
    loads = loads_of(seen)
    ranks = seen.clients["rank"]
    shared = np.bincount(np.maximum(ranks, 0))[ranks] > 1
    called = seen.experiment.method.calls_clients
    case = Case(rows, shared, loads, seen.experiment.clock.stretch, called)
    clients = _client_rows(seen, updates)
    verdict = judge(case)
    if seen.virtual:
        verdict = Verdict(Cause.VIRTUAL, "virtual time: delays are exact")
    excess = Excess(math.nan, math.nan, math.nan, math.nan)
    if len(rows):
        excess = excess_of(case)
    loads_by_rank = _rank_loads(seen)
    return Diagnosis(
        verdict=verdict.cause.value,
        advice=verdict.line,
        advised_stretch=verdict.stretch,
        stretch=seen.experiment.clock.stretch,
        duration_s=seen.duration_s,
        updates=updates,
        expected_updates=math.nan if called else float(clients["expected"].sum()),
        mean_drawn_s=_mean(rows["drawn_s"]),
        mean_realised_s=_mean(rows["realised_s"]),
        mean_reply_s=_mean(rows["reply_s"]),
        mean_compute_s=_mean(rows["compute_s"]),
        excess_polling_s=math.nan if math.isnan(loads.serving) else excess.polling_s,
        excess_server_s=excess.server_s,
        excess_compute_s=excess.compute_s,
        excess_machine_s=excess.machine_s,
        overruns=seen.overruns,
        expected_overruns=100 * _overruns_by_chance(seen),
        server_load=100 * loads.server,
        server_polling=100 * loads.polling,
        server_serving=100 * loads.serving,
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


def _client_rows(seen: RunObservations, updates: int) -> NDArray[Any]:
    """Rows of DIAGNOSIS_CLIENT."""
    # In virtual time no cycle is longer than its delay.
    tolerance = 0.0 if seen.virtual else TOLERANCE
    expected = expected_updates(seen.experiment, seen.clients["rate"], seen.duration_s, updates, tolerance)
    table = np.zeros(len(seen.clients), DIAGNOSIS_CLIENT)
    table["client"] = seen.clients["client"]
    table["served"] = seen.served
    table["compute_s"] = seen.compute_s
    table["expected"] = expected.mean
    table["low"] = expected.low
    table["high"] = expected.high
    table["low"][list(seen.lost)] = 0.0
    return table


def _overruns_by_chance(seen: RunObservations) -> float:
    """The share of exponential delays that are shorter than reply and computing; none of fixed ones, NaN for others."""
    if not seen.experiment.delays.memoryless:
        return 0.0 if seen.experiment.delays.certain else math.nan
    rows = seen.rows
    needed_s = np.nan_to_num(rows["reply_s"]) + rows["compute_s"]
    return _mean(-np.expm1(-seen.clients["rate"][rows["client"]] * needed_s))


def _quantile_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of QUANTILE, one per entry of SHARES; none where there are no updates."""
    if not len(rows):
        return np.zeros(0, QUANTILE)
    table = np.zeros(len(SHARES), QUANTILE)
    table["share"] = SHARES
    table["late_s"] = np.percentile(rows["realised_s"] - rows["drawn_s"], SHARES)
    for name in ("drawn_s", "realised_s", "reply_s", "compute_s", "queue_s", "service_s"):
        known = rows[name][~np.isnan(rows[name])]
        table[name] = math.nan
        if len(known):
            table[name] = np.percentile(known, SHARES)
    return table


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of those that are not NaN; NaN where there are none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan
    return float(known.mean())


# ---------------------------------------------------------------------------------------------------- loads


@dataclass(frozen=True)
class Loads:
    """Shares of the run's time, unless another is named; NaN where not known."""

    server: float = math.nan  # in which the server was not idle
    serving: float = math.nan  # in which it handled what it had found
    starved: float = 0.0  # in which it wanted a core and waited for it
    rank: float = math.nan  # in which the busiest worker rank computed
    cores: float = math.nan  # that all ranks of the fullest host used of its cores
    workers: float = math.nan  # what the worker ranks used of all that the ranks used
    looking: float = math.nan  # what of that was not computing: looks for messages, mostly
    waiting: float = math.nan  # for which worker ranks waited for a core, of the time in which they had work

    @property
    def polling(self) -> float:
        """The share in which the server looked for messages and did not sleep."""
        return self.server - self.serving

    @property
    def working(self) -> float:
        """The share in which the server worked, without what it waited for a core; its pauses are idle already."""
        return self.server * (1 - min(self.starved, 1.0))

    @property
    def computing(self) -> float:
        """What the worker ranks used for computing of all that the ranks used."""
        return self.workers * (1 - float(np.nan_to_num(self.looking)))

    @property
    def own_time(self) -> float:
        """The share of the computing that is not waiting for a core; a guess, as all waiting counts."""
        return max(1 - float(np.nan_to_num(self.waiting)), 0.05)


def loads_of(seen: RunObservations) -> Loads:
    """How busy server, ranks and cores were."""
    busy = [one.busy for one in seen.footprints]
    duration_s = seen.duration_s
    used = sum(busy[1:])
    waited = float(np.nansum([one.waited for one in seen.footprints[1:]]))
    computed = float(seen.compute_s.sum()) / duration_s
    return Loads(
        server=1 - seen.idle_s / duration_s,
        serving=min(seen.serving_s, duration_s - seen.idle_s) / duration_s,
        starved=float(np.nan_to_num(seen.footprints[0].waited)) if seen.footprints else 0.0,
        rank=max(_rank_loads(seen).values(), default=math.nan),
        cores=fullest_host(seen.footprints).load,
        workers=used / sum(busy) if sum(busy) else math.nan,
        looking=max(1 - computed / used, 0.0) if used else math.nan,
        waiting=waited / max(used + waited, computed) if used else math.nan,
    )


def _rank_loads(seen: RunObservations) -> dict[int, float]:
    """The share of the time in which each worker rank computed; none in the simulator."""
    ranks = seen.clients["rank"]
    return {
        int(rank): float(seen.compute_s[ranks == rank].sum()) / seen.duration_s for rank in np.unique(ranks[ranks > 0])
    }


# ---------------------------------------------------------------------------------------------------- verdict


@dataclass(frozen=True, eq=False)
class Case:
    """What a verdict rests on."""

    rows: NDArray[Any]  # of TIMING
    shared: NDArray[np.bool_]  # whether a client's rank hosts others too, one entry per client
    loads: Loads
    stretch: float = 1.0
    called: bool = False  # whether the server calls its clients, instead of answering them


@dataclass(frozen=True)
class Verdict:
    """What decided, in one line, and the clock.stretch that would leave it to the delays; NaN where none is needed."""

    cause: Cause
    line: str
    stretch: float = math.nan


def judge(case: Case) -> Verdict:
    """The verdict on a run in real time."""
    rows = case.rows
    if not len(rows):
        return Verdict(Cause.NOTHING, "no updates: there is nothing to judge")
    excess = excess_of(case)
    drawn_s = float(rows["drawn_s"].mean())
    cause = _cause(case, excess, excess.total_s / drawn_s)
    longer = f"{100 * excess.total_s / drawn_s:+.1f} %"
    if cause == Cause.DELAYS:
        return Verdict(cause, f"delay-bound: cycles are as long as the delays drawn ({longer})")
    stretch = advised_stretch(case, cause)
    return Verdict(cause, _WORDS[cause].format(longer=longer, **_remedies(case), stretch=f"{stretch:g}"), stretch)


def _cause(case: Case, excess: Excess, share: float) -> Cause:
    """Full cores slow everything down, replies too: that comes before looking at where it shows."""
    loads = case.loads
    serving = Cause.SERVING
    if math.isnan(loads.serving):
        serving = Cause.SERVER
    if case.called and np.fmin(loads.working, loads.serving) > BUSY_CALLER:
        return serving
    if share <= TOLERANCE:
        return Cause.DELAYS
    if _cores_are_full(case):
        return Cause.COMPUTING
    parts = {
        Cause.POLLING: excess.polling_s, serving: excess.server_s, Cause.COMPUTING: excess.compute_s,
        Cause.MACHINE: excess.machine_s,
    }  # fmt: skip
    return max(parts, key=lambda cause: parts[cause])


def _cores_are_full(case: Case) -> bool:
    """Whether ranks that mostly compute would fill the cores of a host if they kept their delays; False if unknown."""
    return case.loads.cores * _slowdown(case.rows) >= FULL_CORES and case.loads.computing > 0.5


def _slowdown(rows: NDArray[Any]) -> float:
    """By what factor the mean cycle is longer than the mean delay."""
    return float(rows["realised_s"].mean() / rows["drawn_s"].mean())


_WORDS = {
    Cause.POLLING: "polling-bound: the time goes into looking for messages (cycles {longer}, {looks}); "
    "use {fewer}, or set clock.stretch = {stretch}",
    Cause.SERVING: "serving-bound: the results measure the server, not the delays (cycles {longer}, it serves "
    "{serving} of the time); set clock.stretch = {stretch}, or use fewer clients, lower rates or fewer server steps",
    Cause.SERVER: "server-bound: the results measure the server, not the delays (cycles {longer}, server busy "
    "{server}); set clock.stretch = {stretch}, or use fewer clients or lower rates",
    Cause.COMPUTING: "compute-bound: delays are overrun by computing (cycles {longer}, {compute}); "
    "set clock.stretch = {stretch}, or use {more} or fewer clients",
    Cause.MACHINE: "late wake-ups: the machine is busy with {busy} (cycles {longer}); {idle}, "
    "or set clock.stretch = {stretch}",
}


def _remedies(case: Case) -> dict[str, str]:
    """What the words of a verdict leave open."""
    loads = case.loads
    compute = f"the busiest rank computes {percent(loads.rank)}"
    more = "more worker ranks" if case.shared.any() else "more cores"
    if _cores_are_full(case):
        compute = f"at full pace the ranks need {percent(loads.cores * _slowdown(case.rows))} of the cores"
        more = "more cores"
    looks = f"worker ranks look {percent(loads.looking)} of the time in which they run"
    fewer = "fewer clients per worker rank"
    if _late_replies(loads) == Cause.POLLING:
        looks = f"the server looks {percent(loads.polling)} of the time and serves {percent(loads.serving)}"
        fewer = "fewer clients or fewer worker ranks"
    busy = "something else"
    idle = "run on idle cores"
    if loads.cores >= CROWDED_CORES:
        busy = "too many ranks"
        idle = "start fewer worker ranks"
    return {
        "looks": looks,
        "fewer": fewer,
        "server": percent(loads.server),
        "serving": percent(loads.serving),
        "compute": compute,
        "more": more,
        "busy": busy,
        "idle": idle,
    }


def percent(share: float) -> str:
    """A share in words."""
    if math.isnan(share):
        return "for an unknown time"
    return f"{100 * share:.0f} %"


# ---------------------------------------------------------------------------------------------------- excess


@dataclass(frozen=True)
class Excess:
    """By how much the mean cycle exceeds the mean delay, by what the excess is due to."""

    polling_s: float = 0.0  # looking for messages: of a server that polls, or of worker ranks
    server_s: float = 0.0  # waiting for the reply of a server that serves
    compute_s: float = 0.0  # computing, and waiting for the rank to compute for others
    machine_s: float = 0.0  # none of these: woken late, or without a core

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.polling_s + self.server_s + self.compute_s + self.machine_s


def excess_of(case: Case) -> Excess:
    """The mean excess, divided among what it is due to.

    An update that was not ready in time is due to all that its cycle was made of, in proportion. One that was ready
    and left late met a rank that computed for another client, for half a round on average, or was woken late.
    """
    rows = case.rows
    loads = case.loads
    late_s = np.maximum(rows["realised_s"] - rows["drawn_s"], 0.0)
    late_share = late_s / np.maximum(rows["realised_s"], 1e-12)
    reply_s = np.nan_to_num(rows["reply_s"])
    waited_s = np.maximum(rows["realised_s"] - reply_s - rows["compute_s"], 0.0)
    shared = case.shared[rows["client"]]
    overrun = (rows["flags"] & Flag.OVERRUN.value) > 0
    compute_s = rows["compute_s"]
    # How long computing still takes at a moment of it that is picked at random.
    half_round_s = float((compute_s**2).mean() / (2 * max(compute_s.mean(), 1e-12)))
    met_s = np.where(shared, np.minimum(late_s, half_round_s * np.nan_to_num(loads.rank)), 0.0)
    computed_s = float(np.where(overrun, late_share * compute_s, met_s).mean())
    replied_s = float((overrun * late_share * reply_s).mean())
    queued_s = float((overrun * late_share * shared * waited_s).mean())  # while the rank was at something else
    looking, waiting = (float(np.nan_to_num(share)) for share in (loads.looking, loads.waiting))
    ran_s = queued_s * (1 - waiting)
    polling_s = ran_s * looking
    server_s = 0.0
    replied = _late_replies(loads)
    if replied == Cause.POLLING:
        polling_s += replied_s
    elif replied in (Cause.SERVING, Cause.SERVER):
        server_s = replied_s
    due_to_computing_s = computed_s + ran_s * (1 - looking)
    if waiting > 0.5 and not _cores_are_full(case):  # ranks lack cores, and not because of each other
        due_to_computing_s = 0.0
    rest_s = float(late_s.mean()) - polling_s - server_s - due_to_computing_s
    return Excess(polling_s, server_s, due_to_computing_s, rest_s)


def _late_replies(loads: Loads) -> Cause:
    """What late replies are due to.

    A server that lacks a core does so while it looks, where MPI gives the core away. One that sleeps for longer than it
    looks had nothing to do, and its looks are short.
    """
    if loads.working < BUSY_SERVER or loads.starved > loads.server / 2:
        return Cause.MACHINE
    if math.isnan(loads.serving):
        return Cause.SERVER
    polling = loads.working - loads.serving
    if polling <= loads.serving:
        return Cause.SERVING
    if polling > 1 - loads.server:
        return Cause.POLLING
    return Cause.MACHINE


# ---------------------------------------------------------------------------------------------------- stretch


def advised_stretch(case: Case, cause: Cause) -> float:
    """The least round clock.stretch at which loads are moderate and what a cycle needs fits into its delay."""
    rows = case.rows
    loads = case.loads
    computing = float(np.fmax(loads.rank * loads.own_time, loads.cores))
    serving = float(np.fmin(loads.working, loads.serving))
    load = {Cause.COMPUTING: computing, Cause.MACHINE: math.nan}.get(cause, serving)
    wanted = load * _slowdown(rows)  # what it would be at full pace
    least = case.stretch * float(np.nan_to_num(wanted)) / TARGET_LOAD
    for stretch in round_stretches(case.stretch):
        left_s = _left_s(case, cause, stretch / case.stretch)
        if stretch >= least and left_s <= TOLERANCE * rows["drawn_s"].mean():
            return stretch
    return LARGEST_STRETCH


def _left_s(case: Case, cause: Cause, factor: float) -> float:
    """The mean excess that would be left if delays were longer by a factor.

    Where serving or computing is to blame, a cycle needs computing and service as they are with a core of their own,
    and as much again for waiting. A look will take as long then, and a busy machine will be as busy: lateness stays.
    """
    rows = case.rows
    if cause in (Cause.POLLING, Cause.MACHINE):
        overrun = (rows["flags"] & Flag.OVERRUN.value) > 0
        late_s = np.maximum(rows["realised_s"] - rows["drawn_s"], 0.0)
        return float(np.where(overrun, _beyond(rows["realised_s"] / factor, rows), late_s / factor).mean())
    alone_s = float(np.percentile(rows["compute_s"], 10)) * case.loads.own_time + float(np.median(rows["service_s"]))
    return float(_beyond(2 * alone_s / factor, rows).mean())


def _beyond(needed_s: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    """What does not fit into the delays drawn."""
    beyond: NDArray[np.float64] = np.maximum(needed_s - rows["drawn_s"], 0.0)
    return beyond


def round_stretches(above: float) -> list[float]:
    """1, 1.5, 2, 3, 4, 6, 8, ... beyond a value, up to the largest that an experiment may have."""
    every = [factor * 2.0**power for power in range(-10, 20) for factor in (1.0, 1.5)]
    return [stretch for stretch in every if above < stretch <= LARGEST_STRETCH]
