"""A folder with experiment, data and runs can be moved: paths count as they were given, files by their content."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.support import own_parts

from areabench.cli.main import main
from areabench.engine.client import Client
from areabench.experiment.files import digest_of
from areabench.experiment.parse import load_experiment
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.read import open_run
from areabench.settings.paths import AnchoredPath

EXPERIMENT = """
seed = 1
[clients]
count = 2
local_steps = 2
[method]
name = "area"
step_size = 0.1
[problem]
name = "logistic"
[data]
name = "file"
file = "../samples/points.csv"
[split]
name = "iid"
[delays]
name = "trace"
file = "trace.csv"
[stop]
iterations = 40
"""
SWEEP = 'extends = "try.toml"\n[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2]\n'


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder with an experiment, a sweep, data and a trace; its path in the experiment is not normalised."""
    folder = tmp_path / "study"
    (folder / "experiments").mkdir(parents=True)
    (folder / "samples").mkdir()
    generator = np.random.default_rng(0)
    rows = [f"{x:.3f},{y:.3f},{int(x > y)}\n" for x, y in generator.normal(size=(40, 2))]
    (folder / "samples" / "points.csv").write_text("x,y,label\n" + "".join(rows), encoding="utf-8")
    (folder / "experiments" / "trace.csv").write_text("client,delay_s\n0,0.5\n1,0.7\n", encoding="utf-8")
    (folder / "experiments" / "try.toml").write_text(EXPERIMENT, encoding="utf-8")
    (folder / "experiments" / "grid.toml").write_text(SWEEP, encoding="utf-8")
    return folder


def moved(folder: Path) -> Path:
    """The same folder at another place; nothing is left at the old one."""
    there = folder.parent / "elsewhere" / "deep"
    there.parent.mkdir()
    return Path(shutil.move(folder, there))


def simulated(study: Path, output: str = "runs/run.h5") -> Path:
    assert main(["simulate", str(study / "experiments" / "try.toml"), "-o", str(study / output)]) == 0
    return study / output


def swept(study: Path, capsys: pytest.CaptureFixture[str]) -> str:
    command = ["sweep", str(study / "experiments" / "grid.toml"), "-o", str(study / "swept"), "--jobs", "1"]
    capsys.readouterr()
    assert main(command) == 0
    return capsys.readouterr().out


def test_paths_are_absolute_in_use_and_stored_as_they_were_given(study: Path) -> None:
    experiment = load_experiment(study / "experiments" / "try.toml")
    assert experiment.data.file == str(study / "samples" / "points.csv")  # type: ignore[union-attr]
    with h5py.File(simulated(study), "r") as file:
        text = file.attrs["experiment"].decode()
        assert 'file = "../samples/points.csv"' in text
        assert str(study) not in text
        assert file.attrs["folder"].decode() == str(study / "experiments")
        assert file.attrs["folder_from_here"].decode() == "../experiments"


def test_a_sweep_that_was_moved_is_done(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 runs" in swept(study, capsys)
    names = sorted(path.name for path in (study / "swept").iterdir())
    study = moved(study)
    assert "4 done before" in swept(study, capsys)
    assert sorted(path.name for path in (study / "swept").iterdir()) == names
    assert main(["table", str(study / "swept")]) == 0
    points = study / "samples" / "points.csv"
    points.write_text(points.read_text(encoding="utf-8").replace("label\n", "label\n9.0,9.0,0\n"), encoding="utf-8")
    assert "4 done now, 0 done before" in swept(study, capsys)  # as after a change of the user's own code


def test_a_sweep_with_code_of_the_users_own_is_done_after_it_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    study = tmp_path / "study"
    own_parts.write(study / "experiments", "delays")
    text = own_parts.experiment("delays") + "[sweep]\ntrials = 2\n"
    (study / "experiments" / "grid.toml").write_text(text, encoding="utf-8")
    assert "2 done now" in swept(study, capsys)
    study = moved(study)
    del sys.modules["mine"]  # another process would not have it
    assert "0 done now, 2 done before" in swept(study, capsys)
    mine = study / "experiments" / "mine.py"
    mine.write_text(mine.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    del sys.modules["mine"]
    assert "2 done now, 0 done before" in swept(study, capsys)
    del sys.modules["mine"]


@pytest.mark.parametrize("alone", [False, True], ids=["the folder", "the run file alone"])
def test_a_run_that_was_moved_is_replayed(
    alone: bool, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulated(study)
    if alone:
        run = Path(shutil.move(run, study.parent / "run.h5"))
    else:
        study = moved(study)
        run = study / "runs" / "run.h5"
    monkeypatch.chdir("/")
    assert main(["replay", str(run)]) == 0
    assert "all equal" in capsys.readouterr().out
    (study / "samples" / "points.csv").write_text("x,y,label\n" + "1.0,2.0,0\n2.0,1.0,1\n" * 20, encoding="utf-8")
    assert main(["replay", str(run)]) == 2
    assert "the data have changed since this run: their SHA-256 was " in capsys.readouterr().err


def no_change(study: Path) -> None:
    """Nothing."""


def other_data(study: Path) -> None:
    path = study / "samples" / "points.csv"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")  # the same samples


def other_trace(study: Path) -> None:
    (study / "experiments" / "trace.csv").write_text("client,delay_s\n0,0.5\n1,0.8\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_change, ""),
        (other_data, "data.file = .* has changed since this run: its SHA-256 was"),
        (
            other_trace,
            "delays.file = .*trace.csv' has changed since this run: its SHA-256 was .*; put the old",
        ),
    ],
)
def test_a_run_that_was_moved_is_resumed_with_the_same_files_only(
    change: Callable[[Path], None],
    words: str,
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = simulated(study, "runs/whole.h5")
    rounds = 0
    real = Client.work

    def work(client: Client, *arguments: object) -> object:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            signal.raise_signal(signal.SIGTERM)
        return real(client, *arguments)  # type: ignore[arg-type]

    run = study / "runs" / "run.h5"
    with monkeypatch.context() as patch:
        patch.setattr(Client, "work", work)
        assert main(["simulate", str(study / "experiments" / "try.toml"), "-o", str(run)]) == 4
    study = moved(study)
    run = study / "runs" / "run.h5"
    assert checkpoint_path(run).exists()
    change(study)
    capsys.readouterr()
    assert main(["resume", str(run)]) == (2 if words else 0)
    assert re.search(words, capsys.readouterr().err)
    if not words:
        with open_run(run) as resumed, open_run(study / "runs" / whole.name) as every:
            assert resumed.events_array.tobytes() == every.events_array.tobytes()
            assert resumed.models.tobytes() == every.models.tobytes()


def test_an_anchored_path_survives_copies() -> None:
    path = AnchoredPath("/study/data/points.csv", "/study/experiments")
    for each in (path, copy.deepcopy(path), pickle.loads(pickle.dumps(path))):
        assert (each, each.written) == ("/study/data/points.csv", "../data/points.csv")


def test_a_folder_has_the_digest_of_its_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    before = digest_of(tmp_path)
    (tmp_path / "b").write_text("c", encoding="utf-8")
    assert before != digest_of(tmp_path)
    assert digest_of(tmp_path / "none") == ""
