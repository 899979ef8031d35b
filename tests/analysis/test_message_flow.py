"""The pictures of docs/methods.md are those that `make message-flow` draws."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import areabench

ROOT = Path(__file__).parents[2]


def test_the_picture_has_a_lane_for_each_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_file = tmp_path / "run.h5"
    areabench.simulate(ROOT / "benchmarks" / "experiments" / "demo" / "message_flow.toml", output=run_file).close()
    monkeypatch.syspath_prepend(str(ROOT / "analysis"))
    from message_flow import main as draw

    draw([str(run_file)], tmp_path)
    sys.modules.pop("message_flow")
    for folder in (tmp_path, ROOT / "docs"):
        drawn = (folder / "message-flow-area.svg").read_text(encoding="utf-8")
        assert [drawn.count(f">client {client} (") for client in range(4)] == [1, 1, 1, 0]
