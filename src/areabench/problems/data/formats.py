"""Samples in a file, in one of four formats that its first bytes tell: .npz, IDX, LIBSVM text and CSV.

Features are as the file has them, rows of numbers; labels are numbers or texts. Nothing in a file is executed.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import math
import re
import struct
import zipfile
import zlib
from array import array
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems.data.samples import RawSamples

_LOOKED_AT = 1000  # lines that tell LIBSVM text from CSV


def read_samples(path: Path, label: str | None = None) -> tuple[RawSamples, RawSamples | None]:
    """The training samples of a file or of a folder of IDX files, and test samples if it has them.

    The IDX files are named like those of MNIST; `label` is a CSV's column.
    """
    if path.is_dir():
        return _read_idx_folder(path, "train"), _read_idx_folder(path, "t10k")
    content = _unpacked(path)
    if content[:4] == b"PK\3\4":
        return _read_npz(path, content)
    if content[:2] == b"\0\0" and content[2:3] in _IDX_TYPES:
        return _read_idx_pair(path, content), None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(path, f"is not .npz, IDX or text ({error.reason} at byte {error.start})", "give one of these formats")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        _refuse(path, "holds no sample", "give a file with samples")
    if any(_LIBSVM_LINE.fullmatch(line) for line in lines[:_LOOKED_AT]):
        return _read_libsvm(path, lines), None
    return _read_csv(path, lines, label), None


def _refuse(path: Path, trouble: str, remedy: str) -> NoReturn:
    raise UserError(f"data file {path}: {trouble}; {remedy}")


def _unpacked(path: Path) -> bytes:
    """The bytes of a file, which may be packed by gzip or bzip2."""
    if path.exists() and not path.is_file():  # reading a pipe may wait forever, a device may never end
        _refuse(path, "is not a regular file", "check data.file")
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            return gzip.decompress(content)
        return bz2.decompress(content) if content[:3] == b"BZh" else content
    except (OSError, EOFError, zlib.error, ValueError) as error:
        _refuse(path, f"cannot be read ({getattr(error, 'strerror', None) or error})", "check data.file")


# ---------------------------------------------------------------------------------------------------- .npz

_NAMES = (  # of features and labels in an .npz file, in lower case
    ("train_features", "train_labels", "test_features", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_x", "train_y", "test_x", "test_y"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("features", "labels"),
    ("x", "y"),
    ("data", "target"),
    ("images", "labels"),
)


def _read_npz(path: Path, content: bytes) -> tuple[RawSamples, RawSamples | None]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: io.BytesIO(archive.read(name)) for name in archive.namelist() if name.endswith(".npy")}
        arrays = {name[:-4].lower(): np.lib.format.read_array(file) for name, file in members.items()}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        _refuse(path, f"cannot be read as .npz ({error})", "write it with np.savez, without objects")
    for names in _NAMES:
        if not arrays.keys() >= set(names[:2]):
            continue
        test = None
        if names[2:] and arrays.keys() >= set(names[2:]):
            test = _paired(path, arrays, names[2:])
        return _paired(path, arrays, names[:2]), test
    _refuse(path, f"has the arrays {', '.join(arrays) or 'none'}", "name them x_train, y_train, x_test and y_test")


def _paired(path: Path, arrays: dict[str, NDArray[Any]], names: tuple[str, ...]) -> RawSamples:
    features = arrays[names[0]]
    labels = arrays[names[1]]
    if features.ndim < 2 or labels.size != len(labels) or len(labels) != len(features):
        _refuse(
            path,
            f"{names[0]} has the shape {features.shape} and {names[1]} {labels.shape}",
            "give (samples, ...) and (samples,)",
        )
    return RawSamples(features.reshape(len(features), -1), labels.reshape(-1))


# ---------------------------------------------------------------------------------------------------- IDX

_IDX_TYPES = {
    b"\x08": ">u1", b"\x09": ">i1", b"\x0b": ">i2", b"\x0c": ">i4", b"\x0d": ">f4", b"\x0e": ">f8",
}  # fmt: skip


def read_idx_array(path: Path, content: bytes) -> NDArray[Any]:
    """The array of an IDX file: two zero bytes, type, number of axes, their lengths, and the numbers, big-endian."""
    axes = content[3] if len(content) > 3 else 0
    if content[:2] != b"\0\0" or content[2:3] not in _IDX_TYPES or not axes or len(content) < 4 + 4 * axes:
        _refuse(path, f"begins with {content[:4].hex()}", "give an IDX file")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    kind = np.dtype(_IDX_TYPES[content[2:3]])
    expected = 4 + 4 * axes + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        _refuse(path, f"has {len(content):,} bytes, its shape {shape} needs {expected:,}", "fetch it again")
    numbers = np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape)
    return numbers.astype(kind.newbyteorder("="))


def _read_idx_pair(path: Path, content: bytes) -> RawSamples:
    """The images of an IDX file, and the labels in the file beside it whose name says `labels` for `images`."""
    features = read_idx_array(path, content)
    beside = path.with_name(re.sub(r"idx\d", "idx1", path.name.replace("images", "labels")))
    if beside == path or not beside.is_file():
        _refuse(path, f"has no file of labels beside it, {beside.name}", "name the two images and labels, as MNIST has")
    labels = read_idx_array(beside, _unpacked(beside))
    return _paired(path, {"images": features, "labels": labels}, ("images", "labels"))


def _read_idx_folder(folder: Path, part: str) -> RawSamples:
    found = sorted(folder.glob(f"{part}-images*"))
    if not found:
        _refuse(folder, f"has no file {part}-images-idx3-ubyte", "give a folder of IDX files as MNIST has them")
    return _read_idx_pair(found[0], _unpacked(found[0]))


# ---------------------------------------------------------------------------------------------------- LIBSVM

_LIBSVM_LINE = re.compile(r"[-+.\deE]+(?:[ \t]+(?:qid:\S+|\d+:[-+.\w]+))+[ \t]*(?:#.*)?")
_LIBSVM_REST = re.compile(r"#.*|qid:\S+")


def _read_libsvm(path: Path, lines: list[str]) -> RawSamples:
    """Lines `label index:value ...`; features as a CSR array of float32, indices from 1, or from 0 if one is 0."""
    from scipy.sparse import csr_array  # slow to import

    labels = array("d")
    entries = array("d")  # index and value in turn
    ends = [0]
    stripped = (_LIBSVM_REST.sub("", line) for line in lines)
    for number, line in enumerate((line for line in stripped if line.strip()), start=1):
        words = line.replace(":", " ").split()
        try:
            if len(words) != 1 + 2 * line.count(":"):
                raise ValueError
            labels.append(float(words[0]))
            entries.extend(map(float, words[1:]))
        except ValueError:
            _refuse(path, f"sample {number} is {line[:60]!r}", "write label index:value ...")
        ends.append(len(entries) // 2)
    pairs = np.array(entries).reshape(-1, 2)
    columns = pairs[:, 0].astype(np.int64)
    if (columns != pairs[:, 0]).any() or (columns < 0).any():
        _refuse(path, "has an index that is no whole number from 0", "write label index:value ...")
    # Where no index is 0, they count from 1, as LIBSVM's own files do.
    columns -= int(len(columns) > 0 and columns.min() > 0)
    width = int(columns.max(initial=0)) + 1
    features = csr_array((pairs[:, 1].astype(np.float32), columns, np.array(ends)), shape=(len(labels), width))
    # An index that is given twice is an entry that is added up.
    features.sum_duplicates()
    return RawSamples(features, np.array(labels))


# ---------------------------------------------------------------------------------------------------- CSV


def _read_csv(path: Path, lines: list[str], label: str | None) -> RawSamples:
    """Rows of numbers separated by commas, semicolons or tabs, with one column of labels; a first row may be names."""
    first = lines[0]
    delimiter = max(",;\t", key=first.count)
    # The first row alone tells the separator: texts further down may hold commas.
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    if len(names) < 2:
        _refuse(path, f"has the first line {first[:60]!r}", "separate a column of labels and others by commas")
    if label is None:
        column = len(names) - 1
    elif label in names:
        column = names.index(label)
    elif label.isdecimal() and int(label) < len(names):
        column = int(label)
    else:
        shown = ", ".join(names[:20])
        _refuse(path, f"has no column {label!r}, but {shown[:200]}", "correct data.label")
    others = [number for number in range(len(names)) if number != column]
    # A header is what names the label's column, or has a feature that is no number.
    if label in names or not all(_is_number(names[number]) for number in others):
        lines = lines[1:]
    if not lines:
        _refuse(path, "has a header only", "give a file with samples")
    options: dict[str, Any] = {"delimiter": delimiter, "quotechar": '"', "comments": None, "ndmin": 2}
    try:
        features = np.loadtxt(lines, dtype=np.float64, usecols=others, **options)
        labels = np.loadtxt(lines, dtype=np.str_, usecols=[column], **options)[:, 0]
    except ValueError as error:
        where = str(error).partition(";")[0]
        _refuse(path, f"{where} (rows from 0, without a header)", "write numbers only, but for the labels")
    return RawSamples(features, np.char.strip(labels))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
