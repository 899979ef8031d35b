"""A machine that gives ranks too little: it is said before mpirun starts; HOME that is not set is found."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.errors import UserError
from areabench.host import spare_home
from areabench.launching import doctor
from areabench.launching.doctor import Mark
from areabench.launching.mpirun import check_machine, few_descriptors, little_shared_memory
from areabench.problems.datasets import default_cache


@pytest.mark.parametrize(("ranks", "needed"), [(3, 36), (9, 60)])
def test_open_files(ranks: int, needed: int) -> None:
    assert few_descriptors(ranks, needed) == ("", "")
    assert few_descriptors(ranks, resource.RLIM_INFINITY) == ("", "")
    trouble, remedy = few_descriptors(ranks, needed - 1)
    assert trouble == f"{needed - 1} open files allowed, mpirun needs {needed} for {ranks} ranks"
    assert remedy == f"`ulimit -n {needed}` or more"


def shared(free: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder have so many bytes free."""
    usage = shutil.disk_usage(folder)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def test_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared(64_000_000, monkeypatch, tmp_path)  # what a container has
    assert little_shared_memory({}, tmp_path) == ("", "")
    shared(16_000_000, monkeypatch, tmp_path)
    trouble, remedy = little_shared_memory({}, tmp_path)
    assert trouble == f"{tmp_path}: 16 MB free, MPI needs 32 MB"
    assert "--shm-size=1g" in remedy
    assert little_shared_memory({"OMPI_MCA_btl_sm_backing_directory": "/tmp"}, tmp_path) == ("", "")
    assert little_shared_memory({}, tmp_path / "missing") == ("", "")
    finding = doctor.check_temporary({"TMPDIR": str(tmp_path)}, shared=tmp_path)
    assert (finding.mark, finding.remedy) == (Mark.FAIL, remedy)


@pytest.mark.parametrize(("allowed", "mark"), [(20, Mark.FAIL), (32, Mark.WARN), (1024, Mark.OK)])
def test_the_doctor_counts_open_files(allowed: int, mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    finding = doctor.check_open_files(2)
    assert (finding.mark, bool(finding.remedy)) == (mark, mark != Mark.OK)
    assert finding.text.startswith(f"{allowed:,} ")


def test_a_launch_is_refused_before_mpirun_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text(quadratic("horizon_s = 1.0"), encoding="utf-8")
    monkeypatch.setattr("areabench.launching.run.mpirun_command", lambda *_: ["/bin/false"])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 32))
    assert main(["launch", str(tmp_path / "a.toml"), "-o", str(tmp_path / "a.h5")]) == 2
    expected = "areabench: 32 open files allowed, mpirun needs 36 for 3 ranks; `ulimit -n 36` or more\n"
    assert capsys.readouterr().err == expected


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
    (tmp_path / "a.toml").write_text(quadratic("horizon_s = 1.0"), encoding="utf-8")
    assert main(["check", "a.toml"]) == 0
    assert os.environ["HOME"] == str(spare_home())


def test_the_doctor_says_that_home_is_not_set() -> None:
    assert doctor.check_home("/home/me", given=True).mark == Mark.OK
    finding = doctor.check_home("/home/me", given=False)
    assert (finding.mark, finding.text) == (Mark.WARN, "HOME is not set; /home/me is used")
