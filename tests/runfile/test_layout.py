"""The objects of a run file: attributes, blocks of rows and models, metrics, and the status."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.support.texts import QUADRATIC

from areabench.engine.events import CLIENT, State, Status
from areabench.experiment.parse import parse_experiment
from areabench.problems.base import Metrics
from areabench.runfile.layout import (
    evaluated_at_once,
    metric_rows,
    write_attributes,
)
from areabench.runfile.open import open_file
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import open_run
from areabench.runfile.reader import read_attributes
from areabench.runfile.record import Recorder
from areabench.runfile.schema import METRIC
from areabench.settings.parse import to_toml

FLOAT = np.dtype(np.float64)


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


def begun(path: Path, *overrides: str) -> Recorder:
    """A recorder of models with two parameters."""
    experiment = parse_experiment(QUADRATIC, overrides=overrides)
    recorder = Recorder(path, to_toml(experiment), 2, FLOAT, force=True, record=experiment.record)
    recorder.begin(gather_provenance("simulator", "", "", 0), np.zeros(2, CLIENT))
    return recorder


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
