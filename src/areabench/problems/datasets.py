"""Data sets: MNIST (in the package, unpacked once per node) and Fashion-MNIST, digits, synthetic blobs; what they are.

`prepare` unpacks what needs unpacking and checks what is unpacked, `load` opens it. The environment and folders are
passed in, not read here.
Every array of a `Dataset` is read-only; those of MNIST are files mapped into memory, shared by all ranks of a node.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import math
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import crc32
from areabench.errors import UserError
from areabench.experiment.problem_records import Digits, FashionMnist, File, Mnist, ScikitLearn, Synthetic
from areabench.host import spare_home

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PackageData = Mnist | FashionMnist | Digits | ScikitLearn | Synthetic | File  # all but the user's own functions

_SYNTHETIC_ENTROPY = 0x64617461  # keeps the streams of the data apart from those of `streams`
_SYNTHETIC_WIDTH = 3.0  # standard deviations that map to half the range of uint8; values beyond are clipped
_VALUES_AT_ONCE = 2**18  # of synthetic samples drawn per call: their float64 copies stay in the cache


def default_cache(environment: Mapping[str, str]) -> Path:
    """The folder of unpacked data sets: AREABENCH_CACHE, or else the user's cache folder."""
    if chosen := environment.get("AREABENCH_CACHE"):
        return Path(chosen)
    return Path(environment.get("XDG_CACHE_HOME") or _home() / ".cache") / "areabench"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # neither HOME nor the system says
        return spare_home()


def is_sparse(features: Any) -> bool:
    """Whether features are a scipy CSR array; scipy is not imported for the answer."""
    return hasattr(features, "indptr")


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
            for array in (part.data, part.indices, part.indptr) if is_sparse(part) else (part,):
                found.update(f"{array.dtype} {part.shape}".encode())
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    @property
    def groups(self) -> NDArray[np.int64]:
        """What a split tells samples apart by: their labels, or in which tenth of all targets theirs lies."""
        if self.classes:
            return self.train_labels
        cuts = np.quantile(self.train_labels, np.arange(1, 10) / 10)
        return np.searchsorted(np.unique(cuts), self.train_labels, side="right").astype(np.int64)


