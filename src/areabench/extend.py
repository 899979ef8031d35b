"""The names to write your own parts with: a method, a problem, a data set, a split or delays.

    from areabench.extend import Method, Report, Step, stream, Purpose

An experiment file names such a part by import path, `name = "module:function"`; docs/extending.md says what the
function of each section receives and returns. These names are stable; everything else in areabench may move.
"""

from __future__ import annotations

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Buffer, Call, Method, Report, Step, Work, remember_nothing
from areabench.problems.base import LocalProblem, Metrics, Problem
from areabench.problems.datasets import Dataset
from areabench.problems.minibatches import Minibatches
from areabench.streams import Purpose, stream

__all__ = [
    "Arrival",
    "Buffer",
    "Call",
    "Dataset",
    "LocalProblem",
    "Method",
    "Metrics",
    "Minibatches",
    "Problem",
    "Purpose",
    "Report",
    "Step",
    "Vector",
    "Work",
    "remember_nothing",
    "stream",
]
