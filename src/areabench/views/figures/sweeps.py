"""Figures of sweeps: quality over time, staleness, and final quality over the step size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from areabench.errors import UserError
from areabench.experiment.labels import method_colour
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, Entry, arrange
from areabench.results.statistics import Floats, Quantity, SpreadName, band, mean_and_p95, staleness_shares
from areabench.runfile.read import Run
from areabench.sweeps.read import Sweep
from areabench.sweeps.result import Result, read_result
from areabench.views.figures.style import (
    LIMIT_LINE,
    Width,
    entitle,
    grid,
    inches,
    label_axes,
    label_log_axis,
    legend,
    line_look,
    mark_every,
    paper_style,
    say_nothing_there,
)

Source = Comparison | Sweep | Run | Sequence[Run]  # what a figure shows: one setting, or runs of one
_UPWARD = {"test_accuracy": "test accuracy (%)", "train_loss": "training loss"}
_WIDEST = 1e4  # a loss beyond this many times the least one is off the axis: it would flatten all others


def runs_of(source: Run | Sequence[Run]) -> Sequence[Run]:
    """At least one run."""
    runs = [source] if isinstance(source, Run) else source
    if not runs:
        raise UserError("there is no run to draw; open one with areabench.open_run")
    return runs


def comparison_of(source: Source, number: int | None) -> Comparison:
    """What to draw: of several settings that of this number, counted from 0."""
    if isinstance(source, Comparison):
        return source
    if isinstance(source, Sweep):
        pages = arrange(source.results, source.tuned_keys)
    else:
        pages = arrange([read_result(run.path) for run in runs_of(source)])
    if not pages:
        raise UserError("no run of this sweep is done; run it with `areabench sweep` first")
    if number is None and len(pages) > 1:
        raise UserError(f"there are {len(pages)} settings to draw; choose one with page=0 to page={len(pages) - 1}")
    number = number or 0
    if not 0 <= number < len(pages):
        raise UserError(f"page {number}: must be from 0 to {len(pages) - 1}, one per setting")
    return pages[number]


@dataclass(frozen=True)
class Pick:
    """A method and the cell of the step size that is drawn; None where the chosen one was not run."""

    entry: Entry
    cell: Cell | None

    @property
    def results(self) -> tuple[Result, ...]:
        """All trials."""
        return () if self.cell is None else self.cell.results

    @property
    def finite(self) -> tuple[Result, ...]:
        """The trials that did not diverge."""
        return () if self.cell is None else self.cell.finite

    @property
    def label(self) -> str:
        """The method, its step size, and how many trials are left out."""
        if self.cell is None:
            return f"{self.entry.label}: not run"
        label = f"{self.entry.label}, α = {self.cell.point}"
        if not self.finite:
            return f"{label}\n(all diverged)"
        if self.cell.diverged:
            return f"{label}\n({self.cell.diverged} of {len(self.results)} diverged)"
        return label


def picks_of(row: Sequence[Entry], wished: Mapping[str, float] | None) -> list[Pick]:
    """One step size per method: the chosen one or the best."""
    return [Pick(entry, entry.cell_to_draw(wished or {})) for entry in row]


def panels(
    comparison: Comparison, columns: int, width: Width, least_in: float, heading: str, *, titled: bool
) -> tuple[Figure, Any]:
    """A figure with one row of panels per rates setting, and its axes, shape (rows, columns)."""
    figure, axes = grid(columns, inches(width), least_in, 1.9, len(comparison.rows))
    entitle(figure, f"{heading}\n{comparison.caption}", titled=titled)
    for rates, row_axes in zip(comparison.rows, axes, strict=True):
        row_axes[0].set_title(f"rates {rates.describe()}", loc="left", fontsize="small")
    return figure, axes


def _quality_panels(
    comparison: Comparison, what: str, spread: SpreadName, width: Width, *, titled: bool
) -> tuple[Figure, Any]:
    """Panels with a column for accuracy and one for loss, as far as they were measured."""
    if any(len(cell.results) > 1 for cell in comparison.cells):
        what += {"interval": ": mean and its 95 % interval", "range": ": mean, and range over trials"}[spread]
    return panels(comparison, max(len(comparison.quantities), 1), width, 2.5, what, titled=titled)


def finish(axes: Axes, quantity: Quantity, across: str, before: str = "") -> None:
    """Label a panel of accuracy or loss; the loss is logarithmic where all of it is above zero."""
    label_axes(axes, across, before + _UPWARD[quantity])
    axes.margins(x=0.02)
    if is_empty(axes):
        say_nothing_there(axes, "no values")
    elif quantity == "train_loss" and axes.dataLim.y0 > 0:
        axes.set_yscale("log")
        if axes.dataLim.y1 > _WIDEST * axes.dataLim.y0:
            axes.set_ylim(axes.dataLim.y0 / 1.5, _WIDEST * axes.dataLim.y0)
        label_log_axis(axes.yaxis)


def is_empty(axes: Axes) -> bool:
    """Whether nothing was drawn."""
    return not np.isfinite(axes.dataLim.y0)


def look_of(entry: Entry) -> dict[str, Any]:
    """The style of the line of a method."""
    return line_look(entry.method.name, entry.variant)


# ---------------------------------------------------------------------------------------------------- quality over time

_FEWEST_BARS = 5  # that a histogram has room for
_LOG_HELPS = 50.0  # a histogram whose greatest and least bars differ by more than this factor gets a logarithmic axis


@paper_style()
def quality_over_time(
    sweep: Source,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    spread: SpreadName = "interval",
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """Accuracy and loss over time: the mean over trials as a line, its spread as a band; `target` in percent."""
    comparison = comparison_of(sweep, page)
    figure, axes = _quality_panels(comparison, "Quality over time", spread, width, titled=titled)
    for row, row_axes in zip(comparison.rows.values(), axes, strict=True):
        picks = picks_of(row, step_sizes)
        handles = [Line2D([], [], **look_of(pick.entry), label=pick.label) for pick in picks]
        for quantity, panel in zip(comparison.quantities, row_axes, strict=False):
            _draw_lines(panel, picks, quantity, spread)
            finish(panel, quantity, "time (s)")
            if quantity == "test_accuracy" and not is_empty(panel):
                panel.axhline(target, **LIMIT_LINE, zorder=1, gid="target")
                handles.append(Line2D([], [], **LIMIT_LINE, label=f"target, {target:g} %"))
        legend(row_axes[-1], handles)
    return figure


def _draw_lines(axes: Axes, picks: Sequence[Pick], quantity: Quantity, spread: SpreadName) -> None:
    """Bands below all lines, so that none hides a line; markers of two lines at different times."""
    for index, pick in enumerate(picks):
        shown = band(pick.finite, quantity, spread)
        look = look_of(pick.entry)
        if len(pick.finite) > 1:
            # matplotlib would let the axes reach as far as the band; `_reach` says how far they do.
            limits = axes.dataLim.frozen()
            axes.fill_between(
                shown.time_s, shown.low, shown.high, color=look["color"], alpha=0.18, linewidth=0, zorder=2
            )
            trials = band(pick.finite, quantity, "range")
            _reach(axes, limits, shown.time_s, (shown.low, shown.high), (trials.low, trials.high))
        marked = mark_every(len(shown.time_s), index / len(picks))
        axes.plot(shown.time_s, shown.mean, **look, markevery=marked, zorder=3)


def _reach(
    axes: Axes, limits: Bbox, across: ArrayLike, ends: tuple[Floats, Floats], trials: tuple[Floats, Floats]
) -> None:
    """Let the axes reach from `limits` to the spread as far as the trials: the interval of two or three is wide."""
    axes.dataLim.set(limits)
    for end in ends:
        axes.update_datalim(np.column_stack([across, np.clip(end, *trials)]))


# ---------------------------------------------------------------------------------------------------- staleness


@paper_style()
def staleness(
    sweep: Source,
    step_sizes: Mapping[str, float] | None = None,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """How many server steps were made while an update was in flight: one panel per method, mean share over trials."""
    comparison = comparison_of(sweep, page)
    columns = max(len(row) for row in comparison.rows.values())
    figure, axes = panels(
        comparison, columns, width, 1.6, "Staleness of updates: mean share over trials", titled=titled
    )
    for row, row_axes in zip(comparison.rows.values(), axes, strict=True):
        picks = picks_of(row, step_sizes)
        shares = [100 * staleness_shares(pick.finite) for pick in picks]
        # The panels of a row have common limits, so that they can be compared.
        present = np.concatenate([share[share > 0] for share in shares])
        longest = max(len(share) for share in shares)
        for pick, share, panel in zip(picks, shares, row_axes, strict=False):
            words = "no updates"
            if len(share) == 1:
                words = "every update is fresh"
            elif len(share):
                mean, p95 = mean_and_p95(share)
                words = f"mean {mean:.3g}, 95 % up to {p95}"
            rates = panel.get_title(loc="left")  # above the first panel
            label = pick.label.replace("\n", " ")
            label_axes(panel, "staleness (steps)", "", f"{rates}\n{label}\n{words}")
            if len(share):
                colour = method_colour(pick.entry.method.name)
                panel.stairs(share, np.arange(len(share) + 1) - 0.5, fill=True, color=colour)
            # The panels of a row have the same limits, but for a single bar, which would be too thin to see.
            right = longest
            if len(share) <= 1:
                right = _FEWEST_BARS
            panel.set_xlim(-0.5 - 0.02 * right, max(right, _FEWEST_BARS) - 0.5)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            is_first = panel.get_subplotspec().is_first_col()
            panel.tick_params(labelleft=is_first)
            if is_first:
                panel.set_ylabel("share of updates (%)")
            if len(present) and present.max() > _LOG_HELPS * present.min():
                panel.set_yscale("log")
                panel.set_ylim(present.min() / 1.5, present.max() * 1.5)
                label_log_axis(panel.yaxis)
            elif len(present):
                panel.set_ylim(0.0, present.max() * 1.05)
        for panel in row_axes[len(picks) :]:
            panel.set_axis_off()
    return figure


# ---------------------------------------------------------------------------------------------------- step sizes

_STRIP = 0.05  # height of one line of marks at the top edge, of the height of the axes
_MARGIN = 2.5  # factor by which the axis of step sizes reaches beyond them
_STEP_SIZE_LABELS = 5  # as many as there is room for


@paper_style()
def step_size_sensitivity(
    sweep: Source,
    *,
    spread: SpreadName = "interval",
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """Final accuracy and loss over the step size: mean and spread over trials; what diverged at the top edge."""
    comparison = comparison_of(sweep, page)
    figure, axes = _quality_panels(comparison, "Final quality over step size", spread, width, titled=titled)
    for row, row_axes in zip(comparison.rows.values(), axes, strict=True):
        for quantity, panel in zip(comparison.quantities, row_axes, strict=False):
            _draw_finals(panel, row, quantity, spread)
            label_log_axis(panel.xaxis, _STEP_SIZE_LABELS)
        handles = [Line2D([], [], **look_of(one), label=one.label) for one in row]
        diverged = [cell for cell in _cells(row) if cell.diverged]
        if any(not cell.finite for cell in diverged):
            handles.append(Line2D([], [], **_mark("black", some=False), label="all trials diverged"))
        if any(cell.finite for cell in diverged):
            handles.append(Line2D([], [], **_mark("black", some=True), label="some trials diverged"))
        legend(row_axes[-1], handles)
    return figure


def _draw_finals(axes: Axes, row: Sequence[Entry], quantity: Quantity, spread: SpreadName) -> None:
    step_sizes = [cell.step_size for cell in _cells(row)]
    axes.set_xscale("log")
    axes.set_xlim(min(step_sizes) / _MARGIN, max(step_sizes) * _MARGIN)  # first: one point gives no limits by itself
    for entry, factor in _side_by_side(row):
        finals = [(cell.step_size * factor, final) for cell in entry.cells if (final := cell.final(quantity))]
        if not finals:
            continue
        across = [step_size for step_size, _ in finals]
        mean, least, most = np.array([(final.mean, final.minimum, final.maximum) for _, final in finals]).T
        low, high = np.array([final.ends(spread) for _, final in finals]).T
        reach = np.maximum((mean - low, high - mean), 0.0)  # a mean may be rounded beyond its range
        limits = axes.dataLim.frozen()
        axes.errorbar(across, mean, yerr=reach, **look_of(entry), elinewidth=1.0, capsize=2.0)
        _reach(axes, limits, across, (low, high), (least, most))
    finish(axes, quantity, "step size α", "final ")
    if any(cell.diverged for cell in _cells(row)):
        _draw_divergence(axes, row)


def _cells(row: Sequence[Entry]) -> list[Cell]:
    return [cell for entry in row for cell in entry.cells]


def _side_by_side(row: Sequence[Entry]) -> Iterator[tuple[Entry, float]]:
    """Methods, each with the factor that moves it a little sideways, so that whiskers do not hide each other.

    All methods of a step size take a third of the distance between the two closest step sizes.
    """
    # On a logarithmic axis a factor is a distance.
    step_sizes = np.unique([cell.step_size for cell in _cells(row)])
    width = float(np.diff(np.log(step_sizes)).min(initial=1.0)) / 3
    count = len(row)
    for index, entry in enumerate(row):
        yield entry, float(np.exp(width * ((index + 0.5) / count - 0.5)))


def _mark(colour: str, *, some: bool) -> dict[str, Any]:
    """The style of a step size that diverged: a filled cross, or a thin one where some trials did not."""
    return {"color": colour, "marker": "x" if some else "X", "markersize": 5.5, "linestyle": "none"}


def _draw_divergence(axes: Axes, row: Sequence[Entry]) -> None:
    """Marks in a strip above the data, one line per method: shaded, without ticks, above all lines."""
    share = len(row) * _STRIP
    transform = axes.yaxis.get_transform()
    bottom, top = axes.get_ylim()
    for minor in (False, True):
        # Ticks are frozen first, so that none appears inside the strip.
        ticks = axes.yaxis.get_ticklocs(minor=minor)
        axes.set_yticks(ticks[(ticks >= bottom) & (ticks <= top)], minor=minor)
    # In the scale of the axis, which may be logarithmic, the strip takes a fixed share.
    low, high = transform.transform(np.array([bottom, top]))
    raised = transform.inverted().transform(np.array([low + (high - low) / (1 - share)]))
    axes.set_ylim(bottom, float(raised[0]))
    axes.add_patch(Rectangle((0, 1 - share), 1, share, color="0.95", linewidth=0, zorder=2.5, transform=axes.transAxes))
    for index, (entry, factor) in enumerate(_side_by_side(row)):
        height = 1 - (index + 0.5) * _STRIP
        for some in (False, True):
            across = [c.step_size * factor for c in entry.cells if c.diverged and bool(c.finite) == some]
            mark = _mark(method_colour(entry.method.name), some=some)
            mark |= {"transform": axes.get_xaxis_transform(), "zorder": 3, "gid": "diverged"}
            axes.plot(across, [height] * len(across), **mark)
