"""One point of the cost benchmark, in a process of its own: so its peak memory is its own.

python benchmarks/perf/cost_point.py CACHE < experiment.toml     prints one line of JSON

Seconds are those of the processor, which a busy machine
disturbs less than those on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from areabench.engine.events import State, Status
from areabench.engine.scenario import build_scenario
from areabench.errors import UserError

# Only what every run imports too: the peak of a process starts at that of the process that began it.
from areabench.experiment.parse import parse_experiment, to_toml
from areabench.experiment.records import Experiment
from areabench.host import peak_bytes
from areabench.progress import Style
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate
from areabench.transports.simulator import LaneRecorder, Simulator


@dataclass(frozen=True)
class Cost:
    """What a run took: until the first update and from then on (s), its updates, its peak memory (bytes)."""

    start_s: float
    run_s: float
    updates: int
    peak_bytes: int

    @property
    def update_s(self) -> float:
        """Seconds an update, the making of its client included where it is the first."""
        return self.run_s / max(1, self.updates)


class Stopwatch:
    """Notes when the first update has been served."""

    def __init__(self) -> None:
        self.first_s = 0.0

    def __call__(self, _time_s: float, _updates: int) -> None:
        """Something has happened in the run."""
        self.first_s = self.first_s or time.process_time()


def measure_here(experiment: Experiment, cache: Path) -> Cost:
    """Simulate in this process, without run file and evaluation."""
    begun_s, watch = time.process_time(), Stopwatch()
    scenario = build_scenario(experiment, cache)
    status = checked(Simulator(scenario, LaneRecorder(1), watch).run())
    ended_s = time.process_time()
    return Cost(watch.first_s - begun_s, ended_s - watch.first_s, status.updates - 1, peak_bytes(resource.RUSAGE_SELF))


def measure_whole(experiment: Experiment, cache: Path) -> Cost:
    """Simulate in this process as `areabench simulate` does: run file and evaluation count."""
    begun_s = time.process_time()
    around = RunOptions(cache / "whole.h5", cache, "", "1", force=True, progress=Style.NONE)
    status = checked(simulate(experiment, around))
    return Cost(0.0, time.process_time() - begun_s, status.updates, peak_bytes(resource.RUSAGE_SELF))


def checked(status: Status) -> Status:
    """The status of a run that went to its end: the cost of any other says nothing."""
    if status.state != State.DONE:
        raise UserError(f"the run ended as {status.state.text} ({status.reason}); lower its step size")
    return status


def measure_apart(experiment: Experiment, cache: Path, *, whole: bool = False) -> Cost:
    """Simulate in a process of its own, on one thread."""
    command = [sys.executable, str(Path(__file__)), *(["--whole"] if whole else []), str(cache)]
    alone = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    text = to_toml(experiment)
    done = subprocess.run(command, input=text, check=False, stdout=subprocess.PIPE, text=True, env=alone)
    if done.returncode != 0:
        raise UserError(f"the run `{experiment.name}` ended with exit code {done.returncode}; its error stands above")
    return Cost(**json.loads(done.stdout))


def main() -> None:
    """Read the experiment, simulate it, say what it took."""
    parser = argparse.ArgumentParser(description="Measure one simulated run, an experiment on standard input.")
    parser.add_argument("--whole", action="store_true", help="with run file and evaluation")
    parser.add_argument("cache", type=Path, help="where unpacked data sets are kept")
    arguments = parser.parse_args()
    measure = measure_whole if arguments.whole else measure_here
    print(json.dumps(asdict(measure(parse_experiment(sys.stdin.read()), arguments.cache))))


if __name__ == "__main__":
    main()
