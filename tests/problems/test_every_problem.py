"""What holds for every problem, and what theory may rely on where the optimum is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.samples import CLASSES, FEATURES, blobs, parts

from areabench.arrays import FLOAT32, FLOAT64, Vector
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.problems import PROBLEMS, hinge, logistic
from areabench.problems.base import ClientData, Problem, ProblemSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge, HingeProblem
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.median import Median
from areabench.problems.minibatches import Minibatches
from areabench.problems.optimum import KnownOptimum, LipschitzProblem, Optimum, SmoothProblem
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.problems.regression import Regression
from areabench.problems.robust import Robust
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.subgradients import DrawnProblem
from areabench.problems.torch_module import TorchModule

SMOOTH = (Quadratic(noise=0.5, zeta=2.0), Logistic(weighting="exact", regularisation=0.01))
LIPSCHITZ = (Robust(samples=9), Median(samples=9), Hinge())
OTHERS = (Regression(regularisation=0.1, start_width=0.5), TorchModule(module="areabench.problems.examples:mlp"))
CHOSEN = {settings.name: settings for settings in (*SMOOTH, *LIPSCHITZ, *OTHERS)}
EVERY = [CHOSEN.get(name) or PROBLEMS[name]() for name in PROBLEMS]


def scenario(settings: ProblemSettings, local_steps: int = 1, seed: int = 0) -> Scenario:
    """Five clients with unequal data."""
    if isinstance(settings, TorchModule):
        pytest.importorskip("torch")
    drawn = not settings.takes_data
    experiment = Experiment(
        clients=Clients(count=5, local_steps=local_steps),
        method=Area(step_size=0.1),
        stop=Stop(horizon_s=1.0),
        problem=settings,
        data=None if drawn else Synthetic(train_samples=150, test_samples=20, features=4, classes=3, spread=2.0),
        split=None if drawn else Dirichlet(concentration=0.5),
        seed=seed,
    )
    return build_scenario(experiment, Path("unused"))


@pytest.fixture(params=EVERY, ids=lambda settings: settings.name)
def settings(request: pytest.FixtureRequest) -> Any:
    """The settings of each kind of problem in turn."""
    return request.param


# ---------------------------------------------------------------------------------------------------- descent


def trajectory(settings: ProblemSettings, local_steps: int, rounds: int, seed: int = 7) -> bytes:
    """Where a client is after some rounds."""
    problem = scenario(settings, local_steps, seed).problem
    local = problem.local(2)
    model = problem.start()
    for _ in range(rounds):
        model = local.descend(model, 0.05)
    return model.tobytes()


def test_same_seed_same_bits_and_rounds_continue(settings: ProblemSettings) -> None:
    found = trajectory(settings, 6, 1)
    assert found == trajectory(settings, 6, 1) == trajectory(settings, 1, 6) == trajectory(settings, 2, 3)
    assert found != trajectory(settings, 6, 1, seed=8)


# The first entries after four rounds of three steps.
PINNED = {
    "quadratic": (0.0806595927, 0.302694575, -0.524430078),
    "logistic": (-0.493855238, 0.14822489, -0.00650039688),
    "robust": (0.354483831, 0.243862913, 0.371035623),
    "median": (0.337773482, 0.331951867, 0.146211749),
    "hinge": (-0.480997499, 0.166575846, 0.0134484105),
    "regression": (-0.403676141, 0.250863178, 0.112346043),
    "torch": (-0.293676496, -0.337995827, -0.136348069),
}


@pytest.mark.parametrize("name", PINNED)
def test_whole_rounds_lead_where_they_led_in_earlier_versions(name: str) -> None:
    settings = CHOSEN[name]
    found = np.frombuffer(trajectory(settings, 3, 4), scenario(settings).problem.dtype)
    np.testing.assert_allclose(found[:3], PINNED[name], rtol=1e-5)


@pytest.mark.parametrize("local_steps", [1, 2, 5])
def test_three_steps_are_three_times_one_step(settings: ProblemSettings, local_steps: int) -> None:
    problem = scenario(settings, local_steps).problem
    once, thrice = problem.local(1), problem.local(1)
    one = other = problem.start()
    for _ in range(2):
        one = once.descend(one, 0.05, 3)
        for _ in range(3):
            other = thrice.descend(other, 0.05, 1)
        assert one.tobytes() == other.tobytes()


def test_no_steps_lead_nowhere_and_draw_nothing(settings: ProblemSettings) -> None:
    problem = scenario(settings, local_steps=2).problem
    local = problem.local(1)
    start = problem.start()
    stayed = local.descend(start, 0.05, 0)
    assert stayed.tobytes() == start.tobytes()
    assert not np.shares_memory(stayed, start)
    assert local.descend(start, 0.05).tobytes() == problem.local(1).descend(start, 0.05).tobytes()


def test_a_step_subtracts_the_gradient(settings: ProblemSettings) -> None:
    problem = scenario(settings, local_steps=2).problem
    stepping, asked = problem.local(2), problem.local(2)
    model = problem.start()
    for _ in range(3):
        gradient = asked.gradient(model)
        after = stepping.descend(model, 0.5, 1)
        np.testing.assert_allclose(after, model - 0.5 * gradient, rtol=1e-5, atol=1e-6)
        assert np.abs(gradient).max() > 1e-3
        model = after


@pytest.mark.parametrize(
    "move", [lambda local, model: local.gradient(model), lambda local, model: local.descend(model, 0.5)]
)
def test_what_a_client_returns_is_new_and_like_the_model(
    settings: ProblemSettings, move: Callable[[Any, Vector], Vector]
) -> None:
    problem = scenario(settings).problem
    model = problem.start()
    model.flags.writeable = False
    first = move(problem.local(0), model)
    kept = first.copy()
    assert not np.shares_memory(first, move(problem.local(1), model))
    problem.evaluate([2 * model])
    assert first.tobytes() == kept.tobytes() != model.tobytes()
    assert model.tobytes() == problem.start().tobytes()
    assert first.dtype == model.dtype == problem.dtype
    assert first.shape == model.shape == (problem.dimension,)


@pytest.mark.parametrize("steps", [1, 4, 6, 7, 200])
def test_skipped_steps_draw_what_others_draw(settings: ProblemSettings, steps: int) -> None:
    """Also where they end in the middle of a round of three."""
    problem = scenario(settings, local_steps=3).problem
    resumed, whole = problem.local(1), problem.local(1)
    start = problem.start()
    resumed.skip(steps)
    whole.descend(start, 0.05, steps)
    assert resumed.descend(start, 0.05, 2).tobytes() == whole.descend(start, 0.05, 2).tobytes()
    assert resumed.descend(start, 0.05).tobytes() == whole.descend(start, 0.05).tobytes()


def test_steps_gradients_and_rounds_are_skipped_alike(settings: ProblemSettings) -> None:
    problem = scenario(settings, local_steps=5).problem
    resumed, whole = problem.local(1), problem.local(1)
    start = problem.start()
    whole.descend(start, 0.05, 3)
    whole.gradient(start)
    whole.descend(start, 0.05)
    resumed.skip(3 + 1 + 5)
    assert resumed.gradient(start).tobytes() == whole.gradient(start).tobytes()
    assert resumed.descend(start, 0.05).tobytes() == whole.descend(start, 0.05).tobytes()


def test_lanes_are_computed_as_models_alone(settings: ProblemSettings) -> None:
    """To the bit, but for logistic regression, whose wide products round in another way."""
    problem = scenario(settings, local_steps=3).problem
    wide: Any = problem.local(1)
    if not hasattr(wide, "descend_lanes"):
        pytest.skip("this problem computes one model at a time")
    step_sizes = np.array([0.01, 0.05, 0.1, 0.2, 0.5])
    alone = [problem.local(1) for _ in step_sizes]
    models = np.stack([problem.start() * problem.dtype.type(factor) for factor in (1, 2, -1, 3, 0.5)])
    for _ in range(2):
        lanes = wide.descend_lanes([models[:2], models[2:]], step_sizes).copy()
        rows = zip(alone, models, step_sizes.tolist(), strict=True)
        models = np.array([local.descend(model.copy(), step_size) for local, model, step_size in rows])
        if isinstance(settings, Logistic):
            np.testing.assert_allclose(lanes, models, atol=3e-5, rtol=0)
        else:
            np.testing.assert_array_equal(lanes, models)
    wide.skip(3)
    alone[0].skip(3)
    assert wide.descend(models[0], 0.1).tobytes() == alone[0].descend(models[0], 0.1).tobytes()


# ---------------------------------------------------------------------------------------------------- evaluation


def test_an_evaluation_without_loss_or_models(settings: ProblemSettings) -> None:
    problem = scenario(settings).problem
    assert np.isnan(problem.evaluate([problem.start()], with_loss=False).train_loss).all()
    assert len(problem.evaluate([]).train_loss) == 0


def test_the_mean_of_the_clients_gradients_is_the_slope_of_the_loss(
    settings: ProblemSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients, who take all their samples for a mini-batch; against finite differences of the recorded loss."""

    def all_samples(batches: Minibatches, count: int) -> Any:
        return np.tile(np.resize(batches._samples, batches._shape[1]), (count, 1))

    monkeypatch.setattr(Minibatches, "next_batches", all_samples)
    held = ClientData(blobs(), parts()) if settings.takes_data else None
    if isinstance(settings, TorchModule):
        settings = LINEAR  # without kinks
    if settings.samples_per_step:
        settings = replace(settings, batch_size=9 if held is None else 30)  # type: ignore[call-arg]
    elif hasattr(settings, "noise"):
        settings = replace(settings, noise=0.0)  # type: ignore[call-arg]
    problem = built(settings, held)
    model = problem.start() * problem.dtype.type(1.5)
    single = problem.dtype == FLOAT32
    width = 1e-2 if single else 1e-6
    ends = [
        model + problem.dtype.type(sign * width) * axis
        for sign in (1, -1)
        for axis in np.eye(len(model), dtype=model.dtype)
    ]
    above, below = problem.evaluate(ends).train_loss.reshape(2, -1)
    gradients = [problem.local(client).gradient(model) for client in range(2)]
    tolerance = 1e-4 if single else 1e-7
    np.testing.assert_allclose(np.mean(gradients, axis=0), (above - below) / (2 * width), atol=tolerance)


