"""Who worked on which version of the model, and when the server stepped: one picture per run, for docs/methods.md.

python analysis/message_flow.py RUN.h5 ... FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import areabench
from areabench.views import figures


def main(run_files: Sequence[str], folder: Path) -> None:
    """Draw each run from its start to its end."""
    for path in run_files:
        with areabench.open_run(path) as run:
            figure = figures.timeline(run, 0.0, run.status.end_s)
            figures.save(figure, folder / f"message-flow-{run.experiment.method.name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:-1], Path(sys.argv[-1]))
