"""`areabench figures`: draw the figures of a sweep, or the labels that the clients of an experiment hold."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext, need_matplotlib
from areabench.cli.options import json_option, set_option, spread_option, target_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from areabench.results.statistics import SpreadName
    from areabench.sweeps.result import Result


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
    need_matplotlib("figures")
    notes: list[str] = []
    if options.folder is None:
        drawn = _draw_split(options, context)
    elif options.overrides:
        raise UserError("--set goes with --split only: the settings of a sweep that has run are fixed; leave it out")
    else:
        drawn, notes = _draw_sweep(options)
    lines = [*(f"figure: {path}" for path in drawn), *(f"note: {note}" for note in notes)]
    context.output.answer(lambda: "".join(f"{line}\n" for line in lines), lambda: {"figures": drawn, "notes": notes})
    return 0


def _draw_sweep(options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Draw quality over time, step-size sensitivity, staleness and times to the target of a sweep; files and notes."""
    from areabench.results.grouping import arrange
    from areabench.sweeps.choose import tuning_notes
    from areabench.sweeps.read import open_finished
    from areabench.views import figures
    from areabench.views.figures.style import save_pages
    from areabench.views.figures.targets import performance_profile, settings_to_profile

    output: Path = options.output or options.folder / "figures"
    target = options.target
    spread: SpreadName = options.spread or "interval"
    if output.suffix in (".png", ".svg") and not output.is_dir():
        raise UserError(f"--output {output}: a sweep has several figures; name a folder, or a file that ends in .pdf")
    (sweep,) = open_finished([options.folder])
    step_sizes = read_step_sizes(options.step_sizes, sweep.results)
    pages = arrange(sweep.results, sweep.tuned_keys)
    drawn: dict[str, Figure] = {}
    for page in pages:
        drawn[f"curves{page.slug}"] = figures.quality_over_time(page, step_sizes, target, spread=spread)
        drawn[f"sensitivity{page.slug}"] = figures.step_size_sensitivity(page, spread=spread)
        drawn[f"staleness{page.slug}"] = figures.staleness(page, step_sizes)
        if "test_accuracy" in page.quantities:
            drawn[f"reached{page.slug}"] = figures.reached_over_time(page, step_sizes, target)
    if len(settings_to_profile(pages)) > 1:
        drawn["profile"] = performance_profile(pages, step_sizes, target)
    notes = tuning_notes(sweep)
    if output.suffix == ".pdf" and not output.is_dir():
        save_pages(drawn.values(), output)
        return [output], notes
    return [path for name, figure in drawn.items() for path in _save(figure, output / name, options.format)], notes


def _draw_split(options: argparse.Namespace, context: CommandContext) -> list[Path]:
    """Draw how many samples of each class every client of an experiment, or of a sweep's first one, holds."""
    from areabench.plugins.call import check_parts
    from areabench.results.label_counts import labels_held
    from areabench.sweeps.plan import load_sweep
    from areabench.views.figures.labels import draw_labels
    from areabench.views.figures.style import save

    output: Path = options.output or Path("runs") / f"{options.split.stem}-labels"
    if output.is_dir():
        raise UserError(f"--output {output}: is a folder; name the file of the figure, for example {output}/labels.png")
    members = load_sweep(options.split, options.overrides).members
    experiment = next(member.experiment for member in members if member.experiment is not None)
    check_parts(experiment, experiment.module_folders or ())
    figure = draw_labels(labels_held(experiment, options.split, context.cache), experiment)
    if not output.suffix:
        return _save(figure, output, options.format)
    save(figure, output)
    return [output]


def _save(figure: Figure, path: Path, form: str) -> list[Path]:
    """Save a figure under a name without suffix, in one file of each form; the files."""
    from areabench.views.figures.style import save

    forms = ("png", "svg") if form == "both" else (form,)
    paths = [path.with_name(f"{path.name}.{each}") for each in forms]
    for each in paths:
        save(figure, each)
    return paths


def read_step_sizes(texts: Sequence[str], results: Sequence[Result]) -> dict[str, float]:
    """Step sizes by method, from METHOD=ALPHA; each must have been run."""
    from areabench.methods import METHODS

    methods = [result.experiment.method for result in results]
    known = list(dict.fromkeys([*METHODS, *(settings.name for settings in methods)]))
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in known:
            raise UserError(
                f"--step-size {text}: '{name}' is not a method; write METHOD=ALPHA with METHOD one of "
                f"{', '.join(known)}"
            )
        step_sizes = sorted({settings.step_size for settings in methods if settings.name == name})
        try:
            found[name] = step_sizes[step_sizes.index(float(number))]
        except ValueError:  # no number, or one that was not run
            shown = ", ".join(f"{value:g}" for value in step_sizes) or "none"
            raise UserError(
                f"--step-size {text}: '{number}' is not a step size that was run; those of {name}: {shown}"
            ) from None
    return found


COMMAND = Command(
    "runs/grid --format svg --step-size area=1000",
    figures_options,
    figures_command,
)
