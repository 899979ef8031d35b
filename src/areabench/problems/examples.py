"""Example factories for the problem `torch`; this file can be imported without PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def mlp(features: int, classes: int) -> nn.Module:
    """A perceptron with one hidden layer of 64 rectified units."""
    from torch import nn

    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, classes))
