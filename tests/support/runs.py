"""Run files that tests simulate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from areabench.experiment.parse import parse_experiment
from areabench.progress import Style
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_run


def simulated(path: Path, text: str, overrides: Sequence[str] = ()) -> Path:
    """Simulate an experiment (TOML) into a run file, which may replace another; its folder is also the cache."""
    experiment = parse_experiment(text, overrides=overrides)
    simulate_run(experiment, RunOptions(path, path.parent, "", True, Style.NONE))
    return path
