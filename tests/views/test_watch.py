"""`areabench watch`: what is read of a file that grows, what it comes to, and how it ends."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.support import own_parts as outside
from tests.support.watched import EXPERIMENT, Writer, writing

from areabench.cli.main import main
from areabench.cli.watch import frames
from areabench.engine.events import CLIENT, State, Status
from areabench.errors import UserError
from areabench.experiment.parse import parse_experiment
from areabench.views.watch.follower import Follower
from areabench.views.watch.frame import Frame, watch_frame
from areabench.views.watch.screen import log_line, plain_page
from areabench.views.watch.tail import EventCounts, Observation, RunFacts, Tail
from areabench.views.watch.tail import Writer as Seen

FIRST = ["event UPDATE 0.5 0 0", "event UPDATE 1.0 0 1", "event STEP 1.0 -1 0", "event UPDATE 1.5 1 3"]
SECOND = ["event REFUSED 1.75 1 0", "event UPDATE 1.9 0 1", "event LOST 2.0 1 0"]


def look(path: Path) -> Frame:
    """The frame of a single look that evaluates nothing and waits for nothing."""
    return Follower(path, 0.0, None).frame()


# ---------------------------------------------------------------------------------------------------- counted


@pytest.mark.parametrize("blocks_at_once", [1, 1000])
def test_a_frame_by_hand(blocks_at_once: int, writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.reader._BLOCKS_AT_ONCE", blocks_at_once)
    writer.write(*FIRST, *SECOND)
    frame = look(path)
    assert (frame.state, frame.updates, frame.server_steps, frame.refused, frame.lost) == ("running", 4, 1, 1, (1,))
    assert (frame.time_s, frame.horizon_s, frame.progress) == (2.0, 10.0, 0.2)
    assert (frame.staleness.mean, frame.staleness.counts) == (5 / 4, (1, 2, 0, 1))
    assert (frame.rates.recent, frame.rates.overall, frame.rates.nominal) == (2.0, 2.0, 4.0)
    seen = [(client.client, client.served, client.expected, client.lost) for client in frame.clients]
    assert seen == [(0, 3, 6.0, False), (1, 1, 2.0, True)]
    assert frame.size_bytes == path.stat().st_size


def test_steps_that_were_not_made_and_cancelled_orders_are_counted(writer: Writer, path: Path) -> None:
    writer.write(*FIRST, "event NO_STEP 1.5 -1 0", "event CANCELLED 1.75 0 1", "event CANCELLED 1.75 1 1")
    frame = look(path)
    assert (frame.updates, frame.server_steps, frame.no_steps, frame.cancelled) == (3, 1, 1, 2)
    assert "1 server step, 1 no step, 2 cancelled" in plain_page(frame)


@pytest.mark.parametrize("section", ["method", "delays"])
def test_user_parts_have_no_expected_rate(section: str) -> None:
    facts = RunFacts(parse_experiment(outside.experiment(section)), "simulator", 0, (), np.ones(2, CLIENT))
    status = Status(State.RUNNING, "", 0.0, 0, 0, 0)
    seen = Observation(facts, status, Seen.THERE, EventCounts(2), 0, None, None, None, 0, 0.0)
    assert math.isnan(watch_frame("run.h5", seen, 1.0, 0.0, None, "").rates.nominal)


def test_recent_means_the_last_ten_seconds(path: Path) -> None:
    with writing(path, EXPERIMENT.replace("horizon_s = 10.0", "horizon_s = 100.0")) as writer:
        writer.write(*(f"event UPDATE {second}.5 0 0" for second in range(30)))
        writer.write(*(f"event UPDATE {39 + number / 8} 0 0" for number in range(9)))
        rates = look(path).rates
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
    assert follower.frame().updates == 0
    writer.write(*FIRST)
    assert follower.frame().updates == 3
    assert follower.frame().updates == 3
    writer.write(*SECOND)
    assert follower.frame().updates == 4
    assert read == [(0, 4), (4, 7)]


def test_a_trace_is_read_once(path: Path) -> None:
    trace = path.with_name("trace.csv")
    trace.write_text("client,delay_s\n0,0.5\n1,1.0\n")
    text = f'{EXPERIMENT}[delays]\nname = "trace"\nfile = "{trace}"\n'
    follower = Follower(path, 0.0, None)
    with writing(path, text) as writer:
        writer.write("event UPDATE 2.0 0 0")
        assert [client.expected for client in follower.frame().clients] == [4.0, 2.0]
        trace.unlink()
        writer.write("event UPDATE 4.0 0 0")
        frame = follower.frame()
    assert [client.expected for client in frame.clients] == [8.0, 4.0]
    assert frame.rates.nominal == 3.0


def test_a_file_in_the_place_of_another_is_counted_from_its_start(path: Path) -> None:
    follower = Follower(path, 0.0, None)
    with writing(path) as first:
        first.write(*FIRST)
        assert follower.frame().updates == 3
        first.kill()
    with writing(path) as second:
        second.write(SECOND[1])
        frame = follower.frame()
    assert (frame.updates, frame.staleness.counts, frame.server_steps) == (1, (0, 1), 0)


def test_events_that_no_run_writes_are_refused(writer: Writer, path: Path) -> None:
    writer.write("event UPDATE 1.0 2 0")  # there are clients 0 and 1
    with pytest.raises(UserError, match="is damaged .*client has values out of range"):
        look(path)


def test_without_an_event_log_the_last_snapshot_shows_the_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with writing(path, EXPERIMENT + "[record]\nevents = false\n") as writer:
        writer.write("snapshot 0.0 0 1", "snapshot 4.0 2 1")
        frame = look(path)
        assert (frame.counted, frame.time_s, frame.progress) == (False, 4.0, 0.4)
        assert (frame.updates, frame.server_steps, frame.discarded, frame.refused, frame.lost) == (None,) * 5
        assert [client.served for client in frame.clients] == [None, None]
        assert "updates" not in log_line(frame)
        assert main(["watch", str(path), "--once", "--json", "--no-evaluate"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["updates"], found["lost"], found["rates"]) == (
            None, None, {"recent": None, "overall": None, "nominal": 4.0}
        )  # fmt: skip
        writer.end()
        ended = look(path)
        assert (ended.counted, ended.updates) == (True, 0)


def test_uncounted_iterations_are_no_progress(path: Path) -> None:
    text = EXPERIMENT.replace("horizon_s = 10.0", "iterations = 20")
    with writing(path, text + "[record]\nevents = false\n") as writer:
        writer.write("snapshot 0.0 0 1", "snapshot 4.0 2 1")
        assert look(path).progress is None


# ---------------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("state", "code"), [("DONE", 0), ("TARGET", 0), ("FAILED", 1), ("DIVERGED", 3), ("STOPPED", 4)]
)
def test_the_exit_code_shows_how_the_run_ended(
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
    for frame in frames(Follower(path, 0.0, None), pause=pause):
        states.append(frame.state)
    assert states == ["running"] * 3 + ["done"]


def test_a_run_that_was_killed(writer: Writer, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write(*FIRST)
    assert main(["watch", str(path), "--once", "--json", "--no-evaluate"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "running"
    writer.kill()
    follower = Follower(path, 60.0, None)
    assert [follower.frame().state, follower.frame().state] == ["running", "killed"]  # its launcher may yet say why
    assert main(["watch", str(path), "--once", "--json", "--no-evaluate"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "killed"


def test_a_writer_that_cannot_be_seen(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system that has no locks."""
    monkeypatch.setattr("areabench.views.watch.tail.lock_seen", lambda path: None)
    now_s = [0.0]
    follower = Follower(path, 60.0, None, clock=lambda: now_s[0])
    assert follower.frame().reason == "its writer cannot be seen from here"
    writer.write(*FIRST)
    now_s[0] = 50.0
    assert follower.frame().updates == 3
    now_s[0] = 109.0
    assert follower.frame().state == "running"
    now_s[0] = 110.0
    with pytest.raises(UserError, match="nothing new for 60 s, and its writer cannot be seen from here"):
        follower.frame()


