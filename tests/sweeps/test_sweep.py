"""Sweep files: what they expand to, what they extend, what is refused and in which words."""

from __future__ import annotations

import os
import re
import resource
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from tests.support.texts import quadratic
from tests.sweeps.conftest import written

from areabench.engine.scenario import build_scenario
from areabench.errors import ConfigError, RunFailure, RunFileError, WriteFailure
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import load_experiment, parse_experiment
from areabench.host import peak_bytes
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.logistic import Logistic
from areabench.progress import Style, SweepProgress, duration
from areabench.settings.parse import to_toml
from areabench.sweeps.cost import expected_cost, expected_steps
from areabench.sweeps.passes import Pass, Task
from areabench.sweeps.plan import SweepPlan, load_sweep, run_file_name
from areabench.sweeps.pool import _attempt, group_passes
from areabench.sweeps.read import open_sweep, stored_text
from areabench.timing.delays import Delays
from areabench.timing.rates import NormalRates, UniformRates, client_rates
from areabench.timing.trace import TraceDelays
from areabench.transports.signals import Interrupts

BASE = "seed = 7" + quadratic("horizon_s = 1.0", step_size=0.1)
GRID = """
[sweep]
title = "A try"
trials = 2
[[sweep.grid]]
method.name = ["area", "fedbuff"]
method.step_size = [0.1, 0.2]
"""


def plan_of(text: str, *overrides: str, trials: int | None = None) -> SweepPlan:
    """The sweep that a text expands to."""
    return load_sweep(written(text), overrides, trials)


def refusal(text: str, *overrides: str, trials: int | None = None) -> str:
    """The one line with which a sweep is refused."""
    with pytest.raises(ConfigError) as caught:
        plan_of(text, *overrides, trials=trials)
    message = str(caught.value)
    assert message.isprintable()
    assert re.match(r"(try|other)\.toml: ", message)
    return message


def experiments(plan: SweepPlan) -> list[Experiment]:
    """All experiments of a sweep that has no invalid ones."""
    found = [member.experiment for member in plan.members if member.experiment is not None]
    assert len(found) == len(plan.members)
    return found


# ---------------------------------------------------------------------------------------------------- expanding


def test_a_grid_is_a_product_with_the_trials_innermost() -> None:
    plan = plan_of(BASE + GRID)
    assert (plan.name, plan.title) == ("try", "A try")
    assert [(one.method.name, one.method.step_size, one.seed) for one in experiments(plan)] == [
        ("area", 0.1, 7), ("area", 0.1, 8), ("area", 0.2, 7), ("area", 0.2, 8),
        ("fedbuff", 0.1, 7), ("fedbuff", 0.1, 8), ("fedbuff", 0.2, 7), ("fedbuff", 0.2, 8),
    ]  # fmt: skip
    assert plan.members[-1].settings == (("method.name", "fedbuff"), ("method.step_size", 0.2))
    assert [member.seed for member in plan.members] == [7, 8] * 4
    assert [one.clients.count for one in experiments(plan)] == [2] * 8


def test_trials_are_paired_across_methods_and_step_sizes(tmp_path: Path) -> None:
    grid = GRID.replace('name = ["area", "fedbuff"]', 'name = ["area", "s-fedavg"]')
    plan = plan_of(BASE.replace("count = 2", "count = 4") + '[rates]\nname = "normal"\n' + grid)
    for seed in (7, 8):
        trial = [one for one in experiments(plan) if one.seed == seed]
        assert len(trial) == 4
        rates = [client_rates(one.rates, 4, one.seed) for one in trial]
        delays = [Delays(one.delays, rates[0], one.seed).next_s(1) for one in trial]
        starts = [build_scenario(one, tmp_path).start for one in trial]
        for number in (1, 2, 3):
            np.testing.assert_array_equal(rates[0], rates[number])
            np.testing.assert_array_equal(starts[0], starts[number])
            assert delays[number] == delays[0]
    first, other = (next(one for one in experiments(plan) if one.seed == seed) for seed in (7, 8))
    assert not np.array_equal(build_scenario(first, tmp_path).start, build_scenario(other, tmp_path).start)


def test_grids_are_united_and_equal_runs_count_once() -> None:
    again = "[[sweep.grid]]\nmethod.step_size = [0.2, 0.3]\n"
    plan = plan_of(BASE + GRID + again)
    assert [one.method.step_size for one in experiments(plan)[8:]] == [0.3, 0.3]  # area at 0.2 is there already
    assert len({member.file for member in plan.members}) == len(plan.members) == 10


