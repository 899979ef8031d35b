"""What of a damaged run file is good enough to be saved: events, snapshots, clients, counts, and the status."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.support.edited import add_diagnosis, edited, flip
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.engine.events import EVENT, Kind, State
from areabench.errors import RunFileError
from areabench.runfile.read import open_run
from areabench.runfile.recover import (
    Recovery,
    RecoveryLimits,
    good_events,
    good_snapshots,
    salvage,
    tally_is_sound,
)
from areabench.runfile.schema import SCHEMA_VERSION, SNAPSHOT
from areabench.views.json import to_json

EXPERIMENT = quadratic("iterations = 300", dimension=20) + "[record]\ninterval_s = 0.05\naverage = true\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 events with averages."""
    return simulated(tmp_path_factory.mktemp("runs") / "whole.h5", EXPERIMENT)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return Path(shutil.copyfile(whole, tmp_path / "run.h5"))


def saved_of(run: Path, limits: RecoveryLimits | None = None) -> tuple[Recovery, Path]:
    made = run.with_name("saved.h5")
    return salvage(run, made, limits), made


# ------------------------------------------------------------------------------------------------------ events


def five_events() -> np.ndarray:
    rows = np.zeros(5, EVENT)
    rows["time_s"] = [0.0, 1.0, 1.0, 2.0, 3.0]
    rows["kind"] = [Kind.UPDATE, Kind.STEP, Kind.UPDATE, Kind.REMOVED, Kind.DISCARDED]
    rows["client"], rows["iteration"], rows["version"] = [0, -1, 1, 0, 1], [1, 2, 3, 3, 3], [0, 1, 1, 1, 1]
    rows["base_version"], rows["staleness"] = [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]
    return rows


@pytest.mark.parametrize(
    ("column", "number", "value"),
    [
        ("time_s", 0, -1e-9), ("time_s", 0, np.nan), ("time_s", 4, np.inf), ("time_s", 3, 0.999), ("kind", 3, 8),
        ("client", 0, -1), ("client", 2, 2), ("client", 1, 0), ("client", 1, -2), ("client", 3, 2), ("client", 4, -1),
        ("iteration", 0, 0), ("iteration", 1, 1), ("iteration", 2, 4), ("version", 0, 1), ("version", 1, 2),
        ("staleness", 2, 0), ("staleness", 0, 1), ("base_version", 2, 1),
    ],
)  # fmt: skip
def test_events_end_at_the_first_value_that_cannot_be_true(column: str, number: int, value: float) -> None:
    rows = five_events()
    assert good_events(rows, 2) == 5
    rows[column][number] = value
    assert good_events(rows, 2) == number


@pytest.mark.parametrize(
    ("column", "value"), [("client", 0), ("iteration", 2), ("iteration", 4), ("version", 0), ("version", 2)]
)
def test_a_step_that_was_not_made_has_no_client_and_changes_no_counter(column: str, value: int) -> None:
    rows = five_events()
    rows["kind"][3], rows["client"][3] = Kind.NO_STEP, -1
    assert good_events(rows, 2) == 5
    rows[column][3] = value
    assert good_events(rows, 2) == 3


@pytest.mark.parametrize(
    ("kind", "client", "good"),
    [(Kind.CANCELLED, 1, 5), (Kind.CANCELLED, -1, 3), (Kind.CANCELLED, 2, 3), (Kind.LOST, 2, 3), (Kind.REFUSED, 77, 5)],
)
def test_an_event_is_that_of_a_client_unless_an_update_was_refused(kind: Kind, client: int, good: int) -> None:
    rows = five_events()
    rows["kind"][3] = kind
    rows["client"][3] = client
    assert good_events(rows, 2) == good
    assert good_events(rows[:0], 2) == 0


@pytest.mark.parametrize(
    ("column", "number", "value"),
    [("time_s", 3, 1.0), ("client", 0, 1), ("iteration", 4, 9), ("staleness", 4, 7), ("version", 3, 9)],
)
def test_events_may_be_at_the_same_time_and_only_updates_and_steps_count(
    column: str, number: int, value: float
) -> None:  # fmt: skip
    rows = five_events()
    rows[column][number] = value
    assert good_events(rows, 2) == 5


@pytest.mark.parametrize("events", [None, five_events()], ids=["no events", "events"])
@pytest.mark.parametrize(
    ("column", "number", "value"),
    [
        ("time_s", 0, -1e-9), ("time_s", 0, np.nan), ("time_s", 2, np.inf), ("time_s", 2, 0.9), ("event", 0, -1),
        ("event", 2, 1), ("version", 0, -1), ("version", 2, 0),
    ],
)  # fmt: skip
def test_snapshots_end_at_the_first_value_that_cannot_be_true(
    column: str, number: int, value: float, events: np.ndarray | None
) -> None:
    index = np.array([(0.0, 0, 0, 1), (1.0, 1, 2, 1), (1.0, 1, 2, 1), (3.0, 1, 5, 1)], SNAPSHOT)
    assert good_snapshots(index, events) == 4
    index[column][number] = value
    assert good_snapshots(index, events) == number


