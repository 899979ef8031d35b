"""Shares of a sweep: dealt out in the order of the plan, at work in one folder at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.texts import quadratic
from tests.sweeps.conftest import sweep, written

from areabench.sweeps.folder import opened
from areabench.sweeps.plan import Share, load_sweep
from areabench.sweeps.read import open_sweep

GRID = "[sweep]\ntrials = 3\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2]\n"
SWEEP = quadratic("iterations = 50", step_size=0.1) + GRID
PATIENCE_S = 60.0


def run_files() -> set[str]:
    return {each.name for each in Path("runs/try").glob("*.h5")}


def test_each_run_is_in_one_share() -> None:
    plan = load_sweep(written(SWEEP))
    files = [member.file for member in plan.members]
    shares = [[member.file for member in Share(number, 4).taken_from(plan).members] for number in (1, 2, 3, 4)]
    assert shares == [[files[0], files[4]], [files[1], files[5]], [files[2]], [files[3]]]
    assert Share(3, 4).taken_from(plan).file == plan.file


def test_two_shares_at_the_same_time_make_the_sweep() -> None:
    command = [sys.executable, "-m", "areabench", "sweep", str(written(SWEEP)), "--jobs", "1", "--share"]
    shares = [subprocess.Popen([*command, share], stdout=subprocess.PIPE, text=True) for share in ("1/2", "2/2")]
    for share in shares:
        output, _ = share.communicate(timeout=PATIENCE_S)
        assert share.returncode == 0
        assert output.startswith("runs/try: 3 runs: 3 done now, 0 done before, 0 of them diverged, 0 failed\n")
    assert "runs/try: 6 runs: 0 done now, 6 done before" in sweep(SWEEP).out
    kept = {each.name for each in Path("runs/try").iterdir()} - run_files()
    assert kept == {"sweep.toml", "failures.csv", ".lock", ".lock-turn"}  # nothing of the shares but their turn


def test_a_share_started_again_continues() -> None:
    share = ("--share", "2/3")
    assert "runs/try: 2 runs: 0 done, 2 pending" in sweep(SWEEP, *share, "--dry-run").out
    sweep(SWEEP, *share)
    assert "2 runs: 0 done now, 2 done before" in sweep(SWEEP, *share).out
    assert run_files() == {member.file for member in load_sweep(written(SWEEP)).members[1::3]}
    assert len(open_sweep("runs/try").missing) == 4
    assert "0 runs: 0 done now" in sweep(SWEEP, "--share", "9/9").out  # more shares than runs


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "\u0661/2"])
def test_no_share(share: str) -> None:
    assert f"--share {share}: is not K/N with 1 <= K <= N" in sweep(SWEEP, f"--share={share}", code=2).err


def test_who_may_write_beside_a_share() -> None:
    plan = load_sweep(written(SWEEP))
    with opened(Path("runs/try"), plan, "simulator", Share(1, 2)):
        for option, told in (
            ([], "another sweep is writing into it (shares of it)"),
            (["--share", "1/2"], "another sweep is writing into it (share 1/2, process "),
            (["--share", "1/3"], "share 1/2 is writing into it, and 1/3 would run some of its runs too"),
            (["--share", "2/2", "--trials", "1"], "share 1/2 of another sweep is writing into it"),
        ):
            assert f"runs/try: {told}" in sweep(SWEEP, *option, code=2).err
        sweep(SWEEP, "--share", "2/2")
    with opened(Path("runs/try"), plan, "simulator"):
        sweep(SWEEP, "--share", "1/2", code=2)
    sweep(SWEEP, "--share", "1/3", "--trials", "1")  # no other share is running


def test_a_share_removes_only_its_own_leftovers() -> None:
    Path("runs/try").mkdir(parents=True)
    first, second, *_ = (Path("runs/try") / member.file for member in load_sweep(written(SWEEP)).members)
    own = [Path(f"{first}.1.part"), Path(f"{first.with_suffix('.toml')}.1.part")]
    other = Path(f"{second}.1.part")
    for part in (*own, other):
        part.touch()
    sweep(SWEEP, "--share", "1/2")
    assert [part.exists() for part in (*own, other)] == [False, False, True]
    sweep(SWEEP)
    assert not list(Path("runs/try").glob("*.part"))


def test_failures_of_all_shares_are_read() -> None:
    for share in ("1/2", "2/2"):
        sweep(SWEEP.replace("[0.1, 0.2]", "[0.1, -1.0]"), "--share", share, code=1)
    found = open_sweep("runs/try")
    assert {each.file for each in found.failures} == {each.file for each in found.missing}
    assert len(found.failures) == 3
    assert not Path("runs/try/failures.csv").exists()
