"""Nothing is lost: run files of running and killed runs, full discs, locks, and resumed runs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from tests.support.texts import quadratic
from tests.support.watched import WRITER

from areabench.cli.main import main
from areabench.engine.events import CLIENT, Event, Kind, State
from areabench.engine.scenario import build_scenario
from areabench.engine.state import Tally
from areabench.errors import RunFileError
from areabench.experiment.parse import parse_experiment
from areabench.progress import Style
from areabench.runfile.layout import _rows_a_block, close_after_write_error, cut
from areabench.runfile.lock import _flock, refuse_busy
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import open_run
from areabench.runfile.reader import RunReader
from areabench.runfile.record import Recorder, RunPrefix, mark_killed_run
from areabench.runfile.schema import STATUS
from areabench.settings.parse import to_toml
from areabench.transports.options import RunOptions
from areabench.transports.replay import Replay
from areabench.transports.session import simulate_run

EXPERIMENT = quadratic("iterations = 3000", dimension=50) + '[record]\nsnapshots = "grid"\ninterval_s = 0.1\n'
FLOAT = np.dtype(np.float64)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


@pytest.fixture
def writing(experiment: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has flushed five times into run.h5 and waits."""
    command = [sys.executable, "-c", WRITER, str(experiment), str(tmp_path / "run.h5"), "5"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        try:
            said: IO[str] | None = writer.stdout
            assert said is not None
            assert said.readline() == "ready\n"
            yield writer
        finally:
            writer.kill()


def surroundings(output: Path, *, force: bool = False) -> RunOptions:
    return RunOptions(output, output.parent, "", force, Style.NONE)


def replayed(path: Path) -> tuple[int, int]:
    """Replay a run file to its end; how many events and snapshots there were."""
    with open_run(path) as run:
        outcome = Replay(run, build_scenario(run.experiment, path.parent), lambda _time_s, _number: None).run()
        assert outcome.difference is None
        assert (outcome.events, outcome.snapshots) == (len(run.events_array), len(run.snapshot_index))
        return outcome.events, outcome.snapshots


# ---------------------------------------------------------------------------------------------------- killed


def test_a_running_run_can_be_read(writing: subprocess.Popen[str], tmp_path: Path) -> None:
    events, snapshots = replayed(tmp_path / "run.h5")
    assert events > 100
    assert snapshots > 20
    with open_run(tmp_path / "run.h5") as run:
        assert run.status.state == State.RUNNING
        assert run.status.updates + run.status.server_steps == events


def test_a_killed_run_can_be_read_by_every_command(writing: subprocess.Popen[str], tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    writing.kill()
    writing.wait()
    assert replayed(path)[0] > 100
    for command in ("show", "summary", "diagnose", "replay"):
        assert main([command, str(path)]) == 0


@pytest.mark.parametrize(("models", "sizes"), [("all", (0, 60_000, 500_000)), ("last", (0, 60_000))])
def test_a_run_that_was_killed_at_any_moment(
    models: str, sizes: tuple[int, ...], experiment: Path, tmp_path: Path
) -> None:  # fmt: skip
    """A process that never stops writing, killed when it has written this many bytes."""
    text = EXPERIMENT.replace("iterations = 3000", "iterations = 1000000000") + f'models = "{models}"\n'
    experiment.write_text(text, encoding="utf-8")
    for size in sizes:
        path = tmp_path / f"{size}.h5"
        with subprocess.Popen([sys.executable, "-c", WRITER, str(experiment), str(path), "-1"]) as writer:
            while not path.exists() or path.stat().st_size < size:
                assert writer.poll() is None
                time.sleep(0.002)
            writer.kill()
        replayed(path)


def test_the_status_of_a_killed_run_can_be_set(writing: subprocess.Popen[str], tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with pytest.raises(RunFileError, match=rf"is being written by another run \(PID {writing.pid}\); wait"):
        mark_killed_run(path, "mpirun was killed")
    writing.kill()
    writing.wait()
    assert mark_killed_run(path, "mpirun was killed")
    assert not mark_killed_run(path, "another")
    events, _ = replayed(path)
    with open_run(path) as run:
        assert (run.status.state, run.status.reason) == (State.FAILED, "mpirun was killed")
        with RunReader(path) as reader:  # also for readers that do not count the rows
            assert reader.stored_status == run.status
        assert run.status.updates + run.status.server_steps == events
        assert run.status.end_s == run.events_array["time_s"][-1]


def test_a_text_is_cut_between_characters() -> None:
    assert [cut("aüb", size) for size in (1, 2, 3, 9)] == [b"a", b"a", "aü".encode(), "aüb".encode()]


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    with begun(tmp_path / "run.h5") as path:
        mark_killed_run(path, "ü" * 600)
        with open_run(path) as run:
            assert run.status.reason == "ü" * (STATUS["reason"].itemsize // 2)


# ---------------------------------------------------------------------------------------------------- full discs


class begun:  # noqa: N801 - used as a function
    """A run file with nothing but its beginning, as a killed run leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        recorder = Recorder(path, EXPERIMENT, 2, FLOAT, force=False)
        recorder.begin(gather_provenance("simulator", "", "", 0), np.zeros(2, CLIENT))
        close_after_write_error(recorder._file)
        recorder._claim.release()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        pass


LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes}))
"""


def simulated_in_a_process(experiment: Path, output: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom areabench.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "simulate", str(experiment), "-o", str(output)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check_failed_on_full_disc(path: Path, reason: str) -> int:
    events, _ = replayed(path)
    with open_run(path) as run:
        assert run.status.state == State.FAILED
        assert f"cannot be written any more: {reason}; make room" in run.status.reason
        assert run.status.updates + run.status.server_steps == events
    return events


def test_a_full_disc_leaves_what_was_written(experiment: Path, tmp_path: Path) -> None:
    """Whatever is written when the disc is full: rows, models, indices."""
    experiment.write_text(EXPERIMENT.replace("interval_s = 0.1", "interval_s = 0.02"), encoding="utf-8")
    found = set()
    for number, size in enumerate((131_000, 250_000, 401_000)):
        path = tmp_path / f"{number}.h5"
        done = simulated_in_a_process(experiment, path, LIMITED.format(bytes=size))
        assert done.returncode == 1
        assert "cannot be written any more: File too large; make room or choose another --output\n" in done.stderr
        assert done.stderr.count("\n") == 1
        found.add(check_failed_on_full_disc(path, "File too large"))
    assert len(found) > 1


def test_a_full_disc_at_the_very_start_leaves_nothing(experiment: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "run.h5"
    done = simulated_in_a_process(experiment, path, LIMITED.format(bytes=3_000))
    assert (done.returncode, list(path.parent.iterdir())) == (1, [])


@pytest.fixture
def small_disc(tmp_path: Path) -> Iterator[Path]:
    """A disc of 256 kB."""
    folder = tmp_path / "disc"
    folder.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
        made = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if made.returncode:
        pytest.skip(f"a disc cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_small_disc(experiment: Path, small_disc: Path) -> None:
    experiment.write_text(EXPERIMENT.replace("interval_s = 0.1", "interval_s = 0.02"), encoding="utf-8")
    done = simulated_in_a_process(experiment, small_disc / "run.h5")
    assert done.returncode == 1
    assert check_failed_on_full_disc(small_disc / "run.h5", "No space left on device") > 0


# ---------------------------------------------------------------------------------------------------- claims


def test_two_runs_into_one_file(writing: subprocess.Popen[str], experiment: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with pytest.raises(RunFileError, match="exists already"):
        Recorder(path, "", 2, FLOAT, force=False)
    with pytest.raises(RunFileError, match=rf"by another run \(PID {writing.pid}\); choose another --output or wait"):
        Recorder(path, "", 2, FLOAT, force=True)
    assert main(["simulate", str(experiment), "-o", str(path), "--force"]) == 2
    assert replayed(path)[0] > 100
    writing.communicate("")  # let it continue
    assert writing.returncode == 0
    with open_run(path) as run:
        assert (run.status.state, len(run.events_array)) == (State.DONE, 3000)
    replayed(path)
    assert not list(tmp_path.glob(".*.new"))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_during_a_run(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, event = tmp_path / "run.h5", Recorder.event

    def remove(recorder: Recorder, happened: Event) -> None:
        path.unlink(missing_ok=True)
        if replaced:
            path.write_text("another")
        event(recorder, happened)

    monkeypatch.setattr(Recorder, "event", remove)
    (tmp_path / "tiny.toml").write_text(EXPERIMENT, encoding="utf-8")
    assert main(["simulate", str(tmp_path / "tiny.toml"), "-o", str(path)]) == 1
    line = f"areabench: {path}: was removed or replaced during the run, and is lost; run it again\n"
    assert capsys.readouterr().err == line
    assert path.exists() == replaced


def test_a_file_that_is_written_is_refused_before_a_launch(writing: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=rf"by another run \(PID {writing.pid}\); choose another --output or wait"):
        refuse_busy(tmp_path / "run.h5")
    writing.kill()
    writing.wait()
    refuse_busy(tmp_path / "run.h5")


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    simulate_run(parse_experiment(EXPERIMENT, overrides=["stop.iterations=20"]), surroundings(tmp_path / "run.h5"))
    assert replayed(tmp_path / "run.h5")[0] == 20


def test_a_lock_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("areabench.runfile.lock.fcntl.flock", broken)
    with pytest.raises(OSError, match="Input/output error"):
        _flock(0, tmp_path / "run.h5")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.h5").touch()
    (tmp_path / "run.h5").symlink_to(tmp_path / "far" / "real.h5")
    around = replace(surroundings(tmp_path / "run.h5"), force=True)
    simulate_run(parse_experiment(EXPERIMENT, overrides=["stop.iterations=20"]), around)
    assert (tmp_path / "run.h5").is_symlink()
    assert replayed(tmp_path / "far" / "real.h5")[0] == 20


def test_other_users_may_read_but_not_write(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with begun(tmp_path / "run.h5") as path:
            assert path.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize(("dimension", "rows"), [(1, 16), (2**14, 16), (2**17, 2), (2**20, 1)])
def test_a_block_of_models_is_a_mebibyte_or_one_model(dimension: int, rows: int) -> None:
    assert _rows_a_block(dimension, np.dtype(np.float32)) == rows


# ---------------------------------------------------------------------------------------------------- resuming


def tally_of(rows: np.ndarray) -> Tally:
    tally = Tally()
    for row in rows:
        tally.count(Kind(row["kind"]), float(row["time_s"]), int(row["client"]), int(row["staleness"]))
    return tally


@pytest.mark.parametrize("models", ["all", "last"])
def test_a_resumed_run_equals_the_whole_one(models: str, tmp_path: Path) -> None:
    overrides = ["stop.iterations=400", "record.average=true", f"record.models={models}"]
    settings = parse_experiment(EXPERIMENT, overrides=overrides)
    path, whole = tmp_path / "run.h5", tmp_path / "whole.h5"
    simulate_run(settings, surroundings(path))
    whole.write_bytes(path.read_bytes())
    full = tmp_path / "full.h5"
    simulate_run(replace(settings, record=replace(settings.record, models="all")), surroundings(full))
    with open_run(path) as run, open_run(full) as every:
        events, index = run.events_array, run.snapshot_index
        snapshots = 8
        kept = int(index["event"][snapshots - 1]) + 1
        held = {"models": list(every.models[:snapshots]), "averages": list(every.averages[:snapshots])}
        earlier = RunPrefix(run, kept, snapshots, tally_of(events[:kept]), **(held if models == "last" else {}))
        going_on = Recorder.continued(run, earlier)
        going_on.begin(run.provenance, run.clients_array, earlier)
        with pytest.raises(RunFileError, match="is being written by another run"):
            Recorder(path, "", 2, FLOAT, force=True)
        with open_run(path) as begun_again:
            assert len(begun_again.events_array) == kept
            assert len(begun_again.snapshot_index) == snapshots
        for row in events[kept:]:
            going_on.event(Event(*row.tolist()))
            going_on.tally.count(Kind(row["kind"]), float(row["time_s"]), int(row["client"]), int(row["staleness"]))
        for row, model, average in zip(index, every.models, every.averages, strict=True):
            if row["event"] > kept:
                going_on.snapshot(row["time_s"], row["version"], model, average, row["event"])
        assert sum(len(block) for block in going_on.model_blocks()) == snapshots
        going_on.set_status(going_on.tally.status(State.DONE, run.status.reason, run.status.end_s))
        going_on.close()
        with open_run(path) as again:
            assert again.status == run.status
            assert again.events_array.tobytes() == events.tobytes()
            assert np.array_equal(again.snapshot_index, index)
            assert np.array_equal(again.models, run.models)
            assert np.array_equal(again.averages, run.averages)
            assert to_toml(again.experiment) == to_toml(run.experiment)
    replayed(path)


def test_a_run_cannot_continue_from_beyond_the_end_of_its_file(tmp_path: Path) -> None:
    simulate_run(parse_experiment(EXPERIMENT, overrides=["stop.iterations=100"]), surroundings(tmp_path / "run.h5"))
    before = (tmp_path / "run.h5").read_bytes()
    with open_run(tmp_path / "run.h5") as run:
        earlier = RunPrefix(run, 101, 3, tally_of(run.events_array))
        with pytest.raises(RunFileError, match=r"has 100 events and \d+ snapshots; resuming needs 101 and 3; run"):
            Recorder.continued(run, earlier)
    assert (tmp_path / "run.h5").read_bytes() == before
