"""Logistic regression: gradient, softmax, weighting, mini-batches and evaluation against plain float64."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.samples import CLASSES, FEATURES, blobs, parts

from areabench.problems import logistic
from areabench.problems.datasets import Dataset
from areabench.problems.logistic import Logistic, LogisticProblem, Workspace
from areabench.problems.minibatches import Minibatches


def problem(settings: Logistic, local_steps: int = 1, data: Dataset | None = None) -> LogisticProblem:
    """The two clients above, seed 5."""
    return LogisticProblem(settings, data or blobs(), parts(), local_steps, 5)


def naive_loss(
    model: NDArray[np.float64], features: NDArray[np.uint8], labels: NDArray[np.int64], regularisation: float
) -> float:
    """Mean cross-entropy + (nu/2)·|W|² in float64, sample by sample."""
    weights = model.reshape(CLASSES, FEATURES)
    total = 0.0
    for sample, label in zip(features, labels, strict=True):
        scores = weights @ (sample / 255)
        total -= scores[label] - np.log(np.exp(scores).sum())
    return total / len(labels) + 0.5 * regularisation * float(model @ model)


def test_step_matches_the_finite_difference_gradient() -> None:
    settings = Logistic(regularisation=0.25, batch_size=8, weighting="share")
    logreg = problem(settings)
    rows = Minibatches(5, 1, parts()[1], 1, 8).next_round()[0]
    data, start, width = blobs(), logreg.start(), 1e-5

    def loss(point: NDArray[np.float64]) -> float:
        return naive_loss(point, data.train_features[rows], data.train_labels[rows], 0.25)

    point = start.astype(np.float64)
    slopes = [(loss(point + width * axis) - loss(point - width * axis)) / (2 * width) for axis in np.eye(len(point))]
    step_size = 0.5
    moved = logreg.local(1).descend(start, step_size)
    np.testing.assert_allclose((start - moved) / (step_size * 0.75), slopes, atol=2e-6)


def test_step_by_hand() -> None:
    # one sample (1, 0) of class 0, W = 0: probabilities ½, so the gradient is -½ for class 0 and +½ for class 1
    features, labels = np.array([[1, 0]], dtype=np.uint8), np.array([0])
    data = Dataset("hand", features, labels, features, labels, 2, 1.0)
    settings = Logistic(regularisation=0.0, batch_size=4, start_width=0.0)
    logreg = LogisticProblem(settings, data, [np.array([0])], 1, 0)
    np.testing.assert_array_equal(logreg.local(0).descend(logreg.start(), 0.5), [0.25, 0, -0.25, 0])


@pytest.mark.parametrize("magnitude", [1e4, 1e30])
def test_softmax_survives_huge_scores(magnitude: float) -> None:
    work = Workspace(2, (CLASSES, FEATURES), blobs())
    work.scores[:] = np.array([[magnitude, -magnitude], [0, -magnitude], [-magnitude, -magnitude]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        work.softmax()
    np.testing.assert_allclose(work.scores, [[1, 1 / 3], [0, 1 / 3], [0, 1 / 3]], rtol=1e-6)


def test_huge_weights_give_a_finite_step_and_loss() -> None:
    logreg = problem(Logistic(regularisation=0.0, batch_size=8), local_steps=3)
    huge = (1e6 * logreg.start()).astype(np.float32)
    assert np.isfinite(logreg.local(0).descend(huge, 1.0)).all()
    assert np.isfinite(logreg.evaluate([huge]).train_loss).all()


def test_weightings_differ_by_the_number_of_clients() -> None:
    share = problem(Logistic(weighting="share", batch_size=8), local_steps=5)
    exact = problem(Logistic(weighting="exact", batch_size=8), local_steps=5)
    start = share.start()
    moved = share.local(1).descend(start, 0.5)
    np.testing.assert_array_equal(exact.local(1).descend(start, 0.25), moved)
    assert not np.array_equal(exact.local(1).descend(start, 0.5), moved)
    assert share.weights == [0.25, 0.75]
    assert exact.weights == [0.5, 1.5]


def test_batches_hold_only_the_clients_own_rows() -> None:
    own = np.array([3, 17, 4, 39])
    batches = Minibatches(1, 0, own, 5, 32)
    seen = np.concatenate([batches.next_round().ravel() for _ in range(20)])
    assert batches.next_round().shape == (5, 32)
    assert set(seen) == set(own)


def test_other_clients_rows_do_not_matter() -> None:
    data, start = blobs(), problem(Logistic()).start()
    spoiled = data.train_features.copy()
    spoiled[10:] = 0
    other = Dataset("x", spoiled, data.train_labels, data.test_features, data.test_labels, CLASSES, data.scale)
    settings = Logistic(batch_size=8)
    moved = problem(settings, 10).local(0).descend(start, 1.0)
    np.testing.assert_array_equal(problem(settings, 10, other).local(0).descend(start, 1.0), moved)
    own = problem(settings, 10, other).local(1).descend(start, 1.0)
    assert not np.array_equal(problem(settings, 10).local(1).descend(start, 1.0), own)


def test_evaluation_matches_plain_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_ROWS_AT_ONCE", 7)  # several chunks, the last of them short
    monkeypatch.setattr(logistic, "_COLUMNS_AT_ONCE", 2 * CLASSES)
    data, logreg = blobs(), problem(Logistic(regularisation=0.125, batch_size=8))
    models = [logreg.start() * np.float32(factor) for factor in (1, 0.5, 3, -2, 7)]
    metrics = logreg.evaluate(models)
    for index, model in enumerate(models):
        point = model.astype(np.float64)
        loss = naive_loss(point, data.train_features, data.train_labels, 0.125)
        scores = data.test_features @ point.reshape(CLASSES, FEATURES).T
        accuracy = 100 * np.mean(scores.argmax(axis=1) == data.test_labels)
        np.testing.assert_allclose(metrics.train_loss[index], loss, rtol=1e-6)
        np.testing.assert_allclose(metrics.test_accuracy[index], accuracy, rtol=1e-12)
    assert len(set(metrics.test_accuracy)) > 1
    assert np.isnan(metrics.squared_distance).all()


def test_zero_weights_cost_the_logarithm_of_the_classes() -> None:
    metrics = problem(Logistic()).evaluate([np.zeros(FEATURES * CLASSES, dtype=np.float32)])
    np.testing.assert_allclose(metrics.train_loss, [np.log(CLASSES)], rtol=1e-6)


def test_start_is_uniform_within_the_width() -> None:
    start = problem(Logistic(start_width=0.5)).start()
    assert start.dtype == np.float32
    assert start.shape == (FEATURES * CLASSES,)
    assert 0.3 < np.abs(start).max() <= 0.5
    np.testing.assert_array_equal(start, problem(Logistic(start_width=0.5)).start())


def traced_peak_bytes(batch_size: int, features: int, classes: int) -> int:
    """Bytes that one step holds at most beyond what was held before it, after a warm-up."""
    generator = np.random.default_rng(0)
    inputs, labels = generator.integers(0, 256, (64, features), dtype=np.uint8), generator.integers(0, classes, 64)
    data = Dataset("sized", inputs, labels, inputs, labels, classes, 1 / 255)
    logreg = LogisticProblem(Logistic(batch_size=batch_size), data, [np.arange(64)], 1, 0)
    weights = logreg.start().reshape(logreg.shape)
    rows = generator.integers(0, 64, batch_size)
    tracemalloc.start()
    try:
        logreg.workspace.differentiate(weights, rows, 0.5)
        tracemalloc.clear_traces()
        before = tracemalloc.get_traced_memory()[0]
        logreg.workspace.differentiate(weights, rows, 0.5)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sizes", [(3200, 784, 10), (1000, 7840, 10), (1000, 784, 100)])
def test_a_gradient_allocates_no_array(sizes: tuple[int, int, int]) -> None:
    # at these sizes even the smallest buffer, one float32 a sample, is 4,000 bytes or more; what is left are
    # Python's objects and the books numpy keeps of a reduction: together 1 to 1.3 kB, whatever the sizes
    assert traced_peak_bytes(*sizes) < 2000


def test_hits_are_those_of_argmax_also_with_equal_scores() -> None:
    generator = np.random.default_rng(1)
    scores = generator.integers(0, 3, (4, CLASSES, 50)).astype(np.float32)
    labels = generator.integers(0, CLASSES, 50)
    expected = (scores.argmax(axis=1) == labels).sum(axis=1)
    assert logistic.count_hits(scores, labels).tolist() == expected.tolist()


@pytest.mark.parametrize("local_steps", [1, 2, 7, 50])
def test_lanes_take_the_steps_of_a_model_alone_whatever_the_regulariser_keeps(local_steps: int) -> None:
    """W is multiplied by 1 - alpha·weight·nu: by 0.9995, 0.75, 0.01, 0, -0.5, and by 1 where there is none."""
    step_sizes = np.array([1e-3, 0.5, 1.98, 2.0, 3.0])
    for regularisation in (2 / 3, 0.0):  # client 1 holds three quarters of the samples
        settings = Logistic(regularisation=regularisation, batch_size=8, start_width=0.5)
        start = problem(settings).start()
        wide = problem(settings, local_steps).local(1)
        locals_alone = [problem(settings, local_steps).local(1) for _ in step_sizes]
        models = np.repeat(start[None], len(step_sizes), axis=0)
        for _ in range(2):
            alone = [
                each.descend(model, step)
                for each, model, step in zip(locals_alone, models, step_sizes.tolist(), strict=True)
            ]
            np.testing.assert_allclose(wide.descend_lanes([models], step_sizes), alone, atol=3e-5, rtol=0)
            models = np.array(alone)


def test_lanes_leave_the_models_they_start_from_alone() -> None:
    logreg, step_sizes = problem(Logistic(batch_size=8), 3), np.array([0.1, 0.2])
    models = np.repeat(logreg.start()[None], 2, axis=0)
    before, local = models.copy(), logreg.local(0)
    first = local.descend_lanes([models], step_sizes)
    np.testing.assert_array_equal(models, before)
    assert not np.shares_memory(first, models)
    assert np.shares_memory(first, local.descend_lanes([models], step_sizes))  # lent until the next call


@pytest.mark.parametrize("local_steps", [1, 3])
def test_lanes_of_several_arrays_are_those_of_one(local_steps: int) -> None:
    logreg, step_sizes = problem(Logistic(batch_size=8), local_steps), np.array([0.1, 0.2, 0.5, 1.0])
    models = np.stack([logreg.start() * np.float32(factor) for factor in (1, 2, -1, 3)])
    whole = logreg.local(1).descend_lanes([models], step_sizes).copy()
    parts = logreg.local(1).descend_lanes([models[:1].copy(), models[1:3].copy(), models[3:].copy()], step_sizes)
    assert parts.shape == whole.shape == models.shape
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_lanes_that_lack_a_model_are_refused() -> None:
    logreg = problem(Logistic(batch_size=8))
    start, step_sizes = logreg.start()[None], np.array([0.1, 0.2])
    for models in ([start], [start] * 3):
        with pytest.raises(ValueError, match="cannot reshape array|Output array is the wrong shape"):
            logreg.local(0).descend_lanes(models, step_sizes)


def test_lanes_skip_local_steps() -> None:
    logreg, step_sizes = problem(Logistic(batch_size=8), 3), np.array([0.1, 0.2])
    models = np.repeat(logreg.start()[None], 2, axis=0)
    late, whole = logreg.local(0), logreg.local(0)
    late.skip(3)
    whole.descend_lanes([models], step_sizes)
    second = whole.descend_lanes([models], step_sizes).copy()
    np.testing.assert_array_equal(late.descend_lanes([models], step_sizes), second)
