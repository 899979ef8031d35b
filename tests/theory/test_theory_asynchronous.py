"""What `areabench theory` advises for asynchronous SGD, Ringmaster, Rennala, Malenia and Ringleader, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import PoissonAggregation
from areabench.methods.malenia import Malenia
from areabench.methods.rennala import Rennala
from areabench.methods.ringleader import Ringleader
from areabench.methods.ringmaster import Ringmaster
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.robust import Robust
from areabench.problems.splits.iid import Iid
from areabench.results.advice import find, subject_of
from areabench.theory.applied import server_rate
from areabench.timing.rates import ListedRates
from areabench.views.text import theory_text

RATES = np.array([5.0, 4.0, 1.0])
EXPERIMENT = Experiment(
    clients=Clients(count=3),
    method=AsyncSgd(step_size=0.1),
    stop=Stop(iterations=100),
    problem=Quadratic(dimension=2, curvature_min=1.0, curvature_max=2.0, noise=3.0),
    rates=ListedRates(values=(5.0, 4.0, 1.0)),
)  # L = 2, sigma = 3


def advised(method: MethodSettings, base: Experiment = EXPERIMENT, *, solve: bool = False) -> tuple[str, ...]:
    return find(subject_of(replace(base, method=method), None, Path("unused"), solve=solve)).advised


@pytest.mark.parametrize(
    ("method", "first", "last"),
    [
        (AsyncSgd(step_size=1), "gamma = 1/(4·L·tau_max) = 0.01389; tau_max = 9", "1/(L·C) = 0.1667, whatever"),
        (AsyncSgd(step_size=1, assignment="uniform", concurrency=5), "gamma about 1/(L·C) = 0.1,", "C = 5"),
        (Ringmaster(step_size=1, max_delay=4), "fits epsilon = 2.25", "= 0.03125"),  # min(1/16, 2.25/72)
        (Rennala(step_size=1, batch=3), "S = 3 = max(1, ceil(sigma²/epsilon)) fits epsilon = 3", "= 0.25"),
        (Malenia(step_size=1, batch=6), "S = 6 = max(n, ceil(sigma²/epsilon)) fits epsilon = 1.5", "= 0.25"),
        # t = 0.2, 0.25, 1: B = max(1, 1/(2·1.45/3)) = 1.034; epsilon = 90/(24·1.034)
        (Ringleader(step_size=1), "= 0.02083 down to epsilon = 3.625", "= 1.034 gradients"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_screen_has_the_formula_and_the_number(method: MethodSettings, first: str, last: str) -> None:
    lines = advised(method)
    assert first in lines[0]
    assert last in lines[-1]


QUIET = replace(EXPERIMENT, problem=Quadratic(dimension=2, curvature_min=1.0, curvature_max=2.0))
ALONE = replace(EXPERIMENT, clients=Clients(count=1), rates=ListedRates(values=(2.0,)))
EQUAL = replace(EXPERIMENT, rates=ListedRates(values=(1.0, 1.0, 1.0)))


@pytest.mark.parametrize(
    ("base", "method", "words"),
    [
        (ALONE, AsyncSgd(step_size=1), "1/(4·L·tau_max) = 0.125; tau_max = 0"),  # at most 1/(4 L)
        (QUIET, Ringmaster(step_size=1, max_delay=4), "= 0.0625"),  # 1/(2 R L)
        (QUIET, Rennala(step_size=1, batch=4), "= 0.5"),  # 1/L
        (QUIET, Ringleader(step_size=1), "= 0.02083"),  # 1/(8 n L)
        (EQUAL, Ringleader(step_size=1), "B = max(1, t_max/(2·mean t)) = 1 "),
    ],
    ids=["one client", "ringmaster", "rennala", "ringleader", "equal rates"],
)
def test_steps_at_the_limits(base: Experiment, method: MethodSettings, words: str) -> None:
    assert words in " ".join(advised(method, base))


def test_several_local_steps_are_mentioned() -> None:
    lines = advised(Ringleader(step_size=1), replace(EXPERIMENT, clients=Clients(count=3, local_steps=4)))
    assert lines[-1].endswith("so divide gamma by 4")


def test_what_is_not_known_is_said() -> None:
    logistic = replace(
        EXPERIMENT,
        problem=Logistic(batch_size=4, regularisation=0.1),
        data=Synthetic(train_samples=60, test_samples=9, features=4, classes=2),
        split=Iid(),
    )
    assert advised(Rennala(step_size=1, batch=3), logistic) == (
        "the step size of rennala needs sigma; --solve adds it",
    )
    assert advised(Rennala(step_size=1, batch=3), logistic, solve=True)[0].startswith("S = 3")
    assert advised(Rennala(step_size=1, batch=3), replace(EXPERIMENT, problem=Robust(dimension=2, samples=5))) == ()


def test_only_these_methods_have_advice_of_their_own() -> None:
    found = find(subject_of(replace(EXPERIMENT, method=Area(step_size=1.0)), None, Path("unused"), solve=False))
    assert found.advised == ()
    assert "advice" not in str(theory_text(found))


def test_the_advice_has_a_label() -> None:
    found = find(subject_of(EXPERIMENT, None, Path("unused"), solve=False))
    assert "\nadvice        gamma = 1/(4·L·tau_max)" in str(theory_text(found))


def test_asynchronous_sgd_steps_at_every_update_whatever_the_criterion() -> None:
    experiment = replace(EXPERIMENT, aggregation=PoissonAggregation(rate=3.0))
    assert server_rate(experiment, RATES) == 10