def test_a_snapshot_has_the_version_that_its_events_lead_to() -> None:
    events = five_events()
    for event, version, good in ((1, 0, 1), (2, 1, 1), (1, 1, 0), (2, 0, 0), (5, 1, 1), (6, 1, 0)):
        assert good_snapshots(np.array([(0.0, version, event, 1)], SNAPSHOT), events) == good


# ------------------------------------------------------------------------------------------------------ models


def test_models_without_their_checksum_are_not_saved(whole: Path, run: Path) -> None:
    with h5py.File(run, "r") as file:
        blocks = file["checksums"][file["checksums"]["part"] == b"snapshots/model"]
    assert len(blocks) > 1
    flip(run, "snapshots/model", int(blocks["first"][1]))
    saved, made = saved_of(run)
    assert saved.snapshots == blocks["first"][1]
    with open_run(made) as new, open_run(whole) as old:
        assert new.models.tobytes() == old.models[: saved.snapshots].tobytes()
        assert new.averages.tobytes() == old.averages[: saved.snapshots].tobytes()


def test_an_average_without_its_checksum_ends_the_snapshots(run: Path) -> None:
    with h5py.File(run, "r") as file:
        blocks = file["checksums"][file["checksums"]["part"] == b"snapshots/average"]
    flip(run, "snapshots/average", int(blocks["first"][1]))
    assert saved_of(run)[0].snapshots == blocks["first"][1]


@pytest.mark.parametrize("name", ["model", "average"])
def test_a_last_model_without_its_checksum_is_not_saved(name: str, tmp_path: Path) -> None:
    run = simulated(tmp_path / "run.h5", EXPERIMENT, ["record.models=last", "stop.iterations=100"])
    flip(run, f"snapshots/{name}")
    saved, made = saved_of(run)
    assert (saved.events, saved.snapshots) == (100, saved.all_snapshots)
    missing = {"model": ("last model", "last average"), "average": ("last average",)}[name]
    assert (saved.missing, saved.everything) == (missing, False)
    with open_run(made) as new:
        assert new.has_model(-1) == (name == "average")
        assert new.status.state == State.FAILED
    assert main(["replay", str(made)]) == 0  # of an average that is not there nothing is compared


def test_a_run_without_events_whose_last_model_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = simulated(
        tmp_path / "run.h5", EXPERIMENT, ["record.models=last", "record.events=false", "stop.iterations=100"]
    )
    flip(run, "snapshots/model")
    assert main(["recover", str(run), "-o", str(tmp_path / "saved.h5")]) == 0
    assert "; without last model, last average; not replayed: is failed and has no" in capsys.readouterr().out


