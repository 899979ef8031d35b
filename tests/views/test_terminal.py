"""What a terminal is shown and what a pipe gets: colours, progress lines, and the page of a watch."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.texts import QUADRATIC
from tests.support.watched import Writer, write_run

from areabench.cli.main import main
from areabench.experiment.labels import method_colour
from areabench.experiment.parse import parse_experiment
from areabench.progress import ProgressLine, Style, SweepProgress, bar, painted_line
from areabench.runfile.read import Summary
from areabench.views.styled import Styled
from areabench.views.terminal import decided_colours, decided_style
from areabench.views.text import experiment_text, summary_table

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run file in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path)
    capsys.readouterr()
    return Path("tiny.h5")


def on_a_terminal(*arguments: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """`areabench ARGUMENTS` with a terminal behind stdout: its exit code and all that it wrote there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "areabench", *arguments]
    around = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=around) as process:
        os.close(theirs)
        written = read_all(ours)
    return process.returncode, written.replace("\r\n", "\n")


def read_all(terminal: int) -> str:
    """What is written to a terminal until it is released."""
    written = b""
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # how Linux says so
            block = b""
        if not block:
            os.close(terminal)
            return written.decode()
        written += block


# ---------------------------------------------------------------------------------------------------- decided


@pytest.mark.parametrize(
    ("environment", "is_terminal", "colours"),
    [
        ({"TERM": "xterm"}, True, "standard"),
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "truecolor"),
        ({"TERM": "xterm"}, False, None),
        ({"TERM": "dumb"}, True, None),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, None),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, "standard"),
        ({"FORCE_COLOR": "1"}, False, "standard"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, None),
    ],
)
def test_colours(environment: Mapping[str, str], is_terminal: bool, colours: str | None) -> None:
    assert decided_colours(environment, is_terminal=is_terminal) == colours


@pytest.mark.parametrize(
    ("choice", "environment", "is_terminal", "style"),
    [
        ("auto", {"TERM": "xterm"}, True, Style.COLOURED),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, Style.LIVE),
        ("auto", {"TERM": "dumb"}, True, Style.NONE),
        ("auto", {"TERM": "xterm"}, False, Style.NONE),
        ("always", {}, False, Style.LIVE),
        ("marked", {"TERM": "xterm"}, True, Style.MARKED),
        ("never", {"TERM": "xterm"}, True, Style.NONE),
    ],
)
def test_progress_style(choice: str, environment: Mapping[str, str], is_terminal: bool, style: Style) -> None:
    assert decided_style(choice, environment, is_terminal=is_terminal) == style


# ---------------------------------------------------------------------------------------------------- styled


@pytest.mark.parametrize("command", ["summary", "show", "diagnose", "compare", "check"])
def test_colours_change_no_word(
    command: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command, "tiny.toml"] if command == "check" else [command, str(run)]
    arguments += [str(run)] if command == "compare" else []
    assert main(arguments) == 0
    piped = capsys.readouterr().out
    assert "\x1b" not in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(arguments) == 0
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    assert _ESCAPES.sub("", coloured) == piped


def styles(text: Styled) -> dict[str, str]:
    """The style of each part that has one."""
    return {part: style for part, style in text.parts if style}


def test_methods_and_statuses_have_their_styles() -> None:
    done = Summary("n", "area", 10.0, "mpi", "done", 9.0, 81.25, 0.5, 3.21, 1200, 300, 1.5)
    found = styles(summary_table([done, replace(done, method="fedbuff", state="failed")], 80.0, ["a", "b"], ["", ""]))
    assert found["area"] == method_colour("area")
    assert found["fedbuff"] == method_colour("fedbuff")
    assert found["done"] == "green"
    assert found["failed"] == "bold red"
    assert [style for part, style in found.items() if part.startswith("file ")] == ["bold cyan"]


def test_an_experiment_has_styles_for_sections_keys_and_methods() -> None:
    found = styles(experiment_text(parse_experiment(QUADRATIC)))
    assert (found["[method]"], found["step_size"], found["area"]) == ("bold", "dim", method_colour("area"))


