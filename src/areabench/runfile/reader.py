"""The one reader of run files: what of a file counts, and its rows, each compared with its checksum.

Runs that have ended, that were killed and that continue are read in the same way, by all commands. A row counts if it
has a checksum; a run that is killed leaves rows without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.arrays import crc32
from areabench.engine.events import ENDED, Provenance, State, Status
from areabench.errors import RunFileError
from areabench.runfile.checksums import Block, checksum_of, read_blocks
from areabench.runfile.open import (
    DAMAGE,
    DamagedFileError,
    open_closed,
    open_file,
    read_rows,
    stored_in_file,
    was_left_open,
)
from areabench.runfile.schema import DATASETS, FORMAT, SCHEMA_VERSION, STATUS, STATUS_CONTENT

AVERAGES = "snapshots/average"
_BLOCKS_AT_ONCE = 256  # of at most 32 KiB, that are read and verified together
_STATES = {state.text: state for state in State}
CHECKSUM_SUFFIX = "_checksum"  # of the name of an attribute that has the checksum of another


class RunReader:
    """One run file, open. All its methods raise a DamagedFileError where what they read is damaged.

    `as_closed`: nobody writes the file, which may have been left open. With `salvage` the rows of a damaged dataset
    end before the damage instead.
    """

    def __init__(self, path: Path, *, as_closed: bool = False, salvage: bool = False) -> None:
        self.path = path
        self._salvage = salvage
        self._counts: dict[str, int] = {}
        self._datasets: dict[str, h5py.Dataset] = {}
        with self._naming_damage():
            self._file: h5py.File = open_closed(path) if as_closed or salvage else open_file(path)
        self.was_left_open = was_left_open(self._file)

    def __enter__(self) -> Self:
        """Use the file as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; rows read so far stay."""
        self._file.close()

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise DamagedFileError(self.path, error) from error

    # ------------------------------------------------------------------------------------------------ single values

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Format, schema version and experiment."""
        with self._naming_damage():
            return read_attributes(self._file.attrs)

    def check_format(self) -> None:
        """A RunFileError unless it is a run file of this schema version."""
        if str(self.attributes.get("format")) != FORMAT:
            raise RunFileError(f"{self.path}: is not a run file of areabench; give the path of one")
        with self._naming_damage():
            version = int(self.attributes["schema_version"])
        if version != SCHEMA_VERSION:
            raise RunFileError(
                f"{self.path}: has schema version {version}, this areabench reads {SCHEMA_VERSION}; use the one that "
                "wrote it"
            )

    @property
    def experiment_text(self) -> str:
        """The experiment, as TOML."""
        with self._naming_damage():
            return str(self.attributes["experiment"])

    @property
    def stored_status(self) -> Status:
        """The status as the file has it: while a run continues, and where it was killed, without counts."""
        with self._naming_damage():
            row = stored_in_file(self._file, "status")[0]
            if row.dtype != STATUS:
                raise TypeError(f"/status has columns {row.dtype.names}, expected {STATUS.names}")
            *values, checksum = row.tolist()
            if checksum != crc32(row.tobytes()[:STATUS_CONTENT]):
                raise ValueError("/status does not have its checksum")
            state, reason, *numbers = values
            return Status(_STATES[state.decode()], reason.decode(), *numbers)

    @property
    def status_offset(self) -> int:
        """Where in the file the status is, in bytes."""
        with self._naming_damage():
            return int(stored_in_file(self._file, "status").id.get_offset())

    @cached_property
    def provenance(self) -> Provenance:
        """Who ran what where."""
        with self._naming_damage():
            attributes = read_attributes(stored_in_file(self._file, "provenance").attrs)
            values = {item.name: attributes[item.name] for item in fields(Provenance)}
            numbers = {name: int(values[name]) for name in ("ranks", "seed", "lanes", "lane")}
            return Provenance(**{**{name: str(value) for name, value in values.items()}, **numbers})  # type: ignore[arg-type]

    @property
    def model_size(self) -> tuple[int, np.dtype[Any]]:
        """The number of parameters, and their type."""
        with self._naming_damage():
            models = self._dataset("snapshots/model")
            return int(models.shape[1]), models.dtype

    # ------------------------------------------------------------------------------------------------ rows

    def rows(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Rows `first` to `last` - 1 of a dataset, of those that count."""
        count = self.count(name)
        expected = DATASETS[name].row
        if expected is not None and not count:
            return np.zeros(0, expected)
        with self._naming_damage():
            return read_rows(self._dataset(name), slice(first, count if last is None else min(last, count)))

    def count(self, name: str, first: int = 0) -> int:
        """How many rows of a dataset count; they are verified once, those before row `first` not at all."""
        if name not in self._counts:
            blocks = self._blocks.get(name)
            covered = blocks[-1].last if blocks else 0
            self._counts[name] = min(first, covered) + sum(len(rows) for rows in self.blocks(name, first))
        return self._counts[name]

    def blocks(self, name: str, first: int = 0) -> Iterator[NDArray[Any]]:
        """The rows of a dataset that count, from row `first` on: verified, and at most 8 MiB or one row at a time."""
        waiting = [block for block in self._blocks.get(name, ()) if block.last > first]
        at_once = _BLOCKS_AT_ONCE
        while waiting:
            group = waiting[:at_once]
            start = sound = group[0].first
            problem = ""
            try:
                dataset = self._dataset(name)
                expected = DATASETS[name].row
                if expected is not None and dataset.dtype != expected:
                    raise TypeError(f"it has columns {dataset.dtype.names}, expected {expected.names}")
                rows = read_rows(dataset, slice(start, group[-1].last))
            except DAMAGE as error:
                if at_once > 1:  # those before the block that cannot be read still count
                    at_once = 1
                    continue
                problem = f"rows {start:,} to {group[0].last - 1:,} of /{name} cannot be read: {error}"
            else:
                for block in group:
                    if checksum_of(rows[block.first - start : block.last - start]) != block.checksum:
                        problem = f"rows {block.first:,} to {block.last - 1:,} of /{name} do not have their checksum"
                        break
                    sound = block.last
            if sound > start:
                yield rows[max(0, first - start) : sound - start]
            if problem and self._salvage:
                return
            if problem:
                raise DamagedFileError(self.path, problem)
            waiting = waiting[at_once:]

    def length(self, name: str) -> int:
        """How many rows a dataset has, whether they count or not."""
        with self._naming_damage():
            return len(self._dataset(name)) if name != AVERAGES or self.keeps_averages else 0

    @cached_property
    def keeps_averages(self) -> bool:
        """Whether the file has averages beside its models, the only dataset that not every run file has."""
        with self._naming_damage():
            group, _, name = AVERAGES.partition("/")
            return stored_in_file(self._file, group).get(name, getlink=True) is not None

    def find_damage(self) -> dict[str, str]:
        """What is wrong with rows, by dataset; in a file that its run has closed every row must have a checksum."""
        closed = not self.was_left_open and self.stored_status.state != State.RUNNING
        found = {}
        for name in DATASETS:
            try:
                count = self.count(name)
                if closed and count < self.length(name):
                    found[name] = f"rows from {count:,} on of /{name} have no checksum"
            except DamagedFileError as error:
                found[name] = error.what
        return found

    @cached_property
    def _blocks(self) -> Mapping[str, Sequence[Block]]:
        with self._naming_damage():
            return read_blocks(self._file, strict=not self._salvage)

    def _dataset(self, name: str) -> h5py.Dataset:
        """A dataset; to look for one takes longer than to read a few rows."""
        if name not in self._datasets:
            self._datasets[name] = stored_in_file(self._file, name)
        return self._datasets[name]


def read_status(path: Path) -> Status:
    """The status of a run file, and whether it has metrics; nothing else is read."""
    with RunReader(path) as reader:
        status = reader.stored_status
        if status.state in ENDED and not reader.length("metrics"):
            return replace(status, unevaluated="there are no metrics")
        return status


def read_attributes(attributes: h5py.AttributeManager) -> dict[str, Any]:
    """All attributes, texts as such; a ValueError if a text does not have its checksum."""
    values = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    for name in [name.removesuffix(CHECKSUM_SUFFIX) for name in values if name.endswith(CHECKSUM_SUFFIX)]:
        if crc32(str(values[name]).encode()) != values.pop(name + CHECKSUM_SUFFIX):
            raise ValueError(f"the attribute {name} does not have its checksum")
    return values
