"""The completion script for zsh."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from areabench.completion.cases import case
from areabench.completion.grammar import CommandWords, Value

_SCRIPT = """\
#compdef areabench
# zsh completion of areabench; put it as _areabench into a folder of $fpath, or source it after compinit

_areabench() {{
    local command='' word current="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}"
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        if [[ $word != -* ]]; then command="$word"; break; fi
    done
    case "$command" in
    '')
        local -a commands=({commands})
        _describe command commands
        compadd -- --help --version ;;
{cases}
    esac
}}

if [[ ${{funcstack[1]}} == _areabench ]]; then _areabench "$@"; else compdef _areabench areabench; fi
"""


def zsh_script(commands: Sequence[CommandWords]) -> str:
    """The whole script."""
    cases = [case(command, _offer, _words) for command in commands]
    described = [shlex.quote(f"{command.name}:{command.purpose}") for command in commands]
    return _SCRIPT.format(commands=" ".join(described), cases="\n".join(cases))


def _offer(value: Value) -> str:
    match value.kind:
        case "words":
            return _words(value.words)
        case "folder":
            return "_files -/"
        case "file":
            return f"_files -g '*{value.suffix}(-.)'" if value.suffix else "_files"
        case _:
            return ":"


def _words(words: Sequence[str]) -> str:
    """Words that go on after their = get no space behind them."""
    whole = [shlex.quote(word) for word in words if not word.endswith("=")]
    begun = [shlex.quote(word) for word in words if word.endswith("=")]
    calls = [f"compadd -- {' '.join(whole)}"] * bool(whole) + [f"compadd -S '' -- {' '.join(begun)}"] * bool(begun)
    return "; ".join(calls)
