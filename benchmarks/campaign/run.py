"""One case from start to end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

from benchmarks.campaign.cases import Case, needs_reference
from benchmarks.campaign.checks.damage import check_damage
from benchmarks.campaign.checks.data import check_data, damage_cache
from benchmarks.campaign.checks.ended import check_ended
from benchmarks.campaign.checks.resume import check_damaged_checkpoint, check_resume
from benchmarks.campaign.checks.run import check_never_begun, check_run
from benchmarks.campaign.checks.sweep import check_sweep
from benchmarks.campaign.commands import LIMIT_S, Room, run_command, why_no_mpi, why_no_ulfm
from benchmarks.campaign.defects import FIRST_MODULE, MODULE, defect_module, start_module
from benchmarks.campaign.faults import APPEARS_S, Disc, open_disc, strike
from benchmarks.campaign.findings import Finding
from benchmarks.campaign.kinds import MPI, Act
from benchmarks.campaign.processes import RANK_VARIABLES, end_all, new_token


def run_case(case: Case, seed: int, folder: Path) -> Finding:
    """Run a case in a folder of its own, which is kept where something failed."""
    drawn = case.drawn
    finding = Finding(seed, case.number, case.kind.key, drawn.method, drawn.problem, drawn.clients)
    begun_s, own = time.monotonic(), folder / case.name
    finding.skipped = _why_not(case, folder)
    if not finding.skipped:
        _clear(own)
        _run_in(case, own, new_token(f"{seed}-{case.number}"), finding)
    finding.wall_s = time.monotonic() - begun_s
    if finding.passed:
        shutil.rmtree(own, ignore_errors=True)
    else:
        (own / "failures.txt").write_text("\n".join([f"{case}", f"expected: {case.expected}", *finding.failures, ""]))
    return finding


def _why_not(case: Case, folder: Path) -> str:
    if case.kind.transport != MPI:
        return ""
    return why_no_ulfm(folder) if case.kind.ulfm else why_no_mpi()


def _clear(folder: Path) -> None:
    """Remove what an interrupted campaign has left."""
    if os.path.ismount(folder / "disc"):
        subprocess.run(["umount", "--lazy", str(folder / "disc")], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _run_in(case: Case, folder: Path, token: str, finding: Finding) -> None:
    small = case.fills and case.damage_seed % 4 > 0  # by a limit in the fourth case
    disc = open_disc(folder / "disc", small=small)
    room = Room(folder, token, disc.folder / "run.h5")
    try:
        room.experiment.write_text(case.drawn.text)
        if case.kind.act is Act.DEFECT:
            (folder / f"{MODULE}.py").write_text(defect_module(case, RANK_VARIABLES))
        if case.kind.act is Act.DIE_AT_START:
            (folder / f"{FIRST_MODULE}.py").write_text(start_module(case, RANK_VARIABLES))
        _play(case, room, disc, finding)
    except Exception:  # a case that cannot be judged has failed, and the campaign continues
        finding.fail(traceback.format_exc())
    finally:
        end_all(token)
        disc.close()


def _play(case: Case, room: Room, disc: Disc, finding: Finding) -> None:
    """The run, its fault, and what must hold afterwards."""
    act = case.kind.act
    if act is Act.DAMAGE_SWEEP:
        check_sweep(case, room, finding)
        return
    duration_s = _reference_s(room, finding) if needs_reference(case) else case.drawn.horizon_s
    if act is Act.DAMAGE_CACHE:
        damage_cache(case, room)
    started = room.begin(run_command(case, room), "run")
    struck = strike(case, room, started, disc, duration_s)
    ended = started.end(LIMIT_S)
    disc.make_room()
    if act is Act.DIE_AT_START:
        check_never_begun(case, room, finding, ended)
        return
    check_run(case, room, finding, struck, ended)
    if act is Act.DAMAGE_CHECKPOINT and finding.hit and finding.passed:
        check_damaged_checkpoint(case, room, finding)
    check_resume(case, room, finding)
    if act is Act.DAMAGE_CACHE:
        check_data(case, room, finding, ended)
    if act is Act.DAMAGE and finding.passed:
        check_damage(case, room, finding)


def _reference_s(room: Room, finding: Finding) -> float:
    """Run the experiment undisturbed; returns how long it took from the moment that its file was there, in seconds."""
    words = ["simulate", str(room.experiment), "--output", str(room.reference)]
    started = room.begin([sys.executable, "-m", "areabench", *words], "reference")
    started.wait_until(room.reference.exists, APPEARS_S)
    begun_at = time.time()
    ended = started.end(LIMIT_S)
    check_ended(finding, ended, "the reference")
    finding.require(ended.code == 0, f"the reference: exit code {ended.code}")
    return ended.ended_at - begun_at
