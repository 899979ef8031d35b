"""The references say what the code has: no command, dataset or column is missing, none is stale."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from docs.reference.commands import command_reference, options_of_commands
from docs.reference.methods import method_list, pages_with_heads
from tests.documents.documents import ROOT

from areabench.engine.diagnosis import DIAGNOSIS_CLIENT, QUANTILE
from areabench.engine.events import CLIENT, Kind, Provenance, Reason, State
from areabench.runfile.layout import DIAGNOSIS
from areabench.runfile.schema import EVENT, METRIC, SCHEMA_VERSION, SNAPSHOT, STATUS

RUN_FILE = (ROOT / "docs" / "run-file.md").read_text(encoding="utf-8")
TABLES = {
    "status": STATUS, "clients": CLIENT, "events": EVENT, "snapshots": SNAPSHOT, "metrics": METRIC,
    "diagnosis": DIAGNOSIS, "/diagnosis/clients": DIAGNOSIS_CLIENT, "/diagnosis/quantiles": QUANTILE,
}  # fmt: skip


def first_cells(begin: str, heading: str) -> list[list[str]]:
    """The rows of the first table with this heading behind a piece of the page's text."""
    behind = RUN_FILE[RUN_FILE.index(begin) :]
    lines = behind[behind.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def type_name(kind: np.dtype[Any]) -> str:
    return kind.str.lstrip("<|>=")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_of_the_run_file_has_every_column(name: str) -> None:
    begin = f"`{name}` has" if name.startswith("/") else f"\n## /{name}"
    written = {column: kind for column, kind, *_ in first_cells(begin, "column")}
    table = TABLES[name]
    assert written == {column: type_name(table[column]) for column in table.names or ()}


def test_the_page_of_the_run_file_has_every_attribute() -> None:
    written = [row[0] for row in first_cells("\n## /provenance", "attribute")]
    assert written == [item.name for item in fields(Provenance)]


def test_the_page_of_the_run_file_has_every_state_kind_and_reason() -> None:
    assert [row[0] for row in first_cells("\n## /status", "state")] == [state.text for state in State]
    kinds = [row[:2] for row in first_cells("\n## /events", "kind")]
    assert kinds == [[str(kind.value), kind.text] for kind in Kind]
    reasons = first_cells("\n## /events", "reason")
    assert reasons == [[str(reason.value), reason.text] for reason in Reason if reason != Reason.NONE]


def test_the_page_of_the_run_file_is_of_this_schema() -> None:
    assert f"documents schema version {SCHEMA_VERSION}." in RUN_FILE
    assert f"| `schema_version` | i8: {SCHEMA_VERSION};" in RUN_FILE


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
