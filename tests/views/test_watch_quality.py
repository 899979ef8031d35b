"""`areabench watch`: quality of snapshots while a run continues, and that the run is not disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.engine.test_plugins import elsewhere
from tests.support import own_parts as outside
from tests.support.watched import EXPERIMENT, WRITER, Writer, write_run

from areabench.cli.main import main
from areabench.cli.watch import frames
from areabench.engine.scenario import build_scenario
from areabench.experiment.parse import parse_experiment
from areabench.runfile.read import open_run
from areabench.views.watch.follower import Follower
from areabench.views.watch.quality import Evaluator
from areabench.views.watch.tail import Tail

__all__ = ["elsewhere"]  # pytest finds the fixture here

FIRST = ["event UPDATE 0.5 0 0", "event UPDATE 1.0 0 1"]


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


def test_a_model_is_read_once(writer: Writer, path: Path) -> None:
    writer.write("snapshot 0.0 0 9", "snapshot 1.0 2 0.5")
    tail = Tail(path)
    assert tail.observe().model is None
    assert tail.observe(-1).model is not None
    assert tail.observe(2).model is None  # that one was evaluated
    writer.write("snapshot 2.0 3 0.25")
    assert np.array_equal(np.full(3, 0.25), tail.observe(2).model)  # type: ignore[arg-type]


def test_what_the_run_has_found_itself_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path)
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
    assert evaluator.last_version() is None  # it has given up


def evaluated(folder: Path, trusted: str) -> Evaluator:
    """The outcome of a snapshot of a run whose problem is `mine:make`."""
    evaluator = Evaluator(folder / "run.h5", folder, (trusted,))
    snapshot = np.zeros(1, [("time_s", "f8"), ("version", "i8")])[0]
    evaluator.offer(parse_experiment(outside.experiment("problem")), snapshot, np.array([2.0, 0.0]))
    evaluator.wait(20.0)
    return evaluator


def test_a_file_that_the_user_vouches_for_is_found_in_its_folder(tmp_path: Path) -> None:
    module = outside.write(tmp_path / "there", "problem").with_name("mine.py")
    found = evaluated(tmp_path, str(module))
    assert found.trouble == ""
    assert found.latest is not None
    assert found.latest.train_loss == 2.0  # |(2, 0)|^2 / 2


def test_another_file_of_that_name_in_the_current_folder_is_not_executed(tmp_path: Path) -> None:
    module = outside.write(tmp_path / "there", "problem").with_name("mine.py")
    Path("mine.py").write_text("from pathlib import Path\nPath('mark').touch()\n")
    found = evaluated(tmp_path, str(module))
    assert found.latest is not None
    assert not Path("mark").exists()


# ---------------------------------------------------------------------------------------------------- not disturbed


def test_a_watched_run_leaves_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(EXPERIMENT.replace("10.0", "100.0"), encoding="utf-8")
    alone, watched = tmp_path / "alone.h5", tmp_path / "watched.h5"
    command = [sys.executable, "-c", WRITER, str(tmp_path / "tiny.toml")]
    subprocess.run([*command, str(alone), "-1"], check=True)
    follower = Follower(watched, 60.0, Evaluator(watched, tmp_path, ()))
    with subprocess.Popen([*command, str(watched), "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdin is not None
        assert run.stdout.readline() == b"ready\n"  # it has written three times, and waits
        midway = [follower.frame().updates or 0 for _ in range(5)]
        run.stdin.close()
        *_, last = frames(follower, 0.01)
    assert run.returncode == 0
    with open_run(alone) as one, open_run(watched) as other:
        assert one.status == other.status
        assert one.events_array.tobytes() == other.events_array.tobytes()
        assert one.models.tobytes() == other.models.tobytes()
        assert one.metrics_array.tobytes() == other.metrics_array.tobytes()
        assert 0 < midway[-1] < (last.updates or 0) == one.status.updates
    assert main(["replay", str(watched)]) == 0
