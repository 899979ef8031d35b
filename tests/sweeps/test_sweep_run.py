"""Sweeps in the simulator: done runs are kept, however a sweep ends; failed runs are listed."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.support.results import NO_GRID
from tests.support.texts import quadratic
from tests.sweeps.conftest import sweep, written

import areabench
from areabench.engine.events import State, Status
from areabench.errors import UserError
from areabench.runfile.read import open_run
from areabench.sweeps.folder import FolderReport, opened
from areabench.sweeps.passes import Pass, PassOutcome
from areabench.sweeps.plan import SweepPlan, load_sweep
from areabench.sweeps.read import open_sweep
from areabench.sweeps.run import SweepReport
from areabench.transports.options import RunOptions

QUADRATIC = quadratic("horizon_s = 1.0", step_size=0.1)
LOGISTIC = (
    QUADRATIC.replace('"quadratic"\ndimension = 3', '"logistic"')
    + """
[data]
name = "synthetic"
train_samples = 100
test_samples = 40
[split]
name = "iid"
[record]
events = false
"""
)
GRID = """
[sweep]
trials = 2
[[sweep.grid]]
method.name = ["area", "fedbuff"]
method.step_size = [0.1, 0.2]
"""
SHORT_AND_LONG = QUADRATIC.replace("horizon_s = 1.0", "iterations = 100") + (
    "[[sweep.grid]]\nstop.iterations = [100, 10_000_000]\n"  # the second takes many minutes
)
SHORTENED = SHORT_AND_LONG.replace("10_000_000", "200")
PATIENCE_S = 60.0


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `areabench sweep try.toml --jobs 2` in a session of its own, and ends it if the test does not."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        source = str(Path(areabench.__file__).parents[1])
        process = subprocess.Popen(
            [sys.executable, "-m", "areabench", "sweep", "try.toml", "--jobs", "2"], text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source},
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_files(folder: str = "runs/try") -> dict[str, int]:
    """The run files of a sweep and when each was written, in nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).glob("*.h5")}


def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens in another process."""
    limit_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit_s, "waited in vain"
        time.sleep(0.01)


def writers() -> set[int]:
    """The processes that write a run file now."""
    return {int(path.name.split(".")[-2]) for path in Path("runs/try").glob("*.h5.*.part")}


def half_done() -> bool:
    """Whether the short run of SHORT_AND_LONG is done and the long one is being written."""
    return bool(run_files() and writers())


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The workers of a sweep."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def blocks_signals(pid: int) -> bool:
    """Whether a process leaves interrupts and terminations to its parent."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    wanted = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    return int(lines["SigBlk"], 16) & wanted == wanted


# ---------------------------------------------------------------------------------------------------- to the end


@pytest.mark.usefixtures("worker_processes")
def test_a_sweep_runs_everything_once() -> None:
    said = sweep(QUADRATIC + GRID, "--jobs", "2")
    summary, cost = said.out.splitlines()
    assert summary == "runs/try: 8 runs: 8 done now, 0 done before, 0 of them diverged, 0 failed"
    assert re.fullmatch(r"8 runs in \d+ s, 2 processes at a time, the largest took \d+\.\d\d GB of memory", cost)
    assert said.err == ""  # no terminal
    first = run_files()
    path = Path("try.toml")
    assert set(first) == {member.file for member in load_sweep(path).members}
    assert sweep(path).out == "runs/try: 8 runs: 0 done now, 8 done before, 0 of them diverged, 0 failed\n"
    assert run_files() == first
    assert "8 done now, 0 done before" in sweep(path, "--force").out
    assert all(run_files()[name] > first[name] for name in first)


def test_a_changed_setting_is_run_and_nothing_else() -> None:
    sweep(QUADRATIC + GRID, "--trials", "1")
    first = run_files()
    assert "8 runs: 4 done now, 4 done before" in sweep(QUADRATIC + GRID).out  # more trials continue from fewer
    assert "8 runs: 4 done now, 4 done before" in sweep(QUADRATIC + GRID.replace("0.2]", "0.3]")).out
    assert {name: run_files()[name] for name in first} == first  # those of 0.2 stay, unused
    assert [one.experiment.method.step_size for one in open_sweep("runs/try").results] == [0.1, 0.1, 0.3, 0.3] * 2


def test_a_damaged_run_file_is_run_again() -> None:
    sweep(QUADRATIC + GRID)
    broken, foreign, *others = sorted(Path("runs/try").glob("*.h5"))
    broken.write_bytes(broken.read_bytes()[:1000])
    foreign.write_bytes(others[0].read_bytes())
    assert "2 done now, 6 done before" in sweep(QUADRATIC + GRID).out
    assert len(open_sweep("runs/try").results) == 8


