"""Runs and sweeps as CSV, JSON and Parquet: the same numbers as in the run file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import areabench
from areabench.cli.main import main
from areabench.engine.events import Kind
from areabench.errors import UserError

TINY: dict[str, Any] = {
    "clients": {"count": 2},
    "method": {"name": "area", "step_size": 0.1},
    "problem": {"name": "quadratic", "dimension": 2},
    "stop": {"horizon_s": 1.0},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_as_csv_beside_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    run = areabench.simulate(TINY, output="tiny.h5")
    assert main(["export", "tiny.h5", "--to", "csv"]) == 0
    assert capsys.readouterr().out == "tiny/metrics.csv\ntiny/events.csv\ntiny/clients.csv\n"
    with Path("tiny/events.csv").open() as file:
        events = list(csv.DictReader(file))
    assert [float(row["time_s"]) for row in events] == run.events_array["time_s"].tolist()
    assert [row["kind"] for row in events] == [Kind(kind).text for kind in run.events_array["kind"]]
    with Path("tiny/metrics.csv").open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert losses == run.metrics_array["train_loss"].tolist()
    assert Path("tiny/clients.csv").read_text().splitlines()[0] == "client,rate,samples,rank,host"


def test_json_has_null_where_a_number_is_not_defined() -> None:
    with areabench.simulate(TINY) as run:
        areabench.export(run, "there", to="json")
        rows = json.loads(Path("there/metrics.json").read_text())
        assert [row["train_loss"] for row in rows] == run.metrics_array["train_loss"].tolist()
    assert {row["test_accuracy"] for row in rows} == {None}


def test_a_run_as_parquet() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with areabench.simulate(TINY) as run:
        paths = run.to_parquet("there")
        assert [path.name for path in paths] == ["metrics.parquet", "events.parquet", "clients.parquet"]
        events = parquet.read_table("there/events.parquet").to_pydict()
        assert {
            name: run.events_array[name].tolist() for name in ("time_s", "staleness", "digest")
        }.items() <= events.items()
        assert parquet.read_table("there/metrics.parquet").column_names[:3] == ["time_s", "version", "event"]


def test_a_sweep_as_parquet() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sweep = areabench.sweep(TINY, grid={"method.step_size": [0.1, 0.2]}, jobs=1, output="grid")
    assert [path.name for path in areabench.export("grid")] == ["runs.parquet", "metrics.parquet", "table.parquet"]
    runs = parquet.read_table("grid/export/runs.parquet").to_pydict()
    assert runs["final_loss"] == [result.final_loss for result in sweep.results]
    metrics = parquet.read_table("grid/export/metrics.parquet").to_pydict()
    assert len(metrics["train_loss"]) == sum(len(result.time_s) for result in sweep.results)
    assert set(metrics["file"]) == set(runs["file"])
    assert parquet.read_table("grid/export/table.parquet").to_pydict()["step_size"] == [0.1, 0.2]
    assert [path.name for path in sweep.to_parquet("other")] == ["runs.parquet", "metrics.parquet"]


def test_values_of_several_types_become_text() -> None:
    """A key of a grid may have such."""
    parquet = pytest.importorskip("pyarrow.parquet")
    from areabench.runfile.export import write_columns

    write_columns({"mixed": {"value": [1, "two", None]}}, Path("there"), "parquet")
    assert parquet.read_table("there/mixed.parquet").to_pydict() == {"value": ["1", "two", None]}


def test_nothing_is_overwritten_unasked() -> None:
    with areabench.simulate(TINY) as run:
        areabench.export(run, "there", to="csv")
        with pytest.raises(UserError, match=r"there/metrics.csv: exists"):
            areabench.export(run, "there", to="csv")
        areabench.export(run, "there", to="csv", force=True)


def test_what_is_in_memory_needs_a_folder() -> None:
    with areabench.simulate(TINY) as run, pytest.raises(UserError, match=r"in memory: is no file .* give a folder"):
        run.to_parquet()
    sweep = areabench.sweep(TINY, trials=1, jobs=1)
    with pytest.raises(UserError, match=r"the sweep was kept in memory .* give one"):
        areabench.export(sweep, to="csv")
    assert not sweep.folder.exists()


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    areabench.simulate(TINY, output="tiny.h5").close()
    assert main(["export", "tiny.h5", "--to", "parquet"]) == 2
    assert "needs pyarrow" in capsys.readouterr().err


def test_events_are_left_out_where_the_run_kept_none() -> None:
    with areabench.simulate(TINY, record={"events": False}) as run:
        assert [path.name for path in areabench.export(run, "there", to="json")] == ["metrics.json", "clients.json"]
