"""Memory that processes have taken."""

from __future__ import annotations

import resource
import sys


def peak_bytes(who: int) -> int:
    """The most memory that this process (RUSAGE_SELF), or the largest of its children that ended, has taken."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(who).ru_maxrss * unit