def test_runs_that_share_a_pass_are_those_of_the_runs_alone() -> None:
    sweep(LOGISTIC + GRID, "--jobs", "1")
    found = open_sweep("runs/try").results
    assert len(found) == 8
    for result in found:
        with areabench.simulate(result.experiment) as alone:
            np.testing.assert_allclose(result.train_loss, alone.metrics_array["train_loss"], rtol=1e-5)


@pytest.mark.usefixtures("worker_processes")
def test_several_sweeps_share_a_pool() -> None:
    one = written(QUADRATIC, "one.toml")
    shown = sweep(one, str(written(QUADRATIC + GRID, "two.toml")), "-o", "here", "--set", "seed=3").out.splitlines()
    assert [line.partition(" done now")[0] for line in shown[:2]] == ["here/one: 1 run: 1", "here/two: 8 runs: 8"]
    assert [len(run_files(f"here/{name}")) for name in ("one", "two")] == [1, 8]
    Path("other").mkdir()
    again = str(written(QUADRATIC, "other/one.toml"))
    assert "runs/one: two of the sweeps would be written into it" in sweep(one, again, code=2).err


def test_divergence_is_a_result() -> None:
    text = QUADRATIC + "[[sweep.grid]]\nmethod.step_size = [0.1, 1e40]\n"
    assert "2 runs: 2 done now, 0 done before, 1 of them diverged, 0 failed" in sweep(text).out
    assert "2 runs: 0 done now, 2 done before, 1 of them diverged, 0 failed" in sweep(text).out
    assert list(open_sweep("runs/try").frame["state"]) == ["done", "diverged"]


def test_a_dry_run_writes_nothing() -> None:
    shown = "runs/try: 8 runs: 0 done, 8 pending in 2 passes, about 160 gradient steps, 0 that cannot be run\n"
    assert sweep(LOGISTIC + GRID, "--dry-run").out == shown
    assert not Path("runs").exists()
    sweep(LOGISTIC + GRID, "--trials", "1")
    assert "4 done, 4 pending in 1 passes, about 80 gradient steps" in sweep(LOGISTIC + GRID, "--dry-run").out
    impossible = QUADRATIC + "[[sweep.grid]]\nmethod.step_size = [0.1, -1.0]\n"
    assert "1 that cannot be run" in sweep(impossible, "--dry-run", code=1).out


def test_the_frame_has_one_row_per_run() -> None:
    sweep(LOGISTIC + GRID + 'rates = [{name = "uniform"}, {name = "normal", mean = 5.0}]\n')
    found = open_sweep("runs/try")
    frame = found.frame
    assert len(frame) == len(found.results) == 16
    assert (found.missing, found.failures, found.transport) == ((), (), "simulator")
    assert list(frame["seed"]) == [0, 1] * 8
    assert list(frame["rates.name"])[:4] == ["uniform", "uniform", "normal", "normal"]
    assert frame["rates.mean"].isna().tolist()[:4] == [True, True, False, False]
    assert set(frame["method"]) == {"area", "fedbuff"}
    with open_run(Path("runs/try") / frame["file"][5]) as run:
        assert frame["final_loss"][5] == run.metrics_array["train_loss"][-1]
        assert frame["final_accuracy"][5] == run.metrics_array["test_accuracy"][-1]
        assert frame["updates"][5] == run.status.updates > 0


def test_a_trace_that_changes_is_run_again() -> None:
    trace = written("client,delay_s\n0,0.1\n1,0.2\n", "trace.csv")
    text = QUADRATIC + '[delays]\nname = "trace"\nfile = "trace.csv"\n'
    sweep(text)
    assert "0 done now, 1 done before" in sweep(text).out
    (written_ns,) = run_files().values()
    trace.write_text("client,delay_s\n0,0.3\n1,0.2\n")
    os.utime(trace, ns=(written_ns + 1, written_ns + 1))
    assert "1 done now, 0 done before" in sweep(text).out


# ---------------------------------------------------------------------------------------------------- failures