def test_a_section_may_be_a_value() -> None:
    grid = '[[sweep.grid]]\nrates = [{name = "uniform", rate = 3}, {name = "normal", mean = 2.0}]\n'
    plan = plan_of(BASE + grid)
    assert [one.rates for one in experiments(plan)] == [UniformRates(rate=3.0), NormalRates(mean=2.0)]
    assert plan.members[1].settings == (("rates.name", "normal"), ("rates.mean", 2.0))


def test_an_ordinary_experiment_is_a_sweep_of_one_run() -> None:
    plan = plan_of(BASE)
    assert experiments(plan) == [load_experiment(Path("try.toml"))]
    assert plan.members[0].settings == ()


def test_the_run_file_is_named_after_the_run() -> None:
    (one,) = experiments(plan_of(BASE))
    name = run_file_name(one)
    assert name.startswith("area-0.1-7-")
    assert len(name) == len("area-0.1-7-0123456789.h5")
    assert run_file_name(parse_experiment(to_toml(one))) == name
    assert run_file_name(replace(one, name="other")) != name


def test_the_resolved_text_expands_to_the_same() -> None:
    delays = 'delays = [{name = "exponential"}, {name = "fixed"}]\n'
    plan = plan_of(BASE + GRID + delays, "clients.count=3")
    again = load_sweep(written(plan.file.text(), "again.toml"))
    assert again.members == plan.members
    assert (again.title, again.file.text()) == (plan.title, plan.file.text())


def test_an_invalid_cell_does_not_affect_the_others() -> None:
    plan = plan_of(BASE + GRID.replace("0.2]", "-0.2]"))
    errors = [member.error for member in plan.members]
    assert [bool(error) for error in errors] == [False, False, True, True] * 2
    assert errors[2] == "try.toml: method.step_size: -0.2 is out of range; allowed is a number > 0"
    assert [member.seed for member in plan.members] == [7, 8] * 4
    assert len({member.file for member in plan.members}) == 8
    assert {member.file.endswith(".h5") for member in plan.members} == {True}


# ------------------------------------------------------------------------------------------- overriding, extending


def test_overrides_go_below_the_grid() -> None:
    found = experiments(plan_of(BASE + GRID, "clients.count=5", "seed=20", trials=3))
    assert {one.clients.count for one in found} == {5}
    assert [one.seed for one in found][:3] == [20, 21, 22]


def test_a_name_that_changes_replaces_the_section() -> None:
    base = BASE.replace('"area"', '"fedbuff"\nserver_step_size = 0.5')
    plan = plan_of(base + GRID, trials=1)
    assert [one.method for one in experiments(plan)][::2] == [
        Area(step_size=0.1),
        FedBuff(step_size=0.1, server_step_size=0.5),
    ]


def test_extends_merges_key_by_key() -> None:
    written(BASE + "[rates]\nname = 'normal'\nmean = 3.0\n" + GRID, "base.toml")
    middle = "extends = '../base.toml'\n[rates]\ndeviation = 1.0\n[sweep]\ntrials = 1\n"
    Path("inner").mkdir()
    written(middle, "inner/middle.toml")
    plan = plan_of("extends = 'inner/middle.toml'\n[clients]\nlocal_steps = 2\n")
    assert (plan.title, len(plan.members)) == ("A try", 4)
    for one in experiments(plan):
        assert (one.clients.count, one.clients.local_steps) == (2, 2)
        assert one.rates == NormalRates(mean=3.0, deviation=1.0)
    other = plan_of("extends = 'inner/middle.toml'\n[rates]\nname = 'uniform'\n")
    assert {one.rates for one in experiments(other)} == {UniformRates()}


def test_a_files_grids_replace_the_inherited_ones() -> None:
    written(BASE + GRID, "base.toml")
    plan = plan_of("extends = 'base.toml'\n[sweep]\ntitle = ''\n[[sweep.grid]]\nclients.count = [3]\n")
    assert plan.title == "try"  # an empty title takes the inherited one back
    assert [(one.clients.count, one.seed) for one in experiments(plan)] == [(3, 7), (3, 8)]