@dataclass(frozen=True)
class IdxFile:
    """One IDX file of MNIST: its name in the package (without .gz), the MD5 of its bytes, its shape.

    The CRC-32 is that of the cached array, which is checked before each run: it takes a hundredth of an MD5's time.
    """

    name: str
    md5: str
    shape: tuple[int, ...]  # (images, 28, 28) or (labels,)
    crc32: int

    @property
    def header(self) -> bytes:
        """The first bytes of the file: the magic number (type uint8, number of axes) and the lengths of the axes."""
        return struct.pack(f">{1 + len(self.shape)}I", 0x800 + len(self.shape), *self.shape)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the cached array: images are flattened to rows."""
        return (self.shape[0], math.prod(self.shape[1:])) if len(self.shape) > 1 else self.shape

    @property
    def array_type(self) -> np.dtype[Any]:
        """Type of the cached array: uint8 features, int64 labels."""
        return np.dtype(np.uint8 if len(self.shape) > 1 else np.int64)


MNIST_FILES = (
    IdxFile("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", (60_000, 28, 28), 0xF3639B56),
    IdxFile("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", (60_000,), 0x87357E3E),
    IdxFile("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", (10_000, 28, 28), 0xE4CA5F57),
    IdxFile("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", (10_000,), 0x091BDADE),
)
FASHION_FILES = (
    IdxFile("train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a", (60_000, 28, 28), 0xAE65DCCD),
    IdxFile("train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9", (60_000,), 0xAB93C456),
    IdxFile("t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a", (10_000, 28, 28), 0x12728439),
    IdxFile("t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965", (10_000,), 0x573905E5),
)


@dataclass(frozen=True)
class ImageSet:
    """A set of images in four IDX files: its names in the experiment and in texts, and who to ask for the files."""

    name: str
    title: str
    files: tuple[IdxFile, ...]
    origin: str  # where the files are, in an error
    remedy: str  # against damaged files


MNIST = ImageSet("mnist", "MNIST", MNIST_FILES, "the package", "reinstall areabench")


def fashion_mnist(folder: str) -> ImageSet:
    """Fashion-MNIST with its files in a folder."""
    remedy = "install Debian's package dataset-fashion-mnist, or set data.folder to where the four IDX files are"
    return ImageSet("fashion-mnist", "Fashion-MNIST", FASHION_FILES, folder, remedy)


def prepare(settings: PackageData, cache: Path) -> None:
    """Unpack the data into the cache folder, or check them if they are there; safe in several processes at once."""
    if isinstance(settings, Mnist):
        from importlib import resources  # one rank per node comes here

        unpack_mnist(resources.files("areabench") / "data" / "mnist", cache)
    if isinstance(settings, FashionMnist):
        unpack_mnist(Path(settings.folder), cache, fashion_mnist(settings.folder))


def load(settings: PackageData, cache: Path, *, prepared: bool = False) -> Dataset:
    """The data set of an experiment; `prepared`: another process of this node has called `prepare` just now."""
    if not prepared:
        prepare(settings, cache)
    match settings:
        case Mnist():
            return _open_mnist(cache, MNIST)
        case FashionMnist():
            return _open_mnist(cache, fashion_mnist(settings.folder))
        case Digits():
            return _load_digits()
        case Synthetic():
            return _draw_synthetic(settings)
        case ScikitLearn() | File():
            from areabench.problems.sources.tables import load_file, load_scikit_learn  # few runs need them

            return load_file(settings) if isinstance(settings, File) else load_scikit_learn(settings)


# ---------------------------------------------------------------------------------------------------- MNIST


def mnist_folder(cache: Path, images: ImageSet = MNIST) -> Path:
    """The folder of unpacked MNIST, or of a set like it; its name contains the MD5 of the training images."""
    return cache / f"{images.name}-{images.files[0].md5[:8]}"


def unpack_mnist(source: Traversable, cache: Path, images: ImageSet = MNIST) -> None:
    """Turn the IDX files of `source` into .npy files below `cache`, all or nothing; again if they are damaged.

    Only their owner can write there, whatever the umask: who can write there decides what all users train on.
    """
    folder, damage = mnist_folder(cache, images), ""
    try:
        if folder.is_dir() and not (damage := _damage(folder, images)):
            return
        arrays = {file.name: read_idx(source, file, images) for file in images.files}  # before anything is written
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _written_beside(folder, arrays) as temporary:
            place = _replace_files if damage else _rename_unless_there
            place(temporary, folder)
    except OSError as error:
        found = f"; what is there is damaged: {damage}" if damage else ""
        raise UserError(
            f"cache folder {cache}: cannot unpack {images.title} into it ({error.strerror or error}){found}; "
            "set AREABENCH_CACHE to a writable folder with 60 MB free"
        ) from error
    if damage:
        print(
            f"areabench: cached {images.title} in {folder} was damaged: {damage}; it is unpacked again", file=sys.stderr
        )


@contextmanager
def _written_beside(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> Iterator[Path]:
    """A temporary folder next to `folder` with all arrays in it."""
    import shutil
    import uuid

    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(mode=0o755)
        for name, array in arrays.items():
            _write_array(temporary / f"{name}.npy", array)
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_files(temporary: Path, folder: Path) -> None:
    """Put each array in the place of the old one: the folder is never incomplete, and who maps an old one keeps it."""
    for path in temporary.iterdir():
        path.replace(folder / path.name)


def _rename_unless_there(temporary: Path, folder: Path) -> None:
    """Give the arrays their folder; a process that finds the folder there discards its own copy."""
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an .npy file, through memory, because numpy's writer does not report why a full disc fails."""
    content = io.BytesIO()
    np.save(content, array)
    path.touch(mode=0o644, exist_ok=False)
    path.write_bytes(content.getbuffer())


def read_idx(source: Traversable, file: IdxFile, images: ImageSet = MNIST) -> NDArray[Any]:
    """One checked IDX file as an array: features (samples, 784) uint8, or labels (samples,) int64."""
    content = _decompress(source, file, images)
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise UserError(f"{file.name} in {images.origin} has MD5 {found}, expected {file.md5}; {images.remedy}")
    header, length = file.header, len(file.header) + math.prod(file.shape)
    if content[: len(header)] != header or len(content) != length:
        raise UserError(
            f"{file.name} in {images.origin}: header {content[: len(header)].hex()} and {len(content)} bytes, "
            f"expected {header.hex()} (shape {file.shape}) and {length} bytes; {images.remedy}"
        )
    pixels = np.frombuffer(content, dtype=np.uint8, offset=len(header))
    return pixels.reshape(file.array_shape).astype(file.array_type)


def _decompress(source: Traversable, file: IdxFile, images: ImageSet) -> bytes:
    """The bytes of a file, which is gzipped or, in a folder of the user's own, may be plain."""
    import gzip
    import zlib

    packed, plain = source.joinpath(f"{file.name}.gz"), source.joinpath(file.name)
    try:
        if packed.is_file():  # reading a pipe may wait forever
            return gzip.decompress(packed.read_bytes())
        if plain.is_file():
            return plain.read_bytes()
        raise FileNotFoundError(f"no such file as {packed}")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{file.name}.gz in {images.origin} cannot be unpacked ({error}), expected a file with MD5 {file.md5}; "
            f"{images.remedy}"
        ) from error


