"""Observers are told everything that is recorded, in order, and cannot harm the run."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import areabench
from areabench.cli.main import main
from areabench.engine.events import Event, Kind, State, Status
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.observers import Observer, SnapshotSeen, observer_of
from areabench.transports import session
from areabench.transports.signals import CheckpointTriggers

TINY: dict[str, Any] = {
    "clients": {"count": 2},
    "method": {"name": "area", "step_size": 0.1},
    "problem": {"name": "quadratic", "dimension": 2},
    "stop": {"iterations": 12},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Notes(Observer):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def on_start(self, experiment: Experiment) -> None:
        self.all.append(experiment)

    def on_event(self, event: Event) -> None:
        self.all.append(event)

    def on_snapshot(self, snapshot: SnapshotSeen) -> None:
        self.all.append(snapshot)

    def on_end(self, status: Status) -> None:
        self.all.append(status)


def test_an_observer_is_told_what_the_file_has_in_its_order() -> None:
    notes = Notes()
    with areabench.simulate(TINY, observers=[notes]) as run:
        assert (notes.all[0], notes.all[-1]) == (run.experiment, run.status)
        events = [each for each in notes.all if isinstance(each, Event)]
        assert [each.time_s for each in events] == run.events_array["time_s"].tolist()
        assert [each.kind for each in events] == [Kind(kind) for kind in run.events_array["kind"]]
        snapshots = [each for each in notes.all if isinstance(each, SnapshotSeen)]
        assert [each.version for each in snapshots] == run.snapshot_index["version"].tolist()
        assert [each.train_loss for each in snapshots] == pytest.approx(run.metrics_array["train_loss"].tolist())
        assert all(np.array_equal(each.model, model) for each, model in zip(snapshots, run.models, strict=True))
    before = [sum(isinstance(each, Event) for each in notes.all[: notes.all.index(one)]) for one in snapshots]
    assert before == [each.events for each in snapshots]


def test_observing_changes_nothing(tmp_path: Path) -> None:
    areabench.simulate(TINY, output="plain.h5").close()
    areabench.simulate(TINY, output="seen.h5", observers=["jsonl=seen.jsonl"]).close()
    with areabench.open_run("plain.h5") as plain, areabench.open_run("seen.h5") as seen:
        assert plain.events_array.tobytes() == seen.events_array.tobytes()
        assert plain.models.tobytes() == seen.models.tobytes()


def test_an_observer_that_fails_is_left_out_and_the_run_continues() -> None:
    class Failing(Observer):
        def on_event(self, event: Event) -> None:
            raise ValueError("no connection")

    notes = Notes()
    with pytest.warns(
        UserWarning, match=r"observer Failing.on_event failed and is left out: ValueError: no connection"
    ):
        run = areabench.simulate(TINY, observers=[Failing(), notes])
    assert run.status.state == State.DONE
    assert notes.all[-1] == run.status


def test_an_object_with_some_of_the_methods_will_do() -> None:
    class Last:
        status: Status | None = None

        def on_end(self, status: Status) -> None:
            self.status = status

    last = Last()
    run = areabench.simulate(TINY, observers=[last])
    assert last.status == run.status


def test_a_run_that_fails_is_told_too() -> None:
    def ends(rate: float, generator: np.random.Generator) -> Any:
        yield from [0.1] * 20
        yield -1.0

    notes = Notes()
    with pytest.raises(Exception, match=r"-1.0"):
        areabench.simulate(TINY, observers=[notes], delays=ends, stop={"iterations": 100})
    assert notes.all[-1].state == State.FAILED


def test_a_model_cannot_be_changed() -> None:
    class Bad(Observer):
        def on_snapshot(self, snapshot: SnapshotSeen) -> None:
            snapshot.model[:] = 0.0

    with pytest.warns(UserWarning, match=r"read-only"):
        areabench.simulate(TINY, observers=[Bad()]).close()


# ---------------------------------------------------------------------------------------------------- resumed runs


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Notes]:
    """Makes run.h5, which stops after five events, and returns what its observer was told."""

    class Stopping(CheckpointTriggers):
        asked, signal = 0, "SIGTERM"

        def due(self) -> bool:
            self.asked += 1
            self.stop_signal = self.signal if self.asked > 5 else ""
            return self.asked > 5

    def make(signal: str = "SIGTERM", **overrides: Any) -> Notes:
        notes = Notes()
        with monkeypatch.context() as patch:
            patch.setattr(session, "CheckpointTriggers", Stopping)
            patch.setattr(Stopping, "signal", signal)
            with areabench.simulate(TINY, output="run.h5", checkpoint_s=0.0, observers=[notes], **overrides) as run:
                assert run.status.state == State.STOPPED
        return notes

    return make


def test_observers_of_a_resumed_run_are_told_what_follows_its_checkpoint(stopped: Callable[..., Notes]) -> None:
    before, after = stopped(), Notes()
    with areabench.resume("run.h5", observers=[after]) as run, areabench.simulate(TINY) as whole:
        assert run.events_array.tobytes() == whole.events_array.tobytes()
        assert run.models.tobytes() == whole.models.tobytes()
        assert (after.all[0], after.all[-1]) == (run.experiment, run.status)
        told = [each for each in before.all + after.all if isinstance(each, Event)]
        assert [each.time_s for each in told] == run.events_array["time_s"].tolist()
        seen = [each for each in before.all + after.all if isinstance(each, SnapshotSeen)]
        assert [each.events for each in seen] == run.snapshot_index["event"].tolist()
    assert 0 < len([each for each in after.all if isinstance(each, Event)]) < 12


def test_an_observer_that_cannot_start_leaves_a_run_that_can_be_resumed(stopped: Callable[..., Notes]) -> None:
    stopped()
    before = Path("run.h5").read_bytes()
    Path("seen.jsonl").touch()
    assert main(["resume", "run.h5", "--observe", "jsonl=seen.jsonl"]) == 2
    assert Path("run.h5").read_bytes() == before
    assert checkpoint_path(Path("run.h5")).exists()
    assert main(["resume", "run.h5", "--observe", "jsonl=others.jsonl"]) == 0
    assert json.loads(Path("others.jsonl").read_text().splitlines()[-1])["state"] == "done"


def test_a_run_with_an_object_is_resumed_with_it(stopped: Callable[..., Notes]) -> None:
    def own(rate: float, generator: np.random.Generator) -> Any:
        while True:
            yield 1.0 / rate

    stopped(delays=own)
    with pytest.raises(UserError, match=r"was made with 'python:own'.*, areabench.resume or areabench.evaluate"):
        areabench.resume("run.h5")
    with areabench.resume("run.h5", delays=own) as run:
        assert run.status.state == State.DONE
        assert areabench.replay(run, delays=own).equal


def test_an_interrupt_reaches_the_caller_and_leaves_a_run_to_resume(stopped: Callable[..., Notes]) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped("SIGINT")
    with areabench.resume("run.h5") as run:
        assert run.status.state == State.DONE


def test_a_run_that_has_ended_is_not_resumed() -> None:
    run = areabench.simulate(TINY, output="run.h5")
    with pytest.raises(UserError, match=r"has ended \(done\); there is nothing to resume"):
        areabench.resume(run)


def test_tensorboard_counts_the_updates_before_a_run_was_resumed(stopped: Callable[..., Notes], tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    stopped()
    with areabench.resume("run.h5", observers=["tensorboard=board"]) as run:
        (*_, last) = (row for row in scalars(tmp_path / "board") if row[0] == "updates")
        assert last[3] == run.status.updates


# ---------------------------------------------------------------------------------------------------- ready ones


def test_csv(tmp_path: Path) -> None:
    with areabench.simulate(TINY, observers="csv=live") as run:  # one needs no list
        with (tmp_path / "live" / "events.csv").open() as file:
            events = list(csv.DictReader(file))
        with (tmp_path / "live" / "snapshots.csv").open() as file:
            snapshots = list(csv.DictReader(file))
        assert [float(row["time_s"]) for row in events] == run.events_array["time_s"].tolist()
        assert [row["kind"] for row in events] == [Kind(kind).text for kind in run.events_array["kind"]]
        assert [float(row["train_loss"]) for row in snapshots] == pytest.approx(
            run.metrics_array["train_loss"].tolist()
        )
        assert {row["test_accuracy"] for row in snapshots} == {"nan"}


def test_json_lines_and_a_file_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "new" / "seen.jsonl"
    assert main(["simulate", write(tmp_path), "-o", "a.h5", "--observe", f"jsonl={path}"]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(line["what"] == "event" for line in lines) == 12
    assert lines[-1]["state"] == "done"
    assert lines[0]["what"] == "snapshot"
    assert lines[0]["test_accuracy"] is None
    assert main(["simulate", write(tmp_path), "-o", "b.h5", "--observe", f"jsonl={path}"]) == 2
    assert not Path("b.h5").exists()
    assert main(["simulate", write(tmp_path), "-o", "b.h5"]) == 0  # its lock is free


def write(folder: Path) -> str:
    from areabench.settings.parse import to_toml

    (folder / "tiny.toml").write_text(to_toml(areabench.read_experiment(TINY)), encoding="utf-8")
    return str(folder / "tiny.toml")


def scalars(folder: Path) -> list[tuple[str, int, float, float]]:
    """Tag, step, wall time and value of what is in TensorBoard's records: length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event as Entry

    content, place, found = next(folder.glob("events.out.tfevents.*")).read_bytes(), 0, []
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        entry = Entry.FromString(content[place + 12 : place + 12 + length])
        found += [(value.tag, entry.step, entry.wall_time, value.simple_value) for value in entry.summary.value]
        place += length + 16
    return found


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with areabench.simulate(TINY, observers=[areabench.observers.TensorBoardObserver("board")]) as run:
        found = [row for row in scalars(tmp_path / "board") if row[0] == "train_loss"]
        assert [row[1] for row in found] == run.snapshot_index["version"].tolist()
        assert [row[2] for row in found] == run.snapshot_index["time_s"].tolist()
        assert [row[3] for row in found] == pytest.approx(run.metrics_array["train_loss"].tolist())
        assert "test_accuracy" not in {row[0] for row in scalars(tmp_path / "board")}  # a quadratic has none


@pytest.mark.parametrize("text", ["tsv=there", "csv", "csv="])
def test_an_unknown_observer(text: str) -> None:
    with pytest.raises(UserError, match=rf"observer '{text}': is not known; write csv=PATH, jsonl=PATH, tensorboard="):
        observer_of(text)


def test_an_observer_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_observer.py").write_text("class Mine:\n    told = []\n    def on_end(self, status):\n"
                                             "        self.told.append(status)\n")  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    run = areabench.simulate(TINY, observers=["my_observer:Mine"])
    assert __import__("my_observer").Mine.told == [run.status]


def test_an_object_cannot_be_sent_to_ranks() -> None:
    with pytest.raises(UserError, match=r"observer Notes: an object of this process cannot be sent to MPI ranks"):
        areabench.launch(TINY, observers=[Notes()])
