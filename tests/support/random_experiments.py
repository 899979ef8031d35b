"""Random experiments, small enough to be simulated in milliseconds: built from the records and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st
from tests.methods.every_method import BY_SUMS, with_need

from areabench.errors import UserError
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Experiment
from areabench.methods import METHODS
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.criteria import EveryUpdates
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fixed_point import Privacy
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import Theorem1Schedule, Theorem2Schedule
from areabench.problems.data.digits import Digits
from areabench.problems.data.fashion_mnist import FashionMnist
from areabench.problems.data.file import File
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.scikit_learn import ScikitLearn
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.robust import Robust
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.problems.torch_module import TorchModule
from areabench.settings.keys import Limits
from areabench.settings.parse import hints_of, options_of, records_of
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.timing.trace import TraceDelays

TRACE_FILE = "delays.csv"
LARGE = (Mnist, FashionMnist, Digits, ScikitLearn, File, TorchModule)  # take a second or a file: other tests run them

# What keeps a run short or its numbers tame; beyond this the records' own limits hold. Any other key is near its least
# value; one without a limit would make a run of any length, so that `within_limits` asks for its range.
RANGES: dict[str, tuple[float, float]] = {
    "count": (1, 4), "local_steps": (1, 3), "clients_per_round": (1, 4), "updates": (1, 9), "iterations": (1, 60),
    "horizon_s": (1e-3, 2), "interval_s": (0.05, 1), "loss_every": (1, 5), "period_s": (0.05, 3), "rate": (1, 20),
    "mean": (1, 20), "deviation": (0, 20), "median": (1, 20), "sigma": (0, 2), "values": (1, 20), "dimension": (1, 4),
    "samples": (3, 6), "batch_size": (1, 9), "train_samples": (8, 40), "test_samples": (1, 9), "features": (1, 4),
    "classes": (2, 4), "minimum": (1, 2), "concentration": (1e-3, 100), "heterogeneity": (0, 10), "spread": (0.1, 10),
    "noise": (0, 10), "degrees": (1, 10), "curvature_min": (0.1, 10), "curvature_max": (0.1, 10), "zeta": (0, 10),
    "start_distance": (0, 10), "start_norm": (0, 10), "start_width": (0, 10), "regularisation": (0, 10),
    "step_size": (1e-6, 1e3), "server_step_size": (1e-6, 1e3), "offset": (1e-6, 1e6), "strong_convexity": (0.1, 1),
    "smoothness": (1, 10), "least_probability": (1e-3, 1), "lipschitz": (0.1, 10), "distance": (0.1, 10),
    "target_accuracy": (1, 100), "target_loss": (0, 10), "divergence_norm": (1e-2, 1e15), "stretch": (1e-3, 1e6),
    "seed": (0, 2**32 - 1), "draws": (1_000, 1_000_000), "lost": (0, 3), "lost_at_s": (0, 2), "tick_s": (0.01, 1),
    "offset_s": (1e-3, 1e3), "epsilon": (1e-8, 1), "concurrency": (1, 6), "threshold": (0, 9),
    "probabilities": (1e-3, 1), "most_steps": (1, 6), "min_steps": (1, 3), "max_steps": (3, 6),
    "huber_width": (0.1, 10), "bits": (32, 64), "range": (0.1, 100), "most_updates": (100, 1000),
}  # fmt: skip


def within_limits(name: str, limits: Limits) -> tuple[float, float]:
    """From the least value that is allowed to ten more."""
    low = limits.minimum if limits.above is None else limits.above + 0.1
    assert low is not None, f"{name} may have any value: give its range in RANGES"
    return low, min(low + 10, limits.maximum or math.inf, (limits.below or math.inf) - 0.01)


def values_of(name: str, kind: Any, limits: Limits) -> st.SearchStrategy[Any]:
    """Values that one key takes."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return st.just(TRACE_FILE)
    low, high = RANGES.get(name) or within_limits(name, limits)
    if get_origin(kind) is tuple and get_args(kind)[0] is int:
        return st.lists(st.integers(int(low), int(high)), max_size=3, unique=True).map(tuple)
    if kind is int:
        return st.integers(max(int(low), int(limits.minimum or 0)), int(high))
    lowest, highest = max(low, limits.minimum or 0.0), min(high, math.inf if limits.maximum is None else limits.maximum)
    numbers = st.floats(lowest, highest, exclude_min=lowest == limits.above, allow_subnormal=False)
    return st.tuples(*[numbers] * RANGES_OF_LISTS) if get_origin(kind) is tuple else numbers


RANGES_OF_LISTS = 4  # entries of a list of rates, of which as many are kept as there are clients


Values = Callable[[str, Any, Limits], st.SearchStrategy[Any]]  # of a key by its name, type and limits