def test_an_impossible_cell_does_not_affect_the_others() -> None:
    grid = "[[sweep.grid]]\nclients.count = [2, 200]\nmethod.step_size = [0.1, 0.2, -1.0]\n"
    summary, *failures = sweep(LOGISTIC + grid, "--jobs", "2", code=1).out.splitlines()
    assert summary == "runs/try: 6 runs: 2 done now, 0 done before, 0 of them diverged, 4 failed"
    assert sum("method.step_size: -1.0 is out of range" in line for line in failures) == 2
    assert sum("200 clients" in line for line in failures) == 2, failures
    found = open_sweep("runs/try")
    assert [result.experiment.clients.count for result in found.results] == [2, 2]
    assert len(found.missing) == len(found.failures) == 4
    assert {failure.file for failure in found.failures} == {member.file for member in found.missing}
    assert not list(Path("runs/try").glob("*.part"))
    again = sweep(LOGISTIC + grid, code=1)  # tried again
    assert "0 done now, 2 done before, 0 of them diverged, 4 failed" in again.out
    sweep(LOGISTIC + grid.replace(", 200", "").replace(", -1.0", ""))
    assert open_sweep("runs/try").failures == ()


def test_a_long_list_of_failures_is_cut() -> None:
    text = QUADRATIC + "[sweep]\ntrials = 25\n[[sweep.grid]]\nmethod.step_size = [-1, 0.1]\n"
    lines = sweep(text, "--set", "stop.iterations=1", code=1).out.splitlines()
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[-2] == "  and 5 more"
    assert len(open_sweep("runs/try").failures) == 25


def outcome_of(attempted: Pass, error: str = "", *, is_fatal: bool = False) -> PassOutcome:
    """A pass that ends with an error, or well."""
    statuses = () if error else (Status(State.DONE, "", 1.0, 1, 0, 1),) * len(attempted.tasks)
    return PassOutcome(attempted, statuses, error, is_fatal)


SIZES = "[[sweep.grid]]\nmethod.step_size = [0.1, 0.2, 0.3]\n"  # in one pass