def built(settings: ProblemSettings, held: ClientData | None = None) -> Problem:
    """The problem of two clients, by default those of `tests/support/samples.py`."""
    if isinstance(settings, TorchModule):
        pytest.importorskip("torch")
    return settings.build(held, 2, 1, 5)


LINEAR = TorchModule(module="tests.problems.test_torch_problem:linear", regularisation=0.125)


@pytest.mark.parametrize("settings", [Logistic(regularisation=0.125), Hinge(), LINEAR], ids=lambda each: each.name)
def test_evaluation_matches_plain_float64(settings: ProblemSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = built(settings, ClientData(blobs(), parts()))
    for module in (logistic, hinge):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)  # several chunks, the last of them short
    monkeypatch.setattr(logistic, "_COLUMNS_AT_ONCE", 2 * CLASSES)
    if settings is LINEAR:
        monkeypatch.setattr("areabench.problems.torch_flat._ROWS_AT_ONCE", 7)
    data = blobs()
    samples = np.arange(len(data.train_labels))
    models = [problem.start() * problem.dtype.type(factor) for factor in (1, 0.5, 3, -2, 7)]
    metrics = problem.evaluate(models)
    for index, model in enumerate(models):
        weights = model.astype(np.float64).reshape(CLASSES, FEATURES)
        scores = data.train_features / 255 @ weights.T
        right = scores[samples, data.train_labels]
        if settings.name == "hinge":
            scores += 1
            scores[samples, data.train_labels] -= 1
            loss = (scores.max(axis=1) - right).mean()
        else:
            loss = (np.log(np.exp(scores).sum(axis=1)) - right).mean() + 0.0625 * (weights**2).sum()
        hits = (data.test_features @ weights.T).argmax(axis=1) == data.test_labels
        np.testing.assert_allclose(metrics.train_loss[index], loss, rtol=1e-6)
        np.testing.assert_allclose(metrics.test_accuracy[index], 100 * hits.mean(), rtol=1e-12)
    assert len(set(metrics.test_accuracy)) > 1
    assert np.isnan(metrics.squared_distance).all()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Logistic(start_width=0.25), 0.25),
        (Hinge(start_width=0.25), 0.25),
        (Regression(start_width=0.25), 0.25),
        (Logistic(start_width=0.0), 0.0),
    ],
)
def test_a_start_is_uniform_within_the_width(settings: ProblemSettings, expected: float) -> None:
    start = np.abs(built(settings, ClientData(blobs(), parts())).start())
    assert 0.6 * expected <= start.max() <= expected


