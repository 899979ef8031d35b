"""`areabench diagnose`: whether a run kept its delays."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.cli import Command, CommandContext, need_matplotlib
from areabench.cli.options import json_option, run_argument


def diagnose_options(parser: argparse.ArgumentParser) -> None:
    """A run file, and a figure."""
    run_argument(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FIGURE", help="draw it here (.png, .svg or .pdf)")
    json_option(parser)


def diagnose_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print whether a run kept its delays, and draw it."""
    import numpy as np

    from areabench.results.diagnosis import diagnosis_of
    from areabench.runfile.read import open_run
    from areabench.views.text import diagnosis_text

    figure = options.output
    with open_run(options.run) as recorded, np.errstate(over="ignore", invalid="ignore"):  # it may hold any numbers
        found = diagnosis_of(recorded)
        if figure is not None:
            need_matplotlib(f"--output {figure}")
            from areabench.views.figures.diagnosis import draw_diagnosis
            from areabench.views.figures.style import save

            save(draw_diagnosis(found, recorded.experiment), figure)
        context.output.answer(lambda: diagnosis_text(found), lambda: found)
    if figure is not None:
        context.output.remark(f"figure: {figure}")
    return 0


COMMAND = Command(
    "RUN.h5 -o diagnosis.png",
    diagnose_options,
    diagnose_command,
)
