"""The notebooks as they are committed, and what runs them. `make notebooks` runs the notebooks themselves."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "analysis").glob("[1-9]_*.ipynb"))
LIBRARIES = {"pathlib", "numpy", "pandas", "matplotlib"}
READING = {"areabench", "areabench.figures", "areabench.theory"}  # with all below the last
NAMES = {"open_run", "open_sweep", "figures", "theory", "Run", "Sweep"}  # that may be taken from areabench itself


def code_of(path: Path) -> list[str]:
    """The cells of code, without the lines that are for the notebook and not for Python."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return ["\n".join(line for line in cell.source.splitlines() if not line.startswith("%")) for cell in cells]


def imports_of(cells: list[str]) -> list[tuple[str, str]]:
    """Modules that cells import, each with the name that is taken from it, if one is."""
    nodes = [node for cell in cells for node in ast.walk(ast.parse(cell))]
    plain = [(alias.name, "") for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [(node.module or "", one.name) for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names]
    return plain + froms


def is_public(module: str, name: str) -> bool:
    """Whether an import is of the reading side, of the theory, of a figure, or of a library."""
    if module == "areabench":
        return name in NAMES | {""}
    return module.partition(".")[0] in LIBRARIES or module in READING or module.startswith("areabench.theory.")


@pytest.fixture
def runner() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "analysis"))
    yield importlib.import_module("run_notebooks")
    sys.path.remove(str(ROOT / "analysis"))


def test_there_are_notebooks_in_a_row() -> None:
    assert [int(path.name[0]) for path in NOTEBOOKS] == list(range(1, len(NOTEBOOKS) + 1))
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs_and_valid(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len({cell["id"] for cell in notebook.cells}) == len(notebook.cells)
    for cell in notebook.cells:
        assert cell.source.strip(), f"{cell['id']} is empty"
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None), f"{cell['id']}: clear its output"


@pytest.mark.parametrize("path", NOTEBOOKS[:3], ids=lambda path: path.stem)
def test_only_the_reading_side_is_imported(path: Path) -> None:
    assert [f"{module}: {name}" for module, name in imports_of(code_of(path)) if not is_public(module, name)] == []


@pytest.mark.parametrize(
    ("cell", "allowed"),
    [
        ("import areabench", True),
        ("from areabench import open_run, figures", True),
        ("from areabench.theory.recursion import recursion_bound", True),
        ("from areabench.reading import Run", False),
        ("import areabench.scenario", False),
        ("from areabench import scenario", False),
        ("def later():\n    import h5py", False),
    ],
)
def test_what_counts_as_the_reading_side(cell: str, allowed: bool) -> None:
    assert all(is_public(*one) for one in imports_of([cell])) == allowed


# ---------------------------------------------------------------------------------------------------- running


def notebook(path: Path, *cells: str) -> Path:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return path


@pytest.mark.slow
def test_runs_in_its_folder_and_writes_what_it_shows(runner: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "here.txt").write_text("found it")
    path = notebook(tmp_path / "1_good.ipynb", "print(open('here.txt').read())", "6 * 7")
    assert runner.main([str(path), "--output", str(tmp_path / "out")]) == 0
    ran = nbformat.read(tmp_path / "out" / "1_good.ipynb", as_version=4)
    assert ran.cells[0].outputs[0].text == "found it\n"
    assert ran.cells[1].outputs[0].data["text/plain"] == "42"
    assert "found it" in (tmp_path / "out" / "1_good.html").read_text()
    assert "2 cells in" in capsys.readouterr().out


@pytest.mark.slow
def test_failures_name_notebook_cell_and_exception_and_the_others_still_run(
    runner: Any, tmp_path: Path, capsys: Any
) -> None:
    bad = notebook(tmp_path / "1_bad.ipynb", "x = 1", "x / 0\nx", "print('never')")
    warns = notebook(tmp_path / "2_warns.ipynb", "import warnings", "warnings.warn('old')")
    assert runner.main([str(bad), str(warns), "--output", str(tmp_path)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == f"error: {bad}, cell In [2] (x / 0): ZeroDivisionError: division by zero"
    assert errors[1].startswith(f"error: {warns}, cell In [2] wrote to stderr: ")
    assert errors[1].endswith("UserWarning: old")


@pytest.mark.slow
def test_a_cell_that_takes_too_long_is_ended(runner: Any, tmp_path: Path, capsys: Any) -> None:
    path = notebook(tmp_path / "1_slow.ipynb", "while True:\n    pass")
    assert runner.main([str(path), "--output", str(tmp_path), "--cell-seconds", "1"]) == 1
    assert "cell In [1] (while True:): took more than 1 s" in capsys.readouterr().err


def test_what_is_no_notebook_is_told(runner: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "1_no.ipynb").write_text("{")
    assert runner.main([str(tmp_path / "1_no.ipynb"), "--output", str(tmp_path)]) == 1
    assert "cannot be read as a notebook" in capsys.readouterr().err
