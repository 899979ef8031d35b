"""docs/api.md names everything that is public."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from tests.documents.documents import prose_of

import areabench
from areabench import extend, figures

WORDS = {word for code in re.findall(r"`([^`]+)`", prose_of("docs/api.md")) for word in re.findall(r"\w+", code)}
THEORY = ("constants", "probabilities", "theorem1", "theorem2")


def defined_names(module: ModuleType) -> Iterator[str]:
    """The public functions and classes of a module, without its checks of arguments."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith(("_", "require_", "positive_")):
            yield name


@pytest.mark.parametrize(
    "names", [areabench.__all__, figures.__all__, extend.__all__], ids=["package", "figures", "extend"]
)
def test_the_page_names_every_export(names: list[str]) -> None:
    assert not set(names) - WORDS


@pytest.mark.parametrize("module", THEORY)
def test_the_page_names_the_theory(module: str) -> None:
    assert not set(defined_names(import_module(f"areabench.theory.{module}"))) - WORDS


@pytest.mark.parametrize("record", [areabench.Run, areabench.Sweep], ids=["Run", "Sweep"])
def test_the_page_names_every_member(record: type) -> None:
    assert not {name for name in vars(record) if not name.startswith("_")} - WORDS
