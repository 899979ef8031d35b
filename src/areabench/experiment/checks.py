"""Settings that depend on each other: defaults that follow from other settings, and combinations that are refused."""

from __future__ import annotations

import re
from dataclasses import replace

from areabench.errors import UserError
from areabench.experiment.fields import OwnPart
from areabench.experiment.method_records import (
    Ace,
    Aced,
    AfaCd,
    AfaCs,
    Area,
    AsyncCommSgd,
    AsyncFedEd,
    AsyncSgd,
    Dude,
    Favas,
    FedAsync,
    FedBuff,
    FedBuffPublished,
    FedCompass,
    FedFix,
    Ia2Sgd,
    Mifa,
    QuAfl,
    Ringmaster,
    SFedAvg,
)
from areabench.experiment.problem_records import (
    SMALLEST,
    Dirichlet,
    DrawnSettings,
    Logistic,
    Mnist,
    Quadratic,
    Robust,
    SplitSettings,
    UnknownSize,
    WithoutAccuracy,
)
from areabench.experiment.records import (
    EveryPeriod,
    EveryUpdates,
    Experiment,
    ExponentialDelays,
    FixedDelays,
    ListedRates,
    LognormalRates,
    NormalRates,
    PoissonAggregation,
    Stop,
    UniformRates,
)

_MOST_DRAWS = 100_000_000  # samples per round; their row numbers alone take 800 MB
_MOST_EVENTS = 1e10  # expected updates or server steps of a run: the simulator alone takes days for them


def check_combinations(experiment: Experiment) -> Experiment:
    """The experiment with dependent defaults filled in; a UserError for a combination that makes no sense."""
    _check_name(experiment.name)
    _check_end(experiment)
    _check_rates(experiment)
    _check_steps(experiment)
    _check_local_work(experiment)
    _check_method(experiment)
    _check_memory(experiment)
    _check_chosen_steps(experiment)
    _check_orchestration(experiment)
    _check_problem(experiment)
    _check_faults(experiment)
    _check_privacy(experiment)
    _check_round(experiment)
    if isinstance(experiment.problem, DrawnSettings):
        return experiment
    if isinstance(experiment.problem, OwnPart) and experiment.data is None:  # it makes its own data
        if experiment.split is not None:
            raise UserError("split: there is no section [data] to split; add one, or remove the section [split]")
        return experiment
    data, split = experiment.data or Mnist(), experiment.split or Dirichlet()
    if not isinstance(data, UnknownSize):
        check_enough(split, data.train_samples, experiment.clients.count)
    return replace(experiment, data=data, split=split)


def check_enough(settings: SplitSettings, samples: int, clients: int) -> None:
    """Refuse a split that would leave a client with too few samples."""
    minimum = settings.minimum if isinstance(settings, Dirichlet) else 1
    if clients * minimum > samples:
        raise UserError(
            f"split `{settings.name}`: {clients} clients with at least {minimum} samples each need {clients * minimum} "
            f"samples, but the training data has {samples}; lower clients.count or split.minimum, or take more data"
        )


