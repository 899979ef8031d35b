"""Figures as wide as a paper wants them: widths, titles that fit, panels in lines, legends that hide nothing."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import offset_copy

from areabench.errors import UserError

Width = float | Literal["column", "page"]
WIDTHS_IN: dict[str, float] = {"column": 3.3, "page": 6.9}  # of a paper in two columns
_LEAST_IN, _MOST_IN = 2.5, 20.0
_NARROW_IN = 5.0  # below it a legend goes under its panel
_LETTERS_AN_INCH = 15.5  # at the size of titles
_LETTERS = {
    "x_s,K": "$x_{s,K}$", "x_s": "$x_s$", "x*": "$x^*$", "f*": "$f^*$", "lambda_s*": r"$\lambda_s^*$", "zeta": "ζ",
    "p_i f_i": "$p_i f_i$",
}  # fmt: skip
_PLAIN = re.compile("|".join(map(re.escape, _LETTERS)))
_BELOW_POINTS = -28  # room for the labels of the axis that a legend goes under


def inches(width: Width) -> float:
    """A width in inches, of its name or as it is."""
    wide = WIDTHS_IN.get(width, math.nan) if isinstance(width, str) else float(width)
    if not _LEAST_IN <= wide <= _MOST_IN:
        raise UserError(
            f"width {width!r}: must be from {_LEAST_IN:g} to {_MOST_IN:g} inches; give a number, or one of "
            f"{', '.join(WIDTHS_IN)}"
        )
    return wide


def entitle(figure: Figure, words: str) -> None:
    """Write a title in as many lines as it needs."""
    letters = int(_LETTERS_AN_INCH * figure.get_figwidth())
    lines = [line for part in words.split("\n") for line in textwrap.wrap(part, letters)]
    figure.suptitle("\n".join(lines), fontsize="medium")


def trials_name(count: int) -> str:
    """So many trials in words."""
    return "1 trial" if count == 1 else f"{count} trials"


def grid(count: int, width_in: float, least_in: float, height_in: float) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, as many in a line as have `least_in` each; a line has `height_in`."""
    across = min(count, max(1, int(width_in / least_in)))
    lines = math.ceil(count / across)
    figure = Figure(figsize=(width_in, 0.5 + height_in * lines), layout="constrained")
    panels: list[Axes] = list(figure.subplots(lines, across, squeeze=False).ravel())
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def is_narrow(figure: Any) -> bool:
    """Whether a figure has no room for a legend beside its panels."""
    return bool(figure.get_figwidth() < _NARROW_IN)


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    """Right of the panel; under it where the figure is narrow."""
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 3.0, "borderaxespad": 0.0}
    if is_narrow(axes.figure):
        below = offset_copy(axes.transAxes, axes.get_figure(root=True), y=_BELOW_POINTS, units="points")
        look |= {"loc": "upper center", "bbox_to_anchor": (0.45, 0.0), "bbox_transform": below, "ncols": 2}
        look["columnspacing"] = 1.0
    else:
        look |= {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)}
    axes.legend(handles=list(handles), **look)


def typeset(figure: Figure) -> None:
    """Set the paper's letters, which stand in plain text so far, as formulas."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        words = text.get_text()
        if "$" not in words and _PLAIN.search(words):
            text.set_text(_PLAIN.sub(lambda found: _LETTERS[found.group()], words))


def common_legend(figure: Figure, panel: Axes) -> None:
    """The legend of one panel, for all of them, under the figure."""
    handles, labels = panel.get_legend_handles_labels()
    columns = max(1, int(figure.get_figwidth() / 1.6))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), columns), frameon=False, fontsize="small",
        handlelength=2.5, columnspacing=1.2,
    )  # fmt: skip
