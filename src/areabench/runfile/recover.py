"""From a damaged run file to a sound one: the longest beginning of its events and snapshots, and what else is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64
from areabench.engine.events import CLIENT, Kind, Provenance, State
from areabench.engine.messages import LARGEST_MESSAGE_BYTES, digest
from areabench.engine.state import Tally
from areabench.errors import RunFileError
from areabench.experiment.experiment import Record
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
        record, count = experiment.record, experiment.clients.count
        all_snapshots = _length(reader, "snapshots/index")

        # the longest beginning of events and snapshots that can be true
        events = events[: good_events(events, count)]
        if limits is not None:
            events = events[: limits.events]
        index = index[: good_snapshots(index, events if record.events else None)]
        if limits is not None:
            index = index[: limits.snapshots]
        index = index[: _with_models(reader, record, index)]

        # the parts that are saved whole or not at all
        status = _readable(lambda: reader.stored_status)
        has_ended = status is not None and status.state not in (State.RUNNING, State.FAILED)
        provenance = _readable(lambda: reader.provenance)
        clients = _whole(reader, "clients")
        if clients is not None and not clients_are_sound(clients, count):
            clients = None
        models, averages = _last_model(reader, record, index)
        tables = _whole_tables(reader, "metrics")
        if len(index) < all_snapshots or len(tables.get("metrics", ())) not in (0, len(index)):
            tables = {}
        tally = _whole_tables(reader, "tally/staleness", "tally/served")
        if tally and tally_is_sound(tally["tally/staleness"], tally["tally/served"], count):
            tables |= tally
        try:
            if stored_diagnosis(reader) is not None:
                tables |= _whole_tables(reader, "diagnosis/clients", "diagnosis/quantiles", "diagnosis/summary")
        except DamagedFileError:
            pass
        keeps_last = record.models == "last" and has_ended and all_snapshots > 0
        is_saved = {
            "status": status is not None,
            "provenance": provenance is not None,
            "clients": clients is not None,
            "last model": bool(models) or not keeps_last,
            "last average": bool(averages) or not (keeps_last and record.average),
            "metrics": "metrics" in tables or not (has_ended or _length(reader, "metrics")),
            "tally": "tally/served" in tables or record.events or not has_ended,
            "diagnosis": "diagnosis/summary" in tables or not _length(reader, "diagnosis/summary"),
        }
        missing = tuple(name for name, saved in is_saved.items() if not saved)
        recovery = Recovery(len(events), _length(reader, "events"), len(index), all_snapshots, missing)

        counts = Tally()
        columns = (events[name].tolist() for name in ("kind", "time_s", "client", "staleness"))
        for kind, time_s, client, staleness in zip(*columns, strict=True):
            counts.count(Kind(kind), time_s, client, staleness)
        if clients is None:  # their numbers alone are known
            clients = np.zeros(count, CLIENT)
            clients["client"] = np.arange(count)
            clients["rate"] = np.nan
            clients["rank"] = -1
        size = _readable(lambda: reader.model_size)
        if size is None or size[0] * size[1].itemsize > LARGEST_MESSAGE_BYTES:
            size = (1, FLOAT64)  # no model is saved
        recorder = Recorder.of(experiment, made, size, force=True)
        prefix = RunPrefix(reader, len(events), len(index), counts, models, averages)
        recorder.begin(provenance or _unknown_provenance(), clients, prefix)
        for name, rows in tables.items():
            recorder.copy(name, rows)
        final = recorder.tally.status(State.FAILED, f"recovered: {recovery.text}")
        if status is not None:
            if not record.events:
                final = replace(status, state=State.FAILED, reason=final.reason)
            counted_alike = (status.updates, status.server_steps) == (final.updates, final.server_steps)
            final = replace(final, reason=f"{final.reason}; was {status.state.text}: {status.reason}")
            if has_ended and counted_alike and recovery.everything:
                final = status
        recorder.set_status(final)
        recorder.close()
    return recovery


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


def clients_are_sound(table: NDArray[Any], count: int) -> bool:
    """Whether the table has all clients in their order, with ranks and rates that can be true."""
    if not np.array_equal(table["client"], np.arange(count)):
        return False
    return bool(ranks_exist(table) and np.isfinite(table["rate"]).all() and (table["rate"] > 0).all())


def tally_is_sound(staleness: NDArray[Any], served: NDArray[Any], clients: int) -> bool:
    """Whether these can be counts of all clients."""
    return bool(len(served) == clients and (staleness >= 0).all() and (served >= 0).all())


def _last_model(
    reader: RunReader, record: Record, index: NDArray[Any]
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The last model and its average, where the file keeps no others, if they are those of the last snapshot."""
    if record.models != "last" or not len(index) or not reader.count("snapshots/model"):
        return [], []
    models = list(reader.rows("snapshots/model", 0, 1))
    if digest(models[0]) != index["digest"][-1]:
        return [], []
    return models, list(reader.rows(AVERAGES, 0, 1)) if record.average and reader.count(AVERAGES) else []


def _whole_tables(reader: RunReader, *names: str) -> dict[str, NDArray[Any]]:
    """All rows of some datasets; nothing if some of these do not count."""
    tables = {name: rows for name in names if (rows := _whole(reader, name)) is not None}
    return tables if len(tables) == len(names) else {}


def _whole(reader: RunReader, name: str) -> NDArray[Any] | None:
    """All rows of a dataset, or None if some do not count."""
    rows = reader.rows(name)
    return rows if len(rows) == _readable(lambda: reader.length(name)) else None


def _readable(read: Callable[[], Value]) -> Value | None:
    """What can be read; None where it is damaged."""
    try:
        return read()
    except DamagedFileError:
        return None


def _length(reader: RunReader, name: str) -> int:
    """How many rows a dataset has, whether they count or not; 0 if not even that is known."""
    return _readable(lambda: reader.length(name)) or 0


def _unknown_provenance() -> Provenance:
    known = {"ranks": 1, "seed": 0, "lanes": 1, "lane": 0, "data_digest": "", "files": ""}  # all others are texts
    return Provenance(**{item.name: known.get(item.name, "unknown") for item in fields(Provenance)})  # type: ignore[arg-type]
