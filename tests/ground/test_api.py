"""Runs from Python: experiments in every form, in memory and in files, with parts that are passed as objects."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.own_parts import METHOD, METHOD_DEFAULTS, PROBLEM, PROBLEM_DEFAULTS
from tests.support.texts import quadratic

import areabench
from areabench.errors import UserError
from areabench.extend import Dataset
from areabench.progress import NotebookBar
from areabench.settings.parse import to_toml

TEXT = quadratic("iterations = 12", step_size=0.1, dimension=2)
TINY: dict[str, Any] = tomllib.loads(TEXT)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def every_second(rate: float, generator: np.random.Generator) -> Iterator[float]:
    """Delays that need no generator."""
    while True:
        yield 1.0 / rate


def four_points() -> Dataset:
    features = np.array([[0], [0], [255], [255]], dtype=np.uint8)
    return Dataset("four", features, np.array([0, 0, 1, 1]), features, np.array([0, 0, 1, 1]), classes=2, scale=1 / 255)


# ---------------------------------------------------------------------------------------------------- experiments


@pytest.mark.parametrize("form", ["path", "text of a path", "toml", "dict", "experiment"])
def test_every_form_gives_the_same_experiment(form: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT, encoding="utf-8")
    made = areabench.read_experiment(TINY)
    source: Any = {"path": path, "text of a path": str(path), "toml": TEXT, "dict": TINY, "experiment": made}[form]
    found = areabench.read_experiment(source, seed=3)
    assert found == replace(made, seed=3)


def test_overrides_of_a_section_are_merged_and_another_name_replaces_it() -> None:
    kept = areabench.read_experiment(TINY, method={"step_size": np.float32(0.5)}, **{"stop.iterations": 20})
    assert (kept.method.name, kept.method.step_size, kept.stop.iterations) == ("area", 0.5, 20)
    with pytest.raises(UserError, match=r"experiment: method.step_size: is missing"):
        areabench.read_experiment(TINY, method="fedbuff")


def test_an_experiment_of_the_constructor_is_checked_and_completed() -> None:
    whole = areabench.read_experiment(TINY)
    parts = {name: getattr(whole, name) for name in ("name", "clients", "method", "problem", "stop")}
    wrong = areabench.Experiment(**{**parts, "clients": replace(whole.clients, count=0)})
    with pytest.raises(UserError, match=r"clients.count: 0 is out of range; allowed is a whole number >= 1"):
        areabench.simulate(wrong)
    assert areabench.read_experiment(areabench.Experiment(**parts)) == whole
    logistic = areabench.read_experiment(TINY, problem="logistic")  # with the data and split that are left out
    bare = replace(logistic, data=None, split=None)
    assert areabench.read_experiment(bare) == logistic


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: areabench.simulate({**TINY, "sweep": {"trials": 2}}),
            "sweep: this is a sweep, not one experiment",
        ),
        (lambda: areabench.simulate(TINY, checkpoint_s=-1), "checkpoint_s=-1: is not a time in seconds"),
        (
            lambda: areabench.launch(TINY, delays=lambda *_: iter([])),
            "'python:function': an object of this process",
        ),
        (lambda: areabench.simulate(TINY, output="there.h5"), "there.h5: exists"),
    ],
)
def test_what_is_refused(call: Callable[[], object], words: str) -> None:
    Path("there.h5").touch()
    with pytest.raises(UserError, match=words):
        call()


# ---------------------------------------------------------------------------------------------------- runs


def test_a_run_in_memory_leaves_no_file_and_is_the_run_of_a_file(tmp_path: Path) -> None:
    temporary = Path(os.environ["TMPDIR"])
    before = set(temporary.iterdir())
    with areabench.simulate(TINY) as run, areabench.simulate(TINY, output="tiny.h5") as stored:
        assert set(temporary.iterdir()) == before
        assert [path.name for path in tmp_path.iterdir()] == ["tiny.h5"]
        assert np.array_equal(run.models, stored.models)
        assert run.status == stored.status
        assert run.status.updates + run.status.server_steps == 12
        assert (str(run.path), stored.path) == ("in memory", Path("tiny.h5"))


def test_a_run_file_ends_in_h5_and_its_folder_is_made() -> None:
    with areabench.simulate(TINY, output="new/tiny") as run:
        assert run.path == Path("new/tiny.h5")
    assert Path("new/tiny.h5").is_file()


def test_a_file_is_overwritten_only_by_force() -> None:
    for seed in (0, 1):
        areabench.simulate(TINY, output="tiny.h5", force=True, seed=seed).close()


def test_a_sweep_over_a_grid_in_memory(tmp_path: Path) -> None:
    grid = {"method.name": ["area", "as-fedavg"], "method.step_size": [0.1]}
    sweep = areabench.sweep(TINY, grid=grid, trials=2, jobs=1)
    assert [(each.experiment.method.name, each.experiment.seed) for each in sweep.results] == [
        ("area", 0), ("area", 1), ("as-fedavg", 0), ("as-fedavg", 1)
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_a_sweep_in_a_folder_continues_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT, encoding="utf-8")
    areabench.sweep("tiny.toml", trials=1, output="runs", jobs=1)
    first = {path: path.stat().st_mtime_ns for path in Path("runs").glob("*.h5")}
    sweep = areabench.sweep("tiny.toml", trials=2, output="runs", jobs=1)
    assert (len(first), len(sweep.results)) == (1, 2)
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in first.items())


def test_a_script_without_a_guard_can_sweep(tmp_path: Path) -> None:
    """A process of the pool must not run the script again."""
    (tmp_path / "script.py").write_text(
        f"import areabench\nprint('once')\nprint(len(areabench.sweep({TINY!r}, trials=2, jobs=1).results))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "once\n2\n"


# ---------------------------------------------------------------------------------------------------- objects


def test_a_function_of_a_module_is_named_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_delays.py").write_text("def half(rate, generator):\n    while True:\n        yield 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("my_delays")
    experiment = areabench.read_experiment(TINY, delays=module.half)
    assert experiment.delays.name == "my_delays:half"
    assert experiment.module_folders == (str(tmp_path),)


def test_delays_passed_as_an_object_are_asked_for_by_a_replay(tmp_path: Path) -> None:
    def own(rate: float, generator: np.random.Generator) -> Iterator[float]:
        return every_second(rate, generator)

    areabench.simulate(TINY, output="tiny.h5", delays=own, rates={"name": "uniform", "rate": 2.0}).close()
    with areabench.open_run("tiny.h5") as run:
        assert run.experiment.delays.name == "python:own"
        assert set(run.events_array["drawn_delay_s"]) == {0.0, 0.5}  # a server step has none
        with pytest.raises(UserError, match=r"was made with 'python:own'.* areabench.replay\(RUN, method="):
            areabench.replay(run)
        again = areabench.replay(run, delays=own)
    assert (again.equal, again.events) == (True, 12)


def test_data_passed_as_an_object_and_a_split_beside_it() -> None:
    data = four_points()
    with areabench.simulate(TINY, problem="logistic", data=data, split="iid", output=None) as run:
        assert run.experiment.data.name == "python:Dataset"  # type: ignore[union-attr]
        assert run.clients_array["samples"].tolist() == [2, 2]
        assert areabench.replay(run, data=data).equal


def typed_in(text: str) -> Any:
    """The function `make` of a text, as if it had been typed into a notebook."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(text, namespace)
    return namespace["make"]


