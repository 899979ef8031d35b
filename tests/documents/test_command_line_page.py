"""docs/command-line.md describes what the command line does."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from areabench.cli.main import main
from areabench.cli.parser import TYPED, build_parser, commands_of
from areabench.views.watch.frame import Frame

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def exit_codes() -> dict[str, str]:
    """The exit codes that the help of each command names."""
    parsers = commands_of(build_parser())
    typed = [name for name in parsers if name != "batch"]
    return {name: (parsers[name].epilog or "").partition("exit codes: ")[2] for name in typed}


def test_every_command_lists_its_exit_codes() -> None:
    codes = exit_codes()
    assert set(codes) == set(TYPED)
    for name, text in codes.items():
        assert re.match(r"0 \w+", text), name
        assert "2 " in text, name
        assert "130" in text, name


def test_exit_codes_are_on_the_generated_page_only() -> None:
    generated = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for text in exit_codes().values():
        assert text in generated
        assert text not in PAGE


def test_the_page_has_all_keys_of_a_watch() -> None:
    keys = PAGE.partition("What `watch` prints")[2].partition("\n## ")[0]
    named = [word for row in re.findall(r"^- (`.*?): ", keys, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(item.name for item in fields(Frame))


def test_the_page_has_all_keys_of_theory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(ROOT / "benchmarks" / "experiments" / "demo" / "quadratic.toml"), "--json"]) == 0
    (row,) = re.findall(r"^- `theory`: (.*)$", PAGE, re.MULTILINE)
    assert set(json.loads(capsys.readouterr().out)) <= set(re.findall(r"`(\w+)`", row))


def test_the_page_has_every_variable_that_is_read() -> None:
    rooms = ("cli", "views", "problems")
    files = [path for room in rooms for path in (ROOT / "src" / "areabench" / room).rglob("*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    variables = set(re.findall(r'environ(?:ment)?\.get\("([A-Z_]+)"', source))
    assert variables >= {"NO_COLOR", "FORCE_COLOR", "TERM", "AREABENCH_CACHE", "XDG_CACHE_HOME"}
    assert all(f"`{variable}`" in PAGE for variable in variables)
