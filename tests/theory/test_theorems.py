"""What the theorems say about an experiment: step sizes by hand, the command's screen, its suggestion, its errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.methods.table import answer

from areabench.cli.main import main
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.experiment.parse import load_experiment
from areabench.methods.area import Area
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import ConstantSchedule, Theorem1Schedule, Theorem2Schedule
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.robust import Robust
from areabench.problems.splits.iid import Iid
from areabench.results.advice import Subject, find, suggestion, violations
from areabench.theory.applied import arrival_rates, event_probabilities, expected_iterations, server_rate
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates, UniformRates
from areabench.timing.trace import TraceDelays

CURVED = Quadratic(dimension=2, curvature_min=1.0, curvature_max=3.0, noise=0.5, zeta=2.0)
BASE = Experiment(
    clients=Clients(count=2),
    method=Area(step_size=1.0),
    stop=Stop(iterations=100),
    problem=CURVED,
    rates=UniformRates(rate=1.0),
    aggregation=PoissonAggregation(rate=2.0),
    schedule=Theorem1Schedule(),
)  # p = (1/4, 1/4), p_s = 1/2


def scenario(experiment: Experiment) -> Scenario:
    return build_scenario(experiment, Path("unused"))


def sent(experiment: Experiment, iterations: int) -> list[float]:
    """The step sizes of the replies at k = 0, and after `iterations` updates."""
    server = scenario(experiment).server()
    order = server.begin()[0]
    step_sizes = [order.step_size]
    for _ in range(iterations):
        (order,) = server.receive(answer(order, np.zeros(server.model.shape)), order, 0.0)
        step_sizes.append(order.step_size)
    return step_sizes


# ---------------------------------------------------------------------------------------------------- schedules


def test_theorem1_by_hand() -> None:
    """gamma = 3/2, D = 2/(1+3) = 1/2, p_min = 1/4: alpha_k = 1/(k/128 + 2)."""
    found = sent(BASE, 256)
    np.testing.assert_allclose([found[k] for k in (0, 1, 128, 256)], [1 / 2, 128 / 257, 1 / 3, 1 / 4], rtol=1e-14)


def test_theorem1_with_local_steps_by_hand() -> None:
    """M = 2: D = sqrt(2 · (9/4)/(64 · 81)) = 1/(24·sqrt(2)), so alpha_k = 1/(k/64 + 24·sqrt(2))."""
    found = sent(replace(BASE, clients=Clients(count=2, local_steps=2)), 64)
    np.testing.assert_allclose([found[0], found[64]], [1 / (24 * np.sqrt(2)), 1 / (1 + 24 * np.sqrt(2))], rtol=1e-14)


def test_step_size_is_a_factor_of_the_theorem_s() -> None:
    assert sent(replace(BASE, method=Area(step_size=3.0)), 5) == [3 * alpha for alpha in sent(BASE, 5)]


def test_constants_in_the_file_come_before_the_problem_s() -> None:
    """mu = L = 2: gamma = 2, D = 1/2; p_min = 1/10: alpha_k = 1/(k/240 + 2)."""
    schedule = Theorem1Schedule(strong_convexity=2.0, smoothness=2.0, least_probability=0.1)
    np.testing.assert_allclose(sent(replace(BASE, schedule=schedule), 240)[-1], 1 / 3, rtol=1e-14)


def test_theorem2_by_hand() -> None:
    """V_0 = (2 + 2·4)·25, sigma² + M B² = 9 + 4, K = 100: alpha = sqrt(250/1300), whatever k is."""
    schedule = Theorem2Schedule(lipschitz=2.0, noise=3.0, distance=5.0)
    assert sent(replace(BASE, schedule=schedule), 3) == pytest.approx([np.sqrt(250 / 1300)] * 4, rel=1e-14)


def test_theorem2_asks_the_problem() -> None:
    experiment = replace(BASE, problem=Robust(dimension=2, samples=5), schedule=Theorem2Schedule(iterations=400))
    problem = scenario(experiment).problem
    distance = np.linalg.norm(problem.start() - problem.optimum.minimiser)  # type: ignore[attr-defined]
    error = problem.sigma**2 + problem.B**2  # type: ignore[attr-defined]
    assert sent(experiment, 0) == pytest.approx([np.sqrt(10 * distance**2 / (error * 400))], rel=1e-12)


@pytest.mark.parametrize(
    ("criterion", "rate"),
    [(EveryUpdates(updates=4), 1.5), (EveryPeriod(period_s=0.5), 2.0), (PoissonAggregation(rate=7.0), 7.0)],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_server_rate_of_each_criterion(criterion: AggregationSettings, rate: float) -> None:
    experiment = replace(BASE, aggregation=criterion, rates=ListedRates(values=(5.0, 1.0)))
    rates = np.array([5.0, 1.0])
    assert server_rate(experiment, rates) == rate
    events = event_probabilities(experiment, rates)
    np.testing.assert_allclose(events.clients, rates / (6 + rate))


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (Stop(iterations=70), 70),
        (Stop(horizon_s=10.0), 40),
        (Stop(horizon_s=10.0, iterations=30), 30),
        (Stop(horizon_s=0.01), 1),
    ],
)
def test_expected_iterations(stop: Stop, expected: int) -> None:
    assert expected_iterations(replace(BASE, stop=stop), np.array([1.0, 1.0])) == expected


SYNCHRONOUS = replace(BASE, method=SFedAvg(step_size=1.0, clients_per_round=1), aggregation=EveryUpdates())
DATA = Synthetic(train_samples=30, test_samples=5, features=3, classes=2)
ON_DATA = replace(BASE, problem=Hinge(batch_size=4), data=DATA, split=Iid())


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (ON_DATA, "schedule.strong_convexity: is needed, as mu of this problem is not known; give a number"),
        (replace(BASE, schedule=Theorem2Schedule()), "schedule.lipschitz: is needed, as B of this problem is not"),
        (SYNCHRONOUS, 'the theorems are about AREA, choose a method'),
    ],
    ids=["no mu", "no B", "synchronous"],
)  # fmt: skip
def test_a_missing_constant_is_asked_for(experiment: Experiment, words: str) -> None:
    with pytest.raises(UserError, match=words):
        scenario(experiment).server()


# ---------------------------------------------------------------------------------------------------- advice


def subject(experiment: Experiment) -> Subject:
    built = scenario(experiment)
    events = event_probabilities(experiment, built.rates)
    return Subject(experiment, built.problem, built.rates, events, "")


def test_bounds_begin_as_the_first_message_says() -> None:
    """Trained, x_{i,0} may be farther from x* than x_{s,0}: without noise and heterogeneity it is nearer."""
    calm = replace(BASE, problem=replace(CURVED, noise=0.0, zeta=None, heterogeneity=0.0))
    zero = replace(calm, method=Area(step_size=1.0, first_message="zero"))
    trained, untrained = (find(subject(one)).theorem1 for one in (calm, zero))
    assert trained is not None
    assert untrained is not None
    assert trained.recursion_bound < untrained.recursion_bound


def suggested(experiment: Experiment) -> Experiment:
    found = suggestion(subject(experiment))
    assert found is not None
    return found


def test_nothing_is_violated_where_everything_fits() -> None:
    assert list(violations(subject(BASE))) == []


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (replace(BASE, method=FedBuff(step_size=1.0, server_step_size=1.0)), ["the theorems are about AREA"]),
        (replace(BASE, delays=FixedDelays()), ["depend on the past"]),
        (replace(BASE, aggregation=EveryUpdates()), ["not independent of the clients"]),
        (replace(BASE, aggregation=EveryPeriod(period_s=1.0)), ["at fixed times"]),
        (replace(BASE, method=Area(step_size=0.5)), ["have the factor 1"]),
        (replace(BASE, schedule=ConstantSchedule()), ["above D = 0.5", "fall as 1/k"]),
        (replace(ON_DATA, problem=Logistic(regularisation=0.0)), ["not strongly convex"]),
    ],
    ids=["method", "delays", "updates", "period", "factor", "constant", "no regulariser"],
)  # fmt: skip
def test_each_violation_is_named(experiment: Experiment, words: list[str]) -> None:
    found = list(violations(subject(experiment)))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


CRITERIA: list[AggregationSettings] = [EveryUpdates(updates=7), EveryPeriod(period_s=9.0), PoissonAggregation(rate=5.0)]


def test_suggestion_keeps_the_kind_of_criterion() -> None:
    """lambda_s* = sqrt(2/2) = 1: Delta = 2, a period of one second."""
    found = [suggested(replace(BASE, aggregation=criterion, method=Area(step_size=9.0))) for criterion in CRITERIA]
    best = [EveryUpdates(updates=2), EveryPeriod(period_s=1.0), PoissonAggregation(rate=1.0)]
    assert [each.aggregation for each in found] == best
    assert {(each.schedule, each.method.step_size) for each in found} == {(Theorem1Schedule(), 1.0)}


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_within_a_horizon_the_criterion_stays(criterion: AggregationSettings) -> None:
    assert suggested(replace(BASE, aggregation=criterion, stop=Stop(horizon_s=5.0))).aggregation == criterion


def test_lipschitz_problems_are_given_theorem2_and_its_average() -> None:
    found = suggested(replace(BASE, problem=Robust()))
    assert found.schedule == Theorem2Schedule()
    assert found.record.average


def test_given_constants_stay() -> None:
    given = Theorem1Schedule(strong_convexity=0.5, smoothness=8.0, least_probability=0.01)
    assert suggested(replace(BASE, schedule=given)).schedule == given
    assert suggested(replace(ON_DATA, schedule=given)).schedule == given  # a problem that does not know its own


def test_measured_rates_are_written_down() -> None:
    """Rates of 1 and 4 per second, lambda_s* = sqrt(5/(1 + 1/4)) = 2: p_min = 1/7; Theorem 2 has no key for them."""
    rates = np.array([1.0, 4.0])
    for problem in (CURVED, Robust(dimension=2, samples=5)):
        experiment = replace(BASE, problem=problem)
        events = event_probabilities(experiment, rates)
        found = suggestion(Subject(experiment, scenario(experiment).problem, rates, events, "", measured=True))
        assert found is not None
        assert found.aggregation == PoissonAggregation(rate=2.0)
        if isinstance(found.schedule, Theorem1Schedule):
            assert found.schedule.least_probability == pytest.approx(1 / 7)
            continue
        alone = replace(
            found, schedule=Theorem2Schedule(), method=Area(step_size=1.0), rates=ListedRates(values=(1.0, 4.0))
        )
        assert found.schedule == ConstantSchedule()
        assert [found.method.step_size] == pytest.approx(sent(alone, 0))


@pytest.mark.parametrize(
    "experiment",
    [
        replace(BASE, method=FedBuff(step_size=1.0, server_step_size=1.0)),
        replace(ON_DATA, problem=Logistic(regularisation=0.0)),
    ],
    ids=["not AREA", "not strongly convex"],
)
def test_no_suggestion_where_no_theorem_applies(experiment: Experiment) -> None:
    assert suggestion(subject(replace(experiment, schedule=ConstantSchedule()))) is None


def test_rates_of_a_trace_are_its_own(tmp_path: Path) -> None:
    """Client 0 takes 0.5 s on average, client 1 takes 2 s."""
    trace = tmp_path / "trace.csv"
    trace.write_text("client,delay_s\n0,0.25\n0,0.75\n1,2.0\n")
    experiment = replace(BASE, delays=TraceDelays(file=str(trace)))
    assert arrival_rates(experiment, np.array([1.0, 1.0])).tolist() == [2.0, 0.5]
    p_min = 0.5 / 4.5
    assert sent(experiment, 1)[1] == pytest.approx(1 / (p_min * 1.5 / 48 + 2), rel=1e-14)


# ---------------------------------------------------------------------------------------------------- command

FILE = """
[clients]
count = 2
[method]
name = "area"
step_size = 1.0
[stop]
iterations = 100
[rates]
name = "uniform"
rate = 1.0
[problem]
name = "quadratic"
dimension = 2
curvature_max = 3.0
zeta = 2.0
noise = 0.5
[aggregation]
name = "poisson"
rate = 2.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "try.toml"
    path.write_text(FILE)
    return path


