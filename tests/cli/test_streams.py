"""Output that cannot be written, and input that is no file: one line and exit code 2, never a traceback or a hang."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.answers import SOURCE, complaint, finished
from tests.support.own_parts import write
from tests.support.texts import QUADRATIC

FULL = ">/dev/full"
CLOSED = ">&-"
ENTRY = [sys.executable, "-c", "from areabench.cli.main import entry; entry()"]


def ended(command: str, out: str = "", err: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """A command whose stdout or stderr is full or closed; the others are read."""
    redirections = " ".join(f"{number}{where}" for number, where in ((1, out), (2, err)) if where)
    shell = f'{before} exec "$0" "$@" {redirections} <&-'
    return finished(["/bin/sh", "-c", shell, *ENTRY, *command.split()])


@pytest.fixture(autouse=True)
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small experiment file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(QUADRATIC, encoding="utf-8")


@pytest.mark.parametrize("command", ["check tiny.toml", "--help", "simulate missing.toml", ""])
@pytest.mark.parametrize(
    ("how", "words"), [(FULL, "cannot be written: No space left on device; "), (CLOSED, "is closed; ")]
)
def test_output_that_goes_nowhere_is_reported_on_the_other_stream(command: str, how: str, words: str) -> None:
    without_out = ended(command, out=how)
    without_err = ended(command, err=how)
    assert (without_out.returncode, without_err.returncode) == (2, 2)
    assert without_out.stderr.startswith(f"areabench: stdout {words}redirect it ")
    assert without_err.stdout.startswith(f"areabench: stderr {words}redirect it ")
    assert without_out.stderr.count("\n") == without_err.stdout.count("\n") == 1


@pytest.mark.parametrize(("out", "err"), [(FULL, FULL), (CLOSED, CLOSED), (FULL, CLOSED)])
def test_no_output_at_all(out: str, err: str) -> None:
    assert ended("check tiny.toml", out, err).returncode == 2


def test_a_launch_without_output_starts_no_ranks() -> None:
    assert ended("launch tiny.toml -o run.h5", out=FULL).returncode == 2
    assert not Path("run.h5").exists()


@pytest.mark.parametrize(
    ("command", "name", "other"), [("check tiny.toml", "stdout", "stderr"), ("show a.h5", "stderr", "stdout")]
)
def test_a_disc_that_becomes_full(command: str, name: str, other: str) -> None:
    with Path("printed").open("w") as printed:
        process = subprocess.run(
            [*ENTRY, *command.split()],
            **{name: printed, other: subprocess.PIPE},  # type: ignore[call-overload]
            text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": SOURCE},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )  # fmt: skip
    assert process.returncode == 2
    assert getattr(process, other).startswith(f"areabench: {name} cannot be written: File too large; ")
    assert getattr(process, other).count("\n") == 1


def test_help_still_reaches_a_reader_that_stays() -> None:
    assert ended("--help").stdout.startswith("usage: areabench")


# ---------------------------------------------------------------------------------------------------- pipes


@pytest.mark.parametrize(
    "command",
    [
        "simulate pipe", "check pipe", "theory pipe", "sweep pipe", "launch pipe", "job pipe --scheduler slurm",
        "show pipe", "replay pipe", "resume pipe", "watch pipe --once", "recover pipe -o b.h5",
        "check tiny.toml --ended-in pipe", "summary pipe", "report pipe", "compare pipe pipe",
    ],
)  # fmt: skip
def test_a_pipe_is_not_read(command: str) -> None:
    os.mkfifo("pipe")
    told = complaint(command)
    assert told.startswith("areabench: pipe: is a pipe, and only regular files are read; write its content to a file")


def test_a_module_that_is_a_pipe_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "there", "method")
    path.with_name("mine.py").unlink()
    os.mkfifo(path.with_name("mine.py"))
    assert "importing 'mine' failed (ModuleNotFoundError" in complaint("simulate", path)


# ---------------------------------------------------------------------------------------------------- signals, sys.exit


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_before_mpirun_starts(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.launching.run.place_clients", lambda *_: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    told = complaint("launch tiny.toml -o run.h5", code=4)
    assert told == f"areabench: {number.name} came while no run was under way; start it again"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("code", ["0", "3", ""])
def test_sys_exit_of_a_part_is_a_failure(code: str, tmp_path: Path) -> None:
    """Also in a replay, where nothing else would tell it from success."""
    counted = "import os; n = int(os.environ.get('N', 0)) + 1; os.environ['N'] = str(n)"
    write(tmp_path, "method", aggregate=f"{counted}; n < 4 or __import__('sys').exit({code})")
    failed = ended("simulate tiny.toml -o run.h5")
    assert failed.returncode == 1
    assert failed.stderr == (
        f"areabench: method.name = 'mine:make' called sys.exit({code or None}) at mine.py, line 21; let it return, or "
        "raise an error\n"
    )
    assert "failed: method.name = 'mine:make' called sys.exit" in ended("show run.h5").stdout


def test_sys_exit_in_a_replay_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "problem", descend="import os; 'LEAVE' in os.environ and __import__('sys').exit(0)")
    assert ended("simulate tiny.toml -o run.h5").returncode == 0
    failed = ended("replay run.h5 --trust-module mine.py", before="export LEAVE=1;")
    assert failed.returncode != 0
    assert "mine.py, line " in failed.stderr
    assert "Traceback" not in failed.stderr
