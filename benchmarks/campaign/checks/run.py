"""How a run ended, when, and what its file says of the fault."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from benchmarks.campaign.cases import Case
from benchmarks.campaign.checks.ended import check_ended, is_one_line
from benchmarks.campaign.checks.file import check_file
from benchmarks.campaign.commands import Room
from benchmarks.campaign.faults import Strike, defect_shown
from benchmarks.campaign.findings import Finding
from benchmarks.campaign.kinds import DONE, MPI, Act, Expected, either
from benchmarks.campaign.processes import Ended

from areabench.engine.events import Kind, Reason, State, Status, exit_code
from areabench.runfile.read import Run, open_run

OVERTIME_S = 20.0  # how long after its horizon a run on MPI may take to end, evaluation included
PATIENCE_S = 60.0  # that clients have to stop where no signal came
NO_FILE = "no file"
LATE_S = 0.7  # a fault this shortly before the end of a run may have no visible effect
ENDED = (State.DONE, State.TARGET, State.DIVERGED)
_LATE_SIGNALS = (-signal.SIGTERM, -signal.SIGINT)  # that kill a process whose run has just ended


def check_run(case: Case, room: Room, finding: Finding, struck: Strike, ended: Ended) -> None:
    """Everything about the run itself."""
    check_ended(finding, ended, "the run")
    finding.code, finding.hit = ended.code, struck.delivered
    status = check_file(room, finding, room.run_file, "the run")
    if status is None:
        return
    finding.state, finding.refused, finding.lost = status.state.text, status.refused, status.lost
    finding.hit = _was_hit(case, room, status, struck, ended)
    expected = _expected(case, struck) if finding.hit else replace(DONE, codes=(0, *_LATE_SIGNALS))
    says = expected.says.format(victim=case.victim)
    finding.require(says in status.reason, f"says {status.reason!r}, expected {says!r} in it")
    _check_end(finding, expected, status, ended, _moment(case, room, struck))
    _check_counts(case, room, finding, expected, status)
    if expected.one_line:
        finding.require(is_one_line(ended.errors), f"does not say one line: {ended.errors[:300]!r}")
    if case.kind.launch:
        finding.require(ended.code == exit_code(status), f"is {status.state.text}, but the exit code is {ended.code}")
    if case.kind.transport == MPI and expected.ends_within_s is None:
        over_s, most_s = ended.ended_at - struck.begun_at - case.drawn.horizon_s, OVERTIME_S + case.pause_s
        finding.require(over_s <= most_s, f"ended {over_s:.1f} s after its horizon, expected {most_s:.1f} at most")
    left = room.checkpoint.exists()
    finding.require(left or not expected.checkpoint, "there is no checkpoint")
    finding.require(not (left and status.state in ENDED), f"the run is {status.state.text} and its checkpoint is left")


def _expected(case: Case, struck: Strike) -> Expected:
    """What must be seen after what came about."""
    if case.kind.act is Act.TWO:
        return either(struck.faults)
    expected = case.expected
    if case.kind.act is Act.STOP_FOR_GOOD and case.waits_for_limit:
        within_s = case.drawn.horizon_s + PATIENCE_S + OVERTIME_S
        return replace(expected, states=(State.FAILED,), codes=(1,), ends_within_s=within_s)
    return expected


def check_never_begun(case: Case, room: Room, finding: Finding, ended: Ended) -> None:
    """A run that a death at its start has ended: soon, with a line that names the rank, and without a file."""
    check_ended(finding, ended, "the run")
    shown, moment = defect_shown(room)
    finding.hit, finding.code, finding.state = shown > 0, ended.code, NO_FILE
    finding.require(finding.hit, "the rank did not die")
    expected = case.expected
    finding.require(ended.code in (expected.codes or ()), f"exit code {ended.code}, expected {expected.codes}")
    finding.ending_s = ended.ended_at - moment
    within = finding.ending_s <= (expected.ends_within_s or 0)
    finding.require(within, f"took {finding.ending_s:.1f} s to end, expected {expected.ends_within_s} at most")
    named = re.compile(rf"^areabench: .*\branks? \[?{case.dying_rank}\b.*{expected.says}", re.MULTILINE)
    finding.require(bool(named.search(ended.errors)), f"rank {case.dying_rank} is not named: {ended.errors[:600]!r}")
    left = sorted(path.name for path in room.run_file.parent.iterdir())
    finding.require(not left, f"left {left}")


def _moment(case: Case, room: Room, struck: Strike) -> float:
    """When the fault came, Unix time."""
    return defect_shown(room)[1] if case.kind.act is Act.DEFECT else struck.at


def _was_hit(case: Case, room: Room, status: Status, struck: Strike, ended: Ended) -> bool:
    """Whether the fault came before the run had ended: one that leaves no trace counts only where it was early."""
    if case.kind.act in (Act.NOTHING, Act.DAMAGE, Act.DAMAGE_CACHE):
        return True
    if case.kind.act is Act.DEFECT and not defect_shown(room)[0]:
        return False
    if not struck.delivered:
        return False
    undisturbed = status.state == State.DONE and status.refused == 0 and status.lost == 0
    if undisturbed and ended.code in _LATE_SIGNALS:
        return False  # the run was recorded, and its process about to end
    traceless = undisturbed and ended.code == 0
    if (case.expected == DONE and not case.pair) or not traceless:
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
    finding.require(status.lost in expected.lost, f"{status.lost} clients lost, expected {expected.lost}")
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
    struck = {case.victim_of(turn) for turn in range(max(1, len(case.pair)))}
    finding.require(set(lost["client"]) <= struck, f"lost {lost['client']}, expected {struck}")
    if expected == case.kind.expected and expected.lost == (1,) and State.DONE in expected.states and len(lost):
        later = events[(events["time_s"] > lost["time_s"][0]) & (events["kind"] == Kind.UPDATE)]
        others = set(later["client"]) - {case.victim}
        late = lost["time_s"][0] > case.drawn.horizon_s - LATE_S
        finding.require(bool(others) or late, "no client continued after the loss")
        finding.require(run.status.end_s == case.drawn.horizon_s, f"ended at {run.status.end_s} s, before its horizon")
        finding.require(case.victim not in set(later["client"]), "the lost client sent updates after it was lost")
