"""areabench itself: FedBuff in the simulator.

python -m peers.areabench_peer plan.json [torch] [mpi]     with torch's gradient, on three MPI ranks of this machine
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from peers.window import BATCH, Plan, Report, checked, run_program

from areabench import open_run
from areabench.engine.events import Kind
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.parse import load_experiment
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.settings.parse import to_toml
from areabench.transports.simulator import Simulator

RANKS = 3  # the server's, and two that share the clients
WARM_UP_S = 1.0
_NO_DELAY = 1e6  # rate of a client, 1/s: a microsecond between its updates

OWN_GRADIENT = """\
name = "logistic"
regularisation = 0.0"""
TORCH_GRADIENT = """\
name = "torch"
module = "torch.nn:Linear"  # with a bias, ten parameters more"""
EXPERIMENT = """\
[problem]
{problem}
batch_size = {batch}
[data]
name = "mnist"
[split]
name = "iid"
[clients]
count = {plan.clients}
local_steps = {plan.local_steps}
[rates]
name = "uniform"
rate = {rate}
[method]
name = "fedbuff"
step_size = 0.01
[aggregation]
name = "updates"
updates = {plan.buffer}
[stop]
{stop}
[record]
snapshots = "none"
"""


def write_experiment(plan: Plan, rate: float, stop: str) -> Path:
    """The experiment file; the run file gets the event log and the last model."""
    path = Path(plan.folder) / "peer.toml"
    problem = TORCH_GRADIENT if "torch" in sys.argv[2:] else OWN_GRADIENT
    text = EXPERIMENT.format(plan=plan, problem=problem, batch=BATCH, rate=rate, stop=stop)
    path.write_text(text, encoding="utf-8")
    return path


def simulated(plan: Plan, updates: int) -> Report:
    """One run in virtual time with its run file; setting it up does not count."""
    stop = f"iterations = {updates + updates // plan.buffer}"
    experiment = load_experiment(write_experiment(plan, 10.0, stop))
    scenario = build_scenario(experiment, Path(plan.data))
    output = Path(plan.folder) / "simulated.h5"
    recorder = begin_recording(scenario, output)
    begun_s = time.perf_counter()
    Simulator(scenario, recorder, lambda _time_s, _updates: None).run()
    recorder.close()
    seconds = time.perf_counter() - begun_s
    return report_of(plan, output, 0.0, seconds)


def begin_recording(scenario: Scenario, output: Path) -> Recorder:
    """The run file of a simulated run."""
    problem = scenario.problem
    experiment = scenario.experiment
    size = (problem.dimension, problem.dtype)
    text = to_toml(experiment)
    recorder = Recorder(output, text, *size, force=True, record=experiment.record)
    recorder.begin(gather_provenance("simulator", "", "", experiment.seed), scenario.client_table())
    return recorder


def measure_simulator(plan: Plan) -> Report:
    """A short run, which warms up and shows how many updates fill the window, then the measured one."""
    first = simulated(plan, max(4 * plan.clients, 2000 // plan.local_steps))
    return simulated(plan, max(1, int(plan.window_s * first.updates / first.seconds)))


def measure_mpi(plan: Plan) -> Report:
    """A run in real time; what its event log shows after the warm-up."""
    path = write_experiment(plan, _NO_DELAY, f"horizon_s = {WARM_UP_S + plan.window_s}")
    output = path.with_suffix(".h5")
    command = [sys.executable, "-m", "areabench", "launch", str(path), "-n", str(RANKS), "-o", str(output)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(
            f"areabench launch ended with exit code {done.returncode}: {done.stderr.strip().partition(chr(10))[0]}"
        )
    return report_of(plan, output, WARM_UP_S)


def report_of(plan: Plan, output: Path, since_s: float, seconds: float | None = None) -> Report:
    """The updates of a run file from a time on, and their local steps; `seconds`: what a simulated run took."""
    with open_run(output) as run:
        events = run.events_array
    updates = events[(events["kind"] == Kind.UPDATE) & (events["time_s"] >= since_s)]
    if seconds is None:
        times_s = updates["time_s"]
        updates = updates[1:]
        seconds = float(times_s[-1] - times_s[0])
    return checked(Report(len(updates), int(updates["local_steps"].sum()), seconds), plan)


if __name__ == "__main__":
    run_program(measure_mpi if "mpi" in sys.argv[2:] else measure_simulator)