def records(record: Any, values: Values = values_of) -> st.SearchStrategy[Any]:
    """Valid records of one type; keys that may be left out sometimes are."""
    strategies = {}
    for item in fields(record):
        if item.name != "name":
            strategy = values(item.name, options_of(hints_of(record)[item.name])[0], item.metadata["limits"])
            strategies[item.name] = st.none() | strategy if item.default is None else strategy
    return st.builds(record, **strategies)


def sections() -> Iterator[tuple[str, st.SearchStrategy[Any]]]:
    """Every section of an experiment, with all of its variants that are small."""
    for item in fields(Experiment):
        found = records_of(item, hints_of(Experiment)[item.name])
        variants = [each for each in found if each not in LARGE and not getattr(each, "own", False)]
        if variants:
            absent = [st.none()] if item.name == "privacy" else []
            yield item.name, st.one_of([*absent, *(records(variant) for variant in variants)])


def experiments() -> st.SearchStrategy[Experiment]:
    """Valid experiments of all problems, methods, schedules, criteria, rates, delays and ways to record."""
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(Experiment, **dict(sections()), name=st.just("any"), seed=seeds).map(fitted).filter(fits)


def private_experiments() -> st.SearchStrategy[Experiment]:
    """Valid experiments with secure aggregation; without traces, which need a file."""
    by_sums = [METHODS[name] for name in BY_SUMS]
    chosen = {
        **dict(sections()),
        "method": st.one_of([records(option) for option in by_sums]),
        "privacy": records(Privacy),
        "delays": st.one_of([records(option) for option in (ExponentialDelays, FixedDelays)]),
    }
    built = st.builds(Experiment, **chosen, name=st.just("any"), seed=st.integers(0, 2**32 - 1))
    return built.map(fitted).filter(lambda experiment: experiment.privacy is not None and fits(experiment))


def traces(clients: int) -> st.SearchStrategy[str]:
    """The text of a trace file with one to three delays per client."""
    delays = st.lists(st.floats(0.01, 1), min_size=1, max_size=3)

    def text(rows: list[list[float]]) -> str:
        lines = [f"{client},{delay_s!r}\n" for client, own in enumerate(rows) for delay_s in own]
        return "client,delay_s\n" + "".join(lines)

    return st.lists(delays, min_size=clients, max_size=clients).map(text)


# ---------------------------------------------------------------------------------------------------- combinations


def fitted(experiment: Experiment) -> Experiment:
    """The same experiment, with what does not fit together made to fit: the rules of `combinations`, and more."""
    for fit in (
        _fitted_clients, _fitted_end, _fitted_problem, _fitted_data, _fitted_schedule, _fitted_method, _fitted_privacy,
    ):  # fmt: skip
        experiment = fit(experiment)
    return experiment


def _fitted_clients(experiment: Experiment) -> Experiment:
    rates, count = experiment.rates, experiment.clients.count
    rates = replace(rates, values=rates.values[:count]) if isinstance(rates, ListedRates) else rates
    faults = experiment.faults
    lost = tuple(client for client in faults.lost if client < count)[: count - 1]
    faults = replace(faults, lost=lost, lost_at_s=faults.lost_at_s[: len(lost)])
    clients, delays = experiment.clients, experiment.delays
    if clients.work == "ticks":
        clients, delays = replace(clients, tick_s=clients.tick_s or 0.1), replace(delays, per="round")
    else:
        clients = replace(clients, tick_s=None)
    return replace(experiment, clients=clients, delays=delays, rates=rates, faults=faults)


def _fitted_end(experiment: Experiment) -> Experiment:
    stop = experiment.stop
    if stop.horizon_s is None and stop.iterations is None:
        stop = replace(stop, iterations=30)
    if experiment.record.snapshots == "none":
        stop = replace(stop, target_accuracy=None, target_loss=None)
    if not experiment.problem.has_accuracy:
        stop = replace(stop, target_accuracy=None)
    return replace(experiment, stop=stop)


def _fitted_problem(experiment: Experiment) -> Experiment:
    problem, count = experiment.problem, experiment.clients.count
    match problem:
        case Quadratic():
            low, high = sorted((problem.curvature_min, problem.curvature_max))
            zeta = problem.zeta if count > 1 and problem.heterogeneity > 1e-3 else None
            problem = replace(problem, curvature_min=low, curvature_max=high, zeta=zeta)
        case Robust():
            problem = replace(problem, dimension=min(problem.dimension, problem.samples))
        case Logistic(minimiser=True):
            problem = replace(problem, regularisation=max(problem.regularisation, 0.01))
    return replace(experiment, problem=problem)


