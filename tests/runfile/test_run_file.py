"""The run file: what the recorder writes, what the reading side gives back, tables and documentation."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from tests.support.texts import QUADRATIC

from areabench.arrays import Vector
from areabench.engine.events import (
    CLIENT,
    EVENT,
    Event,
    Kind,
    Provenance,
    Reason,
    State,
    Status,
    exit_code,
)
from areabench.engine.messages import Flag, Order
from areabench.errors import RunFileError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.problems.base import Metrics
from areabench.progress import Style
from areabench.runfile.open import open_file
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import Run, Summary, open_run
from areabench.runfile.record import Recorder
from areabench.runfile.schema import ATTRIBUTES, METRIC, SNAPSHOT
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_run
from areabench.views.styled import number
from areabench.views.text import describe_run, summary_table

EXPERIMENT = "seed = 3" + QUADRATIC
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "run-file.md"
FLOAT = np.dtype(np.float64)


def tiny(*overrides: str) -> Experiment:
    """The small experiment."""
    return parse_experiment(EXPERIMENT, overrides=overrides)


def surroundings(output: Path) -> RunOptions:
    return RunOptions(output, output.parent, "areabench simulate tiny.toml", False, Style.NONE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The small experiment's run, open."""
    path = tmp_path_factory.mktemp("runs") / "tiny.h5"
    simulate_run(tiny(), surroundings(path))
    with open_run(path) as opened:
        yield opened


def rewritten(path: Path, accuracies: list[float]) -> Run:
    """A run file with these accuracies, one snapshot per second."""
    recorder = Recorder(path, EXPERIMENT, 2, FLOAT, force=False)
    recorder.begin(gather_provenance("simulator", "", "", 0), np.zeros(2, CLIENT))
    for time_s in range(len(accuracies)):
        recorder.snapshot(float(time_s), 0, np.zeros(2))
    recorder.flush()
    nothing = np.full(len(accuracies), np.nan)
    recorder.metrics([Metrics(nothing, np.array(accuracies, dtype=np.float64), nothing)])
    recorder.close()
    return open_run(path)


# ---------------------------------------------------------------------------------------------------- reading


def test_events_are_in_order(run: Run) -> None:
    assert run.experiment == tiny()
    events = run.events_array
    assert len(events) == 20 == run.status.updates + run.status.server_steps + run.status.discarded
    assert len(run.snapshot_index) == len(run.metrics_array) == len(run.models) > 2
    assert (np.diff(events["time_s"]) >= 0).all()
    assert events["iteration"].tolist() == list(range(1, 21))
    steps = events[events["kind"] == Kind.STEP]
    assert steps["version"].tolist() == [1, 2, 3, 4]
    assert (steps["client"] == -1).all()
    updates = events[events["kind"] == Kind.UPDATE]
    assert ((updates["version"] - updates["base_version"]) == updates["staleness"]).all()
    assert (updates["step_size"] == 0.05).all()


def test_snapshots_count_the_events_before_them(run: Run) -> None:
    index, events = run.snapshot_index, run.events_array
    assert index["event"][0] == 0
    assert index["event"][-1] == len(events)
    for snapshot in index:
        assert snapshot["event"] == np.count_nonzero(events["time_s"] <= snapshot["time_s"])
        assert snapshot["version"] == np.count_nonzero(events["kind"][: snapshot["event"]] == Kind.STEP)


def test_averages_that_are_not_kept_are_reported(run: Run) -> None:
    with pytest.raises(RunFileError, match=r"tiny\.h5: keeps no average; run it with record\.average=true"):
        _ = run.averages


def test_frames(run: Run) -> None:
    pytest.importorskip("pandas")
    assert tuple(run.events.columns) == EVENT.names
    assert set(run.events["kind"]) == {"update", "step"}
    assert tuple(run.metrics.columns) == (*(SNAPSHOT.names or ()), *(METRIC.names or ()))
    assert len(run.metrics) == len(run.snapshot_index)
    assert tuple(run.clients.columns) == CLIENT.names
    assert run.clients["host"].tolist() == ["", ""]
    assert run.clients["rank"].tolist() == [-1, -1]
    assert run.clients["rate"].tolist() == [10.0, 10.0]


