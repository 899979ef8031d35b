"""What a watch shows at one moment, as numbers; also what it prints as JSON."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from areabench.arrays import Vector
from areabench.engine.diagnosis import TOLERANCE
from areabench.engine.events import Kind, State
from areabench.engine.fairness import Expected, expected_updates
from areabench.errors import RunFileError, UserError, one_line
from areabench.experiment.fields import OwnMethod, OwnPart
from areabench.experiment.labels import describe_setting
from areabench.experiment.records import Experiment, SFedAvg
from areabench.problems.base import Problem
from areabench.views.watch.tail import Look, Tail, Writer

_LEAST_PAUSE_S = 5.0
_LOW_PRIORITY = 10  # of -20 to 19; higher is less
_PAUSE_SHARE = 10.0  # times what an evaluation took
_NAMES = ("train_loss", "test_accuracy", "squared_distance")


@dataclass(frozen=True)
class Quality:
    """How good a snapshot is; NaN where the problem does not define it."""

    time_s: float
    version: int
    train_loss: float
    test_accuracy: float  # percent
    squared_distance: float
    source: str  # the file, or this watch


def recorded_quality(snapshot: np.void, metrics: np.void) -> Quality:
    """What the run found itself, after its clock had stopped."""
    return _quality(snapshot, "file", {name: float(metrics[name]) for name in metrics.dtype.names or ()})


def _quality(snapshot: np.void, source: str, values: dict[str, float]) -> Quality:
    return Quality(
        float(snapshot["time_s"]), int(snapshot["version"]),
        values["train_loss"], values["test_accuracy"], values["squared_distance"], source,
    )  # fmt: skip


class Evaluator:
    """Evaluates snapshots on a thread of its own, one at a time."""

    def __init__(self, source: Path, cache: Path, trusted: Sequence[str]) -> None:
        self._source, self._cache, self._trusted = source, cache, tuple(trusted)
        self._experiment: Experiment | None = None
        self._problem: Problem | None = None
        self._thread: threading.Thread | None = None
        self._free_from_s = 0.0
        self.latest: Quality | None = None
        self.trouble = ""  # why nothing can be evaluated

    def other_than(self) -> int | None:
        """The version that was evaluated last, -1 where none was; None: it would take no snapshot now."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self.trouble or time.monotonic() < self._free_from_s:
            return None
        return -1 if self.latest is None else self.latest.version

    def follow(self, experiment: Experiment) -> None:
        """This is the run; another one than before where its file was replaced."""
        if experiment is not self._experiment:
            self._experiment, self._problem, self.latest = experiment, None, None

    def offer(self, experiment: Experiment, snapshot: np.void, model: Vector, *, beside_clock: bool = False) -> None:
        """Begin to evaluate a snapshot; `beside_clock`: the run goes on in real time on this machine."""
        self.follow(experiment)
        work = (experiment, snapshot, model, beside_clock)
        self._thread = threading.Thread(target=self._work, args=work, daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _work(self, experiment: Experiment, snapshot: np.void, model: Vector, beside_clock: bool) -> None:
        _give_way(entirely=beside_clock)
        began_s = time.monotonic()
        try:
            problem = self._problem or self._build(experiment)
            began_s = time.monotonic()
            with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverges
                found = problem.evaluate([model])
            if experiment is self._experiment:
                values = {name: float(getattr(found, name)[0]) for name in _NAMES}
                self._problem, self.latest = problem, _quality(snapshot, "watch", values)
        except UserError as error:
            self.trouble = str(error)
        except Exception as error:  # whatever a user's problem raises: the rest of the page stands without it
            self.trouble = one_line(error)
        ended_s = time.monotonic()
        self._free_from_s = ended_s + max(_LEAST_PAUSE_S, _PAUSE_SHARE * (ended_s - began_s))

    def _build(self, experiment: Experiment) -> Problem:
        from areabench.engine.plugins.trust import check_trusted
        from areabench.engine.scenario import build_scenario
        from areabench.experiment.module_paths import trusted_folders

        check_trusted(experiment, self._source, self._trusted)
        return build_scenario(experiment, self._cache, trusted_folders(self._trusted)).problem


def _give_way(*, entirely: bool) -> None:
    """Have other work come before this thread, or have it run only where there is no other; Linux knows both."""
    with suppress(AttributeError, OSError):
        if entirely:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)


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
    if isinstance(experiment.method, SFedAvg | OwnMethod) or isinstance(experiment.delays, OwnPart):
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


_SPEED_OVER_S = 10.0  # of our time
_FIRST_EVALUATION_S = 30.0  # that a single look waits for
_LAST_MODEL_ONLY = "the run keeps its last model only, and evaluates at its end"