def test_a_trace_is_found_beside_the_file_that_names_it() -> None:
    Path("inner").mkdir()
    written("client,delay_s\n0,1.0\n1,1.0\n", "inner/trace.csv")
    written(BASE + "[delays]\nname = 'trace'\nfile = 'trace.csv'\n", "inner/base.toml")
    (one,) = experiments(plan_of("extends = 'inner/base.toml'\n"))
    assert one.delays == TraceDelays(file=str(Path("inner/trace.csv").absolute()))
    for leaf in ("delays = [{name = 'trace', file = 'trace.csv'}]", "delays.file = ['trace.csv']"):
        written(BASE + f"[delays]\nname = 'trace'\n[[sweep.grid]]\n{leaf}\n", "inner/base.toml")
        (other,) = experiments(plan_of("extends = 'inner/base.toml'\n"))
        assert other.delays == one.delays


def test_a_trace_that_cannot_be_read_fails_its_cells_only() -> None:
    grid = "[[sweep.grid]]\ndelays = [{name = 'fixed'}, {name = 'trace', file = 'absent.csv'}]\n"
    good, bad = plan_of(BASE + grid).members
    assert (good.error, bad.experiment) == ("", None)
    assert "absent.csv: No such file or directory" in bad.error


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("[sweep]\ntrails = 2", "sweep.trails: unknown key 'trails'; did you mean 'trials'? allowed: grid, title, tr"),
        ("[sweep]\ntitle = 'x'", "sweep: has neither trials nor a grid; add trials = 10, or a [[sweep.grid]]"),
        ("[sweep]\ntrials = 0", "sweep.trials: 0 is out of range; allowed is a whole number >= 1"),
        ("[sweep]\ntrials = 1\ntitle = 3", "sweep.title: 3 is not a string"),
        ("[sweep.grid]\nseed = [1]", "sweep.grid: {'seed': [1]} is not a list of tables; write [[sweep.grid]]"),
        ("[sweep]\ngrid = []", "sweep.grid: is empty; add a [[sweep.grid]]"),
        ("[[sweep.grid]]\nmethod.step_size = 1.5", "sweep.grid.method.step_size: 1.5 is not a list; write [1.5]"),
        ("[[sweep.grid]]\nseed = []", "sweep.grid.seed: is an empty list; give at least one value"),
        (
            "[[sweep.grid]]\nmethod.stepsize = [1]",
            "sweep.grid.method.stepsize: unknown key 'stepsize'; did you mean 'step_size'?",
        ),
        ("[[sweep.grid]]\nmethods.name = ['area']", "sweep.grid.methods: unknown key or section 'methods'; did you"),
        ("[[sweep.grid]]\nseed.first = [1]", "sweep.grid.seed.first: seed is a key, not a section; write seed = [...]"),
        (
            "[sweep]\ntrials = 1000\n[[sweep.grid]]\nclients.count = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]\n"
            "method.step_size = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
            "sweep: expands to 110,000 runs, more than 100,000; use shorter lists or fewer trials",
        ),
        ("[[sweep.grid]]\nmethod.step_size = [-1, -2]", "method.step_size: -1.0 is out of range"),  # all of them
    ],
)  # fmt: skip
def test_what_is_refused(addition: str, message: str) -> None:
    assert f"try.toml: {message}" in refusal(f"{BASE}\n{addition}\n")


def test_seeds_must_not_run_out() -> None:
    last = BASE.replace("seed = 7", f"seed = {2**32 - 2}")
    assert len(plan_of(last + GRID).members) == 8
    told = refusal(last + GRID, trials=3)
    assert "sweep.trials: 3 trials from seed 4294967294 on go beyond 4294967295, the largest seed" in told


def test_no_key_is_given_by_grid_and_override() -> None:
    for given in ("method.name=area", "method={name='area'}"):
        told = refusal(BASE + GRID, given)
        assert f"--set {given.partition('=')[0]} names what the grid varies; leave one of the two out" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("extends = 'absent.toml'", "try.toml: extends: absent.toml does not exist; give a path relative to the file"),
        ("extends = 3", "try.toml: extends: 3 is not the path of a file; write a string"),
        ("extends = 'try.toml'", "try.toml: extends: the files extend each other in a circle (try.toml -> "),
        ("extends = 'other.toml'", "other.toml: extends: the files extend each other in a circle (try.toml -> "),
    ],
)
def test_what_cannot_be_extended(text: str, told: str) -> None:
    written("extends = 'try.toml'", "other.toml")
    assert told in refusal(text)


