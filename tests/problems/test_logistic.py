"""Logistic regression: steps by hand, many lanes, features of every type, minimisers and constants."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from tests.support.samples import CLASSES, FEATURES, TRAIN, blobs, parts

from areabench.arrays import Vector
from areabench.cli.main import main
from areabench.errors import UserError
from areabench.problems.base import ClientData
from areabench.problems.datasets import Dataset
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic, LogisticProblem, Workspace, count_hits
from areabench.problems.logistic_optimum import CrossEntropy, largest_eigenvalue
from areabench.problems.optimum import minimise
from areabench.problems.torch_module import TorchModule

EXACT = Logistic(regularisation=0.05, batch_size=8, weighting="exact", minimiser=True)


def problem(settings: Logistic = EXACT, local_steps: int = 1, data: Dataset | None = None) -> LogisticProblem:
    """The two clients of `tests/support/samples.py`, seed 5."""
    return LogisticProblem(settings, data or blobs(), parts(), local_steps, 5)


# ---------------------------------------------------------------------------------------------------- one model


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
    share = problem(replace(EXACT, weighting="share"), local_steps=5)
    exact = problem(local_steps=5)
    start = share.start()
    np.testing.assert_array_equal(exact.local(1).descend(start, 0.25), share.local(1).descend(start, 0.5))
    assert (share.weights, exact.weights) == ([0.25, 0.75], [0.5, 1.5])
    assert (exact.mu, exact.L, exact.sigma) == pytest.approx((2 * share.mu, 2 * share.L, 2 * share.sigma), rel=1e-15)
    np.testing.assert_array_equal(exact.optimum.minimiser, share.optimum.minimiser)
    assert (exact.optimum.minimum, exact.zeta) == (share.optimum.minimum, share.zeta)


@pytest.mark.parametrize("sizes", [(3200, 784, 10), (1000, 7840, 10), (1000, 784, 100)])
def test_a_gradient_allocates_no_array(sizes: tuple[int, int, int]) -> None:
    batch_size, features, classes = sizes
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (64, features), dtype=np.uint8)
    labels = generator.integers(0, classes, 64)
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
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # at these sizes even the smallest buffer, one float32 a sample, is 4,000 bytes or more; what is left are
    # Python's objects and the books numpy keeps of a reduction: together 1 to 1.3 kB, whatever the sizes
    assert peak < 2000


def test_hits_are_those_of_argmax_also_with_equal_scores() -> None:
    generator = np.random.default_rng(1)
    scores = generator.integers(0, 3, (4, CLASSES, 50)).astype(np.float32)
    labels = generator.integers(0, CLASSES, 50)
    expected = (scores.argmax(axis=1) == labels).sum(axis=1)
    assert count_hits(scores, labels).tolist() == expected.tolist()


# ---------------------------------------------------------------------------------------------------- lanes

SIZES = np.array([0.1, 0.2, 0.5, 1.0])


def stacked() -> Vector:
    """Four models."""
    return np.stack([problem().start() * np.float32(factor) for factor in (1, 2, -1, 3)])


@pytest.mark.parametrize("local_steps", [1, 2, 7, 50])
def test_lanes_take_the_steps_of_a_model_alone_whatever_the_regulariser_keeps(local_steps: int) -> None:
    """W is multiplied by 1 - alpha·weight·nu: by 0.9995, 0.75, 0.01, 0, -0.5, and by 1 where there is none."""
    step_sizes = np.array([1e-3, 0.5, 1.98, 2.0, 3.0])
    for regularisation in (2 / 3, 0.0):  # client 1 holds three quarters of the samples
        settings = Logistic(regularisation=regularisation, batch_size=8, start_width=0.5)
        wide = problem(settings, local_steps).local(1)
        locals_alone = [problem(settings, local_steps).local(1) for _ in step_sizes]
        models = np.repeat(problem(settings).start()[None], len(step_sizes), axis=0)
        for _ in range(2):
            lanes = zip(locals_alone, models, step_sizes.tolist(), strict=True)
            alone = np.array([local.descend(model, step_size) for local, model, step_size in lanes])
            np.testing.assert_allclose(wide.descend_lanes([models], step_sizes), alone, atol=3e-5, rtol=0)
            models = alone


@pytest.mark.parametrize("local_steps", [1, 3])
def test_lanes_of_several_arrays_are_those_of_one_and_leave_them_alone(local_steps: int) -> None:
    logreg = problem(local_steps=local_steps)
    models = stacked()
    local = logreg.local(1)
    lent = local.descend_lanes([models], SIZES)
    whole = lent.copy()
    np.testing.assert_array_equal(models, stacked())
    in_parts = logreg.local(1).descend_lanes([models[:1].copy(), models[1:3].copy(), models[3:].copy()], SIZES)
    assert in_parts.shape == whole.shape == models.shape
    np.testing.assert_allclose(in_parts, whole, atol=1e-6)
    assert not np.shares_memory(lent, models)
    assert np.shares_memory(lent, local.descend_lanes([models], SIZES))  # lent until the next call


def test_lanes_that_lack_a_model_are_refused() -> None:
    start = problem().start()[None]
    for models in ([start], [start] * 3):
        with pytest.raises(ValueError, match="cannot reshape array|Output array is the wrong shape"):
            problem().local(0).descend_lanes(models, SIZES[:2])


# ---------------------------------------------------------------------------------------------------- features


def with_features(change: Any) -> Dataset:
    """The samples with both arrays of features changed."""
    data = blobs()
    return replace(data, train_features=change(data.train_features), test_features=change(data.test_features))


MLP = TorchModule(module="areabench.problems.examples:mlp", batch_size=4)


@pytest.mark.parametrize("settings", [Logistic(batch_size=4), Hinge(batch_size=4), MLP], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int16, np.uint32, np.int64])
def test_the_same_numbers_give_the_same_bits(settings: Any, kind: Any) -> None:
    if settings is MLP:
        pytest.importorskip("torch")
    found = []
    for data in (blobs(), with_features(lambda features: features.astype(kind))):
        made = settings.build(ClientData(data, parts()), 2, 3, 7)
        model = made.local(1).descend(made.start(), 0.5)
        metrics = made.evaluate([model])
        found.append([model.tobytes(), metrics.train_loss[0], metrics.test_accuracy[0]])
        if isinstance(settings, Logistic):
            stack = np.stack([made.start()] * 2)
            found[-1].append(made.local(1).descend_lanes([stack], np.array([0.1, 0.5])).tobytes())
    assert found[0] == found[1]


def test_small_and_negative_features_are_learnt() -> None:
    """Rounding to whole numbers would make all of them equal."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 2
    features = np.where(labels == 1, 0.1, -0.1)[:, None] + 0.01 * generator.standard_normal((40, 3))
    data = Dataset("table", features, labels, features, labels, classes=2, scale=1.0)
    logreg = problem(Logistic(batch_size=4, weighting="exact", start_width=0.0), 200, data)
    assert logreg.evaluate([logreg.local(1).descend(logreg.start(), 1.0)]).test_accuracy[0] == 100


