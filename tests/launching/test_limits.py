"""A machine that gives ranks too little: it is said before mpirun starts; HOME that is not set is found."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support.answers import answer, complaint
from tests.support.texts import quadratic

from areabench.errors import UserError
from areabench.host import spare_home
from areabench.launching.mpirun import check_machine, few_descriptors, little_shared_memory
from areabench.problems.datasets import default_cache


@pytest.mark.parametrize(("ranks", "needed"), [(3, 36), (9, 60)])
def test_open_files(ranks: int, needed: int) -> None:
    assert few_descriptors(ranks, needed) == ("", "")
    assert few_descriptors(ranks, resource.RLIM_INFINITY) == ("", "")
    trouble, remedy = few_descriptors(ranks, needed - 1)
    assert trouble == f"{needed - 1} open files allowed, mpirun needs {needed} for {ranks} ranks"
    assert remedy == f"`ulimit -n {needed}` or more"


@pytest.mark.parametrize(
    ("free", "trouble"), [(64_000_000, ""), (16_000_000, "16 MB free, MPI needs 32 MB")]
)  # the first is what a container has
def test_shared_memory(free: int, trouble: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found, remedy = little_shared_memory({}, tmp_path)
    assert found == (f"{tmp_path}: {trouble}" if trouble else "")
    assert ("--shm-size=1g" in remedy) == bool(trouble)
    assert little_shared_memory({"OMPI_MCA_btl_sm_backing_directory": "/tmp"}, tmp_path) == ("", "")
    assert little_shared_memory({}, tmp_path / "missing") == ("", "")


def test_a_launch_is_refused_before_mpirun_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(quadratic("horizon_s = 1.0"), encoding="utf-8")
    monkeypatch.setattr("areabench.launching.run.mpirun_command", lambda *_: ["/bin/false"])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 32))
    expected = "areabench: 32 open files allowed, mpirun needs 36 for 3 ranks; `ulimit -n 36` or more"
    assert complaint("launch a.toml -o a.h5") == expected


def test_all_is_well_here() -> None:
    check_machine(2, os.environ)


# ---------------------------------------------------------------------------------------------------- HOME


def nobody(uid: int) -> pwd.struct_passwd:
    raise KeyError(uid)


def test_home_is_that_of_the_user_where_it_is_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = pwd.getpwuid(os.getuid())
    changed = pwd.struct_passwd((*known[:5], str(tmp_path), known[6]))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: changed)
    assert spare_home() == tmp_path


def test_a_user_without_home_has_one_among_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = tmp_path / f"areabench-home-{os.getuid()}"
    assert spare_home() == home
    assert home.stat().st_mode & 0o777 == 0o700
    assert default_cache({}) == home / ".cache" / "areabench"


def test_a_temporary_home_that_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = tmp_path / f"areabench-home-{os.getuid()}"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(UserError, match="HOME is not set, and .* cannot be used instead; set HOME to a folder"):
        spare_home()


def test_a_command_sets_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(quadratic("horizon_s = 1.0"), encoding="utf-8")
    answer("check a.toml")
    assert os.environ["HOME"] == str(spare_home())
