"""Features of every type: the same numbers give the same bits, bytes or floats; sparse ones are never made dense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.support.samples import blobs, parts

from areabench.cli.main import main
from areabench.problems.base import Problem
from areabench.problems.datasets import Dataset
from areabench.problems.hinge import Hinge, HingeProblem
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.torch_module import TorchModule

KINDS = [np.float16, np.float32, np.float64, np.int16, np.uint32, np.int64]


def with_type(kind: Any) -> Dataset:
    """The samples with features of another type."""
    data = blobs()
    return replace(data, train_features=data.train_features.astype(kind), test_features=data.test_features.astype(kind))


def problem_on(name: str, data: Dataset) -> Problem:
    """A problem over these samples."""
    if name == "logistic":
        return LogisticProblem(Logistic(batch_size=4), data, parts(), 3, 7)
    if name == "hinge":
        return HingeProblem(Hinge(batch_size=4), data, parts(), 3, 7)
    pytest.importorskip("torch")
    from areabench.problems.torch_flat import TorchProblem

    settings = TorchModule(module="areabench.problems.examples:mlp", batch_size=4)
    return TorchProblem(settings, data, parts(), 3, 7)


@pytest.mark.parametrize("name", ["logistic", "hinge", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_numbers_give_the_same_bits(name: str, kind: Any) -> None:
    found = []
    for data in (blobs(), with_type(kind)):
        problem = problem_on(name, data)
        model = problem.local(1).descend(problem.start(), 0.5)
        metrics = problem.evaluate([model])
        found.append((model.tobytes(), metrics.train_loss[0], metrics.test_accuracy[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_take_features_of_every_type(kind: Any) -> None:
    found = []
    for data in (blobs(), with_type(kind)):
        problem = LogisticProblem(Logistic(batch_size=4), data, parts(), 3, 7)
        models = np.stack([problem.start()] * 2)
        found.append(problem.local(1).descend_lanes([models], np.array([0.1, 0.5])).tobytes())
    assert found[0] == found[1]


def test_a_table_of_small_and_negative_numbers_is_learnt() -> None:
    """Rounding to whole numbers would make all of them equal."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 2
    features = np.where(labels == 1, 0.1, -0.1)[:, None] + 0.01 * generator.standard_normal((40, 3))
    data = Dataset("table", features, labels, features, labels, classes=2, scale=1.0)
    problem = LogisticProblem(Logistic(batch_size=4, weighting="exact", start_width=0.0), data, parts(), 200, 7)
    assert problem.evaluate([problem.local(1).descend(problem.start(), 1.0)]).test_accuracy[0] == 100


# ---------------------------------------------------------------------------------------------------- sparse

TOML = """
name = "sparse"
[clients]
count = 3
[method]
name = "area"
step_size = 0.05
[problem]
name = "{problem}"
[data]
name = "file"
file = "samples.svm"
[split]
name = "iid"
[stop]
horizon_s = 0.5
"""


def thinned() -> Dataset:
    """The samples with two thirds of the features set to 0."""
    data, generator = blobs(), np.random.default_rng(5)
    kept = [generator.random(each.shape) < 1 / 3 for each in (data.train_features, data.test_features)]
    return replace(
        data,
        train_features=np.where(kept[0], data.train_features, 0).astype(np.float32),
        test_features=np.where(kept[1], data.test_features, 0).astype(np.float32),
    )


def problems() -> tuple[LogisticProblem, LogisticProblem]:
    """The same problem on dense and on sparse features."""
    dense = thinned()
    sparse = replace(
        dense, train_features=csr_array(dense.train_features), test_features=csr_array(dense.test_features)
    )
    settings = Logistic(batch_size=4, weighting="exact", regularisation=0.1)
    return tuple(LogisticProblem(settings, data, parts(), 3, 7) for data in (dense, sparse))  # type: ignore[return-value]


@pytest.fixture
def never_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would make a sparse array dense fails."""

    def fail(*_given: Any, **_options: Any) -> None:
        raise AssertionError("a sparse array was made dense")

    for name in ("toarray", "todense", "__array__"):
        monkeypatch.setattr(csr_array, name, fail, raising=False)


@pytest.mark.usefixtures("never_dense")
def test_sparse_features_give_what_dense_ones_give() -> None:
    dense, sparse = problems()
    models = [problem.local(1).descend(problem.start(), 0.5) for problem in (dense, sparse)]
    np.testing.assert_allclose(models[1], models[0], rtol=1e-5, atol=1e-6)
    gradients = [problem.local(0).gradient(models[0]) for problem in (dense, sparse)]
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
    one, other = (problem.evaluate([models[0]]) for problem in (dense, sparse))
    np.testing.assert_allclose(other.train_loss, one.train_loss, rtol=1e-6)
    assert other.test_accuracy.tolist() == one.test_accuracy.tolist()


@pytest.mark.usefixtures("never_dense")
def test_constants_and_minimiser_of_sparse_features() -> None:
    dense, sparse = problems()
    assert pytest.approx(dense.L, rel=1e-9) == sparse.L
    assert sparse.sigma == pytest.approx(dense.sigma, rel=1e-9)
    np.testing.assert_allclose(sparse.optimum.minimiser, dense.optimum.minimiser, atol=1e-8)
    assert sparse.zeta == pytest.approx(dense.zeta, rel=1e-6)


def test_the_digest_tells_sparse_features_apart() -> None:
    _, sparse = problems()
    features = sparse.data.train_features.copy()
    features.data[0] += 1
    assert replace(sparse.data, train_features=features).digest() != sparse.data.digest()


def write(folder: Path, problem: str) -> Path:
    """An experiment on ten samples of 1,000 features, of which each has two."""
    lines = [f"{1 - 2 * (row % 2)} {1 + row % 2}:1 {990 + row}:0.5\n" for row in range(10)]
    (folder / "samples.svm").write_text("".join(lines))
    path = folder / "sparse.toml"
    path.write_text(TOML.format(problem=problem))
    return path


@pytest.mark.usefixtures("never_dense")
def test_a_run_makes_nothing_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "logistic")
    assert main(["check", str(path)]) == 0
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    assert main(["replay", "run.h5"]) == 0


@pytest.mark.parametrize("problem", ["hinge", "regression"])
def test_other_problems_refuse_sparse_features(
    problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, problem)
    assert main(["simulate", str(path)]) == 2
    assert (
        f'has sparse features, which problem "{problem}" does not take; set data.dense = true'
        in capsys.readouterr().err
    )
    assert main(["simulate", str(path), "--set", "data.dense=true"]) == 0
