"""`areabench watch`: what is read of a file that grows, what it comes to, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.unit.watched import EXPERIMENT, Writer, writing

from areabench.cli import main
from areabench.config import parse_experiment
from areabench.errors import UserError
from areabench.reading import open_run
from areabench.scenario import build_scenario
from areabench.watching.command import Wishes, _frames
from areabench.watching.follower import Follower
from areabench.watching.quality import Evaluator
from areabench.watching.tail import Tail
from areabench.watching.tail import Writer as Seen

FIRST = ["event UPDATE 0.5 0 0", "event UPDATE 1.0 0 1", "event STEP 1.0 -1 0", "event UPDATE 1.5 1 3"]
SECOND = ["event REFUSED 1.75 1 0", "event UPDATE 1.9 0 1", "event LOST 2.0 1 0"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    with writing(path) as process:
        yield process


# ---------------------------------------------------------------------------------------------------- counted


def test_what_a_frame_says_by_hand(writer: Writer, path: Path) -> None:
    writer.write(*FIRST, *SECOND)
    frame = Follower(path, 0.0, None).look()
    assert (frame.state, frame.updates, frame.server_steps, frame.refused, frame.lost) == ("running", 4, 1, 1, (1,))
    assert (frame.time_s, frame.horizon_s, frame.progress) == (2.0, 10.0, 0.2)
    assert frame.staleness.mean == 5 / 4
    assert frame.staleness.counts == (1, 2, 0, 1)
    assert (frame.rates.recent, frame.rates.overall, frame.rates.nominal) == (2.0, 2.0, 4.0)
    assert [(client.client, client.served, client.expected, client.lost) for client in frame.clients] == [
        (0, 3, 6.0, False),
        (1, 1, 2.0, True),
    ]
    assert frame.size_bytes == path.stat().st_size


def test_lately_is_the_last_ten_seconds(path: Path) -> None:
    with writing(path, EXPERIMENT.replace("horizon_s = 10.0", "horizon_s = 100.0")) as writer:
        writer.write(*(f"event UPDATE {second}.5 0 0" for second in range(30)))
        writer.write(*(f"event UPDATE {39 + number / 8} 0 0" for number in range(9)))
        rates = Follower(path, 0.0, None).look().rates
    assert (rates.overall, rates.recent) == (39 / 40, 9 / 10)  # the last one came at 40 s


def test_only_new_events_are_read(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    real = h5py.Dataset.__getitem__

    def recorded(dataset: h5py.Dataset, chosen: Any, *more: Any) -> Any:
        if dataset.name == "/events":
            read.append((chosen.start, chosen.stop))
        return real(dataset, chosen, *more)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", recorded)
    follower = Follower(path, 0.0, None)
    assert follower.look().updates == 0
    writer.write(*FIRST)
    assert follower.look().updates == 3
    assert follower.look().updates == 3
    writer.write(*SECOND)
    assert follower.look().updates == 4
    assert read == [(0, 4), (4, 7)]


def test_many_events_are_read_in_blocks(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("areabench.watching.counts._ROWS_A_READ", 3)
    writer.write(*FIRST, *SECOND)
    assert Follower(path, 0.0, None).look().staleness.counts == (1, 2, 0, 1)


def test_a_file_in_the_place_of_another_is_counted_from_its_start(path: Path) -> None:
    follower = Follower(path, 0.0, None)
    with writing(path) as first:
        first.write(*FIRST)
        assert follower.look().updates == 3
        first.kill()
    with writing(path) as second:
        second.write(SECOND[1])
        frame = follower.look()
    assert (frame.updates, frame.staleness.counts, frame.server_steps) == (1, (0, 1), 0)


def test_events_that_no_run_writes_are_refused(writer: Writer, path: Path) -> None:
    writer.write("event UPDATE 1.0 2 0")  # there are clients 0 and 1
    with pytest.raises(UserError, match="is damaged .*client has values that there are not"):
        Follower(path, 0.0, None).look()


def test_without_an_event_log_the_end_tells(path: Path) -> None:
    with writing(path, EXPERIMENT + "[record]\nevents = false\n") as writer:
        writer.write("snapshot 0.0 0 1", "snapshot 4.0 2 1")
        frame = Follower(path, 0.0, None).look()
        assert (frame.counted, frame.time_s, frame.progress) == (False, 4.0, 0.4)
        writer.end()
        assert Follower(path, 0.0, None).look().counted


# ---------------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("state", "code"), [("DONE", 0), ("TARGET", 0), ("FAILED", 1), ("DIVERGED", 3), ("STOPPED", 4)]
)
def test_the_exit_code_tells_how_the_run_ended(
    state: str, code: int, writer: Writer, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.write(*FIRST)
    writer.end(state)
    assert main(["watch", str(path), "--json"]) == code
    (line,) = capsys.readouterr().out.splitlines()
    frame = json.loads(line)
    assert (frame["updates"], frame["reason"]) == (3, "told so")


def test_a_watch_ends_with_its_run(writer: Writer, path: Path) -> None:
    def pause(_seconds: float) -> None:
        (writer.end if len(states) > 2 else writer.write)()

    states: list[str] = []
    for frame in _frames(Follower(path, 0.0, None), Wishes(), pause):
        states.append(frame.state)
    assert states == ["running"] * 3 + ["done"]


def test_a_run_that_was_killed(writer: Writer, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write(*FIRST)
    assert main(["watch", str(path), "--once", "--json", "--no-evaluate"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "running"
    writer.kill()
    follower = Follower(path, 60.0, None)
    assert [follower.look().state, follower.look().state] == ["running", "killed"]  # its launcher may yet say why
    assert main(["watch", str(path), "--once", "--json", "--no-evaluate"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "killed"


def test_a_writer_that_cannot_be_seen(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """As on a network file system that has no locks."""
    monkeypatch.setattr("areabench.watching.tail.lock_seen", lambda path: None)
    now_s = [0.0]
    follower = Follower(path, 60.0, None, clock=lambda: now_s[0])
    assert follower.look().reason == "its writer cannot be seen from here"
    now_s[0] = 50.0
    writer.write(*FIRST)
    assert follower.look().updates == 3
    now_s[0] = 109.0
    assert follower.look().state == "running"
    now_s[0] = 110.0
    with pytest.raises(UserError, match="no news for 60 s, and its writer cannot be seen from here"):
        follower.look()


def test_a_file_that_is_not_there_yet(path: Path) -> None:
    now_s = [0.0]
    follower = Follower(path, 30.0, None, clock=lambda: now_s[0])
    assert follower.look().reason == f"for {path} to be written (0 s of 30)"
    now_s[0] = 29.0
    with writing(path) as writer:
        assert follower.look().state == "running"
        writer.kill()
    path.write_bytes(b"not yet")
    assert follower.look().state == "waiting"
    now_s[0] = 59.0
    with pytest.raises(UserError, match=r"is not a readable HDF5 file .*waited 30 s; --wait is longer"):
        follower.look()


def test_no_file_at_all(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(path), "--once"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"areabench: {path}: no such file; give the path of a run file (.h5)\n"


def test_interruption(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.watching.command._frames.__defaults__", (interrupt,))
    assert main(["watch", str(path), "--no-evaluate"]) == 130
    captured = capsys.readouterr()
    assert captured.out.startswith("running     0.0 / 10 s  0 updates")
    assert captured.err == "areabench: interrupted\n"


def test_who_writes_and_from_where(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tail(path).look().writer == Seen.THERE
    writer.kill()
    assert Tail(path).look().writer == Seen.GONE
    monkeypatch.setattr("os.uname", lambda: type("Names", (), {"nodename": "login-node"}))
    assert Tail(path).look().writer == Seen.UNSEEN  # its locks may be kept on another machine


# ---------------------------------------------------------------------------------------------------- quality


def test_the_last_snapshot_is_evaluated_here(writer: Writer, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write("snapshot 0.0 0 9", "snapshot 1.0 2 0.5", *FIRST)
    assert main(["watch", str(path), "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["quality"]
    problem = build_scenario(parse_experiment(EXPERIMENT), path.parent).problem
    expected = problem.evaluate([np.full(3, 0.5)])
    assert (found["time_s"], found["version"], found["source"]) == (1.0, 2, "watch")
    assert found["train_loss"] == expected.train_loss[0]
    assert found["squared_distance"] == expected.squared_distance[0]
    assert found["test_accuracy"] is None


def test_what_the_run_has_found_itself_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment, path = tmp_path / "tiny.toml", tmp_path / "tiny.h5"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    assert main(["simulate", str(experiment), "-o", str(path)]) == 0
    capsys.readouterr()
    assert main(["watch", str(path), "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["quality"]
    with open_run(path) as run:
        assert (found["train_loss"], found["source"]) == (run.metrics_array[-1]["train_loss"], "file")


def test_code_that_a_file_names_is_not_imported_unasked(path: Path) -> None:
    text = EXPERIMENT.replace('"quadratic"\ndimension = 3', '"torch"\nmodule = "stranger:net"\nloss = "stranger:loss"')
    experiment = parse_experiment(text + '[data]\nname = "synthetic"\n')
    evaluator = Evaluator(path, path.parent, ())
    evaluator.offer(experiment, np.zeros(1, [("time_s", "f8"), ("version", "i8")])[0], np.zeros(3))
    evaluator.wait(20.0)
    assert "would import and call 'stranger:net', 'stranger:loss'" in evaluator.trouble
    assert "add --trust-module stranger:net" in evaluator.trouble
    assert "stranger" not in sys.modules
    assert not evaluator.wants_model()


# ---------------------------------------------------------------------------------------------------- not disturbed


def test_a_run_under_watch_leaves_the_same_file(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("horizon_s = 10.0", "horizon_s = 1500.0")
    (tmp_path / "tiny.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "areabench", "simulate", "tiny.toml", "-o"]
    subprocess.run([*command, "alone.h5"], cwd=tmp_path, check=True, capture_output=True)
    with subprocess.Popen([*command, "watched.h5"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        follower = Follower(tmp_path / "watched.h5", 60.0, Evaluator(tmp_path / "watched.h5", tmp_path, ()))
        seen = [frame.updates for frame in _frames(follower, Wishes(interval_s=0.001), lambda _seconds: None)]
    assert run.returncode == 0
    with open_run(tmp_path / "alone.h5") as alone, open_run(tmp_path / "watched.h5") as other:
        assert alone.status == other.status
        assert alone.events_array.tobytes() == other.events_array.tobytes()
        assert alone.models.tobytes() == other.models.tobytes()
        assert alone.metrics_array.tobytes() == other.metrics_array.tobytes()
        assert seen[-1] == alone.status.updates
    assert len(set(seen)) > 2  # it was seen on its way
    assert main(["replay", str(tmp_path / "watched.h5")]) == 0
