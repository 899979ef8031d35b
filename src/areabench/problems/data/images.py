"""Sets of images in four IDX files, as MNIST: unpacked once per node, checked, and mapped into memory by all ranks."""

from __future__ import annotations

import hashlib
import io
import math
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import crc32
from areabench.errors import UserError
from areabench.problems.data.settings import DataSettings
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


@dataclass(frozen=True, kw_only=True)
class ImageSettings(DataSettings):
    """What the settings of all sets of images have in common."""

    @property
    def images(self) -> ImageSet:
        """What the files must be."""
        raise NotImplementedError

    @property
    def source(self) -> Traversable:
        """The folder of the files."""
        raise NotImplementedError

    @property
    def train_samples(self) -> int:
        """Training samples."""
        return self.images.files[0].shape[0]

    @property
    def model_entries(self) -> int | None:
        """The pixels of an image times ten classes."""
        return 10 * self.images.files[0].array_shape[1]

    def prepare(self, cache: Path) -> None:
        """Unpack the images, or check them if they are there."""
        unpack_images(self.source, cache, self.images)

    def load(self, cache: Path) -> Dataset:
        """The unpacked images."""
        images = self.images
        folder = image_folder(cache, images)
        try:
            features, labels, test_features, test_labels = (_open_cached(folder, file) for file in images.files)
        except ValueError as damage:
            raise UserError(
                f"cached {images.title} in {folder} is damaged: {damage}; delete this folder and start again"
            ) from damage
        return Dataset(images.name, features, labels, test_features, test_labels, classes=10, scale=1 / 255)


def image_folder(cache: Path, images: ImageSet) -> Path:
    """The folder of an unpacked set; its name contains the MD5 of the training images."""
    return cache / f"{images.name}-{images.files[0].md5[:8]}"


def unpack_images(source: Traversable, cache: Path, images: ImageSet) -> None:
    """Turn the IDX files of `source` into .npy files below `cache`, all or nothing; again if they are damaged.

    Only their owner can write there, whatever the umask: who can write there decides what all users train on.
    """
    folder = image_folder(cache, images)
    temporary = folder.with_name(f"{folder.name}.{os.urandom(8).hex()}.tmp")
    damage = ""
    try:
        # A folder that is there was complete when it got its name; a disc may have lost some of it since.
        if folder.is_dir():
            damage = find_damage(folder, images)
            if not damage:
                return
        arrays = {file.name: read_idx(source, file, images) for file in images.files}  # before anything is written
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary.mkdir(mode=0o755)
        for name, array in arrays.items():
            write_array(temporary / f"{name}.npy", array)
        if damage:  # file by file: the folder is never incomplete, and who maps an old array keeps it
            for path in temporary.iterdir():
                path.replace(folder / path.name)
        else:
            try:
                temporary.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
    except OSError as error:
        found = f"; what is there is damaged: {damage}" if damage else ""
        raise UserError(
            f"cache folder {cache}: cannot unpack {images.title} into it ({error.strerror or error}){found}; "
            "set AREABENCH_CACHE to a writable folder with 60 MB free"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if damage:
        print(
            f"areabench: cached {images.title} in {folder} was damaged: {damage}; it is unpacked again", file=sys.stderr
        )


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an .npy file, through memory, because numpy's writer does not report why a full disc fails."""
    content = io.BytesIO()
    np.save(content, array)
    path.touch(mode=0o644, exist_ok=False)
    path.write_bytes(content.getbuffer())


def read_idx(source: Traversable, file: IdxFile, images: ImageSet) -> NDArray[Any]:
    """One checked IDX file as an array: features (samples, 784) uint8, or labels (samples,) int64.

    It is gzipped or, in a folder of the user's own, may be plain.
    """
    import gzip
    import zlib

    packed = source.joinpath(f"{file.name}.gz")
    plain = source.joinpath(file.name)
    try:
        if packed.is_file():  # reading a pipe may wait forever
            content = gzip.decompress(packed.read_bytes())
        elif plain.is_file():
            content = plain.read_bytes()
        else:
            raise FileNotFoundError(f"no such file as {packed}")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{file.name}.gz in {images.origin} cannot be unpacked ({error}), expected a file with MD5 {file.md5}; "
            f"{images.remedy}"
        ) from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise UserError(f"{file.name} in {images.origin} has MD5 {found}, expected {file.md5}; {images.remedy}")
    header = 4 + 4 * len(file.shape)  # bytes: a magic number, and the lengths of the axes
    return np.frombuffer(content, np.uint8, offset=header).reshape(file.array_shape).astype(file.array_type)


def find_damage(folder: Path, images: ImageSet) -> str:
    """What is wrong with the unpacked images; empty if nothing is. Reads all of it: 10 ms."""
    try:
        for file in images.files:
            if (found := crc32(_open_cached(folder, file).data)) != file.crc32:
                return f"{file.name}.npy has the CRC-32 {found:08x}, expected {file.crc32:08x}"
    except ValueError as damage:
        return str(damage)
    return ""


def _open_cached(folder: Path, file: IdxFile) -> NDArray[Any]:
    """A cached array, mapped read-only so that all processes of a node share its pages; a ValueError if damaged."""
    path = folder / f"{file.name}.npy"
    try:
        array = np.asarray(np.lib.format.open_memmap(path, mode="r"))  # np.load would also take archives
    except Exception as error:  # a damaged header makes numpy's parser raise almost anything
        raise ValueError(f"{path.name} cannot be read ({' '.join(str(error).split())})") from error
    if array.shape != file.array_shape or array.dtype != file.array_type:
        expected = f"{file.array_shape} {file.array_type}"
        raise ValueError(f"{path.name} holds {array.shape} {array.dtype}, expected {expected}")
    return array
