"""areabench: benchmarks of asynchronous federated optimization on MPI, in real and in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areabench.reading import Run, open_run
    from areabench.sweeps.reading import Sweep, open_sweep

__version__ = "0.1.0"
__all__ = ["Run", "Sweep", "__version__", "open_run", "open_sweep"]


def __getattr__(name: str) -> Any:
    """Import the reading side when it is first asked for: a rank that computes does not need it."""
    if name in ("Run", "open_run"):
        from areabench import reading

        return getattr(reading, name)
    if name in ("Sweep", "open_sweep"):
        from areabench.sweeps import reading as sweep

        return getattr(sweep, name)
    raise AttributeError(f"module 'areabench' has no attribute {name!r}")
