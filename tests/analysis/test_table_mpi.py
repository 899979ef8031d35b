"""The table in real time: its sweep file, its rule of agreement, and its page, on a small sweep simulated twice."""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import answer
from tests.support.edited import edited
from tests.support.texts import logistic

import areabench
from areabench.errors import UserError
from areabench.results.statistics import Spread

ROOT = Path(__file__).parents[2]
SMALL = f"""
{logistic("horizon_s = 1.0", clients=3, step_size=0.5)}
[sweep]
trials = 2
[[sweep.grid]]
rates = [{{ name = "uniform" }}, {{ name = "normal" }}]
method = [{{ name = "area", step_size = 0.5 }}, {{ name = "fedbuff", step_size = 0.5 }}]
"""


@pytest.fixture(scope="module")
def table_mpi() -> Any:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "analysis"))
    yield importlib.import_module("table_mpi")
    sys.path.remove(str(ROOT / "analysis"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sweep."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(SMALL, encoding="utf-8")
    answer("sweep --jobs 1 --output", folder / "runs", folder / "small.toml")
    return folder / "runs"


@pytest.fixture
def folders(swept: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A small sweep, as if it had been run on both clocks."""
    return shutil.copytree(swept, tmp_path / "real"), shutil.copytree(swept, tmp_path / "simulated")


def test_near_is_in_the_range_or_within_two_percent_of_the_mean(table_mpi: Any) -> None:
    """Range 1.00 to 1.52, mean 1.5: up to 1.53 by the mean; what has no value on both clocks is near."""
    simulated = Spread(1.5, 1.0, 1.52)
    near = {1.0: True, 1.49: True, 1.51: True, 1.529: True, 1.531: False, 0.9: False}
    assert {real: table_mpi.is_near(Spread(real, real, real), simulated) for real in near} == near
    pairs = [(None, None), (simulated, None), (None, simulated)]
    assert [table_mpi.is_near(*pair) for pair in pairs] == [True, False, False]


def changed(folder: Path, factor: float, updates: int) -> None:
    """Scale the loss of AREA's runs and take some updates off."""
    for path in folder.glob("area-*.h5"):
        with edited(path) as file:
            metrics = file["metrics"][()]
            metrics["train_loss"] *= factor
            file["metrics"][...] = metrics
            status = file["status"][()]
            status["updates"] -= updates
            file["status"][...] = status


def test_page_says_how_many_cells_agree(table_mpi: Any, folders: tuple[Path, Path], tmp_path: Path) -> None:
    changed(folders[0], 2.0, 1)
    page = tmp_path / "pages" / "TABLE_MPI.md"
    table_mpi.main(*folders, page)
    text = page.read_text(encoding="utf-8")
    assert "4 cells of 2 trials" in text
    assert "**2 of 4 cells in real time agree with the simulated ones**" in text
    rows = {line.split(" | ")[0]: line for line in reversed(text.splitlines())}  # those of the first table
    assert rows["| FedBuff, 0.5, uniform"].endswith("| yes | – |")
    assert rows["| AREA, 0.5, non-uniform"].endswith("| no | – |")
    times = [line for line in text.splitlines() if line.startswith("| FedBuff, 0.5, uniform")][1]
    assert times.endswith("| +0.00 % | 0 ms | 0.00 % |")


def test_means_are_over_trials(table_mpi: Any, folders: tuple[Path, Path]) -> None:
    changed(folders[0], 1.01, 1)
    twins = table_mpi.read_twins(*map(areabench.open_sweep, folders))
    area = twins[0]
    assert area.clocks_agree
    expected = [trial.updates.first - 1 for trial in area.trials]
    assert len(expected) == 2
    assert area.mean(lambda trial: trial.updates.second) == pytest.approx(sum(expected) / 2)
    simulated = sum(trial.updates.first for trial in area.trials)
    assert area.difference_percent == pytest.approx(100 * (sum(expected) / simulated - 1))
    assert f"by {area.difference_percent:+.2f} to +0.00 %" in table_mpi.counts_words(twins[:2]).replace("\n", " ")
    assert [one.trials[0].updates.difference_percent == 0 for one in twins] == [False, True, False, True]


def test_folders_that_are_no_twins_are_refused(table_mpi: Any, folders: tuple[Path, Path]) -> None:
    real, simulated = map(areabench.open_sweep, folders)
    half = slice(len(real.results) // 2)
    other = replace(real, plan=replace(real.plan, members=real.plan.members[half]), results=real.results[half])
    with pytest.raises(UserError, match="are not of one sweep file"):
        table_mpi.read_twins(real, other)
    with pytest.raises(UserError, match="real: is of the transport mpi; give the folder in real time first"):
        table_mpi.read_twins(simulated, replace(real, transport="mpi"))
    next(folders[1].glob("area-*.h5")).unlink()
    with pytest.raises(UserError, match=r"simulated: 1 of its runs missing; run its sweep again"):
        table_mpi.read_twins(*map(areabench.open_sweep, folders))
