"""What is measured against the bare loop: areabench's own links and loops, with no delays and nothing computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from mpi_bare import WAITS
from mpi_plan import DTYPE, STYLES, Piece

from areabench.arrays import Vector
from areabench.engine.client import place
from areabench.engine.conductor import Handling
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import State, Status
from areabench.engine.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    Tag,
    Update,
    UpdateHeader,
    pack_update,
    tag_of,
)
from areabench.engine.scenario import Scenario, build_method
from areabench.experiment.parse import to_toml
from areabench.experiment.problem_records import Quadratic
from areabench.experiment.records import (
    Area,
    Clients,
    Experiment,
    Record,
    Stop,
)
from areabench.problems.base import Problem
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.transports.clock import Clock
from areabench.transports.mpi_server import Buffer, MpiServerLink
from areabench.transports.mpi_worker import MpiWorkerLink
from areabench.transports.server_loop import RealTimeServer, ServerLink, Watchers
from areabench.transports.simulator import LaneRecorder
from areabench.transports.worker_loop import Seat, Worker
from areabench.transports.world import World

# ---------------------------------------------------------------------------------------------------- the wire


class IdleClient:
    """A client that computes nothing."""

    def __init__(self, dimension: int) -> None:
        self.round, self._payload = 0, np.zeros(dimension, DTYPE)

    def work(self, _model: Vector, _step_size: float) -> Vector:
        """The same payload for every order."""
        self.round += 1
        return self._payload


@dataclass(frozen=True)
class Wire:
    """The two ends of a wire: the only place here that knows how links are made and clients are run."""

    open_server: Callable[[World, Piece], Any]
    work: Callable[[World, Piece], None]


def _open_server(world: World, piece: Piece) -> MpiServerLink:
    return MpiServerLink(world, place(piece.clients, piece.clients + 1), piece.dimension, DTYPE)


def _work(world: World, piece: Piece) -> None:
    """A client's rank, from the barrier to the farewell."""
    number, client = world.rank - 1, IdleClient(piece.dimension)
    link = MpiWorkerLink(world, [number], piece.dimension, DTYPE)
    seat = Seat(client, lambda: 0.0)  # type: ignore[arg-type]  # all that the loop uses of a client
    world.together(lambda: None)
    Worker(link, {number: seat}, Clock(), world.cores).work()
    link.depart()


AREABENCH = Wire(_open_server, _work)


def bare_clients(style: str) -> Wire:
    """areabench's server, asked by the clients of the bare loop: what the server alone takes."""
    wait_for = WAITS[STYLES[style].client]

    def work(world: World, piece: Piece) -> None:
        number, comm = world.rank - 1, world.comm
        incoming, outgoing = Buffer(piece.dimension, DTYPE), Buffer(piece.dimension, DTYPE)
        receive = comm.Recv_init(incoming.whole, source=0, tag=tag_of(Tag.ORDER, number))
        send = comm.Send_init(outgoing.whole, dest=0, tag=tag_of(Tag.UPDATE, number))
        pack_update(outgoing.header, UpdateHeader(number, 0, 0))
        both, flags = [receive, send], incoming.header[2:3]
        receive.Start()
        world.together(lambda: None)
        wait_for([receive])
        while flags[0] != Flag.STOP:
            type(receive).Startall(both)
            wait_for(both)
        pack_update(outgoing.header, UpdateHeader(number, -1, -1, flags=Flag.FAREWELL))
        comm.Send(outgoing.whole[:HEADER_BYTES], dest=0, tag=tag_of(Tag.UPDATE, number))
        receive.Free()
        send.Free()

    return Wire(_open_server, work)


# ---------------------------------------------------------------------------------------------------- the server


class EchoConductor:
    """Stands in for the conductor: every update is answered with the same model."""

    timer_s = math.inf
    handling = Handling()

    def __init__(self, piece: Piece, link: ServerLink) -> None:
        self.updates, self.horizon_s = 0, piece.duration_s
        self._link, self._clients, self._model = link, piece.clients, np.zeros(piece.dimension, DTYPE)

    def start(self) -> None:
        """Send the model to everybody."""
        for client in range(self._clients):
            self._link.order(Order(client, self._model, 1.0, 0, 0))

    def update(self, update: Update, _time_s: float, _queue_s: float) -> None:
        """Send the model back."""
        self.updates += 1
        self._link.order(Order(update.header.client, self._model, 1.0, 0, 0, Flag.REPLY))

    def ended(self, time_s: float) -> Status | None:
        """Whether the piece is over."""
        return Status(State.DONE, "", time_s, self.updates, 0, 0) if time_s > self.horizon_s else None

    def discard(self, update: Update, time_s: float) -> None:
        """Too late."""

    def finish(self, status: Status) -> Status:
        """Nothing is left to do."""
        return status


@dataclass(frozen=True)
class SizedProblem:
    """All that the server asks of a problem."""

    dimension: int
    dtype: np.dtype[Any] = DTYPE


def idle_scenario(piece: Piece, *, record: Record) -> Scenario:
    """AREA at its defaults, for clients that compute nothing."""
    experiment = Experiment(
        clients=Clients(count=piece.clients), method=Area(step_size=1.0), stop=Stop(horizon_s=piece.duration_s),
        problem=Quadratic(dimension=piece.dimension), record=record,
    )  # fmt: skip
    problem = cast(Problem, SizedProblem(piece.dimension))
    start, ones = np.zeros(piece.dimension, DTYPE), np.ones(piece.clients)
    return Scenario(experiment, problem, build_method(experiment), start, ones, ones.astype(np.int64), "")


class IdleRecorder(LaneRecorder):
    """Counts, and writes nothing."""

    def spare_moment(self) -> bool:
        """There is never something to write."""
        return False


def build_server(
    depth: str, piece: Piece, link: ServerLink, folder: Path, *, spare_cores: bool = False
) -> tuple[RealTimeServer, Recorder]:
    """The real server's loop with as much around it as the depth says."""
    whole = depth == "all"
    scenario = idle_scenario(piece, record=Record(events=whole, snapshots="grid" if whole else "none"))
    recorder = cast(Recorder, IdleRecorder(1))
    if whole:
        text, record = to_toml(scenario.experiment), scenario.experiment.record
        recorder = Recorder(folder / "run.h5", text, piece.dimension, DTYPE, force=True, record=record)
        recorder.begin(gather_provenance("mpi", "", "", 0), scenario.client_table())
    watchers = Watchers(NoTarget(), lambda _time_s, _updates: None)
    server = RealTimeServer(scenario, link, recorder, watchers, spare_cores=spare_cores)
    if depth in ("server", "wire"):
        server._conductor = EchoConductor(piece, link)  # type: ignore[assignment]
    return server, recorder


def serve_depth(world: World, wire: Wire, depth: str, piece: Piece) -> int:
    """Rank 0: the updates that came in within the piece."""
    keeping: AbstractContextManager[str] = TemporaryDirectory() if depth == "all" else nullcontext("")
    with keeping as folder:
        link = wire.open_server(world, piece)
        server, recorder = build_server(depth, piece, link, Path(folder), spare_cores=world.cores.spare)
        world.together(lambda: None)
        status = server.run()
        link.close()
        if depth == "all":
            recorder.close()
    return status.updates


def play_depth(world: World, wire: Wire, depth: str, piece: Piece) -> int:
    """One piece on every rank; the count on rank 0, 0 elsewhere."""
    if world.rank == 0:
        return serve_depth(world, wire, depth, piece)
    wire.work(world, piece)
    return 0
