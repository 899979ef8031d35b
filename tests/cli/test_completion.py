"""Completion of the command line, asked through the protocol of argcomplete as a shell asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.answers import answer
from tests.support.texts import QUADRATIC

from areabench.cli.completion import SHELLS, override_words
from areabench.cli.parser import TYPED
from areabench.experiment.parse import parse_experiment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of each kind, and one folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.toml", "two words.toml", "run.h5", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    return tmp_path


def offered(line: str) -> list[str]:
    """How areabench continues a line that ends at the cursor."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": "answer", "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    command = [sys.executable, "-m", "areabench"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    answer = Path("answer").read_text(encoding="utf-8")
    Path("answer").unlink()
    return sorted(word.rstrip(" ") for word in answer.splitlines())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", sorted(TYPED)),
        ("watch run.h5 --tr", ["--trust-module"]),
        ("table runs --format la", ["latex"]),
        ("check ", ["one.toml", "runs/", "two\\ words.toml"]),
        ("show ", ["run.h5", "runs/"]),
        ("table ", ["runs/"]),
        ("simulate one.toml --set method.step_s", ["method.step_size="]),
        ("simulate one.toml --set method.name=ar", ["method.name=area"]),
        ("figures runs --step-size ar", ["area="]),
    ],
)
def test_what_is_offered(line: str, words: list[str], folder: Path) -> None:
    assert offered(f"areabench {line}") == words


def test_the_keys_are_those_that_an_experiment_has() -> None:
    words = set(override_words())
    assert {"seed=", "method.step_size=", "method.name=fedbuff", "record.events=false", "record.models=last"} <= words
    assert not [word for word in words if "method.name=" in word and word.endswith("=")]
    for word in ("record.models=last", "record.events=false", "delays.name=fixed", "schedule.name=1/k"):
        parse_experiment(QUADRATIC, overrides=[word])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script(shell: str, folder: Path) -> None:
    script = answer(f"completion {shell}").out
    assert "areabench" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    Path("script").write_text(script, encoding="utf-8")
    done = subprocess.run([shell, "-c", "source ./script"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_asks_areabench(folder: Path) -> None:
    Path("script").write_text(answer("completion bash").out, encoding="utf-8")
    program = folder / "areabench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m areabench "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    typed = """source ./script
COMP_WORDS=(areabench check on) COMP_CWORD=2 COMP_LINE="areabench check on" COMP_POINT=18 COMP_TYPE=9
_python_argcomplete areabench on check
printf '%s\\n' "${COMPREPLY[@]}"
"""
    path = f"{folder}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", typed]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    assert [word.rstrip() for word in done.stdout.splitlines()] == ["one.toml"]
