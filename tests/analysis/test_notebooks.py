"""The notebooks as they are committed, and what runs them. `make notebooks` runs the notebooks themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "analysis").glob("[1-9]_*.ipynb"))
LIBRARIES = {"pathlib", "numpy", "pandas", "matplotlib"}
READING = {"areabench", "areabench.figures", "areabench.theory", "paper.table", "studies", "studies.theorems"}
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


# ---------------------------------------------------------------------------------------------------- running


def notebook(path: Path, *cells: str) -> Path:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return path


def run(*arguments: object) -> tuple[int, str, list[str]]:
    """Exit code, what it prints, and the lines of its errors."""
    command = [sys.executable, str(ROOT / "analysis" / "run_notebooks.py"), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.slow
def test_failures_are_named_and_the_others_run_in_their_folder_and_are_written(tmp_path: Path) -> None:
    """All in one go: each start of the program takes seconds."""
    bad = notebook(tmp_path / "1_bad.ipynb", "x = 1", "x / 0\nx", "print('never')")
    warns = notebook(tmp_path / "2_warns.ipynb", "import warnings", "warnings.warn('old')")
    slow = notebook(tmp_path / "3_slow.ipynb", "while True:\n    pass")
    (tmp_path / "4_none.ipynb").write_text("{")
    (tmp_path / "here.txt").write_text("found it")
    good = notebook(tmp_path / "5_good.ipynb", "print(open('here.txt').read())", "6 * 7")
    paths = (bad, warns, slow, tmp_path / "4_none.ipynb", good)
    code, printed, errors = run(*paths, "--output", tmp_path / "out", "--cell-seconds", 3)
    assert (code, len(errors)) == (1, 4)
    assert errors[0] == f"error: {bad}, cell In [2] (x / 0): ZeroDivisionError: division by zero"
    assert errors[1].startswith(f"error: {warns}, cell In [2] wrote to stderr: ")
    assert errors[1].endswith("UserWarning: old")
    assert errors[2].startswith(f"error: {slow}, cell In [1] (while True:): took more than 3 s")
    assert "4_none.ipynb: cannot be read as a notebook" in errors[3]
    assert "2 cells in" in printed
    ran = nbformat.read(tmp_path / "out" / "5_good.ipynb", as_version=4)
    assert ran.cells[0].outputs[0].text == "found it\n"
    assert ran.cells[1].outputs[0].data["text/plain"] == "42"
    assert "found it" in (tmp_path / "out" / "5_good.html").read_text()
