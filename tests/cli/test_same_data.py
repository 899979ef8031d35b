"""A run file knows which data it was made with: `replay` and `resume` refuse others, `compare` names them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.engine.test_plugins import elsewhere
from tests.support.answers import answer, complaint, record
from tests.support.own_parts import write
from tests.transports.test_resume import stop_at

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


TRUST = "--trust-module ../there/mine.py"


def digest_of(file: str) -> str:
    with open_run(file) as run:
        return run.provenance.data_digest


def forget_digest(file: str) -> None:
    """Make the file one that was recovered without its provenance, as far as its data are concerned."""
    with h5py.File(file, "r+") as opened:
        opened["provenance"].attrs["data_digest"] = ""


def test_the_run_file_has_the_digest_of_the_data(tmp_path: Path) -> None:
    file = write(tmp_path, "split")
    answer("simulate -o run.h5", file)
    settings = load_experiment(file).data
    assert settings is not None
    assert digest_of("run.h5") == load_data(settings, tmp_path).digest()


def test_a_problem_without_data_has_none(tmp_path: Path) -> None:
    answer("simulate -o run.h5", write(tmp_path, "delays"))
    assert digest_of("run.h5") == ""
    assert "\ndata " not in answer("compare run.h5 run.h5").out


def test_replay_refuses_other_data(path: Path) -> None:
    answer("simulate ../there/tiny.toml -o run.h5")
    answer(f"replay run.h5 {TRUST}")
    change_data(path)
    before = digest_of("run.h5")[:12]
    assert re.fullmatch(
        rf"areabench: run\.h5: the data have changed since this run: their SHA-256 was {before}, it is "
        rf"(?!{before})[0-9a-f]{{12}} now; put the old data back, or run the experiment again",
        complaint(f"replay run.h5 {TRUST}"),
    )


def test_replay_without_a_digest_compares_no_data(path: Path) -> None:
    answer("simulate ../there/tiny.toml -o run.h5")
    forget_digest("run.h5")
    answer(f"replay run.h5 {TRUST}")
    change_data(path)
    assert "differs: the update of client" in answer(f"replay run.h5 {TRUST}", code=1).err  # the updates tell


def test_resume_refuses_other_data(path: Path, stop_at: Callable[[int], None]) -> None:
    stop_at(9)
    answer("simulate ../there/tiny.toml -o cut.h5", code=4)
    before = Path("cut.h5").read_bytes()
    stop_at(10**9)
    change_data(path)
    assert "cut.h5: the data have changed since this run" in complaint(f"resume cut.h5 {TRUST}")
    assert Path("cut.h5").read_bytes() == before
    np.save(path.with_name("rows.npy"), ROWS)
    answer(f"resume cut.h5 {TRUST}")
    answer(f"replay cut.h5 {TRUST}")


def test_compare_names_other_data(path: Path) -> None:
    answer("simulate ../there/tiny.toml -o a.h5")
    change_data(path)
    answer("simulate ../there/tiny.toml -o b.h5")
    shutil.copy("a.h5", "old.h5")
    forget_digest("old.h5")
    one = digest_of("a.h5")
    other = digest_of("b.h5")
    for second, equal, words in (
        ("a.h5", True, "the same in both runs"),
        ("b.h5", False, f"DIFFERENT: SHA-256 {one[:12]} and {other[:12]}; compare runs on the same data"),
        ("old.h5", None, "not known: a run has no digest of its data"),
    ):
        command = f"compare a.h5 {second} --loss-within 1e9 --updates-within 1e9"
        assert f"data        {words}\n" in answer(command).out
        assert record(command)["data"] == {"first": one, "second": digest_of(second), "equal": equal}
