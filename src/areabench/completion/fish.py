"""The completion script for fish, 3.1 or newer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from areabench.completion.grammar import CommandWords, Option, Value

_HEAD = """\
# fish completion of areabench; put it as areabench.fish into ~/.config/fish/completions, or source it
complete -c areabench -f
complete -c areabench -n __fish_use_subcommand -l help -d 'print the list of commands'
complete -c areabench -n __fish_use_subcommand -l version -d 'print the version'
"""


def fish_script(commands: Sequence[CommandWords]) -> str:
    """The whole script."""
    return _HEAD + "".join(f"{line}\n" for command in commands for line in _lines(command))


def _lines(command: CommandWords) -> Iterator[str]:
    """The command, its options, and what it takes without naming one."""
    yield f"complete -c areabench -n __fish_use_subcommand -a {command.name} -d {_quoted(command.purpose)}"
    chosen = f"complete -c areabench -n '__fish_seen_subcommand_from {command.name}'"
    if command.place.kind != "plain":
        yield f"{chosen} {_offer(command.place)}"
    for option in command.options:
        yield f"{chosen} {_flags(option)}{'' if option.value is None else f' -r {_offer(option.value)}'}"


def _flags(option: Option) -> str:
    names = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    return f"{' '.join(names)} -d {_quoted(option.purpose)}"


def _offer(value: Value) -> str:
    match value.kind:
        case "words":
            return f"-f -a {_quoted(' '.join(map(_literal, value.words)))}"
        case "folder":
            return "-f -a '(__fish_complete_directories)'"
        case "file":
            return f"-f -a '(__fish_complete_suffix {value.suffix})'" if value.suffix else "-F"
        case _:
            return "-f"


def _literal(word: str) -> str:
    """A word in a list that fish expands when it is asked: parentheses would be a command."""
    return word.replace("(", "\\(").replace(")", "\\)")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
