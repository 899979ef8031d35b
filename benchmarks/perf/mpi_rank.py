"""The program of every rank of the MPI benchmark: rank 0 serves and counts, the others are clients.

mpirun -n RANKS python benchmarks/perf/mpi_rank.py LAUNCH.json REPORT.json

Both sides are measured in this one launch in turns: the bare loop with several ways to wait, then areabench.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from mpi4py import MPI
from mpi_plan import DTYPE, PAPER_BYTES, STYLES, Cell, Launch, Measured, Piece, Polled, Report, launch_from
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.client import place
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import Reason, State, Status
from areabench.engine.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    Shapes,
    Tag,
    Update,
    UpdateHeader,
    pack_update,
)
from areabench.engine.scenario import Scenario
from areabench.errors import RunFailure
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area, area
from areabench.problems.base import Problem
from areabench.problems.quadratic import Quadratic
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.settings.parse import to_toml
from areabench.timing.delays import RoundTime
from areabench.transports.clock import RealClock, sharpen_sleep
from areabench.transports.mpi_server import MessageBuffer, MpiServerLink
from areabench.transports.mpi_worker import MpiWorkerLink
from areabench.transports.server_loop import RealTimeServer, RunMonitors, ServerLink
from areabench.transports.simulator import LaneRecorder
from areabench.transports.worker_loop import HostedClient, Worker
from areabench.transports.world import World

_GO, _STOP = 0, 1  # the first byte of what the server sends
_TAG = 99

_MOMENT_S = 10e-6  # of a server
_SHORTEST_S, _LONGEST_S = 20e-6, 5e-3  # of a client

Wait = Callable[[Sequence[MPI.Request]], None]
Poll = Callable[[list[MPI.Prequest]], list[int] | None]


def wait_blocking(requests: Sequence[MPI.Request]) -> None:
    """Wait inside MPI: spins, or yields the core where the library knows that ranks outnumber cores."""
    MPI.Request.Waitall(requests)


def wait_yielding(requests: Sequence[MPI.Request]) -> None:
    """Poll, and offer the core to others between two polls."""
    while not MPI.Request.Testall(requests):
        os.sched_yield()


class Sleeper:
    """Polls with pauses; the first is half of what the last wait took, so that many ranks do not poll in vain."""

    def __init__(self) -> None:
        self._last_s = 100e-6

    def __call__(self, requests: Sequence[MPI.Request]) -> None:
        """Wait for all of them."""
        begun_s = time.perf_counter()
        pause_s = max(_SHORTEST_S, 0.5 * self._last_s)
        while not MPI.Request.Testall(requests):
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_S)
        self._last_s = min(time.perf_counter() - begun_s, _LONGEST_S)


WAITS: dict[str, Wait] = {"blocking": wait_blocking, "yielding": wait_yielding, "sleeping": Sleeper()}


def some_blocking(requests: list[MPI.Prequest]) -> list[int] | None:
    """The messages that have arrived; waits inside MPI for the first."""
    return MPI.Request.Waitsome(requests)


def some_yielding(requests: list[MPI.Prequest]) -> list[int] | None:
    """The messages that have arrived; yields the core if there are none."""
    done = MPI.Request.Testsome(requests)
    if not done:
        os.sched_yield()
    return done


def some_sleeping(requests: list[MPI.Prequest]) -> list[int] | None:
    """The messages that have arrived; sleeps for a moment if there are none."""
    done = MPI.Request.Testsome(requests)
    if not done:
        time.sleep(_MOMENT_S)
    return done


POLLS: dict[str, Poll] = {"blocking": some_blocking, "yielding": some_yielding, "sleeping": some_sleeping}


def serve_bare(comm: MPI.Comm, piece: Piece, wait: str) -> int:
    """Rank 0: answer every message with one of the same length; returns how many arrived within the piece."""
    incoming = [np.zeros(piece.size, np.uint8) for _ in range(piece.clients)]
    outgoing = [np.zeros(piece.size, np.uint8) for _ in range(piece.clients)]
    receives = [comm.Recv_init(buffer, source=client + 1, tag=_TAG) for client, buffer in enumerate(incoming)]
    sends = [comm.Send_init(buffer, dest=client + 1, tag=_TAG) for client, buffer in enumerate(outgoing)]
    MPI.Prequest.Startall(receives)
    MPI.Prequest.Startall(sends)
    count = _echo(receives, sends, POLLS[wait], piece.duration_s)
    _dismiss(receives, sends, outgoing)
    return count


def _echo(receives: list[MPI.Prequest], sends: list[MPI.Prequest], poll: Poll, duration_s: float) -> int:
    count = 0
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        for slot in (done := poll(receives) or ()):
            sends[slot].Wait()  # already complete: the client has answered
            receives[slot].Start()
            sends[slot].Start()
        count += len(done)
    return count


def _dismiss(receives: list[MPI.Prequest], sends: list[MPI.Prequest], outgoing: Sequence[NDArray[np.uint8]]) -> None:
    """Answer each client's last message with a stop."""
    left = len(receives)
    while left:
        done = MPI.Request.Testsome(receives) or ()
        for slot in done:
            sends[slot].Wait()
            outgoing[slot][0] = _STOP
            sends[slot].Start()
        left -= len(done)
        os.sched_yield()
    Sleeper()(sends)
    for request in (*receives, *sends):
        request.Free()


