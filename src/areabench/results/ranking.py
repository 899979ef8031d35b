"""Which cells of a rates setting are the best, and how sure that is: paired tests against the best mean.

All cells have the same seeds, so split, rates, delays and mini-batches are the same in both runs of a pair, and the
difference between them has less noise than either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from areabench.results.cells import Cell
from areabench.results.statistics import SIGNIFICANCE, PairedDifference, fewest_trials, holm, paired_difference
from areabench.sweeps.result import Result

RankedQuality = Literal["accuracy", "loss", "rho"]
QUALITIES: tuple[RankedQuality, ...] = ("accuracy", "loss", "rho")
RankMark = Literal["best", "tied", ""]


@dataclass(frozen=True)
class Rank:
    """A cell beside the one with the best mean, in one quality.

    `best`: every rival is outside the noise. `tied`: it has the best mean or is not outside the noise around it.
    Nothing is marked where there are too few trials to tell anything apart.
    """

    mark: RankMark = ""
    is_reference: bool = False  # has the best mean
    difference: PairedDifference | None = None  # from the best mean; its p is corrected by Holm's method
    rivals: int = 0  # cells that were compared with the best mean


_NONE = Rank()


def rank_cells(cells: Sequence[Cell], quality: RankedQuality) -> list[Rank]:
    """The rank of each cell of one rates setting, in their order."""
    judged = [index for index, cell in enumerate(cells) if _is_judged(cell, quality)]
    # A mean that counts the horizon for unreached targets is too small to lead.
    leading = [index for index in judged if quality != "rho" or cells[index].reach.is_complete]
    found = [_NONE] * len(cells)
    if not leading or len(judged) < 2:
        return found
    best = min(leading, key=lambda index: _mean(cells[index], quality))
    rivals = [index for index in judged if index != best]
    differences = [_difference(cells[index], cells[best], quality) for index in rivals]
    tested = [index for index, one in zip(rivals, differences, strict=True) if one is not None]
    known = [one for one in differences if one is not None]
    p_values = holm([one.p for one in known])
    # With too few trials no p value can be small, so "tied" would say nothing.
    is_judged = len(tested) == len(rivals) and min(one.pairs for one in known) >= fewest_trials(len(rivals))
    for index, one, p in zip(tested, known, p_values, strict=True):
        mark: RankMark = "tied" if is_judged and p > SIGNIFICANCE else ""
        found[index] = Rank(mark, False, replace(one, p=p), len(tested))
    mark = ""
    if is_judged:
        mark = "tied" if any(found[index].mark for index in rivals) else "best"
    found[best] = Rank(mark, True, None, len(tested))
    return found


def values_of(cell: Cell, quality: RankedQuality) -> dict[int, float]:
    """The numbers that are compared, by seed: at the end, or the time to the target, at most the horizon."""
    return {result.experiment.seed: _value(result, cell, quality) for result in cell.results}


def _value(result: Result, cell: Cell, quality: RankedQuality) -> float:
    if quality == "accuracy":
        return result.final_accuracy
    if quality == "loss":
        return result.final_loss
    horizon_s = result.experiment.stop.horizon_s or math.nan
    return min(result.time_to_accuracy(cell.target), horizon_s) / horizon_s


def _is_judged(cell: Cell, quality: RankedQuality) -> bool:
    """Whether every planned trial ended well and has the number.

    A trial that did not reach the target has one, the horizon; but a cell with such a trial cannot be the best, since
    its mean is too small.
    """
    if not cell.is_eligible or not all(map(math.isfinite, values_of(cell, quality).values())):
        return False
    return quality != "rho" or not cell.reach.unknown


def _mean(cell: Cell, quality: RankedQuality) -> float:
    """Smaller is better."""
    mean = float(np.mean(list(values_of(cell, quality).values())))
    if quality == "accuracy":
        return -mean
    return mean


def _difference(cell: Cell, best: Cell, quality: RankedQuality) -> PairedDifference | None:
    """Over the seeds that both have; None where there are fewer than two."""
    first = values_of(cell, quality)
    second = values_of(best, quality)
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return None
    return paired_difference(np.array([first[seed] for seed in seeds]), np.array([second[seed] for seed in seeds]))
