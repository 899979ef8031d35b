"""areabench: benchmarks of asynchronous federated optimisation on MPI, in real and in virtual time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areabench import theory
    from areabench.results.table import sweep_table
    from areabench.runfile.read import Run, open_run
    from areabench.sweeps.read import Sweep, open_sweep
    from areabench.views import figures

__version__ = "0.1.0"
__all__ = ["Run", "Sweep", "__version__", "figures", "open_run", "open_sweep", "sweep_table", "theory"]

_NAMES = {
    "Run": "runfile.read",
    "Sweep": "sweeps.read",
    "open_run": "runfile.read",
    "open_sweep": "sweeps.read",
    "sweep_table": "results.table",
}
_MODULES = {"figures": "views.figures", "theory": "theory"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a rank that computes uses none of them."""
    if name in _MODULES:
        return import_module(f"areabench.{_MODULES[name]}")
    if name in _NAMES:
        return getattr(import_module(f"areabench.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'areabench' has no attribute {name!r}")