def work_bare(comm: MPI.Comm, size: int, wait: str) -> None:
    """A client's rank: answer until told to stop."""
    incoming = np.zeros(size, np.uint8)
    outgoing = np.zeros(size, np.uint8)
    flag = incoming.data
    receive = comm.Recv_init(incoming, source=0, tag=_TAG)
    send = comm.Send_init(outgoing, dest=0, tag=_TAG)
    both = [receive, send]
    wait_for = WAITS[wait]
    receive.Start()
    wait_for([receive])
    while flag[0] == _GO:
        MPI.Prequest.Startall(both)
        wait_for(both)
    receive.Free()
    send.Free()


# ---------------------------------------------------------------------------------------------------- the wire


class IdleClient:
    """A client that computes nothing."""

    trains = True
    flags = 0

    def __init__(self, dimension: int) -> None:
        self.round = 0
        self._payload = np.zeros(dimension, DTYPE)

    def work(self, _order: Order) -> Vector:
        """The same payload for every order."""
        self.round += 1
        return self._payload


def begin_at_once(order: Order, _number: int) -> tuple[Order, RoundTime]:
    """A round without a delay."""
    return order, RoundTime(0.0, order.local_steps)


def shapes_of(piece: Piece) -> Shapes:
    """AREA's messages: models, residuals and memories are vectors of one length."""
    like = np.empty(piece.dimension, DTYPE)
    return Shapes(like, None, like, like)


@dataclass(frozen=True)
class Wire:
    """The two ends of a link: only this class knows how links are made and clients are run."""

    open_server: Callable[[World, Piece], Any]
    work: Callable[[World, Piece], None]


def _open_server(world: World, piece: Piece) -> MpiServerLink:
    return MpiServerLink(world, place(piece.clients, piece.clients + 1), shapes_of(piece))


def _work(world: World, piece: Piece) -> None:
    """A client's rank, from the barrier to the stop."""
    number = world.rank - 1
    client = IdleClient(piece.dimension)
    link = MpiWorkerLink(world, [number], shapes_of(piece))
    hosted = HostedClient(client, begin_at_once)  # type: ignore[arg-type]  # all that the loop uses of a client
    world.together(lambda: None)
    Worker(link, {number: hosted}, RealClock(), world.cores).work()
    link.leave()


AREABENCH = Wire(_open_server, _work)


def bare_clients(style: str) -> Wire:
    """areabench's server with the clients of the bare loop: measures the server alone."""
    wait_for = WAITS[STYLES[style].client]

    def work(world: World, piece: Piece) -> None:
        number = world.rank - 1
        comm = world.comm
        model = np.empty(piece.dimension, DTYPE)
        incoming = MessageBuffer(model)
        outgoing = MessageBuffer(model)
        receive = comm.Recv_init(incoming.whole, source=0, tag=Tag.ORDER)
        send = comm.Send_init(outgoing.whole, dest=0, tag=Tag.UPDATE)
        pack_update(outgoing.header, UpdateHeader(number, 0, 0), piece.dimension * DTYPE.itemsize)
        both = [receive, send]
        flags = incoming.header[2:3]
        receive.Start()
        world.together(lambda: None)
        wait_for([receive])
        while flags[0] != Flag.STOP:
            type(receive).Startall(both)
            wait_for(both)
        pack_update(outgoing.header, UpdateHeader(number, -1, -1, flags=Flag.LEAVING))
        comm.Send(outgoing.whole[:HEADER_BYTES], dest=0, tag=Tag.UPDATE)
        receive.Free()
        send.Free()

    return Wire(_open_server, work)