def _check_name(name: str) -> None:
    """The name becomes part of a file name."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise UserError(
            f"name: {name[:100]!r} cannot be part of a file name; use 1 to 100 letters, digits, '.', '_' and '-'"
        )


def _check_end(experiment: Experiment) -> None:
    stop, record = experiment.stop, experiment.record
    if stop.horizon_s is None and stop.iterations is None:
        raise UserError("stop: has neither horizon_s nor iterations; add one, a target alone may never be reached")
    if stop.has_target and record.snapshots == "none":
        raise UserError('record.snapshots: "none" leaves nothing to check the target on; use "grid"')
    if stop.target_accuracy is not None and isinstance(experiment.problem, WithoutAccuracy):
        name = experiment.problem.name
        raise UserError(f'stop.target_accuracy: problem "{name}" has no accuracy; use stop.target_loss')
    if stop.horizon_s is not None and record.snapshots == "grid" and stop.horizon_s / record.interval_s > 1e6:
        raise UserError(
            f"record.interval_s: {record.interval_s} s over a horizon of {stop.horizon_s} s is more than 1,000,000 "
            "snapshots; use a larger interval"
        )


def _check_rates(experiment: Experiment) -> None:
    rates, count = experiment.rates, experiment.clients.count
    if isinstance(rates, ListedRates) and len(rates.values) != count:
        given = f"{len(rates.values)} rate{'s' * (len(rates.values) != 1)}"
        raise UserError(f"rates.values: {given} for clients.count = {count}; give one rate per client")
    if isinstance(experiment.delays, ExponentialDelays | FixedDelays):  # others do not follow the rates
        check_updates(experiment, _total_rate(experiment), "rates")


def _total_rate(experiment: Experiment) -> float:
    """Updates per second of all clients as far as it is known before rates are drawn."""
    rates, count = experiment.rates, experiment.clients.count
    match rates:
        case UniformRates():
            return rates.rate * count
        case NormalRates():
            return rates.mean * count
        case LognormalRates():
            return rates.median * count
        case ListedRates():
            return sum(rates.values)


def check_updates(experiment: Experiment, per_second: float, key: str) -> None:
    """Refuse a run that would not end for days; `per_second` updates come in if all clients work all the time."""
    method = experiment.method
    if isinstance(method, SFedAvg):
        per_second *= method.clients_per_round / experiment.clients.count
    if isinstance(method, QuAfl | Favas):
        key, per_second = "method.period_s", method.clients_per_round / method.period_s
    _check_events(experiment.stop, per_second, f"{key}: {per_second:.3g} updates per second")


def _check_local_work(experiment: Experiment) -> None:
    """Refuse local work and delays that define each other, and a tick that is missing or not used."""
    clients, delays = experiment.clients, experiment.delays
    if (clients.work == "ticks") != (clients.tick_s is not None):
        given = "is missing" if clients.tick_s is None else f"{clients.tick_s} s is given"
        remedy = "give the duration of a local step" if clients.tick_s is None else 'use clients.work = "ticks"'
        raise UserError(f'clients.tick_s: {given} with clients.work = "{clients.work}"; {remedy}')
    if clients.work == "ticks" and delays.per == "step":
        raise UserError(
            'delays.per: "step" makes a round as long as its local steps, clients.work = "ticks" as many steps as the '
            'round is long; use delays.per = "round" or clients.work = "fixed"'
        )


def _check_steps(experiment: Experiment) -> None:
    """Refuse a clock by which the server would step for days."""
    match aggregation := experiment.aggregation:
        case EveryPeriod():
            what = f"aggregation.period_s: a server step every {aggregation.period_s:.3g} s"
            _check_events(experiment.stop, 1 / aggregation.period_s, what)
        case PoissonAggregation():
            what = f"aggregation.rate: {aggregation.rate:.3g} server steps per second"
            _check_events(experiment.stop, aggregation.rate, what)


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


def _check_method(experiment: Experiment) -> None:
    method, count = experiment.method, experiment.clients.count
    if isinstance(method, SFedAvg | QuAfl | Favas) and method.clients_per_round > count:
        raise UserError(
            f"method.clients_per_round: {method.clients_per_round} is more than clients.count = {count}; "
            f"use at most {count}"
        )
    if isinstance(method, SFedAvg) and not isinstance(experiment.aggregation, EveryUpdates):
        raise UserError(
            f'aggregation.name: "{experiment.aggregation.name}" makes no sense with s-fedavg, whose round ends '
            'when its clients have answered; use "updates" or leave the section out'
        )
    if isinstance(method, AsyncSgd):
        _check_async_sgd(method, count)
    if isinstance(method, Ringmaster) and method.stops and experiment.clients.work != "fixed":
        raise UserError(
            f'method.stops: true makes no sense with clients.work = "{experiment.clients.work}", where clients choose '
            'their local steps themselves; use clients.work = "fixed"'
        )
    if isinstance(method, FedBuffPublished) and (method.concurrency or 0) > count:
        raise UserError(
            f"method.concurrency: {method.concurrency} is more than clients.count = {count}; use at most {count}"
        )
    if isinstance(method, FedFix):
        _check_fedfix(experiment)
    if isinstance(method, FedAsync | AsyncFedEd):
        _check_mixing(experiment, method)
    if isinstance(method, FedBuff) and experiment.schedule.name != "constant" and method.server_step_size is None:
        raise UserError(
            f'method.server_step_size: is needed with schedule "{experiment.schedule.name}", where alpha changes and '
            "eta = alpha has no single meaning; give a number"
        )


def _check_memory(experiment: Experiment) -> None:
    """Refuse what makes no sense for the methods with memory."""
    method, aggregation, schedule = experiment.method, experiment.aggregation, experiment.schedule
    if isinstance(method, Ia2Sgd | Ace | Aced) and not isinstance(aggregation, EveryUpdates):
        raise UserError(
            f'aggregation.name: "{aggregation.name}" makes no sense with {method.name}, which steps for every update; '
            'use "updates" or leave the section out'
        )
    if isinstance(method, Mifa) and isinstance(aggregation, EveryUpdates):
        raise UserError(
            'aggregation.name: "updates" makes no sense with mifa, whose rounds end by the clock; use "period" or '
            '"poisson"'
        )
    if isinstance(method, AfaCs | AfaCd) and schedule.name != "constant" and method.server_step_size is None:
        raise UserError(
            f'method.server_step_size: is needed with schedule "{schedule.name}", where alpha changes and eta = '
            "alpha·M has no single meaning; give a number"
        )
    if isinstance(method, Ia2Sgd | Dude | Ace | Aced) and schedule.name != "constant":
        raise UserError(
            f'schedule.name: "{schedule.name}" changes the local steps only, and not the server\'s gamma of '
            f'{method.name}; use "constant", or afa-cs with a server_step_size'
        )
    if isinstance(method, AfaCs | AfaCd | Ia2Sgd | Dude | Ace | Aced) and experiment.clients.work == "ticks":
        raise UserError(
            f'clients.work: "ticks" has rounds without a local step, which have no mean gradient for {method.name}; '
            'use "fixed" or "uniform"'
        )


def _check_async_sgd(method: AsyncSgd, clients: int) -> None:
    """Refuse keys of a step or an assignment that the method does not have, and orders that find no client."""
    for name, value in (("threshold", method.threshold), ("smoothness", method.smoothness)):
        if value is not None and method.step != "threshold":
            raise UserError(f'method.{name}: {value} is not used with step = "{method.step}"; use step = "threshold"')
    concurrency, probabilities, assignment = method.concurrency, method.probabilities, method.assignment
    if concurrency is not None and assignment == "continue":
        raise UserError(
            f'method.concurrency: {concurrency} makes no sense with assignment = "continue", where each client works '
            'all the time; use assignment = "uniform" or another that draws clients'
        )
    if concurrency is not None and concurrency > clients and assignment == "idle-uniform":
        raise UserError(
            f"method.concurrency: {concurrency} is more than clients.count = {clients} idle clients can take; use at "
            f'most {clients}, or assignment = "uniform", where orders queue'
        )
    if probabilities is None:
        return
    if assignment != "importance":
        raise UserError(
            f'method.probabilities: are not used with assignment = "{assignment}"; use assignment = "importance"'
        )
    if len(probabilities) != clients or abs(sum(probabilities) - 1) > 1e-6:
        raise UserError(
            f"method.probabilities: {len(probabilities)} with the sum {sum(probabilities):.6g} for clients.count = "
            f"{clients}; give one per client, with the sum 1"
        )


def _check_fedfix(experiment: Experiment) -> None:
    """FedFix must know each client's chance to answer between two steps by the clock."""
    if isinstance(experiment.aggregation, EveryUpdates):
        raise UserError(
            'aggregation.name: "updates" makes no sense with fedfix, which steps by the clock; use "period" or '
            '"poisson"'
        )
    delays = experiment.delays
    if not isinstance(delays, ExponentialDelays | FixedDelays):
        raise UserError(
            f'delays.name: "{delays.name}" does not tell fedfix how often a client answers; use "exponential" or '
            '"fixed"'
        )
    if delays.per == "step":
        raise UserError('delays.per: "step" does not tell fedfix how often a client answers; use "round"')


