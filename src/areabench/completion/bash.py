"""The completion script for bash, 3.2 or newer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from areabench.completion.cases import case
from areabench.completion.grammar import CommandWords, Value

_SCRIPT = """\
# bash completion of areabench; source this file, or put it where bash-completion looks for it

_areabench_words() {{  # offer those words of $1 that go on from what is there; one that ends with = goes on itself
    local candidates=() word
    read -ra candidates <<< "$1"
    for word in "${{candidates[@]}}"; do
        if [[ $word == "$current"* ]]; then COMPREPLY+=("$word"); fi
    done
    if [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
    if [[ $current == *=* && $COMP_WORDBREAKS == *=* ]]; then  # bash takes what follows the = for a word of its own
        local before="${{current%"${{current##*=}}"}}"
        COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
    fi
}}

_areabench_files() {{  # files that end with $1, and folders; folders alone without $1
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -d -- "$current"))
    if [[ $# -gt 0 ]]; then COMPREPLY+=($(compgen -f -X "!*$1" -- "$current" | while read -r file; do
        [[ -d $file ]] || printf '%s\\n' "$file"; done)); fi
}}

_areabench() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" words=() word command=""
    read -ra words <<< "$line"
    if [[ $line == *[[:space:]] ]]; then words+=(""); fi
    local current="${{words[${{#words[@]}}-1]}}" previous="${{words[${{#words[@]}}-2]}}"
    for word in "${{words[@]:1:${{#words[@]}}-2}}"; do
        if [[ $word != -* ]]; then command="$word"; break; fi
    done
    COMPREPLY=()
    case "$command" in
    "") _areabench_words {commands} ;;
{cases}
    esac
}}

complete -F _areabench areabench
"""


def bash_script(commands: Sequence[CommandWords]) -> str:
    """The whole script."""
    cases = [case(command, _offer, _offer_words) for command in commands]
    names = [*(command.name for command in commands), "--help", "--version"]
    return _SCRIPT.format(commands=_listed(names), cases="\n".join(cases))


def _offer(value: Value) -> str:
    match value.kind:
        case "words":
            return _offer_words(value.words)
        case "folder":
            return "_areabench_files"
        case "file":
            return f"_areabench_files '{value.suffix}'"
        case _:
            return ":"


def _offer_words(words: Sequence[str]) -> str:
    return f"_areabench_words {_listed(words)}"


def _listed(words: Sequence[str]) -> str:
    """Words, none of which has a space, as one."""
    return shlex.quote(" ".join(words))
