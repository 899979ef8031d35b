"""What is said where no command, or none that there is, was given."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

_OVERVIEW = """\
usage: areabench COMMAND ...

areabench benchmarks asynchronous federated optimization. A first run, in virtual time, and a look at it:

  areabench simulate benchmarks/demo.toml --output runs/first.h5
  areabench summary runs/first.h5

{commands}

`areabench COMMAND --help` tells a command's options and exit codes, `areabench --help` a line about each command."""
_GROUPS = {
    "run": ("simulate", "launch", "run", "resume", "sweep", "job"),
    "look": ("watch", "show", "summary", "compare", "diagnose", "table", "figures", "report"),
    "check": ("check", "theory", "replay", "recover", "doctor"),
    "shell": ("completion",),
}


def answer_without_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> str | None:
    """What to say of a command line without a command, or with one that there is not; None where there is one."""
    if not arguments:
        return overview(commands_of(parser))
    known = commands_of(parser)
    if arguments[0].startswith("-") or arguments[0] in known:
        return None
    from areabench.place import unknown  # loads numpy, whose threads are to be set before

    listed = [name for group in _GROUPS.values() for name in group if name in known]
    return f"areabench: {unknown('command', arguments[0], listed)}"


def overview(known: Collection[str]) -> str:
    """The commands by what they are for."""
    lines = [f"  {title:<6} {' '.join(name for name in names if name in known)}" for title, names in _GROUPS.items()]
    return _OVERVIEW.format(commands="\n".join(lines))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by name."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)
