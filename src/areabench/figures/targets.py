"""The figure of the time to a target accuracy, with the trials that did not reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from areabench.errors import UserError
from areabench.figures.data import Page, Row, Values, has_diverged
from areabench.figures.panels import Pick, panels, picks_of
from areabench.figures.paper import is_narrow, legend
from areabench.figures.style import dress, look_of, styled
from areabench.sweeps.results import Result


@dataclass(frozen=True)
class Reached:
    """When the trials of a method reached the target: infinite where one did not, or diverged before; no NaN."""

    times_s: Values
    unknown: int  # trials that say nothing: they ended before their horizon, or kept no accuracy over time

    @property
    def count(self) -> int:
        """Trials that reached it."""
        return int(np.isfinite(self.times_s).sum())

    @property
    def median_s(self) -> float:
        """The median over trials, infinite where half of them or more did not reach it; NaN without trials."""
        if not len(self.times_s):
            return float("nan")
        ordered = np.sort(self.times_s)
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        return float((low + high) / 2)

    @property
    def words(self) -> str:
        """How many trials reached it."""
        unknown = f", {self.unknown} unknown" if self.unknown else ""
        return f"{self.count} of {len(self.times_s)}{unknown}"


def reached(results: Sequence[Result], target: float) -> Reached:
    """When trials reached a test accuracy in percent."""
    times_s = np.array([_time_s(one, target) for one in results], dtype=float)
    known = ~np.isnan(times_s)
    return Reached(times_s[known], int((~known).sum()))


def _time_s(result: Result, target: float) -> float:
    """What a trial reached counts, also if it diverged later."""
    time_s = result.time_to_accuracy(target)
    return float("inf") if has_diverged(result) and not np.isfinite(time_s) else time_s


@styled
def draw_time_to_target(page: Page, wished: Mapping[str, float], target: float, *, width_in: float) -> Figure:
    """A row of bars a rates setting: the median as a bar, trials as dots, those beyond the horizon at its line."""
    horizon_s = page.experiment.stop.horizon_s
    if horizon_s is None or "test_accuracy" not in page.quantities:
        raise UserError("time to a target: needs runs with a horizon and an accuracy; draw their quality over time")
    figure, axes = panels(page, 1, width_in, f"Time to {target:g} % test accuracy", (width_in, width_in))
    count = max(len(row.contenders) for row in page.rows)
    figure.set_figheight(1.1 + (0.28 * count + 0.75) * len(page.rows))
    for row, (panel,) in zip(page.rows, axes, strict=True):
        _draw_row(panel, row, wished, target, horizon_s)
    legend(axes[-1 if is_narrow(figure) else 0][0], _handles())
    return figure


def _draw_row(axes: Axes, row: Row, wished: Mapping[str, float], target: float, horizon_s: float) -> None:
    picks = picks_of(row, wished)
    dress(axes, "time (s)", "")
    axes.grid(visible=False, axis="y")
    for place, pick in enumerate(picks):
        _draw_bar(axes, place, pick, target, horizon_s)
    axes.axvline(horizon_s, color="0.45", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    axes.set_yticks(range(len(picks)), [pick.label.replace("\n", " ") for pick in picks])
    axes.set_ylim(len(picks) - 0.4, -0.6)
    axes.set_xlim(0, 1.22 * horizon_s)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= horizon_s])


def _draw_bar(axes: Axes, place: int, pick: Pick, target: float, horizon_s: float) -> None:
    """One method: bar, dots, and how many trials reached the target."""
    found = reached(pick.cell.results if pick.cell else (), target)
    colour, is_there = look_of(pick.contender.method.name).colour, np.isfinite(found.times_s)
    if np.isfinite(found.median_s):
        axes.barh(place, found.median_s, height=0.6, color=colour, alpha=0.55, zorder=2)
    elif len(found.times_s):
        axes.barh(place, horizon_s, height=0.6, facecolor="none", edgecolor=colour, hatch="////", alpha=0.5, zorder=2)
    spread = place + np.linspace(-0.2, 0.2, len(found.times_s)) if len(found.times_s) > 1 else np.array([float(place)])
    dots = spread[: len(found.times_s)]
    axes.plot(found.times_s[is_there], dots[is_there], "o", color=colour, markersize=2.6, zorder=3)
    beyond = np.full(int((~is_there).sum()), horizon_s)
    axes.plot(beyond, dots[~is_there], ">", color=colour, markerfacecolor="white", markersize=4.0, zorder=3)
    axes.text(1.03 * horizon_s, place, found.words, va="center", fontsize="small", color="0.25")


def _handles() -> list[Line2D | Patch]:
    return [
        Patch(color="0.65", label="median"),
        Patch(facecolor="none", edgecolor="0.65", hatch="////", label="median beyond"),
        Line2D([], [], marker="o", color="0.35", linestyle="none", markersize=2.6, label="a trial"),
        Line2D([], [], marker=">", color="0.35", markerfacecolor="white", linestyle="none", markersize=4.0,
               label="not reached"),
        Line2D([], [], color="0.45", linewidth=0.9, linestyle=(0, (2, 2)), label="horizon"),
    ]  # fmt: skip
