"""Ranks that start: their own limit on it, and what the launching process sees of them; nothing here starts MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from areabench.host import Process, start_ticks
from areabench.launching import watch
from areabench.launching.families import StartedBy
from areabench.launching.ranks import StartLimit
from areabench.launching.steps import FOLDER, REPORTED, START_LIMIT_S, rank_step, reporter
from areabench.launching.watch import LaunchWatch, end_ranks, rank_of, supervise
from areabench.transports.signals import BEGUN, LISTENING

# A rank whose MPI_Init waits with Python's lock held, as mpi4py's does: PyDLL does not release it.
BLOCKED = """
import ctypes
from areabench.launching import ranks
from areabench.launching.families import StartedBy
ranks.START_LIMIT_S = 1
with ranks.StartLimit(StartedBy("mpirun", None, "SIZE", 3, 0)) as limit:
    {before}
    ctypes.PyDLL(None).sleep(60)
"""
RANKS = """
import os, subprocess, sys
code = "import os, time; {part}; time.sleep(60)"
ranks = [subprocess.Popen([sys.executable, "-c", code], env={{**os.environ, "PMI_RANK": str(rank)}}) for rank in (0, 1)]
for rank in ranks:
    rank.wait()
"""


@pytest.mark.parametrize(
    ("before", "phase"), [("pass", "in MPI_Init"), ("limit.first_meeting()", "for the first meeting of all ranks")]
)
def test_a_rank_that_waits_inside_mpi_ends_at_its_limit(before: str, phase: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(watch.__file__).parents[2])}
    command = [sys.executable, "-c", BLOCKED.format(before=before)]
    ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    assert ended.returncode == -signal.SIGALRM
    assert ended.stderr.startswith(f"areabench: rank 0 of 3 has waited {phase} for 1 s, the limit, and ends; ")


def test_a_rank_that_starts_in_time_leaves_no_child(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(psutil.Process().children())
    with StartLimit(StartedBy("mpirun", None, "SIZE", 3, 1)) as limit:
        assert len(set(psutil.Process().children()) - before) == 1
        limit.first_meeting()
    assert set(psutil.Process().children()) <= before
    assert capfd.readouterr().err == ""


def test_a_rank_starts_without_the_child_that_keeps_the_time() -> None:
    """Who wrote into its pipe would end, without a word, and wait in MPI for the other ranks."""
    before = set(psutil.Process().children())
    with StartLimit(StartedBy("mpirun", None, "SIZE", 3, 1)) as limit:
        (child,) = set(psutil.Process().children()) - before
        child.kill()
        child.wait()
        limit.first_meeting()


def test_steps_are_reported_to_the_launching_process_only(tmp_path: Path) -> None:
    reporter({FOLDER: str(tmp_path)})(BEGUN)
    reporter({FOLDER: str(tmp_path / "on another machine")})(LISTENING)
    reporter({})(LISTENING)
    assert [path.name for path in tmp_path.iterdir()] == [BEGUN]


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"])
def test_the_environment_says_which_rank_a_process_is(variable: str) -> None:
    assert rank_of({variable: "7"}) == 7
    assert rank_of({variable: ""}) is None


# ---------------------------------------------------------------------------------------------------- the watch


class Launch:
    """Ranks as the watch sees them: those that are found below mpirun, and those of them that are alive."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now_s, self.found, self.dead = folder, 0.0, set[int](), set[int]()
        monkeypatch.setattr(
            watch, "_ranks_below", lambda _: [(rank, Process("", rank + 100, 0)) for rank in self.found]
        )
        monkeypatch.setattr(watch, "is_alive", self._is_alive)
        self._watch = LaunchWatch(1, 3, folder, lambda: self.now_s)
        self.deaths: Callable[[], str] = self._watch.deaths

    def _ranks_below(self, mpirun: int) -> list[tuple[int, Process]]:
        return [(rank, Process("", rank + 100, 0)) for rank in self.found]

    def _is_alive(self, process: Process) -> bool:
        return process.pid - 100 not in self.dead

    def make(self, *steps: str) -> None:
        for step in steps:
            (self.folder / step).touch()

    def look(self, now_s: float) -> str:
        self.now_s = now_s
        return self._watch.look()


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Three ranks that have been found."""
    made = Launch(tmp_path, monkeypatch)
    made.found = {0, 1, 2}
    assert made.look(1.0) == ""
    return made


@pytest.mark.parametrize(
    ("rank", "words"), [(2, "rank 2 (PID 102) died before"), (0, "rank 0 (the server, PID 100) died before")]
)
def test_a_rank_that_dies_ends_the_launch_when_the_others_have_had_time_to_speak(
    launch: Launch, rank: int, words: str
) -> None:
    launch.dead = {rank}
    assert launch.look(2.0) == ""
    launch.dead = {0, 1, 2}  # ended because of the first
    assert launch.look(6.0).startswith(words)
    assert launch.deaths() == launch.look(6.0)


def test_a_rank_that_dies_before_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(tmp_path, monkeypatch)
    assert launch.look(20.0) == ""  # mpirun itself takes long
    launch.found = {0, 2}
    assert launch.look(21.0) == ""
    assert launch.look(25.9) == ""
    assert launch.look(26.1) == "rank 1 died before the run began; all ranks were ended"


def test_a_death_in_the_run_is_for_the_ranks(launch: Launch) -> None:
    launch.make(BEGUN)
    launch.dead = {1}
    assert launch.look(2.0) == launch.look(100.0) == launch.deaths() == ""


def test_ranks_that_say_why_they_end_are_believed(launch: Launch) -> None:
    launch.make(REPORTED)
    launch.dead = {1}
    launch.look(2.0)
    assert launch.deaths() == ""


def test_nobody_is_blamed_where_all_have_died_at_once(launch: Launch) -> None:
    launch.dead = {0, 1, 2}
    launch.look(2.0)
    assert launch.deaths() == ""


def test_a_long_start_says_every_ten_seconds_what_it_waits_for(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.make(rank_step(1))
    for now_s in (9.0, 10.0, 15.0):
        launch.look(now_s)
    assert capsys.readouterr().err == "areabench: waiting for 2 of 3 ranks to start (10 s): ranks 0, 2\n"
    launch.make(rank_step(0), rank_step(2))
    launch.look(20.0)
    assert capsys.readouterr().err == "areabench: waiting for MPI to start on 3 ranks (20 s)\n"
    launch.make(LISTENING)
    launch.look(30.0)
    assert capsys.readouterr().err == "areabench: waiting for 3 ranks to prepare the run (30 s)\n"


def test_a_start_has_a_limit_but_preparing_the_run_has_none(launch: Launch) -> None:
    launch.make(rank_step(0), rank_step(1))
    assert launch.look(START_LIMIT_S + 1).startswith(
        "waiting for 1 of 3 ranks to start (601 s): rank 2: that is the limit"
    )
    launch.make(LISTENING)
    assert launch.look(START_LIMIT_S + 2) == ""


# ---------------------------------------------------------------------------------------------------- with mpirun


def started(part: str) -> list[str]:
    """A command in mpirun's place that starts two ranks."""
    return [sys.executable, "-c", RANKS.format(part=part)]


