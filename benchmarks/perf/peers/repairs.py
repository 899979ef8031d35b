"""What peers need to be imported beside a newer Python and torch than theirs; import this before them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

_dataclass = dataclasses.dataclass


def _hashable_dataclass(cls: Any = None, /, **options: Any) -> Any:
    """FLSim's fields have records as defaults, which Python 3.11 refuses unless they can be hashed."""
    if cls is not None and cls.__module__.startswith("flsim."):
        options["unsafe_hash"] = True
    return _dataclass(cls, **options)


dataclasses.dataclass = _hashable_dataclass
try:
    import torchvision  # noqa: F401 (APPFL imports it; nothing of it is used here)
except RuntimeError:  # the plain wheel is built for CUDA: beside a torch for processors its operators are missing
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
except ImportError:
    pass
