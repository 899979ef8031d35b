"""What all figures share: the style of each method, axes, legends, and files that are the same byte for byte.

Marker and line distinguish the methods without colour.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import offset_copy

from areabench.errors import UserError
from areabench.experiment.labels import method_colour
from areabench.methods import METHODS

# Markers (of a method's first, second ... variant) and line, by the method's place in the registry; the last are also
# those of a user's own method.
_LOOKS: tuple[tuple[str, Any], ...] = (
    ("oPh", "-"), ("sX>", (0, (6, 1.5))), ("^p8", (0, (6, 1.5, 1, 1.5))), ("Dd<", ":"), ("v*H", (0, (3, 1.5))),
)  # fmt: skip
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
_DATES: dict[str, dict[str, None]] = {  # metadata that would change a file without reason, by suffix
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_DECADES_ONLY = 150.0  # a logarithmic axis that spans more than this factor is labelled at powers of ten alone
_MARKS_PER_LINE = 8
_ALL_MARKED = 15  # a line of at most this many points has a marker at each
_EVEN_TICKS = 6.0  # a logarithmic axis that spans less is labelled at even distances
LIMIT_LINE: Any = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (2, 2))}  # a target, a horizon, a bound
Width = float | Literal["column", "page"]
WIDTHS_IN: dict[str, float] = {"column": 3.3, "page": 6.9}  # of a paper in two columns
_LEAST_IN = 2.5
_MOST_IN = 20.0
_NARROW_IN = 5.0  # below it a legend goes under its panel
_LETTERS_PER_INCH = 15.5  # at the size of titles
_BELOW_POINTS = -28  # room for the labels of the axis that a legend goes under
Parameters = ParamSpec("Parameters")


def line_look(method: str, variant: int = 0) -> dict[str, Any]:
    """The style of a method as matplotlib takes it for a line; `variant` counts its settings beside the step size."""
    place = list(METHODS).index(method) % len(_LOOKS) if method in METHODS else -1
    markers, line = _LOOKS[place]
    return {
        "color": method_colour(method), "marker": markers[variant % len(markers)], "linestyle": line, "linewidth": 1.6,
        "markersize": 4.5,
    }  # fmt: skip


def mark_every(points: int, shift: float) -> tuple[int, int]:
    """Which points of a line get a marker: the first one, and the step to the next.

    Of few points all do, so that the straight lines between them are not taken for data. `shift` keeps the markers of
    several lines apart, as a share of their distance.
    """
    apart = 1 if points <= _ALL_MARKED else points // _MARKS_PER_LINE
    return int(shift * apart), apart


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Run a drawing function with text of ten points; with an argument `width_in`, as for a paper."""

    @wraps(draw)
    def drawn(*arguments: Parameters.args, **named: Parameters.kwargs) -> Figure:
        settings = _SETTINGS if named.get("width_in") is None else _SETTINGS | _PAPER
        with mpl.rc_context(settings):
            return draw(*arguments, **named)

    return drawn


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw with text of eight points; as `@paper_style()` above a function, whenever it runs."""
    with mpl.rc_context(_SETTINGS | _PAPER):
        yield


def label_axes(axes: Axes, across: str, upward: str, title: str = "", pad: float | None = None) -> None:
    """Label the two axes, lay a light grid behind the data, and write a small title, `pad` points above them."""
    axes.set_xlabel(across)
    axes.set_ylabel(upward)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    if title:
        axes.set_title(title, loc="left", fontsize="small", pad=pad)


def label_log_axis(axis: Axis, most: int = 9) -> None:
    """Plain numbers on a logarithmic axis, as many as its range has room for; call it when the limits are final.

    There are at most `most` powers of ten.
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


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix is its format: .pdf and .svg for a paper, .png for a screen."""
    path = Path(path)
    with _writing(path):
        figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=_DATES.get(path.suffix.lower()))


def save_pages(figures: Iterable[Figure], path: Path) -> None:
    """Write figures as the pages of one PDF."""
    with _writing(path), PdfPages(path, metadata=_DATES[".pdf"]) as pages:
        for figure in figures:
            pages.savefig(figure)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_SETTINGS):
            yield
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the plot cannot be written: {error}") from error


def inches(width: Width) -> float:
    """A width in inches, from a number or a name."""
    wide = WIDTHS_IN.get(width, math.nan) if isinstance(width, str) else float(width)
    if not _LEAST_IN <= wide <= _MOST_IN:
        raise UserError(
            f"width {width!r}: must be from {_LEAST_IN:g} to {_MOST_IN:g} inches; give a number, or one of "
            f"{', '.join(WIDTHS_IN)}"
        )
    return wide


def entitle(figure: Figure, words: str, *, titled: bool = True) -> None:
    """Write a title in as many lines as it needs; none where the figure is not to be titled."""
    # matplotlib breaks no title by itself.
    letters = int(_LETTERS_PER_INCH * figure.get_figwidth())
    lines = [line for part in words.split("\n") for line in textwrap.wrap(part, letters)]
    if titled:
        figure.suptitle("\n".join(lines), fontsize="medium")


def grid(count: int, width_in: float, least_in: float, height_in: float, rows: int = 1) -> tuple[Figure, Any]:
    """A figure with rows of `count` panels, and the panels, shape (rows, count).

    Each is at least `least_in` wide: panels that do not fit go to the next line of their row. A line is `height_in`
    high.
    """
    across = min(count, max(1, int(width_in / least_in)))
    lines = math.ceil(count / across)
    figure = Figure(figsize=(width_in, 0.5 + height_in * rows * lines), layout="constrained")
    panels = figure.subplots(rows * lines, across, squeeze=False).reshape(rows, lines * across)
    for panel in panels[:, count:].ravel():
        panel.set_axis_off()
    return figure, panels[:, :count]


def is_narrow(figure: Any) -> bool:
    """Whether a figure has no room for a legend beside its panels."""
    return bool(figure.get_figwidth() < _NARROW_IN)


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    """Right of the panel; under it where the figure is narrow."""
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 3.0, "borderaxespad": 0.0}
    if is_narrow(axes.figure):
        # Under the labels of the axis, however high the panel is.
        below = offset_copy(axes.transAxes, axes.get_figure(root=True), y=_BELOW_POINTS, units="points")
        look |= {"loc": "upper center", "bbox_to_anchor": (0.45, 0.0), "bbox_transform": below, "ncols": 2}
        look["columnspacing"] = 1.0
    else:
        look |= {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)}
    axes.legend(handles=list(handles), **look)


def say_nothing_there(axes: Axes, words: str) -> None:
    """Write these words into a panel that has nothing to show."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, words, color="0.45", ha="center", va="center", transform=axes.transAxes)
