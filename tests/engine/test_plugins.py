"""Parts from a user's own file: what is refused before a run begins, in which words, and that nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.own_parts import SOURCES, write

from areabench.cli.main import main
from areabench.runfile.read import open_run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder is not the experiment's, and what was imported is forgotten."""
    here = tmp_path / "elsewhere"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))
    yield here
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "helper")]:
        del sys.modules[name]


def refused(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which an experiment is refused; nothing is left."""
    assert main(["simulate", str(path), *words]) == 2
    message = capsys.readouterr().err
    assert message.startswith("areabench: ")
    assert message.count("\n") == 1
    assert not list(Path().iterdir())
    return message.removeprefix("areabench: ").rstrip("\n")


@pytest.mark.parametrize("section", SOURCES)
def test_each_part_is_found_beside_the_experiment_file(section: str, tmp_path: Path) -> None:
    path = write(tmp_path / "there", section)
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    assert main(["replay", "run.h5", "--trust-module", str(path.parent / "mine.py")]) == 0
    with open_run("run.h5") as run:
        assert run.status.state.text == "done"
        assert run.experiment.module_folders == (str(tmp_path / "there"),)
        assert '"name": "mine"' in run.provenance.modules


def test_a_module_that_lies_elsewhere_needs_no_folder(tmp_path: Path, elsewhere: Path) -> None:
    path = write(tmp_path / "there", "method")
    (path.parent / "mine.py").rename(elsewhere / "mine.py")
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    with open_run("run.h5") as run:
        assert run.experiment.module_folders is None
    assert main(["replay", "run.h5", "--trust-module", "mine:make"]) == 0


def test_a_folder_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "there", "method")
    (tmp_path / "lib").mkdir()
    (path.parent / "mine.py").rename(tmp_path / "lib" / "mine.py")
    path.write_text('module_folders = ["../lib"]\n' + path.read_text())
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    with open_run("run.h5") as run:
        assert [Path(folder).resolve() for folder in run.experiment.module_folders or ()] == [tmp_path / "lib"]


def test_a_helper_beside_the_module_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "there", "delays", before="from helper import twice")
    (path.parent / "helper.py").write_text("twice = 2\n")
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0


def test_the_default_run_file_has_a_name_that_every_disc_takes(tmp_path: Path) -> None:
    assert main(["simulate", str(write(tmp_path / "there", "method"))]) == 0
    assert [path.name for path in Path("runs").iterdir()] == ["tiny-mine.make-0.h5"]


# ---------------------------------------------------------------------------------------------------- settings

SETTINGS = {
    "{gian = 2}": (
        "method.settings.gian: unknown setting of mine:make 'gian'; did you mean 'gain'? allowed: gain, turns"
    ),
    "{clients = 2}": "method.settings.clients: areabench gives it to 'mine:make' itself; leave it out",
    '{gain = "much"}': "method.settings.gain: 'much' is not a number; correct it",
    "{gain = true}": "method.settings.gain: True is not a number; correct it",
    "{turns = 1.5}": "method.settings.turns: 1.5 is not a whole number; correct it",
    "{turns = [1]}": "method.settings.turns: [1] is not a whole number; correct it",
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_are_checked_against_the_signature(
    settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method", settings, parameters="gain: float = 1.0, turns: int = 1")
    assert refused(path, capsys) == SETTINGS[settings]


ANNOTATIONS = {
    "list[float]": ("[1, 2.5]", '["a"]', "a list"),
    "Sequence[int]": ("[1, 2]", "[1.5]", "a list"),
    "Literal['hot', 'cold']": ('"cold"', '"warm"', "one of 'hot', 'cold'"),
    "float | None": ("1", '"a"', "a number"),
    "str": ('"a"', "1", "a string"),
    "bool": ("true", "1", "true or false"),
}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_annotations_are_checked(annotation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, words = ANNOTATIONS[annotation]
    path = write(tmp_path / "there", "method", parameters=f"gain=1.0, what: {annotation} = None")
    module = path.parent / "mine.py"
    module.write_text("from collections.abc import Sequence\nfrom typing import Literal\n" + module.read_text())
    assert refused(path, capsys, "--set", f"method.settings.what={bad}").endswith(f" is not {words}; correct it")
    assert main(["simulate", str(path), "--set", f"method.settings.what={good}", "-o", "run.h5"]) == 0


def test_a_setting_without_default_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method", parameters="gain")
    assert refused(path, capsys) == (
        "method.settings.gain: is missing, 'mine:make' has no default for it; add it to the settings"
    )
    assert main(["simulate", str(path), "--set", "method.settings.gain=1", "-o", "run.h5"]) == 0


def test_a_function_may_take_anything(tmp_path: Path) -> None:
    path = write(tmp_path / "there", "method", "{gain = 2, other = [true]}", parameters="gain, **others")
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0


@pytest.mark.parametrize("annotation", ["{'much': []}", "'no such name'", "0.5", "np.ndarray"])
def test_an_annotation_may_be_anything(annotation: str, tmp_path: Path) -> None:
    path = write(tmp_path / "there", "method", "{gain = 2}", parameters=f"gain: {annotation}")
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine:nothing", "method.name = 'mine:nothing': module 'mine' lacks 'nothing'; name a function of that module"),
        ("mine:np", "method.name = 'mine:np': module 'mine' holds no callable 'np'; name a function of that module"),
        (
            "nowhere:make",
            "'nowhere:make': importing 'nowhere' failed (ModuleNotFoundError: No module named 'nowhere')",
        ),
        ("mine:make:it", "is not an import path; write `module:function`, with names as Python has them"),
        ("mi ne:make", "is not an import path; write `module:function`, with names as Python has them"),
        ("math:sqrt", "method.name = 'math:sqrt' takes 'x' by position only; let it be given by name"),
    ],
)
def test_names_that_cannot_be_imported(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "there", "method")
    assert words in refused(path, capsys, "--set", f"method.name={name}")


def test_a_module_that_does_not_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    (path.parent / "mine.py").write_text("import os\n\nnumber = 1 / 0\n")
    assert "importing 'mine' failed (ZeroDivisionError: division by zero at mine.py, line 3); correct" in refused(
        path, capsys
    )


def test_a_module_that_python_has_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    (path.parent / "mine.py").rename(path.parent / "colorsys.py")
    import colorsys  # noqa: F401 - as somebody else may have done before

    message = refused(path, capsys, "--set", "method.name=colorsys:make")
    assert "/there/colorsys.py is hidden by another module 'colorsys'" in message
    assert message.endswith("rename yours")


def test_a_problem_that_wants_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "problem", parameters="data")
    assert refused(path, capsys).endswith("takes 'data', which is for experiments with data; add a section [data]")


def test_a_split_needs_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "problem")
    assert "split: there is no section [data] to split" in refused(path, capsys, "--set", "split.name=iid")


def test_launch_says_it_before_mpirun_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method", "{gian = 2}")
    assert main(["launch", str(path), "-n", "2"]) == 2
    assert "method.settings.gian: unknown setting" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_a_sweep_says_which_runs_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "there", "method")
    sweep = path.with_name("sweep.toml")
    sweep.write_text('extends = "tiny.toml"\n[[sweep.grid]]\nmethod.settings.gain = [0.5, 1.0, "much"]\n')
    assert main(["sweep", str(sweep), "--dry-run"]) == 1
    assert "1 that cannot be run" in (said := capsys.readouterr().out)
    assert "method.settings.gain: 'much' is not a number" in said
    sweep.write_text('extends = "tiny.toml"\n[[sweep.grid]]\nmethod.settings.gian = [0.5, 1.0]\n')
    assert main(["sweep", str(sweep)]) == 2
    assert "unknown setting of mine:make 'gian'" in capsys.readouterr().err
    assert not list(Path().iterdir())
