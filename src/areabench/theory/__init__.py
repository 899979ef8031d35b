"""The paper's theory in numbers: event probabilities, step sizes, bounds, contraction and the best server rate.

Functions of plain numbers, and in `applied` of an experiment. Where print and proof differ the valid value is used:
docs/theory-corrections.md. May import the ground floor, `experiment`, `methods` and `problems`.
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
from areabench.theory.probabilities import (
    EventProbabilities,
    measured_probabilities,
    poisson_probabilities,
    server_rate_of_period,
    server_rate_of_poisson,
    server_rate_of_updates,
)
from areabench.theory.theorem1 import (
    Convention,
    Distances,
    LemmaConstants,
    ProofConstants,
    RateTerms,
    RoughBound,
    Setting,
    StepLimit,
    TheoremSchedule,
    changeover_beta,
    changeover_iteration,
    closed_bound,
    conservative_factor,
    contraction_beta,
    contraction_factor,
    lemma_constants,
    lyapunov_weights,
    printed_rate_terms,
    proof_constants,
    rate_terms,
    recursion_bound,
    recursion_bound_for,
    rough_bound,
    start_squared,
    step_limit,
    theorem_schedule,
    transition_matrix,
)
from areabench.theory.theorem2 import (
    ServerRate,
    best_server_rate,
    bound_by_iterations,
    bound_by_time,
    lipschitz_bound,
    lipschitz_bound_for,
    lipschitz_step_size,
    local_error,
    start_lyapunov,
    time_penalty,
)

__all__ = [
    "Constants", "Convention", "Distances", "EventProbabilities", "LemmaConstants", "LipschitzConstants",
    "ProofConstants", "RateTerms", "RoughBound", "ServerRate", "Setting", "StepLimit", "TheoremSchedule",
    "arrival_rates", "best_server_rate", "bound_by_iterations", "bound_by_time", "changeover_beta",
    "changeover_iteration", "closed_bound", "conservative_factor", "contraction_beta", "contraction_factor",
    "delta", "event_probabilities", "expected_iterations", "lemma_constants", "lipschitz_bound",
    "lipschitz_bound_for", "lipschitz_step_size", "local_error", "lyapunov_weights", "measured_probabilities",
    "poisson_probabilities", "printed_rate_terms", "proof_constants", "rate_terms", "recursion_bound",
    "recursion_bound_for", "rough_bound", "server_rate", "server_rate_of_period", "server_rate_of_poisson",
    "server_rate_of_updates", "smooth_constants", "start_distance", "start_lyapunov", "start_squared", "step_limit",
    "theorem1_steps", "theorem2_step", "theorem_schedule", "theorem_steps", "time_penalty", "transition_matrix",
]  # fmt: skip
