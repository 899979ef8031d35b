"""What a watch shows at one moment, as numbers; also what it prints as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from areabench.experiment import Experiment, SFedAvg
from areabench.fairness import Expected, expected_updates
from areabench.outside_settings import OutsideMethod, OutsidePart
from areabench.schema import Kind, State
from areabench.tables.words import describe_setting
from areabench.verdict import TOLERANCE
from areabench.watching.quality import Quality
from areabench.watching.tail import Look

WAITING, KILLED = "waiting", "killed"  # states beside those of the run file


@dataclass(frozen=True)
class Rates:
    """Updates a second of the run's time: of the last ten seconds, overall, and as the clients' rates promise."""

    recent: float
    overall: float
    nominal: float  # NaN for a method that calls its clients, and for methods and delays from outside the package


@dataclass(frozen=True)
class Staleness:
    """How old the updates were, in versions: the mean, and how many were 0, 1, 2, ... old."""

    mean: float
    counts: tuple[int, ...]


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
    """Everything; NaN and None where something is not known."""

    file: str
    state: str  # one of the run file's, or waiting, or killed
    reason: str
    name: str
    method: str
    step_size: float
    setting: str
    transport: str
    ranks: int
    time_s: float
    horizon_s: float | None
    iterations: int | None  # that end the run
    progress: float | None  # from 0 to 1
    speed: float  # seconds of the run in a second of ours
    left_s: float  # of our time, at this speed
    updates: int | None  # None, like all counts, while a run goes on that keeps no event log
    server_steps: int | None
    discarded: int | None
    refused: int | None
    lost: tuple[int, ...] | None
    rates: Rates
    staleness: Staleness
    snapshots: int
    quality: Quality | None
    quality_remark: str  # why there is none
    clients: tuple[ClientFrame, ...]
    counted: bool  # whether there is an event log to count
    size_bytes: int
    age_s: float  # since the file was last written


def frame_of(file: str, look: Look, speed: float, now_at: float, quality: tuple[Quality | None, str]) -> Frame:
    """From a look to a frame; `now_at` is Unix time."""
    experiment, time_s = look.about.experiment, look.time_s
    ended = look.status.state != State.RUNNING
    expected, totals = _expected(look), _totals(look)
    return Frame(
        file=file,
        state=look.status.state.text,
        reason=look.status.reason if ended else _phase(look),
        name=experiment.name,
        method=experiment.method.name,
        step_size=experiment.method.step_size,
        setting=describe_setting(experiment),
        transport=look.about.transport,
        ranks=look.about.ranks,
        time_s=time_s,
        horizon_s=experiment.stop.horizon_s,
        iterations=experiment.stop.iterations,
        progress=_progress(look, ended=ended),
        speed=speed,
        left_s=math.nan if ended else _left_s(experiment, time_s, speed),
        updates=totals.updates,
        server_steps=totals.server_steps,
        discarded=totals.discarded,
        refused=totals.refused,
        lost=totals.lost,
        rates=_rates(look, expected),
        staleness=_staleness(look.counts.staleness),
        snapshots=look.snapshots,
        quality=quality[0],
        quality_remark=quality[1],
        clients=_clients(look, expected),
        counted=_is_counted(look),
        size_bytes=look.size_bytes,
        age_s=max(0.0, now_at - look.written_at),
    )


def _is_counted(look: Look) -> bool:
    """Whether events tell what has happened so far, or the end of the run."""
    return look.about.experiment.record.events or look.status.state != State.RUNNING


@dataclass(frozen=True)
class _Totals:
    """What has happened; None where nobody has counted it yet."""

    updates: int | None = None
    server_steps: int | None = None
    discarded: int | None = None
    refused: int | None = None
    lost: tuple[int, ...] | None = None


def _totals(look: Look) -> _Totals:
    status, counts = look.status, look.counts
    if not _is_counted(look):
        return _Totals()
    if status.state != State.RUNNING:
        return _Totals(status.updates, status.server_steps, status.discarded, status.refused, counts.lost)
    kinds = {kind: int(counts.kinds[kind]) for kind in Kind}
    return _Totals(
        kinds[Kind.UPDATE], kinds[Kind.STEP], kinds[Kind.DISCARDED], kinds[Kind.REFUSED], counts.lost
    )  # fmt: skip


def _rates(look: Look, expected: Expected) -> Rates:
    time_s, counts, nominal = look.time_s, look.counts, _nominal(look, expected)
    if not _is_counted(look) or time_s <= 0:
        return Rates(math.nan, math.nan, nominal)
    return Rates(counts.recent_rate(time_s), counts.updates / time_s, nominal)


def _phase(look: Look) -> str:
    """What a run does that has not ended: a snapshot at the horizon is the last one, and then all are evaluated."""
    horizon_s = look.about.experiment.stop.horizon_s
    over = horizon_s is not None and look.snapshot is not None and look.snapshot["time_s"] >= horizon_s
    return "the clock has stopped, the run evaluates its snapshots" if over else ""


def _progress(look: Look, *, ended: bool) -> float | None:
    stop, time_s, kinds = look.about.experiment.stop, look.time_s, look.counts.kinds
    iterations = int(kinds[Kind.UPDATE] + kinds[Kind.STEP])
    shares = [time_s / stop.horizon_s] if stop.horizon_s else []
    shares += [iterations / stop.iterations] if stop.iterations and _is_counted(look) else []
    return min(1.0, max(shares)) if shares and not (ended and time_s <= 0) else None


def _left_s(experiment: Experiment, time_s: float, speed: float) -> float:
    horizon_s = experiment.stop.horizon_s
    return (horizon_s - time_s) / speed if horizon_s is not None and time_s < horizon_s and speed > 0 else math.nan


def _expected(look: Look) -> Expected:
    about, time_s = look.about, look.time_s
    if time_s <= 0:
        nothing = np.zeros(len(about.clients))
        return Expected(nothing, nothing, nothing)
    if isinstance(about.experiment.method, SFedAvg) and not _is_counted(look):
        unknown = np.full(len(about.clients), np.nan)  # it would be a share of all updates
        return Expected(unknown, unknown, unknown)
    tolerance = 0.0 if about.transport == "simulator" else TOLERANCE
    rates = about.clients["rate"].astype(np.float64)
    return expected_updates(about.experiment, rates, time_s, look.counts.updates, tolerance, about.traces)


def _nominal(look: Look, expected: Expected) -> float:
    experiment = look.about.experiment
    if isinstance(experiment.method, SFedAvg | OutsideMethod) or isinstance(experiment.delays, OutsidePart):
        return math.nan
    if experiment.delays.name != "trace":
        return float(look.about.clients["rate"].sum())
    return float(expected.mean.sum()) / look.time_s if look.time_s > 0 else math.nan


def _staleness(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Staleness:
    total = int(counts.sum())
    mean = float(np.arange(len(counts)) @ counts) / total if total else math.nan
    return Staleness(mean, tuple(counts.tolist()))


def _clients(look: Look, expected: Expected) -> tuple[ClientFrame, ...]:
    lost, numbers = set(look.counts.lost), look.about.clients["client"].tolist()
    if not _is_counted(look):
        pairs = zip(numbers, expected.mean.tolist(), expected.low.tolist(), strict=True)
        return tuple(ClientFrame(client, None, mean, low, None) for client, mean, low in pairs)
    columns = (numbers, look.counts.served.tolist(), expected.mean.tolist(), expected.low.tolist())
    return tuple(
        ClientFrame(client, served, mean, 0.0 if client in lost else low, client in lost)
        for client, served, mean, low in zip(*columns, strict=True)
    )
