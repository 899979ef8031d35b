"""`areabench compare`: two runs of one experiment."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.cli import DONE, Command, CommandContext, need_matplotlib
from areabench.cli.options import json_option, percentage


def compare_options(parser: argparse.ArgumentParser) -> None:
    """Two run files, and how far they may be apart."""
    parser.add_argument("first", type=Path, metavar="SIM.h5", help="run file, the reference")
    parser.add_argument("second", type=Path, metavar="MPI.h5", help="run file of the same experiment")
    parser.add_argument("--plot", type=Path, help="draw both in one figure here (.png, .svg or .pdf)")
    json_option(parser)
    parser.add_argument(
        "--updates-within", type=percentage, default=3.0, metavar="PERCENT", help="tolerance of the updates (default 3)"
    )
    parser.add_argument(
        "--loss-within", type=percentage, default=2.0, metavar="PERCENT", help="tolerance of the final loss (default 2)"
    )


def compare_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Compare two runs of one experiment; 1 where updates or final loss are beyond their tolerances."""
    import numpy as np

    from areabench.results.comparison import compare_runs
    from areabench.runfile.read import open_run
    from areabench.views.json import comparison_record
    from areabench.views.text import Tolerances, comparison_text, holds

    within = Tolerances(options.updates_within, options.loss_within)
    plot = options.plot
    with (
        open_run(options.first) as first,
        open_run(options.second) as second,
        np.errstate(over="ignore", invalid="ignore"),  # a file may hold any numbers
    ):
        found = compare_runs(first, second)
        if plot is not None:
            need_matplotlib(f"--plot {plot}")
            from areabench.views.figures.runs import draw_comparison
            from areabench.views.figures.style import save

            save(draw_comparison(first, second, found), plot)
        context.output.answer(
            lambda: comparison_text(first, second, found, within),
            lambda: comparison_record(first, second, found, within),
        )
    if plot is not None:
        context.output.remark(f"plot: {plot}")
    return 0 if holds(found, within) else 1


COMMAND = Command(
    "SIM.h5 MPI.h5 --plot both.png",
    compare_options,
    compare_command,
    DONE | {"0": "done, both tolerances hold", "1": "one does not"},
)
