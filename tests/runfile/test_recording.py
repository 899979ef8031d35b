"""When the recorder writes, in which order, in which blocks, and what becomes of a file that cannot be written."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import h5py
import numpy as np
import pytest
from tests.support.texts import QUADRATIC

from areabench.engine.events import CLIENT, EVENT, Event, Kind, State, Status
from areabench.engine.messages import Flag, digest
from areabench.engine.state import Tally
from areabench.errors import RunFailure, WriteFailure
from areabench.experiment.parse import parse_experiment
from areabench.problems.base import Metrics
from areabench.runfile.checksums import ChecksumLog
from areabench.runfile.layout import (
    ModelsInMemory,
    cause_of,
    close_after_write_error,
    evaluated_at_once,
    metric_rows,
    write_attributes,
)
from areabench.runfile.lock import lock_seen
from areabench.runfile.open import open_file
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import open_run
from areabench.runfile.reader import read_attributes
from areabench.runfile.record import Recorder, RunPrefix
from areabench.runfile.schema import METRIC, SNAPSHOT
from areabench.settings.parse import to_toml

FLOAT = np.dtype(np.float64)
ENDS = ["metrics", "tally/staleness", "tally/served", "diagnosis/clients", "diagnosis/quantiles", "diagnosis/summary"]


def begun(path: Path, *overrides: str, earlier: RunPrefix | None = None) -> Recorder:
    """A recorder of models with two parameters."""
    experiment = parse_experiment(QUADRATIC, overrides=overrides)
    recorder = Recorder(path, to_toml(experiment), 2, FLOAT, force=True, record=experiment.record)
    recorder.begin(gather_provenance("simulator", "", "", 0), np.zeros(2, CLIENT), earlier)
    return recorder


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """One with the settings that are the default."""
    made = begun(tmp_path / "run.h5")
    yield made
    with suppress(RunFailure):
        made.close()


@pytest.fixture
def clock(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the seconds since the last flush."""
    flushed_s, now_s = recorder._flushed_s, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: flushed_s + now_s[0])

    def set_clock(time_s: float) -> None:
        now_s[0] = time_s

    return set_clock


def update(number: int = 1) -> Event:
    return Event(0.5, Kind.UPDATE, iteration=number, digest=7)


def events_in(recorder: Recorder) -> int:
    """How many events another reader of the file sees."""
    with open_file(recorder.path) as file:
        return len(file["events"])


# -------------------------------------------------------------------------------------------------------- when


def test_a_spare_moment_writes_what_has_waited_for_a_second(recorder: Recorder, clock: Callable[[float], None]) -> None:
    recorder.event(update())
    clock(0.99)
    assert recorder.spare_moment() is False
    clock(1.01)
    assert recorder.spare_moment() is True
    assert events_in(recorder) == 1
    recorder.event(update(2))
    clock(2.0)  # the second begins again with each flush
    assert recorder.spare_moment() is False
    clock(2.02)
    assert recorder.spare_moment() is True
    clock(9.0)
    assert recorder.spare_moment() is False  # nothing waits


def test_a_snapshot_alone_is_written_in_a_spare_moment(recorder: Recorder, clock: Callable[[float], None]) -> None:
    recorder.snapshot(0.0, 0, np.zeros(2))
    clock(1.5)
    assert recorder.spare_moment()


def test_without_spare_moments_rows_wait_three_seconds(recorder: Recorder, clock: Callable[[float], None]) -> None:
    recorder.event(update())
    clock(2.99)
    recorder.flush_if_overdue()
    assert events_in(recorder) == 0
    clock(3.01)
    recorder.flush_if_overdue()
    assert events_in(recorder) == 1


def test_without_spare_moments_sixteen_blocks_of_models_wait(
    recorder: Recorder, clock: Callable[[float], None]
) -> None:  # fmt: skip
    clock(0.0)
    for number in range(16 * 16):
        recorder.flush_if_overdue()
        assert sum(len(block) for block in recorder.model_blocks()) == 0
        recorder.snapshot(float(number), 0, np.zeros(2))
    recorder.flush_if_overdue()
    assert [len(block) for block in recorder.model_blocks()] == [256]


