"""What a run needs besides its experiment, and the rule that no file is overwritten unasked.

Every rank loads this module, so it loads nothing large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from areabench.errors import RunFileError
from areabench.experiment import Experiment
from areabench.progress import Style


@dataclass(frozen=True)
class Surroundings:
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
        return self.output or Path("runs") / f"{experiment.name}-{experiment.method.name}-{experiment.seed}.h5"


def refuse_existing(path: Path, *, force: bool, option: str = "--output") -> None:
    """A file is never overwritten unasked."""
    if path.exists() and not force:
        raise RunFileError(f"{path}: exists already; choose another {option} or overwrite it with --force")
