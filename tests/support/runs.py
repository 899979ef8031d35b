"""Run files that tests simulate, or fill by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from areabench.engine.events import CLIENT
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.progress import Style
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder
from areabench.settings.parse import to_toml
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_run


def simulated(path: Path, text: str, overrides: Sequence[str] = ()) -> Path:
    """Simulate an experiment (TOML) into a run file, which may replace another; its folder is also the cache."""
    experiment = parse_experiment(text, overrides=overrides)
    simulate_run(experiment, RunOptions(path, path.parent, "", True, Style.NONE))
    return path


def recorder_of(path: Path, experiment: Experiment, transport: str = "mpi") -> Recorder:
    """A new run file of models with two entries, and of clients without rows."""
    recorder = Recorder(path, to_toml(experiment), 2, np.dtype(np.float64), force=False)
    recorder.begin(gather_provenance(transport, "", "1", 0), np.zeros(experiment.clients.count, CLIENT))
    return recorder


def nothing(_time_s: float, _number: int) -> None:
    """Show no progress."""
