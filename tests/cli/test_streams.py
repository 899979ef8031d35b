"""Output that cannot be written, and input that is no file: one line and exit code 2, never a traceback or a hang."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.own_parts import write
from tests.support.texts import QUADRATIC

import areabench
from areabench.cli.main import main

FULL, CLOSED = "full", "closed"
ENTRY = "from areabench.cli.main import entry; entry()"


def ended(words: Sequence[str], out: str = "", err: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """A command whose stdout or stderr is full or closed; the others are read."""
    targets = {FULL: ">/dev/full", CLOSED: ">&-", "": ""}
    redirections = (f"1{targets[out]} " if out else "") + (f"2{targets[err]}" if err else "")
    shell = f'{before} exec "$0" "$@" {redirections}'
    environment = {**os.environ, "PYTHONPATH": str(Path(areabench.__file__).parents[1])}
    return subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable, "-c", ENTRY, *words],
        capture_output=True, text=True, check=False, timeout=60, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small experiment file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(QUADRATIC, encoding="utf-8")
    return path


@pytest.mark.parametrize("words", [["check", "tiny.toml"], ["--help"], ["simulate", "missing.toml"], []])
@pytest.mark.parametrize("how", [FULL, CLOSED])
@pytest.mark.usefixtures("experiment")
def test_output_that_goes_nowhere_is_reported_on_the_other_stream(words: list[str], how: str) -> None:
    what = "cannot be written: No space left on device; " if how == FULL else "is closed; "
    without_out, without_err = ended(words, out=how), ended(words, err=how)
    assert (without_out.returncode, without_err.returncode) == (2, 2)
    assert without_out.stderr.startswith(f"areabench: stdout {what}redirect it ")
    assert without_err.stdout.startswith(f"areabench: stderr {what}redirect it ")
    assert without_out.stderr.count("\n") == without_err.stdout.count("\n") == 1


@pytest.mark.parametrize(("out", "err"), [(FULL, FULL), (CLOSED, CLOSED), (FULL, CLOSED)])
@pytest.mark.usefixtures("experiment")
def test_no_output_at_all(out: str, err: str) -> None:
    assert ended(["check", "tiny.toml"], out, err).returncode == 2


@pytest.mark.usefixtures("experiment")
def test_a_launch_without_output_starts_no_ranks() -> None:
    assert ended(["launch", "tiny.toml", "-o", "run.h5"], out=FULL).returncode == 2
    assert not Path("run.h5").exists()


@pytest.mark.parametrize(
    ("words", "name", "other"), [(["check", "tiny.toml"], "stdout", "stderr"), (["show", "a.h5"], "stderr", "stdout")]
)
@pytest.mark.usefixtures("experiment")
def test_a_disc_that_becomes_full(words: list[str], name: str, other: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(areabench.__file__).parents[1])}
    with Path("printed").open("w") as printed:
        process = subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            **{name: printed, other: subprocess.PIPE},  # type: ignore[call-overload]
            text=True, check=False, timeout=60, env=environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )  # fmt: skip
    assert process.returncode == 2
    assert getattr(process, other).startswith(f"areabench: {name} cannot be written: File too large; ")
    assert getattr(process, other).count("\n") == 1


@pytest.mark.usefixtures("experiment")
def test_help_still_reaches_a_reader_that_stays() -> None:
    assert ended(["--help"]).stdout.startswith("usage: areabench")


# ---------------------------------------------------------------------------------------------------- pipes


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "pipe"], ["check", "pipe"], ["theory", "pipe"], ["sweep", "pipe"], ["launch", "pipe"],
        ["job", "pipe", "--scheduler", "slurm"], ["show", "pipe"], ["replay", "pipe"], ["resume", "pipe"],
        ["watch", "pipe", "--once"], ["recover", "pipe", "-o", "b.h5"], ["check", "tiny.toml", "--ended-in", "pipe"],
        ["summary", "pipe"], ["report", "pipe"], ["compare", "pipe", "pipe"],
    ],
)  # fmt: skip
@pytest.mark.usefixtures("experiment")
def test_a_pipe_is_not_read(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "areabench: pipe: is a pipe, and only regular files are read; write its content to a file, and give the path "
        "of that\n"
    )


def test_a_module_that_is_a_pipe_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    path.with_name("mine.py").unlink()
    os.mkfifo(path.with_name("mine.py"))
    assert main(["simulate", str(path)]) == 2
    assert "importing 'mine' failed (ModuleNotFoundError" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- signals, sys.exit


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
@pytest.mark.usefixtures("experiment")
def test_a_signal_before_mpirun_starts(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("areabench.launching.run.place_clients", lambda *_: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    assert main(["launch", "tiny.toml", "-o", "run.h5"]) == 4
    assert capsys.readouterr().err == f"areabench: {number.name} came while no run was under way; start it again\n"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("code", ["0", "3", ""])
def test_sys_exit_of_a_part_is_a_failure(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a replay, where nothing else would tell it from success."""
    monkeypatch.chdir(tmp_path)
    counted = "import os; n = int(os.environ.get('N', 0)) + 1; os.environ['N'] = str(n)"
    path = write(tmp_path, "method", aggregate=f"{counted}; n < 4 or __import__('sys').exit({code})")
    line = (
        "areabench: method.name = 'mine:make' called sys.exit({}) at mine.py, line 21; let it return, or raise an error"
    )
    failed = ended(["simulate", str(path), "-o", "run.h5"])
    assert (failed.returncode, failed.stderr) == (1, line.format(code or None) + "\n")
    status = ended(["show", "run.h5"]).stdout
    assert "failed: method.name = 'mine:make' called sys.exit" in status


def test_sys_exit_in_a_replay_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "problem", descend="import os; 'LEAVE' in os.environ and __import__('sys').exit(0)")
    assert ended(["simulate", str(path), "-o", "run.h5"]).returncode == 0
    failed = ended(["replay", "run.h5", "--trust-module", "mine.py"], before="export LEAVE=1;")
    assert failed.returncode != 0
    assert "mine.py, line " in failed.stderr
    assert "Traceback" not in failed.stderr