def test_what_theory_finds(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    events = {"p_min": 0.25, "slowest": 0, "p_s": 0.5, "q_bar": 4, "r_p": 2}
    assert events.items() <= found["events"].items()
    theorem = {"mu": 1, "L": 3, "kappa": 3, "gamma": 1.5, "delta": 0, "sigma": 0.5, "zeta": pytest.approx(2)}
    theorem |= {"c": 128, "d": 256, "D": 0.5, "limited_by": "smoothness", "iterations": 100}
    assert {name: found["theorem1"][name] for name in theorem} == theorem
    assert found["theorem2"] is None
    assert found["server"] == {"rate": 1, "updates": 2, "whole_updates": 2, "period_s": 1, "now": 2}
    keys = [words.partition(":")[0].partition(" ")[0] for words in found["not_satisfied"]]
    assert keys == ["method.step_size", "schedule"]
    assert found["suggested_steps"] == "alpha_k = 96/(k + 192)"  # p_min = 1/3


def test_theory_of_a_lipschitz_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.partition("[problem]")[0] + '[problem]\nname = "median"\ndimension = 2\nsamples = 5\n')
    assert main(["theory", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["theorem1"] is None
    assert (found["theorem2"]["B"], found["theorem2"]["sigma"]) == (1, 0.5)
    assert found["theorem2"]["bound"] > 0
    assert any("record.average = false" in words for words in found["not_satisfied"])


def test_suggestion_is_written_and_runs(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, run = tmp_path / "suggested.toml", tmp_path / "run.h5"
    assert main(["theory", str(file), "--write", str(written)]) == 0
    assert f"written       {written}" in capsys.readouterr().out
    experiment = load_experiment(written)
    assert (experiment.schedule, experiment.aggregation) == (Theorem1Schedule(), PoissonAggregation(rate=1.0))
    assert main(["simulate", str(written), "--output", str(run)]) == 0
    assert main(["theory", str(written), "--from", str(run)]) == 0
    assert f"measured in {run} (" in capsys.readouterr().out


def test_a_file_is_not_overwritten_unasked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(file), "--write", str(file)]) == 2
    assert f"{file}: exists already; choose another --write or overwrite it with --force" in capsys.readouterr().err
    assert file.read_text() == FILE
    assert main(["theory", str(file), "--write", str(file), "--force"]) == 0
    assert load_experiment(file).schedule == Theorem1Schedule()


def test_what_the_screen_suggests_is_what_the_file_runs(file: Path, tmp_path: Path) -> None:
    written = tmp_path / "new" / "suggested.toml"
    assert main(["theory", str(file), "--write", str(written)]) == 0
    assert sent(load_experiment(written), 0) == [pytest.approx(0.5)]
    assert sent(load_experiment(written), 192)[-1] == pytest.approx(96 / 384)


def test_nothing_is_written_where_no_theorem_applies(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "suggested.toml"
    override = ["--set", "method.name=as-fedavg", "--set", "method.step_size=1"]
    assert main(["theory", str(file), *override, "--write", str(written)]) == 2
    assert capsys.readouterr().err.endswith("no theorem applies, so there is nothing to suggest; leave --write out\n")
    assert not written.exists()
    assert main(["theory", str(file), *override]) == 0
    assert "suggestion" not in capsys.readouterr().out


def test_a_run_of_other_clients_is_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.h5"
    assert main(["simulate", str(file), "--set", "clients.count=3", "--output", str(run)]) == 0
    capsys.readouterr()
    assert main(["theory", str(file), "--from", str(run)]) == 2
    assert capsys.readouterr().err.endswith("has 3 clients, the experiment has 2; give a run of this experiment\n")


def test_nothing_is_solved_unasked(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hinge loss may take minutes: at measured rates its suggestion needs --solve."""
    monkeypatch.setattr("areabench.problems.hinge.Samples", lambda *_: pytest.fail("was solved"))
    data = '[data]\nname = "synthetic"\ntrain_samples = 30\ntest_samples = 5\nfeatures = 3\nclasses = 2\n'
    file.write_text(
        FILE.partition("[problem]")[0] + f'[problem]\nname = "hinge"\nbatch_size = 4\n{data}[split]\nname = "iid"\n'
    )
    run, written = tmp_path / "run.h5", tmp_path / "suggested.toml"
    assert main(["simulate", str(file), "--output", str(run)]) == 0
    assert main(["theory", str(file), "--from", str(run)]) == 0
    assert "suggestion" not in capsys.readouterr().out
    assert main(["theory", str(file), "--from", str(run), "--write", str(written)]) == 2
    assert capsys.readouterr().err.endswith("needs |x_s0 - x*|; add --solve\n")


def test_screen_in_the_documentation_is_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    assert main(["theory", str(root / "benchmarks" / "experiments" / "demo" / "quadratic.toml")]) == 0
    assert capsys.readouterr().out in (root / "docs" / "theory.md").read_text(encoding="utf-8")


def test_missing_constants_leave_no_file(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.h5"
    assert main(["simulate", str(file), "--set", "schedule.name=theorem2", "--output", str(run)]) == 2
    assert capsys.readouterr().err.startswith("areabench: schedule.lipschitz: is needed")
    assert not run.exists()
