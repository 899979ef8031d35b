"""From a damaged run file to a sound one: the longest beginning of its events and snapshots, and what else is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64
from areabench.engine.events import CLIENT, Kind, Provenance, State, Status
from areabench.engine.messages import LARGEST_MESSAGE_BYTES, digest
from areabench.engine.state import Tally
from areabench.errors import RunFileError
from areabench.experiment.experiment import Experiment, Record
from areabench.runfile.open import DamagedFileError
from areabench.runfile.read import decoded_experiment, first_false, ranks_exist, stored_diagnosis
from areabench.runfile.reader import AVERAGES, RunReader
from areabench.runfile.record import Recorder, RunPrefix

Value = TypeVar("Value")


def good_events(rows: NDArray[Any], clients: int) -> int:
    """How many events from the first on can be true: kinds and clients exist, time and counters increase."""
    kind = rows["kind"]
    used, step = kind <= Kind.STEP, kind == Kind.STEP
    with np.errstate(invalid="ignore"):
        good = np.isfinite(rows["time_s"]) & (rows["time_s"] >= 0) & (kind <= max(Kind)) & _clients_exist(rows, clients)
        good[1:] &= np.diff(rows["time_s"]) >= 0
    counted = (rows["iteration"] == np.cumsum(used)) & (rows["version"] == np.cumsum(step))
    good &= counted | ~(used | (kind == Kind.NO_STEP))
    good &= (kind != Kind.UPDATE) | (rows["staleness"] == rows["version"] - rows["base_version"])
    return first_false(good)


def _clients_exist(rows: NDArray[Any], clients: int) -> NDArray[np.bool_]:
    """A step, made or not, has no client; a refused update may say that it comes from anybody."""
    client = rows["client"]
    exists = (client >= 0) & (client < clients)
    named = np.where(np.isin(rows["kind"], (Kind.STEP, Kind.NO_STEP)), client == -1, exists)
    return np.asarray(named | (rows["kind"] == Kind.REFUSED))


def good_snapshots(index: NDArray[Any], events: NDArray[Any] | None) -> int:
    """How many snapshots from the first on can be true, beside these events; None where a run kept none."""
    with np.errstate(invalid="ignore"):
        good = np.isfinite(index["time_s"]) & (index["time_s"] >= 0) & (index["event"] >= 0) & (index["version"] >= 0)
        for name in ("time_s", "event", "version"):
            good[1:] &= index[name][1:] >= index[name][:-1]
    if events is not None:
        steps = np.concatenate([[0], np.cumsum(events["kind"] == Kind.STEP)])
        good &= index["event"] <= len(events)
        good &= index["version"] == steps[np.clip(index["event"], 0, len(events))]
    return first_false(good)


@dataclass(frozen=True)
class RecoveryLimits:
    """How many events and snapshots may be saved at most."""

    events: int
    snapshots: int


@dataclass(frozen=True)
class Recovery:
    """What was saved, of what, and what was not."""

    events: int
    all_events: int
    snapshots: int
    all_snapshots: int
    missing: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words."""
        rows = f"{self.events:,} of {self.all_events:,} events, {self.snapshots:,} of {self.all_snapshots:,} snapshots"
        return f"{rows}; without {', '.join(self.missing)}" if self.missing else rows

    @property
    def everything(self) -> bool:
        """Whether nothing was lost."""
        return not self.missing and (self.events, self.snapshots) == (self.all_events, self.all_snapshots)


def salvage(damaged: Path, made: Path, limits: RecoveryLimits | None) -> Recovery:
    """Write what can be saved of a file into a new one."""
    with RunReader(damaged, salvage=True) as reader:
        try:
            reader.check_format()
            experiment = decoded_experiment(reader)
            events = reader.rows("events")
            index = reader.rows("snapshots/index")
        except DamagedFileError as error:
            raise RunFileError(f"{damaged}: nothing can be saved: {error.what}; run the experiment again") from error
        events = events[: good_events(events, experiment.clients.count)]
        if limits is not None:
            events = events[: limits.events]
        index = index[: good_snapshots(index, events if experiment.record.events else None)]
        if limits is not None:
            index = index[: limits.snapshots]
        index = index[: _with_models(reader, experiment.record, index)]
        salvaged = _salvaged(reader, experiment, index)
        saved = Recovery(
            len(events), _length(reader, "events"), len(index), _length(reader, "snapshots/index"), salvaged.missing
        )
        tally = Tally()
        columns = (events[name].tolist() for name in ("kind", "time_s", "client", "staleness"))
        for kind, time_s, client, staleness in zip(*columns, strict=True):
            tally.count(Kind(kind), time_s, client, staleness)
        prefix = RunPrefix(reader, len(events), len(index), tally, salvaged.models, salvaged.averages)
        recorder = Recorder.of(experiment, made, _size(reader), force=True)
        clients = _unknown_clients(experiment.clients.count) if salvaged.clients is None else salvaged.clients
        recorder.begin(salvaged.provenance or _unknown_provenance(), clients, prefix)
        for name, rows in salvaged.tables.items():
            recorder.copy(name, rows)
        recorder.set_status(_status(recorder, salvaged, saved))
        recorder.close()
    return saved


def _with_models(reader: RunReader, record: Record, index: NDArray[Any]) -> int:
    """How many snapshots from the first on have their model, and their average where there are averages."""
    if record.models == "last":
        return len(index)
    count = min(len(index), reader.count("snapshots/model"))
    if record.average:
        count = min(count, reader.count(AVERAGES))
    number = 0
    for models in reader.blocks("snapshots/model"):
        for model in models:
            if number == count or digest(model) != index["digest"][number]:
                return number
            number += 1
    return number


