"""A sweep of which a file was damaged: its table is refused, and is what it was when the sweep was started again."""

from __future__ import annotations

import random

from benchmarks.campaign.cases import Case
from benchmarks.campaign.checks.damage import flip_row
from benchmarks.campaign.checks.ended import check_ended, check_reported
from benchmarks.campaign.commands import Room
from benchmarks.campaign.findings import Finding

FOLDER, FILE = "sweep", "grid.toml"
GRID = "\n[sweep]\ntrials = 2\n\n[[sweep.grid]]\nmethod.step_size = [0.01, 0.02]\n"
REFUSED = "refused"


def check_sweep(case: Case, room: Room, finding: Finding) -> None:
    """Sweep, damage a file, look, follow the advice, and look again."""
    (room.folder / FILE).write_text(case.drawn.text + GRID)
    if not _sweep(room, finding, "sweep"):
        return
    before = _table(room, finding, "table-before", (0,))
    flipped = _flip(case, room)
    refused = _table(room, finding, "table-damaged", (2,))
    finding.hit, finding.code, finding.state = True, 2 if refused is None else 0, REFUSED
    if flipped == "sweep.toml":
        (room.folder / FOLDER / flipped).unlink()  # as the message says
    if _sweep(room, finding, "sweep-again"):
        after = _table(room, finding, "table-after", (0,))
        finding.require(before == after, "the table is another one when the sweep was started again")


def _flip(case: Case, room: Room) -> str:
    """Flip a bit in sweep.toml or in a run file; returns the name of the file."""
    chance, folder = random.Random(case.damage_seed), room.folder / FOLDER
    if case.kind.detail == "run":
        path = chance.choice(sorted(folder.glob("*.h5")))
        flip_row(chance, path)
        return path.name
    path = folder / "sweep.toml"
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return path.name


def _sweep(room: Room, finding: Finding, name: str) -> bool:
    ended = room.call(name, "sweep", FILE, "-o", FOLDER, "--jobs", "1")
    check_ended(finding, ended, name)
    return finding.require(ended.code == 0, f"{name}: exit code {ended.code}: {(ended.output + ended.errors)[-300:]}")


def _table(room: Room, finding: Finding, name: str, codes: tuple[int, ...]) -> str | None:
    """The table that is printed, if one is."""
    ended = room.call(name, "table", FOLDER, "--keep", "all", "--format", "csv")
    check_reported(finding, ended, codes, name)
    return ended.output if ended.code == 0 else None
