"""Modules that a run file names: imported only if the user names them too, found where the user says, compared."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.test_plugins import elsewhere
from tests.support.edited import edited
from tests.support.own_parts import SOURCES, experiment, source, write

import areabench
from areabench.cli.main import main
from areabench.errors import UserError
from areabench.experiment.parse import parse_experiment
from areabench.plugins.modules import Module, of_text, to_text
from areabench.plugins.trust import check_trusted, command_on, trust_options
from areabench.runfile.layout import write_attributes
from areabench.runfile.read import open_run
from areabench.settings.parse import to_toml
from areabench.views.report.page import build_report
from areabench.views.report.sources import gather

__all__ = ["elsewhere"]  # pytest finds the fixture here


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run whose module has been unloaded since; importing it again leaves a mark."""
    path = write(tmp_path / "there", "method")
    module = path.parent / "mine.py"
    mark = f"from pathlib import Path\nPath({str(tmp_path / 'mark')!r}).touch()\n"
    module.write_text(mark + module.read_text())
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    (tmp_path / "mark").unlink()
    del sys.modules["mine"]
    sys.path.remove(str(path.parent))
    capsys.readouterr()
    return Path("run.h5")


@pytest.mark.parametrize(
    "command",
    [
        "show run.h5", "summary run.h5", "summary run.h5 --plot x.png", "diagnose run.h5", "compare run.h5 run.h5",
        "show run.h5 --toml", "recover run.h5 -o saved.h5", "replay run.h5", "resume run.h5",
    ],
)  # fmt: skip
def test_reading_never_imports_what_a_run_file_names(command: str, run: Path, tmp_path: Path) -> None:
    assert main(command.split()) in (0, 2)
    assert "mine" not in sys.modules
    assert not (tmp_path / "mark").exists()


def test_replay_names_the_file_to_look_at(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "run.h5"]) == 2
    assert capsys.readouterr().err == (
        "areabench: run.h5: would import and call 'mine:make', which this run file names; if you trust that code, add "
        "--trust-module ../there/mine.py\n"
    )
    assert main(["replay", "run.h5", "--trust-module", "../there/mine.py"]) == 0
    assert (tmp_path / "mark").exists()


def test_options_for_what_is_not_harmless(tmp_path: Path) -> None:
    named = parse_experiment(experiment("method"))
    assert trust_options(named) == "--trust-module mine:make"
    assert trust_options(named, ["mine:make"]) == ""
    write(tmp_path / "my code", "method")
    there = replace(named, module_folders=(str(tmp_path / "my code"),))
    assert trust_options(there) == "--trust-module '../my code/mine.py'"
    assert command_on("resume", Path("a run.h5"), there) == (
        "areabench resume 'a run.h5' --trust-module '../my code/mine.py'"
    )
    plain = parse_experiment(experiment("method").replace("mine:make", "area").replace("settings = {}", ""))
    assert command_on("replay", Path("run.h5"), plain) == "areabench replay run.h5"


def test_the_report_offers_commands_that_work_and_says_what_they_execute(run: Path) -> None:
    (detail,) = build_report(gather([run], lambda runs: None), Path("cache")).details
    _, replay, again = detail.commands
    assert replay.value == "areabench replay run.h5 --trust-module ../there/mine.py"
    assert again.value.splitlines()[1] == "areabench simulate run-again.toml --output run-again.h5"
    warning = "(this executes code that the run file names: mine:make; do so only if you trust it)"
    assert replay.name.endswith(warning)
    assert again.name.endswith(warning)
    assert main(shlex.split(replay.value)[1:]) == 0


@pytest.mark.parametrize("section", SOURCES)
def test_every_section_must_be_vouched_for(section: str) -> None:
    named = parse_experiment(experiment(section))
    with pytest.raises(UserError, match="would import and call 'mine:make'.*--trust-module mine:make$"):
        check_trusted(named, Path("run.h5"))
    with pytest.raises(UserError, match="would import and call"):
        check_trusted(named, Path("run.h5"), ["mine:other", "mine", "other.py"])
    check_trusted(named, Path("run.h5"), ["mine:make"])


def test_a_folder_that_a_run_file_names_is_not_searched(run: Path, tmp_path: Path) -> None:
    assert main(["replay", "run.h5", "--trust-module", "mine:make"]) == 2  # it is in neither folder that counts
    assert not (tmp_path / "mark").exists()


def test_a_missing_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "run.h5", "--trust-module", "mine.py"]) == 2
    assert "--trust-module mine.py: there is no such file" in capsys.readouterr().err


