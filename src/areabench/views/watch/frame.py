"""What a watch shows at one moment, as numbers; also what it prints as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from areabench.engine.diagnosis import TOLERANCE
from areabench.engine.events import Kind, State
from areabench.engine.fairness import Expected, expected_updates
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import describe_setting
from areabench.settings.keys import is_own
from areabench.views.watch.quality import Quality
from areabench.views.watch.tail import Observation

WAITING, KILLED = "waiting", "killed"  # states beside those of the run file


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


def frame_of(file: str, seen: Observation, speed: float, now_at: float, quality: tuple[Quality | None, str]) -> Frame:
    """The frame of an observation; `now_at` is Unix time."""
    experiment, time_s = seen.facts.experiment, seen.time_s
    ended = seen.status.state != State.RUNNING
    expected, totals = _expected(seen), _totals(seen)
    return Frame(
        file=file,
        state=seen.status.state.text,
        reason=seen.status.reason if ended else _phase(seen),
        name=experiment.name,
        method=experiment.method.name,
        step_size=experiment.method.step_size,
        setting=describe_setting(experiment),
        transport=seen.facts.transport,
        ranks=seen.facts.ranks,
        time_s=time_s,
        horizon_s=experiment.stop.horizon_s,
        iterations=experiment.stop.iterations,
        progress=_progress(seen, ended=ended),
        speed=speed,
        left_s=math.nan if ended else _left_s(experiment, time_s, speed),
        updates=totals.updates,
        server_steps=totals.server_steps,
        discarded=totals.discarded,
        refused=totals.refused,
        lost=totals.lost,
        no_steps=_logged(seen, Kind.NO_STEP),
        cancelled=_logged(seen, Kind.CANCELLED),
        rates=_rates(seen, expected),
        staleness=_staleness(seen.counts.staleness),
        snapshots=seen.snapshots,
        quality=quality[0],
        quality_remark=quality[1],
        clients=_clients(seen, expected),
        counted=_is_counted(seen),
        size_bytes=seen.size_bytes,
        age_s=max(0.0, now_at - seen.written_at),
    )


def _is_counted(seen: Observation) -> bool:
    """Whether the counts are known: from the event log, or because the run has ended."""
    return seen.facts.experiment.record.events or seen.status.state != State.RUNNING


@dataclass(frozen=True)
class _Totals:
    """Counts of what has happened; None where they are not known yet."""

    updates: int | None = None
    server_steps: int | None = None
    discarded: int | None = None
    refused: int | None = None
    lost: tuple[int, ...] | None = None


def _totals(seen: Observation) -> _Totals:
    status, counts = seen.status, seen.counts
    if not _is_counted(seen):
        return _Totals()
    if status.state != State.RUNNING:
        return _Totals(status.updates, status.server_steps, status.discarded, status.refused, counts.lost)
    kinds = {kind: int(counts.kinds[kind]) for kind in Kind}
    return _Totals(
        kinds[Kind.UPDATE], kinds[Kind.STEP], kinds[Kind.DISCARDED], kinds[Kind.REFUSED], counts.lost
    )  # fmt: skip


def _logged(seen: Observation, kind: Kind) -> int | None:
    """How many events of a kind the log has that the status does not count; None without a log."""
    return int(seen.counts.kinds[kind]) if seen.facts.experiment.record.events else None


def _rates(seen: Observation, expected: Expected) -> UpdateRates:
    time_s, counts, nominal = seen.time_s, seen.counts, _nominal(seen, expected)
    if not _is_counted(seen) or time_s <= 0:
        return UpdateRates(nominal=nominal)
    return UpdateRates(counts.recent_rate(time_s), counts.updates / time_s, nominal)


def _phase(seen: Observation) -> str:
    """What a running run does: the snapshot at the horizon is the last one, after which all are evaluated."""
    horizon_s = seen.facts.experiment.stop.horizon_s
    over = horizon_s is not None and seen.snapshot is not None and seen.snapshot["time_s"] >= horizon_s
    return "the clock has stopped, the run evaluates its snapshots" if over else ""


def _progress(seen: Observation, *, ended: bool) -> float | None:
    stop, time_s, kinds = seen.facts.experiment.stop, seen.time_s, seen.counts.kinds
    iterations = int(kinds[Kind.UPDATE] + kinds[Kind.STEP])
    shares = [time_s / stop.horizon_s] if stop.horizon_s else []
    shares += [iterations / stop.iterations] if stop.iterations and _is_counted(seen) else []
    return min(1.0, max(shares)) if shares and not (ended and time_s <= 0) else None


def _left_s(experiment: Experiment, time_s: float, speed: float) -> float:
    horizon_s = experiment.stop.horizon_s
    return (horizon_s - time_s) / speed if horizon_s is not None and time_s < horizon_s and speed > 0 else math.nan


def _expected(seen: Observation) -> Expected:
    facts, time_s = seen.facts, seen.time_s
    if time_s <= 0:
        nothing = np.zeros(len(facts.clients))
        return Expected(nothing, nothing, nothing)
    if facts.experiment.method.drawn_per_round is not None and not _is_counted(seen):
        unknown = np.full(len(facts.clients), np.nan)  # the expected count is a share of all updates
        return Expected(unknown, unknown, unknown)
    tolerance = 0.0 if facts.transport == "simulator" else TOLERANCE
    rates = facts.clients["rate"].astype(np.float64)
    return expected_updates(facts.experiment, rates, time_s, seen.counts.updates, tolerance, facts.traces)


def _nominal(seen: Observation, expected: Expected) -> float:
    experiment = seen.facts.experiment
    if not experiment.method.client_driven or experiment.delays.per == "step" or is_own(experiment.delays):
        return math.nan
    if experiment.delays.name != "trace":
        return float(seen.facts.clients["rate"].sum())
    return float(expected.mean.sum()) / seen.time_s if seen.time_s > 0 else math.nan


def _staleness(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Staleness:
    total = int(counts.sum())
    mean = float(np.arange(len(counts)) @ counts) / total if total else math.nan
    return Staleness(mean, tuple(counts.tolist()))


def _clients(seen: Observation, expected: Expected) -> tuple[ClientFrame, ...]:
    lost, numbers = set(seen.counts.lost), seen.facts.clients["client"].tolist()
    if not _is_counted(seen):
        pairs = zip(numbers, expected.mean.tolist(), expected.low.tolist(), strict=True)
        return tuple(ClientFrame(client, None, mean, low, None) for client, mean, low in pairs)
    columns = (numbers, seen.counts.served.tolist(), expected.mean.tolist(), expected.low.tolist())
    return tuple(
        ClientFrame(client, served, mean, 0.0 if client in lost else low, client in lost)
        for client, served, mean, low in zip(*columns, strict=True)
    )
