"""A data set from samples as people have them: test samples drawn, labels numbered, features checked and scaled."""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems.datasets import Dataset, arrays_of, frozen, is_sparse

if TYPE_CHECKING:
    from areabench.problems.data.file import File
    from areabench.problems.data.scikit_learn import ScikitLearn


_DRAW_ENTROPY = 0x74657374  # keeps the stream of this draw apart from those of `streams`
_MANY_CLASSES = 100  # more of them, with fewer than two samples each on average, are numbers to predict


@dataclass(frozen=True)
class RawSamples:
    """Features (samples, features), an array or a scipy CSR array, and one label per sample, numbers or texts."""

    features: Any
    labels: NDArray[Any]

    def dense(self) -> RawSamples:
        """The samples with features as an array."""
        return RawSamples(self.features.toarray(), self.labels) if is_sparse(self.features) else self


def dataset_of(
    name: str, source: str, train: RawSamples, test: RawSamples | None, settings: File | ScikitLearn, task: str
) -> Dataset:
    """The data set, its features not multiplied by anything; `source` begins an error."""

    def refuse(trouble: str, remedy: str) -> NoReturn:
        raise UserError(f"{source}: {trouble}; {remedy}")

    if test is None:
        count = len(train.labels)
        tested = max(1, round(settings.test_share * count))
        if tested >= count:
            share = settings.test_share
            refuse(f"{count} samples leave none to train on with data.test_share = {share}", "take more samples")
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([settings.seed, _DRAW_ENTROPY])))
        order = generator.permutation(count)
        # each part in the order of the file, which is often sorted by class
        drawn = np.sort(order[:tested])
        kept = np.sort(order[tested:])
        test = RawSamples(train.features[drawn], train.labels[drawn])
        train = RawSamples(train.features[kept], train.labels[kept])
    features = [train.features, test.features]
    width, test_width = (each.shape[1] for each in features)
    if width != test_width:
        if not all(map(is_sparse, features)):
            refuse(f"has {width} features to train on and {test_width} to test on", "give equally many")
        features = [each.copy() for each in features]
        for each in features:  # LIBSVM text ends at the last feature that is not 0
            each.resize(each.shape[0], max(width, test_width))
    for each in features:
        if not all(each.shape):
            refuse(f"has the shape {each.shape}", "give samples with features")
        values = arrays_of(each)[0]
        if values.dtype.kind not in "uif":
            refuse(f"has features of type {values.dtype}", "give numbers")
        if (bad := values.size - np.count_nonzero(np.isfinite(values))) != 0:
            refuse(f"{bad:,} features are not finite (NaN or infinite)", "fill or drop them")
    if settings.standardise:
        if any(map(is_sparse, features)):
            refuse("data.standardise would fill a sparse array", "leave it out, or set data.dense = true")
        # By the training samples alone: nothing about the test samples may reach the model.
        mean = features[0].mean(axis=0, dtype=np.float64)
        deviation = features[0].std(axis=0, dtype=np.float64)
        deviation[deviation == 0] = 1.0  # a constant feature becomes 0
        features = [(each - mean) / deviation for each in features]

    # labels of training and test samples together, so that a class has one number
    labels = np.concatenate([train.labels, test.labels])
    samples = len(train.labels)
    names: tuple[str, ...] = ()
    if labels.dtype.kind not in "uif":
        with suppress(ValueError):  # texts
            labels = labels.astype(np.float64)
    if task == "regression":
        if labels.dtype.kind not in "uif" or not np.isfinite(labels).all():
            refuse(f"has targets such as {labels[0]!r} that are not all finite numbers", "correct them")
        labels = labels.astype(np.float64)
        if settings.standardise:
            labels = (labels - labels[:samples].mean()) / (labels[:samples].std() or 1.0)
    else:
        if labels.dtype.kind == "f":
            odd = labels[labels != np.floor(labels)]  # NaN too
            if odd.size:
                refuse(f"has the label {odd[0]:g}, which is no class", 'set data.task = "regression"')
            labels = labels.astype(np.int64)
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(classes) > max(_MANY_CLASSES, len(labels) / 2):
            refuse(f"has {len(classes):,} classes in {len(labels):,} samples", 'set data.task = "regression"')
        names = tuple(map(str, classes))
        labels = numbers.astype(np.int64)
    return Dataset(
        name,
        _read_only(features[0]),
        frozen(labels[:samples]),
        _read_only(features[1]),
        frozen(labels[samples:]),
        len(names),
        1.0,
        names,
    )


def with_intercept(data: Dataset) -> Dataset:
    """The data set with one more feature, which a model sees as 1; as nearly 1 as whole numbers allow."""
    kind = data.train_features.dtype
    # A model multiplies it by the scale again.
    value = 1 / data.scale
    if kind.kind in "ui":
        value = min(max(1, round(value)), np.iinfo(kind).max)

    def wider(features: Any) -> Any:
        column = np.full((features.shape[0], 1), value, kind)
        if not is_sparse(features):
            return _read_only(np.hstack([features, column]))
        sparse = importlib.import_module("scipy.sparse")
        return _read_only(sparse.hstack([features, column], format="csr"))

    return replace(data, train_features=wider(data.train_features), test_features=wider(data.test_features))


def _read_only(features: Any) -> Any:
    for array in arrays_of(features):
        frozen(array)
    return features
