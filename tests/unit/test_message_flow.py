"""The picture of who worked when, on a run whose times are known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from areabench import open_run
from areabench.cli import main

ROOT = Path(__file__).parents[2]
EXPERIMENT = str(ROOT / "benchmarks" / "message_flow.toml")


@pytest.fixture(scope="module")
def message_flow() -> Any:
    sys.path.insert(0, str(ROOT / "analysis"))
    import message_flow

    yield message_flow
    sys.path.remove(str(ROOT / "analysis"))


def test_rounds_and_steps_of_a_run(message_flow: Any, tmp_path: Path) -> None:
    """Cycles of 1/4, 1/2 and 1 s, a step after each second update; the reply leaves before the step it triggers."""
    path = tmp_path / "run.h5"
    changes = ("--set", "rates.values=[4, 2, 1]", "--set", "stop.horizon_s=0.9")
    assert main(["simulate", EXPERIMENT, *changes, "--output", str(path)]) == 0
    with open_run(path) as run:
        flow = message_flow.flow_of(run)
    assert (flow.method, flow.clients, flow.end_s) == ("area", 3, 0.9)
    assert sorted(flow.rounds) == [(0, 0.0, 0.25, 0), (0, 0.25, 0.5, 0), (0, 0.5, 0.75, 1), (1, 0.0, 0.5, 0)]
    assert flow.steps_s == [0.5, 0.75]


def test_the_picture_has_a_lane_for_each_client(message_flow: Any, tmp_path: Path) -> None:
    """Two panels with three clients and a server each."""
    run_file, figure = tmp_path / "run.h5", tmp_path / "figure.svg"
    assert main(["simulate", EXPERIMENT, "--output", str(run_file)]) == 0
    message_flow.main([str(run_file), str(run_file)], str(figure))
    assert figure.read_text().count(">client 2<") == 2
    assert (ROOT / "docs" / "message-flow.svg").read_text().count(">client 2<") == 2
