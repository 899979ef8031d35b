"""`areabench completion`, and what the printed script asks for at each tabulator: argcomplete does both.

argcomplete knows commands, options and choices from the parser. This module adds the values for files, for
`--set section.key=value` and for `--step-size METHOD=ALPHA`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NoReturn, get_args, get_origin

from areabench.cli import Command, CommandContext

SHELLS = ("bash", "zsh", "fish")
_EXPERIMENTS = ("experiment", "sweeps", "split", "file")  # options that take an experiment or a sweep file
_RUNS = ("run", "runs", "first", "second", "ended_in", "measured_in")  # options that take a run file


def completion_options(parser: argparse.ArgumentParser) -> None:
    """A shell."""
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")


def completion_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the script that makes a shell ask areabench for completions."""
    del context  # every command has one
    from argcomplete.shell_integration import shellcode

    print(shellcode(["areabench"], True, options.shell), end="")
    return 0


def complete(line: str) -> NoReturn:
    """Answer the shell that has set _ARGCOMPLETE and asks how a line continues, and end the process."""
    import argcomplete
    from argcomplete.completers import ChoicesCompleter

    from areabench.cli.parser import TYPED, build_parser, commands_of

    known = [word for word in line.split() if word in TYPED][:1]  # its file alone is loaded
    parser = build_parser(known or TYPED, with_options=bool(known))
    for command in commands_of(parser).values():
        for action in command._actions:
            if (completer := _completer(action)) is not None:
                action.completer = completer  # type: ignore[attr-defined]
    nothing = ChoicesCompleter({})  # for plain values
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=nothing)
    sys.exit(1)


def _completer(action: argparse.Action) -> Callable[..., Iterable[str]] | None:
    """The values of an option or argument; None where the parser knows them, or they cannot be known."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.choices is not None or action.nargs == 0:
        return None
    if action.dest == "overrides":
        return lambda **_: override_words()
    if action.dest == "step_sizes":
        from areabench.methods import METHODS

        return lambda **_: [f"{method}=" for method in METHODS]
    if action.type is not Path:
        return None
    if action.metavar == "DIR":
        return DirectoriesCompleter()
    if action.dest in _EXPERIMENTS:
        return FilesCompleter(("toml",))
    if action.dest in _RUNS and action.metavar != "PATH":
        return FilesCompleter(("h5",))
    return FilesCompleter()


def override_words() -> list[str]:
    """What may follow `--set`: `section.key=value` where the values are known, else `section.key=`; each once."""
    from areabench.experiment.experiment import Experiment

    return sorted(set(_record_words(Experiment, "")))


def _record_words(record: type, prefix: str) -> Iterator[str]:
    """The words of all keys of a record, and of all parts that its sections can name."""
    from dataclasses import fields

    from areabench.settings.parse import hints_of, options_of, records_of
    from areabench.settings.parts import name_of

    hints = hints_of(record)
    for item in fields(record):
        key = prefix + item.name
        records = records_of(item, hints[item.name])
        if "parts" in item.metadata:
            yield from (f"{key}.name={name_of(part)}" for part in records)
        for part in records:
            # The name of a part is offered with its values, above.
            yield from (word for word in _record_words(part, f"{key}.") if not word.startswith(f"{key}.name="))
        if records:
            continue
        option = options_of(hints[item.name])[0]
        if get_origin(option) is Literal:
            yield from (f"{key}={value}" for value in get_args(option))
        elif option is bool:
            yield from (f"{key}=true", f"{key}=false")
        else:
            yield f"{key}="


COMMAND = Command(
    "bash > ~/.local/share/bash-completion/completions/areabench",
    completion_options,
    completion_command,
)
