"""Run notebooks and keep their outputs: make notebooks, or python analysis/run_notebooks.py NOTEBOOK ... --output DIR.

Each runs in its own folder and kernel, from its first cell to its last. A cell that raises or takes too long ends it,
and the notebook is written up to that cell. A cell that writes to stderr, as warnings do, is a failure too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_CELL_S = 300  # a cell may take; on small data none takes ten


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all, also after one has failed."""
    parser = argparse.ArgumentParser(description="run notebooks, and write them with their outputs, also as HTML")
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the run notebooks go")
    parser.add_argument("--cell-seconds", type=int, default=_CELL_S, metavar="S", help="how long a cell may take")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many to run at a time")
    options = parser.parse_args(arguments)
    try:
        import nbclient  # noqa: F401 - asked for here, so that its lack is told in one line
        import nbconvert  # noqa: F401
    except ImportError as error:
        print(
            f"error: notebooks need nbclient and nbconvert ({error}); `pip install '.[notebooks]'`",
            file=sys.stderr,
        )
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:  # threads are enough: the work is in the kernels
        problems = list(pool.map(lambda path: run(path, options.output, options.cell_seconds), options.notebooks))
    for problem in filter(None, problems):
        print(f"error: {problem}", file=sys.stderr)
    return 1 if any(problems) else 0


def run(path: Path, output: Path, cell_s: int) -> str:
    """Run one notebook, write it and print how long it took; returns what went wrong, in one line, or nothing."""
    import nbformat

    tell(f"{path}: running")
    started_s = time.monotonic()
    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError) as error:
        return f"{path}: cannot be read as a notebook: {error}"
    problem = execute(notebook, path.parent, cell_s) or spoken(notebook)
    pages = write(notebook, output / path.stem)
    taken = f"{count_run(notebook)} cells in {time.monotonic() - started_s:.1f} s"
    tell(f"{path}: {taken}, {' and '.join(map(str, pages))}")
    return f"{path}, {problem}" if problem else ""


def tell(line: str) -> None:
    """Print a line at once and in one piece: two notebooks run at a time."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def execute(notebook: Any, folder: Path, cell_s: int) -> str:
    """Run all cells; returns what went wrong, in one line, or nothing."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from traitlets.config import Config

    with tempfile.TemporaryDirectory() as scratch:  # without the user's settings and history
        own = {"IPYTHONDIR": scratch, "JUPYTER_RUNTIME_DIR": scratch}
        private = Config(KernelManager={"transport": "ipc", "connection_file": f"{scratch}/kernel.json"})
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(notebook, timeout=cell_s, kernel_name="python3", resources=resources, config=private)
        try:
            client.execute(env={**os.environ, **own})
        except CellExecutionError as error:
            return f"{last_cell(notebook)}: {error.ename}: {error.evalue}"
        except CellTimeoutError:
            return f"{last_cell(notebook)}: took more than {cell_s} s; raise --cell-seconds, or make it smaller"
        except DeadKernelError as error:
            return f"{last_cell(notebook)}: the kernel died: {error}"
    return ""


def spoken(notebook: Any) -> str:
    """The first line that a cell wrote to stderr, which is where warnings go."""
    for cell in _code(notebook):
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                return f"cell In [{cell.execution_count}] wrote to stderr: {output.text.strip().splitlines()[0]}"
    return ""


def last_cell(notebook: Any) -> str:
    """The last cell that was run, with its first line of code."""
    cells = _code(notebook)
    started = [cell for cell in cells if cell.metadata.get("execution")] or cells
    number = len(started)
    source = started[-1].source.strip() if started else ""
    return f"cell In [{number}] ({source.splitlines()[0] if source else 'empty'})"


def count_run(notebook: Any) -> int:
    """Cells of code that were run to their end."""
    return sum(cell.execution_count is not None for cell in _code(notebook))


def write(notebook: Any, stem: Path) -> list[Path]:
    """The notebook with its outputs, and as a page that opens from disk without a network."""
    import nbformat
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", widget_renderer_url="")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": stem.name}})
    paths = [stem.with_suffix(".ipynb"), stem.with_suffix(".html")]
    nbformat.write(notebook, paths[0])
    paths[1].write_text(page, encoding="utf-8")
    return paths


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


if __name__ == "__main__":
    sys.exit(main())