# ---------------------------------------------------------------------------------------------------- polls

_POLLS = 300  # that find an update


def play_polls(world: World, clients: int) -> Polled:
    """What a poll takes with so many clients on the ranks of this world; rank 0 alone measures."""
    piece = Piece(clients, PAPER_BYTES, 0.0)
    if world.rank == 0:
        return measure_polls(MpiServerLink(world, place(clients, world.size), shapes_of(piece)), piece, world)
    client = IdleClient(piece.dimension)
    link = MpiWorkerLink(world, place(clients, world.size).hosted(world.rank), shapes_of(piece))
    hosted = {number: HostedClient(client, begin_at_once) for number in link.clients}  # type: ignore[arg-type]
    world.together(lambda: None)
    Worker(link, hosted, RealClock(), world.cores).work()
    link.leave()
    return Polled(clients, 0.0, 0.0)


def measure_polls(link: MpiServerLink, piece: Piece, world: World) -> Polled:
    """Give one client after the other an order, and time every poll until its update is here."""
    model = np.zeros(piece.dimension, DTYPE)
    times_s = (list[float](), list[float]())
    world.together(lambda: None)
    for turn in range(_POLLS):
        link.order(Order(turn % piece.clients, model, 1.0, 0, 0))
        here = False
        while not here:
            begun_s = time.perf_counter()
            here = bool(link.arrivals())
            times_s[here].append(time.perf_counter() - begun_s)
    link.stop_all()
    left = 0
    while left < piece.clients:
        left += len(link.arrivals())
    link.close()
    return Polled(piece.clients, *(float(np.median(each)) for each in times_s))


# ---------------------------------------------------------------------------------------------------- the server


class EchoConductor:
    """Stands in for the conductor: every update is answered with the same model."""

    timer_s = math.inf
    service_s = 0.0

    def __init__(self, piece: Piece, link: ServerLink) -> None:
        self.updates = 0
        self.horizon_s = piece.duration_s
        self.next_check_s = piece.duration_s
        self._link = link
        self._clients = piece.clients
        self._model = np.zeros(piece.dimension, DTYPE)

    def start(self) -> None:
        """Send the model to everybody."""
        for client in range(self._clients):
            self._link.order(Order(client, self._model, 1.0, 0, 0))

    def update(self, update: Update, _time_s: float, _queue_s: float) -> None:
        """Send the model back."""
        self.updates += 1
        self._link.order(Order(update.header.client, self._model, 1.0, 0, 0, Flag.REPLY))

    def refuse(self, client: int, reason: Reason, _time_s: float) -> None:
        """No client of a measurement sends what cannot be used."""
        raise RunFailure(f"the server refused an update of client {client}: {reason.name}; the piece measures nothing")

    def require_progress(self) -> None:
        """A piece ends by the clock."""

    def ended(self, time_s: float) -> Status | None:
        """Whether the piece is over."""
        return Status(State.DONE, "", time_s, self.updates, 0, 0) if time_s > self.horizon_s else None

    def discard(self, update: Update, time_s: float) -> None:
        """Too late."""

    def finish(self, status: Status) -> Status:
        """Nothing to do at the end."""
        return status


@dataclass(frozen=True)
class SizedProblem:
    """The part of a problem that the server needs."""

    dimension: int
    dtype: np.dtype[Any] = DTYPE


def idle_scenario(piece: Piece, *, record: Record) -> Scenario:
    """AREA at its defaults, for clients that compute nothing."""
    experiment = Experiment(
        clients=Clients(count=piece.clients), method=Area(step_size=1.0), stop=Stop(horizon_s=piece.duration_s),
        problem=Quadratic(dimension=piece.dimension), record=record,
    )  # fmt: skip
    problem = cast(Problem, SizedProblem(piece.dimension))
    start = np.zeros(piece.dimension, DTYPE)
    ones = np.ones(piece.clients)
    return Scenario(experiment, problem, area(piece.clients), start, ones, ones.astype(np.int64), None)


