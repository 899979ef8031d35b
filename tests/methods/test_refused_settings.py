"""Settings of methods that make no sense, alone or with other sections, are refused in one line; others are not."""

from __future__ import annotations

import pytest

from areabench.errors import ConfigError
from areabench.experiment.parse import parse_experiment

BASE = """
[clients]
count = 2
local_steps = 3
[method]
name = "area"
step_size = 0.1
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
"""
PERIOD = "aggregation={name='period', period_s=0.5}"
POISSON = "aggregation={name='poisson', rate=1.0}"
UNIFORM = "clients.work=uniform"
TICKS = "clients={count=2, work='ticks', tick_s=1.0}"
FALLING = "schedule.name=1/k"
PER_STEP = "delays={name='exponential', per='step'}"


def method(name: str, *keys: str) -> tuple[str, ...]:
    """The overrides that choose a method and its keys."""
    return (f"method.name={name}", *(f"method.{key}" for key in keys))


QUAFL = method("quafl", "period_s=0.2", "clients_per_round=2")
FAVAS = method("favas", "period_s=0.2", "clients_per_round=2")
STEPS = "method.server_step_size: is needed with schedule"
TRACE = "delays={name='trace', file='t.csv', per='step'}"
# Overrides, and what the refusal says; empty where there is none.
CASES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("method.first_message=zero", UNIFORM), 'method.first_message: "zero"'),
    (("local.control_variates=true", "faults.lost_client=remove"), '"remove" does not go with local.control_variates'),
    ((*method("fedbuff-published"), "method.concurrency=5"), "method.concurrency: 5 is more than clients.count = 2"),
    (method("fedfix"), '"updates" makes no sense with fedfix, which steps by the clock'),
    ((*method("fedfix"), PERIOD, TRACE), '"trace" makes no sense with fedfix, which must know how often'),
    ((*method("fedfix"), PERIOD, PER_STEP), '"step" makes no sense with fedfix, which must know how often'),
    (method("asyncfeded", "most_steps=2"), "method.most_steps: 2 is less than clients.local_steps = 3"),
    ((*method("asyncfeded"), UNIFORM), '"uniform" makes no sense with asyncfeded'),
    ((*method("asyncfeded"), PERIOD), '"period" makes no sense with asyncfeded'),
    ((*method("fedasync"), POISSON), '"poisson" makes no sense with fedasync'),
    ((*method("fedasync"), "local.prox=0.1"), "0.1 would be added to method.prox = 0.005"),
    (method("ace"), ""),
    ((*method("aced"), POISSON), '"poisson" makes no sense with aced'),
    ((*method("aced"), FALLING), '"1/k" makes no sense with aced'),
    ((*method("ace"), POISSON), '"poisson" makes no sense with ace, which steps for every update'),
    ((*method("ace", "steps=criterion"), POISSON), ""),
    ((*method("dude"), POISSON), ""),
    ((*method("dude", "steps=arrivals"), POISSON), '"poisson" makes no sense with dude, which steps for every update'),
    (method("mifa"), '"updates" makes no sense with mifa, whose rounds end by the clock; use "period" or'),
    ((*method("mifa"), PERIOD), ""),
    ((*method("afa-cs"), FALLING), f'{STEPS} "1/k"'),
    ((*method("ia2sgd"), FALLING), f'{STEPS} "1/k"'),
    ((*method("afa-cd"), FALLING), f'{STEPS} "1/k"'),
    ((*method("fedbuff"), FALLING), f'{STEPS} "1/k"'),
    ((*method("fedbuff"), "schedule.name=1/sqrt(t)"), f'{STEPS} "1/sqrt(t)"'),
    ((*method("fedbuff", "server_step_size=1"), FALLING), ""),
    (method("s-fedavg"), "method.clients_per_round: 4 is more than clients.count = 2; use at most 2"),
    (method("s-fedavg", "clients_per_round=2"), ""),
    ((*method("s-fedavg", "clients_per_round=2"), POISSON), '"poisson" makes no sense with s-fedavg'),
    ((*method("afa-cd", "server_step_size=1"), FALLING), ""),
    ((*method("ca2fl"), FALLING), ""),
    ((*method("dude"), TICKS), 'clients.work: "ticks" makes no sense with dude, whose rounds need local steps'),
    ((*method("ca2fl"), TICKS), ""),
    (method("asynccomm-sgd"), 'clients.work: "fixed" makes no sense with asynccomm-sgd'),
    ((*method("asynccomm-sgd"), TICKS, PERIOD), 'aggregation.name: "period" makes no sense with asynccomm-sgd'),
    (method("fedcompass"), 'delays.per: "round" makes no sense with fedcompass'),
    ((*method("fedcompass", "min_steps=9", "max_steps=8"), PER_STEP), "method.min_steps: 9 is more than"),
    ((*method("fedcompass"), PER_STEP, UNIFORM), 'clients.work: "uniform" makes no sense with fedcompass'),
    ((*QUAFL, UNIFORM), 'clients.work: "uniform" makes no sense with quafl'),
    ((*QUAFL, "clients.count=1"), "2 is more than clients.count"),
    ((*QUAFL, "method.period_s=1e-10"), "method.period_s: 2e+10 updates per second"),
    ((*FAVAS, TRACE), "expected_steps: is needed"),
    ((*FAVAS, "method.expected_steps=[1.0]"), "method.expected_steps: 1 numbers for"),
    (method("async-sgd", "threshold=3"), 'method.threshold: 3 is not used with step = "constant"; use step ='),
    (method("async-sgd", "step=adaptive", "smoothness=2.0"), "method.smoothness: 2.0 is not used with step"),
    (method("async-sgd", "concurrency=1"), 'method.concurrency: 1 makes no sense with assignment = "continue"'),
    (
        method("async-sgd", "assignment=idle-uniform", "concurrency=3"),
        "method.concurrency: 3 is more than clients.count = 2 idle clients can take; use at most 2",
    ),
    (
        method("async-sgd", "probabilities=[0.5, 0.5]"),
        'method.probabilities: are not used with assignment = "continue"',
    ),
    (
        method("async-sgd", "assignment=importance", "probabilities=[0.5, 0.6]"),
        "method.probabilities: 2 with the sum 1.1 for clients.count = 2; give one per client, with the sum 1",
    ),
    (
        method("async-sgd", "assignment=importance", "probabilities=[1.0]"),
        "method.probabilities: 1 with the sum 1 for",
    ),
    (
        (*method("ringmaster", "max_delay=3", "stops=true"), UNIFORM),
        'method.stops: true makes no sense with clients.work = "uniform"',
    ),
)


@pytest.mark.parametrize(("overrides", "words"), CASES)
def test_what_makes_no_sense_is_refused(overrides: tuple[str, ...], words: str) -> None:
    if not words:
        parse_experiment(BASE, "try.toml", overrides)
        return
    with pytest.raises(ConfigError) as caught:
        parse_experiment(BASE, "try.toml", overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
