"""Checkpoints: what was stopped continues to its end, and a damaged checkpoint is refused."""

from __future__ import annotations

import random

from benchmarks.campaign.cases import Case, needs_reference
from benchmarks.campaign.checks.contents import difference
from benchmarks.campaign.checks.ended import check_ended, check_reported
from benchmarks.campaign.checks.file import check_file
from benchmarks.campaign.checks.run import ENDED
from benchmarks.campaign.commands import Room
from benchmarks.campaign.findings import Finding

from areabench.engine.events import State


def check_damaged_checkpoint(case: Case, room: Room, finding: Finding) -> None:
    """With a bit flipped, the checkpoint is refused and the run file left alone; afterwards it is as it was."""
    whole, recorded = room.checkpoint.read_bytes(), room.run_file.read_bytes()
    damaged, chance = bytearray(whole), random.Random(case.damage_seed)
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    room.checkpoint.write_bytes(damaged)
    refused = room.call("resume-damaged", "resume", str(room.run_file))
    check_reported(finding, refused, (2,), "resume from a damaged checkpoint")
    finding.require(room.run_file.read_bytes() == recorded, "resume from a damaged checkpoint has changed the run file")
    finding.require(room.checkpoint.read_bytes() == damaged, "resume has changed the damaged checkpoint")
    room.checkpoint.write_bytes(whole)


def check_resume(case: Case, room: Room, finding: Finding) -> None:
    """Where there is a checkpoint of a run that has not ended, it continues to its end."""
    if not room.checkpoint.exists() or finding.state in {state.text for state in ENDED}:
        return
    resumed = room.call("resume", "resume", str(room.run_file))
    check_ended(finding, resumed, "resume")
    said = (resumed.output + resumed.errors).strip()
    finding.resumed = finding.require(resumed.code == 0, f"resume: exit code {resumed.code}: {said[-300:]}")
    status = check_file(room, finding, room.run_file, "the resumed run")
    if status is None or not finding.resumed:
        finding.resumed = False
        return
    done = finding.require(status.state == State.DONE, f"the resumed run is {status.state.text} ({status.reason})")
    gone = finding.require(not room.checkpoint.exists(), "the resumed run is done and its checkpoint is left")
    found = difference(room.reference, room.run_file) if needs_reference(case) else ""
    same = finding.require(not found, f"the resumed run is not the uninterrupted one: {found}")
    finding.resumed = done and gone and same
