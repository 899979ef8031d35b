"""Client updates per second of areabench and of other frameworks, on the same work, in turns in one run.

make bench-peers, or: python benchmarks/perf/bench_peers.py [--quick] [--only NAME ...] [--torch TORCH] [--output FILE]

The other frameworks are installed into environments of their own (peers/environments.py); peers/NAME_peer.py runs one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from bench_page import describe_machine, markdown_table, number, page_options, print_page, run_script
from peers.environments import Needs, make_environment
from peers.window import Plan, Report, checked

from areabench.engine.data import load_data
from areabench.errors import UserError
from areabench.problems.data.mnist import Mnist

HOME = Path("build") / "peers"


@dataclass(frozen=True)
class Entrant:
    """A row of the table: its program and environment, the scheme that it runs, and what to know about its numbers."""

    name: str
    program: tuple[str, ...]  # module and arguments
    needs: Needs | None  # None: this Python
    scheme: str
    remark: str


ENTRANTS = (
    Entrant(
        "areabench, simulator", ("peers.areabench_peer",), None,
        "FedBuff in virtual time, all clients in flight",
        "One process. The event log and the run file are written. The gradient is numpy's, not torch's.",
    ),
    Entrant(
        "areabench, simulator, torch", ("peers.areabench_peer", "torch"), None,
        "the same with torch's gradient (`torch.nn.Linear`)",
        "One process, which gathers images as bytes and steps without torch's optimiser: it can pass `torch alone`.",
    ),
    Entrant(
        "areabench, MPI", ("peers.areabench_peer", "mpi"), None,
        "FedBuff in real time, all clients in flight",
        "Three ranks: a server and two that share the clients. Delays of a microsecond. The only row with messages "
        "between processes besides Flower's.",
    ),
    Entrant(
        "torch alone", ("peers.torch_work",), Needs("plain", "numpy", "torch"),
        "a loop over the clients, no server",
        "No framework: local steps in torch's usual way, nothing is sent or averaged. What a framework on torch needs "
        "more than this row is its own.",
    ),
    Entrant(
        "APPFL", ("peers.appfl_peer",), Needs("appfl", "appfl==1.12.0", "appfl.vsim"),
        "FedBuff on its virtual clock (`vsim`), all clients in flight",
        "One process; its transports (MPI, gRPC, Ray) are not used. Its trainer loads each sample of a batch by itself "
        "(torch's DataLoader) and computes a metric of every update, here one that does nothing. `optimize_memory`, "
        "on by default, collects garbage several times per update and is off.",
    ),
    Entrant(
        "FLGo", ("peers.flgo_peer",), Needs("flgo", "flgo==0.4.4", "flgo"),
        "FedBuff on its virtual clock, as many clients at a time as the buffer holds",
        "One process. Each sample of a batch is loaded by itself (torch's DataLoader, made again for each update). Its "
        "own MNIST decodes and scales every image each time; here the images are tensors, which is faster. A method "
        "that newer torch asks for is added to its data set.",
    ),
    Entrant(
        "FLSim", ("peers.flsim_peer",), Needs("flsim", "flsim==0.1.0", "flsim.trainers.async_trainer"),
        "FedBuff on its virtual clock, on average all clients in flight",
        "One process. It builds client and optimiser from a configuration for each update. Batches are ready tensors. "
        "Of 2022: its records are made hashable, else Python 3.11 does not import it.",
    ),
    Entrant(
        "Flower", ("peers.flower_peer",), Needs("flower", "flwr[simulation]==1.41.0", "flwr.simulation"),
        "synchronous rounds of FedAvg with all clients: it has no asynchronous strategy",
        "Several processes: Ray's actors, one per core, each message through Ray's store. Server and actors look for "
        "messages every 0.1 s, which limits small rounds. Its clients run the loop of the row `torch alone`. "
        "1.42.0 could not be installed when this was written: the package index lacked a certifi that it requires.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    cells: tuple[tuple[int, int], ...]  # clients, local steps
    window_s: float
    turns: int


FULL = Effort(((4, 1), (4, 50), (128, 1), (128, 50)), 3.0, 3)
QUICK = Effort(((4, 1),), 0.2, 1)


class Piece(NamedTuple):
    """One program in one cell of the table."""

    entrant: str
    cell: tuple[int, int]


Rates = dict[Piece, list[float]]  # updates per second, one of each turn
Failures = dict[str, str]  # what is missing, and why

# ---------------------------------------------------------------------------------------------------- measuring

_LIMIT_S = 150.0  # of a program, besides its window; Ray's start on a busy machine takes a minute
_PATIENCE_S = 10.0
_QUIET = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
    "TQDM_DISABLE": "1", "WANDB_MODE": "disabled", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}  # fmt: skip


def write_data(folder: Path) -> None:
    """MNIST's training images and labels as files that every numpy reads."""
    data = load_data(Mnist(), folder)
    np.save(folder / "images.npy", data.train_features)
    np.save(folder / "labels.npy", data.train_labels)


