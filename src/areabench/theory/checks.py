"""Checks of plain numbers: each error names the value, the limit and what to write instead."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError

_SMALLEST, _LARGEST = 1e-60, 1e60


def require_positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} is {value}, the limit is above 0 and finite; give a positive number")


def require_not_negative(name: str, value: float) -> None:
    """Refuse anything but a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"{name} is {value}, the limit is at least 0 and finite; give 0 or a positive number")


def require_computable(name: str, value: float, least: float = _SMALLEST) -> None:
    """Refuse a number whose fourth power, or its inverse where there is one, is no longer finite."""
    if not least <= value <= _LARGEST:
        raise UserError(f"{name} is {value:g}, the limits are {least:g} and {_LARGEST:g}; scale the problem")


def require_count(name: str, value: int) -> None:
    """Refuse a count below 1."""
    if value < 1:
        raise UserError(f"{name} is {value}, the least is 1; give a whole number of at least 1")


def positive_rates(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates themselves, shape (clients,), or an error that names the first one that is not positive."""
    if not len(rates):
        raise UserError("there are 0 rates, the least is 1; give one rate for each client")
    for client in np.flatnonzero(~(np.isfinite(rates) & (rates > 0))):
        require_positive(f"the rate of client {client}", float(rates[client]))
    return rates
