"""`--json`: every reading command prints one object and nothing else, with null where there is no number."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.edited import edited
from tests.support.texts import LOGISTIC, QUADRATIC
from tests.support.watched import write_run

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.runfile.read import open_run
from areabench.views.json import plain, to_json

READING = (
    "check", "theory", "watch", "replay", "evaluate", "show", "recover", "diagnose", "summary", "compare", "table",
    "figures", "report", "doctor",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run file in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path)
    capsys.readouterr()
    return Path("tiny.h5")


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """The object that a command prints."""
    assert main([*arguments, "--json"]) == code
    captured = capsys.readouterr()
    assert "NaN" not in captured.out
    assert "Infinity" not in captured.out
    assert bool(captured.err) == (code != 0)
    answer = json.loads(captured.out)
    assert isinstance(answer, dict)
    return answer


# ---------------------------------------------------------------------------------------------------- the form


class _Word(StrEnum):
    ONE = "one"


class _Number(IntEnum):
    TWO = 2


@dataclass(frozen=True)
class _Record:
    value: float
    name: _Word


def test_what_json_does_not_know() -> None:
    table = np.array([(1, 2.5, b"host"), (2, np.nan, b"\xff")], [("client", "i4"), ("rate", "f8"), ("host", "S4")])
    assert plain(table) == [
        {"client": 1, "rate": 2.5, "host": "host"},
        {"client": 2, "rate": None, "host": "\ufffd"},
    ]
    assert plain(_Record(math.inf, _Word.ONE)) == {"value": None, "name": "one"}
    assert plain([State.TARGET, _Number.TWO, Path("a/b"), np.float64(0.1), np.int64(3)]) == [
        "target reached", "two", "a/b", 0.1, 3,
    ]  # fmt: skip
    assert plain({"times": (1, -math.inf), 3: None}) == {"times": [1, None], "3": None}
    assert plain(np.array([[1.0, np.nan]])) == [[1.0, None]]


def test_numbers_keep_their_precision_and_texts_their_line() -> None:
    assert json.loads(to_json({"x": 0.1 + 0.2}))["x"] == 0.1 + 0.2
    assert to_json({"x": "\x1b[31m\n"}, in_one_line=True) == '{"x": "\\u001b[31m\\n"}\n'


# ---------------------------------------------------------------------------------------------------- commands


def test_every_reading_command_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    for command in READING:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--json" in capsys.readouterr().out, command


def test_report_and_figures_name_what_they_wrote(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "report", str(run), "-o", "page.html")
    assert answer == {"page": "page.html", "bytes": Path("page.html").stat().st_size, "runs": 1, "absent": []}
    Path("split.toml").write_text(LOGISTIC, encoding="utf-8")
    assert answered(capsys, "figures", "--split", "split.toml", "-o", "labels.svg") == {
        "figures": ["labels.svg"], "notes": [],
    }  # fmt: skip
    assert Path("labels.svg").exists()


def test_show(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "show", str(run))
    assert list(answer) == [
        "file", "status", "events", "clipped", "mean_staleness", "staleness", "quantiles", "clients", "snapshots",
        "diagnosis", "experiment", "provenance",
    ]  # fmt: skip
    assert (answer["status"]["state"], answer["status"]["updates"], answer["diagnosis"]) == ("done", 16, None)
    assert answer["events"] == {
        "update": 16, "step": 4, "discarded": 0, "refused": 0, "lost": 0, "removed": 0, "no step": 0, "cancelled": 0
    }  # fmt: skip
    assert answer["experiment"]["method"] == {"name": "area", "step_size": 0.05, "first_message": "trained"}
    with open_run(run) as recorded:
        assert len(answer["snapshots"]) == len(recorded.snapshot_index)
        assert answer["snapshots"][-1]["train_loss"] == recorded.metrics_array[-1]["train_loss"]
        assert answer["snapshots"][-1]["test_accuracy"] is None
        assert [client["served"] for client in answer["clients"]] == recorded.served.tolist()
        assert answer["quantiles"]["staleness"]["p50"] == np.percentile(
            recorded.events_array["staleness"][recorded.events_array["kind"] == 0], 50
        )
    with pytest.raises(SystemExit):
        main(["show", str(run), "--json", "--toml"])


def test_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "summary", str(run), str(run))
    assert answer["target_accuracy"] == 80.0
    assert [entry["file"] for entry in answer["runs"]] == ["tiny.h5"] * 2
    assert (answer["runs"][0]["updates"], answer["runs"][0]["target_s"]) == (16, None)


def test_check(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "check", "tiny.toml", "--set", "seed=9")
    assert (answer["file"], answer["experiment"]["seed"], answer["experiment"]["stop"]["horizon_s"]) == (
        "tiny.toml", 9, None,
    )  # fmt: skip
    ended = answered(capsys, "check", "tiny.toml", "--ended-in", str(run))
    assert ended == {"file": "tiny.h5", "state": "done", "can_go_on": False}
    assert main(["check", "tiny.toml", "--set", "seed=9", "--ended-in", str(run), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"file": "tiny.h5", "state": None, "can_go_on": False}


def test_replay(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "replay", str(run))
    assert (answer["equal"], answer["events"], answer["difference"]) == (True, 20, None)
    with edited(run) as file:
        row = file["events"][7]
        row["digest"] += 1
        file["events"][7] = row
    changed = answered(capsys, "replay", str(run), code=1)
    assert (changed["equal"], changed["difference"]["event"]) == (False, 7)


def test_theory(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "theory", "tiny.toml")
    assert main(["theory", "tiny.toml"]) == 0
    words = capsys.readouterr().out
    assert answer["theorem2"] is None
    assert f"mu = {answer['theorem1']['mu']:.4g}, L = {answer['theorem1']['L']:.4g}," in words
    assert f"lambda_s* = {answer['server']['rate']:.4g} 1/s" in words
    assert all(text in words for text in answer["not_satisfied"])
    assert answer["suggestion"]["schedule"]["name"] == "theorem1"


def test_recover(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "recover", str(run), "-o", "saved.h5")
    assert (answer["file"], answer["output"], answer["events"], answer["all_events"]) == ("tiny.h5", "saved.h5", 20, 20)
    assert (answer["missing"], answer["everything"], answer["remark"]) == ([], True, None)


def test_evaluate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "evaluate", str(run))
    assert answer == {"runs": [{"file": "tiny.h5", "snapshots": 10, "error": None}]}
    answer = answered(capsys, "evaluate", "absent.h5", code=2)
    assert answer["runs"][0]["error"] == "absent.h5: no such file; give the path of a run file (.h5)"


def test_diagnose_and_compare(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, "diagnose", str(run))["updates"] == 16
    assert answered(capsys, "compare", str(run), str(run))["verdict"]["updates_hold"] is True


def test_table(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("grid.toml").write_text(QUADRATIC + "[sweep]\ntrials = 1\n[[sweep.grid]]\nmethod.step_size = [0.05, 0.1]\n")
    assert main(["sweep", "grid.toml", "-o", "grid", "--jobs", "1"]) == 0
    capsys.readouterr()
    answer = answered(capsys, "table", "grid", "--keep", "all")
    assert [cell["step_size"] for cell in answer["cells"]] == [0.05, 0.1]
    assert (answer["cells"][0]["method"], answer["cells"][0]["accuracy_mean"]) == ("AREA", None)
    assert main(["table", "grid", "--json", "--format", "csv"]) == 2
    assert "leave out --output and --format" in capsys.readouterr().err
    assert main(["table", "grid", "--keep", "all"]) == 0
    piped = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["table", "grid", "--keep", "all"]) == 0
    coloured = capsys.readouterr().out
    assert coloured.count("\x1b[") > 4
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == piped


def test_a_plot_is_not_mentioned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    answered(capsys, "summary", str(run), "--plot", "runs.png")
    assert Path("runs.png").exists()


def test_errors_go_to_stderr_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "summary", "diagnose", "replay", "watch"):
        once = ["--once"] if command == "watch" else []
        assert main([command, "absent.h5", "--json", *once]) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1), command


# ---------------------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize(
    ("arguments", "inside"),
    [
        (["show", "tiny.h5"], "areabench.runfile.read.Run.__init__"),
        (["summary", "tiny.h5"], "areabench.runfile.read.Run.__init__"),
        (["compare", "tiny.h5", "tiny.h5"], "areabench.results.comparison.compare_runs"),
        (["diagnose", "tiny.h5"], "areabench.runfile.read.Run.__init__"),
        (["replay", "tiny.h5"], "areabench.transports.replay.Replay.replayed"),
        (["evaluate", "tiny.h5"], "areabench.transports.replay._evaluated"),
        (["recover", "tiny.h5", "-o", "saved.h5"], "areabench.cli.recover._replayed"),
        (["theory", "tiny.toml"], "areabench.results.advice.find"),
        (["check", "tiny.toml"], "areabench.experiment.parse.load_experiment"),
        (["table", "grid"], "areabench.sweeps.read.open_finished"),
        (["figures", "grid"], "areabench.sweeps.read.open_finished"),
        (["watch", "tiny.h5"], "areabench.views.watch.follower.Follower.frame"),
        (["job", "tiny.toml", "--scheduler", "slurm"], "areabench.cli.job.job_work"),
    ],
)
def test_every_command_can_be_interrupted(
    arguments: list[str], inside: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = sorted(Path().iterdir())
    monkeypatch.setattr(inside, interrupt)
    assert main(arguments) == 130
    assert capsys.readouterr() == ("", "areabench: interrupted\n")
    assert sorted(Path().iterdir()) == before  # nothing half-made
