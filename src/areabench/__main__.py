"""python -m areabench."""

from __future__ import annotations

from areabench.cli.main import entry

entry()
