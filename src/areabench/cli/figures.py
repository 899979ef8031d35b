"""`areabench figures`: draw the figures of a sweep, or the labels that the clients of an experiment hold."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext, need_matplotlib
from areabench.cli.options import json_option, set_option, spread_option, target_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from areabench.results.grouping import Comparison
    from areabench.results.statistics import SpreadName
    from areabench.sweeps.read import Result


def figures_options(parser: argparse.ArgumentParser) -> None:
    """A sweep or a split, the files to draw, and what is in them."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="folder of a sweep")
    what.add_argument("--split", type=Path, metavar="FILE", help="draw the labels of this experiment's clients")
    set_option(parser)
    parser.add_argument(
        "-o", "--output", type=Path,
        help="folder of the figures (default DIR/figures), or one .pdf of all; with --split a file (default "
        "runs/STEM-labels)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("png", "svg", "pdf", "both"), default="both",
        help="format of the files (default png and svg)",
    )  # fmt: skip
    parser.add_argument(
        "--step-size", dest="step_sizes", action="append", default=[], metavar="METHOD=ALPHA",
        help="step size to draw for a method (default: the best mean final accuracy); repeatable",
    )  # fmt: skip
    target_option(parser, "of the target line")
    spread_option(parser, "bands and whiskers")
    json_option(parser)


def figures_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Draw a sweep, or a split."""
    formats = ("png", "svg") if options.format == "both" else (options.format,)
    notes: list[str] = []
    if options.folder is None:
        drawn = _split_figure(options, context, formats)
    elif options.overrides:
        raise UserError("--set goes with --split only: the settings of a sweep that has run are fixed; leave it out")
    else:
        drawn, notes = _sweep_figures(options, formats)
    lines = [*(f"figure: {path}" for path in drawn), *(f"note: {note}" for note in notes)]
    context.output.answer(lambda: "".join(f"{line}\n" for line in lines), lambda: {"figures": drawn, "notes": notes})
    return 0


def _sweep_figures(options: argparse.Namespace, formats: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Draw quality over time, step-size sensitivity, staleness and times to the target of a sweep; files and notes."""
    need_matplotlib("figures")
    from areabench.results.grouping import arrange
    from areabench.sweeps.choose import tuning_notes
    from areabench.sweeps.read import open_finished
    from areabench.views.figures.targets import performance_profile, settings_to_profile

    output: Path = options.output or options.folder / "figures"
    if output.suffix in (".png", ".svg") and not output.is_dir():
        raise UserError(f"--output {output}: a sweep has several figures; name a folder, or a file that ends in .pdf")
    (sweep,) = open_finished([options.folder])
    results = sweep.results
    step_sizes = read_step_sizes(options.step_sizes, results)
    pages = arrange(results, sweep.tuned_keys)
    figures = {
        f"{name}{page.slug}": figure
        for page in pages
        for name, figure in _draw(page, step_sizes, options.target, options.spread or "interval").items()
    }
    if len(settings_to_profile(pages)) > 1:
        figures["profile"] = performance_profile(pages, step_sizes, options.target)
    if output.suffix == ".pdf" and not output.is_dir():
        from areabench.views.figures.style import save_pages

        save_pages(figures.values(), output)
        return [output], tuning_notes(sweep)
    paths = {name: [output / f"{name}.{suffix}" for suffix in formats] for name in figures}
    return [path for name, figure in figures.items() for path in _save(figure, paths[name])], tuning_notes(sweep)


def _split_figure(options: argparse.Namespace, context: CommandContext, formats: Sequence[str]) -> list[Path]:
    """Draw how many samples of each class every client of an experiment, or of a sweep's first one, holds."""
    output: Path = options.output or Path("runs") / f"{options.split.stem}-labels"
    if output.is_dir():
        raise UserError(f"--output {output}: is a folder; name the file of the figure, for example {output}/labels.png")
    need_matplotlib("figures")
    from areabench.plugins.call import check_parts
    from areabench.results.label_counts import labels_held
    from areabench.sweeps.plan import load_sweep
    from areabench.views.figures.labels import draw_labels

    members = load_sweep(options.split, options.overrides).members
    experiment = next(member.experiment for member in members if member.experiment is not None)
    check_parts(experiment, experiment.module_folders or ())
    files = [output] if output.suffix else [output.with_suffix(f".{suffix}") for suffix in formats]
    return _save(draw_labels(labels_held(experiment, options.split, context.cache), experiment), files)


def read_step_sizes(texts: Sequence[str], results: Sequence[Result]) -> dict[str, float]:
    """Step sizes by method, from METHOD=ALPHA; each must have been run."""
    return dict(_read_step_size(text, results) for text in texts)


def _read_step_size(text: str, results: Sequence[Result]) -> tuple[str, float]:
    from areabench.methods import METHODS

    method, _, number = text.partition("=")
    methods = [result.experiment.method for result in results]
    known = list(dict.fromkeys([*METHODS, *(settings.name for settings in methods)]))
    if method not in known:
        raise UserError(
            f"--step-size {text}: '{method}' is not a method; write METHOD=ALPHA with METHOD one of {', '.join(known)}"
        )
    try:
        step_size = float(number)
    except ValueError:
        step_size = math.nan
    run = sorted({settings.step_size for settings in methods if settings.name == method})
    if step_size not in run:
        shown = ", ".join(f"{value:g}" for value in run) or "none"
        raise UserError(f"--step-size {text}: '{number}' is not a step size that was run; those of {method}: {shown}")
    return method, step_size


def _draw(page: Comparison, step_sizes: Mapping[str, float], target: float, spread: SpreadName) -> dict[str, Figure]:
    """Figures of one page, by name."""
    from areabench.views import figures

    drawn = {
        "curves": figures.quality_over_time(page, step_sizes, target, spread=spread),
        "sensitivity": figures.step_size_sensitivity(page, spread=spread),
        "staleness": figures.staleness(page, step_sizes),
    }
    if "test_accuracy" in page.quantities:
        drawn["reached"] = figures.reached_over_time(page, step_sizes, target)
    return drawn


def _save(figure: Figure, paths: list[Path]) -> list[Path]:
    from areabench.views.figures.style import save

    for path in paths:
        save(figure, path)
    return paths


COMMAND = Command(
    "runs/grid --format svg --step-size area=1000",
    figures_options,
    figures_command,
)
