"""The experiment that the theory is asked about, with rates as they are set or as a run measured them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.reading import open_run
from areabench.scenario import build_scenario
from areabench.suggestion import Subject
from areabench.theorems import arrival_rates, event_probabilities
from areabench.theory.probabilities import measured_probabilities


def subject_of(experiment: Experiment, measured_in: Path | None, cache: Path, *, solve: bool) -> Subject:
    """The subject, with the rates of a run where one is given."""
    scenario = build_scenario(experiment, cache, experiment.module_folders or ())
    if measured_in is None:
        rates = arrival_rates(experiment, scenario.rates)
        events = event_probabilities(experiment, rates)
        return Subject(experiment, scenario.problem, rates, events, "from the experiment's rates", solve=solve)
    with open_run(measured_in) as run:
        count, duration_s = len(run.served), run.status.end_s
        if count != experiment.clients.count:
            raise UserError(
                f"--from {measured_in}: has {count} clients, the experiment has {experiment.clients.count}; give a run "
                "of this experiment"
            )
        events = measured_probabilities(run.served, run.status.server_steps)
        rates = run.served.astype(np.float64) / duration_s
        source = f"measured in {measured_in} ({run.status.updates:,} updates)"
    return Subject(experiment, scenario.problem, rates, events, source, measured=True, solve=solve)
