"""What the doctor starts: `python -m areabench.launching.doctor_ranks facts` alone, `... message` on two ranks."""

from __future__ import annotations

import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from areabench.transports.world import World


_ROUNDS = 200
_TAG = 7


def facts() -> dict[str, str]:
    """The library that mpi4py loads; MPI is not started (the doctor sets MPI4PY_RC_INITIALIZE)."""
    from areabench.transports.world import World

    library = object.__new__(World).library  # a world would be of started ranks; the name needs none
    return {"library": library, "path": _loaded_library()}


def _loaded_library() -> str:
    """The file of the MPI library in this process; empty where the system does not list them."""
    import psutil

    if psutil.LINUX:
        for each in psutil.Process().memory_maps():
            if Path(each.path).name.startswith(("libmpi.", "libmpich.")):
                return str(each.path)
    return ""


def message() -> dict[str, int | float | str]:
    """What a rank finds: its world, and on rank 0 the time of a small message one way, in microseconds."""
    from areabench.transports.world import World

    world = World()
    latency_us = _exchange(world) if world.size > 1 and world.rank < 2 else 0.0
    world.barrier()
    return {"rank": world.rank, "size": world.size, "latency_us": latency_us, "library": world.library}


def _exchange(world: World) -> float:
    """Send a message to the other rank and back, many times; half the median time, in microseconds."""
    other = 1 - world.rank
    times_s = [time.perf_counter()]
    for number in range(_ROUNDS):
        if world.rank == 0:
            world.comm.send(number, dest=other, tag=_TAG)
        if world.comm.recv(source=other, tag=_TAG) != number:
            raise SystemExit(f"message {number} came back as another")
        if world.rank == 1:
            world.comm.send(number, dest=other, tag=_TAG)
        times_s.append(time.perf_counter())
    return statistics.median(after_s - before_s for before_s, after_s in pairwise(times_s)) / 2 * 1e6


if __name__ == "__main__":
    found = facts() if sys.argv[1:] == ["facts"] else message()
    sys.stdout.write(json.dumps(found) + "\n")  # in one piece: ranks share the output
