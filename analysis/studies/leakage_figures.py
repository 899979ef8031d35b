"""Pictures of what was found beside what was held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from studies.leakage_scores import Images

from areabench.views.figures.style import styled

_GAP = 2  # pixels between two images
_ROW_IN = 0.36
_TITLE_IN = 0.32
_MARGIN_IN = 0.1


@dataclass(frozen=True, eq=False)
class Row:
    """A name and some images."""

    label: str
    images: Images


@dataclass(frozen=True)
class Block:
    """Rows that belong together: what was held, and what was found of it."""

    title: str
    rows: tuple[Row, ...]


@styled
def draw_blocks(columns: Sequence[Sequence[Block]]) -> Figure:
    """Columns of blocks."""
    heights = [sum(_height(block) for block in column) for column in columns]
    figure = Figure(figsize=(4.9 * len(columns), max(heights) + _MARGIN_IN))
    for place, column in enumerate(columns):
        top = max(heights) + _MARGIN_IN
        for block in column:
            _draw_block(figure, block, (place, len(columns)), top)
            top -= _height(block)
    return figure


def _height(block: Block) -> float:
    return _TITLE_IN + _ROW_IN * len(block.rows)


def _draw_block(figure: Figure, block: Block, place: tuple[int, int], top_in: float) -> None:
    """Draw a block whose upper edge is at a height in inches, in one of several columns."""
    column, columns = place
    whole_in = figure.get_figheight()
    left = (column + 0.34) / columns
    width = 0.65 / columns
    figure.text((column + 0.02) / columns, (top_in - 0.2) / whole_in, block.title, fontsize=9, weight="bold")
    for number, row in enumerate(block.rows):
        bottom_in = top_in - _TITLE_IN - _ROW_IN * (number + 1)
        axes = figure.add_axes((left, bottom_in / whole_in, width, 0.94 * _ROW_IN / whole_in))
        axes.imshow(strip(row.images), cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
        axes.set_anchor("W")
        axes.set_axis_off()
        middle = (bottom_in + 0.5 * _ROW_IN) / whole_in
        figure.text(left - 0.01 / columns, middle, row.label, fontsize=8, ha="right", va="center")


def strip(images: Images) -> Images:
    """Images side by side."""
    side = round(images.shape[1] ** 0.5)
    found = np.zeros((side, len(images) * (side + _GAP) - _GAP))
    for place, image in enumerate(images):
        found[:, place * (side + _GAP) : place * (side + _GAP) + side] = image.reshape(side, side)
    return found
