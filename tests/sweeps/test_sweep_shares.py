"""Shares of a sweep: dealt out in the order of the plan, at work in one folder at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.sweeps.folder import opened
from areabench.sweeps.plan import Share, load_sweep
from areabench.sweeps.read import open_sweep

GRID = "[sweep]\ntrials = 3\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2]\n"
SWEEP = quadratic("iterations = 50", step_size=0.1) + GRID
PATIENCE_S = 60.0


@pytest.fixture
def path() -> Path:
    """A sweep of six runs, in the current folder."""
    Path("try.toml").write_text(SWEEP)
    return Path("try.toml")


def run_files() -> set[str]:
    return {each.name for each in Path("runs/try").glob("*.h5")}


def test_each_run_is_in_one_share(path: Path) -> None:
    plan = load_sweep(path)
    files = [member.file for member in plan.members]
    shares = [[member.file for member in Share(number, 4).taken_from(plan).members] for number in (1, 2, 3, 4)]
    assert shares == [[files[0], files[4]], [files[1], files[5]], [files[2]], [files[3]]]
    assert Share(3, 4).taken_from(plan).text == plan.text


def test_two_shares_at_the_same_time_make_the_sweep(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "areabench", "sweep", str(path), "--jobs", "1", "--share"]
    shares = [subprocess.Popen([*command, share], stdout=subprocess.PIPE, text=True) for share in ("1/2", "2/2")]
    for share in shares:
        output, _ = share.communicate(timeout=PATIENCE_S)
        assert share.returncode == 0
        assert output.startswith("runs/try: 3 runs: 3 done now, 0 done before, 0 of them diverged, 0 failed\n")
    assert main(["sweep", str(path)]) == 0
    assert "runs/try: 6 runs: 0 done now, 6 done before" in capsys.readouterr().out
    kept = {each.name for each in Path("runs/try").iterdir()} - run_files()
    assert kept == {"sweep.toml", "failures.csv", ".lock", ".lock-turn"}  # nothing of the shares but their turn


def test_a_share_started_again_continues(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(path), "--share", "2/3", "--dry-run"]) == 0
    assert "runs/try: 2 runs: 0 done, 2 pending" in capsys.readouterr().out
    assert main(["sweep", str(path), "--share", "2/3"]) == 0
    assert main(["sweep", str(path), "--share", "2/3"]) == 0
    assert "2 runs: 0 done now, 2 done before" in capsys.readouterr().out
    assert run_files() == {member.file for member in load_sweep(path).members[1::3]}
    assert len(open_sweep("runs/try").missing) == 4


def test_more_shares_than_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(path), "--share", "9/9"]) == 0
    assert "0 runs: 0 done now" in capsys.readouterr().out


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "\u0661/2"])
def test_no_share(share: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(path), f"--share={share}"]) == 2
    assert f"--share {share}: is not K/N with 1 <= K <= N" in capsys.readouterr().err


def test_who_may_write_beside_a_share(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = load_sweep(path)
    with opened(Path("runs/try"), plan, "simulator", Share(1, 2)):
        for option, told in (
            ([], "another sweep is writing into it (shares of it)"),
            (["--share", "1/2"], "another sweep is writing into it (share 1/2, process "),
            (["--share", "1/3"], "share 1/2 is writing into it, and 1/3 would run some of its runs too"),
            (["--share", "2/2", "--trials", "1"], "share 1/2 of another sweep is writing into it"),
        ):
            assert main(["sweep", str(path), *option]) == 2
            assert f"runs/try: {told}" in capsys.readouterr().err
        assert main(["sweep", str(path), "--share", "2/2"]) == 0
    with opened(Path("runs/try"), plan, "simulator"):
        assert main(["sweep", str(path), "--share", "1/2"]) == 2
    assert main(["sweep", str(path), "--share", "1/3", "--trials", "1"]) == 0  # no other share is running


def test_a_share_removes_only_its_own_leftovers(path: Path) -> None:
    Path("runs/try").mkdir(parents=True)
    first, second, *_ = (Path("runs/try") / member.file for member in load_sweep(path).members)
    for part in (own := [f"{first}.1.part", f"{first.with_suffix('.toml')}.1.part"]) + [f"{second}.1.part"]:
        Path(part).write_text("")
    assert main(["sweep", str(path), "--share", "1/2"]) == 0
    assert not any(Path(part).exists() for part in own)
    assert Path(f"{second}.1.part").exists()
    assert main(["sweep", str(path)]) == 0
    assert not list(Path("runs/try").glob("*.part"))


def test_failures_of_all_shares_are_read(path: Path) -> None:
    path.write_text(SWEEP.replace("[0.1, 0.2]", "[0.1, -1.0]"))
    assert [main(["sweep", str(path), "--share", share]) for share in ("1/2", "2/2")] == [1, 1]
    sweep = open_sweep("runs/try")
    assert {each.file for each in sweep.failures} == {each.file for each in sweep.missing}
    assert len(sweep.failures) == 3
    assert not Path("runs/try/failures.csv").exists()