def test_mpirun_is_ended_where_a_rank_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_OWN_END_S", 0.2)
    ending = supervise(started("os.environ['PMI_RANK'] == '1' and (time.sleep(1), os._exit(0))"), ranks=2)
    assert ending.reason.startswith("rank 1 (PID ")
    assert ending.signal == 0


def test_mpirun_is_ended_some_time_after_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for ever for a rank that is stopped."""
    monkeypatch.setattr(watch, "_LEFT_BEHIND_S", 0.5)
    begun = "open(os.environ['AREABENCH_LAUNCH'] + '/begun', 'w')"
    noted = f"open('{tmp_path}/' + str(os.getpid()), 'w')"
    part = f"{noted}; {begun}; time.sleep(1); os.environ['PMI_RANK'] == '0' and os._exit(0)"
    ending = supervise(started(part), ranks=2)
    assert (ending.code, ending.reason) == (0, "")
    assert [start_ticks(int(path.name)) for path in tmp_path.iterdir()] == [None, None]


def test_no_rank_outlives_an_mpirun_that_is_killed(tmp_path: Path) -> None:
    noted = f"open('{tmp_path}/' + str(os.getpid()), 'w')"
    part = f"{noted}; os.environ['PMI_RANK'] == '1' and (time.sleep(1), os.kill(os.getppid(), 9))"
    ending = supervise(started(part), ranks=2)
    assert ending.code == -signal.SIGKILL
    assert [start_ticks(int(path.name)) for path in tmp_path.iterdir()] == [None, None]


def test_only_processes_of_the_launch_are_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    mine, other = (
        subprocess.Popen(command, env={**os.environ, FOLDER: str(tmp_path / name)}) for name in ("mine", "other")
    )
    try:
        while FOLDER not in psutil.Process(mine.pid).environ():  # it has just been forked
            pass
        end_ranks(str(tmp_path / "mine"))
        assert start_ticks(mine.pid) is None
        assert other.poll() is None
    finally:
        for each in (mine, other):
            each.kill()
            each.wait()


def test_a_signal_ends_ranks_that_do_not_listen_yet(tmp_path: Path) -> None:
    part = f"open({str(tmp_path / 'up')!r}, 'a')"
    tell = f"while not os.path.exists({str(tmp_path / 'up')!r}): pass\nos.kill({os.getpid()}, 15)\n"
    script = RANKS.format(part=part).replace("for rank in ranks:", tell + "for rank in ranks:")
    ending = supervise([sys.executable, "-c", script], ranks=2)
    assert (ending.signal, ending.code) == (signal.SIGTERM, -signal.SIGTERM)  # SIGUSR1 would have ended it otherwise
