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
from tests.support.texts import quadratic

import areabench
from areabench.cli.main import main
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


def write(text: str, name: str = "try.toml") -> Path:
    """A sweep file in the current folder."""
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


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
def test_a_sweep_runs_everything_once(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + GRID)
    assert main(["sweep", str(path), "--jobs", "2"]) == 0
    captured = capsys.readouterr()
    summary, cost = captured.out.splitlines()
    assert summary == "runs/try: 8 runs: 8 done now, 0 done before, 0 of them diverged, 0 failed"
    assert re.fullmatch(r"8 runs in \d+ s, 2 processes at a time, the largest took \d+\.\d\d GB of memory", cost)
    assert captured.err == ""  # no terminal
    first = run_files()
    assert set(first) == {member.file for member in load_sweep(path).members}
    assert main(["sweep", str(path)]) == 0
    assert capsys.readouterr().out == "runs/try: 8 runs: 0 done now, 8 done before, 0 of them diverged, 0 failed\n"
    assert run_files() == first
    assert main(["sweep", str(path), "--force"]) == 0
    assert "8 done now, 0 done before" in capsys.readouterr().out
    assert all(run_files()[name] > first[name] for name in first)


def test_a_changed_setting_is_run_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(write(QUADRATIC + GRID))]) == 0
    first = run_files()
    assert main(["sweep", str(write(QUADRATIC + GRID.replace("0.2]", "0.3]")))]) == 0
    assert "8 runs: 4 done now, 4 done before" in capsys.readouterr().out
    assert {name: run_files()[name] for name in first} == first  # those of 0.2 stay, unused
    assert len(open_sweep("runs/try").results) == 8
    assert {result.experiment.method.step_size for result in open_sweep("runs/try").results} == {0.1, 0.3}


def test_more_trials_continue_from_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + GRID)
    assert main(["sweep", str(path), "--trials", "1"]) == 0
    assert main(["sweep", str(path)]) == 0
    assert "8 runs: 4 done now, 4 done before" in capsys.readouterr().out


def test_a_damaged_run_file_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + GRID)
    assert main(["sweep", str(path)]) == 0
    broken, foreign, *others = sorted(Path("runs/try").glob("*.h5"))
    broken.write_bytes(broken.read_bytes()[:1000])
    foreign.write_bytes(others[0].read_bytes())
    assert main(["sweep", str(path)]) == 0
    assert "2 done now, 6 done before" in capsys.readouterr().out
    assert len(open_sweep("runs/try").results) == 8


def test_runs_that_share_a_pass_are_those_of_the_runs_alone() -> None:
    path = write(LOGISTIC + GRID)
    assert main(["sweep", str(path), "--jobs", "1"]) == 0
    one, found = write(LOGISTIC, "one.toml"), areabench.open_sweep("runs/try").results
    for result in found:
        method = f"method={{name='{result.experiment.method.name}',step_size={result.experiment.method.step_size}}}"
        options = ["--set", method, "--set", f"seed={result.experiment.seed}", "-o", "one.h5", "--force"]
        assert main(["simulate", str(one), *options]) == 0
        with open_run("one.h5") as alone:
            assert alone.experiment == result.experiment
            np.testing.assert_allclose(result.train_loss, alone.metrics_array["train_loss"], rtol=1e-5)
    assert len(found) == 8


