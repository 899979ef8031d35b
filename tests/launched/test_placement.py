"""Clients on ranks: whichever rank hosts a client, the run is the same; and how many ranks there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from areabench.cli import main as cli
from areabench.engine.events import Kind, State

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = pytest.mark.slow
ONE_A_ROUND = ("clients.count=4", "method.name=s-fedavg", "method.clients_per_round=1", "rates.rate=200")


def used(events: NDArray[Any]) -> NDArray[Any]:
    """Events up to the end."""
    kept: NDArray[Any] = events[events["kind"] != Kind.DISCARDED]
    return kept


@pytest.mark.parametrize("ranks", [3, 5])
def test_the_models_do_not_depend_on_the_placement(quadratic: Launcher, ranks: int) -> None:
    """One client works at a time, so that the order of events is the same on every clock, and so is every bit."""
    settings = (*ONE_A_ROUND, "stop.iterations=60", "stop.horizon_s=60")
    quadratic.completed(ranks, *settings)
    with quadratic.recorded() as run, quadratic.simulated(*settings) as simulated:
        assert run.status.state == State.DONE
        assert run.clients_array["rank"].tolist() == [1 + client % (ranks - 1) for client in range(4)]
        for column in ("client", "round", "base_version", "step_size", "drawn_delay_s", "digest"):
            np.testing.assert_array_equal(used(run.events_array)[column], used(simulated.events_array)[column])
        np.testing.assert_array_equal(run.models[-1], simulated.models[-1])
    assert quadratic.replay() == 0


@pytest.mark.parametrize("ranks", [2])
def test_clients_that_share_a_rank_draw_what_they_draw_alone(quadratic: Launcher, ranks: int) -> None:
    settings = ("clients.count=6", "rates.rate=20", "stop.horizon_s=1")
    quadratic.completed(ranks, *settings)
    with quadratic.recorded() as run, quadratic.simulated(*settings, "stop.horizon_s=60") as simulated:
        drawn = {(row["client"], row["round"]): row["drawn_delay_s"] for row in simulated.events_array}
        updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        assert set(updates["client"]) == set(range(6))
        assert [drawn[row["client"], row["round"]] for row in updates] == updates["drawn_delay_s"].tolist()
        assert (updates["realised_delay_s"] >= updates["drawn_delay_s"]).all()
        for client in range(6):
            rounds = updates["round"][updates["client"] == client]
            assert rounds.tolist() == list(range(len(rounds)))
    assert quadratic.replay() == 0


@pytest.mark.parametrize("ranks", [17, 4])
def test_sixteen_clients_run_on_any_number_of_ranks(logistic: Launcher, ranks: int) -> None:
    logistic.completed(ranks, "clients.count=16", "rates.rate=5", "stop.horizon_s=1", "data.train_samples=320")
    with logistic.recorded() as run:
        assert (run.status.state, run.provenance.ranks) == (State.DONE, ranks)
        assert np.count_nonzero(run.served) > 8
        assert np.bincount(run.clients_array["rank"], minlength=ranks)[1:].min() >= 16 // (ranks - 1)
    assert logistic.replay() == 0


@pytest.mark.parametrize(("ranks", "told"), [(1, "start 2 to 5"), (6, "6 ranks are more than one server and")])
def test_a_wrong_number_of_ranks_is_reported_once(quadratic: Launcher, ranks: int, told: str) -> None:
    ended = quadratic.run(ranks, "clients.count=4")
    assert ended.code == 2
    assert ended.errors.count(told) == 1
    assert "type `mpirun -n 5 areabench run ...`" in ended.errors
    assert "Traceback" not in ended.errors
    assert not quadratic.run_file.exists()


def test_launch_checks_the_number_of_ranks_before_it_starts_any(
    quadratic: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["launch", str(quadratic.experiment), "--ranks", "4", "--output", str(quadratic.run_file)]
    assert cli.main(arguments) == 2
    assert "4 ranks are more than" in capsys.readouterr().err


def test_a_model_beyond_the_size_of_a_message_is_refused(quadratic: Launcher) -> None:
    limit = "from areabench.engine import messages\nmessages.LARGEST_MESSAGE_BYTES = 100"
    ended = quadratic.run(3, defect=limit)
    assert ended.code == 2
    assert "a model of 6 parameters (float64) is a message of 112 bytes, MPI takes at most 100" in ended.errors
    assert "Traceback" not in ended.errors
    assert not quadratic.run_file.exists()


@pytest.mark.timed
def test_a_stretched_clock_keeps_the_times_of_the_experiment(quadratic: Launcher) -> None:
    ended = quadratic.completed(3, "clock.stretch=4", "delays.name=fixed", "rates.rate=10", "stop.horizon_s=0.55")
    assert ended.wall_s > 4 * 0.55
    with quadratic.recorded() as run:
        updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        assert (run.status.end_s, run.experiment.clock.stretch) == (0.55, 4.0)
        assert run.status.updates == 10
        assert (updates["drawn_delay_s"] == 0.1).all()
        assert (updates["realised_delay_s"] < 0.2).all()
        assert (updates["compute_s"] > 0).all()
    assert quadratic.replay() == 0


def test_a_worker_rank_loads_only_what_it_needs(logistic: Launcher) -> None:
    """A tenth of a second of imports on each of 129 ranks is six seconds on two cores."""
    listing = """
import atexit
import sys
from pathlib import Path

atexit.register(lambda: Path(f"modules.{rank}").write_text(" ".join(sys.modules)))
"""
    assert logistic.run(3, defect=listing).code == 0
    server, worker = ((logistic.folder / f"modules.{rank}").read_text().split() for rank in (0, 1))
    heavy = {
        "h5py",
        "scipy",
        "matplotlib",
        "pandas",
        "torch",
        "rich",
        "threadpoolctl",
        "numpy.ma",
        "uuid",
        "difflib",
        "areabench.engine.evaluation",
        "areabench.engine.diagnosis",
        "areabench.launching.mpirun",
        "areabench.views.styled",
    }
    assert {"h5py", "areabench.engine.evaluation"} <= set(server)
    assert not {"matplotlib", "pandas", "torch", "rich"} & set(server)
    assert not heavy & set(worker)
    assert "areabench.problems.logistic" in worker
