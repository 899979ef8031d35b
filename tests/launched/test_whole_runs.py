"""Whole runs on MPI: every method, problem and criterion ends well and is replayed bit for bit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.methods.every_method import experiment_of

import areabench
from areabench.cli.main import main
from areabench.engine.events import Kind, State
from areabench.errors import RunFailure
from areabench.methods import METHODS
from areabench.results.comparison import compare_runs
from areabench.runfile.read import Run
from areabench.settings.toml import block
from areabench.sweeps.read import open_sweep

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = pytest.mark.slow

EVERY_TWO = ("aggregation.name=updates", "aggregation.updates=2")
EVERY_50_MS = ("aggregation.name=period", "aggregation.period_s=0.05")
POISSON = ("aggregation.name=poisson", "aggregation.rate=20")
CLOCKS = ("time_s", "drawn_delay_s", "realised_delay_s", "compute_s", "service_s")


def test_a_launch_from_python_returns_the_run_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sections = {"clients": {"count": 1}, "method": {"name": "area", "step_size": 0.1}, "problem": "quadratic"}
    seen = areabench.observers.JsonLinesObserver("seen.jsonl")
    with areabench.launch(sections, stop={"iterations": 6}, observers=[seen]) as run:
        assert (run.provenance.transport, run.provenance.ranks) == ("mpi", 2)
        assert run.status.updates + run.status.server_steps == 6
        assert areabench.replay(run).equal
        losses = run.metrics_array["train_loss"].tolist()
    lines = [json.loads(line) for line in Path("seen.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["event"] * 6 + ["snapshot"] * len(losses) + ["end"]
    assert [line["train_loss"] for line in lines if line["what"] == "snapshot"] == losses
    assert [path.name for path in tmp_path.iterdir()] == ["seen.jsonl"]
    assert capfd.readouterr().out == ""


def test_a_launch_from_python_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ("def wrong_later(rate, generator):", "    yield from [0.01] * 30", "    yield -1.0")
    (tmp_path / "late_delays.py").write_text("\n".join(lines))
    sections = {"clients": {"count": 1}, "method": {"name": "area", "step_size": 0.1}, "problem": "quadratic"}
    with pytest.raises(RunFailure, match=r"the run failed: .*late_delays:wrong_later.* -1.0"):
        areabench.launch(sections, stop={"iterations": 100}, delays="late_delays:wrong_later")


@pytest.mark.parametrize(
    ("problem", "clients", "method", "settings"),
    [
        ("quadratic", 1, "area", POISSON),
        ("quadratic", 1, "s-fedavg", ("method.clients_per_round=1", "clients.local_steps=3")),
        ("quadratic", 2, "fedbuff", EVERY_50_MS),
        ("quadratic", 8, "as-fedavg", (*EVERY_50_MS, "rates={name = 'normal', mean = 15.0, deviation = 5.0}")),
        ("logistic", 2, "area", (*EVERY_TWO, "clients.local_steps=3", "split.name=dirichlet")),
        ("logistic", 2, "area", (*EVERY_TWO, "method.first_message=zero")),
        ("logistic", 2, "area", (*EVERY_TWO, "data={name = 'mnist'}", "split={name = 'dirichlet'}")),
        ("logistic", 4, "s-fedavg", ("method.clients_per_round=2", "stop.horizon_s=1")),
        ("logistic", 4, "fedbuff", (*POISSON, "clients.local_steps=3", "rates.rate=20")),
        ("perceptron", 2, "area", EVERY_TWO),
    ],
)
def test_a_run_obeys_the_facts_and_is_replayed(
    problem: str, clients: int, method: str, settings: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """Held against the simulator, the replay and what is true of every run."""
    launcher: Launcher = request.getfixturevalue(problem)
    overrides = (f"clients.count={clients}", f"method.name={method}", *settings)
    ended = launcher.completed(clients + 1, *overrides)
    assert "done (horizon of" in ended.output
    with launcher.recorded() as run, launcher.simulated(*overrides) as simulated:
        check_counts(run, clients)
        check_events(run.events_array)
        check_rounds(run, clients)
        check_delays(run, simulated)
        check_quality(run)
    assert launcher.replay() == 0


def check_counts(run: Run, clients: int) -> None:
    kinds, status = run.events_array["kind"], run.status
    assert (status.state, status.end_s) == (State.DONE, run.experiment.stop.horizon_s)
    assert status.updates == np.count_nonzero(kinds == Kind.UPDATE) > 0
    assert status.server_steps == np.count_nonzero(kinds == Kind.STEP) > 0
    assert status.discarded == np.count_nonzero(kinds == Kind.DISCARDED)
    assert (run.provenance.transport, run.provenance.ranks) == ("mpi", clients + 1)
    assert list(run.clients_array["rank"]) == list(range(1, clients + 1))


def check_events(events: NDArray[Any]) -> None:
    assert all(np.isfinite(events[name]).all() for name in CLOCKS)
    assert (np.diff(events["time_s"]) >= 0).all()
    worked = events[events["kind"] != Kind.STEP]
    assert (worked["realised_delay_s"] >= worked["drawn_delay_s"] - 1e-6).all()
    assert (worked["compute_s"] > 0).all()
    assert (worked["staleness"] == worked["version"] - worked["base_version"]).all()
    counted = events[events["kind"] != Kind.DISCARDED]
    assert (counted["iteration"] == np.arange(1, len(counted) + 1)).all()


def check_rounds(run: Run, clients: int) -> None:
    """Each client's rounds count from 0 without a gap."""
    for client in range(clients):
        rounds = run.events_array["round"][run.events_array["client"] == client]
        assert list(rounds) == list(range(len(rounds)))


