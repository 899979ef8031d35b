"""Run files that were damaged: every command ends cleanly, and `areabench recover` saves what can be saved."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.support.edited import edited
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.runfile.open import _HEAD_BYTES, is_marked
from areabench.runfile.read import open_run
from areabench.runfile.record import Recorder
from areabench.runfile.recover import salvage

ROOT = Path(__file__).parents[2]
EXPERIMENT = quadratic("iterations = 1500", dimension=20) + "[record]\ninterval_s = 1.0\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1,500 events."""
    return simulated(tmp_path_factory.mktemp("runs") / "whole.h5", EXPERIMENT)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return Path(shutil.copyfile(whole, tmp_path / "run.h5"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Salvage without a process of its own, which takes a second to start."""
    monkeypatch.setattr("areabench.cli.recover._in_a_process", salvage)


def recovered(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    """What recover makes of a file, which every command reads; what it said."""
    output = run.with_name("saved.h5")
    before = run.read_bytes()
    assert main(["recover", str(run), "-o", str(output)]) == 0
    said = capsys.readouterr().out
    assert run.read_bytes() == before
    for command in ("show", "summary", "diagnose", "replay"):
        assert main([command, str(output)]) == 0
    assert "all equal" in capsys.readouterr().out
    assert [path.name for path in run.parent.iterdir() if path.name.startswith(".")] == []
    return output, said.removeprefix(f"{output}: ").strip()


# ------------------------------------------------------------------------------------------------------- fuzz


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("cases", "seed"), [(60, 6), pytest.param(200, 7, marks=pytest.mark.long)])
def test_no_damage_gives_another_number_a_traceback_a_crash_or_a_hang(cases: int, seed: int) -> None:
    """In a process of its own: HDF5 may take it along. More cases: see damaged.py."""
    command = [sys.executable, "-m", "tests.support.damaged", str(cases), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = {words: int(count) for count, words in re.findall(r"(\d+) ([\w ,]+)", done.stdout)}
    assert sum(counts.values()) == cases
    assert {"equal, saved", "refused, saved", "refused, nothing saved"} <= set(counts)


# ---------------------------------------------------------------------------------------------------- recover


def test_a_sound_file_is_saved_whole(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, said = recovered(run, capsys)
    with open_run(run) as old, open_run(output) as new:
        assert said == f"saved 1,500 of 1,500 events, {len(old.models)} of {len(old.models)} snapshots"
        assert (new.status, new.provenance) == (old.status, old.provenance)
        for name in ("events_array", "snapshot_index", "models", "metrics_array", "clients_array"):
            assert getattr(new, name).tobytes() == getattr(old, name).tobytes()


@pytest.mark.parametrize("share", [0.25, 0.6])
@pytest.mark.usefixtures("at_once")
def test_a_file_that_was_cut_off(share: float, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_bytes(run.read_bytes()[: int(share * run.stat().st_size)])
    assert main(["show", str(run)]) == 2
    assert "try `areabench recover`" in capsys.readouterr().err
    output, said = recovered(run, capsys)
    with open_run(output) as opened:
        assert 0 < len(opened.events_array) < 1500
        assert said.startswith(f"saved {len(opened.events_array):,} of 1,500 events, {len(opened.models)} of ")
        assert opened.status.state == State.FAILED
        assert opened.status.reason == f"recovered: {said.removeprefix('saved ')}; was done: 1500 iterations"


@pytest.mark.usefixtures("at_once")
def test_the_first_bytes_are_gone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_bytes(bytes(_HEAD_BYTES) + run.read_bytes()[_HEAD_BYTES:])
    output, said = recovered(run, capsys)
    assert said.startswith("saved 1,500 of 1,500 events")
    with open_run(output) as opened:
        assert opened.status.state == State.DONE


def change(run: Path, name: str, number: int, column: str, value: object) -> None:
    with edited(run) as file:
        rows = file[name][()]
        rows[column][number] = value
        file[name][...] = rows


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("client", 99, ""),
        ("kind", 77, ""),
        ("time_s", np.nan, ""),
        ("iteration", 5, ""),
        ("digest", 12345, "; then a replay differs: the "),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_events_are_saved_up_to_the_first_bad_one(
    column: str, value: object, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run, "events", 1000, column, value)
    output, said = recovered(run, capsys)
    assert said.startswith("saved 1,000 of 1,500 events")
    assert words in said
    with open_run(output) as opened:
        assert opened.snapshot_index["event"][-1] <= 1000


@pytest.mark.usefixtures("at_once")
def test_snapshots_are_saved_up_to_the_first_bad_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(run) as file:
        file["snapshots/model"][7, 3] += 1.0
    output, said = recovered(run, capsys)
    assert said.startswith("saved 1,500 of 1,500 events, 7 of ")
    with open_run(output) as opened:
        assert opened.status.state == State.FAILED
        assert not len(opened.metrics_array)


@pytest.mark.parametrize("name", ["provenance", "clients", "metrics", "status"])
@pytest.mark.usefixtures("at_once")
def test_missing_groups_are_reported(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(run) as file:
        del file[name]
    assert main(["show", str(run)]) == 2
    output, said = recovered(run, capsys)
    assert said.endswith(f"snapshots; without {name}")
    with open_run(output) as opened:
        assert opened.status.state == State.FAILED
        assert len(opened.events_array) == 1500


@pytest.mark.usefixtures("at_once")
def test_a_killed_run_is_saved_as_failed(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from areabench.runfile.layout import close_after_write_error

    with open_run(whole) as run:
        recorder = Recorder(tmp_path / "run.h5", EXPERIMENT, *run.model_size, force=False)
        recorder.begin(run.provenance, run.clients_array)
        for row, model in zip(run.snapshot_index[:3], run.models, strict=False):
            recorder.snapshot(row["time_s"], row["version"], model, events=0)
    recorder.flush()
    assert main(["recover", str(recorder.path), "-o", str(tmp_path / "saved.h5")]) == 2
    assert "is being written by another run" in capsys.readouterr().err
    close_after_write_error(recorder._file)
    recorder._claim.release()
    assert is_marked(recorder.path)
    assert main(["recover", str(recorder.path), "-o", str(tmp_path / "saved.h5")]) == 0
    with open_run(tmp_path / "saved.h5") as saved:
        assert saved.status.state == State.FAILED
        assert "was running" in saved.status.reason
        assert len(saved.models) >= 1


@pytest.mark.usefixtures("at_once")
def test_the_last_model_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, settings = tmp_path / "run.h5", ["record.models=last", "record.average=true", "stop.iterations=300"]
    simulated(run, EXPERIMENT, settings)
    output, _ = recovered(run, capsys)
    with open_run(run) as old, open_run(output) as new:
        assert new.status == old.status
        assert new.models.tobytes() == old.models.tobytes()
        assert new.averages.tobytes() == old.averages.tobytes()
    change(run, "events", 200, "kind", 99)
    output.unlink()
    output, said = recovered(run, capsys)
    assert said.startswith("saved 200 of 300 events")
    simulated(run, EXPERIMENT, [*settings, "record.events=false"])
    output.unlink()
    output, said = recovered_without_events(run, capsys)
    with open_run(run) as old, open_run(output) as new:
        assert new.status == old.status
        assert new.served.tolist() == old.served.tolist()


def test_a_last_model_of_no_snapshot(tmp_path: Path) -> None:
    run, settings = tmp_path / "run.h5", ["record.models=last", "stop.iterations=300"]
    simulated(run, EXPERIMENT, settings)
    with edited(run) as file:
        for name in ("index", "model"):
            file[f"snapshots/{name}"].resize(0, axis=0)
    assert salvage(run, tmp_path / "saved.h5", None).events == 300
    with open_run(tmp_path / "saved.h5") as saved:
        assert (len(saved.snapshot_index), saved.has_model(-1)) == (0, False)


def recovered_without_events(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    output = run.with_name("saved.h5")
    assert main(["recover", str(run), "-o", str(output)]) == 0
    assert main(["replay", str(output)]) == 0
    return output, capsys.readouterr().out


def no_hdf5(run: Path) -> None:
    run.write_bytes(b"no HDF5 at all")


def empty(run: Path) -> None:
    run.write_bytes(b"")


def foreign(run: Path) -> None:
    run.unlink()
    with h5py.File(run, "w", libver=("v110", "v110")) as file:
        file["numbers"] = [1, 2, 3]


def no_experiment(run: Path) -> None:
    with edited(run) as file:
        file.attrs["experiment"] = "seed = -1"


def cut_short(run: Path) -> None:
    run.write_bytes(run.read_bytes()[:3000])


def gone(run: Path) -> None:
    run.unlink()


@pytest.mark.parametrize("damage", [no_hdf5, empty, foreign, no_experiment, cut_short, gone])
@pytest.mark.usefixtures("at_once")
def test_a_file_from_which_nothing_can_be_saved(damage: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(run)
    assert main(["recover", str(run), "-o", str(run.with_name("saved.h5"))]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"areabench: {run}: ")
    assert [path.name for path in run.parent.iterdir() if path != run] == []


@pytest.mark.usefixtures("at_once")
def test_an_output_that_exists_is_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover", str(run), "-o", str(run), "--force"]) == 2
    assert "is the damaged file itself" in capsys.readouterr().err
    output = run.with_name("saved.h5")
    output.write_bytes(b"old")
    assert main(["recover", str(run), "-o", str(output)]) == 2
    assert output.read_bytes() == b"old"
    assert main(["recover", str(run), "-o", str(output), "--force"]) == 0


def test_hdf5_that_crashes_or_hangs_is_reported(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("areabench.cli.recover._child", crash)
    assert main(["recover", str(run), "-o", str(run.with_name("saved.h5"))]) == 2
    assert "nothing can be saved: HDF5 crashes on it (SIGKILL)" in capsys.readouterr().err
    monkeypatch.setattr("areabench.cli.recover._child", hang)
    monkeypatch.setattr("areabench.cli.recover._LEAST_LIMIT_S", 0.01)
    monkeypatch.setattr("areabench.cli.recover._BYTES_PER_SECOND", 1e12)
    assert main(["recover", str(run), "-o", str(run.with_name("saved.h5"))]) == 2
    assert "reading takes more than 0 s" in capsys.readouterr().err


def crash(*_: object) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def hang(*_: object) -> None:
    import time

    time.sleep(1000)
