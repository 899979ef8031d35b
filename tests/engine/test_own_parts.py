"""analysis/own, all of whose parts are from outside the package: run, replayed, resumed, swept, shown; and its page."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.test_plugins import elsewhere
from tests.support.own_parts import write
from tests.transports.test_resume import contents, stop_at

import areabench
from areabench.cli.main import main
from areabench.engine.events import State
from areabench.experiment.parse import load_experiment
from areabench.methods.own import OwnMethod
from areabench.plugins.callables import look_in
from areabench.problems.data.own import OwnData
from areabench.problems.own import OwnProblem
from areabench.problems.splits.own import OwnSplit
from areabench.runfile.read import open_run
from areabench.streams import Purpose, Streams
from areabench.timing.delays import Delays
from areabench.timing.own import OwnDelays

__all__ = ["elsewhere", "stop_at"]  # pytest finds the fixtures here

ROOT = Path(__file__).parents[2]
OWN = ROOT / "analysis" / "own"
PARTS = OWN / "own_parts.py"
TRUST = ["--trust-module", str(PARTS)]
SHORT = ["--set", "stop.horizon_s=1"]


def test_it_runs_and_is_replayed_bit_for_bit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(OWN / "own.toml"), "-o", "own.h5"]) == 0
    assert main(["replay", "own.h5", *TRUST]) == 0
    assert capsys.readouterr().out.endswith(" rows equal (to the bit)\n")
    with open_run("own.h5") as run:
        assert run.status.state == State.DONE
        accuracy, loss = run.metrics_array["test_accuracy"], run.metrics_array["train_loss"]
        assert accuracy[0] < 60 < 90 < accuracy[-1]
        assert loss[-1] < 0.1 * loss[0]
        assert run.clients_array["samples"].tolist() == [120] * 4  # 480 of 600 points, in eight shards of 60


def test_a_user_problem_with_a_method_of_the_package() -> None:
    assert main(["simulate", str(OWN / "robust.toml"), "-o", "robust.h5"]) == 0
    assert main(["replay", "robust.h5", *TRUST]) == 0
    with open_run("robust.h5") as run:
        loss = run.metrics_array["train_loss"]
        assert loss[-1] < 0.2 * loss[0]
        assert np.isnan(run.metrics_array["test_accuracy"]).all()


def test_without_an_event_log_it_is_simulated_again() -> None:
    words = ["--set", "record.events=false", "--set", "record.models=last"]
    assert main(["simulate", str(OWN / "own.toml"), *SHORT, *words, "-o", "own.h5"]) == 0
    assert main(["replay", "own.h5", *TRUST]) == 0


def assert_resumes(stop_at: Callable[[int], None], stop: int, path: Path, *words: str) -> None:
    """A run that is stopped at an event continues as one that was not, if its module is trusted; and replays."""
    trust = ["--trust-module", str(next(path.parent.glob("*.py")))]
    assert main(["simulate", str(path), *words, "-o", "whole.h5"]) == 0
    stop_at(stop)
    assert main(["simulate", str(path), *words, "-o", "cut.h5"]) == 4
    stop_at(10**9)
    assert main(["resume", "cut.h5"]) == 2
    assert main(["resume", "cut.h5", *trust]) == 0
    assert contents(Path("cut.h5")) == contents(Path("whole.h5"))
    assert main(["replay", "cut.h5", *trust]) == 0


def test_it_is_stopped_and_resumed(stop_at: Callable[[int], None]) -> None:
    assert_resumes(stop_at, 50, OWN / "own.toml", *SHORT)


def test_a_state_of_all_that_a_checkpoint_holds(stop_at: Callable[[int], None], tmp_path: Path) -> None:
    fields = "norms: tuple = ()\n    steps: int = 0\n    share: float = 0.5\n    table: np.ndarray = None"
    norms, table = "(*state.norms, float(state.model[0]))", "np.outer(state.model, state.model)"
    model = "state.model + gain * state.share * state.buffer.mean() + 0.01 * sum(state.norms) / (1 + state.steps)"
    after = f"State({model}, Buffer(), {norms}, state.steps + 1, state.share / 1.1, {table})"
    assert_resumes(stop_at, 13, write(tmp_path / "there", "method", fields=fields, after=after))


def test_a_number_that_changes_its_type_is_resumed_as_it_was(stop_at: Callable[[int], None], tmp_path: Path) -> None:
    after = "State(state.model + gain * state.buffer.mean() + state.share, share=0.75 - state.share / 2)"
    assert_resumes(stop_at, 13, write(tmp_path / "there", "method", fields="share: float = 0", after=after))


def test_the_printed_command_to_continue_works(
    stop_at: Callable[[int], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method")
    stop_at(9)
    assert main(["simulate", str(path), "-o", "cut.h5"]) == 4
    command = "areabench resume cut.h5 --trust-module ../there/mine.py"
    assert f"to continue: {command}\n" in capsys.readouterr().out
    assert main(["check", str(path), "--ended-in", "cut.h5"]) == 4
    assert capsys.readouterr().out.endswith(f": {command}\n")
    stop_at(4)
    assert main(command.split()[1:]) == 4  # once more
    assert f"to continue: {command}\n" in capsys.readouterr().out
    stop_at(10**9)
    assert main(command.split()[1:]) == 0


def test_a_run_is_not_resumed_with_another_module(
    stop_at: Callable[[int], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method")
    stop_at(13)
    assert main(["simulate", str(path), "-o", "cut.h5"]) == 4
    module = path.parent / "mine.py"
    module.write_text("# changed\n" + module.read_text())
    assert main(["resume", "cut.h5", "--trust-module", str(module)]) == 2
    assert "mine.py has changed since this run" in (words := capsys.readouterr().err)
    assert words.endswith("put the old one back, or run the experiment again\n")


def test_it_is_swept_over_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = [str(OWN / "own_sweep.toml"), "--trials", "1", "--set", "stop.horizon_s=0.5", "-o", "sweep", "-j", "1"]
    assert main(["sweep", *words]) == 0
    capsys.readouterr()
    assert main(["table", "sweep", "--keep", "all"]) == 0
    table = capsys.readouterr().out
    assert all(words in table for words in ("server_momentum (beta = 0.9)", "AREA", "AS-FedAvg", "shards"))
    frame = areabench.open_sweep("sweep").frame
    assert sorted(frame["method.settings.beta"].dropna().unique()) == [0.0, 0.6, 0.9]
    assert len(frame) == 10
    assert frame.final_loss.notna().all()
    assert main(["figures", "sweep", "--format", "png", "--step-size", "own_parts:server_momentum=0.2"]) == 0
    assert main(["summary", *map(str, Path("sweep").glob("own_parts.server_momentum-0.2-*.h5"))]) == 0
    assert capsys.readouterr().out.count("own_parts:server_momentum") == 3


# ---------------------------------------------------------------------------------------------------- failures


def failing(folder: Path) -> Path:
    """An experiment whose server divides by zero at its fourth step."""
    return write(folder, "method", fields="steps: int = 0", aggregate="1 / (state.steps - 3)",
                 after="State(state.model + gain * state.buffer.mean(), steps=state.steps + 1)")  # fmt: skip


def test_an_error_in_user_code_ends_a_run_with_its_line(tmp_path: Path) -> None:
    path = failing(tmp_path / "there")
    with pytest.raises(ZeroDivisionError) as caught:  # the traceback is what a user gets to see, and exit code 1
        main(["simulate", str(path), "-o", "run.h5"])
    assert str(caught.traceback[-1].path).endswith("mine.py")
    with open_run("run.h5") as run:
        assert (run.status.state, run.status.server_steps) == (State.FAILED, 3)
        assert run.status.reason == "ZeroDivisionError: division by zero (at mine.py, line 21)"
    assert main(["replay", "run.h5", "--trust-module", str(path.parent / "mine.py")]) == 0


def test_a_sweep_names_the_line_too(tmp_path: Path) -> None:
    assert main(["sweep", str(failing(tmp_path / "there")), "-o", "sweep", "-j", "1"]) == 1
    with Path("sweep/failures.csv").open() as file:
        assert list(csv.reader(file))[1][1] == "ZeroDivisionError: division by zero (at mine.py, line 21)"


def test_delays_that_become_invalid_during_the_run_end_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "delays", before="for _ in range(17): yield 0.1", delay="-1.0")
    assert main(["simulate", str(path), "--set", "stop.iterations=99", "-o", "run.h5"]) == 1
    assert "gave -1.0 in round 17 of client" in capsys.readouterr().err
    with open_run("run.h5") as run:
        assert run.status.state == State.FAILED


LATE = {"fields": "steps: int = 0"}  # what follows is wrong at the fourth step only, which no dry run sees
AFTER = "State({model}, steps=state.steps + 1), {calls}, contacts={contacts}, cancels={cancels}"
WRONG_LATER: list[tuple[dict[str, str], str]] = [
    ({"calls": "(1.0,)"}, "aggregate calls (1.0,); give a tuple of clients, or of Call"),
    ({"calls": "None"}, "aggregate calls None; give a tuple of clients, or of Call"),
    ({"calls": "(Call(0, state.model[:1]),)"}, "aggregate gave client 0 a model that has the shape (1,), not (2,); se"),
    ({"contacts": "(0,)"}, "aggregate contacts or cancels clients; let the Method have interrupts=True"),
    ({"cancels": "(0,)"}, "aggregate contacts or cancels clients; let the Method have interrupts=True"),
    ({"cancels": "[0]"}, "aggregate calls [0]; give a tuple of clients, or of Call"),
    ({"model": "state.model[:1]"}, "aggregate returned a state that has a model that has the shape (1,), not (2,)"),
    ({"model": "np.float32(state.model)"}, "aggregate returned a state that has a model that is float32, where the p"),
    (
        {"model": "0.5"},
        "aggregate returned a state that has a model that is float, not an array; see docs/extending.md",
    ),
]


def wrong_later(**wrong: str) -> dict[str, str]:
    """Changes of a method whose fourth server step is wrong."""
    right = {"model": "state.model", "calls": "()", "contacts": "()", "cancels": "()"}
    late = {name: f"({wrong[name]} if state.steps == 3 else {value})" if name in wrong else value
            for name, value in right.items()}  # fmt: skip
    return {**LATE, "after": AFTER.format(**late)}


@pytest.mark.parametrize(("wrong", "words"), WRONG_LATER, ids=lambda each: str(each)[:40])
def test_a_step_that_becomes_wrong_names_the_method(
    wrong: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method", **wrong_later(**wrong))
    assert main(["simulate", str(path), "-o", "run.h5"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"areabench: method.name = 'mine:make' {words}")
    assert said.count("\n") == 1
    with open_run("run.h5") as run:
        assert (run.status.state, run.status.server_steps) == (State.FAILED, 3)
        assert words in run.status.reason


@pytest.mark.parametrize("client", [2, -1])
def test_a_call_of_a_client_that_does_not_exist_names_the_method(
    client: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method", **wrong_later(calls=f"({client},)"))
    assert main(["simulate", str(path), "-o", "run.h5"]) == 1
    words = f'method "mine:make" calls client {client}, which does not exist; name clients from 0 to 1'
    assert capsys.readouterr().err == f"areabench: {words}\n"
    with open_run("run.h5") as run:
        assert (run.status.state, run.status.server_steps, run.status.reason) == (
            State.FAILED,
            3,
            f"RunFailure: {words}",
        )


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("Report(payload[:1], memory + 1)", "report gave a payload that has the shape (1,), not (2,); send a vector"),
        ("Report(np.float32(payload), memory + 1)", "report gave a payload that is float32, where the problem has"),
        ("Report(payload, memory[:1])", "report gave a memory that has the shape (1,), not (2,); remember an array"),
        ("None", "report returned NoneType; let it return Report(payload, memory)"),
    ],
)
def test_a_report_that_becomes_wrong_names_the_method(
    report: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = f"(lambda payload: {report} if memory[0] == 2 else Report(payload, memory + 1))(work.local - work.model)"
    path = write(tmp_path / "there", "method", memory="np.zeros_like(start)", report=late)
    assert main(["simulate", str(path), "-o", "run.h5"]) == 1
    assert f"areabench: method.name = 'mine:make' {words}" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- properties


@given(shape=st.floats(0.3, 5), rate=st.floats(0.1, 100), seed=st.integers(0, 2**32 - 1), rounds=st.integers(0, 40))
def test_user_delays_can_be_skipped(shape: float, rate: float, seed: int, rounds: int) -> None:
    look_in([str(OWN)])
    settings = OwnDelays(name="own_parts:weibull", settings=load_experiment(
        OWN / "own.toml", [f"delays.settings.shape={shape!r}"]).delays.settings)  # type: ignore[attr-defined]  # fmt: skip
    rates = np.full(2, rate)
    delays = Delays(settings, rates, seed)
    delays.skip_rounds(1, rounds, 0)
    assert delays.next_s(1) == next(
        islice(settings.opened()(1, rate, Streams(seed, Purpose.DELAYS, 2).open, ()), rounds, None)
    )


@given(labels=st.lists(st.integers(0, 3), min_size=8, max_size=60), clients=st.integers(1, 4), seed=st.integers(0, 99))
def test_shards_deal_every_sample_once(labels: list[int], clients: int, seed: int) -> None:
    look_in([str(OWN)])
    parts = OwnSplit(name="own_parts:shards").rows(np.array(labels, np.int64), clients, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    again = OwnSplit(name="own_parts:shards").rows(np.array(labels, np.int64), clients, seed)
    assert all(np.array_equal(*pair) for pair in zip(parts, again, strict=True))


# ---------------------------------------------------------------------------------------------------- the page


def blocks(language: str) -> list[str]:
    """The fenced blocks of docs/extending.md in one language."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


