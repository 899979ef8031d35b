"""The paper's theory in numbers: event probabilities, step sizes, bounds, contraction and the best server rate.

Pure functions of plain numbers. Where print and proof differ the valid value is used: docs/theory-corrections.md.
"""

from __future__ import annotations
