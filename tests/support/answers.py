"""What a command of areabench prints, called in this process."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from areabench.cli import main as cli

SOURCE = str(Path(cli.__file__).parents[2])


class Answer(NamedTuple):
    """Stdout and stderr of a command."""

    out: str
    err: str


def answer(command: str, *more: object, code: int = 0) -> Answer:
    """What a command prints, which ends with this exit code; `more` words follow those of the command."""
    words = [*shlex.split(command), *map(str, more)]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            ended = cli.main(words)
        except SystemExit as stopped:  # of the parser
            ended = int(stopped.code or 0)
    assert ended == code, (words, out.getvalue(), err.getvalue())
    return Answer(out.getvalue(), err.getvalue())


def complaint(command: str, *more: object, code: int = 2) -> str:
    """The one line on stderr with which a command ends; it prints nothing else."""
    said = answer(command, *more, code=code)
    assert said.out == ""
    assert said.err.startswith("areabench: ")
    assert said.err.count("\n") == 1
    return said.err.strip()


def record(command: str, *more: object, code: int = 0) -> dict[str, Any]:
    """The object that a command prints with `--json`."""
    said = answer(command, *more, "--json", code=code)
    assert "NaN" not in said.out
    assert "Infinity" not in said.out
    assert bool(said.err) == (code != 0)
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


def in_process(
    command: str, *more: object, before: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, after some lines of Python."""
    script = f"import sys\n{before}\nfrom areabench.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    return finished([sys.executable, "-c", script, *shlex.split(command), *map(str, more)], environment)


def finished(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A process that has ended, with areabench on its path."""
    variables = {**os.environ, "PYTHONPATH": SOURCE, **(environment or {})}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
