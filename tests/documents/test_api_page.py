"""docs/api.md has everything that is public, and its recipes work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.documents.documents import ROOT, blocks_of

import areabench


def test_the_page_has_every_export_of_the_package() -> None:
    """Those of its modules follow from their own lists."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    modules = {"figures": "views.figures", "observers": "runfile.observers"}
    for name in set(areabench.__all__) - {"__version__"}:
        assert f":: areabench.{modules.get(name, name)}" in page, name


# ---------------------------------------------------------------------------------------------------- recipes


def observed(function: str) -> None:
    """A run of six iterations that a recipe of the page observes."""
    recipes: dict[str, Any] = {"__name__": "my_observers"}
    (text,) = (block.text for block in blocks_of("docs/api.md") if block.file_name == "my_observers.py")
    exec(text, recipes)
    sections = {"clients": {"count": 1}, "method": {"name": "area", "step_size": 0.1}, "problem": "quadratic"}
    areabench.simulate(sections, stop={"iterations": 6}, observers=[recipes[function]()]).close()


def noting(calls: list[str], name: str) -> Callable[..., None]:
    return lambda *given, **named: calls.append(name)


def test_the_recipe_for_mlflow_calls_what_mlflow_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the library; it logs no NaN, and a quadratic has no accuracy."""
    calls: list[str] = []
    logged: list[set[str]] = []
    names = ("start_run", "log_params", "set_tag", "end_run")
    library = SimpleNamespace(**{name: noting(calls, name) for name in names})
    library.log_metrics = lambda values, step: logged.append(set(values))
    monkeypatch.setitem(sys.modules, "mlflow", library)
    observed("mlflow_observer")
    assert calls == list(names)
    assert set.union(*logged) == {"time_s", "train_loss", "squared_distance"}


def test_the_recipe_for_weights_and_biases_calls_what_wandb_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the library."""
    calls: list[str] = []
    run = SimpleNamespace(summary={}, log=noting(calls, "log"), finish=noting(calls, "finish"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda project, config: run))
    observed("wandb_observer")
    assert (calls[0], calls[-1], run.summary) == ("log", "finish", {"state": "done"})
