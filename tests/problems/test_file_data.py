"""Data from files: each format by hand, what is drawn and numbered, and what is refused."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import areabench
from areabench.engine.data import load_data
from areabench.errors import UserError
from areabench.problems.data.file import File
from areabench.problems.data.scikit_learn import ScikitLearn
from areabench.problems.datasets import Dataset, is_sparse

CSV = "a,b,kind\n1,2.5,x\n-3,4,y\n5,6,x\n7,8,y\n9,10,x\n"
LIBSVM = "-1 1:0.5 3:2\n+1 2:1 # note\n-1\n1 1:1 3:-1\n-1 qid:3 3:4\n"


def loaded(path: Path, **settings: Any) -> Dataset:
    """The data set of a file."""
    return load_data(File(file=str(path), **settings), path.parent)


def written(path: Path, content: str | bytes | Mapping[str, Any]) -> Path:
    """A file with some content: text, bytes, or arrays in the .npz format."""
    if isinstance(content, Mapping):
        np.savez(path, **content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def idx(array: NDArray[np.uint8]) -> bytes:
    """Bytes in the IDX format."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def by_first(data: Dataset) -> dict[float, int]:
    """Each sample's first feature and its class, of training and testing together."""
    features = np.concatenate([data.train_features[:, 0], data.test_features[:, 0]])
    labels = np.concatenate([data.train_labels, data.test_labels])
    return dict(zip(features.tolist(), labels.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("names", [("x_{}", "y_{}"), ("X_{}", "Y_{}"), ("{}_features", "{}_labels")])
def test_an_npz_file_with_a_test_part(names: tuple[str, str], tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for part, rows in (("train", 3), ("test", 2)):
        arrays[names[0].format(part)] = np.arange(rows * 4.0).reshape(rows, 2, 2)
        arrays[names[1].format(part)] = np.arange(rows, dtype=np.int8)
    data = loaded(written(tmp_path / "table.npz", arrays))
    assert data.train_features.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (data.test_features.shape, data.train_labels.tolist(), data.test_labels.tolist()) == (
        (2, 4),
        [0, 1, 2],
        [0, 1],
    )
    assert (data.name, data.classes, data.scale) == ("table.npz", 3, 1.0)
    assert data.train_labels.dtype == np.int64
    assert not data.train_features.flags.writeable


def test_bytes_stay_bytes_and_are_scaled(tmp_path: Path) -> None:
    arrays = {"x": np.arange(20, dtype=np.uint8).reshape(10, 2), "y": np.arange(10) % 2}
    data = loaded(written(tmp_path / "bytes.npz", arrays))
    assert (data.train_features.dtype, data.scale) == (np.uint8, 1 / 255)
    assert loaded(tmp_path / "bytes.npz", scale=0.5).scale == 0.5


def test_a_csv_file_has_texts_as_labels_in_its_last_column(tmp_path: Path) -> None:
    data = loaded(written(tmp_path / "t.csv", CSV), test_share=0.4)
    assert by_first(data) == {1.0: 0, -3.0: 1, 5.0: 0, 7.0: 1, 9.0: 0}
    assert (data.class_names, data.train_features.shape, len(data.test_labels)) == (("x", "y"), (3, 2), 2)
    numbers = loaded(written(tmp_path / "n.csv", "2,0.5\n1,0.25\n2,0.75\n"), label="0")
    assert by_first(numbers) == {0.5: 1, 0.25: 0, 0.75: 1}
    columns = loaded(written(tmp_path / "h.csv", "1,2,kind\n5,6,x\n7,8,y\n"), label="kind")
    assert by_first(columns) == {5.0: 0, 7.0: 1}


@pytest.mark.parametrize("label", ["kind", "2", None])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("has_header", [True, False])
def test_the_column_of_labels_is_named_or_numbered(
    label: str | None, separator: str, has_header: bool, tmp_path: Path
) -> None:
    text = CSV.replace(",", separator)
    if not has_header:
        text = text.partition("\n")[2]
        label = None if label == "kind" else label
    found = by_first(loaded(written(tmp_path / "t.csv", text), label=label))
    assert (found[-3.0], len(found)) == (1, 5)


def test_libsvm_text_stays_sparse(tmp_path: Path) -> None:
    data = loaded(written(tmp_path / "t.svm", LIBSVM), test_file=str(written(tmp_path / "test", "1 4:1\n")))
    assert is_sparse(data.train_features)
    assert data.train_features.toarray().tolist() == [
        [0.5, 0, 2, 0],
        [0, 1, 0, 0],
        [0] * 4,
        [1, 0, -1, 0],
        [0, 0, 4, 0],
    ]
    assert data.test_features.shape == (1, 4)  # as wide as the wider part
    assert (data.train_labels.tolist(), data.class_names) == ([0, 1, 0, 1, 0], ("-1", "1"))


def test_libsvm_text_may_count_from_zero_and_be_made_dense(tmp_path: Path) -> None:
    data = loaded(written(tmp_path / "t", "0 0:1 2:3\n1 1:2\n0 0:4\n"), dense=True)
    rows = np.concatenate([data.train_features, data.test_features]).tolist()
    assert sorted(rows) == [[0, 2, 0], [1, 0, 3], [4, 0, 0]]


def test_idx_files_in_a_folder(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("t10k", 2)):
        images = np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2)
        written(tmp_path / f"{part}-images-idx3-ubyte.gz", gzip.compress(idx(images)))
        written(tmp_path / f"{part}-labels-idx1-ubyte.gz", gzip.compress(idx(np.arange(count, dtype=np.uint8))))
    data = loaded(tmp_path)
    assert data.train_features.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (data.test_features.shape, data.train_labels.tolist(), data.scale) == ((2, 4), [0, 1, 2], 1 / 255)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    assert len(loaded(file, test_file=str(file)).test_labels) == 3


# ---------------------------------------------------------------------------------------------------- data sets


def test_the_test_samples_are_drawn_once(tmp_path: Path) -> None:
    path = written(tmp_path / "t.npz", {"x": np.arange(40.0).reshape(20, 2), "y": np.arange(20) // 10})
    first, same, other = (loaded(path, seed=seed) for seed in (1, 1, 2))
    assert first.digest() == same.digest() != other.digest()
    assert (len(first.train_labels), len(first.test_labels)) == (16, 4)
    assert (np.diff(first.train_features[:, 0]) > 0).all()
    assert set(first.train_features[:, 0]).isdisjoint(first.test_features[:, 0])


def test_features_are_standardised_over_the_training_samples(tmp_path: Path) -> None:
    arrays = {"x_train": [[1, 5], [3, 5]], "y_train": [0, 1], "x_test": [[5, 6]], "y_test": [0]}
    data = loaded(written(tmp_path / "t.npz", arrays), standardise=True)
    assert data.train_features.tolist() == [[-1, 0], [1, 0]]
    assert data.test_features.tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("kind", "settings", "constant"),
    [
        ("f4", {}, 1),
        ("f4", {"scale": 0.5}, 2),
        ("u1", {}, 255),
        ("i4", {"scale": 3.0}, 1),
        ("u1", {"scale": 0.001}, 255),
    ],
)
def test_an_intercept_is_a_feature_that_a_model_sees_as_1(
    kind: str, settings: dict[str, Any], constant: float, tmp_path: Path
) -> None:
    arrays = {"x_train": np.array([[4, 5], [6, 7]], kind), "y_train": [0, 1], "x_test": np.ones((1, 2), kind)}
    data = loaded(written(tmp_path / "t.npz", {**arrays, "y_test": [0]}), intercept=True, **settings)
    assert (data.train_features.dtype, data.train_features.tolist()) == (kind, [[4, 5, constant], [6, 7, constant]])
    assert data.test_features.tolist() == [[1, 1, constant]]


def test_an_intercept_keeps_sparse_features_sparse_and_separates_what_lies_on_a_ray(tmp_path: Path) -> None:
    """Without one, no linear model tells a class around 0 from those around 4 and 8."""
    lines = [f"{label} 1:{4 * label + shift / 10}" for label in (0, 1, 2) for shift in range(-5, 6)]
    (tmp_path / "ray.svm").write_text("\n".join(lines))
    sections: dict[str, Any] = {"clients": {"count": 1}, "method": {"name": "area", "step_size": 0.3}}
    sections |= {"problem": {"name": "logistic", "start_width": 0.0}, "stop": {"horizon_s": 200.0}}
    found = {}
    for intercept in (False, True):
        data = {"name": "file", "file": str(tmp_path / "ray.svm"), "intercept": intercept}
        with areabench.simulate(sections, data=data, split="iid") as run:
            found[intercept] = run.summary().test_accuracy
    assert is_sparse(loaded(tmp_path / "ray.svm", intercept=True).train_features)
    assert found[True] == 100 > found[False]


def test_a_regression_keeps_its_targets_and_splits_by_tenths(tmp_path: Path) -> None:
    targets = np.arange(100) / 4
    arrays = {"x_train": targets[:, None], "y_train": targets, "x_test": [[1.0]], "y_test": [2.5]}
    path = written(tmp_path / "t.npz", arrays)
    data = loaded(path, task="regression")
    assert (data.classes, data.test_labels.tolist()) == (0, [2.5])
    assert data.train_labels.dtype == np.float64
    assert np.bincount(data.groups).tolist() == [10] * 10
    assert abs(float(loaded(path, task="regression", standardise=True).train_labels.mean())) < 1e-12


@pytest.mark.parametrize(
    ("name", "classes", "samples", "features"),
    [("iris", 3, 150, 4), ("wine", 3, 178, 13), ("breast_cancer", 2, 569, 30), ("diabetes", 0, 442, 10)],
)
def test_the_tables_of_scikit_learn(name: Any, classes: int, samples: int, features: int, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    data = load_data(ScikitLearn(set=name), tmp_path)
    assert (data.classes, len(data.class_names), data.train_features.shape[1]) == (classes, classes, features)
    assert (len(data.train_labels), len(data.test_labels)) == (samples - round(samples / 5), round(samples / 5))
    np.testing.assert_allclose(data.train_features.std(axis=0), 1)
    raw = load_data(ScikitLearn(set=name, standardise=False), tmp_path)
    assert max(raw.train_labels.max(), raw.test_labels.max()) == (classes - 1 if classes else 346)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "content", "settings", "words"),
    [
        ("t.csv", "", {}, "holds no sample"),
        ("t.csv", "a,b\n", {}, "has a header only"),
        ("t.csv", "1\n2\n", {}, "has the first line '1'; separate a column of labels"),
        ("t.csv", CSV, {"label": "c"}, "has no column 'c', but a, b, kind; correct data.label"),
        ("t.csv", "1,2,0\n3,x,1\n", {}, "could not convert string 'x' to float64 at row 1, column 2"),
        ("t.csv", "1,2,0\n3,nan,1\n", {}, "1 features are not finite (NaN or infinite); fill or drop them"),
        ("t.csv", "1,0.5\n2,0.5\n", {}, 'has the label 0.5, which is no class; set data.task = "regression"'),
        ("t.csv", "1,0\n", {}, "1 samples leave none to train on with data.test_share = 0.2"),
        ("t.csv", "1,a\n2,b\n", {"task": "regression"}, "that are not all finite numbers; correct them"),
        ("t.csv", "".join(f"{i},{i}\n" for i in range(300)), {}, "has 300 classes in 300 samples; set data.task"),
        ("t.svm", "1 1:2 3\n0 2:1\n", {}, "sample 1 is '1 1:2 3'; write label index:value"),
        ("t.svm", LIBSVM, {"standardise": True}, "data.standardise would fill a sparse array; leave it out, or set"),
        ("t.bin", b"\xff\xfe\x00", {}, "is not .npz, IDX or text (invalid start byte at byte 0)"),
        ("t.gz", b"\x1f\x8b\x00", {}, "cannot be read ("),
        ("t.npz", b"PK\3\4 and more", {}, "cannot be read as .npz"),
        ("x-images", b"\0\0\x08\x01\0\0\0\2\1", {}, "has 9 bytes, its shape (2,) needs 10; fetch it again"),
        ("x-images", idx(np.zeros((2, 2), np.uint8)), {}, "has no file of labels beside it, x-labels"),
        ("t.npz", {"a": [1]}, {}, "has the arrays a; name them x_train, y_train, x_test and y_test"),
        ("t.npz", {"x": [[1.0]], "y": [1, 2]}, {}, "x has the shape (1, 1) and y (2,); give (samples, ...)"),
        ("t.npz", {"x": np.zeros((2, 1)), "y": np.array([{}, {}])}, {}, "as .npz (Object arrays cannot be"),
        ("t.npz", {"x": np.array([["a"], ["b"], ["c"]]), "y": [0, 1, 0]}, {}, "has features of type <U1; give numbers"),
        (
            "t.npz",
            {"x_train": np.zeros((2, 1)), "y_train": [0, 1], "x_test": [[1, 2]], "y_test": [0]},
            {},
            "1 features to train on",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(
    name: str, content: str | bytes | Mapping[str, Any], settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(UserError) as refusal:
        loaded(path, **settings)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"data file {path}: ")


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read .No such file or directory.; check data.file"):
        loaded(tmp_path / "none.csv")
    with pytest.raises(UserError, match="has no file train-images-idx3-ubyte"):
        loaded(tmp_path)
