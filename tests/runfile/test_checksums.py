"""Checksums: a number that changed is noticed wherever it stands, and what is whole can still be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.support.damaged import whole_files
from tests.support.edited import add_diagnosis, flip
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import RunFileError
from areabench.files import check_checksum, with_checksum
from areabench.runfile.layout import checkpoint_path, pack_status
from areabench.runfile.open import open_file
from areabench.runfile.read import open_run
from areabench.runfile.reader import RunReader
from areabench.runfile.recover import salvage
from areabench.runfile.schema import DATASETS

EXPERIMENT = quadratic("iterations = 700", dimension=20) + "[record]\ninterval_s = 1.0\naverage = true\n"
READING = ("show", "summary", "diagnose", "replay", "compare", "report", "watch")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 700 events with averages."""
    return simulated(tmp_path_factory.mktemp("runs") / "run.h5", EXPERIMENT)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return Path(shutil.copyfile(whole, tmp_path / "run.h5"))


def arguments(command: str, path: Path) -> list[str]:
    """A command that reads a run file."""
    more = {"compare": [str(path)], "report": ["-o", str(path.with_suffix(".html"))], "watch": ["--once"]}
    return [command, str(path), *more.get(command, [])]


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("name", ["events", "snapshots/index", "snapshots/model", "metrics", "clients", "status"])
def test_every_command_refuses_a_changed_number(
    name: str, command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(run, name)
    assert main(arguments(command, run)) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert f"/{name}" in said.err
    assert "checksum" in said.err


def test_what_is_whole_can_be_read_on_request(whole: Path, run: Path) -> None:
    flip(run, "snapshots/average", 3)
    with open_run(run, allow_damage=True) as opened, open_run(whole) as original:
        assert list(opened.damage) == ["snapshots/average"]
        assert opened.metrics_array.tobytes() == original.metrics_array.tobytes()
        with pytest.raises(RunFileError, match="rows .* of /snapshots/average do not have their checksum"):
            _ = opened.averages


@pytest.fixture
def cut(run: Path) -> Path:
    """The run as one that was killed: rows behind the last checksum do not count."""
    with open_run(run) as opened:
        status = replace(opened.status, state=State.RUNNING)
    with h5py.File(run) as file:
        place = file["status"].id.get_offset()
    with run.open("r+b") as raw:
        raw.seek(place)
        raw.write(pack_status(status))
    return run


@pytest.mark.parametrize("command", ["show", "summary", "replay", "watch"])
def test_blocks_that_changed_places_are_not_taken_for_a_shorter_run(
    command: str, cut: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(cut, "r+") as file:
        rows = file["checksums"][()]
        second, third = np.flatnonzero(rows["part"] == b"events")[1:]
        rows[[second, third]] = rows[[third, second]]
        file["checksums"][:] = rows
    assert main(arguments(command, cut)) == 2
    assert "block 1 of /events is not where /checksums has it" in capsys.readouterr().err


def test_watch_shows_no_earlier_model_for_a_damaged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "killed.h5"
    content = whole_files(tmp_path)[2]
    path.write_bytes(content)
    with open_run(path) as opened:
        model = opened.models[-1].tobytes()
    assert content.count(model) == 1
    path.write_bytes(content.replace(model, bytes(len(model))))
    assert main(["watch", "--once", str(path)]) == 2
    assert "of /snapshots/model do not have their checksum" in capsys.readouterr().err


def test_a_damaged_run_is_not_said_to_be_missing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run.parent / "try.toml").write_text(EXPERIMENT, encoding="utf-8")
    command = ["check", str(run.parent / "try.toml"), "--ended-in", str(run)]
    assert main(command) == 0
    flip(run, "metrics")
    assert main(command) == 2
    assert "is damaged (" in capsys.readouterr().err


def test_all_rows_of_all_datasets_are_covered(whole: Path) -> None:
    with open_file(whole) as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert set(names) - {"status", "checksums"} == set(DATASETS)
    with RunReader(whole) as reader:
        assert reader.find_damage() == {}
        assert [reader.count(name) for name in DATASETS] == [reader.length(name) for name in DATASETS]


def test_the_diagnosis_is_covered(run: Path) -> None:
    add_diagnosis(run)
    with open_run(run) as opened:
        assert opened.diagnosis is not None
    flip(run, "diagnosis/summary")
    assert main(["diagnose", str(run)]) == 2


@pytest.mark.parametrize(
    ("name", "row", "saved"), [("events", 600, "532 of 700 events"), ("metrics", 1, "without metrics")]
)
def test_recover_leaves_out_what_changed(name: str, row: int, saved: str, whole: Path, run: Path) -> None:
    flip(run, name, row)
    made = run.with_name("saved.h5")
    assert saved in salvage(run, made, None).text
    with open_run(made) as opened, open_run(whole) as original:
        count = len(opened.events_array)
        assert opened.events_array.tobytes() == original.events_array[:count].tobytes()
        assert opened.models.tobytes() == original.models[: len(opened.models)].tobytes()
        assert not len(opened.metrics_array)


def test_recover_goes_by_the_checksums_that_are_left(run: Path) -> None:
    with h5py.File(run, "r") as file:
        second = int(np.flatnonzero(file["checksums"]["part"] == b"events")[1])
    flip(run, "checksums", second)
    assert salvage(run, run.with_name("saved.h5"), None).events == 266


# ------------------------------------------------------------------------------------------- checkpoints, sweeps


@pytest.mark.parametrize(
    ("first", "count"), [(700, 1), (-200, 1), (-2, 1), (1000, 5000)], ids=["numbers", "memories", "checksum", "much"]
)
def test_a_damaged_checkpoint_is_refused_before_it_is_opened(
    first: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HDF5 2.0.0 never returns from some of them, and names another reason of others."""
    path = tmp_path / "run.h5"
    stopped(path, monkeypatch)
    content = bytearray(checkpoint_path(path).read_bytes())
    for place in range(first, first + count):
        content[place] ^= 1
    checkpoint_path(path).write_bytes(content)
    capsys.readouterr()
    assert main(["resume", str(path)]) == 2
    assert "run.h5.checkpoint: is damaged (it does not have its checksum)" in capsys.readouterr().err


def stopped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was interrupted after some events, with its checkpoint."""
    import os
    import signal

    from areabench.engine.client import Client

    rounds, real = [0], Client.work

    def work(client: Client, *arguments: object) -> object:
        rounds[0] += 1
        if rounds[0] == 50:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(client, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Client, "work", work)
        (path.parent / "try.toml").write_text(EXPERIMENT, encoding="utf-8")
        assert main(["simulate", str(path.parent / "try.toml"), "-o", str(path)]) == 4
    assert checkpoint_path(path).exists()


def test_a_signed_text() -> None:
    text = with_checksum("a = 1\n")
    assert text == "a = 1\n# CRC-32 of the lines above: af2fda68\n"
    check_checksum(Path("sweep.toml"), text)
    with pytest.raises(RunFileError, match=r"sweep.toml: is damaged \(it does not have its checksum\)"):
        check_checksum(Path("sweep.toml"), text.replace("a = 1", "a = 2"))
    with pytest.raises(RunFileError, match="is damaged"):
        check_checksum(Path("sweep.toml"), text.replace("CRC", "CRD"))


def unchanged(_: Path) -> None:
    """Nothing."""


def changed_plan(folder: Path) -> None:
    """Another number in sweep.toml."""
    path = folder / "sweep.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("0.1", "0.3"), encoding="utf-8")


def changed_run(folder: Path) -> None:
    """Another number in one of the runs."""
    flip(sorted(folder.glob("*.h5"))[0], "metrics")


@pytest.mark.parametrize(("damage", "code"), [(unchanged, 0), (changed_plan, 2), (changed_run, 2)])
def test_a_damaged_sweep_is_refused_until_it_is_swept_again(
    damage: Callable[[Path], None], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = "[sweep]\ntrials = 2\n\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2]\n"
    text = quadratic("iterations = 60") + f"[record]\nevents = false\n\n{sweep}"
    (tmp_path / "grid.toml").write_text(text, encoding="utf-8")
    command = ["sweep", str(tmp_path / "grid.toml"), "-o", str(tmp_path / "runs"), "--jobs", "1"]
    assert main(command) == 0
    capsys.readouterr()
    damage(tmp_path / "runs")
    assert main(["table", str(tmp_path / "runs"), "--keep", "all"]) == code
    assert ("is damaged (" in capsys.readouterr().err) == bool(code)
    if damage is changed_plan:
        (tmp_path / "runs" / "sweep.toml").unlink()  # as the message says
    assert main(command) == 0
    assert main(["table", str(tmp_path / "runs"), "--keep", "all"]) == 0