@pytest.mark.parametrize(
    "settings", [Quadratic(), Robust(), Median(), Hinge(), Regression()], ids=lambda settings: settings.name
)
def test_divergence_is_silent(settings: ProblemSettings) -> None:
    problem = scenario(settings, local_steps=400).problem
    with np.errstate(all="raise"):
        moved = np.full(problem.dimension, np.inf)
        if isinstance(settings, Quadratic):
            moved = problem.local(0).descend(problem.start(), 1e3)
        assert not np.isfinite(problem.evaluate([moved]).train_loss).any()


def test_more_clients_leave_the_drawn_functions_of_the_first_ones_alone() -> None:
    for settings in (Quadratic(), Robust(), Median()):
        few, many = (settings.build(None, clients, 1, 7) for clients in (2, 5))
        point = few.start()
        gradients = [[problem.local(client).gradient(point) for client in range(2)] for problem in (few, many)]
        np.testing.assert_array_equal(gradients[0], gradients[1])
        assert not np.array_equal(gradients[0][0], gradients[0][1])


# ---------------------------------------------------------------------------------------------------- optimum


@pytest.mark.parametrize("settings", [*SMOOTH, *LIPSCHITZ], ids=lambda settings: settings.name)
def test_optima_and_constants_bound_the_loss(settings: ProblemSettings) -> None:
    """mu/2·|x - x*|² <= f(x) - f* <= L/2·|x - x*|², or 0 < f(x) - f* <= B·|x - x*|."""
    problem = scenario(settings).problem
    known: KnownOptimum
    # that they fit the protocols is for the type checker
    if isinstance(problem, QuadraticProblem | LogisticProblem):
        smooth: SmoothProblem = problem
        known = problem
        bounds = [factor / 2 * distance(problem, known) ** 2 for factor in (smooth.mu, smooth.L)]
        assert smooth.zeta > 0
    else:
        assert isinstance(problem, DrawnProblem | HingeProblem)
        lipschitz: LipschitzProblem = problem
        known = problem
        bounds = [1e-9, lipschitz.B * distance(problem, known)]
    at_start, least = problem.evaluate([problem.start(), known.optimum.minimiser.astype(problem.dtype)]).train_loss
    assert known.optimum.exact
    assert 0 < bounds[0] <= at_start - known.optimum.minimum <= bounds[1]
    assert least == pytest.approx(known.optimum.minimum, rel=1e-12 if problem.dtype == FLOAT64 else 1e-5)
    assert known.sigma > 0


def distance(problem: Problem, known: KnownOptimum) -> float:
    """|x_{s,0} - x*|."""
    return float(np.linalg.norm(problem.start() - known.optimum.minimiser))


@pytest.mark.parametrize("settings", [Robust(samples=9), Median(samples=9)], ids=lambda settings: settings.name)
def test_drawn_samples_are_counted(settings: Robust | Median) -> None:
    assert scenario(settings).samples.tolist() == [9] * 5


def test_what_counts_as_exact() -> None:
    point = np.zeros(1)
    assert Optimum(point, 1e4, 1e-5).exact
    assert not Optimum(point, 1e-4, 1e-5).exact
    assert Optimum(point, 0.0, 1e-9).exact
    assert not Optimum(point, 0.0, np.inf).exact
