"""What `check` says of data, and the warning about an absurd loss at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.answers import answer, record

from areabench.engine.data import ClassCount, absurd_loss, describe
from areabench.problems.datasets import Dataset

TOML = """
name = "table"
[clients]
count = 2
[method]
name = "area"
step_size = 0.001
[problem]
name = "logistic"
[data]
name = "file"
file = "table.npz"
[split]
name = "iid"
[stop]
horizon_s = 0.2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.toml").write_text(TOML)


def save_table(factor: float = 1.0, **arrays: Any) -> None:
    """Twelve samples of two features, which are multiplied by a factor, of three classes."""
    features = factor * np.linspace(-1, 1, 24).reshape(12, 2)
    np.savez("table.npz", **{"x": features, "y": np.arange(12, dtype=np.int8) % 3, **arrays})


def test_a_summary_counts_classes_and_scales_the_range() -> None:
    features = np.array([[0, 255], [10, 20], [30, 40]], dtype=np.uint8)
    data = Dataset("x", features, np.array([0, 2, 2]), features[:1], np.array([1]), 3, 1 / 255, ("a", "b", "c"))
    found = describe(data)
    assert (found.train_samples, found.test_samples, found.features, found.type) == (3, 1, 2, "uint8")
    assert (found.lowest, found.highest, found.filled) == (0, 1, None)
    assert found.classes == (ClassCount("a", 1, 0), ClassCount("b", 0, 1), ClassCount("c", 2, 0))
    assert found.lowest_target is None


def test_check_prints_what_the_data_are_like() -> None:
    save_table()
    said = answer("check table.toml")
    assert "\n# table.npz: 10 training and 2 test samples\n" in said.out
    assert "\n# 2 features, float64; inputs of a model from -1 to 1\n" in said.out
    assert "# 3 classes, with training + test samples: 0 (" in said.out
    assert said.err == ""
    assert record("check table.toml")["data"]["train_samples"] == 10


def test_targets_that_are_far_from_zero_are_warned_of() -> None:
    save_table(y=np.full(12, 2.5))
    regression = "check table.toml --set data.task=regression --set problem.name=regression"
    assert "# targets from 2.5 to 2.5\n" in answer(regression).out
    save_table(y=1000 + np.arange(12.0))
    assert "the loss at the start is" in answer(regression).err
    assert answer(regression, "--set", "data.standardise=true").err == ""


@pytest.mark.parametrize(("factor", "warned"), [(1.0, False), (1e5, True)])
@pytest.mark.parametrize("command", ["check table.toml", "simulate table.toml -o run.h5"])
def test_an_absurd_first_loss_is_warned_of(command: str, factor: float, warned: bool) -> None:
    save_table(factor)
    assert ("the loss at the start is" in answer(command).err) == warned


def test_what_is_absurd() -> None:
    data = Dataset("x", np.array([[-4.0, 8.0]]), np.zeros(1, np.int64), np.zeros((1, 2)), np.zeros(1, np.int64), 1, 0.5)
    assert absurd_loss(20.0, 1.0, data) == absurd_loss(float("nan"), 1.0, data) == ""
    assert absurd_loss(5832.0, 1.0, data).startswith(
        "the loss at the start is 5,832, that of a guess about 1; inputs are from -2 to 4: scale them"
    )
