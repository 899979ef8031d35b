"""python -m areabench."""

from areabench.cli import entry

entry()