def test_a_method_as_a_function_with_settings_and_a_problem_as_itself() -> None:
    method, problem = typed_in(METHOD.format(**METHOD_DEFAULTS)), typed_in(PROBLEM.format(**PROBLEM_DEFAULTS))
    settings = {"name": method, "step_size": 0.1, "settings": {"gain": 0.5}}
    with areabench.simulate(TINY, method=settings, problem=problem(seed=1)) as run:
        assert (run.experiment.method.name, run.experiment.problem.name) == ("python:make", "python:Bowl")
        assert run.experiment.method.settings == {"gain": 0.5}  # type: ignore[attr-defined]
        assert areabench.replay(run, method=method, problem=problem(seed=1)).equal
        assert not areabench.replay(run, method=method, problem=problem(seed=2)).equal


def test_a_sweep_with_an_object_stays_in_this_process() -> None:
    calls = []

    def own(rate: float, generator: np.random.Generator) -> Iterator[float]:
        calls.append(os.getpid())
        return every_second(rate, generator)

    sweep = areabench.sweep(TINY, trials=2, delays=own)
    assert [each.status.updates > 0 for each in sweep.results] == [True, True]
    assert set(calls) == {os.getpid()}


def test_what_a_run_file_names_as_an_object_is_not_imported(tmp_path: Path) -> None:
    experiment = areabench.read_experiment(TINY, delays=lambda rate, generator: every_second(rate, generator))
    with pytest.raises(UserError, match=r"delays.name = 'python:function': is an object that Python code has passed"):
        areabench.simulate(to_toml(experiment))


# ---------------------------------------------------------------------------------------------------- notebooks


def test_a_line_in_a_notebook_has_a_bar_that_is_updated_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)

    def display(html: str, *, display_id: bool) -> SimpleNamespace:
        shown.append(html)
        return handle

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    show = NotebookBar()
    show(None, "")
    show(0.5, "area 1 < 2 s")
    show(None, "")
    assert shown == ['<code><progress value="0.500"></progress> area 1 &lt; 2 s</code>', ""]