def _check_mixing(experiment: Experiment, method: FedAsync | AsyncFedEd) -> None:
    """FedAsync and AsyncFedED step at each arrival; AsyncFedED gives each client its number of local steps."""
    clients = experiment.clients
    if not isinstance(experiment.aggregation, EveryUpdates):
        raise UserError(
            f'aggregation.name: "{experiment.aggregation.name}" makes no sense with {method.name}, which steps at each '
            'arrival; use "updates" or leave the section out'
        )
    if isinstance(method, FedAsync):
        if method.prox and experiment.local.prox:
            raise UserError(
                f"local.prox: {experiment.local.prox} would be added to method.prox = {method.prox}; set one to 0"
            )
        return
    if clients.work != "fixed":
        raise UserError(
            f'clients.work: "{clients.work}" makes no sense with asyncfeded, which sets the number of local steps; '
            'use "fixed"'
        )
    if method.most_steps < clients.local_steps:
        raise UserError(
            f"method.most_steps: {method.most_steps} is less than clients.local_steps = {clients.local_steps}, which "
            f"each client begins with; use at least {clients.local_steps}"
        )


def _check_chosen_steps(experiment: Experiment) -> None:
    """Refuse options of the local steps that do not go with others."""
    clients, method = experiment.clients, experiment.method
    if clients.work != "fixed" and isinstance(method, Area) and method.first_message == "zero":
        raise UserError(
            f'method.first_message: "zero" has no number of local steps that clients.work = "{clients.work}" could '
            'choose; use "trained"'
        )
    if experiment.local.control_variates and experiment.faults.lost_client == "remove":
        raise UserError(
            'faults.lost_client: "remove" does not go with local.control_variates, whose part of lost clients the '
            'server cannot tell; use "keep"'
        )


