"""The paper's theory in numbers: event probabilities, step sizes, bounds and the best server rate.

Functions of plain numbers, and in `applied` of an experiment. Where print and proof differ the valid value is used:
docs/theory-corrections.md.
"""

from __future__ import annotations

from areabench.theory.applied import (
    arrival_rates,
    event_probabilities,
    expected_iterations,
    server_rate,
    smooth_constants,
    start_distance,
    theorem1_steps,
    theorem2_step,
    theorem_steps,
)
from areabench.theory.constants import Constants, LipschitzConstants, delta
from areabench.theory.probabilities import EventProbabilities, measured_probabilities, poisson_probabilities
from areabench.theory.theorem1 import (
    Convention,
    Setting,
    StepLimit,
    TheoremSchedule,
    closed_bound,
    recursion_bound,
    recursion_bound_for,
    step_limit,
    theorem_schedule,
)
from areabench.theory.theorem2 import ServerRate, best_server_rate, lipschitz_bound, lipschitz_step_size

__all__ = [
    "Constants", "Convention", "EventProbabilities", "LipschitzConstants", "ServerRate", "Setting", "StepLimit",
    "TheoremSchedule", "arrival_rates", "best_server_rate", "closed_bound", "delta", "event_probabilities",
    "expected_iterations", "lipschitz_bound", "lipschitz_step_size", "measured_probabilities",
    "poisson_probabilities", "recursion_bound", "recursion_bound_for", "server_rate", "smooth_constants",
    "start_distance", "step_limit", "theorem1_steps", "theorem2_step", "theorem_schedule", "theorem_steps",
]  # fmt: skip
