"""A damaged run file, read part by part: what cannot be read is missing, and takes nothing else along."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.attributes import read_attributes
from areabench.config import parse_experiment
from areabench.errors import RunFileError, UserError
from areabench.opening import DAMAGE, open_closed, ranks_exist
from areabench.schema import CLIENT, FORMAT, SCHEMA_VERSION, Provenance, Status
from areabench.status_record import status_of

UNREADABLE = (*DAMAGE, MemoryError)


class Source:
    """What a damaged file still holds; a RunFileError where not even the experiment can be read."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open_closed(path)
            attributes = read_attributes(self._file.attrs)
            if attributes["format"] != FORMAT or attributes["schema_version"] != SCHEMA_VERSION:
                raise RunFileError(
                    f"{path}: is not a run file of schema version {SCHEMA_VERSION}; nothing can be saved"
                )
            self.experiment = parse_experiment(str(attributes["experiment"]), f"{path}: experiment")
        except UserError:
            raise
        except UNREADABLE as error:
            raise RunFileError(f"{path}: nothing can be saved: {error}; run the experiment again") from error
        self.clients_count = self.experiment.clients.count

    def rows(self, name: str, chosen: slice | int) -> NDArray[Any]:
        """Some rows of a dataset; an error where they cannot be read."""
        return cast(NDArray[Any], self._file[name][chosen])

    def length(self, name: str) -> int:
        """How many rows a dataset has, whether they can be read or not; 0 where not even that can be told."""
        try:
            return len(self._file[name])
        except UNREADABLE:
            return 0

    def prefix(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The rows of a dataset up to the first block that cannot be read."""
        blocks = [np.zeros(0, dtype)]
        try:
            dataset = self._file[name]
            step = max(1, dataset.chunks[0])
            for first in range(0, len(dataset) if dataset.dtype == dtype else 0, step):
                blocks.append(dataset[first : first + step])
        except UNREADABLE:
            pass
        return np.concatenate(blocks)

    def whole(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """All rows of a dataset, or None where some cannot be read."""
        rows = self.prefix(name, dtype)
        return rows if name in self and len(rows) == self.length(name) else None

    def __contains__(self, name: str) -> bool:
        """Whether there is such an object that can be opened."""
        try:
            return isinstance(self._file[name], h5py.Dataset)
        except UNREADABLE:
            return False

    def model_size(self) -> tuple[int, np.dtype[Any]]:
        """The number of parameters, and their type."""
        models = self._file["snapshots/model"]
        return int(models.shape[1]), models.dtype

    def provenance(self) -> Provenance | None:
        """Who ran what where, if it can be read."""
        try:
            attributes = read_attributes(self._file["provenance"].attrs)
            values = {item.name: attributes[item.name] for item in fields(Provenance)}
            numbers = {name: int(values[name]) for name in ("ranks", "seed", "lanes", "lane")}
            texts = {name: str(value) for name, value in values.items() if name not in numbers}
            return Provenance(**cast(dict[str, Any], {**texts, **numbers}))
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
        try:
            table = self._file["clients"][()]
        except UNREADABLE:
            return None
        numbered = table.dtype == CLIENT and np.array_equal(table["client"], np.arange(self.clients_count))
        sound = numbered and ranks_exist(table) and np.isfinite(table["rate"]).all() and (table["rate"] > 0).all()
        return table if sound else None