def _check_orchestration(experiment: Experiment) -> None:
    """Refuse what the methods of docs/methods-local-work.md cannot do."""
    clients, method, delays = experiment.clients, experiment.method, experiment.delays
    if not isinstance(method, AsyncCommSgd | FedCompass | QuAfl | Favas):
        return
    name = method.name
    if not isinstance(experiment.aggregation, EveryUpdates):
        raise UserError(
            f'aggregation.name: "{experiment.aggregation.name}" makes no sense with {name}, which itself decides when '
            'to step; use "updates" or leave the section out'
        )
    if isinstance(method, AsyncCommSgd):
        if clients.work != "ticks":
            raise UserError(
                f'clients.work: "{clients.work}" makes no sense with {name}, whose clients step by one clock; use '
                '"ticks" and give clients.tick_s'
            )
        return
    if clients.work != "fixed":
        raise UserError(
            f'clients.work: "{clients.work}" makes no sense with {name}, which says how many local steps clients make; '
            'use "fixed"'
        )
    if isinstance(method, FedCompass):
        if method.min_steps > method.max_steps:
            raise UserError(
                f"method.min_steps: {method.min_steps} is more than method.max_steps = {method.max_steps}; swap them"
            )
        if delays.per != "step":
            raise UserError(
                f'delays.per: "{delays.per}" makes no sense with {name}, which counts on rounds that take longer with '
                'more local steps; use "step"'
            )
    if isinstance(method, Favas):
        _check_expected_steps(experiment, method)


def _check_expected_steps(experiment: Experiment, method: Favas) -> None:
    count, delays = experiment.clients.count, experiment.delays
    if method.expected_steps is None:
        if not isinstance(delays, ExponentialDelays | FixedDelays):
            raise UserError(
                f'method.expected_steps: is needed with delays.name = "{delays.name}", of which no mean is known; give '
                "one number per client"
            )
    elif len(method.expected_steps) != count:
        raise UserError(
            f"method.expected_steps: {len(method.expected_steps)} numbers for clients.count = {count}; give one per "
            "client"
        )


def _check_problem(experiment: Experiment) -> None:
    problem = experiment.problem
    for section in ("data", "split") if isinstance(problem, DrawnSettings) else ():
        if getattr(experiment, section) is not None:
            raise UserError(f'{section}: problem "{problem.name}" uses no data; remove the section [{section}]')
    if isinstance(problem, Quadratic):
        _check_quadratic(problem, experiment.clients.count)
    if isinstance(problem, Robust) and problem.samples * experiment.clients.count < problem.dimension:
        raise UserError(
            f"problem.samples: {problem.samples} for each of {experiment.clients.count} clients are fewer in all than "
            f"problem.dimension = {problem.dimension}, so the minimiser is not unique; take more samples"
        )
    if isinstance(problem, Logistic) and problem.minimiser and problem.regularisation == 0:
        raise UserError(
            "problem.minimiser: there may be none where problem.regularisation = 0; give a regularisation above 0"
        )


def _check_quadratic(problem: Quadratic, clients: int) -> None:
    if problem.curvature_max < problem.curvature_min:
        raise UserError(
            f"problem.curvature_max: {problem.curvature_max} is below curvature_min = {problem.curvature_min}; "
            "swap them"
        )
    if problem.zeta and (problem.heterogeneity < SMALLEST or clients == 1):
        raise UserError(
            f"problem.zeta: {problem.zeta} cannot be reached with clients.count = {clients} and heterogeneity = "
            f"{problem.heterogeneity}, where all centres coincide; take two clients and a heterogeneity of at least "
            f"{SMALLEST:g}"
        )


