"""TODO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from areabench.experiment.fields import slug
from areabench.experiment.records import Experiment
from areabench.progress import Style


@dataclass(frozen=True)
class RunOptions:
    """What a run needs besides its experiment; the command line fills it in."""

    output: Path | None
    cache: Path
    command: str
    threads: str
    force: bool
    progress: Style
    checkpoint_s: float | None = None  # real seconds between checkpoints; 0: only at a signal; None: neither

    def output_for(self, experiment: Experiment) -> Path:
        """The run file: the one asked for, or one named after the experiment."""
        return self.output or Path("runs") / f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}.h5"