def test_a_last_model_of_another_snapshot_is_not_saved(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run.h5", EXPERIMENT, ["record.models=last", "stop.iterations=100"])
    saved, made = saved_of(run, RecoveryLimits(100, 3))
    assert (saved.events, saved.snapshots) == (100, 3)
    with open_run(made) as new:
        assert not new.has_model(-1)


# ------------------------------------------------------------------------------------------------- other parts


def test_limits_are_kept(run: Path) -> None:
    saved, made = saved_of(run, RecoveryLimits(100, 3))
    assert (saved.events, saved.snapshots) == (100, 3)
    assert saved.missing == ("metrics",)
    with open_run(made) as new:
        assert (len(new.events_array), len(new.models), len(new.averages)) == (100, 3, 3)


@pytest.mark.parametrize(("name", "value"), [("format", "another"), ("schema_version", SCHEMA_VERSION - 1)])
def test_a_file_of_another_format_is_not_saved(name: str, value: object, run: Path) -> None:
    with h5py.File(run, "r+") as file:
        file.attrs[name] = value
    with pytest.raises(RunFileError, match="is not a run file of areabench|has schema version"):
        saved_of(run)


def test_nothing_is_saved_where_the_checksums_cannot_be_read(run: Path) -> None:
    with h5py.File(run, "r+") as file:
        del file["checksums"]
    with pytest.raises(RunFileError, match=r"run.h5: nothing can be saved: .*checksums.*; run the experiment again"):
        saved_of(run)


@pytest.mark.parametrize(
    ("column", "value"), [("client", 0), ("rank", 9), ("rate", np.nan), ("rate", np.inf), ("rate", 0.0)]
)
def test_clients_that_cannot_be_true_are_replaced_by_their_numbers(column: str, value: float, run: Path) -> None:
    with edited(run) as file:
        table = file["clients"][()]
        table[column][1] = value
        file["clients"][...] = table
    saved, made = saved_of(run)
    assert saved.missing == ("clients",)
    with open_run(made) as new:
        table = new.clients_array
        assert table["client"].tolist() == list(range(len(table)))
        assert np.isnan(table["rate"]).all()
        assert (table["rank"].tolist(), table["samples"].tolist()) == ([-1] * len(table), [0] * len(table))


def test_a_lost_provenance_is_unknown(run: Path) -> None:
    with edited(run) as file:
        del file["provenance"]
    _, made = saved_of(run)
    with open_run(made) as new:
        found = {item.name: getattr(new.provenance, item.name) for item in fields(new.provenance)}
    numbers = {"ranks": 1, "seed": 0, "lanes": 1, "lane": 0, "data_digest": "", "files": ""}
    assert found == dict.fromkeys(found, "unknown") | numbers


@pytest.mark.parametrize("name", ["events", "snapshots/index", "metrics", "clients"])
def test_a_dataset_of_other_columns_is_not_saved(name: str, run: Path) -> None:
    with edited(run) as file:
        rows = file[name][()]
        del file[name]
        file[name] = np.zeros(len(rows), np.dtype([("other", "f8")]))
    saved, made = saved_of(run)
    assert (saved.all_events, saved.everything) == (300, False)
    with open_run(made) as new:
        kept = {"events": new.events_array, "snapshots/index": new.snapshot_index, "metrics": new.metrics_array}
        assert not len(kept.get(name, ()))
        assert (name == "clients") == ("clients" in saved.missing)


@pytest.mark.parametrize(
    ("staleness", "served", "sound"),
    [([3, 0], [1, 2], True), ([], [0, 0], True), ([3], [3], False), ([-1, 4], [1, 2], False), ([3], [4, -1], False)],
)
def test_counts_are_of_all_clients_and_not_negative(staleness: list[int], served: list[int], sound: bool) -> None:
    assert tally_is_sound(np.array(staleness, np.int64), np.array(served, np.int64), 2) is sound


def test_damaged_counts_are_reported_where_the_run_kept_no_events(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run.h5", EXPERIMENT, ["record.events=false"])
    saved, made = saved_of(run)
    assert saved.everything
    with open_run(run) as old, open_run(made) as new:
        assert new.status == old.status
        assert new.staleness.tolist() == old.staleness.tolist()
    flip(run, "tally/served")
    saved, made = saved_of(run)
    assert saved.missing == ("tally",)
    with open_run(run, allow_damage=True) as old, open_run(made) as new:
        reason = f"recovered: {saved.text}; was done: {old.status.reason}"
        assert new.status == replace(old.status, state=State.FAILED, reason=reason)
        assert not len(new.staleness)


def test_what_was_saved_in_words() -> None:
    saved = Recovery(1000, 2000, 3, 3, ("clients", "metrics"))
    assert saved.text == "1,000 of 2,000 events, 3 of 3 snapshots; without clients, metrics"
    assert [replace(saved, **change).everything for change in CHANGES] == [False, False, False, True]


CHANGES: list[dict[str, Any]] = [
    {"events": 2000}, {"missing": ()}, {"events": 2000, "snapshots": 2, "missing": ()}, {"events": 2000, "missing": ()},
]  # fmt: skip


def test_a_status_of_more_events_than_there_are_is_counted_again(run: Path) -> None:
    with edited(run) as file:
        status = file["status"][()]
        status["updates"] += 1
        file["status"][...] = status
    saved, made = saved_of(run)
    assert saved.everything
    with open_run(made) as new:
        assert new.status.state == State.FAILED
        assert new.status.updates + new.status.server_steps == 300
        assert new.status.reason == f"recovered: {saved.text}; was done: 300 iterations"


@pytest.mark.parametrize("state", ["done", "running", "failed"])
def test_metrics_that_were_never_there_are_not_missed(state: str, run: Path) -> None:
    with edited(run) as file:
        status = file["status"][()]
        status["state"] = state.encode()
        file["status"][...] = status
        file["metrics"].resize(0, axis=0)
    saved, made = saved_of(run)
    assert saved.missing == ()
    with open_run(made) as new:
        assert new.is_evaluated == (state != "done")
        assert new.status.state == (State.DONE if state == "done" else State.FAILED)
        assert (f"; was {state}: " in new.status.reason) == (state != "done")


def test_a_diagnosis_is_saved_whole_or_not_at_all(run: Path) -> None:
    add_diagnosis(run)
    saved, made = saved_of(run)
    assert saved.everything
    with open_run(made) as new, open_run(run) as old:
        assert new.diagnosis is not None
        assert to_json(new.diagnosis) == to_json(old.diagnosis)
    with edited(run) as file:
        summary = file["diagnosis/summary"][()]
        summary["verdict"] = b"none of ours"
        file["diagnosis/summary"][...] = summary
    saved, made = saved_of(run)
    assert (saved.missing, saved.everything) == (("diagnosis",), False)
    with open_run(made) as new:
        assert new.diagnosis is None
