"""The page of all sweeps beside the paper's tables: make tables, or python analysis/results_page.py RUNS... PAGE."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paper.page import write_results

from areabench.errors import UserError
from areabench.sweeps.read import open_finished


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the folders of the sweeps and write the page."""
    *folders, page = sys.argv[1:] if arguments is None else arguments
    if not folders:
        print("usage: python analysis/results_page.py SWEEP_FOLDER ... PAGE.md", file=sys.stderr)
        return 2
    try:
        sweeps = open_finished([Path(folder) for folder in folders])
        write_results(sweeps, Path(page), shlex.join(["python", "analysis/results_page.py", *folders, page]))
    except UserError as error:
        print(f"results_page: {error}", file=sys.stderr)
        return 2
    print(f"page: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
