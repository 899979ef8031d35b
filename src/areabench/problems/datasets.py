"""What a data set is. Every array of it is read-only; those of images are files mapped into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from areabench.host import spare_home


def default_cache(environment: Mapping[str, str]) -> Path:
    """The folder of unpacked data sets: AREABENCH_CACHE, or else the user's cache folder."""
    if chosen := environment.get("AREABENCH_CACHE"):
        return Path(chosen)
    if chosen := environment.get("XDG_CACHE_HOME"):
        return Path(chosen) / "areabench"
    try:
        home = Path.home()
    except RuntimeError:  # neither HOME nor the system says
        home = spare_home()
    return home / ".cache" / "areabench"


def is_sparse(features: Any) -> bool:
    """Whether features are a scipy CSR array; scipy is not imported for the answer."""
    return hasattr(features, "indptr")


def arrays_of(features: Any) -> tuple[NDArray[Any], ...]:
    """The arrays that features are kept in."""
    if is_sparse(features):
        return features.data, features.indices, features.indptr
    return (features,)


@dataclass(frozen=True)
class Dataset:
    """Samples as raw features, often bytes; the input of a model is `features * scale`."""

    name: str
    train_features: Any  # (samples, features), numbers of any type: an array, or a scipy CSR array
    train_labels: NDArray[Any]  # int64 from 0 to classes - 1; or float64, numbers to predict
    test_features: Any
    test_labels: NDArray[Any]
    classes: int  # 0 where labels are numbers to predict
    scale: float
    class_names: tuple[str, ...] = ()  # empty: the numbers themselves

    def digest(self) -> str:
        """The SHA-256 of all samples, with their types and shapes, and of the scale."""
        found = hashlib.sha256(repr((self.classes, self.scale)).encode())
        parts: tuple[Any, ...] = (self.train_features, self.train_labels, self.test_features, self.test_labels)
        for part in parts:
            for array in arrays_of(part):
                found.update(f"{array.dtype} {part.shape}".encode())
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    def inputs(self, rows: NDArray[np.int64] | slice, kind: np.dtype[Any]) -> Any:
        """Training samples as a model of this type sees them, shape (rows, features); CSR where they are sparse."""
        return self.train_features[rows].astype(kind) * kind.type(self.scale)

    def chunks(
        self, part: Literal["train", "test"], kind: np.dtype[Any], rows_at_once: int
    ) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Inputs and labels of all training or test samples, so many at a time: copies of all take much memory."""
        if part == "train":
            features = self.train_features
            labels = self.train_labels
        else:
            features = self.test_features
            labels = self.test_labels
        for first in range(0, len(labels), rows_at_once):
            rows = slice(first, first + rows_at_once)
            yield features[rows].astype(kind) * kind.type(self.scale), labels[rows]

    @property
    def groups(self) -> NDArray[np.int64]:
        """What a split tells samples apart by: their labels, or in which tenth of all targets theirs lies."""
        if self.classes:
            return self.train_labels
        # Where many targets are equal, so are some of the cuts, and there are fewer groups.
        cuts = np.quantile(self.train_labels, np.arange(1, 10) / 10)
        return np.searchsorted(np.unique(cuts), self.train_labels, side="right").astype(np.int64)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only from now on."""
    array.setflags(write=False)
    return array
