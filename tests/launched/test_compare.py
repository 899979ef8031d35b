"""A run on MPI against its simulated twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from areabench.cli.main import main
from areabench.results.comparison import compare_runs

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = pytest.mark.slow


def test_one_client_does_the_same_on_both_clocks(logistic: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    """With one client there is one order of arrivals, and only their times can differ."""
    changes = ("clients.count=1", "stop={iterations = 25}")
    assert logistic.run(2, *changes).code == 0
    with logistic.simulated(*changes) as simulated, logistic.recorded() as recorded:
        found = compare_runs(simulated, recorded)
        capsys.readouterr()
        assert main(["compare", str(simulated.path), str(recorded.path)]) == 0
    assert found.order is not None
    assert (found.order.common, found.order.distance, found.order.differs_at) == (20, 0.0, None)
    assert (found.updates.second, found.server_steps.second, found.staleness_distance) == (20, 5, 0.0)
    assert found.loss.final.difference_percent == 0.0
    assert "real time minus simulated: " in capsys.readouterr().out
