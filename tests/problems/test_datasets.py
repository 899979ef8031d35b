"""Data sets: what is in them, and what happens when package or cache are damaged."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from areabench.engine.data import load_data
from areabench.errors import UserError
from areabench.problems.data import images, synthetic
from areabench.problems.data.digits import Digits
from areabench.problems.data.fashion_mnist import FashionMnist
from areabench.problems.data.images import IdxFile, ImageSet, image_folder, read_idx, unpack_images
from areabench.problems.data.mnist import MNIST, MNIST_FILES, Mnist
from areabench.problems.data.settings import DataSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.datasets import Dataset, default_cache

PACKAGE = resources.files("areabench") / "data" / "mnist"
TRAIN_IMAGES, TRAIN_LABELS = MNIST_FILES[:2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with MNIST in it, in a folder that did not exist."""
    folder = tmp_path_factory.mktemp("cache") / "below"
    Mnist().prepare(folder)
    return folder


@pytest.fixture
def own_cache(cache: Path, tmp_path: Path) -> Path:
    """A copy of the cache that a test may damage; files are links until a test replaces them."""
    shutil.copytree(cache, tmp_path / "cache", copy_function=lambda old, new: Path(new).symlink_to(old))
    return tmp_path / "cache"


def cached(cache: Path, file: IdxFile = TRAIN_LABELS) -> Path:
    """The file of one array in the cache."""
    return image_folder(cache, MNIST) / f"{file.name}.npy"


def replace(path: Path, content: bytes) -> None:
    """Put other content in the place of a cached file."""
    path.unlink()
    path.write_bytes(content)


def with_a_bit_changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_mnist(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "read_idx", None)  # calling it would fail: the cache is there
    data = load_data(Mnist(), cache)
    assert (data.name, data.classes, data.scale) == ("mnist", 10, 1 / 255)
    shapes = [array.shape for array in (data.train_features, data.train_labels, data.test_features, data.test_labels)]
    assert shapes == [(60_000, 784), (60_000,), (10_000, 784), (10_000,)]
    assert data.train_features.dtype == data.test_features.dtype == np.uint8
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert data.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(data.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.train_features[0, 152:160].tolist() == [3, 18, 18, 18, 126, 136, 175, 26]
    assert round(float(data.train_features.mean()) / 255, 4) == 0.1307
    assert type(data.train_features) is np.ndarray
    assert isinstance(data.train_features.base, np.memmap)
    assert not data.train_features.flags.writeable
    assert data.digest()[:8] == "4a52d6f4"  # runs of other machines and years are compared with it


def test_cache_holds_the_four_arrays_only(cache: Path) -> None:
    assert [path.name for path in cache.iterdir()] == ["mnist-6bbc9ace"]
    arrays = list(image_folder(cache, MNIST).iterdir())
    assert {path.name for path in arrays} == {f"{file.name}.npy" for file in MNIST_FILES}
    assert sum(path.stat().st_size for path in arrays) < 60e6


def test_package_stays_small_and_names_its_origin() -> None:
    sizes = [len((PACKAGE / f"{file.name}.gz").read_bytes()) for file in MNIST_FILES]
    assert sum(sizes) <= 12_000_000
    origin = (PACKAGE / "ORIGIN.md").read_text(encoding="utf-8")
    assert all(file.md5 in origin for file in MNIST_FILES)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda whole: gzip.compress(with_a_bit_changed(gzip.decompress(whole)), 1), "has MD5 [0-9a-f]{32}, expected"),
        (lambda whole: b"", "has MD5 [0-9a-f]{32}, expected"),
        (lambda whole: b"no gzip at all", "cannot be unpacked"),
        (lambda whole: whole[:1000], "cannot be unpacked"),
    ],
)
def test_damaged_file_of_the_package(tmp_path: Path, change: Callable[[bytes], bytes], fault: str) -> None:
    name = f"{TRAIN_LABELS.name}.gz"
    (tmp_path / name).write_bytes(change((PACKAGE / name).read_bytes()))
    with pytest.raises(UserError, match=rf"train-labels-idx1-ubyte.*{fault}.*{TRAIN_LABELS.md5}; reinstall"):
        read_idx(tmp_path, TRAIN_LABELS, MNIST)


def test_damaged_package_leaves_no_trace_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz in the package.*reinstall"):
        unpack_images(tmp_path / "empty", tmp_path / "cache", MNIST)
    assert not (tmp_path / "cache").exists()


def npy(array: NDArray[Any]) -> Callable[[Path], None]:
    """Saves an array in the place of a cached one."""

    def save(path: Path) -> None:
        path.unlink()
        np.save(path, array)

    return save


