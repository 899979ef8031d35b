"""A run file that grows, for the tests of `areabench watch`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.watched import Writer, writing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the run file is, or will be."""
    return tmp_path / "run.h5"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    """The process that writes it."""
    with writing(path) as process:
        yield process
