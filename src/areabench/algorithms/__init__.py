"""The methods, one a file; `build_method` makes the one that an experiment names."""

from __future__ import annotations

from areabench.algorithms.area import area
from areabench.algorithms.as_fedavg import as_fedavg
from areabench.algorithms.base import Method, Report, Step
from areabench.algorithms.fedbuff import fedbuff
from areabench.algorithms.s_fedavg import s_fedavg
from areabench.experiment import Area, AsFedAvg, Experiment, FedBuff
from areabench.outside.method import outside_method
from areabench.outside_settings import OutsideMethod

__all__ = ["Method", "Report", "Step", "area", "as_fedavg", "build_method", "fedbuff", "s_fedavg"]


def build_method(experiment: Experiment) -> Method:
    """The experiment's method."""
    settings, count = experiment.method, experiment.clients.count
    if isinstance(settings, Area):
        return area(count)
    if isinstance(settings, AsFedAvg):
        return as_fedavg(count)
    if isinstance(settings, FedBuff):
        return fedbuff(count, settings.server_step_size or settings.step_size)
    if isinstance(settings, OutsideMethod):
        return outside_method(settings, experiment)
    return s_fedavg(count, settings.clients_per_round, experiment.seed)
