"""What a watch shows at one moment, as numbers; also what it prints as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from areabench.engine.diagnosis import TOLERANCE
from areabench.engine.events import Kind, State
from areabench.engine.fairness import Expected, expected_updates
from areabench.experiment.labels import describe_setting
from areabench.settings.keys import is_own
from areabench.views.watch.quality import Quality
from areabench.views.watch.tail import Observation

WAITING = "waiting"  # a state beside those of the run file, as the next
KILLED = "killed"


@dataclass(frozen=True)
class UpdateRates:
    """Updates per second of the run's time: in the last ten seconds, overall, and nominally by the clients' rates."""

    recent: float = math.nan
    overall: float = math.nan
    nominal: float = math.nan  # not known of a method that calls its clients, nor of own methods and delays


@dataclass(frozen=True)
class Staleness:
    """How old the updates were, in versions: the mean, and how many were 0, 1, 2, ... old."""

    mean: float = math.nan
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClientFrame:
    """One client: updates used, expected by now, and the least that chance allows; None where nothing is counted."""

    client: int
    served: int | None
    expected: float
    low: float
    lost: bool | None

    @property
    def share(self) -> float:
        """Served of expected; NaN where nothing is expected yet, or counted."""
        return self.served / self.expected if self.served is not None and self.expected > 0 else math.nan

    @property
    def is_short(self) -> bool:
        """Whether it was served less than chance allows."""
        return self.served is not None and self.served < self.low


@dataclass(frozen=True)
class Frame:
    """All that is known of a run at one moment; the defaults stand for what is not known."""

    file: str
    state: str  # one of the run file's, or waiting, or killed
    reason: str
    name: str = ""
    method: str = ""
    step_size: float = math.nan
    setting: str = ""
    transport: str = ""
    ranks: int = 0
    time_s: float = 0.0
    horizon_s: float | None = None
    iterations: int | None = None  # that end the run
    progress: float | None = None  # from 0 to 1
    speed: float = math.nan  # seconds of the run per second of real time
    left_s: float = math.nan  # of real time, at this speed
    updates: int | None = None  # like all counts, while a run without an event log continues
    server_steps: int | None = None
    discarded: int | None = None
    refused: int | None = None
    lost: tuple[int, ...] | None = None
    no_steps: int | None = None  # this and the next where there is an event log
    cancelled: int | None = None
    rates: UpdateRates = UpdateRates()
    staleness: Staleness = Staleness()
    snapshots: int = 0
    quality: Quality | None = None
    quality_remark: str = ""  # why there is none
    clients: tuple[ClientFrame, ...] = ()
    counted: bool = False  # whether there is an event log to count
    size_bytes: int = 0
    age_s: float = math.nan  # since the file was last written


def watch_frame(
    file: str, seen: Observation, speed: float, now_at: float, quality: Quality | None, remark: str
) -> Frame:
    """The frame of an observation; `now_at` is Unix time, `remark` says why there is no quality."""
    facts = seen.facts
    experiment = facts.experiment
    stop = experiment.stop
    counts = seen.counts
    kinds = counts.kinds.tolist()
    time_s = seen.time_s
    ended = seen.status.state != State.RUNNING
    is_logged = experiment.record.events
    is_counted = is_logged or ended
    expected = _expected(seen, is_counted=is_counted)
    rates = UpdateRates(nominal=_nominal(seen, expected))
    if is_counted and time_s > 0:
        rates = replace(rates, recent=counts.recent_rate(time_s), overall=counts.updates / time_s)
    shares = []  # a run ends at its horizon or after its iterations, whichever comes first
    if stop.horizon_s:
        shares.append(time_s / stop.horizon_s)
    if stop.iterations and is_counted:
        shares.append((kinds[Kind.UPDATE] + kinds[Kind.STEP]) / stop.iterations)
    progress = None
    if shares and (time_s > 0 or not ended):
        progress = min(1.0, max(shares))
    reason = ""
    left_s = math.nan
    if ended:
        reason = seen.status.reason
    elif stop.horizon_s is not None:
        if seen.snapshot is not None and seen.snapshot["time_s"] >= stop.horizon_s:  # the last one
            reason = "the clock has stopped, the run evaluates its snapshots"
        if time_s < stop.horizon_s and speed > 0:
            left_s = (stop.horizon_s - time_s) / speed
    total = int(counts.staleness.sum())
    ages = np.arange(len(counts.staleness))
    mean_age = math.nan
    if total:
        mean_age = float(ages @ counts.staleness) / total
    frame = Frame(
        file=file,
        state=seen.status.state.text,
        reason=reason,
        name=experiment.name,
        method=experiment.method.name,
        step_size=experiment.method.step_size,
        setting=describe_setting(experiment),
        transport=facts.transport,
        ranks=facts.ranks,
        time_s=time_s,
        horizon_s=stop.horizon_s,
        iterations=stop.iterations,
        progress=progress,
        speed=speed,
        left_s=left_s,
        rates=rates,
        staleness=Staleness(mean_age, tuple(counts.staleness.tolist())),
        snapshots=seen.snapshots,
        quality=quality,
        quality_remark=remark,
        clients=_clients(seen, expected, is_counted=is_counted),
        counted=is_counted,
        size_bytes=seen.size_bytes,
        age_s=max(0.0, now_at - seen.written_at),
    )
    if is_logged:
        frame = replace(frame, no_steps=kinds[Kind.NO_STEP], cancelled=kinds[Kind.CANCELLED])
    if not is_counted:
        return frame
    totals = seen.status  # which counts all at the end, also what an event log does not have
    if not ended:
        totals = replace(
            totals, updates=kinds[Kind.UPDATE], server_steps=kinds[Kind.STEP], discarded=kinds[Kind.DISCARDED],
            refused=kinds[Kind.REFUSED],
        )  # fmt: skip
    return replace(
        frame, lost=counts.lost, updates=totals.updates, server_steps=totals.server_steps, discarded=totals.discarded,
        refused=totals.refused,
    )  # fmt: skip


def _expected(seen: Observation, *, is_counted: bool) -> Expected:
    """How many updates each client should have sent by now."""
    facts = seen.facts
    if seen.time_s <= 0:
        return Expected(*np.zeros((3, len(facts.clients))))
    if facts.experiment.method.drawn_per_round is not None and not is_counted:
        return Expected(*np.full((3, len(facts.clients)), np.nan))  # the expected count is a share of all updates
    tolerance = 0.0 if facts.transport == "simulator" else TOLERANCE
    rates = facts.clients["rate"].astype(np.float64)
    return expected_updates(facts.experiment, rates, seen.time_s, seen.counts.updates, tolerance, facts.traces)


def _nominal(seen: Observation, expected: Expected) -> float:
    experiment = seen.facts.experiment
    if not experiment.method.client_driven or experiment.delays.per == "step" or is_own(experiment.delays):
        return math.nan
    if experiment.delays.name != "trace":
        return float(seen.facts.clients["rate"].sum())
    return float(expected.mean.sum()) / seen.time_s if seen.time_s > 0 else math.nan


def _clients(seen: Observation, expected: Expected, *, is_counted: bool) -> tuple[ClientFrame, ...]:
    numbers = seen.facts.clients["client"].tolist()
    columns = zip(numbers, seen.counts.served.tolist(), expected.mean.tolist(), expected.low.tolist(), strict=True)
    if not is_counted:
        return tuple(ClientFrame(client, None, mean, low, None) for client, _, mean, low in columns)
    lost = set(seen.counts.lost)
    return tuple(
        ClientFrame(client, served, mean, 0.0 if client in lost else low, client in lost)
        for client, served, mean, low in columns
    )
