"""docs/api.md names everything that is public."""

from __future__ import annotations

import re

import pytest
from tests.documents.documents import prose_of

import areabench
from areabench import extend, figures, theory

WORDS = {word for code in re.findall(r"`([^`]+)`", prose_of("docs/api.md")) for word in re.findall(r"\w+", code)}


@pytest.mark.parametrize(
    "names",
    [areabench.__all__, figures.__all__, theory.__all__, extend.__all__],
    ids=["package", "figures", "theory", "extend"],
)
def test_the_page_names_every_export(names: list[str]) -> None:
    assert not set(names) - WORDS


@pytest.mark.parametrize("record", [areabench.Run, areabench.Sweep], ids=["Run", "Sweep"])
def test_the_page_names_every_member(record: type) -> None:
    assert not {name for name in vars(record) if not name.startswith("_")} - WORDS