@pytest.mark.usefixtures("worker_processes")
def test_several_sweeps_share_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(QUADRATIC, "one.toml"), write(QUADRATIC + GRID, "two.toml")
    assert main(["sweep", str(one), str(two), "-o", "here", "--set", "seed=3"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(" done now")[0] for line in shown[:2]] == ["here/one: 1 run: 1", "here/two: 8 runs: 8"]
    assert len(run_files("here/one")) == 1
    assert len(run_files("here/two")) == 8
    Path("other").mkdir()
    assert main(["sweep", str(one), str(write(QUADRATIC, "other/one.toml"))]) == 2
    assert "runs/one: two of the sweeps would be written into it" in capsys.readouterr().err


def test_divergence_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + "[[sweep.grid]]\nmethod.step_size = [0.1, 1e40]\n")
    assert main(["sweep", str(path)]) == 0
    assert "2 runs: 2 done now, 0 done before, 1 of them diverged, 0 failed" in capsys.readouterr().out
    assert main(["sweep", str(path)]) == 0
    assert "2 runs: 0 done now, 2 done before, 1 of them diverged, 0 failed" in capsys.readouterr().out
    assert list(open_sweep("runs/try").frame["state"]) == ["done", "diverged"]


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(LOGISTIC + GRID)
    assert main(["sweep", str(path), "--dry-run"]) == 0
    shown = "runs/try: 8 runs: 0 done, 8 pending in 2 passes, about 160 gradient steps, 0 that cannot be run\n"
    assert capsys.readouterr().out == shown
    assert not Path("runs").exists()
    assert main(["sweep", str(path), "--trials", "1"]) == 0
    assert main(["sweep", str(path), "--dry-run"]) == 0
    assert "4 done, 4 pending in 1 passes, about 80 gradient steps" in capsys.readouterr().out


def test_the_frame_has_one_row_per_run() -> None:
    write(LOGISTIC + GRID + 'rates = [{name = "uniform"}, {name = "normal", mean = 5.0}]\n')
    assert main(["sweep", "try.toml"]) == 0
    sweep = open_sweep("runs/try")
    frame = sweep.frame
    assert len(frame) == len(sweep.results) == 16
    assert (sweep.missing, sweep.failures, sweep.transport) == ((), (), "simulator")
    assert list(frame["seed"]) == [0, 1] * 8
    assert list(frame["rates.name"])[:4] == ["uniform", "uniform", "normal", "normal"]
    assert frame["rates.mean"].isna().tolist()[:4] == [True, True, False, False]
    assert set(frame["method"]) == {"area", "fedbuff"}
    with open_run(Path("runs/try") / frame["file"][5]) as run:
        assert frame["final_loss"][5] == run.metrics_array["train_loss"][-1]
        assert frame["final_accuracy"][5] == run.metrics_array["test_accuracy"][-1]
        assert frame["updates"][5] == run.status.updates > 0


def test_only_the_folder_of_a_sweep_is_opened() -> None:
    Path("empty").mkdir()
    with pytest.raises(UserError, match="empty: has no sweep.toml; give the folder of a sweep"):
        open_sweep("empty")


# ---------------------------------------------------------------------------------------------------- failures


def test_an_impossible_cell_does_not_affect_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    grid = "[[sweep.grid]]\nclients.count = [2, 200]\nmethod.step_size = [0.1, 0.2, -1.0]\n"
    path = write(LOGISTIC + grid)
    assert main(["sweep", str(path), "--jobs", "2"]) == 1
    summary, *failures = capsys.readouterr().out.splitlines()
    assert summary == "runs/try: 6 runs: 2 done now, 0 done before, 0 of them diverged, 4 failed"
    assert sum("method.step_size: -1.0 is out of range" in line for line in failures) == 2
    assert sum("200 clients" in line for line in failures) == 2, failures
    sweep = open_sweep("runs/try")
    assert [result.experiment.clients.count for result in sweep.results] == [2, 2]
    assert len(sweep.missing) == len(sweep.failures) == 4
    assert {failure.file for failure in sweep.failures} == {member.file for member in sweep.missing}
    assert not list(Path("runs/try").glob("*.part"))
    assert main(["sweep", str(path)]) == 1  # tried again
    assert "0 done now, 2 done before, 0 of them diverged, 4 failed" in capsys.readouterr().out
    assert main(["sweep", str(write(LOGISTIC + grid.replace(", 200", "").replace(", -1.0", "")))]) == 0
    assert open_sweep("runs/try").failures == ()


