"""A run file knows which data it was made with: `replay` and `resume` refuse others, `compare` names them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.engine.test_plugins import elsewhere
from tests.support.own_parts import write
from tests.transports.test_resume import stop_at

from areabench.cli.main import main
from areabench.engine.data import load_data
from areabench.experiment.parse import load_experiment
from areabench.runfile.read import open_run

__all__ = ["elsewhere", "stop_at"]  # pytest finds the fixtures here

pytestmark = pytest.mark.usefixtures("elsewhere")
ROWS = np.arange(24, dtype=np.uint8).reshape(12, 2)
FEATURES = "np.load(__import__('pathlib').Path(__file__).with_name('rows.npy'))"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An experiment on data of one's own, which lie in a file beside its module."""
    written = write(tmp_path / "there", "data", features=FEATURES)
    np.save(written.with_name("rows.npy"), ROWS)
    return written


def change_data(path: Path) -> None:
    """Another value of one feature, in the module's file."""
    rows = ROWS.copy()
    rows[0, 0] = 255
    np.save(path.with_name("rows.npy"), rows)


def trust(path: Path) -> list[str]:
    return ["--trust-module", str(path.with_name("mine.py"))]


def digest_of(file: str) -> str:
    with open_run(file) as run:
        return run.provenance.data_digest


def forget_digest(file: str) -> None:
    """Make the file one that was recovered without its provenance, as far as its data are concerned."""
    with h5py.File(file, "r+") as opened:
        opened["provenance"].attrs["data_digest"] = ""


def test_the_run_file_has_the_digest_of_the_data(tmp_path: Path) -> None:
    file = write(tmp_path, "split")
    assert main(["simulate", str(file), "-o", "run.h5"]) == 0
    settings = load_experiment(file).data
    assert settings is not None
    assert settings.name == "synthetic"
    assert digest_of("run.h5") == load_data(settings, tmp_path).digest()


def test_a_problem_without_data_has_none(tmp_path: Path) -> None:
    assert main(["simulate", str(write(tmp_path, "delays")), "-o", "run.h5"]) == 0
    assert digest_of("run.h5") == ""


def test_replay_refuses_other_data(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    assert main(["replay", "run.h5", *trust(path)]) == 0
    change_data(path)
    capsys.readouterr()
    assert main(["replay", "run.h5", *trust(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    before = digest_of("run.h5")[:12]
    assert re.fullmatch(
        rf"areabench: run\.h5: the data have changed since this run: their SHA-256 was {before}, it is "
        rf"(?!{before})[0-9a-f]{{12}} now; put the old data back, or run the experiment again\n",
        said.err,
    )


def test_replay_without_a_digest_compares_no_data(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(path), "-o", "run.h5"]) == 0
    forget_digest("run.h5")
    assert main(["replay", "run.h5", *trust(path)]) == 0
    change_data(path)
    assert main(["replay", "run.h5", *trust(path)]) == 1  # the updates tell
    assert "differs: the update of client" in capsys.readouterr().err


def test_resume_refuses_other_data(
    path: Path, stop_at: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(9)
    assert main(["simulate", str(path), "-o", "cut.h5"]) == 4
    before = Path("cut.h5").read_bytes()
    stop_at(10**9)
    change_data(path)
    assert main(["resume", "cut.h5", *trust(path)]) == 2
    assert "cut.h5: the data have changed since this run" in capsys.readouterr().err
    assert Path("cut.h5").read_bytes() == before
    np.save(path.with_name("rows.npy"), ROWS)
    assert main(["resume", "cut.h5", *trust(path)]) == 0
    assert main(["replay", "cut.h5", *trust(path)]) == 0


def test_compare_names_other_data(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(path), "-o", "a.h5"]) == 0
    change_data(path)
    assert main(["simulate", str(path), "-o", "b.h5"]) == 0
    shutil.copy("a.h5", "old.h5")
    forget_digest("old.h5")
    one, other = digest_of("a.h5"), digest_of("b.h5")
    words = {
        "a.h5": "the same in both runs",
        "b.h5": f"DIFFERENT: SHA-256 {one[:12]} and {other[:12]}; compare runs on the same data",
        "old.h5": "not known: a run has no digest of its data",
    }
    equal = {"a.h5": True, "b.h5": False, "old.h5": None}
    for second in words:
        capsys.readouterr()
        main(["compare", "a.h5", second, "--loss-within", "1e9"])
        assert f"data        {words[second]}\n" in capsys.readouterr().out
        main(["compare", "a.h5", second, "--json", "--loss-within", "1e9"])
        found = json.loads(capsys.readouterr().out)["data"]
        assert found == {"first": one, "second": digest_of(second), "equal": equal[second]}


def test_compare_is_silent_about_data_where_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(write(tmp_path, "delays")), "-o", "a.h5"]) == 0
    capsys.readouterr()
    assert main(["compare", "a.h5", "a.h5"]) == 0
    assert "\ndata " not in capsys.readouterr().out
