"""The letters of the paper in a figure, and one legend for all of its panels."""

from __future__ import annotations

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

_LETTERS = {
    "x_s,K": "$x_{s,K}$", "x_s": "$x_s$", "x*": "$x^*$", "f*": "$f^*$", "lambda_s*": r"$\lambda_s^*$", "zeta": "ζ",
    "p_i f_i": "$p_i f_i$",
}  # fmt: skip
_AS_TEXT = re.compile("|".join(map(re.escape, _LETTERS)))


def typeset(figure: Figure) -> None:
    """Turn the letters of the paper, which are plain text so far, into formulas."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        words = text.get_text()
        if "$" not in words and _AS_TEXT.search(words):
            text.set_text(_AS_TEXT.sub(lambda found: _LETTERS[found.group()], words))


def common_legend(figure: Figure, panel: Axes) -> None:
    """One legend for all panels, under the figure."""
    handles, labels = panel.get_legend_handles_labels()
    columns = max(1, int(figure.get_figwidth() / 1.6))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), columns), frameon=False, fontsize="small",
        handlelength=2.5, columnspacing=1.2,
    )  # fmt: skip
