"""Completion scripts, asked in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.texts import QUADRATIC

from areabench.arguments import SHELLS, build_parser
from areabench.cli import main
from areabench.completion.grammar import CommandWords, grammar
from areabench.completion.keys import override_words
from areabench.config import parse_experiment

# What each shell answers when this line is typed up to its end and the tabulator is hit.
BASH = """
source ./script
COMP_LINE="$1" COMP_POINT=${#1}
_areabench
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
compadd() { local word; for word in "$@"; do [[ $word == (-S|--|) ]] || print -r -- "$word"; done }
_describe() { local entry; for entry in "${(@P)2}"; do print -r -- "${entry%%:*}"; done }
_files() {
    case $1 in
    -/) print -l -- *(-/N) ;;
    -g) print -l -- ${~${2%\\(-.\\)}}(N) ;;
    *) print -l -- *(N) ;;
    esac
}
source ./script
words=("${(@s: :)1}") CURRENT=${#words}
_areabench
"""
FISH = "source ./script; complete -C $argv[1] | string replace -r '\\t.*' ''; true"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of each kind, and one folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.toml", "two words.toml", "run.h5", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    return tmp_path


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A shell, with its script beside."""
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    assert main(["completion", name]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (folder / "script").write_text(captured.out, encoding="utf-8")
    return name


def offered(shell: str, line: str) -> list[str]:
    """What a shell offers at the end of a line, as far as it goes on from what is there."""
    command = {
        "bash": ["bash", "--norc", "-c", BASH, "bash", line],
        "zsh": ["zsh", "-f", "-c", ZSH, "zsh", line],
        "fish": ["fish", "--no-config", "-c", FISH, line],
    }[shell]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    last = line.split(" ")[-1]
    words = [word for word in done.stdout.splitlines() if word]
    return words if shell == "bash" else [word for word in words if word.startswith(last)]


def test_commands(shell: str) -> None:
    assert sorted(offered(shell, "areabench s")) == [name for name in names() if name.startswith("s")]
    assert set(names()) <= set(offered(shell, "areabench "))


def names() -> list[str]:
    return sorted(command.name for command in grammar(build_parser()))


def test_options(shell: str) -> None:
    assert "--interval" in offered(shell, "areabench watch run.h5 --")
    assert "--plot" not in offered(shell, "areabench watch run.h5 --")
    assert offered(shell, "areabench watch run.h5 --tr") == ["--trust-module"]


def test_choices(shell: str) -> None:
    assert sorted(offered(shell, "areabench simulate one.toml --progress ")) == ["always", "auto", "marked", "never"]
    assert offered(shell, "areabench table runs --format la") == ["latex"]
    assert sorted(offered(shell, "areabench completion ")) == ["bash", "fish", "zsh"]


def test_files_by_their_suffix(shell: str) -> None:
    experiments, runs = offered(shell, "areabench check "), offered(shell, "areabench show ")
    assert "one.toml" in experiments
    assert "run.h5" in runs
    if shell != "fish":  # fish puts those with the suffix first, and offers the others after them
        assert not {"run.h5", "notes.txt"} & set(experiments)
        assert not {"one.toml", "notes.txt"} & set(runs)
    folders = [word.rstrip("/") for word in offered(shell, "areabench table ")]
    assert folders == ["runs"]


def test_keys_of_an_experiment(shell: str) -> None:
    assert offered(shell, "areabench simulate one.toml --set method.st") == ["method.step_size="]
    values = offered(shell, "areabench simulate one.toml --set method.name=a")
    whole = [f"method.name={value}" for value in values] if shell == "bash" else values  # bash completes behind the =
    assert whole == ["method.name=area", "method.name=as-fedavg"]


def test_methods(shell: str) -> None:
    assert offered(shell, "areabench figures runs --step-size fe") == ["fedbuff="]


def test_file_names_with_spaces(shell: str) -> None:
    assert "two words.toml" in [word.replace("\\", "") for word in offered(shell, "areabench check tw")]


# ---------------------------------------------------------------------------------------------------- grammar


def test_every_option_of_every_command_is_known() -> None:
    commands = {command.name: command for command in grammar(build_parser())}
    assert "batch" not in commands  # not for typing
    assert _flags(commands["show"]) == {"-h", "--help", "--toml", "--json"}
    assert commands["show"].place.suffix == ".h5"
    assert commands["sweep"].place.suffix == ".toml"
    assert commands["doctor"].place.kind == "plain"


def _flags(command: CommandWords) -> set[str]:
    return {flag for option in command.options for flag in option.flags}


def test_the_keys_are_those_that_an_experiment_has() -> None:
    words = override_words()
    assert {"seed=", "method.step_size=", "method.name=fedbuff", "record.events=false", "record.models=last"} <= set(
        words
    )
    assert not [word for word in words if "method.name=" in word and word.endswith("=")]
    for word in ("record.models=last", "record.events=false", "delays.name=fixed", "schedule.name=1/k"):
        parse_experiment(QUADRATIC, overrides=[word])


def test_no_word_has_a_space() -> None:
    """The scripts keep words in one text, with spaces between."""
    for command in grammar(build_parser()):
        for option in command.options:
            assert not any(" " in word for word in (option.value.words if option.value else ()))