def test_texts_are_joined_with_their_styles() -> None:
    joined = Styled(", ").join([Styled(("a", "bold")), "b"])
    assert (joined, joined.parts) == ("a, b", (("a", "bold"), (", ", ""), ("b", "")))


def test_a_table_on_a_terminal_and_in_a_pipe(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(run)]) == 0
    piped = capsys.readouterr().out
    code, shown = on_a_terminal("summary", str(run), environment={"TERM": "xterm-256color"})
    assert (code, _ESCAPES.sub("", shown)) == (0, piped)
    assert "\x1b[1;36mfile" in shown
    for plain in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
        assert on_a_terminal("summary", str(run), environment=plain) == (0, piped)


# ---------------------------------------------------------------------------------------------------- progress


def test_the_line_of_a_run() -> None:
    line = ProgressLine("area", 8.0, Style.NONE)
    line._first = (0.0, 1.0)  # it went on from there
    assert line.line(2.0, 300, 3.0) == "area       [####............] 2.0 / 8 s  300 updates  150/s  18 s left"
    assert ProgressLine("area", None, Style.NONE).line(2.0, 300, 3.0) == "area       2.0 s  300 updates  150/s"
    assert ProgressLine("replay", 0.0, Style.NONE).line(0.0, 0, 3.0) == "replay     0.0 s  0 updates  0/s"


def test_bars_stay_in_their_brackets() -> None:
    assert [bar(share, 4) for share in (-1.0, 0.0, 0.5, 1.0, 1.5)] == ["[....]", "[....]", "[##..]", "[####]", "[####]"]


def test_a_progress_line_in_colour_has_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = SweepProgress(8, 1.0, Style.NONE)
    progress.add(3, 1, 0.5)
    line = progress.line(10.0)
    monkeypatch.setattr("areabench.progress.has_blocks", lambda stream: False)
    shown = painted_line(line)
    assert _ESCAPES.sub("", shown) == line.replace("[", " ").replace("]", " ")
    assert "\x1b[32m############\x1b[0m" in shown
    assert "\x1b[1;31m1 failed" in shown


# ---------------------------------------------------------------------------------------------------- watch


@pytest.fixture
def growing(writer: Writer, path: Path) -> str:
    """A run file under way, with two updates."""
    writer.write("event UPDATE 1.0 0 0", "event UPDATE 2.0 1 0")
    return str(path)


def test_the_page_of_a_watch_is_taken_away_and_left(growing: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "areabench", "watch", growing, "--no-evaluate"]
    around = {**os.environ, "TERM": "xterm", "NO_COLOR": "", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True, env=around) as process:
        os.close(theirs)
        begun = os.read(ours, 65536).decode()
        while "clients" not in begun:
            begun += os.read(ours, 65536).decode()
        process.send_signal(signal.SIGINT)
        rest = read_all(ours)
        assert process.stderr is not None
        assert process.stderr.read() == "areabench: interrupted\n"
    assert process.returncode == 130
    assert begun.count("\x1b[?1049h") == 1  # a page of its own
    assert (begun + rest).count("\x1b[?1049l") == 1  # and back
    assert rest.rindex("\x1b[?25h") > rest.rfind("\x1b[?25l")  # with its cursor
    assert "2.00 of 10 s" in _ESCAPES.sub("", rest.partition("\x1b[?1049l")[2])  # the last page stays


def test_a_page_without_colours(growing: str) -> None:
    arguments = ("watch", growing, "--once", "--no-evaluate")
    code, shown = on_a_terminal(*arguments, environment={"TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"})
    assert (code, "\x1b" in shown) == (0, False)
    assert "█" in shown


def test_a_single_page_on_a_terminal(growing: str) -> None:
    arguments = ("watch", growing, "--once", "--no-evaluate")
    code, shown = on_a_terminal(*arguments, environment={"TERM": "xterm", "LC_ALL": "C.UTF-8"})
    assert code == 0
    assert "\x1b[?1049h" not in shown
    assert "running in virtual time" in _ESCAPES.sub("", shown)
    assert "█" in shown
