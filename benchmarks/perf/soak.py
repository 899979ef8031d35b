"""A long run at a high rate on MPI: whether memory stays flat, the run file grows evenly and latency does not drift.

make soak, or: python benchmarks/perf/soak.py --minutes 60 --clients 32 --rate 1000 --page FILE

It needs a machine without other work, or priority (as root: chrt -r 1 make soak). --minutes 2 is a quick look; memory
still grows then. Samples go to samples.csv as they come, so that a crash loses nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from soak_page import Soak, holds, page
from soak_samples import SHARES, TOKEN, Sampler, processes_of, read_samples, read_windows

from areabench.errors import UserError
from areabench.experiment.labels import method_colour
from areabench.runfile.read import open_run
from areabench.timing.rates import UniformRates
from areabench.views.figures.style import label_axes, save, styled

_BLUE, _ORANGE, _GREEN, _PINK = (method_colour(name) for name in ("area", "fedbuff", "as-fedavg", "s-fedavg"))


def draw(soak: Soak, path: Path) -> None:
    """Write the figure in the format of the suffix."""
    save(_figure(soak), path)


@styled
def _figure(soak: Soak) -> Figure:
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    memory, size, latency = figure.subplots(1, 3)
    _draw_memory(memory, soak)
    _draw_size(size, soak)
    _draw_latency(latency, soak)
    return figure


def _draw_memory(axes: Axes, soak: Soak) -> None:
    for rank, series in soak.samples.memory.items():
        colour, width = (_BLUE, 1.8) if rank == 0 else ("0.6", 0.6)
        label = "server" if rank == 0 else f"{soak.ranks - 1} other ranks" if rank == 1 else None
        axes.plot(
            series.time_s / 60, series.value / 1e6, color=colour, linewidth=width, label=label, zorder=3 - (rank > 0)
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("memory of each rank")
    label_axes(axes, "time in minutes", "Pss in MB")


def _draw_size(axes: Axes, soak: Soak) -> None:
    samples = soak.samples
    axes.plot(samples.file.time_s / 60, samples.file.value / 1e6, color=_BLUE, label="run file")
    if samples.checkpoint.value.any():
        axes.plot(samples.checkpoint.time_s / 60, samples.checkpoint.value / 1e6, color=_ORANGE, label="checkpoint")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    axes.set_title("size of the files")
    label_axes(axes, "time in minutes", "MB")


def _draw_latency(axes: Axes, soak: Soak) -> None:
    minutes = [window.middle_s / 60 for window in soak.windows]
    for number, colour in enumerate((_BLUE, _GREEN, _PINK)):
        values = [1e3 * window.reply_s[number] for window in soak.windows]
        axes.plot(
            minutes, values, color=colour, marker="." if len(minutes) < 5 else None, label=f"{SHARES[number]:.0%}"
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, title="quantile")
    axes.set_title("reply latency, each minute")
    label_axes(axes, "time in minutes", "ms")


SAMPLE_EVERY_S = 10.0
FEWEST_SAMPLES = 20
SNAPSHOT_EVERY_S = 10.0
STARTING_S = 180.0  # until the run file exists
ENDING_S = 600.0  # for stopping, evaluating and diagnosing
PATIENCE_S = 20.0
EXPERIMENT = """\
name = "soak"
seed = 1

[problem]
name = "logistic"

[data]
name = "mnist"

[split]
name = "dirichlet"

[clients]
count = {clients}

[rates]
name = "uniform"
rate = {client_rate}

[method]
name = "area"
step_size = 10.0

[aggregation]
name = "updates"
updates = 4

[stop]
horizon_s = {horizon_s}

