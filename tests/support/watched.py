"""Run files for tests that read them: one that is done, and a process that writes one step by step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.texts import QUADRATIC

from areabench.cli.main import main

EXPERIMENT = QUADRATIC.replace("iterations = 20", "horizon_s = 10.0") + '[rates]\nname = "list"\nvalues = [3.0, 1.0]\n'
# Simulates in a process that reports when it has written this many blocks and then waits to be killed.
WRITER = """
import sys
from pathlib import Path
from areabench.experiment.parse import load_experiment
from areabench.transports.session import simulate_run
from areabench.progress import Style
from areabench.runfile.record import Recorder
from areabench.transports.options import RunOptions

flushed, real = [0], Recorder.flush

def flush(recorder):
    real(recorder)
    flushed[0] += 1
    if flushed[0] == int(sys.argv[3]):
        print("ready", flush=True)
        sys.stdin.read()

Recorder.flush = flush
Recorder.flush_if_overdue = lambda recorder: recorder.spare_moment()
simulate_run(load_experiment(Path(sys.argv[1]), ()), RunOptions(Path(sys.argv[2]), Path(), "", True, Style.NONE))
"""
_PROGRAM = """
import sys
from pathlib import Path

import numpy as np

from areabench.experiment.parse import parse_experiment
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.engine.scenario import build_scenario
from areabench.engine.events import Event, Kind, State

path, text = Path(sys.argv[1]), sys.argv[2]
experiment = parse_experiment(text)
scenario = build_scenario(experiment, path.parent)
recorder = Recorder(path, text, 3, np.dtype(np.float64), force=True, record=experiment.record)
recorder.begin(gather_provenance("simulator", "", "", 0), scenario.client_table())
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "event":  # kind, time, client, staleness
        kind, time_s, client, staleness = Kind[rest[0]], float(rest[1]), int(rest[2]), int(rest[3])
        recorder.event(Event(time_s, kind, client, staleness=staleness, iteration=1, digest=7))
        recorder.tally.count(kind, time_s, client, staleness)
    elif word == "snapshot":  # time, version, value of all entries
        recorder.snapshot(float(rest[0]), int(rest[1]), np.full(3, float(rest[2])))
    elif word == "flush":
        recorder.flush()
        print("ready", flush=True)
    elif word == "end":
        recorder.set_status(recorder.tally.status(State[rest[0]], "told so", 4.0))
        recorder.close()
        print("ready", flush=True)
"""


def write_run(folder: Path) -> Path:
    """Simulate a tiny experiment, tiny.toml, into tiny.h5."""
    (folder / "tiny.toml").write_text(QUADRATIC, encoding="utf-8")
    assert main(["simulate", str(folder / "tiny.toml"), "-o", str(folder / "tiny.h5")]) == 0
    return folder / "tiny.h5"


class Writer:
    """The process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._wait()

    def write(self, *lines: str) -> None:
        """Have lines written and handed to the system."""
        self._say(*lines, "flush")

    def end(self, state: str = "DONE") -> None:
        """Have the run end, and its file closed."""
        self._say(f"end {state}")

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def _say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n".join(lines) + "\n")
        self.process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"


@contextmanager
def writing(path: Path, text: str = EXPERIMENT) -> Iterator[Writer]:
    """A process that has begun a run file and writes what it is told."""
    command = [sys.executable, "-c", _PROGRAM, str(path), text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()