class Follower:
    """Looks at a run file again and again."""

    def __init__(
        self,
        path: Path,
        wait_s: float,
        evaluator: Evaluator | None,
        *,
        once: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._wait_s, self._evaluator, self._once, self._clock = path, wait_s, evaluator, once, clock
        self._tail = Tail(path)
        self._news_s, self._seen = clock(), (0, 0.0)
        self._passed: deque[tuple[float, float]] = deque()  # our time, the run's time
        self._troubled_s: float | None = None  # since when no look was possible
        self._gone_before = False
        self._last: Frame | None = None

    def look(self) -> Frame:
        """The frame of now; a UserError where there was no file, or no news, for too long."""
        try:
            look = self._tail.look(None if self._evaluator is None else self._evaluator.other_than())
        except RunFileError as error:
            return self._without(error)
        self._troubled_s = None
        frame = frame_of(str(self._path), look, self._speed(look), time.time(), self._quality(look))
        self._last = self._judged(frame, look)
        return self._last

    def _without(self, error: RunFileError) -> Frame:
        """No look was possible: the file is not there yet, or a file system lags behind."""
        now_s = self._clock()
        self._troubled_s = now_s if self._troubled_s is None else self._troubled_s
        waited_s = now_s - self._troubled_s
        if waited_s >= self._wait_s:
            waited = f" (waited {waited_s:.0f} s; --wait is longer)" if self._wait_s else ""
            raise UserError(f"{error}{waited}") from error
        there = self._path.exists()
        reason = f"for a file that can be read: {error}" if there else f"for {self._path} to be written"
        return _waiting(self._path, f"{reason} ({waited_s:.0f} s of {self._wait_s:g})", self._last)

    def _judged(self, frame: Frame, look: Look) -> Frame:
        """A run whose writer has gone without a word was killed: but who has started it may yet say why."""
        now_s = self._clock()
        if (seen := (look.size_bytes, look.written_at)) != self._seen:
            self._seen, self._news_s = seen, now_s
        if look.status.state != State.RUNNING or look.writer == Writer.THERE:
            self._gone_before = False
            return frame
        if look.writer == Writer.GONE:
            certain, self._gone_before = self._gone_before or self._once, True
            return replace(frame, state=KILLED, reason="its process is gone") if certain else frame
        silent_s = now_s - self._news_s
        if silent_s >= self._wait_s and not self._once:
            raise UserError(
                f"{self._path}: no news for {silent_s:.0f} s, and its writer cannot be seen from here: it was killed, "
                "or computes for long, or the file system lags; wait longer with --wait"
            )
        return replace(frame, reason=frame.reason or "its writer cannot be seen from here")

    def _speed(self, look: Look) -> float:
        """Seconds of the run in a second of ours, lately; NaN at the first look."""
        now_s, time_s = self._clock(), look.time_s
        if self._passed and time_s < self._passed[-1][1]:
            self._passed.clear()  # another run in its place
        self._passed.append((now_s, time_s))
        while len(self._passed) > 2 and self._passed[1][0] <= now_s - _SPEED_OVER_S:
            self._passed.popleft()
        first = self._passed[0]
        return (time_s - first[1]) / (now_s - first[0]) if now_s > first[0] else float("nan")

    def _quality(self, look: Look) -> tuple[Quality | None, str]:
        """Of the last snapshot that was evaluated, by the run itself or here; and why there is none."""
        if self._evaluator is not None:
            self._evaluator.follow(look.about.experiment)
        if look.snapshot is not None and look.metrics is not None:
            return recorded_quality(look.snapshot, look.metrics), ""
        if self._evaluator is None:
            return None, "not evaluated while the run goes on: --no-evaluate"
        if look.about.experiment.record.models == "last":
            return None, _LAST_MODEL_ONLY
        if look.snapshot is not None and look.model is not None:
            beside_clock = look.about.transport == "mpi" and os.uname().nodename in look.about.hosts
            self._evaluator.offer(look.about.experiment, look.snapshot, look.model, beside_clock=beside_clock)
        if self._once:
            self._evaluator.wait(_FIRST_EVALUATION_S)
        remark = f"not evaluated: {self._evaluator.trouble}" if self._evaluator.trouble else ""
        return self._evaluator.latest, remark or ("" if self._evaluator.latest else "being evaluated")


def _waiting(path: Path, reason: str, last: Frame | None) -> Frame:
    """A frame of a run that cannot be seen; what was seen of it before stays."""
    if last is not None:
        return replace(last, state=WAITING, reason=reason)
    nan = float("nan")
    return Frame(
        file=str(path), state=WAITING, reason=reason, name="", method="", step_size=nan, setting="", transport="",
        ranks=0, time_s=0.0, horizon_s=None, iterations=None, progress=None, speed=nan, left_s=nan, updates=None,
        server_steps=None, discarded=None, refused=None, lost=None, rates=Rates(nan, nan, nan),
        staleness=Staleness(nan, ()), snapshots=0, quality=None, quality_remark="", clients=(), counted=False,
        size_bytes=0, age_s=nan,
    )  # fmt: skip
