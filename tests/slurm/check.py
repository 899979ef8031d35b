"""Submit generated job scripts to a real Slurm of one node, wait, and check what they leave (`make test-slurm`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.cluster import Cluster, Trouble, running, why_not
from tests.support.texts import quadratic

from areabench.engine.events import State
from areabench.runfile.read import open_run
from areabench.sweeps.read import open_sweep

LIMIT_S = 120.0  # for one job; a machine that is busy takes its time to start Python
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # mpirun refuses otherwise
RATES = '[rates]\nname = "uniform"\nrate = 20.0\n'
EXPERIMENT = quadratic("horizon_s = 1.0", name="try", step_size=0.02, dimension=6) + RATES
SWEEP = EXPERIMENT + "[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.step_size = [0.01, 0.02]\n"
FILES = {"try.toml": EXPERIMENT, "grid.toml": SWEEP}


@dataclass(frozen=True)
class Case:
    """One job: the arguments of `areabench job`, what it leaves, and words that its output holds."""

    name: str
    arguments: str
    leaves: str  # a run file, or the folder of a sweep
    says: str
    requeued: bool = False  # once it has begun to write
    stopped: bool = False  # the same, by the signal that comes before the walltime ends; then it is requeued


def cases() -> Iterator[Case]:
    """Single runs by both launchers, one of them twice, and arrays."""
    single = Case("single run, by srun", "try.toml", "runs/try-area-0-mpi.h5", "done (horizon of 1 s)")
    yield single
    yield Case(f"{single.name}, submitted again", single.arguments, single.leaves, f"{single.leaves}: done\n")
    if len(os.sched_getaffinity(0)) > 1:  # mpirun gives each rank a core, and looks whether it is there
        arguments = "try.toml --set clients.count=1 --launcher mpirun --runs runs/mpirun.h5"
        yield Case("single run, by mpirun", arguments, "runs/mpirun.h5", "done (horizon of 1 s)")
    arguments = "try.toml --set stop.horizon_s=4 --runs runs/again.h5"
    continues = "can continue from its checkpoint"
    yield Case("single run, requeued", arguments, "runs/again.h5", continues, requeued=True)
    arguments = "try.toml --set stop.horizon_s=4 --runs runs/stopped.h5"
    yield Case("single run, stopped and requeued", arguments, "runs/stopped.h5", continues, stopped=True)
    arguments = "grid.toml --transport simulator --cores 1 --array 2"
    yield Case("array of two tasks, in the simulator", arguments, "runs/grid", "2 runs: 2 done now")
    yield Case("array of two tasks, on MPI", "grid.toml --array 2", "runs/grid-mpi", "2 runs: 2 done now")


def main() -> int:
    """Run everything; 0 also where there can be no Slurm."""
    if reason := why_not():
        print(f"skipped: no Slurm to test with: {reason}")
        return 0
    begun_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="slurm-") as name, running(Path(name)) as cluster:
            print(f"{cluster.call('sbatch', '--version')}, one node in {name}", flush=True)
            for number, case in enumerate(cases(), start=1):
                _check(case, f"job-{number}", cluster, Path(name))
    except Trouble as trouble:
        print(f"\nfailed: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; Slurm is shut down", file=sys.stderr)
        return 130
    print(f"all jobs did what they should, in {time.monotonic() - begun_s:.0f} s; Slurm is shut down")
    return 0


def _check(case: Case, name: str, cluster: Cluster, folder: Path) -> None:
    """Write the script, submit it, wait, and look at what is there."""
    for file, text in FILES.items():
        (folder / file).write_text(text)
    _areabench(folder, "job", *case.arguments.split(), "--scheduler", "slurm", "-o", f"{name}.sh")
    job = cluster.call("sbatch", "--parsable", f"--output={name}-%a.out", f"{name}.sh")
    print(f"{case.name}: job {job}", end="", flush=True)
    if case.stopped:
        cluster.stop(job, folder / case.leaves, LIMIT_S)
    if case.requeued:
        cluster.requeue(job, folder / case.leaves, LIMIT_S)
    states = cluster.wait(job, LIMIT_S)
    print(f" {' '.join(states)}", end="", flush=True)
    outputs = [path.read_text() for path in sorted(folder.glob(f"{name}-*.out"))]
    if set(states) != {"COMPLETED"} or not all(case.says in output for output in outputs):
        said = "\n".join(outputs)
        raise Trouble(f"{case.name}: each task should say {case.says!r}, but they said:\n{said}")
    print(f", {_left(folder / case.leaves, folder)}", flush=True)


def _left(path: Path, folder: Path) -> str:
    """What a job has left, in words."""
    files = [path]
    if path.suffix != ".h5":
        sweep = open_sweep(path)
        files = [result.path for result in sweep.results]
        if sweep.missing:
            raise Trouble(f"{path}: {len(sweep.missing)} runs are missing")
    for file in files:
        with open_run(file) as run:
            if run.status.state != State.DONE:
                raise Trouble(f"{file}: {run.status.state.text}: {run.status.reason}")
        _areabench(folder, "replay", str(file))
    return f"{path.relative_to(folder)}: {len(files)} done and replayed, all equal"


def _areabench(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "areabench", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Trouble(f"areabench {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")


if __name__ == "__main__":
    os.environ |= AS_ROOT
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # however it ends, Slurm is shut down first
    sys.exit(main())
