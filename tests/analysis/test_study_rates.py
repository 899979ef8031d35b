"""A small version of the study of rates, with fixed seeds: the slopes of both theorems, and bounds that hold."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import gallery
from studies.points import points_of

from areabench.cli.main import main
from areabench.sweeps.read import open_sweep

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

SMOOTH = """
extends = "{studies}/rates_smooth.toml"
[record]
interval_s = 0.5
[sweep]
trials = 10
[[sweep.grid]]
clients.local_steps = [1]
stop.iterations = [15_000]
"""

LIPSCHITZ = """
extends = "{studies}/rates_lipschitz.toml"
[sweep]
trials = 10
[[sweep.grid]]
clients.local_steps = [2]
stop.iterations = [300, 1000, 3000]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The study's module, and the folder of both sweeps."""
    folder = tmp_path_factory.mktemp("study")
    for name, text in (("rates_smooth", SMOOTH), ("rates_lipschitz", LIPSCHITZ)):
        (folder / f"{name}.toml").write_text(text.format(studies=ROOT / "benchmarks" / "experiments" / "studies"))
    files = [str(folder / f"{name}.toml") for name in ("rates_smooth", "rates_lipschitz")]
    assert main(["sweep", *files, "--output", str(folder / "runs"), "--jobs", "2"]) == 0
    return importlib.import_module("study_rates"), folder


@pytest.mark.slow
def test_theorem1_falls_as_one_over_k_below_its_bounds(study: Any) -> None:
    module, folder = study
    (point,) = module.read_points(folder / "runs" / "rates_smooth")
    curve = module.theorem1_curve(point)
    assert curve.iterations[-1] > 40 * curve.offset
    assert -1.3 < curve.slope.low < curve.slope.high < -0.75
    assert curve.crossings == 0
    assert (curve.bound <= curve.closed).all()


@pytest.mark.slow
def test_theorem2_falls_as_one_over_root_k_below_its_bound(study: Any) -> None:
    module, folder = study
    (curve,) = module.theorem2_curves(module.read_points(folder / "runs" / "rates_lipschitz"))
    assert curve.iterations.tolist() == [300, 1000, 3000]
    assert -0.9 < curve.slope.low < curve.slope.high < -0.3
    assert curve.crossings == 0


@pytest.mark.slow
def test_figures_show_the_measured_means_and_the_bounds(study: Any) -> None:
    module, folder = study
    sweeps = [open_sweep(folder / "runs" / name) for name in ("rates_smooth", "rates_lipschitz")]
    curves = [module.theorem1_curve(points_of(sweeps[0])[0]), module.theorem2_curves(points_of(sweeps[1]))[0]]
    drawn = [gallery.theorem1(sweeps[0], width="column"), gallery.theorem2(sweeps[1], width="column")]
    for curve, figure in zip(curves, drawn, strict=True):
        lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in figure.axes[0].lines}
        np.testing.assert_allclose(lines["measured, 95 % interval"], curve.values.mean(axis=0))
        np.testing.assert_allclose(lines[next(name for name in lines if name.startswith("bound"))][-1], _bound(curve))
        assert "10 trials" in figure.get_suptitle()


@pytest.mark.slow
def test_page_and_figures_are_written(study: Any, tmp_path: Path) -> None:
    module, folder = study
    module.main(folder / "runs", tmp_path / "RATES.md")
    assert {path.name for path in tmp_path.iterdir()} == {"RATES.md", "rates.png", "rates.svg"}
    assert "| M = 2, equal rates, 3 samples | 10 |" in (tmp_path / "RATES.md").read_text(encoding="utf-8")


def _bound(curve: Any) -> float:
    """What is drawn first: the closed form where there is one."""
    return float((curve.bound if curve.closed is None else curve.closed)[-1])