def test_status_and_provenance(run: Run) -> None:
    assert run.status == Status(State.DONE, "20 iterations", run.events_array["time_s"][-1], 16, 0, 4)
    known = run.provenance
    assert (known.transport, known.command) == ("simulator", "areabench simulate tiny.toml")
    assert known.threads == "openblas 1 (OPENBLAS_NUM_THREADS), openmp 1 (OMP_NUM_THREADS), mkl 1 (MKL_NUM_THREADS)"
    assert (known.seed, known.ranks, known.mpi) == (3, 1, "")
    for item in fields(Provenance):
        if item.name not in (
            "mpi", "git_revision", "resumed_at", "modules", "data_digest", "files", "simd", "torch_kernel"
        ):  # fmt: skip
            assert getattr(known, item.name) not in ("", None)
    assert datetime.fromisoformat(known.started_at).utcoffset() is not None


def test_arrays_stay_when_the_file_is_closed(tmp_path: Path) -> None:
    simulate_run(tiny(), surroundings(tmp_path / "run.h5"))
    with open_run(str(tmp_path / "run.h5")) as opened:
        before = opened.events_array
    assert len(opened.events_array) == len(before) == 20
    with pytest.raises(RunFileError):
        _ = opened.models


@pytest.mark.parametrize(
    ("accuracies", "percent", "expected_s"),
    [
        ([10.0, 50.0, 90.0], 50.0, 1.0),
        ([10.0, 50.0, 90.0], 50.1, 2.0),
        ([10.0, 50.0, 90.0], 0.0, 0.0),
        ([10.0, 50.0, 90.0], 91.0, math.inf),
        ([math.nan, 60.0, math.nan], 60.0, 1.0),
        ([math.nan, math.nan], 1.0, math.inf),
        ([70.0, 10.0, 80.0], 60.0, 0.0),
    ],
)
def test_time_to_accuracy(accuracies: list[float], percent: float, expected_s: float, tmp_path: Path) -> None:
    with rewritten(tmp_path / "run.h5", accuracies) as opened:
        assert opened.time_to_accuracy(percent) == pytest.approx(expected_s)


def test_summary_of_a_run(run: Run) -> None:
    summary = run.summary()
    assert (summary.name, summary.method, summary.step_size, summary.state) == ("tiny", "area", 0.05, "done")
    assert (summary.updates, summary.server_steps) == (16, 4)
    assert summary.train_loss == run.metrics_array["train_loss"][-1]
    assert math.isnan(summary.test_accuracy)
    assert summary.target_s == math.inf
    updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
    assert summary.mean_staleness == updates["staleness"].mean()


# ---------------------------------------------------------------------------------------------------- failures


def test_a_failure_keeps_what_happened_until_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from areabench.engine.client import Client

    rounds, real = [0], Client.work

    def work(client: Client, order: Order, made: int | None = None) -> Vector:
        rounds[0] += 1
        if rounds[0] > 6:
            raise ZeroDivisionError("seventh round\nmore\nlast words")
        return real(client, order, made)

    monkeypatch.setattr(Client, "work", work)
    with pytest.raises(ZeroDivisionError):
        simulate_run(tiny(), surroundings(tmp_path / "run.h5"))
    with open_run(tmp_path / "run.h5") as opened:
        assert opened.status.state == State.FAILED
        assert opened.status.reason == "ZeroDivisionError: seventh round ... last words"
        assert (opened.status.updates, opened.status.server_steps) == (6, 1)
        assert opened.status.end_s == opened.events_array["time_s"][-1] > 0
        assert len(opened.events_array) == 7
        assert len(opened.snapshot_index) > 0
        assert len(opened.metrics_array) == 0
        assert "failed: ZeroDivisionError" in describe_run(opened)
        assert "not evaluated" in describe_run(opened)
        assert math.isnan(opened.summary().train_loss)


def test_a_failure_of_the_evaluation_keeps_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(*_: object, **__: object) -> Metrics:
        raise FloatingPointError("no loss")

    monkeypatch.setattr("areabench.problems.quadratic.QuadraticProblem.evaluate", evaluate)
    status = simulate_run(tiny(), surroundings(tmp_path / "run.h5"))
    assert (status.unevaluated, exit_code(status)) == ("FloatingPointError: no loss", 5)
    with open_run(tmp_path / "run.h5") as opened:
        assert opened.status == replace(status, unevaluated="")
        assert (opened.status.state, opened.status.updates, opened.is_evaluated) == (State.DONE, 16, False)
        assert (len(opened.events_array), len(opened.metrics_array)) == (20, 0)
        assert len(opened.models) == len(opened.snapshot_index) > 0
        assert "not evaluated" in describe_run(opened)


# ---------------------------------------------------------------------------------------------------- tables, plots


