"""The page of the variants of the paper's tables: make variants, or python analysis/variants_page.py RUNS... PAGE."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paper.variants import variants_page

from areabench.errors import UserError
from areabench.sweeps.read import open_finished


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the folders of the sweeps and write the page."""
    *folders, page = sys.argv[1:] if arguments is None else arguments
    if not folders:
        print("usage: python analysis/variants_page.py SWEEP_FOLDER ... PAGE.md", file=sys.stderr)
        return 2
    try:
        sweeps = open_finished([Path(folder) for folder in folders])
        text = variants_page(sweeps, shlex.join(["python", "analysis/variants_page.py", *folders, page]))
    except UserError as error:
        print(f"variants_page: {error}", file=sys.stderr)
        return 2
    Path(page).parent.mkdir(parents=True, exist_ok=True)
    Path(page).write_text(text, encoding="utf-8")
    print(f"page: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
