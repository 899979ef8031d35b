"""The state of a method: what a checkpoint can hold, told before a run begins rather than at its first checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from areabench.problems.base import Vector


def state_flaw(state: Any, model: Vector, form: Any = None) -> str:
    """What is wrong with a server's state; empty where nothing is. `form` is an earlier state of the same run."""
    if not hasattr(state, "_asdict"):
        return f"is {type(state).__name__}, not a NamedTuple"
    if not hasattr(state, "model"):
        return "has no field `model`"
    if flaw := vector_flaw(state.model, model):
        return f"has a model that {flaw}"
    if form is not None and type(state) is not type(form):
        return f"is {type(state).__name__}, and was {type(form).__name__} before"
    return _fields_flaw(state, form)


def vector_flaw(vector: Any, model: Vector) -> str:
    """How a vector differs from a model in type or shape; empty where it does not."""
    if not isinstance(vector, np.ndarray):
        return f"is {type(vector).__name__}, not an array"
    if vector.dtype != model.dtype:
        return f"is {vector.dtype}, where the problem has {model.dtype}"
    return "" if vector.shape == model.shape else f"has the shape {vector.shape}, not {model.shape}"


def _fields_flaw(state: Any, form: Any) -> str:
    for name, value in state._asdict().items():
        before = None if form is None else getattr(form, name)
        if hasattr(value, "_asdict"):
            flaw = _fields_flaw(value, before if hasattr(before, "_asdict") else None)
            if flaw:
                return f"{flaw} (in {name})"
        elif not _is_plain(value):
            return f"has a field {name} of type {type(value).__name__}, which no checkpoint can hold"
        elif form is not None and (_kind(value), _kind(before)) in _TURNS:
            return f"has a field {name} that was None at the start and is a number now; begin with a number"
    return ""


def _is_plain(value: Any) -> bool:
    """Arrays with an axis, numbers, tuples of whole numbers or of numbers, or None."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind in "biuf"
    if isinstance(value, tuple):
        return all(type(entry) is int for entry in value) or all(type(entry) is float for entry in value)
    return value is None or isinstance(value, bool | int | float)


def _kind(value: Any) -> str:
    """Whether a value is an array, nothing, or else: a checkpoint reads these in different ways."""
    return "nothing" if value is None else "array" if isinstance(value, np.ndarray) else "number"


_TURNS = (("number", "nothing"), ("array", "number"), ("number", "array"), ("nothing", "number"))
