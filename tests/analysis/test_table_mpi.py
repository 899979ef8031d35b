"""The table in real time: its sweep file, its rule of agreement, and its page, on a small sweep simulated twice."""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.edited import edited
from tests.support.texts import logistic

import areabench
from areabench.cli.main import main
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
    assert main(["sweep", str(folder / "small.toml"), "--output", str(folder / "runs"), "--jobs", "1"]) == 0
    return folder / "runs"


@pytest.fixture
def folders(swept: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A small sweep, as if it had been run on both clocks."""
    return shutil.copytree(swept, tmp_path / "real"), shutil.copytree(swept, tmp_path / "simulated")


@pytest.mark.parametrize(
    ("real", "near"), [(1.0, True), (1.49, True), (1.51, True), (1.529, True), (1.531, False), (0.9, False)]
)
def test_near_is_in_the_range_or_within_two_percent_of_the_mean(table_mpi: Any, real: float, near: bool) -> None:
    """Range 1.00 to 1.52, mean 1.5: up to 1.53 by the mean."""
    assert table_mpi.is_near(Spread(real, real, real), Spread(1.5, 1.0, 1.52)) is near


def test_what_has_no_value_on_both_clocks_is_near(table_mpi: Any) -> None:
    one = Spread(1.0, 1.0, 1.0)
    assert [table_mpi.is_near(*pair) for pair in ((None, None), (one, None), (None, one))] == [True, False, False]


@pytest.mark.parametrize(("rho", "word"), [(0.29, "4.3 s"), (float("inf"), "not reached"), (float("nan"), "–")])
def test_times_in_seconds(table_mpi: Any, rho: float, word: str) -> None:
    assert table_mpi._seconds(rho, 15.0) == word


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


def test_a_missing_run_is_refused(table_mpi: Any, folders: tuple[Path, Path]) -> None:
    next(folders[1].glob("area-*.h5")).unlink()
    with pytest.raises(UserError, match=r"simulated: 1 of its runs missing; run its sweep again"):
        table_mpi.read_twins(*map(areabench.open_sweep, folders))


def test_folders_the_wrong_way_round_are_refused(table_mpi: Any, folders: tuple[Path, Path]) -> None:
    real, simulated = map(areabench.open_sweep, folders)
    with pytest.raises(UserError, match="real: is of the transport mpi; give the folder in real time first"):
        table_mpi.read_twins(simulated, replace(real, transport="mpi"))


def test_two_sweep_files_are_refused(table_mpi: Any, swept: Path) -> None:
    sweep = areabench.open_sweep(swept)
    half = slice(len(sweep.results) // 2)
    other = replace(sweep, plan=replace(sweep.plan, members=sweep.plan.members[half]), results=sweep.results[half])
    with pytest.raises(UserError, match="are not of one sweep file"):
        table_mpi.read_twins(sweep, other)
