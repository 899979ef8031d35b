"""areabench: benchmarks of asynchronous federated optimization on MPI, in real and in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areabench.reading import Run, open_run

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "open_run"]


def __getattr__(name: str) -> Any:
    """Import the reading side when it is first asked for: a rank that computes does not need it."""
    if name in ("Run", "open_run"):
        from areabench import reading

        return getattr(reading, name)
    raise AttributeError(f"module 'areabench' has no attribute {name!r}")
