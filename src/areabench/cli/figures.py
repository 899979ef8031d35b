"""What `areabench figures` does, once argv and the environment have been read."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.plugins.load import check_parts
from areabench.errors import UserError
from areabench.experiment.labels import METHOD_NAMES
from areabench.results.grouping import Page, arrange
from areabench.results.label_counts import labels_held
from areabench.sweeps.plan import load_sweep
from areabench.sweeps.read import Result, open_sweep
from areabench.views.terminal import Output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PLAIN = Output()


@dataclass(frozen=True)
class Wishes:
    """What to draw of a sweep, and how."""

    formats: tuple[str, ...] = ("png", "svg")  # suffixes of the files
    step_sizes: tuple[str, ...] = ()  # METHOD=ALPHA; a method that is not named gets its best
    target: float = 80.0  # test accuracy in percent


def sweep_figures(folder: Path, into: Path | None, wishes: Wishes, output: Output = _PLAIN) -> int:
    """Draw quality over time, step-size sensitivity and staleness of a sweep."""
    _need_matplotlib()
    results = open_sweep(folder).results
    if not results:
        raise UserError(f"{folder}: no run of this sweep is done; run it with `areabench sweep` first")
    step_sizes = read_step_sizes(wishes.step_sizes, results)
    drawn: list[Path] = []
    for page in arrange(results):
        for name, figure in _draw(page, step_sizes, wishes.target).items():
            files = [(into or folder / "figures") / f"{name}{page.slug}.{suffix}" for suffix in wishes.formats]
            drawn += _save(figure, files)
    return _answer(drawn, output)


def split_figure(
    path: Path, overrides: Sequence[str], cache: Path, outputs: Sequence[Path], output: Output = _PLAIN
) -> int:
    """Draw which client of an experiment, or of the first one of a sweep, holds how many samples of which class."""
    _need_matplotlib()
    from areabench.views.figures.labels import draw_labels

    experiment = next(one.experiment for one in load_sweep(path, overrides).members if one.experiment is not None)
    check_parts(experiment, experiment.module_folders or ())
    drawn = _save(draw_labels(labels_held(experiment, path, cache), experiment), outputs)
    return _answer(drawn, output)


def read_step_sizes(wished: Sequence[str], results: Sequence[Result]) -> dict[str, float]:
    """Step sizes by method, from METHOD=ALPHA; each must have been run."""
    return dict(_read_step_size(text, results) for text in wished)


def _read_step_size(text: str, results: Sequence[Result]) -> tuple[str, float]:
    method, _, number = text.partition("=")
    methods = [result.experiment.method for result in results]
    known = list(dict.fromkeys([*METHOD_NAMES, *(settings.name for settings in methods)]))
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


def _draw(page: Page, step_sizes: Mapping[str, float], target: float) -> dict[str, Figure]:
    """Figures of one page, by name."""
    from areabench.views.figures.sweeps import draw_curves, draw_sensitivity, draw_staleness

    return {
        "curves": draw_curves(page, step_sizes, target),
        "sensitivity": draw_sensitivity(page),
        "staleness": draw_staleness(page, step_sizes),
    }


def _save(figure: Figure, paths: Sequence[Path]) -> Sequence[Path]:
    from areabench.views.figures.style import save

    for path in paths:
        save(figure, path)
    return paths


def _answer(drawn: Sequence[Path], output: Output) -> int:
    output.answer(lambda: "".join(f"figure: {path}\n" for path in drawn), lambda: {"figures": drawn})
    return 0


def _need_matplotlib() -> None:
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise UserError(
            f"figures: needs matplotlib ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error