class IdleRecorder(LaneRecorder):
    """Counts, and writes nothing."""

    def spare_moment(self) -> bool:
        """There is nothing to write."""
        return False


def build_server(
    depth: str, piece: Piece, link: ServerLink, folder: Path, *, spare_cores: bool = False
) -> tuple[RealTimeServer, Recorder]:
    """The real server's loop with as much around it as the depth says."""
    whole = depth == "all"
    scenario = idle_scenario(piece, record=Record(events=whole, snapshots="grid" if whole else "none"))
    recorder = cast(Recorder, IdleRecorder(1))
    if whole:
        text = to_toml(scenario.experiment)
        record = scenario.experiment.record
        recorder = Recorder(folder / "run.h5", text, piece.dimension, DTYPE, force=True, record=record)
        recorder.begin(gather_provenance("mpi", "", "", 0), scenario.client_table())
    monitors = RunMonitors(NoTarget(), lambda _time_s, _updates: None)
    server = RealTimeServer(scenario, link, recorder, monitors, spare_cores=spare_cores)
    if depth in ("server", "wire"):
        server._conductor = EchoConductor(piece, link)  # type: ignore[assignment]
    return server, recorder


def serve_depth(world: World, wire: Wire, depth: str, piece: Piece) -> int:
    """Rank 0: the updates that arrived within the piece."""
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


def play_bare(world: World, style_name: str, piece: Piece) -> int:
    """One piece of the bare loop on every rank; the count on rank 0, 0 elsewhere."""
    style = STYLES[style_name]
    world.together(lambda: None)
    if world.rank == 0:
        return serve_bare(world.comm, piece, style.server)
    work_bare(world.comm, piece.size, style.client)
    return 0


def fill(world: World, launch: Launch, cell: Cell) -> Measured:
    """Measure a cell in turns."""
    piece = Piece(launch.clients, cell.size, cell.duration_s)
    bare: dict[str, list[float]] = {style: [] for style in cell.styles}
    depths: dict[str, list[float]] = {depth: [] for depth in cell.depths}
    clock = MachineClock(world)
    for _ in range(cell.turns):
        for style, rates in bare.items():
            rates.append(play_bare(world, style, piece) / piece.duration_s)
        for depth, rates in depths.items():
            wire = bare_clients(launch.client_style) if depth == "server" else AREABENCH
            rates.append(play_depth(world, wire, depth, piece) / piece.duration_s)
    return Measured(launch.clients, cell.size, bare, depths, clock.others())


class MachineClock:
    """The share of this machine's cores that other processes have used since it was made."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun = (time.perf_counter(), _busy_s(), _own_s())

    def others(self) -> float:
        """The share on rank 0; NaN where the system does not report it."""
        wall_s, busy_s, own_s = (
            now - begun
            for now, begun in zip((time.perf_counter(), _busy_s(), _own_s()), self._begun, strict=True)
        )  # fmt: skip
        ranks_s: float = sum(self._world.comm.allgather(own_s))
        return max(0.0, (busy_s - ranks_s) / (wall_s * (os.cpu_count() or 1)))


def _own_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _busy_s() -> float:
    """Seconds that all cores of this machine have worked since it started; NaN where the system does not report it."""
    listing = Path("/proc/stat")
    if not listing.exists():
        return math.nan
    ticks = [int(word) for word in listing.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # without idle, without waiting for discs


def main() -> None:
    """Fill the cells of a launch; rank 0 writes the report."""
    plan = Path(sys.argv[1])
    output = Path(sys.argv[2])
    launch = launch_from(json.loads(plan.read_text(encoding="utf-8")))
    sharpen_sleep()
    world = World()
    try:
        cells = [fill(world, launch, cell) for cell in launch.cells]
        polls = [play_polls(world, clients) for clients in launch.polls]
        report = Report(world.library, cells, polls)
    except Exception:  # the other ranks would wait forever
        traceback.print_exc()
        world.abort()
        raise
    if world.rank == 0:
        output.write_text(json.dumps(report.as_values()), encoding="utf-8")


if __name__ == "__main__":
    main()