def test_a_run_has_a_million_snapshots_at_most(recorder: Recorder) -> None:
    recorder.snapshots = 999_999
    recorder.snapshot(2.0, 0, np.zeros(2))
    with pytest.raises(RunFailure, match=r"more than 1,000,000 snapshots at 2.5 s; use a larger record.interval_s"):
        recorder.snapshot(2.5, 0, np.zeros(2))


@pytest.mark.parametrize(("model", "says"), [([3.0, 4.0], ""), ([3.0, 4.1], "5.08"), ([np.nan, 0.0], "nan")])
def test_a_model_beyond_the_bound_has_diverged(model: list[float], says: str, recorder: Recorder) -> None:
    server = SimpleNamespace(model=np.array(model), iteration=9)
    found = recorder.diverged(cast("Any", server), 5.0)
    assert says in found
    assert bool(found) == bool(says)


# ------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("average", [False, True])
def test_rows_reach_the_file_before_what_counts_them(
    average: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, order = begun(tmp_path / "run.h5", f"record.average={str(average).lower()}"), list[str]()
    real, whole = h5py.Dataset.flush, h5py.File.flush

    def flush(dataset: h5py.Dataset) -> None:
        order.append(dataset.name[1:])
        real(dataset)

    def flush_file(file: h5py.File) -> None:
        order.append("file")
        whole(file)

    recorder.event(update())
    recorder.snapshot(1.0, 0, np.zeros(2), np.ones(2) if average else None)
    monkeypatch.setattr(h5py.Dataset, "flush", flush)
    monkeypatch.setattr(h5py.File, "flush", flush_file)
    averages = ["snapshots/average"] if average else []
    rows = ["snapshots/model", *averages, "snapshots/index", "events", "checksums", "file"]
    recorder.flush()
    assert order == rows
    order.clear()
    recorder.close()
    assert order == [*rows, *ENDS, *rows]


def test_counts_are_written_once_at_the_end(tmp_path: Path) -> None:
    recorder = begun(tmp_path / "run.h5", "record.events=false")
    for client in (0, 1, 1):
        recorder.tally.count(Kind.UPDATE, 1.0, client, client)
    recorder.set_status(recorder.tally.status(State.RUNNING, ""))
    with open_run(recorder.path) as run:
        assert not len(run.served)
    recorder.set_status(recorder.tally.status(State.DONE, ""))
    recorder.close()
    with open_run(recorder.path) as run:
        assert (run.served.tolist(), run.staleness.tolist()) == ([1, 2], [1, 2])


def test_no_counts_are_written_beside_an_event_log(recorder: Recorder) -> None:
    recorder.tally.count(Kind.UPDATE, 1.0, 0, 0)
    recorder.close()
    with h5py.File(recorder.path, "r") as file:
        assert (len(file["tally/served"]), len(file["tally/staleness"])) == (0, 0)


def test_the_last_model_is_written_once_where_it_is_the_only_one(tmp_path: Path) -> None:
    recorder = begun(tmp_path / "run.h5", "record.models=last", "record.average=true")
    for number in range(3):
        recorder.snapshot(float(number), 0, np.full(2, float(number)), np.full(2, 10.0 + number))
        recorder.flush()
    with open_file(recorder.path) as file:
        assert (len(file["snapshots/index"]), len(file["snapshots/model"])) == (3, 0)
    assert [vector[0] for vector in recorder.held.models] == [0.0, 1.0, 2.0]
    assert [vector[0] for vector in recorder.held.averages] == [10.0, 11.0, 12.0]
    assert [len(block) for block in recorder.average_blocks()] == [3]
    recorder.set_status(recorder.tally.status(State.DONE, ""))
    recorder.close()
    with open_run(recorder.path) as run:
        assert (run.rows("snapshots/model").tolist(), run.model(-1).tolist()) == ([[2.0, 2.0]], [2.0, 2.0])
        assert run.rows("snapshots/average").tolist() == [[12.0, 12.0]]


def test_a_file_that_keeps_every_model_holds_none(recorder: Recorder) -> None:
    recorder.snapshot(0.0, 3, np.zeros(2))
    recorder.flush()
    assert (recorder.held, list(recorder.average_blocks())) == (ModelsInMemory((), ()), [])
    assert recorder.versions().tolist() == [3]


# ---------------------------------------------------------------------------------------------------- continued


def earlier_run(count: int) -> Any:
    """A run with as many events and snapshots, their numbers in them."""
    events, models = np.zeros(count, EVENT), np.arange(2.0 * count).reshape(count, 2)
    events["iteration"] = np.arange(count)
    index = np.array([(number, number, number, digest(models[number])) for number in range(count)], SNAPSHOT)
    rows = {"events": events, "snapshots/index": index, "snapshots/model": models, "snapshots/average": -models}
    return SimpleNamespace(rows=lambda name, first, last: rows[name][first:last])


@pytest.mark.parametrize(("events", "snapshots"), [(7, 37), (0, 0), (6, 32)])
def test_a_continued_run_has_the_first_rows_of_the_earlier_one(
    events: int, snapshots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("areabench.runfile.record._COPIED_AT_ONCE", 3)
    run = earlier_run(40)
    earlier = RunPrefix(run, events, snapshots, Tally())
    recorder = begun(tmp_path / "run.h5", "record.average=true", earlier=earlier)
    assert recorder.snapshots == snapshots
    assert recorder.tally is earlier.tally
    assert recorder._last_snapshot == ((snapshots - 1, snapshots - 1, snapshots - 1) if snapshots else None)
    recorder.close()
    with h5py.File(recorder.path, "r") as file:
        assert file["events"]["iteration"].tolist() == list(range(events))
        assert file["snapshots/index"]["version"].tolist() == list(range(snapshots))
        for name in ("snapshots/model", "snapshots/average"):
            assert file[name][:].tolist() == run.rows(name, 0, snapshots).tolist()


# ----------------------------------------------------------------------------------------------------- failures


def test_a_file_that_cannot_begin_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    recorder = Recorder(tmp_path / "run.h5", QUADRATIC, 2, FLOAT, force=False)
    with monkeypatch.context() as patch:
        patch.setattr(recorder._claim, "write", full)
        with pytest.raises(WriteFailure, match="cannot be written any more: No space left on device; make room"):
            recorder.begin(gather_provenance("simulator", "", "", 0), np.zeros(2, CLIENT))
    assert list(tmp_path.iterdir()) == []
    begun(tmp_path / "run.h5").close()


def test_a_recorder_that_has_given_up_is_closed_without_a_word(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ChecksumLog, "append", full)
    with pytest.raises(WriteFailure, match="No space left"):
        recorder.flush()
    with pytest.raises(WriteFailure, match="was given up, it could not be written; choose another --output"):
        recorder.flush()
    assert lock_seen(recorder.path)
    recorder.close()
    assert not lock_seen(recorder.path)
    recorder.close()


@pytest.mark.parametrize("state", [State.FAILED, State.DONE])
def test_a_status_says_first_why_the_run_failed(
    state: State, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ChecksumLog, "append", full)
    if state == State.FAILED:
        recorder.set_status(recorder.tally.status(state, "client 1 failed"))
    else:
        with pytest.raises(WriteFailure):
            recorder.set_status(recorder.tally.status(state, "horizon"))
    monkeypatch.undo()
    recorder.close()
    with open_run(recorder.path) as run:
        assert run.status.state == State.FAILED
        assert run.status.reason.startswith("client 1 failed" if state == State.FAILED else "WriteFailure: ")


def test_a_closed_recorder_is_free_and_stays_closed(recorder: Recorder) -> None:
    recorder.event(update())
    recorder.close()
    assert not lock_seen(recorder.path)
    recorder.close()
    with pytest.raises(WriteFailure, match="was given up"):
        recorder.metrics([])


def test_a_file_that_is_closed_is_not_forgotten_again(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "one.h5", "w") as file:
        pass
    close_after_write_error(file)
    file = h5py.File(tmp_path / "two.h5", "w")
    file["rows"] = [1]
    before = (tmp_path / "two.h5").read_bytes()
    close_after_write_error(file)
    assert not file.id.valid
    assert (tmp_path / "two.h5").read_bytes() == before  # what waited went nowhere


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("Can't write (errno = 28, error message = 'No space left', buf = 0x1)"), "No space left"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError("one\ntwo"), "one"),
        (RuntimeError("three\nfour"), "three"),
    ],
)
def test_the_cause_is_reported_in_the_words_of_the_system(error: OSError | RuntimeError, cause: str) -> None:
    assert cause_of(error) == cause