def test_a_package_is_not_meant_by_a_file_of_its_name() -> None:
    text = experiment("method").replace("mine:make", "mine.inner:make")
    with pytest.raises(UserError, match="would import and call"):
        check_trusted(parse_experiment(text), Path("run.h5"), [__file__.replace("test_outside_trust.py", "mine.py")])


def test_a_torch_module_beside_the_experiment_file(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "helper.py").write_text("from torch import nn\nnet = nn.Linear\n")
    problem = 'name = "torch"\nmodule = "helper:net"\nbatch_size = 2'
    text = experiment("split").replace('name = "logistic"\nbatch_size = 2', problem).replace("mine:make", "iid")
    (folder / "net.toml").write_text(text.replace("settings = {}\n", ""))
    assert main(["simulate", str(folder / "net.toml"), "-o", "run.h5"]) == 0
    assert main(["replay", "run.h5", "--trust-module", str(folder / "helper.py")]) == 0
    with open_run("run.h5") as recorded:
        assert [module.name for module in of_text(recorded.provenance.modules)] == ["helper"]


# ---------------------------------------------------------------------------------------------------- changes


def test_replay_says_that_a_module_has_changed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "there" / "mine.py"
    module.write_text(module.read_text() + "# another line\n")
    assert main(["replay", "run.h5", "--trust-module", str(module)]) == 0  # it computes the same
    assert "run.h5: mine.py has changed since this run: its SHA-256 was " in capsys.readouterr().err
    del sys.modules["mine"]
    module.write_text(source("method", after="State(state.model + 2 * gain * state.buffer.mean())"))
    assert main(["replay", "run.h5", "--trust-module", str(module)]) == 1
    words = capsys.readouterr().err
    assert "mine.py has changed since this run" in words
    assert "differs: the model after the server step" in words


def test_a_sweep_runs_again_what_another_module_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    assert main(["sweep", str(path), "-o", "sweep", "-j", "1"]) == 0
    assert main(["sweep", str(path), "-o", "sweep", "-j", "1"]) == 0
    assert "0 done now, 1 done before" in capsys.readouterr().out
    del sys.modules["mine"]
    (path.parent / "mine.py").write_text("# changed\n" + source("method"))
    assert main(["sweep", str(path), "-o", "sweep", "-j", "1"]) == 0
    assert "1 done now, 0 done before" in capsys.readouterr().out


def test_what_a_stranger_writes_about_modules_is_only_text(run: Path) -> None:
    with edited(run) as file:
        write_attributes(file["provenance"].attrs, {"modules": '[{"name": "\x1b[31m"}]'})
    assert main(["show", "run.h5"]) == 0
    assert of_text('[{"name": "mine"}]') == of_text("no JSON") == of_text("[7]") == of_text("{}") == ()


def test_modules_as_text() -> None:
    modules = (Module("mine", "/a folder/mine.py", "00ff"),)
    assert of_text(to_text(modules)) == modules
    assert to_text(()) == ""


# ---------------------------------------------------------------------------------------------------- reading


def test_tables_and_frames_show_user_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    sweep = path.with_name("sweep.toml")
    sweep.write_text(
        'extends = "tiny.toml"\n[[sweep.grid]]\nmethod.settings.gain = [0.5, 1.0]\n'
        '[[sweep.grid]]\nmethod = [{name = "area", step_size = 0.1}]\n'
    )
    assert main(["sweep", str(sweep), "-o", "sweep", "-j", "1"]) == 0
    (path.parent / "mine.py").unlink()  # reading does not need it
    capsys.readouterr()
    assert main(["table", "sweep", "--keep", "all"]) == 0
    table = capsys.readouterr().out
    assert "make (gain = 0.5)" in table
    assert "make (gain = 1" in table
    frame = areabench.open_sweep("sweep").frame
    assert frame["method.settings.gain"].tolist()[:2] == [0.5, 1.0]
    assert frame["method"].tolist() == ["mine:make", "mine:make", "area"]


def test_settings_survive_the_file(tmp_path: Path) -> None:
    settings = '{whole = 7, real = 2.0, text = "a \\"b\\"", none = "", list = [1, 2.5, "c"], empty = [], yes = true}'
    before = parse_experiment(experiment("delays", settings))
    again = parse_experiment(to_toml(before))
    assert again == before
    assert hash(again) == hash(before)
    assert [type(value) for value in again.delays.settings.values()] == [int, float, str, str, tuple, tuple, bool]  # type: ignore[attr-defined]


def test_a_run_of_user_code_is_read_without_its_module(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there" / "mine.py").unlink()
    with open_run("run.h5") as recorded:
        assert recorded.summary().method == "mine:make"
        assert of_text(recorded.provenance.modules)[0].file == str(tmp_path / "there" / "mine.py")
