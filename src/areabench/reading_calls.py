"""From the options of a reading command to what it does. Every rank loads this, so everything else is loaded late."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from areabench.output import Output
    from areabench.progress import Style


@dataclass(frozen=True)
class Around:
    """What a reading command gets besides its options: the folder of data sets, and how it shows what."""

    cache: Path
    progress: Style
    output: Output


def _check(options: argparse.Namespace, around: Around) -> int:
    from areabench.commands import check

    return check(options.experiment, options.overrides, options.ended_in, around.output)


def _theory(options: argparse.Namespace, around: Around) -> int:
    from areabench.commands import TheoryWishes, theory

    wishes = TheoryWishes(
        options.measured_in, options.solve, options.write, options.force, around.progress, around.output
    )
    return theory(options.experiment, options.overrides, wishes, around.cache)


def _watch(options: argparse.Namespace, around: Around) -> int:
    from areabench.watching.command import Wishes, watch

    wait_s = options.wait if options.wait is not None else 0.0 if options.once else 60.0
    wishes = Wishes(options.interval, options.once, wait_s, options.evaluate, tuple(options.trusted))
    return watch(options.run, wishes, around.cache, around.output)


def _replay(options: argparse.Namespace, around: Around) -> int:
    from areabench.reading_commands import replay

    return replay(options.run, around.cache, around.progress, options.trusted, around.output)


def _show(options: argparse.Namespace, around: Around) -> int:
    from areabench.reading_commands import show

    return show(options.run, around.output, as_toml=options.toml)


def _recover(options: argparse.Namespace, around: Around) -> int:
    from areabench.recovery.command import recover

    return recover(options.run, options.output, around.cache, around.output, force=options.force, style=around.progress)


def _diagnose(options: argparse.Namespace, around: Around) -> int:
    from areabench.diagnosis_commands import diagnose

    return diagnose(options.run, options.output, around.output)


def _summary(options: argparse.Namespace, around: Around) -> int:
    from areabench.reading_commands import summary

    return summary(options.runs, options.target, options.plot, around.output)


def _compare(options: argparse.Namespace, around: Around) -> int:
    from areabench.reading_commands import compare
    from areabench.tables.comparison import Tolerances

    within = Tolerances(options.updates_within, options.loss_within)
    return compare((options.first, options.second), within, options.plot, around.output)


def _figures(options: argparse.Namespace, around: Around) -> int:
    from areabench.errors import UserError
    from areabench.figures.commands import Wishes, split_figure, sweep_figures

    formats = ("png", "svg") if options.format == "both" else (options.format,)
    if options.folder is not None and options.overrides:
        raise UserError("--set goes with --split only: the settings of a sweep that has run are fixed; leave it out")
    if options.folder is not None:
        wishes = Wishes(formats, tuple(options.step_sizes), options.target)
        return sweep_figures(options.folder, options.output, wishes, around.output)
    output = options.output or Path("runs") / f"{options.split.stem}-labels"
    if output.is_dir():
        raise UserError(f"--output {output}: is a folder; name the file of the figure, for example {output}/labels.png")
    outputs = [output] if output.suffix else [output.with_suffix(f".{suffix}") for suffix in formats]
    return split_figure(options.split, options.overrides, around.cache, outputs, around.output)


def _report(options: argparse.Namespace, around: Around) -> int:
    from areabench.report.command import Wishes, report

    wishes = Wishes(options.target, options.title, options.timeline, around.progress)
    return report(options.paths, options.output, around.cache, wishes, around.output, force=options.force)


def _table(options: argparse.Namespace, around: Around) -> int:
    from areabench.errors import UserError
    from areabench.tables.commands import answer_tables, print_tables, write_page
    from areabench.tables.retention import named_rule

    form, output = options.format, options.output
    if options.json and (output or options.page or form != "text"):
        raise UserError("--json: is printed and has a form of its own; leave out --output, --page and --format")
    if options.page is not None:
        return write_page(options.folders, options.page)
    rule = named_rule(options.keep, options.metric, options.bound, options.gap, options.target)
    if form == "text" and output is None:
        return answer_tables(options.folders, rule, options.target, around.output, with_paper=options.paper)
    return print_tables(options.folders, rule, options.target, form, output, with_paper=options.paper)


READING: dict[str, Callable[[argparse.Namespace, Around], int]] = {
    "check": _check,
    "theory": _theory,
    "watch": _watch,
    "replay": _replay,
    "show": _show,
    "recover": _recover,
    "diagnose": _diagnose,
    "summary": _summary,
    "compare": _compare,
    "table": _table,
    "figures": _figures,
    "report": _report,
}
