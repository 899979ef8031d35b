"""A run file that is whole: it can be read, shown and replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.campaign.checks.contents import broken_invariant
from benchmarks.campaign.checks.ended import check_ended
from benchmarks.campaign.commands import Room
from benchmarks.campaign.findings import Finding

from areabench.engine.events import Status
from areabench.errors import UserError
from areabench.runfile.read import open_run


def check_file(room: Room, finding: Finding, path: Path, what: str) -> Status | None:
    """A run file can be read and shown, and replays bit for bit; returns its status."""
    try:
        status = read_whole(path)
    except UserError as error:
        finding.readable = False
        finding.fail(f"{what}: its file cannot be read: {error}")
        return None
    shown = room.call(f"show-{path.stem}", "show", str(path))
    check_ended(finding, shown, f"show of {what}")
    shows = finding.require(shown.code == 0, f"show of {what}: exit code {shown.code}")
    finding.readable = shows and finding.readable is not False
    replay = room.call(f"replay-{path.stem}", "replay", str(path))
    check_ended(finding, replay, f"replay of {what}")
    said = (replay.output + replay.errors).strip()
    equal = finding.require(replay.code == 0, f"replay of {what}: exit code {replay.code}: {said[-300:]}")
    broken = broken_invariant(path, room.cache) if equal else ""
    finding.replayed = finding.require(not broken, broken) and equal and finding.replayed is not False
    return status


def read_whole(path: Path) -> Status:
    """Read everything that a run file holds; returns its status."""
    with open_run(path) as run:
        models = [run.model(number) for number in range(len(run.snapshot_index))]
        if not all(np.isfinite(model).all() for model in models):
            raise UserError("a model is not finite")
        if len(run.events_array) < run.status.updates:
            raise UserError(f"{len(run.events_array)} events, but {run.status.updates} updates")
        return run.status