def _fitted_data(experiment: Experiment) -> Experiment:
    if not experiment.problem.takes_data:
        return replace(experiment, data=None, split=None)
    data, split = experiment.data, experiment.split or Iid()
    if not isinstance(data, Synthetic):  # its size is its own; `fits` leaves out what is too small
        return replace(experiment, split=split)
    if isinstance(split, NearlyIid):  # as many of each label as there are clients
        data = replace(data, train_samples=max(data.train_samples, data.classes * experiment.clients.count))
    if isinstance(split, Dirichlet):
        data = replace(data, train_samples=max(data.train_samples, split.minimum * experiment.clients.count))
    if isinstance(split, Dirichlet) and split.draws is not None:  # shares that reach the minimum soon
        split = replace(split, concentration=max(split.concentration, 10.0))
        data = replace(data, train_samples=max(data.train_samples, 10 * experiment.clients.count))
    return replace(experiment, data=data, split=split)


def _fitted_schedule(experiment: Experiment) -> Experiment:
    """A theorem needs the constants that the problem does not know."""
    schedule, problem = experiment.schedule, experiment.problem
    if isinstance(experiment.method, SFedAvg) and isinstance(schedule, Theorem1Schedule | Theorem2Schedule):
        experiment = replace(experiment, method=FedBuff(step_size=0.1, server_step_size=0.1))
    if isinstance(schedule, Theorem1Schedule):
        known = isinstance(problem, Quadratic) or (isinstance(problem, Logistic) and problem.regularisation > 1e-6)
        mu, L = (None, None) if known else (0.5, 2.0)
        return replace(experiment, schedule=replace(schedule, strong_convexity=mu, smoothness=L))
    if isinstance(schedule, Theorem2Schedule):
        lipschitz = None if isinstance(problem, Hinge | Robust) else schedule.lipschitz or 1.0
        noise, distance = schedule.noise or 0.0, schedule.distance or 1.0
        return replace(experiment, schedule=replace(schedule, lipschitz=lipschitz, noise=noise, distance=distance))
    return experiment


def _fitted_method(experiment: Experiment) -> Experiment:
    for need in experiment.method.needs:
        experiment = with_need(experiment, need)
    method, clients = experiment.method, experiment.clients
    if "clients_per_round" in _keys(method):
        method = replace(method, clients_per_round=min(method.clients_per_round, clients.count))  # type: ignore[call-arg,attr-defined]
    if "server_step_size" in _keys(method) and experiment.schedule.name != "constant":
        method = replace(method, server_step_size=method.server_step_size or 0.5)  # type: ignore[call-arg,attr-defined]
    if isinstance(method, AsyncSgd):
        method = _fitted_async_sgd(method, clients.count)
    elif "concurrency" in _keys(method):
        method = replace(method, concurrency=None)  # type: ignore[call-arg]
    if "most_steps" in _keys(method):
        method = replace(method, most_steps=max(method.most_steps, clients.local_steps))  # type: ignore[call-arg,attr-defined]
    local, faults = experiment.local, experiment.faults
    if getattr(method, "prox", 0.0):
        local = replace(local, prox=0.0)
    if local.control_variates:
        faults = replace(faults, lost_client="keep")
    return replace(experiment, method=method, local=local, faults=faults)


def _keys(record: Any) -> set[str]:
    return {item.name for item in fields(record)}


def _fitted_privacy(experiment: Experiment) -> Experiment:
    """Secure aggregation of methods that can do with sums, where a sum may be of enough clients."""
    privacy, aggregation, count = experiment.privacy, experiment.aggregation, experiment.clients.count
    if privacy is None or experiment.method.name not in BY_SUMS or count < 2:
        return replace(experiment, privacy=None)
    privacy = replace(privacy, bits=32 if privacy.bits < 48 else 64, threshold=min(privacy.threshold, count))
    if isinstance(aggregation, EveryUpdates):
        aggregation = EveryUpdates(updates=max(aggregation.updates, privacy.threshold))
    faults, local = replace(experiment.faults, lost_client="keep"), replace(experiment.local, control_variates=False)
    return replace(experiment, privacy=privacy, aggregation=aggregation, faults=faults, local=local)


def _fitted_async_sgd(method: AsyncSgd, clients: int) -> AsyncSgd:
    if method.step != "threshold":
        method = replace(method, threshold=None, smoothness=None)
    if method.assignment == "continue":
        method = replace(method, concurrency=None)
    if method.concurrency is not None and method.assignment == "idle-uniform":
        method = replace(method, concurrency=min(method.concurrency, clients))
    if method.probabilities is None or method.assignment != "importance":
        return replace(method, probabilities=None)
    shares = method.probabilities[:clients]
    return replace(method, probabilities=tuple(share / sum(shares) for share in shares))


def fits(experiment: Experiment) -> bool:
    """Whether nothing of an experiment is refused: few methods go with every schedule and all local work."""
    try:
        check_combinations(experiment)
    except UserError:
        return False
    return True


def uses_trace(experiment: Experiment) -> bool:
    """Whether a trace file must lie beside the experiment file."""
    return isinstance(experiment.delays, TraceDelays)