def test_a_sweep_is_no_experiment() -> None:
    path = written(BASE + GRID)
    with pytest.raises(ConfigError, match="sweep: this is a sweep, not one experiment; use `areabench sweep"):
        load_experiment(path)


def test_the_example_of_the_documentation_is_a_sweep() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    plan = plan_of(page.partition("```toml\n")[2].partition("```")[0])
    assert len(experiments(plan)) == 24
    assert plan.title == "A first sweep"


# ---------------------------------------------------------------------------------------------------- passes, pool


def test_expected_gradient_steps() -> None:
    (one,) = experiments(plan_of(BASE, "clients.local_steps=3"))
    assert expected_steps(one) == pytest.approx(2 * 10 * 1.0 * 3)
    assert expected_steps(replace(one, stop=replace(one.stop, iterations=5))) == 15
    synchronous = replace(one, method=SFedAvg(step_size=1.0, clients_per_round=2))
    assert expected_steps(synchronous) == pytest.approx(2 * 10 / 1.5 * 3)  # a round takes 1/10 + 1/20 s
    assert expected_steps(replace(one, rates=NormalRates(mean=4.0))) == pytest.approx(2 * 4 * 3)
    assert expected_cost(one) == pytest.approx(60)  # a quadratic is evaluated at once
    assert expected_cost(replace(one, problem=Logistic())) == pytest.approx(60 + 100 * 10)  # 10 snapshots


def test_the_longest_pass_comes_first(tmp_path: Path) -> None:
    grid = "[[sweep.grid]]\nstop.horizon_s = [1, 5, 3]\n"
    tasks = [Task(one, tmp_path / "x.h5") for one in experiments(plan_of(BASE + grid))]
    assert [each.tasks[0].experiment.stop.horizon_s for each in group_passes(tasks)] == [5, 3, 1]


def test_errors_of_writing_are_distinguished_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = experiments(plan_of(BASE))
    attempted = Pass((Task(one, tmp_path / "a.h5"),))
    around = cast(Any, None)
    for error, hopeless in ((WriteFailure("full"), True), (RunFailure("too many"), False), (ValueError("no"), False)):
        monkeypatch.setattr("areabench.sweeps.pool.simulate_together", Mock(side_effect=error))
        outcome = _attempt(attempted, around)
        assert (outcome.error, outcome.is_fatal) == (f"{type(error).__name__}: {error}", hopeless)


def test_a_terminal_that_closes_is_an_interrupt_but_not_under_nohup() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.exit_code == 129
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.number == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_number_of_thousands_of_digits_is_refused_in_one_line() -> None:
    huge = f"0x{'f' * 5000}"
    assert "seed: a number of thousands of digits is out of range" in refusal(BASE.replace("7", huge))
    plan = plan_of(f"{BASE}[[sweep.grid]]\nseed = [1, {huge}, {huge}0]\n")
    assert [member.experiment is None for member in plan.members] == [False, True, True]
    assert huge in plan.file.text()
    assert "is not a list; write [0xfff" in refusal(f"{BASE}[[sweep.grid]]\nseed = {huge}\n")


@pytest.mark.parametrize(
    "content", [b"name,why\na.h5,no\n", b"file,reason,crc32\na.h5,\xff,0\n", b"", b"file,reason,crc32\na.h5\n"]
)
def test_a_damaged_list_of_failures_is_reported_in_one_line(content: bytes) -> None:
    written(stored_text(plan_of(BASE), "simulator", Path()), "sweep.toml")
    Path("failures.csv").write_bytes(content)
    with pytest.raises(RunFileError, match="failures.csv: is not a list of failures: .*; remove it or run the sweep"):
        open_sweep(".")


@pytest.mark.parametrize(("platform", "expected"), [("linux", 2048), ("darwin", 2)])
def test_memory_is_reported_in_bytes(platform: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.host.sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr("areabench.host.resource.getrusage", lambda who: SimpleNamespace(ru_maxrss=2))
    assert peak_bytes(resource.RUSAGE_SELF) == expected


def test_the_progress_line() -> None:
    progress = SweepProgress(10, 100.0, Style.NONE)
    assert progress.words(0.0) == "0/10 runs"
    progress.add(4, 1, 25.0)
    assert progress.words(50.0) == "5/10 runs  0.1/s  2 min 30 s left  1 failed"
    assert [duration(seconds) for seconds in (0.4, 59, 61, 7500)] == ["0 s", "59 s", "1 min 1 s", "2 h 5 min"]