@pytest.fixture
def never_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would make a sparse array dense fails."""

    def fail(*_given: Any, **_options: Any) -> None:
        raise AssertionError("a sparse array was made dense")

    for name in ("toarray", "todense", "__array__"):
        monkeypatch.setattr(csr_array, name, fail, raising=False)


@pytest.mark.usefixtures("never_dense")
def test_sparse_features_give_what_dense_ones_give() -> None:
    generator = np.random.default_rng(5)
    thinned = with_features(
        lambda features: np.where(generator.random(features.shape) < 1 / 3, features, 0).astype(np.float32)
    )
    sparse = replace(
        thinned, train_features=csr_array(thinned.train_features), test_features=csr_array(thinned.test_features)
    )
    settings = Logistic(batch_size=4, weighting="exact", regularisation=0.1)
    one, other = (problem(settings, 3, data) for data in (thinned, sparse))
    models = [each.local(1).descend(each.start(), 0.5) for each in (one, other)]
    np.testing.assert_allclose(models[1], models[0], rtol=1e-5, atol=1e-6)
    gradients = [each.local(0).gradient(models[0]) for each in (one, other)]
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
    metrics, again = (each.evaluate([models[0]]) for each in (one, other))
    np.testing.assert_allclose(again.train_loss, metrics.train_loss, rtol=1e-6)
    assert again.test_accuracy.tolist() == metrics.test_accuracy.tolist()
    assert (other.L, other.sigma, other.zeta) == pytest.approx((one.L, one.sigma, one.zeta), rel=1e-6)
    np.testing.assert_allclose(other.optimum.minimiser, one.optimum.minimiser, atol=1e-8)
    changed = sparse.train_features.copy()
    changed.data[0] += 1
    assert replace(sparse, train_features=changed).digest() != sparse.digest()


TOML = """
name = "sparse"
clients.count = 3
method = {{ name = "area", step_size = 0.05 }}
problem.name = "{problem}"
data = {{ name = "file", file = "samples.svm" }}
split.name = "iid"
stop.horizon_s = 0.5
"""


def write_sparse(folder: Path, problem: str) -> str:
    """An experiment on ten samples of 1,000 features, of which each has two."""
    lines = [f"{1 - 2 * (row % 2)} {1 + row % 2}:1 {990 + row}:0.5\n" for row in range(10)]
    (folder / "samples.svm").write_text("".join(lines))
    (folder / "sparse.toml").write_text(TOML.format(problem=problem))
    return "sparse.toml"


@pytest.mark.usefixtures("never_dense")
def test_a_run_makes_nothing_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_sparse(tmp_path, "logistic")
    for command in (["check", path], ["simulate", path, "-o", "run.h5"], ["replay", "run.h5"]):
        assert main(command) == 0


@pytest.mark.parametrize("name", ["hinge", "regression"])
def test_other_problems_refuse_sparse_features(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_sparse(tmp_path, name)
    assert main(["simulate", path]) == 2
    assert f'sparse features, which problem "{name}" does not take; set data.dense = true' in capsys.readouterr().err
    assert main(["simulate", path, "--set", "data.dense=true"]) == 0


# ---------------------------------------------------------------------------------------------------- minimisers


def local_loss(rows: Any) -> CrossEntropy:
    """fhat over some rows."""
    data = blobs()
    return CrossEntropy(data.train_features[rows] / 255, data.train_labels[rows], CLASSES, EXACT.regularisation)


def points(seed: int, width: float) -> NDArray[np.float64]:
    """Two models with independent entries."""
    return width * np.random.default_rng(seed).standard_normal((2, FEATURES * CLASSES))


def test_value_and_gradient_by_hand() -> None:
    # one sample (1, 0) of class 0, W = 0: ln 2, and the gradient is -½ for class 0 and +½ for class 1
    loss = CrossEntropy(np.array([[1.0, 0.0]]), np.array([0]), 2, 0.5)
    value, gradient = loss.value_and_gradient(np.zeros(4))
    assert value == pytest.approx(np.log(2), rel=1e-15)
    np.testing.assert_array_equal(gradient, [-0.5, 0, 0.5, 0])
    # the Hessian is (diag(½, ½) - ¼)·xx' + ½: 0.75 and -0.25 where x is 1
    step = loss.newton_step(np.zeros(4), gradient)
    hessian = np.array([[0.75, 0, -0.25, 0], [0, 0.5, 0, 0], [-0.25, 0, 0.75, 0], [0, 0, 0, 0.5]])
    np.testing.assert_allclose(hessian @ step, -gradient, atol=1e-12)


def test_gradient_and_hessian_match_finite_differences() -> None:
    loss = local_loss(parts()[1])
    point = points(1, 1.0)[0]
    axes = 1e-5 * np.eye(len(point))
    slopes = [(loss.value_and_gradient(point + a)[0] - loss.value_and_gradient(point - a)[0]) / 2e-5 for a in axes]
    np.testing.assert_allclose(loss.gradient(point), slopes, atol=1e-9)
    hessian = np.array([loss.gradient(point + axis) - loss.gradient(point - axis) for axis in axes]) / 2e-5
    gradient = 1e-7 * loss.gradient(point)  # so small that the step is solved for to many digits
    np.testing.assert_allclose(hessian @ loss.newton_step(point, gradient), -gradient, atol=1e-12)


def test_minimisers_agree_with_another_method() -> None:
    logreg = problem()
    found = logreg.optimum
    whole, *locals_ = (local_loss(rows) for rows in (np.arange(TRAIN), *parts()))
    other = minimize(whole.value_and_gradient, np.zeros(logreg.dimension), jac=True, method="BFGS")
    np.testing.assert_allclose(found.minimiser, other.x, atol=1e-3)
    assert found.exact
    assert found.minimum == pytest.approx(whole.value_and_gradient(found.minimiser)[0], rel=1e-14)
    assert found.minimum <= other.fun + 1e-15
    assert np.linalg.norm(whole.gradient(found.minimiser)) <= 1.01e-10
    # zeta is the distance to the farthest local minimiser
    ends = [minimize(loss.value_and_gradient, other.x, jac=True, method="BFGS").x for loss in locals_]
    distances = [np.linalg.norm(end - found.minimiser) for end in ends]
    assert logreg.zeta == pytest.approx(max(distances), rel=1e-3)
    assert logreg.zeta > 1.2 * min(distances)


def test_rows_that_no_client_holds_do_not_count() -> None:
    fewer = LogisticProblem(EXACT, blobs(), [np.arange(10), np.arange(10, 30)], 1, 5)
    assert not np.allclose(fewer.optimum.minimiser, problem().optimum.minimiser, atol=1e-3)
    assert np.linalg.norm(local_loss(np.arange(30)).gradient(fewer.optimum.minimiser)) <= 1.01e-10


def test_squared_distance_is_to_the_minimiser() -> None:
    logreg = problem()
    minimiser = logreg.optimum.minimiser
    metrics = logreg.evaluate([(minimiser + 1).astype(np.float32), minimiser.astype(np.float32)], with_loss=False)
    np.testing.assert_allclose(metrics.squared_distance, [FEATURES * CLASSES, 0.0], rtol=1e-6, atol=1e-10)


def test_newtons_method_takes_shorter_steps_where_it_must_and_says_where_it_is_stuck() -> None:
    # whole steps on arctan end ever farther from 0
    found = minimise(np.arctan, lambda point, gradient: -gradient * (1 + point**2), np.array([3.0]), 1e-10, "arctan")
    np.testing.assert_allclose(found, [0.0], atol=1e-10)
    with pytest.raises(UserError, match=r"^problem x: .* norm 1, above 1e-10; .* change its settings or the seed$"):
        minimise(lambda point: np.ones(1), lambda point, gradient: -gradient, np.zeros(1), 1e-10, "problem x")


# ---------------------------------------------------------------------------------------------------- constants


def test_constants_by_hand() -> None:
    # one client, samples (1, 0) and (0, 3): X'X/2 has the eigenvalues ½ and 4.5; mean |x|² = 5
    features, labels = np.array([[1, 0], [0, 3]], dtype=np.uint8), np.array([0, 1])
    data = Dataset("hand", features, labels, features, labels, 2, 1.0)
    logreg = LogisticProblem(Logistic(regularisation=0.5, batch_size=10), data, [np.arange(2)], 1, 0)
    assert (logreg.mu, logreg.L, logreg.sigma) == pytest.approx((0.5, 0.5 + 2.25, 1.0), rel=1e-15)
    assert problem().mu == 2 * 0.25 * 0.05  # client 0 holds a quarter


def test_largest_eigenvalue_of_wide_and_tall() -> None:
    tall = np.random.default_rng(1).standard_normal((7, 3))
    for inputs in (tall, tall.T):
        expected = np.linalg.norm(inputs, 2) ** 2 / len(inputs)
        assert largest_eigenvalue(inputs) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1000), st.integers(0, 1))
def test_curvature_and_noise_are_within_the_constants(seed: int, width: float, client: int) -> None:
    logreg = problem()
    weight = logreg.weights[client]
    one, other = points(seed, min(width, 100.0))
    loss = local_loss(logreg.parts[client])
    rise = weight * (loss.gradient(one) - loss.gradient(other))
    length = float(np.linalg.norm(one - other))
    assert np.linalg.norm(rise) <= logreg.L * length * (1 + 1e-12)
    assert rise @ (one - other) >= logreg.mu * length**2 * (1 - 1e-12)
    far = points(seed, width)[0]
    single = np.array([local_loss([row]).gradient(far) for row in logreg.parts[client]])
    variance = ((single - single.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert weight**2 * variance / EXACT.batch_size <= logreg.sigma**2
