"""Tuning as a part of a sweep: what is tried, the choice, and the runs that are shown; most of it by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.support.answers import answer, complaint
from tests.support.results import PAPER, made
from tests.sweeps.conftest import sweep, written

import areabench
from areabench.engine.events import State
from areabench.errors import ConfigError, RunFileError
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.results.grouping import comparisons_of
from areabench.results.retention import named_rule
from areabench.results.table import table_columns
from areabench.sweeps.choose import choose_settings, edges, score_of, tuning_notes
from areabench.sweeps.file import SweepFile, read_sweep_file
from areabench.sweeps.plan import SweepPlan, candidates_of, expand, load_sweep
from areabench.sweeps.read import Sweep, Tuning, open_sweep
from areabench.sweeps.result import Result
from areabench.views.tables.forms import as_text
from areabench.views.tables.sheets import plain_sheet

BASE = """
seed = 1
[clients]
count = 3
[method]
name = "area"
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
dimension = 2
[record]
events = false
[sweep]
trials = 2
[[sweep.grid]]
method.name = ["area", "fedbuff"]
"""
TUNE = """
[tune]
budget = 4
trials = 2
metric = "loss"
[tune.keys]
method.step_size = [0.05, 0.1]
method.server_step_size = [0.5, 1.0]
"""


def read(tune: str = TUNE) -> SweepFile:
    return read_sweep_file(written(BASE + tune))


def tried(search: str, keys: str, budget: int = 4) -> list[list[tuple[object, ...]]]:
    """The values that are tried of AREA and of FedBuff."""
    file = read(f'[tune]\nbudget = {budget}\nsearch = "{search}"\n[tune.keys]\n{keys}\n')
    return [[tuple(value for _, value in point) for point in group.points] for group in candidates_of(file)]


# ---------------------------------------------------------------------------------------------------- what is tried

DECADES = "{ from = 0.01, to = 10.0 }"
SHARES = "{ from = 0.0, to = 1.0 }"


@pytest.mark.parametrize(
    ("search", "step_size", "server_step_size", "area", "fedbuff"),
    [
        # the product of the keys that a method has
        (
            "grid", "[0.1, 1.0]", "[0.5, 2.0]",
            [(0.1,), (1.0,)], [(0.1, 0.5), (0.1, 2.0), (1.0, 0.5), (1.0, 2.0)],
        ),
        # ranges divided within the budget
        (
            "grid", DECADES, DECADES,
            [(0.01,), (0.1,), (1.0,), (10.0,)], [(0.01, 0.01), (0.01, 10.0), (10.0, 0.01), (10.0, 10.0)],
        ),
        # Halton's points
        (
            "quasi-random", SHARES, SHARES,
            [(0.5,), (0.25,), (0.75,), (0.125,)], [(0.5, 0.3333), (0.25, 0.6667), (0.75, 0.1111), (0.125, 0.4444)],
        ),
    ],
)  # fmt: skip
def test_settings_by_hand(search: str, step_size: str, server_step_size: str, area: object, fedbuff: object) -> None:
    keys = f"method.step_size = {step_size}\nmethod.server_step_size = {server_step_size}"
    assert tried(search, keys) == [area, fedbuff]


def test_random_settings_are_as_many_for_each_method_and_the_same_every_time() -> None:
    keys = "method.step_size = { from = 0.1, to = 1.0 }\nmethod.server_step_size = [1.0, 2.0]"
    first, again = (tried("random", keys, 9) for _ in range(2))
    assert first == again
    assert [len(points) for points in first] == [9, 9]
    assert all(0.1 <= float(str(point[0])) <= 1.0 for points in first for point in points)


def test_whole_numbers_are_rounded_and_tried_once() -> None:
    area, _ = tried("grid", 'aggregation.updates = { from = 1, to = 3, scale = "linear" }', 9)
    assert area == [(1,), (2,), (3,)]


ONE = "[tune.keys]\nmethod.step_size = [1.0]"


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ("budget = 2\n[tune.keys]\nmethod.stepsize = [1.0]", "stepsize"),
        ("budget = 2\n[tune.keys]\nclients.count = [1]", "tuned are keys of method and aggregation"),
        ("budget = 2", "names nothing to tune"),
        (ONE, "budget: is missing"),
        ("budget = 1\n[tune.keys]\nmethod.step_size = [1.0, 2.0]", "less than the 2 settings"),
        (f"budget = 2\nseed = 2\n{ONE}", "share seed 2"),
        (f"budget = 2\nseed = 4294967295\n{ONE}", "go beyond 4294967295"),
        ('budget = 2\n[tune.keys]\nmethod.step_size = { from = 0, to = 1, scale = "log" }', "no range"),
        (f'budget = 2\nmetric = "speed"\n{ONE}', "allowed: accuracy, loss, time"),
        (f"[[sweep.grid]]\nmethod.step_size = [1.0]\n{TUNE}", "method.step_size is also in a grid"),
    ],
)
def test_mistakes_are_named(tune: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tune if "[tune]" in tune else f"[tune]\n{tune}")


def test_the_stored_text_reads_as_the_same_sweep() -> None:
    tune = TUNE.replace("[0.5, 1.0]", "{ from = 0.5, to = 1.0 }").replace("budget = 4", 'budget = 4\nsearch = "random"')
    file = read(tune)
    again = read_sweep_file(written(file.text(), "again.toml"))
    assert (again.tune, again.text()) == (file.tune, file.text())


# ---------------------------------------------------------------------------------------------------- the choice


def trial(accuracy: float, reached_s: float = math.inf) -> Result:
    accuracies = [90.0 if time_s >= reached_s else 10.0 for time_s in (0.0, 5.0)] + [accuracy]
    return made(PAPER, [0.0, 5.0, 10.0], accuracies, [4.0, 2.0, 1.0 - accuracy / 100])


def test_by_time_a_setting_that_more_trials_reach_the_target_with_is_better() -> None:
    often = [trial(85.0), trial(85.0)]
    fast = [trial(85.0, 0.0), trial(70.0)]
    assert score_of(often, "time", 80.0) < score_of(fast, "time", 80.0)
    assert score_of(fast, "time", 60.0) < score_of(often, "time", 60.0)


def choose_by_time(among: tuple[float, ...]) -> tuple[set[float], tuple[str, ...]]:
    """The step sizes that are chosen, and what is said; with 0.1 all trials reach 80 % at 1 s, with 0.05 at 2 s."""
    keys = "[tune.keys]\nmethod.step_size = [0.05, 0.1]"
    file = read(f'[tune]\nbudget = 2\ntrials = 2\nmetric = "time"\n{keys}\n')
    results = {}
    for member in expand(file):
        assert member.experiment is not None
        assert isinstance(member.experiment.method, Area | FedBuff)
        size = member.experiment.method.step_size
        seed = member.experiment.seed
        accuracies = [10.0, 90.0 if size == 0.1 else 10.0, 90.0]
        # of the trials with these step sizes, that of the first seed diverges
        state = State.DIVERGED if seed == 3 and size in among else State.DONE
        results[member.file] = made(member.experiment, [0.0, 1.0, 2.0], accuracies, [4.0, 2.0, 1.0], state)
    choice = choose_settings(file, results)
    sizes = {
        one.experiment.method.step_size
        for one in choice.tested(SweepPlan("tuned", file, ())).members
        if one.experiment is not None
    }
    return sizes, choice.notes


def test_a_setting_with_one_diverged_trial_is_out_even_if_it_is_the_fastest() -> None:
    assert choose_by_time(())[0] == {0.1}
    assert choose_by_time((0.1,))[0] == {0.05}
    sizes, (note,) = choose_by_time((0.05, 0.1))
    assert sizes == set()
    assert note.endswith("no setting that was tried is without a diverged or failed trial")


def test_the_edge_is_the_smallest_or_largest_number_that_was_tried() -> None:
    points = [(("a", size), ("b", "word")) for size in (1.0, 2.0, 3.0)]
    assert edges(points, points[1]) == []
    assert edges(points, points[2]) == [
        "the best a = 3 is at the edge of the grid (1 to 3); a better one may lie beyond it"
    ]
    assert edges(points[:1], points[0]) == []


def tuning_of(found: Sweep) -> Tuning:
    assert found.tuning is not None
    return found.tuning


def test_a_tuned_sweep_chooses_on_some_seeds_and_shows_others() -> None:
    path = written(BASE + TUNE)
    assert len(load_sweep(path).members) == 2 * 2 + 4 * 2  # AREA has one of the keys
    said = sweep(path).out
    assert "12 runs: 12 done now" in said
    assert "4 runs: 4 done now" in said
    found = open_sweep("runs/try")
    tuned = tuning_of(found).results
    assert {result.experiment.seed for result in tuned} == {3, 4}
    assert sorted((one.experiment.method.name, one.experiment.seed) for one in found.results) == [
        ("area", 1), ("area", 2), ("fedbuff", 1), ("fedbuff", 2),
    ]  # fmt: skip
    by_size: dict[float, list[float]] = {}
    for one in tuned:
        if isinstance(one.experiment.method, Area):
            by_size.setdefault(one.experiment.method.step_size, []).append(one.final_loss)
    best = min(by_size, key=lambda size: sum(by_size[size]))
    assert {one.experiment.method.step_size for one in found.results if one.experiment.method.name == "area"} == {best}
    (table,) = comparisons_of(found, named_rule("all"))
    assert [one.label for one in table.methods] == ["AREA", "FedBuff"]
    text = as_text(plain_sheet(table))
    for words in ("server_step_size = ", "edge of the grid", "2 trials, seeds 1, 2"):
        assert words in text
    answer("table runs/try --keep all", code=2)
    exported = table_columns(found)
    assert (exported["method"], exported["kept_by"]) == (["AREA", "FedBuff"], ["tuned", "tuned"])
    assert [str(words).startswith("server_step_size = ") for words in exported["tuned"]] == [False, True]
    # the choice is made once and stays, without the runs that it was made on
    assert "0 done now, 4 done before" in sweep(path).out
    for one in tuned:
        one.path.unlink()
    again = open_sweep("runs/try")
    assert tuning_of(again).choice == tuning_of(found).choice
    assert [one.path for one in again.results] == [one.path for one in found.results]


def test_a_setting_that_is_no_experiment_is_out_and_the_others_are_tested() -> None:
    said = sweep(BASE + TUNE.replace("[0.05, 0.1]", "[-1.0, 0.1]"), code=1).out
    assert "runs/try, tuning: 12 runs: 6 done now, 0 done before, 0 of them diverged, 6 failed" in said
    assert "runs/try, test: 4 runs: 4 done now" in said
    assert {one.experiment.method.step_size for one in open_sweep("runs/try").results} == {0.1}


SECTIONS = {"clients": {"count": 2}, "method": "area", "problem": "quadratic", "stop": {"iterations": 20}}


def test_a_sweep_from_python_is_tuned_over_dotted_keys_and_a_note_for_several_is_said_once() -> None:
    rates = [{"name": "uniform", "rate": rate} for rate in (1.0, 2.0)]
    tune = {"budget": 2, "trials": 1, "metric": "loss", "keys": {"method.step_size": (0.001, 0.1)}}
    found = areabench.sweep(SECTIONS, grid={"rates": rates}, trials=2, tune=tune, jobs=1)
    assert (len(tuning_of(found).results), len(found.results), found.tuned_keys) == (4, 4, ("method.step_size",))
    assert tuning_notes(found)[1:] == [
        "AREA, uniform (λ = 1); AREA, uniform (λ = 2): the best method.step_size = 0.1 is at the edge of the grid "
        "(0.001 to 0.1); a better one may lie beyond it"
    ]


def test_shares_of_a_tuned_sweep_make_their_parts_of_both() -> None:
    told = "the test runs begin when all tuning runs are done; every share, started again, continues then"
    text = BASE + TUNE
    said = sweep(text, "--share", "1/2").out
    assert said.startswith("runs/try, tuning: 6 runs: 6 done now")
    assert told in said
    for command in ("table", "figures"):
        refused = complaint(f"{command} runs/try")
        assert "6 tuning runs are missing or have failed, so nothing is chosen yet" in refused
    assert "then 2 runs of what they choose\n" in sweep(text, "--share", "2/2", "--dry-run").out
    said = sweep(text, "--share", "2/2").out  # the last of the tuning runs
    assert "runs/try, test: 2 runs: 2 done now" in said
    assert told not in said
    assert "then 2 runs of what they chose: 2 done, 0 pending\n" in sweep(text, "--share", "2/2", "--dry-run").out
    assert (len(open_sweep("runs/try").results), len(open_sweep("runs/try").missing)) == (2, 2)
    assert "runs/try, test: 2 runs: 2 done now" in sweep(text, "--share", "1/2").out
    assert (len(open_sweep("runs/try").results), open_sweep("runs/try").missing) == (4, ())
    printed = answer("job try.toml --scheduler slurm --transport simulator --array 2")
    assert "16 runs" in printed.out
    assert "is submitted twice" in printed.err


@pytest.mark.parametrize("metric", ["accuracy", "time"])
def test_a_metric_that_no_run_will_have_is_refused_before_them(metric: str) -> None:
    with pytest.raises(ConfigError, match="tune.metric: the problem quadratic has no accuracy to choose by; write"):
        load_sweep(written(BASE + TUNE.replace('"loss"', f'"{metric}"')))


def test_a_choice_of_other_settings_or_a_changed_one_does_not_count() -> None:
    sweep(BASE + TUNE)
    longer = TUNE.replace("[0.5, 1.0]", "[0.5, 1.0, 1.5]").replace("budget = 4", "budget = 6")
    said = sweep(BASE + longer, "--dry-run").out
    assert "4 pending" in said
    assert "of what they choose\n" in said
    path = Path("runs/try/chosen.toml")
    path.write_text(path.read_text().replace("method.step_size", "method.step_siz"))
    with pytest.raises(RunFileError, match="is damaged"):
        open_sweep("runs/try")


def test_without_all_tuning_runs_nothing_is_chosen() -> None:
    sweep(BASE + TUNE)
    tuning_of(open_sweep("runs/try")).results[0].path.unlink()
    Path("runs/try/chosen.toml").unlink()
    again = open_sweep("runs/try")
    assert (again.results, tuning_of(again).choice, len(again.missing)) == ((), None, 1)
