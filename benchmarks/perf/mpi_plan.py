"""What the MPI benchmark measures: which launches there are, and which cells of the tables each of them fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from areabench.engine.messages import HEADER_BYTES

DTYPE = np.dtype(np.float32)
PAPER_BYTES = HEADER_BYTES + 7_840 * DTYPE.itemsize
# areabench's server with bare clients; its own clients too; with AREA's rule; with event log and run file as well
DEPTHS = ("server", "wire", "rule", "all")
_CROWD = 8  # from this number on, clients starve an MPICH server on few cores unless they sleep


@dataclass(frozen=True)
class Style:
    """How the ranks of a bare loop wait."""

    client: str
    server: str


STYLES = {
    "inside MPI": Style("blocking", "blocking"),
    "yielding": Style("yielding", "yielding"),
    "sleeping": Style("sleeping", "sleeping"),
    "server sleeping": Style("blocking", "sleeping"),
}


@dataclass(frozen=True)
class Cell:
    """One message size: what is measured in turns, how long each piece lasts, and how many turns there are."""

    size: int  # bytes of a message, its header included
    styles: tuple[str, ...]  # of the bare loop
    depths: tuple[str, ...]  # of areabench
    duration_s: float
    turns: int


@dataclass(frozen=True)
class Launch:
    """One mpirun: a server and a number of clients fill some cells; or polls are measured, with these many clients."""

    clients: int  # each on its own rank, except where polls are measured
    cells: tuple[Cell, ...]
    polls: tuple[int, ...] = ()

    @property
    def client_style(self) -> str:
        """How bare clients wait for areabench's server."""
        return self.cells[0].styles[-2]

    @property
    def measuring_s(self) -> float:
        """The total length of its pieces."""
        return sum(cell.turns * cell.duration_s * len(cell.styles + cell.depths) for cell in self.cells)


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    crowds: tuple[int, ...]  # clients, at the paper's message size
    sizes: dict[int, tuple[int, ...]]  # message sizes, by clients
    polls: tuple[int, ...]  # clients on two ranks
    duration_s: float
    turns: int


FULL = Effort(
    crowds=(1, 4, 32, 128),
    sizes={1: (10**3, 10**4, 10**5, 10**6, 10**7, 10**8), 4: (10**3, 10**5, 10**6, 10**7)},
    polls=(128, 10_000),
    duration_s=0.3,
    turns=7,
)
QUICK = Effort(crowds=(1, 2), sizes={1: (10**3, 10**6)}, polls=(4, 8), duration_s=0.05, turns=2)


def plan_launches(effort: Effort, *, yields: bool) -> list[Launch]:
    """The launches of one MPI; `yields` says whether it yields the core while it waits for messages."""
    launches = []
    for clients in effort.crowds:
        styles = bare_styles(clients, yields=yields)
        cells = [Cell(PAPER_BYTES, styles, DEPTHS, effort.duration_s, effort.turns)]
        cells += [size_cell(size, styles[:2], effort) for size in effort.sizes.get(clients, ())]
        launches.append(Launch(clients, tuple(cells)))
    return [*launches, Launch(2, (), effort.polls)]


def bare_styles(clients: int, *, yields: bool) -> tuple[str, ...]:
    """The ways to wait that may be the best for the bare loop; one that starves the server is left out.

    The last but one is how bare clients wait for areabench's server.
    """
    if clients < _CROWD:
        return ("yielding", "inside MPI", "sleeping") if yields else ("inside MPI", "yielding", "sleeping")
    return ("inside MPI", "server sleeping", "sleeping") if yields else ("sleeping", "yielding")


def size_cell(size: int, styles: tuple[str, ...], effort: Effort) -> Cell:
    """Server and wire against the bare loop; a large message gets time for several transfers."""
    duration_s = effort.duration_s * max(1.0, size / 3e7)
    return Cell(size, styles, DEPTHS[:2], duration_s, max(2, effort.turns - 2))


class Piece(NamedTuple):
    """A piece of a measurement: how many clients, how long a message is with its header, how long it lasts."""

    clients: int
    size: int
    duration_s: float

    @property
    def dimension(self) -> int:
        """Parameters of the model that a message carries."""
        return (self.size - HEADER_BYTES) // DTYPE.itemsize


# ---------------------------------------------------------------------------------------------------- as JSON


def launch_from(values: dict[str, Any]) -> Launch:
    """A launch as `asdict` and JSON leave it."""
    cells = [
        Cell(cell["size"], tuple(cell["styles"]), tuple(cell["depths"]), cell["duration_s"], cell["turns"])
        for cell in values["cells"]
    ]
    return Launch(values["clients"], tuple(cells), tuple(values["polls"]))


@dataclass(frozen=True)
class Measured:
    """A measured cell: messages per second of each turn, by what was measured, and the load of other processes."""

    clients: int
    size: int
    bare: dict[str, list[float]]  # by style
    depths: dict[str, list[float]]
    others: float  # share of the cores that other processes used; NaN where the system does not report it


@dataclass(frozen=True)
class Polled:
    """What one poll of the server takes, in seconds; medians."""

    clients: int
    empty_s: float  # nothing is here
    found_s: float  # an update is


@dataclass(frozen=True)
class Report:
    """What one launch found."""

    library: str
    cells: Sequence[Measured]
    polls: Sequence[Polled] = ()

    def as_values(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def report_from(values: dict[str, Any]) -> Report:
    """A report as JSON leaves it."""
    cells = [Measured(**cell) for cell in values["cells"]]
    polls = [Polled(**poll) for poll in values["polls"]]
    return Report(values["library"], cells, polls)