@pytest.mark.parametrize(
    ("file", "damage", "found"),
    [
        (TRAIN_LABELS, lambda path: replace(path, with_a_bit_changed(path.read_bytes())), "CRC-32 .* 87357e3e"),
        (TRAIN_LABELS, lambda path: replace(path, path.read_bytes()[:-8]), "cannot be read"),
        (TRAIN_LABELS, lambda path: replace(path, b""), "cannot be read"),
        (TRAIN_LABELS, lambda path: replace(path, b"PK\x03\x04"), "cannot be read"),
        (TRAIN_LABELS, lambda path: replace(path, b"\x93NUMPY\x01\x00\x10\x00{'descr': '|u1',"), "cannot be read"),
        (TRAIN_LABELS, lambda path: replace(path, bytes(500)), "cannot be read"),
        (TRAIN_LABELS, Path.unlink, "cannot be read"),
        (TRAIN_LABELS, npy(np.zeros(3, dtype=np.int64)), r"holds \(3,\) int64, expected \(60000,\) int64"),
        (TRAIN_IMAGES, npy(np.zeros(TRAIN_IMAGES.array_shape, dtype=np.uint8)), "has the CRC-32"),
    ],
)  # fmt: skip
def test_a_damaged_cache_is_unpacked_again(
    file: IdxFile,
    damage: Callable[[Path], None],
    found: str,
    own_cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(cached(own_cache, file))
    labels = load_data(Mnist(), own_cache).train_labels
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    folder = image_folder(own_cache, MNIST)
    line = rf"areabench: cached MNIST in {folder} was damaged: {file.name}\.npy .*{found}.*; it is unpacked again\n"
    assert re.fullmatch(line, capsys.readouterr().err)
    load_data(Mnist(), own_cache)
    assert capsys.readouterr().err == ""
    assert len(list(folder.iterdir())) == 4
    assert [path.name for path in own_cache.iterdir()] == ["mnist-6bbc9ace"]


def test_who_has_opened_the_damaged_cache_keeps_what_it_has(own_cache: Path) -> None:
    replace(cached(own_cache), with_a_bit_changed(cached(own_cache).read_bytes()))
    before = load_data(Mnist(), own_cache, prepared=True)  # as a rank does, whose node was prepared before
    Mnist().prepare(own_cache)
    assert before.train_labels[-1] != load_data(Mnist(), own_cache).train_labels[-1]


def test_a_rank_of_a_prepared_node_opens_the_images_without_reading_them(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "crc32", None)  # calling it would fail
    assert len(load_data(Mnist(), own_cache, prepared=True).test_labels) == 10_000
    replace(cached(own_cache), b"")
    with pytest.raises(UserError, match=r"is damaged: train-labels.*; delete this folder and start again"):
        load_data(Mnist(), own_cache, prepared=True)


@pytest.mark.parametrize("below", ["", "folder"])
def test_cache_path_that_is_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache = tmp_path / "file" / below
    message = rf"{cache}: .*\((File exists|Not a directory)\); set AREABENCH_CACHE to .*60 MB"
    with pytest.raises(UserError, match=message):
        load_data(Mnist(), cache)


def test_a_cache_that_cannot_be_written(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, array: NDArray[Any]) -> None:
        path.write_bytes(b"begun")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(images, "write_array", fail)
    monkeypatch.setattr(images, "read_idx", lambda *_: np.zeros(1))
    with pytest.raises(UserError, match=r"No space left on device\); set AREABENCH_CACHE"):
        Mnist().prepare(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    replace(cached(own_cache), b"")
    with pytest.raises(UserError, match=r"device\); what is there is damaged: train-labels.*; set AREABENCH_CACHE"):
        load_data(Mnist(), own_cache)


def tiny(source: Traversable, file: IdxFile, _images: ImageSet) -> NDArray[Any]:
    """Replaces reading the package: one element that identifies the file."""
    return np.array([MNIST_FILES.index(file)])


def test_the_loser_of_a_race_discards_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(source: Traversable, file: IdxFile, _images: ImageSet) -> NDArray[Any]:
        monkeypatch.setattr(images, "read_idx", tiny)
        Mnist().prepare(tmp_path)  # another process does all of it at the same time
        return np.array([99])

    monkeypatch.setattr(images, "read_idx", overtaken)
    Mnist().prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mnist-6bbc9ace"]
    assert np.load(cached(tmp_path, TRAIN_IMAGES)).tolist() == [0]


def test_many_prepare_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "read_idx", tiny)
    monkeypatch.setattr(images, "find_damage", lambda *_: "")  # the tiny arrays are not those of MNIST
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Mnist().prepare(tmp_path), range(32)))
    assert [path.name for path in tmp_path.iterdir()] == ["mnist-6bbc9ace"]
    assert len(list(image_folder(tmp_path, MNIST).iterdir())) == 4


