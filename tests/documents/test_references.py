"""The references say what the code has: no command, dataset or column is missing, none is stale."""

from __future__ import annotations

import re

from docs.reference.commands import command_reference, options_of_commands
from docs.reference.methods import method_list, pages_with_heads
from docs.reference.run_file import run_file_page
from tests.documents.documents import ROOT

from areabench.engine.events import Kind, Reason, State
from areabench.runfile.schema import DATASETS, SCHEMA_VERSION

RUN_FILE = (ROOT / "docs" / "run-file.md").read_text(encoding="utf-8")


def first_cells(begin: str, heading: str) -> list[list[str]]:
    """The rows of the first table with this heading behind a piece of the page's text."""
    behind = RUN_FILE[RUN_FILE.index(begin) :]
    lines = behind[behind.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_of_the_run_file_has_every_object_and_column() -> None:
    assert run_file_page() == RUN_FILE, "stale: run make docs-reference"
    marks = set(re.findall(r"<!-- table ([\w/]+): make docs-reference -->", RUN_FILE))
    columns = {name for name, dataset in DATASETS.items() if dataset.row is not None and dataset.row.names}
    assert marks == columns | {"attributes", "datasets", "status", "provenance", "checksums"}


def test_the_page_of_the_run_file_has_every_state_kind_and_reason() -> None:
    assert [row[0] for row in first_cells("\n## /status", "state")] == [state.text for state in State]
    kinds = [row[:2] for row in first_cells("\n## /events", "kind")]
    assert kinds == [[str(kind.value), kind.text] for kind in Kind]
    reasons = first_cells("\n## /events", "reason")
    assert reasons == [[str(reason.value), reason.text] for reason in Reason if reason != Reason.NONE]


def test_the_page_of_the_run_file_is_of_this_schema() -> None:
    assert f"documents schema version {SCHEMA_VERSION}\n" in RUN_FILE


def test_the_page_of_commands_is_current() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == command_reference(), "stale: run make docs-reference"


def test_the_list_of_methods_is_current() -> None:
    page = (ROOT / "docs" / "method-list.md").read_text(encoding="utf-8")
    assert page == method_list(), "stale: run make docs-reference"
    for path, text in pages_with_heads().items():
        assert text == path.read_text(encoding="utf-8"), f"{path.name} is stale: run make docs-reference"


def test_the_page_of_commands_has_those_that_are_typed() -> None:
    sections = re.findall(r"^## (\w+)$", command_reference(), re.MULTILINE)
    assert sections == list(options_of_commands())
    assert "simulate" in sections
    assert "batch" not in sections


def test_every_test_that_a_page_cites_exists() -> None:
    """By its file, and by its name behind the file."""
    files = {path.name for path in ROOT.glob("tests/**/test_*.py")}
    tests = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))))
    for path in (ROOT / "docs").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        cited = set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", text))
        assert cited <= files, f"{path.name} cites {cited - files}"
        behind_files = re.findall(r"test_\w+\.py`: ((?:`\w+`(?:, )?)+)", text)
        named = set(re.findall(r"`(test_\w+)`", " ".join(behind_files)))
        assert named <= tests, f"{path.name} cites {named - tests}"
