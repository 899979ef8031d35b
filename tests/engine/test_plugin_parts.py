"""Checks of the user's own parts before a run: each mistake is one line; and local problems in both forms."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.engine.test_plugins import elsewhere, refused
from tests.methods.table import inputs
from tests.support.own_parts import write
from tests.support.texts import quadratic

from areabench.arrays import Vector
from areabench.cli.main import main
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFailure
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import load_experiment, parse_experiment
from areabench.methods.as_fedavg import as_fedavg
from areabench.methods.own import OwnMethod, _wrong_state, try_method
from areabench.problems.own import OwnLocal, OwnProblem

__all__ = ["elsewhere"]  # pytest finds the fixture here

DRAWN = "def drawn(bowl):\n    bowl.point = np.random.standard_normal(2)\n    return bowl"
METHODS: list[tuple[dict[str, str], str]] = [
    ({"method": "None"}, "returned NoneType; let it return areabench.extend.Method"),
    ({"method": "1 / 0"}, "failed (ZeroDivisionError: division by zero at mine.py, line 23); correct it, or its"),
    ({"calls": "()"}, "start calls no client, so none would ever work; name clients in Step(state, calls)"),
    ({"calls": "(0, 2)"}, "start calls client 2; name clients from 0 to 1"),
    ({"calls": "[0, 1]"}, "start calls [0, 1]; give a tuple of clients, or of Call"),
    ({"report": "work.local"}, "report returned ndarray; let it return Report(payload, memory)"),
    ({"report": "Report(work.local[:1], None)"}, "report gave a payload that has the shape (1,), not (2,)"),
    ({"memory": "[1]"}, "remember gave list; remember an array, or None"),
    ({"after": "state.model"}, "aggregate returned a state that is ndarray, not a NamedTuple"),
    (
        {"after": "State(state.model.astype(np.float32))"},
        "aggregate returned a state that has a model that is float32, where the problem has float64",
    ),
    ({"fields": "table: dict = {}"}, "start returned a state that has a field table of type dict, which no checkpoint"),
    ({"fields": "both: tuple = (1, 0.5)"}, "has a field both of type tuple, which no checkpoint can hold"),
    (
        {"fields": "norm: float = None", "after": "State(state.model, norm=1.0)"},
        "has a field norm that was None at the start and is a number now; begin with a number",
    ),
    (
        {"aggregate": "state.model[0] = 1"},
        "failed in a dry run (ValueError: assignment destination is read-only at mine.py, line 21); correct it, or",
    ),
]  # fmt: skip
TAKES_STEPS = {"steps": ", steps=None"}
PROBLEMS: list[tuple[dict[str, str], str]] = [
    ({"problem": "None"}, "returned NoneType, which lacks dimension, dtype, start, local, evaluate"),
    ({"dtype": "np.dtype(np.int64)"}, "has the dtype dtype('int64'); take np.dtype(np.float32) or"),
    ({"dimension": "2.0"}, "has the dimension 2.0; give a whole number >= 1"),
    ({"start": "np.zeros(3)"}, "has a start() that has the shape (3,), not (2,)"),
    ({"start": "np.array([np.nan, 1.0])"}, "has a start() with entries that are not finite; start elsewhere"),
    ({"start": "np.random.default_rng().standard_normal(2)"}, "starts elsewhere each time; draw from stream(seed,"),
    ({"noise": "np.random.default_rng().standard_normal(2)"}, "gives another result for the same round of client 0"),
    ({"problem": "Bowl(np.random.randint(2**31))"}, "gives another first round of client 0 each time it is made; draw"),
    (
        {"dimension": "2; point = None", "start": "self.point", "problem": "drawn(Bowl(seed))\n\n" + DRAWN},
        "starts elsewhere each time it is made; draw from stream(seed, ...) only where it is made",
    ),
    ({"skip": "pass"}, "gives another second round after skip(1) than after a first one; let skip(rounds) draw"),
    (
        {**TAKES_STEPS, "skip": "self.generator.standard_normal((3 * rounds, 2))"},
        "gives another second round after skip(1) than after a first one; let skip(steps) draw what that number of loc",
    ),
    (
        {**TAKES_STEPS, "noise": "(steps == 1) + 0.1 * self.generator.standard_normal(2)"},
        "another round with steps = 1",
    ),
    ({**TAKES_STEPS, "gradient": "return model"}, "gives another third step after skip(2) than after two; let skip("),
    ({**TAKES_STEPS, "gradient": "return model[0]"}, "has a gradient() that returned what is float64, not an array"),
    ({"descend": "return model[0]"}, "has a descend() that returned what is float64, not an array"),
    ({"descend": "model += 1"}, "failed in a dry run (ValueError: output array is read-only at mine.py"),
    ({"metrics": "0.5"}, "has an evaluate() that returned float; return areabench.extend.Metrics with one entry per"),
    ({"metrics": "Metrics.of([0.5] * 2)"}, "evaluate() that returned train_loss of shape (2,) for 1 model; return are"),
    ({"metrics": "Metrics.of([0.5])"}, "has an evaluate() that returned train_loss of shape (1,) for 2 models; return"),
    (
        {"metrics": "Metrics.of([0.5 for _ in models]) if with_loss else {}['no loss']"},
        "has an evaluate() that failed in a dry run (KeyError: 'no loss' at mine.py, line 16); correct it, or its sett",
    ),
    (
        {"metrics": "models[0].sort()"},
        "has an evaluate() that failed in a dry run (ValueError: sort array is read-only",
    ),
]


def data_with(
    test_features: str = "features", test_labels: str = "labels", classes: str = "3", scale: str = "0.1"
) -> str:
    """The data set of the module, with something about it changed."""
    return f'Dataset("mine", features, labels, {test_features}, {test_labels}, {classes}, {scale})'


DATA: list[tuple[dict[str, str], str]] = [
    ({"data": "features"}, "returned ndarray; let it return areabench.extend.Dataset"),
    ({"features": "np.arange(12.0)"}, "gave train_features of shape (12,), not (samples, features)"),
    ({"labels": "np.arange(12.0)"}, "gave train_labels of type float64 and shape (12,) for 12 samples, not integers"),
    ({"labels": "np.arange(11) % 3"}, "gave train_labels of type int64 and shape (11,) for 12 samples, not integers"),
    ({"labels": "np.arange(12)"}, "gave train_labels from 0 to 11, not 0 to classes - 1 = 2"),
    ({"labels": "np.arange(12) % 3 - 1"}, "gave train_labels from -1 to 1, not 0 to classes - 1 = 2"),
    ({"data": data_with(test_labels="labels + 1")}, "gave test_labels from 1 to 3, not 0 to classes - 1 = 2"),
    ({"data": data_with(test_features="features[:0]")}, "gave test_features of shape (0, 2), not (samples, features)"),
    ({"data": data_with(test_features="features[:, :1]")}, "gave test_features of type uint8 and 1 columns"),
    ({"data": data_with(test_features="features / 0.0")}, "gave test_features of which 24 are not finite (NaN or inf"),
    ({"data": data_with(classes="2.5")}, "gave classes = 2.5; give the number of classes, a whole number >= 1"),
    ({"data": data_with(classes="0")}, "gave classes = 0; give the number of classes, a whole number >= 1"),
    ({"data": data_with(scale="'1'")}, "gave the scale '1'; give a finite number, such as 1.0"),
    ({"features": "np.random.randint(0, 256, (12, 2)).astype(np.uint8)"}, "gives other data each time; draw from a"),
    ({"labels": "np.random.permutation(np.arange(12) % 3)"}, "gives other data each time; draw from a generator"),
    ({"scale": "float('nan')"}, "gave the scale nan; give a finite number, such as 1.0"),
    (
        {"features": "1e15 * np.arange(24.0).reshape(12, 2)"},
        "has features up to 2.3e+16, which the package's problems allow up to 1e+15; scale them",
    ),
]
SPLITS: list[tuple[dict[str, str], str]] = [
    ({"parts": "None"}, "returned NoneType; let it return an array of row numbers per client"),
    ({"parts": "[np.arange(12)]"}, "returned parts for 1 of 2 clients; return one per client"),
    ({"parts": "[np.arange(12), []]"}, "gave client 1 no rows; give row numbers from 0 to 11"),
    ({"parts": "[[0.5], [1]]"}, "gave client 0 row numbers of type float64"),
    ({"parts": "[[0, 12], [1]]"}, "gave client 0 rows from 0 to 12; give row numbers from 0 to 11"),
    ({"parts": "[[0, 0], [1]]"}, "gave client 0 some row twice"),
    (
        {"parts": "(labels[clients + len(labels)] for client in range(clients))"},
        "failed (IndexError: index 14 is out of bounds for axis 0 with size 12 at mine.py, line 3); correct it, or",
    ),
    ({"parts": "np.array_split(np.random.default_rng().permutation(12), 2)"}, "gives other parts each time"),
]
DELAYS: list[tuple[dict[str, str], str]] = [
    ({"delay": "0.0"}, "gave 0.0 in round 0 of client 0; give a finite number of seconds above 0"),
    ({"delay": "float('inf')"}, "gave inf in round 0 of client 0; give a finite number of seconds above 0"),
    ({"delay": "'long'"}, "gave 'long' in round 0 of client 0; give a finite number of seconds above 0"),
    ({"before": "yield 0.1; return"}, "ended after 1 round of client 0; let it yield without end"),
    ({"delay": "random.random() + 0.01"}, "gives client 0 others each time; draw from its generator only"),
    ({"delay": "1 / (rate - rate)"}, "failed (ZeroDivisionError: float division by zero at mine.py, line 5)"),
]
CASES = [
    (section, changes, words)
    for section, cases in (
        ("method", METHODS), ("problem", PROBLEMS), ("data", DATA), ("split", SPLITS), ("delays", DELAYS)
    )
    for changes, words in cases
]  # fmt: skip


@pytest.mark.parametrize(("section", "changes", "words"), CASES, ids=lambda case: str(case)[:60])
def test_mistakes_are_reported_before_a_run(
    section: str, changes: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", section, **changes)
    message = refused(path, capsys)
    assert words in message
    assert message.startswith(f"{section}.name = 'mine:make'")


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64"])
def test_labels_of_any_width_and_float_features_are_taken(kind: str, tmp_path: Path) -> None:
    changes = {"features": "np.linspace(-1, 1, 24).reshape(12, 2)", "labels": f"(np.arange(12) % 3).astype('{kind}')"}
    experiment = load_experiment(write(tmp_path / "there", "data", **changes))
    data = build_scenario(experiment, tmp_path, [str(tmp_path / "there")]).data
    assert data is not None
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert data.train_labels.tolist() == [0, 1, 2] * 4
    assert not data.train_labels.flags.writeable


def test_own_data_may_have_numbers_to_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = {"labels": "np.linspace(-1, 1, 12)", "data": data_with(classes="0")}
    path = write(tmp_path / "there", "data", **targets)
    assert 'has numbers to predict, problem "logistic" takes classes; use problem "regression"' in refused(path, capsys)
    assert main(["simulate", str(path), "--set", "problem.name=regression", "-o", "run.h5"]) == 0


@pytest.mark.parametrize("section", ["method", "problem", "data", "split", "delays"])
def test_check_tries_every_own_part(section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", section)
    assert main(["check", str(path)]) == 0
    module = path.with_name("mine.py")
    text = module.read_text()
    forget("mine")
    module.write_text(text.replace("def make", "def other"))
    assert main(["check", str(path)]) == 2
    assert f"{section}.name" in capsys.readouterr().err
    forget("mine")
    module.write_text(text.partition("def make")[0] + "def make(**given):\n    raise KeyError('no')\n")
    assert main(["check", str(path)]) == 2
    assert "KeyError: 'no'" in capsys.readouterr().err
    assert not list(Path().glob("**/*.h5"))


def forget(name: str) -> None:
    """Let a module be imported again."""
    sys.modules.pop(name, None)
    importlib.invalidate_caches()


def test_features_of_any_type_are_for_a_user_problem(tmp_path: Path) -> None:
    write(tmp_path / "there", "data", features="np.arange(24.0).reshape(12, 2)")
    (tmp_path / "there" / "mine.py").rename(tmp_path / "there" / "mine_data.py")
    path = write(tmp_path / "there", "problem", parameters="data, parts")
    path.write_text(path.read_text() + '[data]\nname = "mine_data:make"\n[split]\nname = "iid"\n')
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0


class Inner(NamedTuple):
    """A part of a state that no checkpoint can hold."""

    table: object


class Outer(NamedTuple):
    """A state with a part."""

    model: np.ndarray
    inner: Inner


def test_a_state_within_a_state_is_looked_at() -> None:
    model = np.zeros(2)
    assert _wrong_state(Outer(model, Inner(1)), model, None) == ""
    said = "has a field table of type dict, which no checkpoint can hold (in inner)"
    assert _wrong_state(Outer(model, Inner({})), model, None) == said


CHANGED = "has a field table that was None at the start and is a number now; begin with a number"


class Bare(NamedTuple):
    """A state without a model."""

    table: object


def test_a_state_needs_a_model() -> None:
    assert _wrong_state(Bare(1), np.zeros(2), None) == "has no field `model`"


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        (
            Inner(None),
            "has a field table that was None at the start and is a number now; begin with a number (in inner)",
        ),
        (Inner(2), ""),
        (None, "has a field inner that was NoneType at the start; begin with a NamedTuple"),
    ],
)
def test_a_state_within_a_state_is_compared_with_what_it_was(before: Any, wrong: str) -> None:
    model = np.zeros(2)
    assert _wrong_state(Outer(model, Inner(1)), model, Outer(model, before)) == wrong


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (np.ones(1), r"attach gave what has the shape \(1,\), not \(2,\)"),
        (np.ones(2, np.float32), "attach gave what is float32, where"),
        (1.0, "attach gave float"),
    ],
)
def test_what_is_attached_keeps_its_shape_and_type(later: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = replace(as_fedavg(2), attach=lambda state: later if state == "later" else np.ones(2))
    monkeypatch.setattr(OwnMethod, "build", lambda *_: method)
    guarded = OwnMethod(name="mine:make", step_size=0.5).build_checked(inputs(2), np.zeros(2))
    assert guarded.attach is not None
    assert guarded.attach(None).shape == (2,)
    with pytest.raises(RunFailure, match=f"method.name = 'mine:make' {words}"):
        guarded.attach("later")


def test_a_method_may_call_a_single_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnMethod, "build", lambda *_: as_fedavg(1))
    try_method(OwnMethod(name="mine:make", step_size=0.1), inputs(1), np.zeros(2))


@pytest.mark.parametrize("named", [False, True])
def test_folders_are_looked_in_where_an_experiment_names_code(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[Sequence[str]]()
    monkeypatch.setattr("areabench.engine.scenario.modules_of", lambda _experiment: named)
    monkeypatch.setattr("areabench.engine.scenario.look_in", looked.append)
    build_scenario(parse_experiment(quadratic()), tmp_path, ["there"])
    assert looked == ([["there"]] if named else [])


def test_a_run_of_days_is_refused_by_the_rates_as_they_were_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, asked = parse_experiment(quadratic() + '[rates]\nname = "normal"\n'), list[tuple[float, str]]()

    def check(_experiment: Experiment, per_second: float, key: str) -> None:
        asked.append((per_second, key))

    monkeypatch.setattr("areabench.engine.scenario.check_updates", check)
    scenario = build_scenario(experiment, tmp_path)
    assert asked == [(scenario.rates.sum(), "rates")]


# ---------------------------------------------------------------------------------------------------- local problems

SETTINGS = OwnProblem(name="mod:fn")
START = np.array([8.0])


class Rounds:
    """A local problem that knows rounds of three steps only."""

    def __init__(self) -> None:
        self.skipped = list[int]()

    def descend(self, model: Vector, step_size: float) -> Vector:
        return model - 3 * step_size

    def gradient(self, model: Vector) -> Vector:
        return np.ones_like(model)

    def skip(self, rounds: int) -> None:
        self.skipped.append(rounds)


class Steps(Rounds):
    """A local problem that takes any number of steps; it has no gradient."""

    gradient = property()  # as if there were none

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        return model - (3 if steps is None else steps) * step_size


def own(local: Rounds) -> OwnLocal:
    """The problem as a client holds it."""
    return OwnLocal(SETTINGS, local, local_steps=3)


@pytest.mark.parametrize("local", [Rounds(), Steps()])
@pytest.mark.parametrize("steps", [None, 3])
def test_both_forms_make_whole_rounds(local: Rounds, steps: int | None) -> None:
    assert own(local).descend(START, 1.0, steps).tolist() == [5.0]


def test_rounds_are_skipped_by_their_steps() -> None:
    local = Rounds()
    own(local).skip(6)
    assert local.skipped == [2]


def test_steps_are_passed_on() -> None:
    local = Steps()
    assert own(local).descend(START, 1.0, 2).tolist() == [6.0]
    own(local).skip(4)
    assert local.skipped == [4]


def test_rounds_have_no_other_number_of_steps() -> None:
    line = (
        "problem.name = 'mod:fn' has a local problem whose descend() takes no `steps`, which this method needs; "
        "let it take `steps`"
    )
    local = own(Rounds())
    for attempt in (lambda: local.descend(START, 1.0, 2), lambda: local.skip(4), lambda: local.gradient(START)):
        with pytest.raises(RunFailure) as caught:
            attempt()
        assert str(caught.value) == line


def test_a_missing_gradient_is_named() -> None:
    with pytest.raises(RunFailure) as caught:
        own(Steps()).gradient(START)
    assert str(caught.value) == (
        "problem.name = 'mod:fn' has a local problem without gradient(), which this method needs; add gradient(model)"
    )
