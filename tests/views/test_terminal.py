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
from areabench.progress import ProgressLine, Style, relay, shower_of
from areabench.runfile.read import Summary
from areabench.views.styled import Styled
from areabench.views.terminal import progress_style, wants_colours
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
            return written.decode(errors="ignore")  # it may begin within a character
        written += block


# ---------------------------------------------------------------------------------------------------- decided


@pytest.mark.parametrize(
    ("environment", "is_terminal", "in_colour"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colours(environment: Mapping[str, str], is_terminal: bool, in_colour: bool) -> None:
    assert wants_colours(environment, is_terminal=is_terminal) == in_colour


@pytest.mark.parametrize(
    ("choice", "environment", "is_terminal", "style"),
    [
        ("auto", {"TERM": "xterm"}, True, Style.LIVE),
        ("auto", {"TERM": "dumb"}, True, Style.NONE),
        ("auto", {"TERM": "xterm"}, False, Style.NONE),
        ("always", {}, False, Style.LIVE),
        ("marked", {"TERM": "xterm"}, True, Style.MARKED),
        ("never", {"TERM": "xterm"}, True, Style.NONE),
    ],
)
def test_progress_style(choice: str, environment: Mapping[str, str], is_terminal: bool, style: Style) -> None:
    assert progress_style(choice, environment, is_terminal=is_terminal) == style


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


def test_parts_have_their_styles() -> None:
    done = Summary("n", "area", 10.0, "mpi", "done", 9.0, 81.25, 0.5, 3.21, 1200, 300, 1.5)
    runs = [done, replace(done, method="fedbuff", state="failed")]
    table = summary_table(runs, 80.0, ["a", "b"], ["", ""])
    text = Styled(", ").join([table, experiment_text(parse_experiment(QUADRATIC))])
    found = {part.partition(" ")[0]: style for part, style in text.parts if style}
    expected = {"area": method_colour("area"), "fedbuff": method_colour("fedbuff"), "done": "green",
                "failed": "bold red", "file": "bold cyan", "[method]": "bold", "step_size": "dim"}  # fmt: skip
    assert found == found | expected
    assert text == "".join(part for part, _ in text.parts)


def test_a_table_on_a_terminal_and_in_a_pipe(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(run)]) == 0
    piped = capsys.readouterr().out
    code, shown = on_a_terminal("summary", str(run), environment={"TERM": "xterm-256color"})
    assert (code, _ESCAPES.sub("", shown)) == (0, piped)
    assert "\x1b[1;36mfile" in shown
    for plain in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
        assert on_a_terminal("summary", str(run), environment=plain) == (0, piped)


# ---------------------------------------------------------------------------------------------------- progress


def test_the_words_of_a_run() -> None:
    line = ProgressLine("area", 8.0, Style.NONE)
    line._first = (0.0, 1.0)  # it went on from there
    assert line.words(2.0, 300, 3.0) == "area  2.0 / 8 s  300 updates  150/s  18 s left"
    assert ProgressLine("area", None, Style.NONE).words(2.0, 300, 3.0) == "area  2.0 s  300 updates  150/s"
    assert ProgressLine("replay", 0.0, Style.NONE).words(0.0, 0, 3.0) == "replay  0.0 s  0 updates  0/s"


def test_marked_lines_are_shown_and_others_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show = shower_of(Style.MARKED)
    assert show is not None
    show(0.25, "area  1 s")
    show(None, "evaluating")
    marked = capsys.readouterr().err.splitlines(keepends=True)
    shown: list[tuple[float | None, str]] = []
    relay([marked[0], "a warning\n", marked[1]], lambda share, words: shown.append((share, words)))
    assert shown == [(0.25, "area  1 s"), (None, ""), (None, "evaluating"), (None, "")]
    assert capsys.readouterr().err == "a warning\n"


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_a_bar_on_a_terminal(no_colour: str) -> None:
    program = """
from areabench.progress import terminal_bar
show = terminal_bar()
show(0.5, "3 runs  1 failed")
show(None, "evaluating" * 20)
show(None, "")
"""
    ours, theirs = pty.openpty()
    around = {**os.environ, "TERM": "xterm", "NO_COLOR": no_colour, "COLUMNS": "60"}
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, env=around):
        os.close(theirs)
        written = read_all(ours)
    assert "3 runs  1 failed" in _ESCAPES.sub("", written)
    assert ("\x1b[32m" in written) != bool(no_colour)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # with its cursor
    assert max(map(len, _ESCAPES.sub("", written).replace("\r", "\n").splitlines())) <= 60


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
        try:
            written = b""  # a block may end within a character
            while b"clients" not in written:
                written += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            begun, rest = written.decode(errors="ignore"), read_all(ours)
            assert process.stderr is not None
            assert process.stderr.read() == "areabench: interrupted\n"
        finally:
            process.kill()  # it would wait for a reader of its page
    assert process.returncode == 130
    assert begun.count("\x1b[?1049h") == 1  # a page of its own
    assert (begun + rest).count("\x1b[?1049l") == 1  # and back
    assert rest.rindex("\x1b[?25h") > rest.rfind("\x1b[?25l")  # with its cursor
    assert "2.00 of 10 s" in _ESCAPES.sub("", rest.partition("\x1b[?1049l")[2])  # the last page stays


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_a_single_page_on_a_terminal(growing: str, no_colour: str) -> None:
    environment = {"TERM": "xterm", "NO_COLOR": no_colour, "LC_ALL": "C.UTF-8"}
    code, shown = on_a_terminal("watch", growing, "--once", "--no-evaluate", environment=environment)
    assert (code, "\x1b" in shown) == (0, not no_colour)
    assert "\x1b[?1049h" not in shown  # no page of its own
    assert "running in virtual time" in _ESCAPES.sub("", shown)
    assert "█" in shown
