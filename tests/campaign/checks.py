"""What must hold after each run: how it ended, what its file holds, that it replays, resumes and can be recovered."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.campaign.cases import Case, needs_reference
from tests.campaign.commands import Room
from tests.campaign.contents import broken_invariant, difference
from tests.campaign.faults import Strike, defect_shown
from tests.campaign.findings import Finding
from tests.campaign.kinds import DONE, MPI, Act, Expected
from tests.campaign.processes import Ended

from areabench.engine.events import Kind, Reason, State, Status
from areabench.errors import UserError
from areabench.runfile.read import Run, open_run

OVERTIME_S = 20.0  # how long after its horizon a run on MPI may take to end, evaluation included
LATE_S = 0.7  # a fault this shortly before the end of a run may have no visible effect
ENDED = (State.DONE, State.TARGET, State.DIVERGED)


def check_ended(finding: Finding, ended: Ended, what: str) -> None:
    """A command has ended by itself, left no process behind and shown no traceback."""
    if ended.hung:
        finding.no_hang = False
        finding.fail(f"{what} hung")
    elif ended.left:
        finding.none_left = False
        finding.fail(f"{what}: {ended.left} processes were left")
    finding.require("Traceback (most recent call last)" not in ended.errors, f"{what}: shows a traceback")


def check_run(case: Case, room: Room, finding: Finding, struck: Strike, ended: Ended) -> None:
    """Everything about the run itself."""
    check_ended(finding, ended, "the run")
    finding.code, finding.hit = ended.code, struck.delivered
    status = check_file(room, finding, room.run_file, "the run")
    if status is None:
        return
    finding.state, finding.refused, finding.lost = status.state.text, status.refused, status.lost
    finding.hit = _was_hit(case, room, status, struck, ended)
    expected = case.expected if finding.hit else DONE
    says = expected.says.format(victim=case.victim)
    finding.require(says in status.reason, f"says {status.reason!r}, expected {says!r} in it")
    _check_end(finding, expected, status, ended, _moment(case, room, struck))
    _check_counts(case, room, finding, expected, status)
    if case.kind.transport == MPI:
        over_s = ended.ended_at - struck.begun_at - case.drawn.horizon_s
        finding.require(
            over_s <= OVERTIME_S, f"ended {over_s:.1f} s after its horizon, expected {OVERTIME_S:g} at most"
        )
    left = room.checkpoint.exists()
    finding.require(left or not expected.checkpoint, "there is no checkpoint")
    finding.require(not (left and status.state in ENDED), f"the run is {status.state.text} and its checkpoint is left")


def _moment(case: Case, room: Room, struck: Strike) -> float:
    """When the fault came, Unix time."""
    return defect_shown(room)[1] if case.kind.act is Act.DEFECT else struck.at


def _was_hit(case: Case, room: Room, status: Status, struck: Strike, ended: Ended) -> bool:
    """Whether the fault came before the run had ended: one that leaves no trace counts only where it was early."""
    if case.kind.act in (Act.NOTHING, Act.DAMAGE):
        return True
    if case.kind.act is Act.DEFECT and not defect_shown(room)[0]:
        return False
    if not struck.delivered:
        return False
    traceless = status.state == State.DONE and ended.code == 0 and status.refused == 0 and status.lost == 0
    if case.expected == DONE or not traceless:
        return True
    earliest_end = struck.begun_at + case.drawn.horizon_s if case.kind.transport == MPI else ended.ended_at
    return _moment(case, room, struck) < earliest_end - LATE_S


def _check_end(finding: Finding, expected: Expected, status: Status, ended: Ended, moment: float) -> None:
    states = ", ".join(state.text for state in expected.states)
    finding.require(status.state in expected.states, f"is {status.state.text} ({status.reason}), expected {states}")
    right = ended.code != 0 if expected.codes is None else ended.code in expected.codes
    finding.require(right, f"exit code {ended.code}, expected {expected.codes or 'another than 0'}")
    if expected.ends_within_s is not None:
        finding.ending_s = ended.ended_at - moment
        within = finding.ending_s <= expected.ends_within_s
        finding.require(within, f"took {finding.ending_s:.1f} s to end, expected {expected.ends_within_s:g} at most")


def _check_counts(case: Case, room: Room, finding: Finding, expected: Expected, status: Status) -> None:
    finding.require(status.lost == expected.lost, f"{status.lost} clients lost, expected {expected.lost}")
    if expected.reason is None or case.stops:
        finding.require(case.stops or status.refused == 0, f"{status.refused} updates refused, expected none")
    else:
        shown = defect_shown(room)[0]  # the last one may have come after the end
        right = shown - 1 <= status.refused <= shown
        finding.require(right, f"{status.refused} updates refused, expected {shown} or one less")
    with open_run(room.run_file) as run:
        _check_events(case, finding, expected, run)


def _check_events(case: Case, finding: Finding, expected: Expected, run: Run) -> None:
    """Refused and lost ones are in the event log, with their reasons, and the others continued."""
    events = run.events_array
    refused, lost = events[events["kind"] == Kind.REFUSED], events[events["kind"] == Kind.LOST]
    reasons = {Reason(int(reason)) for reason in refused["reason"]}
    wanted = {expected.reason} if expected.reason is not None else set()
    finding.require(reasons <= wanted, f"refused for {reasons}, expected {wanted}")
    if expected.lost:
        finding.require(set(lost["client"]) == {case.victim}, f"lost {lost['client']}, expected client {case.victim}")
    if expected == case.kind.expected and expected.lost and State.DONE in expected.states and len(lost):
        later = events[(events["time_s"] > lost["time_s"][0]) & (events["kind"] == Kind.UPDATE)]
        others = set(later["client"]) - {case.victim}
        late = lost["time_s"][0] > case.drawn.horizon_s - LATE_S
        finding.require(bool(others) or late, "no client continued after the loss")
        finding.require(run.status.end_s == case.drawn.horizon_s, f"ended at {run.status.end_s} s, before its horizon")
        finding.require(case.victim not in set(later["client"]), "the lost client sent updates after it was lost")


# ------------------------------------------------------------------------------------------------------ the file


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
    broken = broken_invariant(path, room.folder / "cache") if equal else ""
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


# ---------------------------------------------------------------------------------------------------- resuming


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
