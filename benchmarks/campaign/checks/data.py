"""Unpacked data that were damaged before a run: they are unpacked again, with a line, and the run has sound ones."""

from __future__ import annotations

import random

from benchmarks.campaign.cases import Case, needs_reference
from benchmarks.campaign.checks.contents import difference
from benchmarks.campaign.commands import Room
from benchmarks.campaign.findings import Finding
from benchmarks.campaign.processes import Ended

from areabench.problems.data.images import image_folder
from areabench.problems.data.mnist import MNIST, Mnist

SAYS = "it is unpacked again"
MOST_ZEROED = 4096  # bytes


def damage_cache(case: Case, room: Room) -> None:
    """Unpack the data and flip a bit of them, or zero some bytes, in place."""
    Mnist().prepare(room.cache)
    chance = random.Random(case.damage_seed)
    path = chance.choice(sorted(image_folder(room.cache, MNIST).glob("*.npy")))
    path.chmod(0o644)
    content = path.read_bytes()
    place = chance.randrange(len(content))
    new = bytes([content[place] ^ 1 << chance.randrange(8)]) if case.always else bytes(chance.randint(1, MOST_ZEROED))
    whole = content[:place] + new[: len(content) - place] + content[place + len(new) :]
    path.write_bytes(whole)


def check_data(case: Case, room: Room, finding: Finding, ended: Ended) -> None:
    """The run says that the data were damaged, and has the numbers of a run with sound ones."""
    finding.require(SAYS in ended.errors, f"does not say that data are unpacked again: {ended.errors[:300]!r}")
    found = difference(room.reference, room.run_file) if needs_reference(case) else ""
    finding.require(not found, f"the run is not the one with sound data: {found}")
