"""Settings that depend on each other: defaults that follow from other settings, and combinations that are refused.

What a part needs of other sections stands in the file of the part.
"""

from __future__ import annotations

import re
from dataclasses import replace

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment, Stop
from areabench.problems.data.mnist import Mnist
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.rows import check_enough
from areabench.settings.keys import check_part, is_own
from areabench.settings.limits import MOST_SNAPSHOTS

_MOST_DRAWS = 100_000_000  # samples per round; their row numbers alone take 800 MB
_MOST_EVENTS = 1e10  # expected updates or server steps of a run: the simulator alone takes days for them


def check_combinations(experiment: Experiment) -> Experiment:
    """The experiment with dependent defaults filled in; a UserError for a combination that makes no sense."""
    count = experiment.clients.count
    problem = experiment.problem
    aggregation = experiment.aggregation
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", experiment.name):  # it becomes part of a file name
        raise UserError(
            f"name: {experiment.name[:100]!r} cannot be part of a file name; use 1 to 100 letters, digits, '.', '_' "
            "and '-'"
        )
    _check_end(experiment)
    experiment.rates.check_clients(count)
    if experiment.delays.follows_rates:
        check_updates(experiment, experiment.rates.typical * count, "rates")
    if aggregation.mean_period_s is not None:
        _check_events(experiment.stop, 1 / aggregation.mean_period_s, aggregation.pace)
    _check_local_work(experiment)
    check_part(experiment, experiment.method)
    for section in ("data", "split"):
        if not problem.takes_data and getattr(experiment, section) is not None:
            raise UserError(f'{section}: problem "{problem.name}" uses no data; remove the section [{section}]')
    for part in (problem, experiment.faults, experiment.privacy):
        check_part(experiment, part)
    _check_round(experiment)
    if not problem.takes_data:
        return experiment
    if is_own(problem) and experiment.data is None:  # it makes its own data
        if experiment.split is not None:
            raise UserError("split: there is no section [data] to split; add one, or remove the section [split]")
        return experiment
    data = experiment.data or Mnist()
    split = experiment.split or Dirichlet()
    if data.train_samples is not None:
        check_enough(split.name, split.least, data.train_samples, count)
    return replace(experiment, data=data, split=split)


def _check_end(experiment: Experiment) -> None:
    stop = experiment.stop
    record = experiment.record
    if stop.horizon_s is None and stop.iterations is None:
        raise UserError("stop: has neither horizon_s nor iterations; add one, a target alone may never be reached")
    if stop.has_target and record.snapshots == "none":
        raise UserError('record.snapshots: "none" leaves nothing to check the target on; use "grid"')
    if stop.target_accuracy is not None and not experiment.problem.has_accuracy:
        name = experiment.problem.name
        raise UserError(f'stop.target_accuracy: problem "{name}" has no accuracy; use stop.target_loss')
    if record.snapshots == "grid" and (stop.horizon_s or 0.0) / record.interval_s > MOST_SNAPSHOTS:
        raise UserError(
            f"record.interval_s: {record.interval_s} s over a horizon of {stop.horizon_s} s is more than "
            f"{MOST_SNAPSHOTS:,} snapshots; use a larger interval"
        )


def check_updates(experiment: Experiment, per_second: float, key: str) -> None:
    """Refuse a run that would not end for days; `per_second` updates come in if all clients work all the time."""
    method = experiment.method
    if method.contacts_per_second is not None:
        key = "method.period_s"
        per_second = method.contacts_per_second
    elif method.drawn_per_round is not None:
        per_second *= method.drawn_per_round / experiment.clients.count
    _check_events(experiment.stop, per_second, f"{key}: {per_second:.3g} updates per second")


def _check_local_work(experiment: Experiment) -> None:
    """Refuse local work and delays that define each other, and a tick that is missing or not used."""
    clients = experiment.clients
    delays = experiment.delays
    if (clients.work == "ticks") != (clients.tick_s is not None):
        given = "is missing" if clients.tick_s is None else f"{clients.tick_s} s is given"
        remedy = "give the duration of a local step" if clients.tick_s is None else 'use clients.work = "ticks"'
        raise UserError(f'clients.tick_s: {given} with clients.work = "{clients.work}"; {remedy}')
    if clients.work == "ticks" and delays.per == "step":
        raise UserError(
            'delays.per: "step" makes a round as long as its local steps, clients.work = "ticks" as many steps as the '
            'round is long; use delays.per = "round" or clients.work = "fixed"'
        )
    if experiment.local.control_variates and experiment.faults.lost_client == "remove":
        raise UserError(
            'faults.lost_client: "remove" does not go with local.control_variates, whose part of lost clients the '
            'server cannot tell; use "keep"'
        )


def _check_events(stop: Stop, per_second: float, what: str) -> None:
    """Refuse `what` if it gives too many events until the run ends."""
    if stop.iterations is not None and stop.iterations <= _MOST_EVENTS:
        return
    if stop.horizon_s is None:
        raise UserError(f"stop.iterations: {stop.iterations:,} is more than {_MOST_EVENTS:,.0f}; use fewer")
    if (events := stop.horizon_s * per_second) > _MOST_EVENTS:
        raise UserError(
            f"{what} over stop.horizon_s = {stop.horizon_s:g} s are {events:.3g} events, more than "
            f"{_MOST_EVENTS:,.0f}; lower one of them, or give stop.iterations"
        )


def _check_round(experiment: Experiment) -> None:
    """Refuse rounds that would never end, or whose samples, which are drawn together, would not fit into memory."""
    steps = experiment.clients.local_steps
    if steps > _MOST_DRAWS:
        raise UserError(f"clients.local_steps: {steps:,} is more than {_MOST_DRAWS:,}; use fewer")
    batch_size = experiment.problem.samples_per_step
    if batch_size * steps > _MOST_DRAWS:
        raise UserError(
            f"problem.batch_size: {batch_size:,} in each of clients.local_steps = {steps:,} are more than "
            f"{_MOST_DRAWS:,} samples per round; use a smaller batch or fewer steps"
        )
