"""A damaged run file: every reading command says so in one line, and `areabench recover` saves what can be saved."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.cases import Case
from tests.campaign.checks import check_ended
from tests.campaign.commands import Room
from tests.campaign.findings import Finding
from tests.campaign.processes import Ended

from areabench.errors import UserError
from areabench.runfile.read import open_run

READING = {"show": (0, 2), "summary": (0, 2), "diagnose": (0, 2), "replay": (0, 1, 2)}  # and their exit codes
RECOVERING = (0, 2)
MOST_FLIPS = 16


def damage(case: Case, path: Path, damaged: Path) -> None:
    """Write a damaged copy of a run file."""
    content, chance = bytearray(path.read_bytes()), random.Random(case.damage_seed)
    if case.kind.detail == "truncated":
        del content[chance.randrange(len(content)) :]
    else:
        for _ in range(chance.randint(1, MOST_FLIPS)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    damaged.write_bytes(content)


def check_damage(case: Case, room: Room, finding: Finding) -> None:
    """Damage a copy of the file; what reads it ends in order, and what is recovered can be read."""
    damaged, saved = room.folder / "damaged.h5", room.folder / "recovered.h5"
    damage(case, room.run_file, damaged)
    for command, codes in READING.items():
        ended = room.call(f"damaged-{command}", command, str(damaged))
        _check_told(finding, ended, codes, f"{command} of a damaged file")
    ended = room.call("recover", "recover", str(damaged), "-o", str(saved))
    _check_told(finding, ended, RECOVERING, "recover")
    finding.recovered = ended.code == 0
    if finding.recovered:
        _check_recovered(case, room, finding, saved)


def _check_told(finding: Finding, ended: Ended, codes: Sequence[int], what: str) -> None:
    """It ended with one of these exit codes, and where it could not do its work it says why in one line."""
    check_ended(finding, ended, what)
    finding.require(ended.code in codes, f"{what}: exit code {ended.code}")
    told = ended.code != 2 or (ended.errors.startswith("areabench: ") and ended.errors.count("\n") == 1)
    finding.require(told, f"{what} does not say in one line what is wrong: {ended.errors[:200]!r}")


def _check_recovered(case: Case, room: Room, finding: Finding, saved: Path) -> None:
    """It can be read, and what it has of a truncated file's events are the first ones."""
    try:
        with open_run(saved) as run:
            events = run.events_array
        with open_run(room.run_file) as run:
            whole = run.events_array
    except UserError as error:
        finding.recovered = False
        finding.fail(f"what was recovered cannot be read: {error}")
        return
    shown = room.call("recovered-show", "show", str(saved))
    check_ended(finding, shown, "show of what was recovered")
    finding.require(shown.code == 0, f"show of what was recovered: exit code {shown.code}")
    if case.kind.detail == "truncated":
        prefix = events.tobytes() == whole[: len(events)].tobytes()
        finding.require(prefix, "what was recovered are not the first events of the run")
