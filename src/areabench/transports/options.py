"""What a run needs in addition to its experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from areabench.experiment.experiment import Experiment
from areabench.progress import Style
from areabench.settings.keys import slug


@dataclass(frozen=True)
class RunOptions:
    """The options of a run; the command line fills them in."""

    output: Path | None  # the run file; None: named after the experiment
    cache: Path  # folder of unpacked data sets
    command: str  # as typed, for the run file
    force: bool  # overwrite an existing run file
    progress: Style
    checkpoint_s: float | None = None  # real seconds between checkpoints; 0: only at a signal; None: no checkpoints
    remarks: bool = True  # whether to print a warning about the run; one of thousands has none
    observers: tuple[object, ...] = ()  # objects, or texts that describe them; built by the process that records

    def output_for(self, experiment: Experiment) -> Path:
        """The run file: `output`, or one named after the experiment."""
        return self.output or Path("runs") / f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}.h5"