# ----------------------------------------------------------------------------------------------- what is written


def test_events_go_out_in_blocks(recorder: Recorder) -> None:
    for _ in range(255):
        recorder.event(update())
        assert not recorder.spare_moment()
    recorder.event(update())
    assert events_in(recorder) == 0
    assert recorder.spare_moment()
    assert events_in(recorder) == 256
    assert not recorder.spare_moment()


def test_a_full_block_writes_the_others_too(recorder: Recorder) -> None:
    recorder.event(update())
    for number_ in range(16):
        recorder.snapshot(float(number_), number_, np.full(2, number_))
    assert recorder.spare_moment()
    assert [len(block) for block in recorder.model_blocks()] == [16]
    assert events_in(recorder) == 1
    assert not recorder.spare_moment()


def test_a_status_that_cannot_be_written_is_reported(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_place: int, _content: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(recorder._claim, "write", gone)
        with pytest.raises(WriteFailure, match=r"run\.h5: cannot take its status: Input/output error"):
            recorder.set_status(recorder.tally.status(State.DONE, ""))


def test_flush_shows_everything_to_a_second_reader(recorder: Recorder) -> None:
    counters, flags = (1, 4, 2, 1, 9, 3), Flag.OVERRUN
    recorder.event(
        Event(1.5, Kind.UPDATE, *counters, 0.1, 0.5, 0.625, 0.03125, 0.25, 0.0625, 0.125, flags, 0, 3, 2**64 - 1)
    )
    recorder.tally.count(Kind.UPDATE, 1.5, 1, 1)
    recorder.snapshot(2.0, 3, np.array([1.0, -1.0]))
    recorder.flush()
    with open_run(recorder.path) as opened:
        (row,) = opened.events_array
        times = (0.5, 0.625, 0.03125, 0.25, 0.0625, 0.125)
        assert row.tolist() == (1.5, 0, 1, 4, 2, 1, 9, 3, 0.1, *times, 1, 0, 3, 2**64 - 1)
        assert opened.snapshot_index.tolist() == [(2.0, 3, 1, digest(np.array([1.0, -1.0])))]
        assert opened.models.tolist() == [[1.0, -1.0]]
        assert len(opened.metrics_array) == 0


def test_every_kind_has_its_word(recorder: Recorder) -> None:
    for kind in Kind:
        recorder.event(Event(0.5, kind))
    recorder.flush()
    words = ["update", "step", "discarded", "refused", "lost", "removed", "no step", "cancelled"]
    with open_run(recorder.path) as opened:
        assert opened.events["kind"].tolist() == words


def test_status_counts(recorder: Recorder) -> None:
    for kind in (Kind.UPDATE, Kind.UPDATE, Kind.STEP, Kind.UPDATE, Kind.DISCARDED, Kind.DISCARDED):
        recorder.tally.count(kind, 2.5)
    assert recorder.tally.events == 6
    assert recorder.tally.status(State.FAILED, "why") == Status(State.FAILED, "why", 2.5, 3, 2, 1)
    assert recorder.tally.status(State.DONE, "end", 4.0).end_s == 4.0


def test_covers(recorder: Recorder) -> None:
    assert not recorder.covers(0.0)
    recorder.snapshot(1.0, 0, np.zeros(2))
    assert recorder.covers(1.0)
    assert not recorder.covers(1.5)
    recorder.tally.count(Kind.STEP, 1.0)
    assert not recorder.covers(1.0)


@pytest.mark.parametrize("state", State)
def test_every_state_comes_back(state: State, recorder: Recorder) -> None:
    recorder.set_status(recorder.tally.status(state, "because"))
    with open_run(recorder.path) as opened:
        assert (opened.status.state, opened.status.reason) == (state, "because")


def test_a_text_of_60_000_bytes_is_stored_beside_others(tmp_path: Path) -> None:
    """A longer one gets a checksum of ours; a character may take several bytes."""
    texts = {"empty": "", "most": "x" * 60_000, "more": "x" * 60_001, "wide": "ü" * 30_000, "wider": "ü" * 30_001}
    with h5py.File(tmp_path / "texts.h5", "w") as file:
        write_attributes(file.attrs, texts)
        assert {name for name in file.attrs if name.endswith("_checksum")} == {"more_checksum", "wider_checksum"}
        assert read_attributes(file.attrs) == texts
    content = (tmp_path / "texts.h5").read_bytes()
    (tmp_path / "texts.h5").write_bytes(content.replace(b"x" * 60_001, b"x" * 60_000 + b"z", 1))
    with h5py.File(tmp_path / "texts.h5", "r") as file, pytest.raises(ValueError, match="attribute more does not have"):
        read_attributes(file.attrs)


def test_blocks_on_disk_and_the_cache_are_small(tmp_path: Path) -> None:
    """A short run is a small file, and a run takes a mebibyte a dataset."""
    recorder = begun(tmp_path / "run.h5")
    with open_file(recorder.path) as file:
        rows = {"events": (1024,), "snapshots/index": (256,), "snapshots/model": (16, 2), "checksums": (64,)}
        rows |= dict.fromkeys(("metrics", "tally/staleness", "tally/served"), (64,))
        rows |= {"diagnosis/clients": (64,), "diagnosis/quantiles": (64,), "diagnosis/summary": (1,)}
        assert {name: file[name].chunks for name in rows} == rows
    assert recorder._file.id.get_access_plist().get_cache()[2] == 2**20
    recorder.close()


def test_a_file_with_the_last_model_only_has_room_for_one(tmp_path: Path) -> None:
    recorder = begun(tmp_path / "run.h5", "record.models=last", "record.average=true")
    assert [recorder._file[f"snapshots/{name}"].chunks for name in ("model", "average")] == [(1, 2), (1, 2)]
    recorder.close()


@pytest.mark.parametrize(("dimension", "count"), [(2, 256), (2**17, 16), (2**16, 32)])
def test_sixteen_blocks_of_snapshots_are_evaluated_at_once(dimension: int, count: int) -> None:
    assert evaluated_at_once(dimension, FLOAT) == count


def test_metrics_have_a_row_per_snapshot_and_averages_where_there_are_any() -> None:
    def block(*values: float) -> Metrics:
        return Metrics(*(np.array(values) + 10 * number for number in range(3)))

    rows = metric_rows([block(1.0, 2.0), block(3.0)], [])
    assert rows.dtype == METRIC
    assert (rows["train_loss"].tolist(), rows["test_accuracy"].tolist()) == ([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])
    assert np.isnan(rows["average_loss"]).all()
    assert np.isnan(rows["average_accuracy"]).all()
    rows = metric_rows([block(1.0, 2.0)], [block(5.0, 6.0)])
    assert (rows["average_loss"].tolist(), rows["average_accuracy"].tolist()) == ([5.0, 6.0], [15.0, 16.0])


def test_a_status_keeps_every_number(tmp_path: Path) -> None:
    status = Status(State.DONE, "ü", 1.5, 2, 3, 4, 5.5, 6, 7)
    recorder = begun(tmp_path / "run.h5")
    assert recorder._file["status"].shape == (1,)
    recorder.set_status(status)
    recorder.close()
    with open_run(recorder.path) as run:
        assert run.status == status
