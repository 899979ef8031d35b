"""The part of a script that bash and zsh have in common: what is offered after a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from areabench.completion.grammar import CommandWords, Value


def case(command: CommandWords, offer: Callable[[Value], str], offer_words: Callable[[Sequence[str]], str]) -> str:
    """A branch of `case "$command"`; the two functions say how a shell offers a value, and some words."""
    lines = [f"    {command.name})", '        case "$previous" in']
    for option in command.options:
        if option.value is not None:
            lines.append(f"        {'|'.join(option.flags)}) {offer(option.value)}; return ;;")
    flags = [flag for option in command.options for flag in option.flags if flag.startswith("--")]
    choice = f"if [[ $current == -* ]]; then {offer_words(flags)}; else {offer(command.place)}; fi"
    return "\n".join([*lines, "        esac", f"        {choice} ;;"])
