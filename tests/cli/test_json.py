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
from tests.support.answers import answer, complaint, record
from tests.support.edited import edited
from tests.support.texts import LOGISTIC, QUADRATIC
from tests.support.watched import write_run

from areabench.engine.events import State
from areabench.runfile.read import open_run
from areabench.views.json import plain, to_json

READING = (
    "check", "theory", "watch", "replay", "evaluate", "show", "recover", "diagnose", "summary", "compare", "table",
    "figures", "report", "doctor",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run file in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path)
    return Path("tiny.h5")


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


@pytest.mark.parametrize("command", READING)
def test_every_reading_command_has_it(command: str) -> None:
    assert "--json" in answer(command, "--help").out


ANSWERS: list[tuple[str, int, dict[str, Any]]] = [  # command, exit code, part of the record
    ("show tiny.h5", 0, {"file": "tiny.h5", "diagnosis": None}),
    ("summary tiny.h5", 0, {"target_accuracy": 80.0}),
    ("check tiny.toml --set seed=9", 0, {"file": "tiny.toml"}),
    ("check tiny.toml --ended-in tiny.h5", 0, {"file": "tiny.h5", "state": "done", "can_go_on": False}),
    ("replay tiny.h5", 0, {"equal": True, "events": 20, "difference": None}),
    (
        "recover tiny.h5 -o saved.h5",
        0,
        {"file": "tiny.h5", "output": "saved.h5", "events": 20, "all_events": 20, "missing": [], "everything": True},
    ),
    ("evaluate tiny.h5", 0, {"runs": [{"file": "tiny.h5", "snapshots": 10, "error": None}]}),
    ("evaluate absent.h5 tiny.h5", 2, {}),
    ("diagnose tiny.h5", 0, {"updates": 16}),
    ("report tiny.h5 -o page.html", 0, {"page": "page.html", "runs": 1, "absent": []}),
    ("figures --split split.toml -o labels.svg", 0, {"figures": ["labels.svg"], "notes": []}),
]


@pytest.mark.parametrize(("command", "code", "part"), ANSWERS)
def test_records(command: str, code: int, part: dict[str, Any], run: Path) -> None:
    Path("split.toml").write_text(LOGISTIC, encoding="utf-8")
    found = record(command, code=code)
    assert {name: found[name] for name in part} == part


def test_show(run: Path) -> None:
    found = record("show tiny.h5")
    assert list(found) == [
        "file", "status", "events", "clipped", "mean_staleness", "staleness", "quantiles", "clients", "snapshots",
        "diagnosis", "experiment", "provenance",
    ]  # fmt: skip
    assert (found["status"]["state"], found["status"]["updates"]) == ("done", 16)
    assert found["events"] == {
        "update": 16, "step": 4, "discarded": 0, "refused": 0, "lost": 0, "removed": 0, "no step": 0, "cancelled": 0
    }  # fmt: skip
    assert found["experiment"]["method"] == {"name": "area", "step_size": 0.05, "first_message": "trained"}
    with open_run(run) as recorded:
        assert len(found["snapshots"]) == len(recorded.snapshot_index)
        assert found["snapshots"][-1]["train_loss"] == recorded.metrics_array[-1]["train_loss"]
        assert found["snapshots"][-1]["test_accuracy"] is None
        assert [client["served"] for client in found["clients"]] == recorded.served.tolist()
        staleness = recorded.events_array["staleness"][recorded.events_array["kind"] == 0]
        assert found["quantiles"]["staleness"]["p50"] == np.percentile(staleness, 50)
    answer("show tiny.h5 --json --toml", code=2)


def test_a_summary_and_a_comparison(run: Path) -> None:
    first, second = record("summary tiny.h5 tiny.h5")["runs"]
    assert (first["file"], first["updates"], first["target_s"]) == ("tiny.h5", 16, None)
    assert first == second
    assert record("compare tiny.h5 tiny.h5")["verdict"]["updates_hold"] is True


def test_check(run: Path) -> None:
    experiment = record("check tiny.toml --set seed=9")["experiment"]
    assert (experiment["seed"], experiment["stop"]["horizon_s"]) == (9, None)
    said = answer("check tiny.toml --set seed=9 --ended-in tiny.h5 --json", code=1).out
    assert json.loads(said) == {"file": "tiny.h5", "state": None, "can_go_on": False}


def test_a_replay_with_a_difference(run: Path) -> None:
    with edited(run) as file:
        row = file["events"][7]
        row["digest"] += 1
        file["events"][7] = row
    changed = record("replay tiny.h5", code=1)
    assert (changed["equal"], changed["difference"]["event"]) == (False, 7)


def test_theory(run: Path) -> None:
    found = record("theory tiny.toml")
    words = answer("theory tiny.toml").out
    assert found["theorem2"] is None
    assert f"mu = {found['theorem1']['mu']:.4g}, L = {found['theorem1']['L']:.4g}," in words
    assert f"lambda_s* = {found['server']['rate']:.4g} 1/s" in words
    assert all(text in words for text in found["not_satisfied"])
    assert found["suggestion"]["schedule"]["name"] == "theorem1"


def test_table(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("grid.toml").write_text(QUADRATIC + "[sweep]\ntrials = 1\n[[sweep.grid]]\nmethod.step_size = [0.05, 0.1]\n")
    answer("sweep grid.toml -o grid --jobs 1")
    cells = record("table grid --keep all")["cells"]
    assert [cell["step_size"] for cell in cells] == [0.05, 0.1]
    assert (cells[0]["method"], cells[0]["accuracy_mean"]) == ("AREA", None)
    assert "leave out --output and --format" in complaint("table grid --json --format csv")
    piped = answer("table grid --keep all").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = answer("table grid --keep all").out
    assert coloured.count("\x1b[") > 4
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == piped


def test_a_plot_is_not_mentioned(run: Path) -> None:
    pytest.importorskip("matplotlib")
    record("summary tiny.h5 --plot runs.png")
    assert Path("runs.png").exists()


@pytest.mark.parametrize("command", ["show", "summary", "diagnose", "replay", "watch --once"])
def test_errors_go_to_stderr_alone(command: str) -> None:
    complaint(command, "absent.h5", "--json")


# ---------------------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        ("show tiny.h5", "areabench.runfile.read.Run.__init__"),
        ("summary tiny.h5", "areabench.runfile.read.Run.__init__"),
        ("compare tiny.h5 tiny.h5", "areabench.results.comparison.compare_runs"),
        ("diagnose tiny.h5", "areabench.runfile.read.Run.__init__"),
        ("replay tiny.h5", "areabench.transports.replay.Replay.run"),
        ("evaluate tiny.h5", "areabench.transports.replay._evaluate"),
        ("recover tiny.h5 -o saved.h5", "areabench.cli.recover._replayed"),
        ("theory tiny.toml", "areabench.results.advice.find"),
        ("check tiny.toml", "areabench.experiment.parse.load_experiment"),
        ("table grid", "areabench.sweeps.read.open_finished"),
        ("figures grid", "areabench.sweeps.read.open_finished"),
        ("watch tiny.h5", "areabench.views.watch.follower.Follower.frame"),
        ("job tiny.toml --scheduler slurm", "areabench.cli.job.job_work"),
    ],
)
def test_every_command_can_be_interrupted(
    command: str, inside: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = sorted(Path().iterdir())
    monkeypatch.setattr(inside, interrupt)
    assert complaint(command, code=130) == "areabench: interrupted"
    assert sorted(Path().iterdir()) == before  # nothing half-made
