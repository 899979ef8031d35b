"""A run whose evaluation fails: it keeps what it has recorded, and `areabench evaluate` tries again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.answers import answer, complaint
from tests.support.edited import edited, set_state
from tests.support.own_parts import write
from tests.support.runs import simulated
from tests.support.texts import QUADRATIC
from tests.transports.test_resume import contents

import areabench
from areabench.engine.events import State
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.lock import Claim
from areabench.runfile.read import Run, open_run
from areabench.runfile.record import write_again
from areabench.views.report.sources import gather

# Fails with more than two models, unless there is a file: a dry run does not see it, and it can be mended.
LOSSES = "[0.5 * float(model @ model) for model in models]"
FAILING = {"metrics": f"Metrics.of({LOSSES} if len(models) < 3 or open('mended').close() is None else [])"}
FILE = Path("run.h5")
TRUST = "--trust-module mine.py"
REASON = "FileNotFoundError: [Errno 2] No such file or directory: 'mended' (at mine.py, line 16)"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture
def unevaluated(folder: Path) -> Path:
    """The file of a run that has ended, and whose evaluation has failed."""
    write(folder, "problem", **FAILING)
    answer("simulate tiny.toml -o run.h5", code=5)
    return FILE


# ------------------------------------------------------------------------------------------------------ the run


def test_a_run_is_not_lost_to_its_evaluation(folder: Path) -> None:
    write(folder, "problem", **FAILING)
    said = answer("simulate tiny.toml -o run.h5", code=5)
    assert said.out == "run.h5: done (20 iterations): 16 updates, 4 server steps, 0 discarded\n"
    assert said.err == (
        f"areabench: run.h5: its evaluation failed ({REASON}), so it has no metrics; "
        "to try again: areabench evaluate run.h5 --trust-module mine.py\n"
    )
    with open_run(FILE) as run:
        assert (run.status.state, run.status.reason) == (State.DONE, "20 iterations")
        assert (len(run.events_array), len(run.models), len(run.metrics_array)) == (20, len(run.snapshot_index), 0)
    assert not checkpoint_path(FILE).exists()
    answer("check tiny.toml --ended-in run.h5")  # a job need not make it again
    for command in ("show", "summary", "diagnose"):
        answer(command, FILE)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ("exit(3) if len(models) > 2 else Metrics.of(LOSSES)", "called sys.exit(3) at mine.py, line 16; let it return"),
        ("Metrics.of(LOSSES[:2])", "(ValueError: evaluate() returned train_loss of shape (2,) for 5 models; return"),
    ],
)
def test_code_that_exits_and_one_that_leaves_models_out(metrics: str, words: str, folder: Path) -> None:
    write(folder, "problem", metrics=metrics.replace("LOSSES", LOSSES))
    assert words in answer("simulate tiny.toml -o run.h5", code=5).err


def test_an_interrupt_ends_the_evaluation_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.transports.session.evaluate_blocks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        simulated(folder / FILE, QUADRATIC)
    with open_run(FILE) as run:
        assert (run.status.state, run.is_evaluated) == (State.DONE, False)


def test_a_target_that_cannot_be_evaluated_fails_the_run(folder: Path) -> None:
    write(folder, "problem", metrics=f"Metrics.of({LOSSES} if models[0][0] > 2.9 else [1 / 0])")
    with pytest.raises(ZeroDivisionError):
        answer("simulate tiny.toml -o run.h5 --set stop.target_loss=0.001")
    with open_run(FILE) as run:
        assert run.status.state == State.FAILED


def test_from_python(folder: Path) -> None:
    path = write(folder, "problem", **FAILING)
    words = r"the evaluation of the run failed \(FileNotFoundError: .*\), so it has no metrics; "
    with pytest.warns(UserWarning, match=words + r"with output=... it can be tried again"):
        assert areabench.simulate(path).status.state == State.DONE
    with pytest.warns(UserWarning, match=words + r"areabench.evaluate tries again"):
        run = areabench.simulate(path, output=FILE)
    assert len(run.metrics_array) == 0
    with pytest.raises(areabench.RunFailure, match=r"run.h5: its evaluation failed .*; the file is as it was"):
        areabench.evaluate(run, trust=["mine.py"])
    Path("mended").touch()
    assert np.isfinite(areabench.evaluate(run, trust=["mine.py"]).metrics_array["train_loss"]).all()
    assert areabench.evaluate(FILE, trust=["mine.py"]).is_evaluated


# ------------------------------------------------------------------------------------------------------- a sweep


def test_a_run_of_a_sweep_is_reported_and_not_averaged(folder: Path) -> None:
    losses = f"Metrics.of({LOSSES} if len(models) < 3 or self.seed < 10 or open('mended').close() is None else [])"
    path = write(folder, "problem", metrics=losses, problem="Bowl(seed + 10 * (width > 1))")
    path.write_text(path.read_text() + "[sweep]\n[[sweep.grid]]\nproblem.settings.width = [1, 2, 3]\n")
    sweep_again = "sweep tiny.toml -o grid --jobs 1"
    assert "1 done now, 0 done before, 0 of them diverged, 2 failed" in answer(sweep_again, code=1).out
    sweep = areabench.open_sweep("grid")
    assert [result.experiment.problem.settings["width"] for result in sweep.results] == [1]  # type: ignore[attr-defined]
    assert (len(sweep.missing), len(sweep.failures)) == (2, 2)
    for failure in sweep.failures:
        assert failure.reason.startswith(f"done, but its evaluation failed ({REASON}), so it has no metrics; to try")
        assert failure.reason.endswith(f": areabench evaluate grid/{failure.file} {TRUST}")
    Path("grid/failures.csv").unlink()
    assert [absent.state for absent in gather([Path("grid")], lambda _runs: None).absent] == ["not evaluated"] * 2
    Path("mended").touch()
    failed = [f"grid/{failure.file}" for failure in sweep.failures]
    said = answer(f"evaluate {TRUST}", *failed).out
    assert said == "".join(f"{file}: 10 snapshots evaluated\n" for file in failed)
    sweep = areabench.open_sweep("grid")
    assert (len(sweep.results), sweep.failures) == (3, ())
    assert "0 done now, 3 done before" in answer(sweep_again).out


# ------------------------------------------------------------------------------------------------------ evaluate


def test_it_is_evaluated_again_and_nothing_else_changes(unevaluated: Path) -> None:
    with open_run(unevaluated) as run:
        provenance = run.provenance
    Path("mended").touch()
    answer("simulate tiny.toml -o whole.h5")
    answer("evaluate run.h5", code=2)  # without --trust-module
    for _ in range(2):  # also one that has metrics
        answer(f"evaluate run.h5 {TRUST}")
        assert contents(unevaluated) == contents(Path("whole.h5"))
    with open_run(unevaluated) as run:
        assert run.provenance == provenance
    answer(f"replay run.h5 {TRUST}")
    assert sorted(path.name for path in Path().glob("*run.h5*")) == ["run.h5"]


@pytest.mark.parametrize("events", ["true", "false"])
def test_models_that_the_file_does_not_keep_are_made_again(events: str, folder: Path) -> None:
    write(folder, "problem", **FAILING)
    options = f"--set record.models=last --set record.events={events} --set record.average=true"
    answer(f"simulate tiny.toml {options} -o run.h5", code=5)
    Path("mended").touch()
    answer(f"simulate tiny.toml {options} -o whole.h5")
    answer(f"evaluate run.h5 {TRUST}")
    assert contents(FILE) == contents(Path("whole.h5"))
    with edited(FILE) as file:
        rows = file["snapshots/index"][()]
        rows["digest"][2] += np.uint64(1)
        file["snapshots/index"][...] = rows
    words = "run.h5: keeps the last of its 10 models only, and a replay, which makes the others again, dif"
    assert words in answer(f"evaluate run.h5 {TRUST}", code=2).err


def test_an_only_model_is_evaluated_without_a_replay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated(folder / FILE, QUADRATIC, ["record.models=last", "record.snapshots=none"])
    before = contents(FILE)
    monkeypatch.delattr("areabench.transports.replay._replayer")
    answer("evaluate run.h5")
    assert contents(FILE) == before


def test_where_it_fails_the_file_is_as_it_was(unevaluated: Path) -> None:
    before = unevaluated.read_bytes()
    simulated(Path("other.h5"), QUADRATIC)
    said = answer(f"evaluate run.h5 other.h5 {TRUST} --json", code=1)
    assert said.err == f"areabench: run.h5: its evaluation failed ({REASON}); the file is as it was\n"
    assert '"file": "other.h5"' in said.out
    assert unevaluated.read_bytes() == before


def test_what_ends_it_while_it_writes_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = simulated(folder / FILE, QUADRATIC).read_bytes()

    def interrupted(run: Run, metrics: NDArray[Any], path: Path) -> None:
        write_again(run, metrics, path)
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.transports.evaluate.write_again", interrupted)
    complaint("evaluate run.h5", code=130)
    assert FILE.read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["run.h5"]


def test_runs_that_have_not_ended_and_files_of_others_are_refused(folder: Path) -> None:
    simulated(folder / FILE, QUADRATIC)
    set_state(FILE, State.STOPPED)
    simulated(folder / "busy.h5", QUADRATIC)
    Path("text.h5").write_text("text")
    claim = Claim(folder / "busy.h5", force=True)
    for name, words in (
        ("run.h5", "run.h5: is stopped, and only a run that has ended is evaluated; resume it, or run it again"),
        ("absent.h5", "absent.h5: no such file; give the path of a run file (.h5)"),
        ("busy.h5", "busy.h5: is being written by another run"),
        ("text.h5", "text.h5: is not a readable HDF5 file"),
    ):
        assert words in complaint("evaluate", name)
    claim.release()