@pytest.mark.parametrize("listed", [True, False])
def test_a_full_disc_stops_the_sweep(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the list of failures can still be written; a pass is not divided for it."""
    begun = []

    def attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
        if not listed:
            full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
            monkeypatch.setattr("areabench.sweeps.folder.replace_text", full)
        begun.append(len(attempted.tasks))
        return outcome_of(attempted, "WriteFailure: no room", is_fatal=True)

    monkeypatch.setattr("areabench.sweeps.pool._attempt", attempt)
    said = sweep(f"{LOGISTIC}[sweep]\ntrials = 2\n{SIZES}", "--jobs", "1", code=1)
    assert begun == [3]
    assert "6 runs: 0 done now, 0 done before, 0 of them diverged, 3 failed" in said.out
    assert "stopped early: WriteFailure: no room; 3 runs not attempted; when that is fixed, the same" in said.err


def test_one_bad_run_does_not_take_its_pass_down(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
        sizes = [task.experiment.method.step_size for task in attempted.tasks]
        begun.append(sizes)
        return outcome_of(attempted, "ValueError: no" if 0.2 in sizes else "")

    monkeypatch.setattr("areabench.sweeps.pool._attempt", attempt)
    said = sweep(LOGISTIC + SIZES, code=1).out
    assert "3 runs: 2 done now, 0 done before, 0 of them diverged, 1 failed" in said
    assert re.search(r"area-0.2-.*ValueError: no", said)
    assert sorted(begun) == [[0.1], [0.1, 0.2, 0.3], [0.2], [0.3]]


def test_how_to_continue_depends_on_force(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport((FolderReport(Path("runs/try"), 4, now=1),), interrupted=130)
    monkeypatch.setattr("areabench.sweeps.run.run_sweep", lambda *_: report)
    assert "1 of 4 runs are done; the same command continues from there" in sweep(QUADRATIC, code=130).err
    assert "1 of 4 runs are done; leave --force out" in sweep(QUADRATIC, "--force", code=130).err


# ---------------------------------------------------------------------------------------------------- folders


def test_two_sweeps_do_not_share_a_folder() -> None:
    with opened(Path("runs/try"), load_sweep(written(QUADRATIC)), "simulator"):
        told = f"runs/try: another sweep is writing into it (process {os.getpid()}); wait until it ends or choose"
        assert told in sweep(QUADRATIC, code=2).err
    sweep(QUADRATIC)


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--force",)])
def test_a_folder_of_other_runs_is_not_taken_over(option: tuple[str, ...]) -> None:
    areabench.simulate(written(QUADRATIC), output="runs/demo/area.h5").close()
    told = "runs/demo: holds 1 run file (area.h5) that no sweep has made; choose another --output"
    assert told in sweep(QUADRATIC, "-o", "runs/demo", *option, code=2).err
    assert not Path("runs/demo/sweep.toml").exists()
    sweep(QUADRATIC)
    stored = Path("runs/try/sweep.toml").read_text()
    more = written(QUADRATIC, "more.toml")
    told = sweep(more, "-o", "runs/try", "--set", "seed=1", *option, code=2).err
    assert "of the sweep try, this one is more; choose another --output" in told
    told = "runs/try: holds a sweep of the transport simulator, this one is of mpi; choose another --output"
    assert told in sweep(QUADRATIC, "-o", "runs/try", "--transport", "mpi", *option, code=2).err
    assert Path("runs/try/sweep.toml").read_text() == stored


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("file", "file: is not a folder; choose another --output\n"),
        ("file/sub", "file/sub: cannot be written: Not a directory; choose another --output\n"),
        ("a" * 300, ": cannot be used: File name too long; give another path\n"),
    ],
)
def test_a_folder_that_cannot_be_used_is_reported_in_one_line(output: str, told: str) -> None:
    written("", "file")
    assert sweep(QUADRATIC, "-o", output, code=2).err.endswith(told)
    assert sweep(QUADRATIC, "-o", "a" * 300, "--dry-run", code=2).err.count("\n") == 1


NOTHING = SweepPlan("try", NO_GRID, ())


def test_a_full_disc_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    told = pytest.raises(UserError, match="No space left on device; make room or choose another --output")
    with told, opened(Path("runs/try"), NOTHING, "simulator"):
        raise AssertionError("was opened")


def test_an_error_inside_a_sweep_is_not_blamed_on_its_folder() -> None:
    with pytest.raises(PermissionError), opened(Path("runs/try"), NOTHING, "simulator"):
        raise PermissionError("of something else")


def test_only_the_folder_of_a_sweep_is_opened() -> None:
    with pytest.raises(UserError, match="empty: has no sweep.toml; give the folder of a sweep"):
        open_sweep("empty")


def test_jobs_are_refused_on_mpi() -> None:
    said = sweep(QUADRATIC, "--transport", "mpi", "--jobs", "2", "--dry-run", code=2)
    assert "--jobs 2: on MPI there is one run at a time" in said.err


# ---------------------------------------------------------------------------------------------------- killed


@pytest.mark.slow
def test_the_runs_of_a_pass_whose_worker_is_killed_are_tried_again_alone(
    started: Callable[[], subprocess.Popen[str]],
) -> None:
    written(
        LOGISTIC.replace("horizon_s = 1.0", "horizon_s = 400.0").replace("= false", "= false\ninterval_s = 10.0") + GRID
    )
    process = started()
    until(lambda: children(process.pid))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    assert "8 runs: 8 done now" in output


@pytest.mark.slow
def test_a_sweep_that_is_killed_continues(started: Callable[[], subprocess.Popen[str]]) -> None:
    written(SHORT_AND_LONG)
    process = started()
    until(half_done)
    workers = writers()
    process.kill()
    process.wait()
    until(lambda: not any(running(pid) for pid in workers))  # they do not outlive it
    first = run_files()
    assert (len(first), writers()) == (1, workers)  # what it left: one run, and half a file
    assert "2 runs: 1 done now, 1 done before" in sweep(SHORTENED).out
    assert {name: run_files()[name] for name in first} == first
    assert len(open_sweep("runs/try").results) == 2
    assert not list(Path("runs/try").glob("*.part"))


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_run_only(started: Callable[[], subprocess.Popen[str]]) -> None:
    written(SHORT_AND_LONG)
    process = started()
    until(half_done)
    os.kill(min(writers()), signal.SIGKILL)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (1, "")
    summary, failure, _ = output.splitlines()
    assert summary == "runs/try: 2 runs: 1 done now, 0 done before, 0 of them diverged, 1 failed"
    assert failure.endswith(".h5: its process was ended by signal SIGKILL, perhaps because memory ran out")
    assert len(open_sweep("runs/try").results) == 1
    assert not list(Path("runs/try").glob("*.part"))
    sweep(SHORTENED)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_sweep_continues(
    number: signal.Signals, code: int, started: Callable[[], subprocess.Popen[str]]
) -> None:
    written(SHORT_AND_LONG)
    process = started()
    until(half_done)
    workers = writers()
    assert all(blocks_signals(pid) for pid in workers)
    os.killpg(process.pid, number)  # to all of them, as from a keyboard
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (code, "")
    assert errors == "areabench: interrupted: 1 of 2 runs are done; the same command continues from there\n"
    assert len(run_files()) == 1
    assert not any(running(pid) for pid in workers)
    assert not list(Path("runs/try").glob("*.part"))
    assert "1 done now, 1 done before" in sweep(SHORTENED).out
