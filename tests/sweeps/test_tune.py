"""Tuning as a part of a sweep: what is tried, the choice, and the runs that are shown; most of it by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.support.results import PAPER, made

import areabench
from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import ConfigError, RunFileError
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.results.grouping import comparisons_of
from areabench.results.retention import named_rule
from areabench.results.table import table_columns
from areabench.sweeps.choose import choose_settings, edges, score_of, tuning_notes
from areabench.sweeps.file import SweepFile, read_sweep_file
from areabench.sweeps.plan import candidates_of, expand, load_sweep
from areabench.sweeps.read import Result, open_sweep
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


def sweep_file(folder: Path, tune: str = TUNE) -> Path:
    path = folder / "tuned.toml"
    path.write_text(BASE + tune)
    return path


def read(folder: Path, tune: str = TUNE) -> SweepFile:
    return read_sweep_file(sweep_file(folder, tune))


def tried(folder: Path, search: str, keys: str, budget: int = 4) -> list[list[tuple[object, ...]]]:
    """The values that are tried of AREA and of FedBuff."""
    file = read(folder, f'[tune]\nbudget = {budget}\nsearch = "{search}"\n[tune.keys]\n{keys}\n')
    return [[tuple(value for _, value in point) for point in group.points] for group in candidates_of(file)]


# ---------------------------------------------------------------------------------------------------- what is tried


def test_a_grid_is_the_product_of_the_keys_that_a_method_has(tmp_path: Path) -> None:
    area, fedbuff = tried(tmp_path, "grid", "method.step_size = [0.1, 1.0]\nmethod.server_step_size = [0.5, 2.0]")
    assert area == [(0.1,), (1.0,)]
    assert fedbuff == [(0.1, 0.5), (0.1, 2.0), (1.0, 0.5), (1.0, 2.0)]


def test_a_grid_divides_ranges_within_the_budget(tmp_path: Path) -> None:
    span = "{ from = 0.01, to = 10.0 }"
    area, fedbuff = tried(tmp_path, "grid", f"method.step_size = {span}\nmethod.server_step_size = {span}")
    assert area == [(0.01,), (0.1,), (1.0,), (10.0,)]
    assert fedbuff == [(0.01, 0.01), (0.01, 10.0), (10.0, 0.01), (10.0, 10.0)]


def test_quasi_random_settings_are_halton_s(tmp_path: Path) -> None:
    keys = "method.step_size = { from = 0.0, to = 1.0 }\nmethod.server_step_size = { from = 0.0, to = 1.0 }"
    area, fedbuff = tried(tmp_path, "quasi-random", keys)
    assert area == [(0.5,), (0.25,), (0.75,), (0.125,)]
    assert fedbuff == [(0.5, 0.3333), (0.25, 0.6667), (0.75, 0.1111), (0.125, 0.4444)]


def test_random_settings_are_as_many_for_each_method_and_the_same_every_time(tmp_path: Path) -> None:
    keys = "method.step_size = { from = 0.1, to = 1.0 }\nmethod.server_step_size = [1.0, 2.0]"
    first, again = (tried(tmp_path, "random", keys, 9) for _ in range(2))
    assert first == again
    assert [len(points) for points in first] == [9, 9]
    assert all(0.1 <= float(str(point[0])) <= 1.0 for points in first for point in points)


def test_whole_numbers_are_rounded_and_tried_once(tmp_path: Path) -> None:
    area, _ = tried(tmp_path, "grid", 'aggregation.updates = { from = 1, to = 3, scale = "linear" }', 9)
    assert area == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ("[tune]\nbudget = 2\n[tune.keys]\nmethod.stepsize = [1.0]", "stepsize"),
        ("[tune]\nbudget = 2\n[tune.keys]\nclients.count = [1]", "tuned are keys of method and aggregation"),
        ("[tune]\nbudget = 2", "names nothing to tune"),
        ("[tune]\n[tune.keys]\nmethod.step_size = [1.0]", "budget: is missing"),
        ("[tune]\nbudget = 1\n[tune.keys]\nmethod.step_size = [1.0, 2.0]", "less than the 2 settings"),
        ("[tune]\nbudget = 2\nseed = 2\n[tune.keys]\nmethod.step_size = [1.0]", "share seed 2"),
        ('[tune]\nbudget = 2\n[tune.keys]\nmethod.step_size = { from = 0, to = 1, scale = "log" }', "no range"),
        (
            '[tune]\nbudget = 2\nmetric = "speed"\n[tune.keys]\nmethod.step_size = [1.0]',
            "allowed: accuracy, loss, time",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, tune: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, tune)


def test_a_tuned_key_cannot_be_in_a_grid(tmp_path: Path) -> None:
    grid = "\n[[sweep.grid]]\nmethod.step_size = [1.0]\n"
    with pytest.raises(ConfigError, match="method.step_size is also in a grid"):
        read(tmp_path, grid + TUNE)


def test_the_stored_text_reads_as_the_same_sweep(tmp_path: Path) -> None:
    tune = TUNE.replace("[0.5, 1.0]", "{ from = 0.5, to = 1.0 }").replace("budget = 4", 'budget = 4\nsearch = "random"')
    file = read(tmp_path, tune)
    again = tmp_path / "again.toml"
    again.write_text(file.text())
    assert read_sweep_file(again).tune == file.tune
    assert read_sweep_file(again).text() == file.text()


# ---------------------------------------------------------------------------------------------------- the choice


def trial(accuracy: float, reached_s: float = math.inf) -> Result:
    accuracies = [90.0 if time_s >= reached_s else 10.0 for time_s in (0.0, 5.0)] + [accuracy]
    return made(PAPER, [0.0, 5.0, 10.0], accuracies, [4.0, 2.0, 1.0 - accuracy / 100])


def test_by_time_a_setting_that_more_trials_reach_the_target_with_is_better() -> None:
    often, fast = [trial(85.0), trial(85.0)], [trial(85.0, 0.0), trial(70.0)]
    assert score_of(often, "time", 80.0) < score_of(fast, "time", 80.0)
    assert score_of(fast, "time", 60.0) < score_of(often, "time", 60.0)


def diverges(size: float, seed: int, among: tuple[float, ...]) -> State:
    """Of the trials with these step sizes, that of the first seed diverges."""
    return State.DIVERGED if seed == 3 and size in among else State.DONE


def choose_by_time(folder: Path, among: tuple[float, ...]) -> tuple[set[float], tuple[str, ...]]:
    """The step sizes that are chosen, and what is said; with 0.1 all trials reach 80 % at 1 s, with 0.05 at 2 s."""
    keys = "[tune.keys]\nmethod.step_size = [0.05, 0.1]"
    file = read(folder, f'[tune]\nbudget = 2\ntrials = 2\nmetric = "time"\n{keys}\n')
    results = {}
    for member in expand(file):
        assert member.experiment is not None
        assert isinstance(member.experiment.method, Area | FedBuff)
        size, seed = member.experiment.method.step_size, member.experiment.seed
        accuracies = [10.0, 90.0 if size == 0.1 else 10.0, 90.0]
        state = diverges(size, seed, among)
        results[member.file] = made(member.experiment, [0.0, 1.0, 2.0], accuracies, [4.0, 2.0, 1.0], state)
    choice = choose_settings(file, results)
    sizes = {one.experiment.method.step_size for one in choice.tests(file) if one.experiment is not None}
    return sizes, choice.notes


def test_a_setting_with_one_diverged_trial_is_out_even_if_it_is_the_fastest(tmp_path: Path) -> None:
    assert choose_by_time(tmp_path, ())[0] == {0.1}
    assert choose_by_time(tmp_path, (0.1,))[0] == {0.05}


def test_where_every_setting_has_a_diverged_trial_nothing_is_chosen(tmp_path: Path) -> None:
    sizes, (note,) = choose_by_time(tmp_path, (0.05, 0.1))
    assert sizes == set()
    assert note.endswith("no setting that was tried is without a diverged or failed trial")


def test_the_edge_is_the_smallest_or_largest_number_that_was_tried() -> None:
    points = [(("a", size), ("b", "word")) for size in (1.0, 2.0, 3.0)]
    assert edges(points, points[1]) == []
    assert edges(points, points[2]) == [
        "the best a = 3 is at the edge of the grid (1 to 3); a better one may lie beyond it"
    ]
    assert edges(points[:1], points[0]) == []


def test_a_tuned_sweep_chooses_on_some_seeds_and_shows_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = sweep_file(tmp_path)
    assert len(load_sweep(path).members) == 2 * 2 + 4 * 2  # AREA has one of the keys
    assert main(["sweep", str(path), "--jobs", "1"]) == 0
    assert "12 runs: 12 done now" in (said := capsys.readouterr().out)
    assert "4 runs: 4 done now" in said
    sweep = open_sweep("runs/tuned")
    assert sweep.tuning is not None
    assert {result.experiment.seed for result in sweep.tuning.results} == {3, 4}
    assert sorted((one.experiment.method.name, one.experiment.seed) for one in sweep.results) == [
        ("area", 1), ("area", 2), ("fedbuff", 1), ("fedbuff", 2),
    ]  # fmt: skip
    by_size: dict[float, list[float]] = {}
    for one in sweep.tuning.results:
        if isinstance(one.experiment.method, Area):
            by_size.setdefault(one.experiment.method.step_size, []).append(one.final_loss)
    best = min(by_size, key=lambda size: sum(by_size[size]))
    assert {one.experiment.method.step_size for one in sweep.results if one.experiment.method.name == "area"} == {best}
    (table,) = comparisons_of(sweep, named_rule("all"))
    assert [one.label for one in table.methods] == ["AREA", "FedBuff"]
    text = as_text(plain_sheet(table))
    assert "server_step_size = " in text
    assert "edge of the grid" in text
    assert "2 trials, seeds 1, 2" in text
    assert main(["sweep", str(path), "--jobs", "1"]) == 0
    assert "0 done now, 4 done before" in capsys.readouterr().out
    assert main(["table", "runs/tuned", "--keep", "all"]) == 2
    exported = table_columns(sweep)
    assert (exported["method"], exported["kept_by"]) == (["AREA", "FedBuff"], ["tuned", "tuned"])
    assert [str(words).startswith("server_step_size = ") for words in exported["tuned"]] == [False, True]


def test_a_setting_that_is_no_experiment_is_out_and_the_others_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = sweep_file(tmp_path, TUNE.replace("[0.05, 0.1]", "[-1.0, 0.1]"))
    assert main(["sweep", str(path), "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "runs/tuned, tuning: 12 runs: 6 done now, 0 done before, 0 of them diverged, 6 failed" in said
    assert "runs/tuned, test: 4 runs: 4 done now" in said
    assert {one.experiment.method.step_size for one in open_sweep("runs/tuned").results} == {0.1}


def test_a_sweep_from_python_is_tuned_over_dotted_keys() -> None:
    sections = {"clients": {"count": 2}, "problem": "quadratic", "stop": {"iterations": 20}}
    grid, keys = {"method.name": ["area", "fedbuff"]}, {"method.step_size": (0.05, 0.1)}
    tune = {"budget": 2, "trials": 1, "metric": "loss", "keys": keys}
    sweep = areabench.sweep(sections, grid=grid, trials=2, tune=tune, jobs=1)
    assert sweep.tuning is not None
    assert (len(sweep.tuning.results), len(sweep.results), sweep.tuned_keys) == (4, 4, ("method.step_size",))


def test_a_note_that_holds_for_several_is_said_once() -> None:
    sections = {"clients": {"count": 2}, "method": "area", "problem": "quadratic", "stop": {"iterations": 20}}
    rates = [{"name": "uniform", "rate": rate} for rate in (1.0, 2.0)]
    tune = {"budget": 2, "trials": 1, "metric": "loss", "keys": {"method.step_size": [0.001, 0.1]}}
    sweep = areabench.sweep(sections, grid={"rates": rates}, tune=tune, jobs=1)
    assert tuning_notes(sweep)[1:] == [
        "AREA, uniform (λ = 1); AREA, uniform (λ = 2): the best method.step_size = 0.1 is at the edge of the grid "
        "(0.001 to 0.1); a better one may lie beyond it"
    ]


def test_shares_of_a_tuned_sweep_make_their_parts_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", str(sweep_file(tmp_path)), "--jobs", "1", "--share"]
    told = "the test runs begin when all tuning runs are done; every share, started again, continues then"
    assert main([*words, "1/2"]) == 0
    assert (said := capsys.readouterr().out).startswith("runs/tuned, tuning: 6 runs: 6 done now")
    assert told in said
    assert main(["table", "runs/tuned"]) == main(["figures", "runs/tuned"]) == 2
    assert "6 tuning runs are missing or have failed, so nothing is chosen yet" in capsys.readouterr().err
    assert main([*words, "2/2", "--dry-run"]) == 0
    assert "then 2 runs of what they choose\n" in capsys.readouterr().out
    assert main([*words, "2/2"]) == 0  # the last of the tuning runs
    assert "runs/tuned, test: 2 runs: 2 done now" in (said := capsys.readouterr().out)
    assert told not in said
    assert main([*words, "2/2", "--dry-run"]) == 0
    assert "then 2 runs of what they chose: 2 done, 0 pending\n" in capsys.readouterr().out
    assert (len(open_sweep("runs/tuned").results), len(open_sweep("runs/tuned").missing)) == (2, 2)
    assert main([*words, "1/2"]) == 0
    assert "runs/tuned, test: 2 runs: 2 done now" in capsys.readouterr().out
    assert (len(open_sweep("runs/tuned").results), open_sweep("runs/tuned").missing) == (4, ())
    assert (
        main(["job", str(sweep_file(tmp_path)), "--scheduler", "slurm", "--transport", "simulator", "--array", "2"])
        == 0
    )
    printed = capsys.readouterr()
    assert "16 runs" in printed.out
    assert "is submitted twice" in printed.err


@pytest.mark.parametrize("metric", ["accuracy", "time"])
def test_a_metric_that_no_run_will_have_is_refused_before_them(metric: str, tmp_path: Path) -> None:
    path = sweep_file(tmp_path, TUNE.replace('"loss"', f'"{metric}"'))
    with pytest.raises(ConfigError, match="tune.metric: the problem quadratic has no accuracy to choose by; write"):
        load_sweep(path)


def test_the_choice_is_made_once_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(sweep_file(tmp_path)), "--jobs", "1"]) == 0
    first = open_sweep("runs/tuned")
    assert first.tuning is not None
    for one in first.tuning.results:
        one.path.unlink()
    again = open_sweep("runs/tuned")
    assert again.tuning is not None
    assert again.tuning.choice == first.tuning.choice
    assert [one.path for one in again.results] == [one.path for one in first.results]


def test_a_choice_of_other_settings_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(sweep_file(tmp_path)), "--jobs", "1"]) == 0
    longer = str(
        sweep_file(tmp_path, TUNE.replace("[0.5, 1.0]", "[0.5, 1.0, 1.5]").replace("budget = 4", "budget = 6"))
    )
    assert main(["sweep", longer, "--dry-run"]) == 0
    assert "4 pending" in (said := capsys.readouterr().out)
    assert "of what they choose\n" in said


def test_without_all_tuning_runs_nothing_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(sweep_file(tmp_path)), "--jobs", "1"]) == 0
    sweep = open_sweep("runs/tuned")
    assert sweep.tuning is not None
    sweep.tuning.results[0].path.unlink()
    Path("runs/tuned/chosen.toml").unlink()
    again = open_sweep("runs/tuned")
    assert again.tuning is not None
    assert (again.results, again.tuning.choice, len(again.missing)) == ((), None, 1)


def test_a_changed_choice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(sweep_file(tmp_path)), "--jobs", "1"]) == 0
    path = Path("runs/tuned/chosen.toml")
    path.write_text(path.read_text().replace("method.step_size", "method.step_siz"))
    with pytest.raises(RunFileError, match="is damaged"):
        open_sweep("runs/tuned")