def test_a_file_that_does_not_exist_yet(path: Path) -> None:
    now_s = [0.0]
    follower = Follower(path, 30.0, None, clock=lambda: now_s[0])
    assert follower.frame().reason == f"for {path} to be written (0 s of 30)"
    now_s[0] = 29.0
    with writing(path) as writer:
        assert follower.frame().state == "running"
        writer.kill()
    path.write_bytes(b"not yet")
    assert follower.frame().state == "waiting"
    now_s[0] = 59.0
    with pytest.raises(UserError, match=r"is not a readable HDF5 file .*waited 30 s; --wait is longer"):
        follower.frame()


def test_a_file_that_is_none(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(path), "--once"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, "no such file; give the path of a run file" in captured.err) == ("", True)
    with h5py.File(path, "w") as file:
        file["numbers"] = [1, 2, 3]
    with pytest.raises(UserError, match="is not a run file of areabench"):  # it is not waited for
        Follower(path, 60.0, None).frame()


def test_a_single_look_waits_without_output(path: Path) -> None:
    with ExitStack() as stack:

        def pause(_seconds: float) -> None:
            stack.enter_context(writing(path))

        (frame,) = frames(Follower(path, 60.0, None, once=True), pause=pause)
        assert frame.state == "running"


def test_interruption(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.cli.watch.frames.__defaults__", (interrupt,))
    assert main(["watch", str(path), "--no-evaluate"]) == 130
    captured = capsys.readouterr()
    assert captured.out.startswith("running     0.0 / 10 s  0 updates")
    assert captured.err == "areabench: interrupted\n"


def test_who_writes_and_from_where(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tail(path).observe().writer == Seen.THERE
    writer.kill()
    assert Tail(path).observe().writer == Seen.GONE
    monkeypatch.setattr("os.uname", lambda: type("Names", (), {"nodename": "login-node"}))
    assert Tail(path).observe().writer == Seen.UNSEEN  # its locks may be kept on another machine
