"""`areabench summary`: a table and a plot of some runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.cli import Command, CommandContext, need_matplotlib
from areabench.cli.options import json_option, target_option
from areabench.errors import UserError


def summary_options(parser: argparse.ArgumentParser) -> None:
    """Run files, and the accuracy whose time is shown."""
    parser.add_argument("runs", type=Path, nargs="+", help="run files, or folders of them")
    target_option(parser, "for the time-to column")
    parser.add_argument("--plot", type=Path, help="write accuracy and loss over time here (.png, .svg or .pdf)")
    json_option(parser)


def summary_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print a table of runs and draw them."""
    from contextlib import ExitStack

    import numpy as np

    from areabench.experiment.labels import difference_words
    from areabench.runfile.read import open_run
    from areabench.views.text import summary_table

    target = options.target
    paths: list[Path] = []
    for path in options.runs:
        found = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path}: holds no run file (.h5); give run files, or a folder of them")
        paths += found
    with np.errstate(over="ignore", invalid="ignore"):  # a file may hold any numbers
        summaries = []
        experiments = []
        for path in paths:
            with open_run(path) as recorded:  # one at a time: a folder may hold thousands
                summaries.append(recorded.summary(target))
                experiments.append(recorded.experiment)
        in_one_folder = len({path.parent for path in paths}) == 1
        files = [path.name if in_one_folder else str(path) for path in paths]
        settings = difference_words(experiments)

        def record() -> object:
            from areabench.views.json import summary_record  # with comparisons, which no text needs

            return {"target_accuracy": target, "runs": list(map(summary_record, paths, summaries, settings))}

        context.output.answer(lambda: summary_table(summaries, target, files, settings), record)
        if options.plot is not None:
            need_matplotlib(f"--plot {options.plot}")
            from areabench.views import figures

            with ExitStack() as stack:
                runs = [stack.enter_context(open_run(path)) for path in paths]
                figures.save(figures.quality(runs, target), options.plot)
            context.output.remark(f"plot: {options.plot}")
    return 0


COMMAND = Command("runs/demo --plot runs.png", summary_options, summary_command)