def check_delays(run: Run, simulated: Run) -> None:
    """The draws depend on client and round only, not on the transport."""
    here, there = drawn_delays(run), drawn_delays(simulated)
    shared = here.keys() & there.keys()
    assert len(shared) >= 3
    assert {key: here[key] for key in shared} == {key: there[key] for key in shared}


def drawn_delays(run: Run) -> dict[tuple[int, int], float]:
    """Drawn delays in seconds, by client and round."""
    worked = run.events_array[run.events_array["kind"] != Kind.STEP]
    return {(int(row["client"]), int(row["round"])): float(row["drawn_delay_s"]) for row in worked}


def check_quality(run: Run) -> None:
    assert len(run.metrics_array) == len(run.snapshot_index) == len(run.models) >= 7
    assert np.isfinite(run.models).all()
    assert np.isfinite(run.metrics_array["train_loss"]).all()


# ---------------------------------------------------------------------------------------------------- both clocks


def test_one_client_does_the_same_on_both_clocks(logistic: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    """With one client there is one order of arrivals, and only their times can differ."""
    changes = ("clients.count=1", "stop={iterations = 25}")
    assert logistic.run(2, *changes).code == 0
    with logistic.simulated(*changes) as simulated, logistic.recorded() as recorded:
        found = compare_runs(simulated, recorded)
        np.testing.assert_array_equal(simulated.model(-1), recorded.model(-1))
        capsys.readouterr()
        assert main(["compare", str(simulated.path), str(recorded.path)]) == 0
    assert found.order is not None
    assert (found.order.common, found.order.distance, found.order.differs_at) == (20, 0.0, None)
    assert (found.updates.second, found.server_steps.second, found.staleness_distance) == (20, 5, 0.0)
    # How a loss is rounded depends on how many snapshots were evaluated together, and so on their times.
    assert found.loss.final.difference_percent == pytest.approx(0.0, abs=1e-6)
    assert "real time minus simulated: " in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- every method


def grid(name: str) -> str:
    """A grid of a sweep file: one method, in the sections that it needs, with four clients."""
    experiment = experiment_of(name)
    sections = {
        "clients": replace(experiment.clients, count=4),
        "delays": experiment.delays,
        "aggregation": experiment.aggregation,
        "method": experiment.method,
    }
    entries = {
        section: [{key: value for key, value in vars(record).items() if value is not None}]
        for section, record in sections.items()
    }
    return f"\n[[sweep.grid]]\n{block(entries)}"


def test_every_method_runs_on_mpi_and_replays_bit_for_bit(
    quadratic: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All in one launch: four clients on two worker ranks, 0.4 s each."""
    text = quadratic.experiment.read_text().replace("horizon_s = 0.7", "horizon_s = 0.4")
    text += "".join(map(grid, METHODS))
    monkeypatch.chdir(quadratic.folder)
    (quadratic.folder / "every.toml").write_text(text)
    sweep = [sys.executable, "-m", "areabench", "sweep", "every.toml", "--transport", "mpi", "--ranks", "3"]
    ended = quadratic.start(sweep)
    assert (ended.code, ended.errors) == (0, "")
    results = open_sweep("runs/every-mpi").results
    assert {result.experiment.method.name for result in results} == set(METHODS)
    for result in results:
        assert main(["replay", str(result.path)]) == 0, result.experiment.method.name
    capsys.readouterr()
