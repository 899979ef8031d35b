"""`areabench table` on a small sweep: what it prints and writes, and its errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.answers import answer, complaint
from tests.support.texts import SWEEP


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sweep that has run."""
    place = tmp_path_factory.mktemp("sweeps")
    (place / "small.toml").write_text(SWEEP, encoding="utf-8")
    answer("sweep --jobs 1", place / "small.toml", "--output", place / "small")
    return place / "small"


@pytest.fixture(autouse=True)
def folder(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that a test may change, `small` in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(ready, Path("small"))


def test_the_command_prints_and_writes() -> None:
    printed = answer("table small").out
    assert printed.startswith("small: n = 2, M = 1, horizon 1 s\n")
    assert "AREA" in printed
    answer("table small --output out")
    assert {path.name for path in Path("out").iterdir()} == {"small.md", "small.tex", "small.csv"}
    answer("table small --output one.txt")
    assert Path("one.txt").read_text(encoding="utf-8") == printed


def test_runs_that_are_missing_or_damaged(folder: Path) -> None:
    next(folder.glob("area-0.2-*.h5")).unlink()
    assert "1 of 4 runs are missing" in answer("table small --keep all").out
    damaged = next(folder.glob("area-*.h5"))
    damaged.write_bytes(damaged.read_bytes()[:20_000])
    assert "; `areabench sweep` makes this run again" in complaint("table small --keep all")
    for path in folder.glob("*.h5"):
        path.unlink()
    assert "0 of 4 planned runs done; run `areabench sweep` first" in complaint("table small")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("small --output table.pdf", "table.pdf: cannot write .pdf; end it with one of .txt, .md, .tex, .csv"),
        ("small --format csv --output of.md", "of.md: .md is not csv"),
        ("small --format csv --output of", "of: a folder gets Markdown, LaTeX and CSV, not only csv"),
        ("small --target 101", "--target 101: must be above 0 and at most 100"),
        ("small --metric loss", "--metric loss: has no meaning with --keep all"),
        ("small --keep best", "small: the problem has no accuracy to choose by; use --metric loss"),
        ("nothing", "sweep.toml"),
        ("small small --keep all -o out", "two sweeps are called small"),
    ],
)
def test_the_command_reports_an_error_in_one_line(options: str, words: str) -> None:
    assert words in complaint(f"table {options}")
