"""Damaged run files: every command refuses a number that has changed, and what is recovered has none."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import h5py
import numpy as np
from benchmarks.campaign.cases import Case
from benchmarks.campaign.checks.ended import check_ended, check_reported
from benchmarks.campaign.commands import Room
from benchmarks.campaign.findings import Finding
from numpy.typing import NDArray
from tests.support.edited import flip

from areabench.errors import UserError
from areabench.runfile.read import Run, open_run

READING = ("show", "summary", "diagnose", "replay")
ALSO_READING = ("compare", "report", "watch")  # one of these in each case
MOST_FLIPS = 16
CERTAIN = ("row", "attribute", "status")  # damages that change a number; others may strike what nobody reads
ATTRIBUTES = (("/", "experiment"), ("provenance", "command"), ("provenance", "blas"), ("provenance", "platform"))


def damage(detail: str, chance: random.Random, path: Path, damaged: Path) -> None:
    """Write a damaged copy of a run file."""
    shutil.copyfile(path, damaged)
    if detail in ("row", "status"):
        flip_row(chance, damaged, ["status"] if detail == "status" else None)
        return
    content = bytearray(path.read_bytes())
    if detail == "truncated":
        del content[chance.randrange(len(content)) :]
    elif detail == "attribute":
        content[_place_in_attribute(chance, path, content)] ^= 1 << chance.randrange(8)
    else:
        for _ in range(chance.randint(1, MOST_FLIPS)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    damaged.write_bytes(content)


def flip_row(chance: random.Random, path: Path, names: list[str] | None = None) -> None:
    """Flip a bit of a number in one of these datasets, or in any."""
    with h5py.File(path, "r") as file:
        found: list[str] = []
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.size else None)
        name = chance.choice(names or sorted(found))
        row = chance.randrange(len(file[name])) if file[name].shape else 0
        size = file[name].dtype.itemsize * int(np.prod(file[name].shape[1:]))
    flip(path, name, row, byte=chance.randrange(size), bit=chance.randrange(8))


def _place_in_attribute(chance: random.Random, path: Path, content: bytearray) -> int:
    """A byte of a text attribute."""
    group, name = chance.choice(ATTRIBUTES)
    with h5py.File(path, "r") as file:
        text = file[group].attrs[name]
    value = text.encode() if isinstance(text, str) else bytes(text)
    return content.index(value) + chance.randrange(len(value))


def check_damage(case: Case, room: Room, finding: Finding) -> None:
    """Damage a copy of the file; what reads it refuses it or is right, and what is recovered is as it was."""
    whole, damaged = room.folder / "intact.h5", room.folder / "broken.h5"  # names of equal length, for their tables
    shutil.copyfile(room.run_file, whole)
    chance = random.Random(case.damage_seed)
    damage(case.kind.detail, chance, whole, damaged)
    for command in (*READING, chance.choice(ALSO_READING)):
        _check_reading(case, room, finding, command)
    saved = room.folder / "recovered.h5"
    ended = room.call("recover", "recover", str(damaged), "-o", str(saved))
    check_reported(finding, ended, (0, 2), "recover")
    finding.recovered = ended.code == 0
    if finding.recovered:
        _check_recovered(room, finding, saved, ended.output)


def _check_reading(case: Case, room: Room, finding: Finding, command: str) -> None:
    """A command refuses the damaged file; where the damage may change nothing, it may also print what it should."""
    what = f"{command} of a damaged file"
    ended = room.call(f"damaged-{command}", command, *_arguments(command, "broken.h5"))
    check_reported(finding, ended, (2,) if case.kind.detail in CERTAIN else (0, 2), what)
    if ended.code == 0:
        right = room.call(f"intact-{command}", command, *_arguments(command, "intact.h5"))
        same = ended.output.replace("broken.h5", "intact.h5") == right.output
        finding.require(same, f"{what} prints other numbers and no error")


def _arguments(command: str, name: str) -> list[str]:
    more = {"compare": [name], "report": ["-o", f"{name}.html"], "watch": ["--once"]}
    return [name, *more.get(command, [])]


def _check_recovered(room: Room, finding: Finding, saved: Path, said: str) -> None:
    """It can be read and shown, and everything in it was in the run."""
    try:
        with open_run(saved) as run, open_run(room.run_file) as whole:
            changed = changed_number(run, whole)
    except UserError as error:
        finding.recovered = False
        finding.fail(f"what was recovered cannot be read: {error}")
        return
    finding.require(not changed, f"what was recovered has other {changed} than the run: {said.strip()}")
    shown = room.call("recovered-show", "show", str(saved))
    check_ended(finding, shown, "show of what was recovered")
    finding.require(shown.code == 0, f"show of what was recovered: exit code {shown.code}")


def changed_number(run: Run, whole: Run) -> str:
    """The first part of a recovered run that is not the beginning of the same part of the whole one, or left out."""
    if run.experiment != whole.experiment:
        return "settings"
    parts = {
        "events": (run.events_array, whole.events_array),
        "snapshots": (run.snapshot_index, whole.snapshot_index),
        "models": (run.models, whole.models),
        "metrics": (run.metrics_array, whole.metrics_array),
    }
    for name, (some, every) in parts.items():
        if not _begins(every, some):
            return name
    if len(run.metrics_array) not in (0, len(whole.metrics_array)):
        return "metrics"
    if not _same_clients(run.clients_array, whole.clients_array):
        return "clients"
    complete = len(run.events_array) == len(whole.events_array)
    counts = (run.status.updates, run.status.server_steps, run.status.refused, run.status.lost)
    known = (whole.status.updates, whole.status.server_steps, whole.status.refused, whole.status.lost)
    return "counts" if complete and counts != known else ""


def _begins(every: NDArray[np.void], some: NDArray[np.void]) -> bool:
    return every[: len(some)].tobytes() == some.tobytes()


def _same_clients(some: NDArray[np.void], every: NDArray[np.void]) -> bool:
    """The same, or nothing but their numbers."""
    return bool(some.tobytes() == every.tobytes() or np.isnan(some["rate"]).all())