def test_a_long_list_of_failures_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + "[sweep]\ntrials = 25\n[[sweep.grid]]\nmethod.step_size = [-1, 0.1]\n")
    assert main(["sweep", str(path), "--set", "stop.iterations=1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[-2] == "  and 5 more"
    assert len(open_sweep("runs/try").failures) == 25


def test_two_sweeps_do_not_share_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC)
    with opened(Path("runs/try"), load_sweep(path), "simulator"):
        assert main(["sweep", str(path)]) == 2
        told = f"runs/try: another sweep is writing into it (process {os.getpid()}); wait until it ends or choose"
        assert told in capsys.readouterr().err
    assert main(["sweep", str(path)]) == 0


@pytest.mark.parametrize("option", [[], ["--dry-run"], ["--force"]])
def test_a_folder_of_single_runs_is_not_taken_over(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC)
    assert main(["simulate", str(path), "-o", "runs/demo/area.h5"]) == 0
    assert main(["sweep", str(path), "-o", "runs/demo", *option]) == 2
    told = "runs/demo: holds 1 run file (area.h5) that no sweep has made; choose another --output"
    assert told in capsys.readouterr().err
    assert not Path("runs/demo/sweep.toml").exists()


def test_a_folder_of_another_sweep_is_not_taken_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(write(QUADRATIC)), "-o", "runs/one"]) == 0
    stored = Path("runs/one/sweep.toml").read_text()
    assert main(["sweep", str(write(QUADRATIC, "more.toml")), "-o", "runs/one", "--set", "seed=1"]) == 2
    assert "of the sweep try, this one is more; choose another --output" in capsys.readouterr().err
    assert Path("runs/one/sweep.toml").read_text() == stored


def test_virtual_and_real_time_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC)
    assert main(["sweep", str(path)]) == 0
    for option in ([], ["--dry-run"]):
        assert main(["sweep", str(path), "-o", "runs/try", "--transport", "mpi", *option]) == 2
        told = capsys.readouterr().err
        assert "runs/try: holds a sweep of the transport simulator, this one is of mpi; choose another --output" in told


def test_the_folder_must_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert main(["sweep", str(write(QUADRATIC)), "-o", "file"]) == 2
    assert capsys.readouterr().err == "areabench: file: is not a folder; choose another --output\n"


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_a_name_that_is_too_long_is_reported_in_one_line(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(write(QUADRATIC)), "-o", "a" * 300, *option]) == 2
    assert capsys.readouterr().err.endswith(": cannot be used: File name too long; give another path\n")


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert main(["sweep", str(write(QUADRATIC)), "-o", "file/sub"]) == 2
    told = "areabench: file/sub: cannot be written: Not a directory; choose another --output\n"
    assert capsys.readouterr().err == told


def test_a_full_disc_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    told = pytest.raises(UserError, match="No space left on device; make room or choose another --output")
    with told, opened(Path("runs/try"), SweepPlan("try", "", (), ""), "simulator"):
        raise AssertionError("was opened")


def test_an_error_inside_a_sweep_is_not_blamed_on_its_folder() -> None:
    with pytest.raises(PermissionError), opened(Path("runs/try"), SweepPlan("try", "", (), ""), "simulator"):
        raise PermissionError("of something else")