# ---------------------------------------------------------------------------------------------------- other sets


def test_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    data = load_data(Digits(), tmp_path / "unused")
    assert (data.train_features.shape, data.test_features.shape) == ((1437, 64), (360, 64))
    assert (str(data.train_features.dtype), str(data.train_labels.dtype)) == ("uint8", "int64")
    assert data.train_features[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert data.train_labels[:10].tolist() == list(range(10))
    assert data.train_features.max() * data.scale == 1.0
    assert not (tmp_path / "unused").exists()


def test_digits_without_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r"`digits` needs scikit-learn.*pip install scikit-learn"):
        load_data(Digits(), tmp_path)


def test_synthetic(tmp_path: Path) -> None:
    settings = Synthetic(train_samples=23, test_samples=7, features=4, classes=5)
    data = load_data(settings, tmp_path / "unused")
    assert (data.train_features.shape, data.test_features.shape) == ((23, 4), (7, 4))
    assert (str(data.train_features.dtype), str(data.train_labels.dtype)) == ("uint8", "int64")
    assert np.bincount(data.train_labels).tolist() == [5, 5, 5, 4, 4]
    assert np.bincount(data.test_labels).tolist() == [2, 2, 1, 1, 1]
    assert not np.array_equal(data.train_labels, np.sort(data.train_labels))
    assert (data.classes, data.scale) == (5, 1 / 255)
    assert not (tmp_path / "unused").exists()
    other = load_data(dataclasses.replace(settings, seed=1), tmp_path)
    assert not np.array_equal(data.train_features, other.train_features)


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e308])
def test_synthetic_fills_the_range(tmp_path: Path, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Synthetic(features=50, spread=spread, classes=3)
    data = load_data(settings, tmp_path)
    assert 110 < data.train_features.mean() < 145
    assert 30 < data.train_features.astype(np.float64).std() < 55  # a third of 127.5
    monkeypatch.setattr(synthetic, "_VALUES_AT_ONCE", 50 * 7)  # rows at once; they must not matter
    assert load_data(settings, tmp_path).digest() == data.digest()
    # without spread each class is its centre, of training and test samples
    rows = np.concatenate([data.train_features, data.test_features])
    labels = np.concatenate([data.train_labels, data.test_labels])
    assert (len(np.unique(np.column_stack([rows, labels]), axis=0)) == 3) == (spread == 0)


def test_fashion_mnist_is_read_from_a_folder_and_its_md5_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ubyte.gz in .*/there cannot be unpacked .* dataset-fashion"):
        load_data(FashionMnist(folder=str(tmp_path / "there")), tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    with pytest.raises(UserError, match="has MD5 .*, expected f4a8712d7a061bf5bd6d2ca38dc4d50a; install Debian's"):
        load_data(FashionMnist(folder=str(tmp_path / "there")), tmp_path)


@pytest.mark.skipif(not Path(FashionMnist().folder).is_dir(), reason="dataset-fashion-mnist is not installed")
def test_fashion_mnist_of_debian(tmp_path: Path) -> None:
    data = load_data(FashionMnist(), tmp_path)
    assert (data.train_features.shape, data.classes, data.name) == ((60_000, 784), 10, "fashion-mnist")
    assert data.train_labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert image_folder(tmp_path, FashionMnist().images).is_dir()
    load_data(FashionMnist(folder="nowhere"), tmp_path)  # what is unpacked is not read again


# ---------------------------------------------------------------------------------------------------- every set


def test_the_cache_is_the_one_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_cache({"AREABENCH_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert default_cache({"AREABENCH_CACHE": "", "XDG_CACHE_HOME": "/b"}) == Path("/b/areabench")
    assert default_cache({}) == Path("/home/somebody/.cache/areabench")


@pytest.mark.parametrize("settings", [Mnist(), Digits(), Synthetic(train_samples=9)], ids=lambda each: each.name)
def test_digest_is_stable_and_follows_every_array(settings: DataSettings, cache: Path) -> None:
    if isinstance(settings, Digits):
        pytest.importorskip("sklearn")
    data = load_data(settings, cache)
    assert data.digest() == load_data(settings, cache).digest()
    for name in ("train_features", "train_labels", "test_features", "test_labels"):
        changed = getattr(data, name).copy()
        changed.flat[-1] ^= 1
        assert dataclasses.replace(data, **{name: changed}).digest() != data.digest()


def test_digest_of_types_and_shapes() -> None:
    rows = np.zeros((4, 2), dtype=np.uint8)
    labels = np.zeros(4, dtype=np.int64)
    data = Dataset("own", rows, labels, rows, labels, classes=2, scale=1.0)
    for features in (rows.reshape(2, 4), rows.view(np.int8)):
        assert dataclasses.replace(data, train_features=features).digest() != data.digest()
