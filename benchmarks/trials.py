"""One simulated trial, for the scripts beside this file."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import areabench

DIVERGED = 3  # exit code


@dataclass(frozen=True)
class Quality:
    """A model's loss and accuracy (%)."""

    loss: float
    accuracy: float


def simulate(experiment: Path, settings: Sequence[str]) -> Quality:
    """Simulate an experiment file with some keys set; the quality at the end, an infinite loss where it diverged."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "trial.h5"
        command = [sys.executable, "-m", "areabench", "simulate", str(experiment), "--output", str(output)]
        for setting in (*settings, "record.snapshots=none"):
            command += ["--set", setting]
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if done.returncode == DIVERGED:
            return Quality(math.inf, math.nan)
        done.check_returncode()
        with areabench.open_run(output) as run:
            end = run.metrics_array[-1]
            return Quality(float(end["train_loss"]), float(end["test_accuracy"]))
