"""A run on MPI under watch: what is seen of it, and that it does not notice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from areabench.cli.watch import frames
from areabench.engine.events import State
from areabench.views.watch.follower import Follower
from areabench.views.watch.frame import Frame
from areabench.views.watch.quality import Evaluator

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

LIMIT_S = 90.0


@pytest.mark.slow
def test_a_run_on_mpi_is_watched(logistic: Launcher) -> None:
    seen: list[Frame] = []
    watching = threading.Thread(target=_watch, args=(logistic.run_file, seen), daemon=True)
    watching.start()
    logistic.completed(3, "stop.horizon_s=2.5")
    watching.join(LIMIT_S)
    assert seen[0].state == "waiting"
    assert any(0 < (frame.updates or 0) < (seen[-1].updates or 0) for frame in seen)  # it was seen on its way
    assert (seen[-1].state, seen[-1].transport, seen[-1].ranks) == ("done", "mpi", 3)
    with logistic.recorded() as run:
        assert run.status.state == State.DONE
        assert seen[-1].updates == run.status.updates
        assert [client.served for client in seen[-1].clients] == run.served.tolist()
        assert seen[-1].quality is not None
        assert seen[-1].quality.train_loss == run.metrics_array[-1]["train_loss"]
    assert logistic.replay() == 0


def _watch(path: Path, seen: list[Frame]) -> None:
    """Twenty looks per second."""
    follower = Follower(path, LIMIT_S, Evaluator(path, path.parent / "cache", ()))
    seen.extend(frames(follower, 0.05))
