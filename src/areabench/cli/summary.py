"""`areabench summary`: a table and a plot of some runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
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
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):  # a file may hold any numbers
        paths = list(_run_files(options.runs))
        _print_summary(paths, options.target, context)
        if options.plot is not None:
            _plot(paths, options.target, options.plot)
            context.output.remark(f"plot: {options.plot}")
    return 0


def _run_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Run files, and those in folders, by name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.h5"))
        if not inside:
            raise UserError(f"{path}: holds no run file (.h5); give run files, or a folder of them")
        yield from inside


def _print_summary(paths: Sequence[Path], target: float, context: CommandContext) -> None:
    from areabench.experiment.labels import difference_words
    from areabench.runfile.read import open_run
    from areabench.views.text import summary_table

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


def _plot(paths: Sequence[Path], target: float, plot: Path) -> None:
    need_matplotlib(f"--plot {plot}")
    from contextlib import ExitStack

    from areabench.runfile.read import open_run
    from areabench.views import figures

    with ExitStack() as stack:
        figures.save(figures.quality([stack.enter_context(open_run(path)) for path in paths], target), plot)


COMMAND = Command("runs/demo --plot runs.png", summary_options, summary_command)
