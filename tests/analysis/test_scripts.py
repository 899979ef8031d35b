"""The scripts of analysis as a user starts them, on small sweeps: exit codes, and what they write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import paper_table
import pytest
from tests.support.answers import answer
from tests.support.texts import logistic

from areabench.methods import METHODS

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "benchmarks" / "experiments" / "studies"
SWEEP = (
    logistic("horizon_s = 0.5")
    + '[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.name = ["area", "fedbuff"]\nmethod.step_size = [0.1]\n'
)


def run_script(name: str, *arguments: Path) -> str:
    """What a script prints; its warnings are errors."""
    command = [sys.executable, "-W", "error", str(ROOT / "analysis" / name), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The folder of four small runs of two methods."""
    (tmp_path / "small.toml").write_text(SWEEP, encoding="utf-8")
    answer("sweep", tmp_path / "small.toml", "--output", tmp_path / "small", "--jobs", 1)
    return tmp_path / "small"


def test_demo_spread_compares_the_methods(sweep: Path) -> None:
    lines = run_script("demo_spread.py", sweep).splitlines()
    assert "with 2 seeds" in lines[0]
    assert sorted(line.split()[0] for line in lines[1:3]) == ["AREA", "FedBuff"]
    assert "points (95 % interval)" in lines[3]


def test_paper_table_of_runs_that_are_not_the_papers(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper_table.main([str(sweep)]) == 2
    assert capsys.readouterr().err == "paper_table: the paper shows none of these runs\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [("results_page.py", "0 of the 127"), ("variants_page.py", "Every number comes from 4 of 4 planned runs")],
)
def test_pages_of_runs_that_are_not_the_papers(script: str, words: str, sweep: Path, tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    assert run_script(script, sweep, page) == f"page: {page}\n"
    assert words in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.long
def test_study_of_the_bias_writes_its_page_and_figures(tmp_path: Path) -> None:
    names = ("bias_ratio", "bias_probabilities", "server_rate", "bias_probabilities_lipschitz")
    files = [STUDIES / f"{name}.toml" for name in names]
    answer("sweep --trials 2 --set stop.iterations=300 --jobs 1 --output", tmp_path, *files)
    run_script("study_bias.py", tmp_path, tmp_path / "BIAS.md")
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert written == {"BIAS.md"} | {
        f"{name}.{suffix}" for name in ("bias", "probabilities", "server_rate") for suffix in ("png", "svg")
    }


@pytest.mark.slow
@pytest.mark.long
def test_study_of_every_method_writes_its_page_and_figure(tmp_path: Path) -> None:
    shorter = "--trials 2 --set stop.horizon_s=20 --set record.interval_s=1 --jobs 1"
    answer(f"sweep {shorter} --output", tmp_path / "bias_methods", STUDIES / "bias_methods.toml")
    run_script("study_methods.py", Path("limits"), tmp_path, tmp_path / "BIAS_METHODS.md")
    page = (tmp_path / "BIAS_METHODS.md").read_text(encoding="utf-8")
    assert all(f"| {record.label}" in page for record in METHODS.values())
    assert {path.name for path in tmp_path.glob("bias_methods.*")} == {"bias_methods.png", "bias_methods.svg"}


@pytest.mark.slow
@pytest.mark.long
def test_study_of_the_rates_of_two_tables_writes_its_page_and_figure(tmp_path: Path) -> None:
    shorter = {"100_000": "2400", "60_000": "2400", "30_000": "1200", "20_000": "1200", "10_000": "600", "3000": "300"}
    for name in ("methods_smooth", "methods_lipschitz"):
        text = (STUDIES / f"{name}.toml").read_text(encoding="utf-8")
        for long, short in shorter.items():
            text = text.replace(long, short)
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        answer("sweep --trials 2 --jobs 1 --output", tmp_path / name, tmp_path / f"{name}.toml")
    run_script("study_methods.py", Path("rates"), tmp_path, tmp_path / "RATES_METHODS.md")
    assert "| AREA | non-IID |" in (tmp_path / "RATES_METHODS.md").read_text(encoding="utf-8")
