"""Sets of images in four IDX files, as MNIST: unpacked once per node, checked, and mapped into memory by all ranks."""

from __future__ import annotations

import hashlib
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
from areabench.problems.datasets import Dataset

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


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


@dataclass(frozen=True)
class ImageSet:
    """A set of images in four IDX files: its names in the experiment and in texts, and who to ask for the files."""

    name: str
    title: str
    files: tuple[IdxFile, ...]
    origin: str  # where the files are, in an error
    remedy: str  # against damaged files


def image_folder(cache: Path, images: ImageSet) -> Path:
    """The folder of an unpacked set; its name contains the MD5 of the training images."""
    return cache / f"{images.name}-{images.files[0].md5[:8]}"


def unpack_images(source: Traversable, cache: Path, images: ImageSet) -> None:
    """Turn the IDX files of `source` into .npy files below `cache`, all or nothing; again if they are damaged.

    Only their owner can write there, whatever the umask: who can write there decides what all users train on.
    """
    folder = image_folder(cache, images)
    damage = ""
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


def read_idx(source: Traversable, file: IdxFile, images: ImageSet) -> NDArray[Any]:
    """One checked IDX file as an array: features (samples, 784) uint8, or labels (samples,) int64."""
    content = _decompress(source, file, images)
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise UserError(f"{file.name} in {images.origin} has MD5 {found}, expected {file.md5}; {images.remedy}")
    header = file.header
    length = len(file.header) + math.prod(file.shape)
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

    packed = source.joinpath(f"{file.name}.gz")
    plain = source.joinpath(file.name)
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


def open_images(cache: Path, images: ImageSet) -> Dataset:
    """The unpacked set."""
    folder = image_folder(cache, images)
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