[record]
interval_s = {snapshot_s}
"""


@dataclass(frozen=True)
class Plan:
    """What is run, and where its files are."""

    minutes: float
    clients: int
    rate: float  # updates per second of all clients together
    ranks: int
    folder: Path

    @property
    def run_file(self) -> Path:
        """The run file."""
        return self.folder / "soak.h5"

    @property
    def samples(self) -> Path:
        """Where samples are written as they come."""
        return self.folder / "samples.csv"

    @property
    def sample_s(self) -> float:
        """Seconds between two samples: a short run has some as well."""
        return min(SAMPLE_EVERY_S, 60 * self.minutes / FEWEST_SAMPLES)

    def experiment(self) -> str:
        """The experiment, as TOML."""
        return EXPERIMENT.format(
            clients=self.clients, client_rate=self.rate / self.clients, horizon_s=60 * self.minutes,
            snapshot_s=min(SNAPSHOT_EVERY_S, 6 * self.minutes),
        )  # fmt: skip


def plan_of(folder: Path) -> Plan:
    """What was run in a folder, as its run file says."""
    path = Plan(0.0, 0, 0.0, 0, folder).run_file
    with open_run(path) as run:
        experiment = run.experiment
        ranks = run.provenance.ranks
    assert experiment.stop.horizon_s is not None
    assert isinstance(experiment.rates, UniformRates)
    clients = experiment.clients.count
    return Plan(experiment.stop.horizon_s / 60, clients, clients * experiment.rates.rate, ranks, folder)


def run(plan: Plan) -> int:
    """Launch the run and sample it to its end; returns its exit code."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    experiment = plan.folder / "soak.toml"
    experiment.write_text(plan.experiment(), encoding="utf-8")
    words = ["launch", str(experiment), "--output", str(plan.run_file), "--force", "--ranks", str(plan.ranks)]
    token = f"soak-{os.getpid()}"
    plan.run_file.unlink(missing_ok=True)
    with subprocess.Popen([sys.executable, "-m", "areabench", *words], env={**os.environ, TOKEN: token}) as launch:
        try:
            _sample(plan, token, launch)
            return launch.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"the run has not ended {ENDING_S:g} s after its horizon; it is terminated") from None
        finally:
            _end(launch, token)


def _sample(plan: Plan, token: str, launch: subprocess.Popen[bytes]) -> None:
    """Wait for the run file, then sample until the horizon or the end of the run, whichever is first."""
    until_s = time.monotonic() + STARTING_S
    while not plan.run_file.exists():
        if launch.poll() is not None or time.monotonic() > until_s:
            raise UserError(f"no run file within {STARTING_S:g} s; the launch's error is printed above")
        time.sleep(0.05)
    sampler = Sampler(plan.samples, token, plan.run_file)
    while launch.poll() is None and sampler.elapsed_s < 60 * plan.minutes:
        found = sampler.sample()
        _tell(plan, sampler.elapsed_s, found)
        time.sleep(plan.sample_s - sampler.elapsed_s % plan.sample_s)


def _tell(plan: Plan, elapsed_s: float, memory_bytes: int) -> None:
    size = plan.run_file.stat().st_size
    line = (
        f"{elapsed_s / 60:6.1f} of {plan.minutes:g} min, ranks {memory_bytes / 1e6:,.0f} MB, file {size / 1e6:,.1f} MB"
    )
    print(line, file=sys.stderr, flush=True)


def _end(launch: subprocess.Popen[bytes], token: str) -> None:
    """End every process of this launch, whatever happened."""
    if launch.poll() is None:
        launch.terminate()
    until_s = time.monotonic() + PATIENCE_S
    while (left := processes_of(token)) and time.monotonic() < until_s:
        launch.poll()
        time.sleep(0.1)
    for process in left:
        os.kill(process, 9)


def write_page(plan: Plan, path: Path) -> bool:
    """Read the samples and the run file, write the page and its figure; returns whether all thresholds hold."""
    windows, status = read_windows(plan.run_file)
    samples = read_samples(plan.samples)
    soak = Soak(plan.minutes, plan.clients, plan.rate, plan.ranks, samples, windows, status, plan.sample_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = path.with_suffix(".png")
    draw(soak, figure)
    path.write_text(page(soak, figure.name), encoding="utf-8")
    print(f"page: {path}, figure: {figure}")
    return holds(soak)


def main() -> int:
    """Run, and write the page; 0 where every threshold holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--rate", type=float, default=1000.0, help="updates per second of all clients together (default 1000)"
    )
    parser.add_argument("--ranks", type=int, help="MPI ranks that share the clients (default: one per client)")
    parser.add_argument("--folder", type=Path, default=Path("runs/soak"), help="for the run file and the samples")
    parser.add_argument("--page", type=Path, help="write the page here (default: into the folder)")
    parser.add_argument("--read", action="store_true", help="run nothing: write the page again from the folder")
    options = parser.parse_args()
    if options.read:
        plan = plan_of(options.folder)
        code = 0
    else:
        ranks = options.ranks or options.clients + 1
        plan = Plan(options.minutes, options.clients, options.rate, ranks, options.folder)
        code = run(plan)
    flat = write_page(plan, options.page or plan.folder / "SOAK.md")
    return code or (0 if flat else 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
