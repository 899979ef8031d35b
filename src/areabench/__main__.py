"""python -m areabench."""

from __future__ import annotations

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib could be a file of that folder
    del sys.path[0]  # Python's -m puts the current folder first, where a file of any name may lie

from areabench.cli.main import entry  # noqa: E402

entry()