def find_pythons(entrants: Iterable[Entrant], torch: str) -> tuple[dict[str, Path], Failures]:
    """The Python of each entrant, and of those that cannot be installed the reason."""
    pythons = {}
    failures = {}
    for entrant in entrants:
        try:
            needs = entrant.needs
            pythons[entrant.name] = make_environment(HOME, needs, torch) if needs else Path(sys.executable)
        except UserError as error:
            failures[entrant.name] = f"not installed: {error}"
    return pythons, failures


def measure_piece(python: Path, entrant: Entrant, plan: Plan) -> Report:
    """Run a program in a process group of its own, read its report from the last line."""
    path = Path(plan.folder) / "plan.json"
    path.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    module, *arguments = entrant.program
    command = [str(python), "-m", module, str(path), *arguments]
    here = str(Path(__file__).parent.resolve())
    folders = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = os.environ | _QUIET | {"PYTHONPATH": folders}
    if entrant.needs is not None:
        environment["HOME"] = plan.folder  # for what it writes there
    with subprocess.Popen(
        command, cwd=plan.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=_LIMIT_S + plan.window_s)
        except subprocess.TimeoutExpired:
            end_group(process)
            raise UserError(f"took more than {_LIMIT_S + plan.window_s:.0f} s") from None
    if process.returncode != 0:
        raise UserError((errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return checked(Report(**json.loads(output.splitlines()[-1])), plan)


def end_group(process: subprocess.Popen[str]) -> None:
    """End a program with what it has started; mpirun ends its ranks if it is given time."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def measure_turns(pythons: Mapping[str, Path], entrants: Sequence[Entrant], effort: Effort) -> tuple[Rates, Failures]:
    """All entrants one after the other in each cell, then again; what fails in a turn is left out of it."""
    rates: Rates = {}
    failures: Failures = {}
    for turn in range(effort.turns):
        for cell in effort.cells:
            for entrant in entrants:
                piece = Piece(entrant.name, cell)
                print(f"turn {turn + 1} of {effort.turns}: {piece_text(piece)}", file=sys.stderr)
                with tempfile.TemporaryDirectory(prefix="peer", ignore_cleanup_errors=True) as folder:
                    plan = Plan(*cell, effort.window_s, str(HOME.resolve() / "data"), folder)
                    try:
                        report = measure_piece(pythons[entrant.name], entrant, plan)
                    except UserError as error:
                        failures[f"{piece_text(piece)}, turn {turn + 1}"] = str(error)
                        continue
                rates.setdefault(piece, []).append(report.updates / report.seconds)
    return rates, failures


# ---------------------------------------------------------------------------------------------------- page

_LEGEND = """\
Client updates per second: the median of {turns} turns, and the range of all. The programs of a turn run one after
the other, each with one thread per process.

**The work** is the same for all: multinomial logistic regression of 784 x 10 parameters without bias on MNIST's
training images, of which all clients hold equal shares. An update is M local steps of SGD with batches of 32.
There are no delays, and nothing is evaluated.
FedBuff's server steps after {buffers}.

**What is timed** is at least {window_s:g} s of a training under way, from one update or round that the server has
taken in to another. Starting processes, imports, reading data, building clients and the first updates come
before. Each program counts the local steps that its clients make in that time and fails unless they are M per
update; on torch, a batch that is not 32 x 784 is an error. areabench's local steps are those of its event log.
Its simulator is timed over a whole run, the second in its process, from the first order until the run file is
closed.
"""


def page(entrants: Sequence[Entrant], rates: Rates, failures: Failures, effort: Effort) -> str:
    """The table, what each row is, and what is missing."""
    present = [entrant for entrant in entrants if any(piece.entrant == entrant.name for piece in rates)]
    head = ["updates/s", *(f"n = {clients}, M = {steps}" for clients, steps in effort.cells)]
    rows = [
        [each.name, *(cell_text(rates.get(Piece(each.name, cell), ())) for cell in effort.cells)] for each in present
    ]
    buffers = " and ".join(
        f"{Plan(clients, 1, 0.0, '', '').buffer} updates at {clients} clients"
        for clients in dict.fromkeys(clients for clients, _ in effort.cells)
    )
    parts = [
        _LEGEND.format(turns=effort.turns, window_s=effort.window_s, buffers=buffers),
        markdown_table([head, *rows]),
        "## What each row is\n",
        *(wrapped(entrant_text(entrant)) for entrant in present),
    ]
    if failures:
        parts += ["\n## What is missing\n", *(wrapped(f"{name}: {reason}") for name, reason in failures.items())]
    return "\n".join(parts) + "\n"


def entrant_text(entrant: Entrant) -> str:
    """What a row shows, in a paragraph."""
    package = f" (`{entrant.needs.requirement}`)" if entrant.needs and "==" in entrant.needs.requirement else ""
    return f"**{entrant.name}**{package}: {entrant.scheme}. {entrant.remark}"


def wrapped(text: str) -> str:
    """An item of a list, in lines of a page's width."""
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def piece_text(piece: Piece) -> str:
    """A piece in words."""
    return f"{piece.entrant}, n = {piece.cell[0]}, M = {piece.cell[1]}"


def cell_text(rates: Sequence[float]) -> str:
    """Median and range; a dash where nothing was measured."""
    if not rates:
        return "–"
    return f"{number(median(rates))} ({number(min(rates))} to {number(max(rates))})"


def main() -> None:
    """Install, measure, print the page, write it to a file if asked."""
    parser = page_options("Compare areabench's speed with that of other frameworks.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows of the table (default: all)")
    parser.add_argument("--torch", default="torch", help="the torch of the other frameworks, as pip reads it")
    arguments = parser.parse_args()
    entrants = [entrant for entrant in ENTRANTS if arguments.only is None or entrant.name in arguments.only]
    if not entrants:
        names = ", ".join(f'"{entrant.name}"' for entrant in ENTRANTS)
        raise UserError(f"--only {' '.join(arguments.only)}: none of {names}")
    load_before = os.getloadavg()[0]
    effort = QUICK if arguments.quick else FULL
    pythons, missing = find_pythons(entrants, arguments.torch)
    (HOME / "data").mkdir(parents=True, exist_ok=True)
    write_data(HOME / "data")
    ready = [entrant for entrant in entrants if entrant.name in pythons]
    rates, failures = measure_turns(pythons, ready, effort)
    machine = f"{describe_machine()} {arguments.torch}. Load of the machine before it: {load_before:.1f} processes."
    heading = f"# Speed beside other frameworks\n\n{machine} `make bench-peers` writes this page.\n\n"
    print_page(page(entrants, rates, missing | failures, effort), arguments.output, heading)


if __name__ == "__main__":
    run_script(main)
