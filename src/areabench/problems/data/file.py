"""Samples from a file of the user's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from areabench.problems.data.settings import INTERCEPT, STANDARDISE, TEST_SHARE, DataSettings
from areabench.problems.datasets import Dataset
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST


@dataclass(frozen=True, kw_only=True)
class File(DataSettings):
    """Samples from a file: .npz, CSV, LIBSVM text or IDX, which its content tells; gzip and bzip2 are unpacked."""

    may_share_pass = False

    name: str = "file"
    file: str = key(
        "path of the training samples, relative to the experiment's; for IDX the images, or their folder", path=True
    )
    test_file: str | None = key(
        "path of the test samples; left out: those in `file`, or else a share of its samples", None, path=True
    )
    label: str | None = key("CSV: the label's column, by name or by number from 0; left out: the last one", None)
    task: Literal["classification", "regression"] = key(
        "whether labels are classes (numbers or texts), or numbers to predict with problem `regression`",
        "classification",
    )
    scale: float | None = key(
        "what all features are multiplied by; left out: 1/255 for uint8, else 1", None, above=0, maximum=LARGEST
    )
    standardise: bool = key(STANDARDISE, False)
    intercept: bool = key(INTERCEPT, False)
    dense: bool = key("keep LIBSVM text as a dense array, for problems that take no sparse one", False)
    test_share: float = key(TEST_SHARE, 0.2, above=0, below=1)
    seed: int = key("seed of that draw; the same for all trials", 0, minimum=0, below=2**32)

    @property
    def title(self) -> str:
        """The file's name."""
        return Path(self.file).name

    def load(self, cache: Path) -> Dataset:
        """The data set of one file, or of one file for training and one for testing."""
        from areabench.problems.data.formats import read_samples  # few runs need them
        from areabench.problems.data.samples import dataset_of, with_intercept

        train, test = read_samples(Path(self.file), self.label)
        if self.test_file is not None:
            test, _ = read_samples(Path(self.test_file), self.label)
        if self.dense:
            train = train.dense()
            test = test and test.dense()
        data = dataset_of(self.title, f"data file {self.file}", train, test, self, self.task)
        scale = self.scale
        if scale is None:
            scale = 1 / 255 if data.train_features.dtype == np.uint8 else 1.0
        data = replace(data, scale=scale)
        return with_intercept(data) if self.intercept else data
