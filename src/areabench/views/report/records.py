"""The data of the page: records that become JSON. The scripts in `assets` read them by these names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from areabench.results.ranking import Rank, RankedQuality
from areabench.results.statistics import Spread, SpreadName
from areabench.views.json import plain

Numbers = NDArray[Any]


def _short(value: float) -> float:
    """Six digits, which no picture shows; one decimal of a large number, since counts are shown to the last digit."""
    if 1e5 <= abs(value) < 1e15:
        return round(value, 1)
    return float(f"{value:.6g}")


def _time(value: float) -> float:
    """Seconds: to the microsecond, or six digits of what is shorter than a second."""
    if abs(value) >= 1:
        return round(value, 6)
    return _short(value)


_TIME = {"shorten": _time}  # of a field of a record
_EXACT = {"shorten": float}


@dataclass(frozen=True, eq=False)
class Line:
    """A quantity along an axis: the mean over trials and its spread, which has no entries where there is one trial."""

    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    limits: tuple[float, float]  # of the trials: the spread of few trials may be much wider


@dataclass(frozen=True)
class Curves:
    """Test accuracy and training loss along one axis; None where nothing was measured."""

    test_accuracy: Line | None
    train_loss: Line | None


@dataclass(frozen=True)
class Axes:
    """The same curves along each axis that the page can show."""

    time: Curves
    updates: Curves
    aggregations: Curves


@dataclass(frozen=True)
class NamedCount:
    """How many of something."""

    word: str
    count: int


@dataclass(frozen=True)
class TrialOutcome:
    """Whether and when one trial reached the target accuracy."""

    kind: str  # reached, not reached, ended early, diverged, unfinished or not measured
    time_s: float
    seed: int


@dataclass(frozen=True, eq=False)
class Histogram:
    """Shares of updates (%) whose staleness lies in [0, width), [width, 2 width) ...; and their mean."""

    width: int
    shares: Numbers
    mean: float
    p95: int
    most: int


@dataclass(frozen=True, eq=False)
class Stair:
    """A share in percent that stays the same until the next place; its interval is empty where there is none."""

    x: Numbers
    share: Numbers
    low: Numbers
    high: Numbers
    ended: Numbers  # where a trial was watched no longer


@dataclass(frozen=True)
class ProfileLine:
    """In which share of settings a method's time to the target is at most `x` times the best."""

    label: str
    method: str
    colour: str
    variant: int
    line: Stair


@dataclass(frozen=True)
class Series:
    """Trials of one method at one step size, rates and setting: a line, a bar, a row of the table."""

    setting: int  # which of the settings
    row: int  # which rates of the setting
    method: str
    label: str
    colour: str
    variant: int
    step_size: float
    remark: str  # what else distinguishes it from the others: transport, state, file
    is_best: bool  # of the step sizes of its method
    trials: int
    planned: int
    diverged: int
    ranks: dict[RankedQuality, Rank]
    states: tuple[NamedCount, ...]
    verdicts: tuple[NamedCount, ...]
    accuracy: Spread | None
    loss: Spread | None
    outcomes: tuple[TrialOutcome, ...]
    target_s: float  # median over the trials, infinite unless more than half reached the target
    reached: Stair | None  # share of trials that have reached the target, over time
    updates: float  # mean over trials
    server_steps: float
    staleness: Histogram | None
    curves: Axes
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReportSetting:
    """All that agrees in everything but method, step size, rates and seed."""

    title: str
    differences: str  # in which keys it differs from the other settings
    rates: tuple[str, ...]
    horizon_s: float | None


@dataclass(frozen=True)
class Absent:
    """A run that was asked for and has no result: it failed, was not made, or cannot be read."""

    file: str
    what: str  # method, step size, rates and seed, where they are known
    state: str  # failed, missing, invalid or unreadable
    reason: str


@dataclass(frozen=True, eq=False)
class Participation:
    """Updates of each client, expected and used; very many clients are grouped, ordered by expected updates."""

    group: int  # clients per entry
    client: Numbers  # number of the (first) client
    served: Numbers  # mean over the group
    least: Numbers
    most: Numbers
    expected: Numbers
    low: Numbers  # interval that chance allows
    high: Numbers
    short: int | None  # clients served less than chance allows; None where the expected number is not known


@dataclass(frozen=True, eq=False)
class Timeline:
    """A window of the event log: `end_s` and its companions have one entry per update, `step_s` one per server step."""

    clock: str  # virtual or real time
    begin_s: float = field(metadata=_EXACT)  # all other times are relative to it
    until_s: float = field(metadata=_TIME)
    run_s: float  # length of the whole run
    clients: int
    shown: int  # updates in the window
    of: int  # updates in the run
    start_s: Numbers = field(metadata=_TIME)  # when the client began
    end_s: Numbers = field(metadata=_TIME)  # when its update came in
    client: Numbers
    base: Numbers  # version of the model that the update was computed from
    staleness: Numbers
    used: Numbers  # 1: used, 0: refused, after the end or cancelled
    step_s: Numbers = field(metadata=_TIME)  # when the server stepped
    version: Numbers  # what it stepped to


@dataclass(frozen=True)
class NamedValue:
    """A name and a value."""

    name: str
    value: str


@dataclass(frozen=True)
class Detail:
    """One run in detail."""

    series: int
    name: str
    file: str
    seed: int
    state: str
    reason: str
    end_s: float
    timeline: Timeline | None
    no_timeline: str  # why there is none
    provenance: tuple[NamedValue, ...]
    commands: tuple[NamedValue, ...]  # what for, and the command
    experiment: str  # TOML
    verdict: str  # unknown without a diagnosis
    advice: str  # then why there is none
    diagnosis: str  # as text
    participation: Participation | None


@dataclass(frozen=True, eq=False)
class Labels:
    """Samples of each class that each client holds; where there are none, the reason."""

    title: str
    settings: tuple[int, ...]  # that have this split
    reason: str
    clients: int  # of which the first have counts
    counts: Numbers  # (clients, classes)


@dataclass(frozen=True)
class ReportPage:
    """The whole page."""

    title: str
    subtitle: str
    version: str  # of areabench
    target: float  # test accuracy in percent
    spread: SpreadName  # what bands, whiskers and small print show
    notes: tuple[str, ...]  # how settings were chosen
    settings: tuple[ReportSetting, ...]
    series: tuple[Series, ...]
    profile: tuple[ProfileLine, ...]  # empty where there is only one setting
    absent: tuple[Absent, ...]
    labels: tuple[Labels, ...]
    details: tuple[Detail, ...]
    not_detailed: int  # runs that are not shown in detail
    clock: str = "time"  # virtual time, real time, or both
    remarks: tuple[str, ...] = ()  # what defaults do that the runs rely on


def script_json(record: object) -> str:
    """Records as JSON that may stand inside a script element; numbers are rounded to what the page needs."""
    text = json.dumps(plain(record, _short), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
