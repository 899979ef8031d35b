"""What may stand where on the command line, in a form that every shell's script can be made from."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from areabench.completion.keys import override_words
from areabench.looks import METHOD_NAMES
from areabench.overview import commands_of

_EXPERIMENTS = ("experiment", "sweeps", "split", "file")
_RUNS = ("run", "runs", "first", "second", "ended_in", "measured_in")


@dataclass(frozen=True)
class Value:
    """What an option or a place takes: some words, or paths; nothing is known of plain values."""

    kind: Literal["plain", "words", "folder", "file"]
    words: tuple[str, ...] = ()  # one that ends with = goes on
    suffix: str = ""  # of the files


@dataclass(frozen=True)
class Option:
    """An option, by all its names; one without a value is a switch."""

    flags: tuple[str, ...]
    purpose: str
    value: Value | None


@dataclass(frozen=True)
class CommandWords:
    """A command, its options, and what it takes without naming an option."""

    name: str
    purpose: str
    options: tuple[Option, ...]
    place: Value


def grammar(parser: argparse.ArgumentParser) -> tuple[CommandWords, ...]:
    """The commands that people type, those with a line in the list of commands."""
    parsers, purposes = commands_of(parser), _purposes(parser)
    return tuple(_command(name, purpose, parsers[name]) for name, purpose in purposes.items())


def _purposes(parser: argparse.ArgumentParser) -> dict[str, str]:
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {choice.dest: choice.help or "" for choice in group._choices_actions}


def _command(name: str, purpose: str, parser: argparse.ArgumentParser) -> CommandWords:
    options = [_option(action) for action in parser._actions if action.option_strings]
    places = [_value(action) for action in parser._actions if not action.option_strings]
    return CommandWords(name, purpose, tuple(options), places[0] if places else Value("plain"))


def _option(action: argparse.Action) -> Option:
    value = None if action.nargs == 0 else _value(action)
    return Option(tuple(action.option_strings), (action.help or "").replace("%%", "%"), value)


def _value(action: argparse.Action) -> Value:
    if action.choices is not None:
        return Value("words", tuple(map(str, action.choices)))
    if action.dest == "overrides":
        return Value("words", override_words())
    if action.dest == "step_sizes":
        return Value("words", tuple(f"{method}=" for method in METHOD_NAMES))
    if action.type is not Path:
        return Value("plain")
    if action.metavar == "DIR":
        return Value("folder")
    return Value("file", suffix=_suffix(action))


def _suffix(action: argparse.Action) -> str:
    if action.dest in _EXPERIMENTS:
        return ".toml"
    return ".h5" if action.dest in _RUNS and action.metavar != "PATH" else ""
