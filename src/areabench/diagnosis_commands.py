"""What `areabench diagnose` does, and what a run on MPI says at its end."""

from __future__ import annotations

from pathlib import Path

from areabench.diagnosed import diagnosis_of
from areabench.diagnosis import Diagnosis
from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.output import Output
from areabench.reading import open_run
from areabench.tables.diagnosis import diagnosis_text


def diagnose(path: Path, figure: Path | None, output: Output) -> int:
    """Print whether a run kept its delays, and draw it."""
    with open_run(path) as recorded:
        found = diagnosis_of(recorded)
        if figure is not None:
            _draw(found, recorded.experiment, figure)
    output.answer(lambda: diagnosis_text(found), lambda: found)
    if figure is not None:
        output.remark(f"figure: {figure}")
    return 0


def print_diagnosis(path: Path) -> None:
    """Say whether a run on MPI kept its delays."""
    with open_run(path) as recorded:
        if recorded.diagnosis is not None:
            print(diagnosis_text(recorded.diagnosis), end="")


def _draw(found: Diagnosis, experiment: Experiment, path: Path) -> None:
    try:
        from areabench.figures.diagnosis import draw_diagnosis
        from areabench.figures.style import save
    except ImportError as error:
        raise UserError(
            f"--output {path}: needs matplotlib ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error
    save(draw_diagnosis(found, experiment), path)
