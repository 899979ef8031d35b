"""What `areabench completion` does."""

from __future__ import annotations

import argparse
import sys

from areabench.completion.bash import bash_script
from areabench.completion.fish import fish_script
from areabench.completion.grammar import grammar
from areabench.completion.zsh import zsh_script


def print_script(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the completion script for a shell."""
    make = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell]
    sys.stdout.write(make(grammar(parser)))
    return 0
