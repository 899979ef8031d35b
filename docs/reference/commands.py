"""The page docs/commands.md, made from the command line's own parser: make docs-reference."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable

from areabench.cli.parser import build_parser, command_of, exit_codes_text

_INTRODUCTION = """\
# Commands

What `areabench COMMAND --help` prints, for every command. The examples run from the repository's top folder after
`make demo`, one after the other; `runs/stopped.h5` is a run that a signal has stopped. This page is generated:
`make docs-reference`.
"""
_COMMON = 3  # an argument that so many commands have is described once
_EPILOG = re.compile(r"example: (?P<example>.*?)\.? exit codes: .*", re.DOTALL)
_PROGRAMS = re.compile(r"(?<![\w/])(areabench|mpirun)(?= )")
_PASTED = {  # what stands in an example for a file, and one that is there after `make demo` and the examples before
    "SIM.h5 MPI.h5": "runs/try-simulate.h5 runs/try-launch.h5",
    "RUN.h5": "runs/demo/area.h5",
    "SAVED.h5": "runs/saved.h5",
    "runs/*.h5": "runs/demo/*.h5",
    "runs/demo-area-0.h5": "runs/stopped.h5",
    " demo.toml": " benchmarks/experiments/demo/demo.toml",
    "mpirun -n 9": "mpirun -n 5",  # clients may share ranks, and few start soon
}


def command_reference() -> str:
    """All commands that are meant to be typed, as Markdown."""
    commands = _commands(build_parser())
    overview = f"Commands: {', '.join(f'[{name}](#{name})' for name, *_ in commands)}.\n"
    counts = Counter(entry for _, _, parser in commands for entry in _entries(parser))
    common = sorted((entry for entry, count in counts.items() if count >= _COMMON), key=_is_option)
    sections = [_section(name, purpose, parser, common) for name, purpose, parser in commands]
    codes = _exit_codes([name for name, *_ in commands])
    return "\n".join([_INTRODUCTION, overview, _common_section(common), codes, *sections])


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """Name, purpose and parser of each command; those without a purpose are called by other commands only."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [(entry.dest, entry.help or "", commands.choices[entry.dest]) for entry in commands._choices_actions]


def _entries(parser: argparse.ArgumentParser) -> list[str]:
    """One entry per argument or option."""
    return [_entry(action) for action in parser._actions if _is_shown(action)]


def _entry(action: argparse.Action) -> str:
    default, meaning = _default(action), _meaning(action)
    remark = "" if not default or "default" in meaning else f" ({default})"
    return f"- {_spelling(action)}: {meaning}{remark}"


def _common_section(common: list[str]) -> str:
    return "\n".join(
        [
            "## Common options\n",
            "Arguments and options of at least three commands.\n",
            *common,
            "",
        ]
    )


def _exit_codes(names: list[str]) -> str:
    """Each list of codes once, with the commands that have it; that of most commands comes last."""
    commands: dict[str, list[str]] = {}
    for name in names:
        commands.setdefault(exit_codes_text(command_of(name)), []).append(f"`{name}`")
    usual = max(commands, key=lambda text: len(commands[text]))
    entries = [f"- {', '.join(having)}: {text}" for text, having in commands.items() if text != usual]
    return "\n".join(["## Exit codes\n", *entries, f"- all others: {usual}", ""])


def _section(name: str, purpose: str, parser: argparse.ArgumentParser, common: list[str]) -> str:
    positional = [action for action in parser._actions if _is_shown(action) and not action.option_strings]
    usage = " ".join(["areabench", name, *(_usage(action) for action in positional)])
    own = [entry for entry in _entries(parser) if entry not in common]
    shared = [option for entry in _entries(parser) if entry in common for option in re.findall(r"`(--[\w-]+)", entry)]
    if shared:
        own.append(f"- [common](#common-options): {', '.join(f'`{option}`' for option in shared)}")
    heading = f"## {name}\n\n`{usage}`: {purpose}.\n"
    return "\n".join([heading, *own, "", _example(name, parser.epilog or "")])


def _is_option(entry: str) -> bool:
    return entry.startswith("- `-")


def _is_shown(action: argparse.Action) -> bool:
    return action.help not in (None, argparse.SUPPRESS) and not isinstance(action, argparse._HelpAction)


def _usage(action: argparse.Action) -> str:
    """A positional argument, in brackets where it may be left out."""
    name = _metavar(action)
    if action.nargs == "+":
        return f"{name} [{name} ...]"
    return f"[{name}]" if action.nargs == "?" else name


def _metavar(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


def _spelling(action: argparse.Action) -> str:
    """All names of an option and what it takes."""
    if not action.option_strings:
        return f"`{_metavar(action)}`"
    takes = "" if action.nargs == 0 else f" {'|'.join(action.choices) if action.choices else _metavar(action)}"
    return ", ".join(f"`{name}`" for name in action.option_strings)[:-1] + f"{takes}`"


def _default(action: argparse.Action) -> str:
    if action.required and action.option_strings:
        return "required"
    if action.nargs == 0 or action.default in (None, [], "", float("inf")) or isinstance(action.default, tuple):
        return ""
    return f"default `{action.default:g}`" if isinstance(action.default, float) else f"default `{action.default}`"


def _meaning(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _example(name: str, epilog: str) -> str:
    """An example that can be pasted."""
    if not (parts := _EPILOG.fullmatch(epilog)):
        return f"{epilog}\n"
    example = parts["example"].replace("runs/try.h5", f"runs/try-{name}.h5")
    for words, file in _PASTED.items():
        example = example.replace(words, file)
    example = _PROGRAMS.sub(r".venv/bin/\1", example)
    return f"```sh\n{example}\n```\n"


def options_of_commands() -> dict[str, frozenset[str]]:
    """The options that each command knows."""
    return {name: _options(parser._actions) for name, _, parser in _commands(build_parser())}


def _options(actions: Iterable[argparse.Action]) -> frozenset[str]:
    return frozenset(name for action in actions for name in action.option_strings)


if __name__ == "__main__":
    sys.stdout.write(command_reference())