def _open_mnist(cache: Path, images: ImageSet) -> Dataset:
    folder = mnist_folder(cache, images)
    try:
        arrays = [_open_cached(folder, file) for file in images.files]
    except DamagedArray as damage:
        raise UserError(
            f"cached {images.title} in {folder} is damaged: {damage}; delete this folder and start again"
        ) from damage
    train_features, train_labels, test_features, test_labels = arrays
    return Dataset(images.name, train_features, train_labels, test_features, test_labels, classes=10, scale=1 / 255)


class DamagedArray(Exception):
    """A cached array that is not what was unpacked."""


def _damage(folder: Path, images: ImageSet) -> str:
    """What is wrong with the unpacked images; empty if nothing is. Reads all of it: 10 ms."""
    try:
        for file in images.files:
            if (found := crc32(_open_cached(folder, file).data)) != file.crc32:
                return f"{file.name}.npy has the CRC-32 {found:08x}, expected {file.crc32:08x}"
    except DamagedArray as damage:
        return str(damage)
    return ""


def _open_cached(folder: Path, file: IdxFile) -> NDArray[Any]:
    """A cached array, mapped read-only so that all processes of a node share its pages."""
    path = folder / f"{file.name}.npy"
    try:
        array = np.asarray(np.lib.format.open_memmap(path, mode="r"))  # np.load would also take archives
    except Exception as error:  # a damaged header makes numpy's parser raise almost anything
        raise DamagedArray(f"{path.name} cannot be read ({' '.join(str(error).split())})") from error
    if array.shape != file.array_shape or array.dtype != file.array_type:
        expected = f"{file.array_shape} {file.array_type}"
        raise DamagedArray(f"{path.name} holds {array.shape} {array.dtype}, expected {expected}")
    return array


# ---------------------------------------------------------------------------------------------------- in memory


def _load_digits() -> Dataset:
    """scikit-learn's digits in their own order: the first 1,437 for training, the last 360 for testing."""
    try:
        bunch = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError as error:
        raise UserError(
            f"data `digits` needs scikit-learn, which cannot be imported ({error}); pip install scikit-learn"
        ) from error
    features = frozen(bunch.data.astype(np.uint8))
    labels = frozen(bunch.target.astype(np.int64))
    train, test = slice(None, Digits().train_samples), slice(Digits().train_samples, None)
    return Dataset("digits", features[train], labels[train], features[test], labels[test], classes=10, scale=1 / 16)


def _draw_synthetic(settings: Synthetic) -> Dataset:
    """Blobs around centres from N(0, 1), one per class; training and test samples have separate streams."""
    centres = _synthetic_stream(settings, 0).standard_normal((settings.classes, settings.features))
    train, test = _synthetic_stream(settings, 1), _synthetic_stream(settings, 2)
    train_features, train_labels = _draw_blobs(settings, centres, settings.train_samples, train)
    test_features, test_labels = _draw_blobs(settings, centres, settings.test_samples, test)
    return Dataset(
        "synthetic", train_features, train_labels, test_features, test_labels, settings.classes, scale=1 / 255
    )


def _synthetic_stream(settings: Synthetic, part: int) -> np.random.Generator:
    entropy = [settings.seed, _SYNTHETIC_ENTROPY, part]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def _draw_blobs(
    settings: Synthetic, centres: NDArray[np.float64], samples: int, generator: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Features (samples, features) and labels; the labels as balanced as can be, in random order."""
    labels = generator.permutation(np.arange(samples, dtype=np.int64) % settings.classes)
    features = np.empty((samples, settings.features), dtype=np.uint8)
    deviation = math.hypot(1.0, settings.spread)
    standardised = centres / deviation
    rows_at_once = max(1, _VALUES_AT_ONCE // settings.features)
    for first in range(0, samples, rows_at_once):
        rows = slice(first, first + rows_at_once)
        values = generator.standard_normal(features[rows].shape)
        values *= settings.spread / deviation
        values += standardised[labels[rows]]
        features[rows] = _to_range(values)
    return frozen(features), frozen(labels)


def _to_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers from 0 to 255: 0 in the middle, three standard deviations at the ends; changes the values."""
    values *= 127.5 / _SYNTHETIC_WIDTH
    values += 127.5
    np.rint(values, out=values)
    return np.clip(values, 0, 255, out=values)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only from now on."""
    array.setflags(write=False)
    return array
