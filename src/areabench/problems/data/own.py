"""A data set of the user's own: loaded or made by their function, and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from areabench.plugins.call import call, record_of, refuse
from areabench.problems.data.settings import DataSettings
from areabench.problems.datasets import Dataset, frozen
from areabench.settings.keys import NO_SETTINGS, SAMPLE_PATH, SETTINGS_DOC, Settings, key


@dataclass(frozen=True, kw_only=True)
class OwnData(DataSettings):
    """A function of the user's own, which is executed."""

    own = True
    may_share_pass = False
    section: ClassVar[str] = "data"
    base: ClassVar[type] = DataSettings
    given: ClassVar[tuple[str, ...]] = ("cache",)

    name: str = SAMPLE_PATH
    settings: Settings = key(SETTINGS_DOC, NO_SETTINGS)

    @property
    def title(self) -> str:
        """Its function."""
        return self.name.rpartition(":")[2]

    def prepare(self, cache: Path) -> None:
        """Call the function, which may leave files there for the ranks that follow."""
        self.load(cache)

    def load(self, cache: Path) -> Dataset:
        """The data set that the user's function loads or makes; its arrays are read-only afterwards."""
        record = record_of(self)
        data = call(self, cache=cache) if record is None else record.load(cache)
        if not isinstance(data, Dataset):
            refuse(self, f"returned {type(data).__name__}", "let it return areabench.extend.Dataset")
        least = 0 if getattr(data.train_labels, "dtype", np.dtype(np.int64)).kind == "f" else 1
        if not isinstance(data.classes, int | np.integer) or data.classes < least:
            refuse(self, f"gave classes = {data.classes!r}", "give the number of classes, a whole number >= 1")
        for part in ("train", "test"):
            if wrong := _wrong_samples(data, part):
                refuse(self, f"gave {wrong}", "see docs/extending.md for what a data set holds")
        if not isinstance(data.scale, int | float | np.floating) or not math.isfinite(data.scale):
            refuse(self, f"gave the scale {data.scale!r}", "give a finite number, such as 1.0")
        kind = np.int64 if data.classes else np.float64
        return replace(
            data,
            train_features=frozen(data.train_features),
            train_labels=frozen(data.train_labels.astype(kind, copy=False)),
            test_features=frozen(data.test_features),
            test_labels=frozen(data.test_labels.astype(kind, copy=False)),
        )


def _wrong_samples(data: Dataset, part: str) -> str:
    """What is wrong with the training or test samples; empty if nothing is."""
    features = getattr(data, f"{part}_features")
    labels = getattr(data, f"{part}_labels")
    if not isinstance(features, np.ndarray) or features.ndim != 2 or not features.size:
        return f"{part}_features of shape {np.shape(features)}, not (samples, features)"
    if features.dtype.kind not in "uif" or features.shape[1] != data.train_features.shape[1]:
        return f"{part}_features of type {features.dtype} and {features.shape[1]} columns"
    if (bad := features.size - np.count_nonzero(np.isfinite(features))) != 0:
        return f"{part}_features of which {bad:,} are not finite (NaN or infinite)"
    kinds = "iu" if data.classes else "iuf"
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in kinds or labels.shape != (len(features),):
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        return f"{part}_labels of type {kind} and shape {np.shape(labels)} for {len(features)} samples, not integers"
    if not data.classes and not np.isfinite(labels).all():
        return f"{part}_labels of which some are not finite (NaN or infinite)"
    if data.classes and (labels.min() < 0 or labels.max() >= data.classes):
        return f"{part}_labels from {labels.min()} to {labels.max()}, not 0 to classes - 1 = {data.classes - 1}"
    return ""
