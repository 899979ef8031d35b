"""areabench: benchmarks of asynchronous federated optimisation on MPI, in real and in virtual time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areabench import theory
    from areabench.api import evaluate, export, launch, read_experiment, replay, resume, simulate, sweep
    from areabench.errors import RunFailure, UserError
    from areabench.experiment.experiment import Experiment
    from areabench.results.table import sweep_table
    from areabench.runfile import observers
    from areabench.runfile.read import Run, open_run
    from areabench.sweeps.read import Sweep, open_sweep
    from areabench.views import figures

__version__ = "0.2.0"
__all__ = [
    "Experiment",
    "Run",
    "RunFailure",
    "Sweep",
    "UserError",
    "__version__",
    "evaluate",
    "export",
    "figures",
    "launch",
    "observers",
    "open_run",
    "open_sweep",
    "read_experiment",
    "replay",
    "resume",
    "simulate",
    "sweep",
    "sweep_table",
    "theory",
]

_NAMES = {
    "Experiment": "experiment.experiment",
    "Run": "runfile.read",
    "RunFailure": "errors",
    "Sweep": "sweeps.read",
    "UserError": "errors",
    "open_run": "runfile.read",
    "evaluate": "api",
    "export": "api",
    "launch": "api",
    "open_sweep": "sweeps.read",
    "read_experiment": "api",
    "replay": "api",
    "resume": "api",
    "simulate": "api",
    "sweep": "api",
    "sweep_table": "results.table",
}
_MODULES = {"figures": "views.figures", "observers": "runfile.observers", "theory": "theory"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a rank that computes uses none of them."""
    if name in _MODULES:
        return import_module(f"areabench.{_MODULES[name]}")
    if name in _NAMES:
        return getattr(import_module(f"areabench.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'areabench' has no attribute {name!r}")