FILE_NAME = re.compile(r"# ((\w+)\.py)\n")


@pytest.mark.parametrize("name", ["fedasync", "scaffold"])
def test_the_methods_that_the_page_shows_run_and_are_replayed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = [block for block in blocks("python") if block.startswith(f"# {name}.py\n")]
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    named = ["--set", f"method.name={name}:{name}"]
    assert main(["simulate", str(OWN / "robust.toml"), *named, "-o", "run.h5"]) == 0
    assert main(["replay", "run.h5", *TRUST, "--trust-module", f"{name}.py"]) == 0
    with open_run("run.h5") as run:
        loss = run.metrics_array["train_loss"]
        assert run.status.server_steps > 0
        assert loss[-1] < 0.5 * loss[0]


def test_what_the_page_quotes_is_in_the_example() -> None:
    example = PARTS.read_text(encoding="utf-8")
    quoted = [block for block in blocks("python") if not FILE_NAME.match(block)]
    assert len(quoted) == 3
    assert [block for block in quoted if block not in example] == []
    assert blocks("toml")[0] in (OWN / "own.toml").read_text(encoding="utf-8")


def test_the_page_names_what_each_part_is_given() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for part in (OwnMethod, OwnProblem, OwnData, OwnSplit, OwnDelays):
        (row,) = re.findall(rf"^\| `\[{part.section}\]` \|.*$", page, re.MULTILINE)
        assert [name for name in part.given if f"`{name}`" not in row] == []


def test_the_public_names_load_nothing_large() -> None:
    large = "('h5py', 'pandas', 'matplotlib', 'mpi4py', 'torch', 'scipy')"
    code = f"import sys, areabench.extend; print([name for name in {large} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_example_imports_nothing_but_the_public_names() -> None:
    imports = re.findall(r"^from (areabench\S*) import", PARTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert imports == ["areabench.extend"]