@pytest.mark.parametrize(("value", "text"), [(1234.567, "1,234.57"), (math.nan, "-"), (math.inf, "inf"), (0.0, "0.00")])
def test_number(value: float, text: str) -> None:
    assert number(value, 2) == text


def test_summary_table() -> None:
    summary = Summary("n", "area", 10.0, "mpi", "done", 9.0, 81.25, 0.5, 3.21, 1200, 300, 1.5)
    other = replace(summary, method="fedbuff", target_s=math.inf, test_accuracy=math.nan)
    heading, _, first, second = summary_table([summary, other], 80.0, ["a.h5", "b.h5"], ["", ""]).splitlines()
    assert "time to 80 %" in heading
    assert first.split() == ["a.h5", "area", "10", "81.25", "0.500", "3.2", "s", "1,200", "300", "1.50", "done"]
    assert second.split() == ["b.h5", "fedbuff", "10", "-", "0.500", "not", "reached", "1,200", "300", "1.50", "done"]
    assert len(heading) == len(first) == len(second)


def test_summary_table_with_settings() -> None:
    summary = Summary("n", "area", 10.0, "mpi", "done", 9.0, 81.25, 0.5, 3.21, 1200, 300, 1.5)
    lines = summary_table([summary, summary], 80.0, ["a.h5", "long-name.h5"], ["seed = 10", "seed = 2"]).splitlines()
    assert [line.index(word) for line, word in zip(lines[2:], ["area", "area"], strict=True)] == [14, 14]
    assert [lines[0].index("settings"), lines[2].index("seed = 10"), lines[3].index("seed = 2")] == [
        lines[0].index("settings")
    ] * 3


def test_description_names_every_part(run: Run) -> None:
    shown = describe_run(run)
    parts = [line.split()[0] for line in shown.splitlines()[1:] if line and not line.startswith(" ")]
    assert parts == ["status", "snapshots", "updates", "clients", "experiment", "provenance"]
    assert "0 of 16 were not ready when due" in shown
    assert "2; rates 10 to 10 1/s, samples 0 to 0" in shown


def test_plot_of_several_runs(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from areabench.views import figures

    figures.save(figures.quality([run, run, run, run, run]), tmp_path / "deep" / "runs.png")
    assert (tmp_path / "deep" / "runs.png").stat().st_size > 10_000


# ---------------------------------------------------------------------------------------------------- documentation


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def section(title: str) -> str:
    """One section of the page."""
    _, found, rest = page().partition(f"\n## {title}")
    assert found
    return rest.partition("\n## ")[0]


def test_every_object_of_the_file_is_documented(run: Run) -> None:
    with open_file(run.path) as file:
        file.visit(lambda name: page().index(f"/{name}"))
        assert set(file.attrs) == set(ATTRIBUTES)


def test_the_revision_of_the_checkout_is_recorded() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert gather_provenance("simulator", "", "", 0).git_revision.removesuffix("+") == revision


def test_the_numbers_in_a_run_file_mean_the_same_for_ever() -> None:
    kinds = ["UPDATE", "STEP", "DISCARDED", "REFUSED", "LOST", "REMOVED", "NO_STEP", "CANCELLED"]
    assert [(kind.name, kind.value) for kind in Kind] == [(name, number) for number, name in enumerate(kinds)]
    reasons = ["NONE", "NOT_FINITE", "LENGTH", "ROUND", "BASE_VERSION", "PROTOCOL", "CLIENT", "OUTSIDE"]
    assert [(reason.name, reason.value) for reason in Reason] == [(name, number) for number, name in enumerate(reasons)]
    assert Event(0.5, Kind.STEP) == (0.5, 1, -1, -1, -1, *[0] * 14)  # no client, no round, no base version


def test_a_revision_is_that_of_the_folder_above_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the package lies; nothing else of the machine counts."""
    monkeypatch.setattr("areabench.runfile.provenance.__file__", str(tmp_path / "src" / "areabench" / "a" / "b.py"))
    assert gather_provenance("simulator", "", "", 0).git_revision == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert gather_provenance("simulator", "", "", 0).git_revision == ""  # nothing is committed
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    command = [*git, "rev-parse", "--short=12", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert gather_provenance("simulator", "", "", 0).git_revision == revision


def test_the_flags_of_updates_are_documented() -> None:
    for flag in (Flag.OVERRUN, Flag.CLIPPED, Flag.OUTSIDE):  # all others belong to messages
        assert f"{flag.value} (`{flag.name}`)" in section("/events")
