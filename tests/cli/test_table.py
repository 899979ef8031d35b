"""`areabench table` on a small sweep: what it prints and writes, and its errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.texts import SWEEP

from areabench.cli.main import main


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sweep that has run."""
    place = tmp_path_factory.mktemp("sweeps")
    file = place / "small.toml"
    file.write_text(SWEEP, encoding="utf-8")
    assert main(["sweep", str(file), "--output", str(place / "small"), "--jobs", "1"]) == 0
    return place / "small"


@pytest.fixture
def folder(ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy of it that a test may change."""
    capsys.readouterr()
    return shutil.copytree(ready, tmp_path / "small")


def test_the_command_prints_and_writes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("small: n = 2, M = 1, horizon 1 s\n")
    assert "AREA" in printed
    assert main(["table", str(folder), "--output", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"small.md", "small.tex", "small.csv"}
    assert main(["table", str(folder), "--output", str(tmp_path / "one.txt")]) == 0
    assert (tmp_path / "one.txt").read_text(encoding="utf-8") == printed
    next(folder.glob("area-0.2-*.h5")).unlink()
    capsys.readouterr()
    assert main(["table", str(folder), "--keep", "all"]) == 0
    assert "1 of 4 runs are missing" in capsys.readouterr().out
    damaged = next(folder.glob("area-*.h5"))
    damaged.write_bytes(damaged.read_bytes()[:20_000])
    assert main(["table", str(folder), "--keep", "all"]) == 2
    assert "; `areabench sweep` makes this run again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--output", "table.pdf"], "table.pdf: cannot write .pdf; end it with one of .txt, .md, .tex, .csv"),
        (["--format", "csv", "--output", "of.md"], "of.md: .md is not csv"),
        (["--format", "csv", "--output", "of"], "of: a folder gets Markdown, LaTeX and CSV, not only csv"),
        (["--target", "101"], "--target 101: must be above 0 and at most 100"),
        (["--metric", "loss"], "--metric loss: has no meaning with --keep all"),
        (["--keep", "best"], "small: the problem has no accuracy to choose by; use --metric loss"),
    ],
)
def test_the_command_reports_an_error_in_one_line(
    folder: Path, options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", str(folder), *options]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_a_folder_without_runs_or_sweep(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.glob("*.h5"):
        path.unlink()
    assert main(["table", str(folder)]) == 2
    assert "0 of 4 planned runs done; run `areabench sweep` first" in capsys.readouterr().err
    assert main(["table", str(tmp_path / "nothing")]) == 2
    assert "sweep.toml" in capsys.readouterr().err


def test_two_sweeps_of_one_name_do_not_overwrite_each_other(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", str(folder), str(folder), "--keep", "all", "-o", str(tmp_path / "out")]) == 2
    assert "two sweeps are called small" in capsys.readouterr().err
