"""From a damaged run file to a sound one: the longest beginning of its events and snapshots, and what else is whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.engine.diagnosis import DIAGNOSIS_CLIENT, QUANTILE
from areabench.engine.events import CLIENT, Kind, Provenance, State, Status
from areabench.engine.messages import LARGEST_MESSAGE_BYTES, digest
from areabench.engine.state import Tally
from areabench.errors import RunFileError, UserError
from areabench.experiment.parse import parse_experiment
from areabench.runfile.checksums import Checksums
from areabench.runfile.layout import (
    DIAGNOSIS,
    read_attributes,
    read_diagnosis,
    read_provenance,
    status_of,
)
from areabench.runfile.open import (
    DAMAGE,
    first_false,
    open_closed,
    ranks_exist,
    read_rows,
    stored_in_file,
)
from areabench.runfile.record import Recorder, RunPrefix
from areabench.runfile.schema import EVENT, FORMAT, METRIC, SCHEMA_VERSION, SNAPSHOT
from areabench.settings.parse import to_toml


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


UNREADABLE = (*DAMAGE, MemoryError)


class Source:
    """What a damaged file still holds; a RunFileError if not even the experiment can be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_closed(path)
            attributes = read_attributes(self._file.attrs)
            if attributes["format"] != FORMAT or attributes["schema_version"] != SCHEMA_VERSION:
                raise RunFileError(
                    f"{path}: is not a run file of schema version {SCHEMA_VERSION}; nothing can be saved"
                )
            self.experiment = parse_experiment(str(attributes["experiment"]), f"{path}: experiment")
            self._checksums = Checksums(self._file, strict=False)
        except UserError:
            raise
        except UNREADABLE as error:
            raise RunFileError(f"{path}: nothing can be saved: {error}; run the experiment again") from error
        self.clients_count = self.experiment.clients.count

    def sound(self, name: str) -> int:
        """How many rows of a dataset have the right checksum, from the first on."""
        return self._checksums.verified(name)[0]

    def rows(self, name: str, chosen: slice | int) -> NDArray[Any]:
        """Some rows of a dataset; an error where they cannot be read."""
        return read_rows(self._file, name, chosen)

    def length(self, name: str) -> int:
        """How many rows a dataset has, whether they can be read or not; 0 if not even that is known."""
        try:
            return len(stored_in_file(self._file, name))
        except UNREADABLE:
            return 0

    def prefix(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The rows of a dataset up to the first block that cannot be read, or does not have its checksum."""
        blocks = [np.zeros(0, dtype)]
        try:
            dataset, count = stored_in_file(self._file, name), self.sound(name)
            step = max(1, (dataset.chunks or dataset.shape)[0])
            for first in range(0, count if dataset.dtype == dtype else 0, step):
                blocks.append(read_rows(self._file, name, slice(first, min(first + step, count))))
        except UNREADABLE:
            pass
        return np.concatenate(blocks)

    def whole(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """All rows of a dataset, or None if some cannot be read."""
        rows = self.prefix(name, dtype)
        return rows if name in self and len(rows) == self.length(name) else None

    def __contains__(self, name: str) -> bool:
        """Whether there is such an object that can be opened."""
        try:
            return isinstance(stored_in_file(self._file, name), h5py.Dataset)
        except UNREADABLE:
            return False

    def model_size(self) -> tuple[int, np.dtype[Any]]:
        """The number of parameters, and their type."""
        models = stored_in_file(self._file, "snapshots/model")
        return int(models.shape[1]), models.dtype

    def provenance(self) -> Provenance | None:
        """Who ran what where, if it can be read."""
        try:
            return read_provenance(self._file)
        except UNREADABLE:
            return None

    def status(self) -> Status | None:
        """How the run stood, if it can be read."""
        try:
            return status_of(self._file)
        except UNREADABLE:
            return None

    def clients(self) -> NDArray[Any] | None:
        """The clients, if all are there in their order."""
        table = self.whole("clients", CLIENT)
        if table is None:
            return None
        numbered = table.dtype == CLIENT and np.array_equal(table["client"], np.arange(self.clients_count))
        sound = numbered and ranks_exist(table) and np.isfinite(table["rate"]).all() and (table["rate"] > 0).all()
        return table if sound else None


_UNKNOWN = {"ranks": 1, "seed": 0, "lanes": 1, "lane": 0, "data_digest": ""}  # others are texts


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
    source = Source(damaged)
    record = source.experiment.record
    events = source.prefix("events", EVENT)
    events = events[: good_events(events, source.clients_count)]
    if limits is not None:
        events = events[: limits.events]
    index = source.prefix("snapshots/index", SNAPSHOT)
    index = index[: good_snapshots(index, events if record.events else None)]
    if limits is not None:
        index = index[: limits.snapshots]
    index = index[: _with_models(source, index)]
    parts = _Salvaged(source, index)
    saved = Recovery(
        len(events), source.length("events"), len(index), source.length("snapshots/index"), tuple(parts.missing())
    )
    _write(source, made, events, index, parts, saved)
    return saved


def _with_models(source: Source, index: NDArray[Any]) -> int:
    """How many snapshots from the first on have their model, and their average where there are averages."""
    record = source.experiment.record
    if record.models == "last":
        return len(index)
    parts = ("snapshots/model", "snapshots/average") if record.average else ("snapshots/model",)
    index = index[: min(source.sound(part) for part in parts)]
    for number, row in enumerate(index):
        try:
            if digest(source.rows("snapshots/model", number)) != row["digest"]:
                return number
            _ = source.rows("snapshots/average", number) if record.average else None
        except UNREADABLE:
            return number
    return len(index)


class _Salvaged:
    """The parts that are saved whole or not at all."""

    def __init__(self, source: Source, index: NDArray[Any]) -> None:
        snapshots = len(index)
        self.source, self.status = source, source.status()
        self.models = _held(source, index, "model")
        self.averages = _held(source, index, "average") if self.models and source.experiment.record.average else []
        self.provenance, self.clients = source.provenance(), source.clients()
        self.ended = self.status is not None and self.status.state not in (State.RUNNING, State.FAILED)
        self.tables = {
            name: rows
            for name, dtype in (("metrics", METRIC), ("tally/staleness", "<i8"), ("tally/served", "<i8"))
            if (rows := source.whole(name, np.dtype(dtype))) is not None
        }
        if snapshots < source.length("snapshots/index") or len(self.tables.get("metrics", ())) not in (0, snapshots):
            self.tables.pop("metrics", None)
        if not _sound_tally(self.tables, source.clients_count):
            self.tables.pop("tally/staleness", None)
            self.tables.pop("tally/served", None)
        self.tables |= _diagnosis(source)

    def missing(self) -> Iterable[str]:
        """The names of the parts that were there and cannot be saved."""
        source, record = self.source, self.source.experiment.record
        counted = not record.events
        last = record.models == "last" and self.ended and source.length("snapshots/index") > 0
        for name, there in (
            ("status", self.status is not None),
            ("provenance", self.provenance is not None),
            ("clients", self.clients is not None),
            ("last model", bool(self.models) or not last),
            ("last average", bool(self.averages) or not (last and record.average)),
            ("metrics", "metrics" in self.tables or not (self.ended or source.length("metrics"))),
            ("tally", "tally/served" in self.tables or not (counted and self.ended)),
            ("diagnosis", "diagnosis/summary" in self.tables or not source.length("diagnosis/summary")),
        ):
            if not there:
                yield name


def _sound_tally(tables: dict[str, NDArray[Any]], clients: int) -> bool:
    staleness, served = tables.get("tally/staleness"), tables.get("tally/served")
    if staleness is None or served is None or not len(served):
        return False
    return bool(len(served) == clients and (staleness >= 0).all() and (served >= 0).all())


def _diagnosis(source: Source) -> dict[str, NDArray[Any]]:
    """The tables of a diagnosis, if all are whole and make one."""
    clients = source.whole("diagnosis/clients", DIAGNOSIS_CLIENT)
    quantiles = source.whole("diagnosis/quantiles", QUANTILE)
    summary = source.whole("diagnosis/summary", DIAGNOSIS)
    if clients is None or quantiles is None or summary is None:
        return {}
    try:
        _ = read_diagnosis(summary[0], clients, quantiles).cause
    except UNREADABLE:
        return {}
    return {"diagnosis/clients": clients, "diagnosis/quantiles": quantiles, "diagnosis/summary": summary}


def _write(
    source: Source, made: Path, events: NDArray[Any], index: NDArray[Any], parts: _Salvaged, saved: Recovery
) -> None:
    experiment = source.experiment
    recorder = Recorder(made, to_toml(experiment), *_size(source), force=True, record=experiment.record)
    read, tally = _Rows(source, events, index), _tally(events)
    earlier = RunPrefix(read, len(events), len(index), tally, parts.models, parts.averages)
    recorder.begin(parts.provenance or _unknown(), _clients(parts), earlier)
    for name, rows in parts.tables.items():
        recorder.copy(name, rows)
    recorder.set_status(_status(recorder, parts, saved))
    recorder.close()


@dataclass(frozen=True)
class _Rows:
    """What a recorder copies from: events and index as they were checked, models as they are in the file."""

    source: Source
    events_array: NDArray[Any]
    snapshot_index: NDArray[Any]

    def rows(self, name: str, chosen: slice | int) -> NDArray[Any]:
        return self.source.rows(name, chosen)


def _status(recorder: Recorder, parts: _Salvaged, saved: Recovery) -> Status:
    """The old status where all is there, else that the run failed, and what was saved."""
    old, counted = parts.status, recorder.tally.status(State.FAILED, "")
    if old is None:
        return replace(counted, reason=f"recovered: {saved.text}")
    if not recorder.keeps_events:
        counted = replace(old, state=State.FAILED)
    elif (old.updates, old.server_steps) != (counted.updates, counted.server_steps):
        return replace(counted, reason=f"recovered: {saved.text}; was {old.state.text}: {old.reason}")
    if parts.ended and saved.everything:
        return old
    return replace(counted, reason=f"recovered: {saved.text}; was {old.state.text}: {old.reason}")


def _tally(events: NDArray[Any]) -> Tally:
    tally = Tally()
    columns = (events[name].tolist() for name in ("kind", "time_s", "client", "staleness"))
    for kind, time_s, client, staleness in zip(*columns, strict=True):
        tally.count(Kind(kind), time_s, client, staleness)
    return tally


def _held(source: Source, index: NDArray[Any], name: str) -> list[NDArray[Any]]:
    """The last model where it is the only one, or its average, if it can be read."""
    if source.experiment.record.models != "last" or not len(index):
        return []
    try:
        row, model = source.rows(f"snapshots/{name}", 0), source.rows("snapshots/model", 0)
    except UNREADABLE:
        return []
    return [row] if source.sound(f"snapshots/{name}") and digest(model) == index["digest"][-1] else []


def _size(source: Source) -> tuple[int, np.dtype[Any]]:
    try:
        dimension, dtype = source.model_size()
        if dimension * dtype.itemsize <= LARGEST_MESSAGE_BYTES:
            return dimension, dtype
    except UNREADABLE:
        pass
    return 1, np.dtype(np.float64)  # no model is saved


def _clients(parts: _Salvaged) -> NDArray[Any]:
    """The clients, or their numbers alone."""
    if parts.clients is not None:
        return parts.clients
    table = np.zeros(parts.source.clients_count, CLIENT)
    table["client"], table["rate"], table["rank"] = np.arange(len(table)), np.nan, -1
    return table


def _unknown() -> Provenance:
    return Provenance(**{item.name: _UNKNOWN.get(item.name, "unknown") for item in fields(Provenance)})  # type: ignore[arg-type]
