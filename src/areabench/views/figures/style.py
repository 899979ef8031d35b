"""What all figures share: the look of each method, axes, and files that come out the same byte for byte.

Marker and line tell the methods apart without colour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from areabench.errors import UserError
from areabench.looks import method_colour

_LINES: dict[str, Any] = {"area": "-", "fedbuff": (0, (6, 1.5)), "as-fedavg": (0, (6, 1.5, 1, 1.5)), "s-fedavg": ":"}
_MARKERS = {"area": "oPh", "fedbuff": "sX>", "as-fedavg": "^p8", "s-fedavg": "Dd<"}  # of its first, second ... variant
_OTHER_LINE, _OTHER_MARKERS = (0, (3, 1.5)), "v*H"  # of a method from outside the package

_SETTINGS: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "areabench",  # the same ids in each file
    "pdf.fonttype": 42,  # fonts are embedded as outlines, which publishers ask for
}
_PAPER: Any = {  # beside text of ten points
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.7,
    "axes.labelpad": 2.5,
    "xtick.major.pad": 2.5,
    "ytick.major.pad": 2.5,
}
_DOTS_PER_INCH = 150
_DATES: dict[str, dict[str, None]] = {  # what would change a file without reason, by suffix
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_DECADES_ONLY = 150.0  # a logarithmic axis that spans more than this factor is labelled at powers of ten alone
_MARKS_A_LINE = 8
_ALL_MARKED = 15  # a line of so many points has a marker at each
_EVEN_TICKS = 6.0  # one that spans less is labelled at even distances
Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any  # a line style of matplotlib


def look_of(method: str, variant: int = 0) -> Look:
    """The look of a method; `variant` counts the settings of one method beside its step size."""
    markers = _MARKERS.get(method, _OTHER_MARKERS)
    return Look(method_colour(method), markers[variant % len(markers)], _LINES.get(method, _OTHER_LINE))


def mark_every(points: int, shift: float) -> tuple[int, int]:
    """Which points of a line get a marker: the first one, and each so many-th.

    All of few, so that nobody takes the straight lines between them for data. `shift` keeps the markers of several
    lines apart, as a share of their distance.
    """
    apart = 1 if points <= _ALL_MARKED else points // _MARKS_A_LINE
    return int(shift * apart), apart


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Let a drawing function work under the settings of this module; with `width_in` under those for a paper."""

    @wraps(draw)
    def drawn(*arguments: Parameters.args, **named: Parameters.kwargs) -> Figure:
        settings = _SETTINGS if named.get("width_in") is None else _SETTINGS | _PAPER
        with mpl.rc_context(settings):
            return draw(*arguments, **named)

    return drawn


def dress(axes: Axes, across: str, upward: str) -> None:
    """Label the two axes and lay a light grid behind the data."""
    axes.set_xlabel(across)
    axes.set_ylabel(upward)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def label_log_axis(axis: Axis, most: int = 9) -> None:
    """Plain numbers on a logarithmic axis, as many as its range has room for; call it when the limits stand.

    Of powers of ten there are at most so many.
    """
    low, high = sorted(axis.get_view_interval())
    if high / low > _DECADES_ONLY:
        axis.set_major_locator(LogLocator(numticks=most))
    elif high / low > _EVEN_TICKS:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the suffix says as what (.png, .svg or .pdf)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_SETTINGS):
            figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=_DATES.get(path.suffix.lower()))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the plot cannot be written: {error}") from error