@dataclass(frozen=True)
class _Salvaged:
    """The parts that are saved whole or not at all; None, or nothing, where they cannot be."""

    status: Status | None
    has_ended: bool
    provenance: Provenance | None
    clients: NDArray[Any] | None
    models: list[NDArray[Any]]  # the last one, where the others are not kept
    averages: list[NDArray[Any]]  # and its average
    tables: dict[str, NDArray[Any]]  # by dataset
    missing: tuple[str, ...]  # names of the parts that were there


def _salvaged(reader: RunReader, experiment: Experiment, index: NDArray[Any]) -> _Salvaged:
    record, clients = experiment.record, experiment.clients.count
    models = _last_vector(reader, "snapshots/model") if record.models == "last" and len(index) else []
    if models and digest(models[0]) != index["digest"][-1]:
        models = []
    averages = _last_vector(reader, AVERAGES) if models and record.average else []
    status = _readable(lambda: reader.stored_status)
    has_ended = status is not None and status.state not in (State.RUNNING, State.FAILED)
    provenance = _readable(lambda: reader.provenance)
    table = _sound_clients(_whole(reader, "clients"), clients)
    tables = {}
    snapshots = _length(reader, "snapshots/index")
    metrics = _whole(reader, "metrics")
    if metrics is not None and len(metrics) in (0, len(index)) and len(index) >= snapshots:
        tables["metrics"] = metrics
    staleness = _whole(reader, "tally/staleness")
    served = _whole(reader, "tally/served")
    if staleness is not None and served is not None and _is_sound_tally(staleness, served, clients):
        tables["tally/staleness"] = staleness
        tables["tally/served"] = served
    if diagnosis := _whole_diagnosis(reader):
        tables |= diagnosis
    keeps_last = record.models == "last" and has_ended and snapshots > 0
    saved = {
        "status": status is not None,
        "provenance": provenance is not None,
        "clients": table is not None,
        "last model": bool(models) or not keeps_last,
        "last average": bool(averages) or not (keeps_last and record.average),
        "metrics": "metrics" in tables or not (has_ended or _length(reader, "metrics")),
        "tally": "tally/served" in tables or record.events or not has_ended,
        "diagnosis": bool(diagnosis) or not _length(reader, "diagnosis/summary"),
    }
    missing = tuple(name for name, there in saved.items() if not there)
    return _Salvaged(status, has_ended, provenance, table, models, averages, tables, missing)


def _whole_diagnosis(reader: RunReader) -> dict[str, NDArray[Any]]:
    """The tables of a diagnosis, if all are whole and make one."""
    try:
        if stored_diagnosis(reader) is None:
            return {}
    except DamagedFileError:
        return {}
    tables = {name: _whole(reader, name) for name in ("diagnosis/clients", "diagnosis/quantiles", "diagnosis/summary")}
    whole = {name: rows for name, rows in tables.items() if rows is not None}
    return whole if len(whole) == len(tables) else {}


def _readable(read: Callable[[], Value]) -> Value | None:
    """What can be read; None where it is damaged."""
    try:
        return read()
    except DamagedFileError:
        return None


def _length(reader: RunReader, name: str) -> int:
    """How many rows a dataset has, whether they count or not; 0 if not even that is known."""
    return _readable(lambda: reader.length(name)) or 0


def _whole(reader: RunReader, name: str) -> NDArray[Any] | None:
    """All rows of a dataset, or None if some do not count."""
    rows = reader.rows(name)
    return rows if len(rows) == _readable(lambda: reader.length(name)) else None


def _last_vector(reader: RunReader, name: str) -> list[NDArray[Any]]:
    return list(reader.rows(name, 0, 1)) if reader.count(name) else []


def _sound_clients(table: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    """The clients, if all are there in their order."""
    if table is None or not np.array_equal(table["client"], np.arange(count)):
        return None
    sound = ranks_exist(table) and np.isfinite(table["rate"]).all() and (table["rate"] > 0).all()
    return table if sound else None


def _is_sound_tally(staleness: NDArray[Any], served: NDArray[Any], clients: int) -> bool:
    return bool(len(served) == clients and (staleness >= 0).all() and (served >= 0).all())


def _status(recorder: Recorder, salvaged: _Salvaged, saved: Recovery) -> Status:
    """The old status where all is there, else that the run failed, and what was saved."""
    old = salvaged.status
    counted = recorder.tally.status(State.FAILED, f"recovered: {saved.text}")
    if old is None:
        return counted
    if not recorder.keeps_events:
        counted = replace(old, state=State.FAILED, reason=counted.reason)
    same_counts = (old.updates, old.server_steps) == (counted.updates, counted.server_steps)
    if same_counts and salvaged.has_ended and saved.everything:
        return old
    return replace(counted, reason=f"{counted.reason}; was {old.state.text}: {old.reason}")


def _size(reader: RunReader) -> tuple[int, np.dtype[Any]]:
    """The number of parameters, and their type; where that is not known no model is saved."""
    size = _readable(lambda: reader.model_size)
    if size is not None and size[0] * size[1].itemsize <= LARGEST_MESSAGE_BYTES:
        return size
    return 1, FLOAT64


def _unknown_clients(count: int) -> NDArray[Any]:
    table = np.zeros(count, CLIENT)
    table["client"] = np.arange(count)
    table["rate"] = np.nan
    table["rank"] = -1
    return table


def _unknown_provenance() -> Provenance:
    known = {"ranks": 1, "seed": 0, "lanes": 1, "lane": 0, "data_digest": ""}  # all others are texts
    return Provenance(**{item.name: known.get(item.name, "unknown") for item in fields(Provenance)})  # type: ignore[arg-type]