@pytest.mark.parametrize("listed", [True, False])
def test_a_full_disc_stops_the_sweep(
    listed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the list of failures can still be written; a pass is not divided for it."""
    begun = []

    def attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
        if not listed:
            full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
            monkeypatch.setattr("areabench.sweeps.folder.replace_text", full)
        begun.append(attempted)
        return PassOutcome(attempted, (), "WriteFailure: no room", is_fatal=True)

    monkeypatch.setattr("areabench.sweeps.pool._attempt", attempt)
    path = write(LOGISTIC + "[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2, 0.3]\n")
    assert main(["sweep", str(path), "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert [len(each.tasks) for each in begun] == [3]
    assert "6 runs: 0 done now, 0 done before, 0 of them diverged, 3 failed" in captured.out
    assert "stopped early: WriteFailure: no room; 3 runs not attempted; when that is fixed, the same" in captured.err


def test_one_bad_run_does_not_take_its_pass_down(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def attempt(attempted: Pass, options: RunOptions) -> PassOutcome:
        sizes = [task.experiment.method.step_size for task in attempted.tasks]
        begun.append(sizes)
        if 0.2 in sizes:
            return PassOutcome(attempted, (), "ValueError: no")
        return PassOutcome(attempted, (Status(State.DONE, "", 1.0, 1, 0, 1),))

    monkeypatch.setattr("areabench.sweeps.pool._attempt", attempt)
    assert main(["sweep", str(write(LOGISTIC + "[[sweep.grid]]\nmethod.step_size = [0.1, 0.2, 0.3]\n"))]) == 1
    said = capsys.readouterr().out
    assert "3 runs: 2 done now, 0 done before, 0 of them diverged, 1 failed" in said
    assert re.search(r"area-0.2-.*ValueError: no", said)
    assert sorted(begun) == [[0.1], [0.1, 0.2, 0.3], [0.2], [0.3]]


def test_a_trace_that_changes_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Path("trace.csv")
    trace.write_text("client,delay_s\n0,0.1\n1,0.2\n")
    path = write(QUADRATIC + '[delays]\nname = "trace"\nfile = "trace.csv"\n')
    assert main(["sweep", str(path)]) == 0
    assert main(["sweep", str(path)]) == 0
    assert "0 done now, 1 done before" in capsys.readouterr().out
    (written_ns,) = run_files().values()
    trace.write_text("client,delay_s\n0,0.3\n1,0.2\n")
    os.utime(trace, ns=(written_ns + 1, written_ns + 1))
    assert main(["sweep", str(path)]) == 0
    assert "1 done now, 0 done before" in capsys.readouterr().out


def test_a_dry_run_reports_cells_that_cannot_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(QUADRATIC + "[[sweep.grid]]\nmethod.step_size = [0.1, -1.0]\n")
    assert main(["sweep", str(path), "--dry-run"]) == 1
    assert "1 that cannot be run" in capsys.readouterr().out


def test_jobs_are_refused_on_mpi(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(write(QUADRATIC)), "--transport", "mpi", "--jobs", "2", "--dry-run"]) == 2
    assert "--jobs 2: on MPI there is one run at a time" in capsys.readouterr().err


def test_how_to_continue_depends_on_force(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport((FolderReport(Path("runs/try"), 4, now=1),), interrupted=130)
    monkeypatch.setattr("areabench.sweeps.run.run_sweep", lambda *_: report)
    path = write(QUADRATIC)
    for options, told in (
        ([], "the same command continues from there"),
        (["--force"], "leave --force out to run only"),
    ):
        assert main(["sweep", str(path), *options]) == 130
        assert f"1 of 4 runs are done; {told}" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- killed


@pytest.mark.slow
def test_the_runs_of_a_pass_whose_worker_is_killed_are_tried_again_alone(
    started: Callable[[], subprocess.Popen[str]],
) -> None:
    write(
        LOGISTIC.replace("horizon_s = 1.0", "horizon_s = 400.0").replace("= false", "= false\ninterval_s = 10.0") + GRID
    )
    process = started()
    until(lambda: children(process.pid))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    assert "8 runs: 8 done now" in output


@pytest.mark.slow
def test_a_sweep_that_is_killed_continues(
    started: Callable[[], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    write(SHORT_AND_LONG)
    process = started()
    until(half_done)
    workers = writers()
    process.kill()
    process.wait()
    until(lambda: not any(running(pid) for pid in workers))  # they do not outlive it
    first = run_files()
    assert (len(first), writers()) == (1, workers)  # what it left: one run, and half a file
    write(SHORTENED)
    assert main(["sweep", "try.toml"]) == 0
    assert "2 runs: 1 done now, 1 done before" in capsys.readouterr().out
    assert {name: run_files()[name] for name in first} == first
    assert len(open_sweep("runs/try").results) == 2
    assert not list(Path("runs/try").glob("*.part"))


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_run_only(started: Callable[[], subprocess.Popen[str]]) -> None:
    write(SHORT_AND_LONG)
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
    write(SHORTENED)
    assert main(["sweep", "try.toml"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_sweep_continues(
    number: signal.Signals, code: int, started: Callable[[], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    write(SHORT_AND_LONG)
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
    write(SHORTENED)
    assert main(["sweep", "try.toml"]) == 0
    assert "1 done now, 1 done before" in capsys.readouterr().out
