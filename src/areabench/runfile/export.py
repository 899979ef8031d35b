"""Runs as plain tables for other programs: columns, written as CSV, JSON or Parquet, one file per table."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from areabench.engine.events import Kind
from areabench.errors import UserError
from areabench.files import refuse_existing

if TYPE_CHECKING:
    from areabench.runfile.read import Run

ExportForm = Literal["csv", "parquet", "json"]
Columns = Mapping[str, Sequence[Any]]  # by name, all equally long


def run_columns(run: Run) -> dict[str, Columns]:
    """The events, metrics and clients of a run."""
    index, metrics = run.snapshot_index, run.metrics_array
    tables: dict[str, Columns] = {"metrics": _columns(index)}
    if len(metrics):
        tables["metrics"] = {**_columns(index[: len(metrics)]), **_columns(metrics)}
    if run.experiment.record.events:
        events = _columns(run.events_array)
        tables["events"] = {**events, "kind": [Kind(kind).text for kind in run.events_array["kind"].tolist()]}
    hosts = [host.decode(errors="replace") for host in run.clients_array["host"].tolist()]
    return {**tables, "clients": {**_columns(run.clients_array), "host": hosts}}


def columns_of(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows that have the same keys, by column."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def write_columns(tables: Mapping[str, Columns], folder: Path, to: ExportForm, *, force: bool = False) -> list[Path]:
    """Write each table to a file of its name; returns the paths. Existing files are overwritten by `force` only."""
    writers: dict[str, Callable[[Columns, Path], None]] = {"csv": _to_csv, "parquet": _to_parquet, "json": _to_json}
    if to not in writers:
        raise UserError(f"export: {to!r} is not known; write one of {', '.join(writers)}")
    paths = [folder / f"{name}.{to}" for name in tables]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            refuse_existing(path, force=force)
        for path, columns in zip(paths, tables.values(), strict=True):
            writers[to](columns, path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}; choose another --output") from error
    return paths


def beside(path: Path) -> Path:
    """The folder for the tables of a run file, where none is given."""
    if not path.is_file():
        raise UserError(f"{path}: is no file beside which the tables could be written; give a folder")
    return path.with_suffix("")


def inside(folder: Path) -> Path:
    """The folder for the tables of a sweep, where none is given."""
    if not folder.is_dir():
        raise UserError("the sweep was kept in memory and has no folder for its tables; give one")
    return folder / "export"


def _columns(rows: NDArray[Any]) -> Columns:
    return {name: rows[name].tolist() for name in rows.dtype.names or ()}


def _to_csv(columns: Columns, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(_rows(columns))


def _to_json(columns: Columns, path: Path) -> None:
    """A list of objects, one per line."""
    with path.open("w", encoding="utf-8") as file:
        lines = (json.dumps(dict(zip(columns, map(finite, row), strict=True))) for row in _rows(columns))
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


def _to_parquet(columns: Columns, path: Path) -> None:
    try:
        import pyarrow as pa  # an extra
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"export to Parquet: needs pyarrow ({error}); `pip install pyarrow`") from error

    def array(values: Sequence[Any]) -> Any:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types, as a grid may have
            return pa.array([None if value is None else str(value) for value in values])

    parquet.write_table(pa.table({name: array(values) for name, values in columns.items()}), path)


def _rows(columns: Columns) -> Iterable[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def finite(value: Any) -> Any:
    """A value as JSON can say it, which knows no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
