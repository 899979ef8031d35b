"""A data set from samples as people have them: test samples drawn, labels numbered, features checked and scaled."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems.data.formats import FileSamples, RawSamples
from areabench.problems.datasets import Dataset, frozen, is_sparse

if TYPE_CHECKING:
    from areabench.problems.data.file import File
    from areabench.problems.data.scikit_learn import ScikitLearn


_DRAW_ENTROPY = 0x74657374  # keeps the stream of this draw apart from those of `streams`
_MANY_CLASSES = 100  # more of them, with fewer than two samples each on average, are numbers to predict


def dataset_of(name: str, source: str, found: FileSamples, settings: File | ScikitLearn, task: str) -> Dataset:
    """The data set, its features not multiplied by anything; `source` begins an error."""
    train = found.train
    test = found.test
    if test is None:
        train, test = _drawn(train, settings.test_share, settings.seed, source)
    train, test = _of_equal_width(train, test, source)
    for part in (train, test):
        _check_features(part.features, source)
    if settings.standardise:
        train, test = _standardised(train, test, source)
    labels, names = _targets(train, test, source) if task == "regression" else _classes(train, test, source)
    if settings.standardise and task == "regression":
        known = labels[: len(train.labels)]
        labels = (labels - known.mean()) / (known.std() or 1.0)
    features = [_read_only(part.features) for part in (train, test)]
    train_labels, test_labels = (frozen(each) for each in (labels[: len(train.labels)], labels[len(train.labels) :]))
    return Dataset(name, features[0], train_labels, features[1], test_labels, len(names), 1.0, names)


def with_intercept(data: Dataset) -> Dataset:
    """The data set with one more feature, which a model sees as 1; as nearly 1 as whole numbers allow."""
    kind = data.train_features.dtype
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


def _refuse(source: str, trouble: str, remedy: str) -> NoReturn:
    raise UserError(f"{source}: {trouble}; {remedy}")


# ---------------------------------------------------------------------------------------------------- samples


def _drawn(samples: RawSamples, share: float, seed: int, source: str) -> tuple[RawSamples, RawSamples]:
    """Training and test samples, each in the order of the file: files are often sorted by class."""
    count = len(samples.labels)
    tested = max(1, round(share * count))
    if tested >= count:
        _refuse(source, f"{count} samples leave none to train on with data.test_share = {share}", "take more samples")
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _DRAW_ENTROPY])))
    order = generator.permutation(count)
    train = np.sort(order[tested:])
    test = np.sort(order[:tested])
    return tuple(RawSamples(samples.features[rows], samples.labels[rows]) for rows in (train, test))  # type: ignore[return-value]


def _of_equal_width(train: RawSamples, test: RawSamples, source: str) -> tuple[RawSamples, RawSamples]:
    """Both parts with equally many features: LIBSVM text ends at the last one that is not 0."""
    widths = [part.features.shape[1] for part in (train, test)]
    if widths[0] == widths[1]:
        return train, test
    if not (is_sparse(train.features) and is_sparse(test.features)):
        _refuse(source, f"has {widths[0]} features to train on and {widths[1]} to test on", "give equally many")
    wider = [part.features.copy() for part in (train, test)]
    for features in wider:
        features.resize(features.shape[0], max(widths))
    return RawSamples(wider[0], train.labels), RawSamples(wider[1], test.labels)


def dense(samples: RawSamples) -> RawSamples:
    """Samples whose features are an array."""
    return RawSamples(samples.features.toarray(), samples.labels) if is_sparse(samples.features) else samples


def _read_only(features: Any) -> Any:
    for array in (features.data, features.indices, features.indptr) if is_sparse(features) else (features,):
        frozen(array)
    return features


def _check_features(features: Any, source: str) -> None:
    values = features.data if is_sparse(features) else features
    if not all(features.shape):
        _refuse(source, f"has the shape {features.shape}", "give samples with features")
    if values.dtype.kind not in "uif":
        _refuse(source, f"has features of type {values.dtype}", "give numbers")
    if (bad := values.size - np.count_nonzero(np.isfinite(values))) != 0:
        _refuse(source, f"{bad:,} features are not finite (NaN or infinite)", "fill or drop them")


def _standardised(train: RawSamples, test: RawSamples, source: str) -> tuple[RawSamples, RawSamples]:
    if is_sparse(train.features):
        _refuse(source, "data.standardise would fill a sparse array", "leave it out, or set data.dense = true")
    mean = train.features.mean(axis=0, dtype=np.float64)
    deviation = train.features.std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1.0  # a constant feature becomes 0
    return tuple(RawSamples((part.features - mean) / deviation, part.labels) for part in (train, test))  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------------- labels


def _classes(train: RawSamples, test: RawSamples, source: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """The numbers of all labels' classes, those of training first, and the classes' names, in order."""
    labels = _as_numbers(np.concatenate([train.labels, test.labels]))
    if labels.dtype.kind == "f":
        odd = labels[labels != np.floor(labels)]  # NaN too
        if odd.size:
            _refuse(source, f"has the label {odd[0]:g}, which is no class", 'set data.task = "regression"')
        labels = labels.astype(np.int64)
    names, numbers = np.unique(labels, return_inverse=True)
    if len(names) > max(_MANY_CLASSES, len(labels) / 2):
        _refuse(source, f"has {len(names):,} classes in {len(labels):,} samples", 'set data.task = "regression"')
    return numbers.astype(np.int64), tuple(str(name) for name in names)


def _targets(train: RawSamples, test: RawSamples, source: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """All targets as float64, those of training first, and no classes."""
    labels = _as_numbers(np.concatenate([train.labels, test.labels]))
    if labels.dtype.kind not in "uif" or not np.isfinite(labels).all():
        _refuse(source, f"has targets such as {labels[0]!r} that are not all finite numbers", "correct them")
    return labels.astype(np.float64), ()


def _as_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as numbers if all of them are, else as texts."""
    if labels.dtype.kind in "uif":
        return labels
    try:
        return labels.astype(np.float64)
    except ValueError:
        return labels