def _check_round(experiment: Experiment) -> None:
    """Refuse rounds that would never end, or whose samples, which are drawn together, would not fit into memory."""
    steps = experiment.clients.local_steps
    if steps > _MOST_DRAWS:
        raise UserError(f"clients.local_steps: {steps:,} is more than {_MOST_DRAWS:,}; use fewer")
    if isinstance(experiment.problem, Quadratic | OwnPart):
        return
    batch_size = experiment.problem.batch_size
    if batch_size * steps > _MOST_DRAWS:
        raise UserError(
            f"problem.batch_size: {batch_size:,} in each of clients.local_steps = {steps:,} are more than "
            f"{_MOST_DRAWS:,} samples per round; use a smaller batch or fewer steps"
        )


NOT_BY_SUMS = {  # why a method cannot do with sums of updates
    "async-sgd": "steps after each update",
    "fedbuff-published": "scales each update by its staleness",
    "fedfix": "weights each update by its client",
    "fedstaleweight": "weights each update by the staleness of its client",
    "fedasync": "mixes each model in by its staleness",
    "asyncfeded": "weights each update by its norm",
    "ia2sgd": "steps after each update",
    "ace": "steps after each update",
    "aced": "keeps the last gradient of every client at the server",
    "ringmaster": "steps after each update",
    "rennala": "ignores late updates one by one",
    "malenia": "keeps a sum for every client at the server",
    "ringleader": "keeps a sum for every client at the server",
    "asynccomm-sgd": "steps after each update",
    "fedcompass": "scales each update by its staleness",
    "s-fedavg": "waits for the clients of a round, of which too few for a sum may be left",
    "mifa": "waits for the clients of a round, of which too few for a sum may be left",
    "quafl": "waits for the clients of a round, of which too few for a sum may be left",
    "favas": "scales each update by the speed of its client",
}


def _check_privacy(experiment: Experiment) -> None:
    """Refuse secure aggregation where the server needs more than sums, or where no sum reaches the threshold."""
    privacy, method, aggregation = experiment.privacy, experiment.method, experiment.aggregation
    if privacy is None:
        return
    if (reason := NOT_BY_SUMS.get(method.name)) is not None:
        raise UserError(
            f'privacy: method "{method.name}" {reason}, so it cannot do with sums; use area, fedbuff, ca2fl, dude or '
            "another that docs/privacy.md names, or remove the section [privacy]"
        )
    if privacy.bits not in (32, 64):
        raise UserError(f"privacy.bits: {privacy.bits} is not supported; use 32 or 64")
    if privacy.fraction_bits < 1:
        raise UserError(
            f"privacy.range: {privacy.range:g} and most_updates = {privacy.most_updates} leave no bits behind the "
            "point; use bits = 64, a smaller range, or fewer updates in a sum"
        )
    if privacy.threshold > experiment.clients.count:
        raise UserError(
            f"privacy.threshold: {privacy.threshold} is more than clients.count = {experiment.clients.count}; use at "
            "most so many"
        )
    if isinstance(aggregation, EveryUpdates) and not privacy.threshold <= aggregation.updates <= privacy.most_updates:
        raise UserError(
            f"aggregation.updates: sums of {aggregation.updates} are not within privacy.threshold = "
            f"{privacy.threshold} and privacy.most_updates = {privacy.most_updates}; change one of them"
        )
    if experiment.faults.lost_client == "remove":
        raise UserError(
            'faults.lost_client: "remove" asks clients for their memories, which [privacy] hides; use "keep"'
        )
    if experiment.local.control_variates:
        raise UserError(
            "local.control_variates: the server uses each change by itself, which [privacy] hides; use false"
        )


def _check_faults(experiment: Experiment) -> None:
    faults, count = experiment.faults, experiment.clients.count
    if len(faults.lost) != len(faults.lost_at_s):
        raise UserError(
            f"faults.lost_at_s: {list(faults.lost_at_s)} is not one time for each client in faults.lost; give as many"
        )
    if any(client >= count for client in faults.lost) or len(set(faults.lost)) < len(faults.lost):
        raise UserError(
            f"faults.lost: {list(faults.lost)} are not different clients from 0 to {count - 1}; name each once"
        )
    if len(faults.lost) == count:
        raise UserError(f"faults.lost: names all clients, {count} in number; leave at least one")
