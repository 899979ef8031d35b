"""The parts of the fault campaign: it must see what is wrong, and must be the same for the same seed."""

from __future__ import annotations

import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.campaign import __main__ as program
from benchmarks.campaign.cases import Case, draw_case
from benchmarks.campaign.checks.contents import InvariantReplay, broken_invariant, difference
from benchmarks.campaign.checks.damage import changed_number, damage
from benchmarks.campaign.checks.ended import is_one_line
from benchmarks.campaign.checks.file import check_file
from benchmarks.campaign.checks.run import check_never_begun
from benchmarks.campaign.commands import Room
from benchmarks.campaign.defects import MARK, defect_module, start_module
from benchmarks.campaign.faults import Disc
from benchmarks.campaign.findings import Finding, append_log, read_log
from benchmarks.campaign.kinds import DONE, MPI, Act, either, kinds
from benchmarks.campaign.page import Origin, page
from benchmarks.campaign.processes import RANK_VARIABLES, TOKEN, Ended, processes_of, rank_process, start
from tests.support.edited import edited

from areabench.cli import main as cli
from areabench.engine.events import Reason, State
from areabench.errors import RunFileError
from areabench.experiment.parse import parse_experiment
from areabench.runfile.read import open_run

AREA = """
[problem]
name = "quadratic"
dimension = 3
noise = 0.1
[clients]
count = 3
[rates]
name = "uniform"
rate = 10.0
[method]
name = "area"
step_size = 0.02
[stop]
horizon_s = 2.0
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A short run of AREA in the simulator."""
    experiment, path = tmp_path / "area.toml", tmp_path / "run.h5"
    experiment.write_text(AREA)
    assert cli.main(["simulate", str(experiment), "--output", str(path)]) == 0
    return path


def finding(number: int = 0, kind: str = "mpi: no fault") -> Finding:
    return Finding(1, number, kind, "area", "quadratic", 4)


# ------------------------------------------------------------------------------------------------------------ cases


def test_a_case_depends_on_seed_and_number_alone() -> None:
    assert draw_case(1, 77) == draw_case(1, 77)
    assert draw_case(1, 77) != draw_case(2, 77)


def test_every_experiment_of_a_campaign_is_valid_and_each_kind_comes_as_often() -> None:
    cases = [draw_case(1, number) for number in range(8 * len(kinds()))]
    for case in cases:
        experiment = parse_experiment(case.drawn.text)
        assert experiment.clients.count == case.drawn.clients == case.ranks - 1
        assert 5 <= case.ranks <= 9
        assert experiment.stop.horizon_s == case.drawn.horizon_s
        assert (experiment.faults.bad_update == "stop") == case.stops
    counts = {kind.key: sum(case.kind == kind for case in cases) for kind in kinds()}
    assert set(counts.values()) == {8}
    assert len(counts) == len(kinds())


def test_a_client_that_is_always_refused_may_end_a_synchronous_run_and_no_other() -> None:
    case = replace(bad_update("nan"), always=True, stops=False)
    synchronous = replace(case, drawn=replace(case.drawn, method="s-fedavg"))
    assert replace(case, drawn=replace(case.drawn, method="area")).expected.states == (State.DONE,)
    assert State.DIVERGED in synchronous.expected.states
    assert synchronous.expected.reason == Reason.NOT_FINITE
    assert replace(case, stops=True).expected.states == (State.FAILED,)


def bad_update(detail: str) -> Case:
    number = next(number for number, kind in enumerate(kinds()) if (kind.transport, kind.detail) == (MPI, detail))
    return draw_case(1, number)


def test_every_defect_is_a_module_that_compiles() -> None:
    defects = [case for number in range(len(kinds())) if (case := draw_case(1, number)).kind.act is Act.DEFECT]
    for case in defects:
        compile(defect_module(case, RANK_VARIABLES), case.name, "exec")
    assert len(defects) == 9


def test_every_death_at_the_start_is_a_module_that_compiles() -> None:
    deaths = [case for number in range(len(kinds())) if (case := draw_case(1, number)).kind.act is Act.DIE_AT_START]
    for case in deaths:
        compile(start_module(case, RANK_VARIABLES), case.name, "exec")
    assert [case.dying_rank > 0 for case in deaths] == [True, True, False, False]


def test_two_faults_lead_to_what_one_of_them_leads_to() -> None:
    faults = {kind.name: kind for kind in kinds() if kind.transport == MPI}
    client, signal_, disc = faults["client killed, ULFM, keep"], faults["SIGTERM to rank 0"], faults["full disc"]
    assert either([client, client]).states == (State.DONE,)
    assert either([client, client]).lost == (2,)
    assert either([client, signal_]).states == (State.STOPPED,)
    assert either([client, signal_]).lost == (0, 1)
    assert either([signal_, disc]).codes == (4, 1)
    late = [faults["SIGTERM to `areabench launch`"], faults["server stopped and continued"]]
    assert either(late).states == (State.STOPPED, State.DONE)


def test_a_kind_of_two_faults_is_drawn_from_pairs_with_the_one_that_it_names() -> None:
    for number in range(8 * len(kinds())):
        case = draw_case(1, number)
        assert len(case.pair) == 2 * (case.kind.act is Act.TWO)
        assert not case.pair or case.kind.detail in [fault.name for fault in case.pair]


# -------------------------------------------------------------------------------------------------------- processes


def test_processes_are_found_by_their_token_and_what_is_left_is_ended(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    environment = {**os.environ, TOKEN: f"test-{os.getpid()}", "OMPI_COMM_WORLD_RANK": "3"}
    started = start([sys.executable, "-c", child + "; print('gone')"], tmp_path, "parent", environment)
    assert started.wait_until(lambda: len(processes_of(started.token)) > 0, 20)
    assert rank_process(started.token, 3) is not None
    assert rank_process(started.token, 2) is None
    started.process.wait(20)
    ended = start([sys.executable, "-c", ""], tmp_path, "other", {**environment, TOKEN: "another"}).end(20)
    assert (ended.code, ended.left, ended.hung) == (0, 0, False)
    (left,) = processes_of(started.token)
    os.kill(left, signal.SIGKILL)


def test_a_command_that_does_not_end_is_hung_and_killed(tmp_path: Path) -> None:
    environment = {**os.environ, TOKEN: f"hung-{os.getpid()}"}
    started = start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, "hung", environment)
    ended = started.end(0.2)
    assert ended.hung
    assert ended.left == 1
    assert processes_of(started.token) == {}


# ----------------------------------------------------------------------------------------------------------- checks


def test_the_invariant_holds_in_a_run_and_its_breach_is_seen(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_invariant(run_file, run_file.parent) == ""
    distance = InvariantReplay._distance
    monkeypatch.setattr(InvariantReplay, "_distance", lambda self: distance(self) + 1e-9)
    assert "AREA's invariant is off" in broken_invariant(run_file, run_file.parent)


def test_a_run_of_one_client_forgotten_breaks_the_invariant(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = InvariantReplay.__init__

    def forgetful(self: InvariantReplay, *arguments: object) -> None:
        built(self, *arguments)  # type: ignore[arg-type]
        self._counts[0] = False

    monkeypatch.setattr(InvariantReplay, "__init__", forgetful)
    assert "AREA's invariant is off" in broken_invariant(run_file, run_file.parent)


def test_two_files_differ_in_a_bit_of_a_row_or_in_their_status(run_file: Path) -> None:
    other = run_file.with_name("other.h5")
    other.write_bytes(run_file.read_bytes())
    assert difference(run_file, other) == ""
    with edited(other) as file:
        model = file["snapshots/model"][2]
        file["snapshots/model"][2] = np.nextafter(model, 1.0)
    assert difference(run_file, other) == "/snapshots/model differs"
    assert difference(other, run_file) == "/snapshots/model differs"


def test_a_file_that_is_no_run_file_is_not_readable(tmp_path: Path) -> None:
    room, found = Room(tmp_path, "none", tmp_path / "run.h5"), finding()
    room.run_file.write_bytes(b"nothing")
    assert check_file(room, found, room.run_file, "the run") is None
    assert found.readable is False
    assert not found.passed


@pytest.mark.parametrize("detail", ["truncated", "flipped", "row", "attribute", "status"])
def test_damage_changes_a_copy_and_leaves_the_file(run_file: Path, detail: str) -> None:
    damaged, whole = run_file.with_name("damaged.h5"), run_file.read_bytes()
    damage(detail, random.Random(1), run_file, damaged)
    assert run_file.read_bytes() == whole
    assert damaged.read_bytes() != whole
    assert (len(damaged.read_bytes()) < len(whole)) == (detail == "truncated")


@pytest.mark.parametrize("detail", ["row", "attribute", "status"])
def test_a_bit_of_a_number_is_always_noticed(run_file: Path, detail: str) -> None:
    for seed in range(10):
        damaged = run_file.with_name(f"damaged-{seed}.h5")
        damage(detail, random.Random(seed), run_file, damaged)
        with pytest.raises(RunFileError):
            open_run(damaged)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("events", "events"), ("snapshots/index", "snapshots"), ("snapshots/model", "models"), ("metrics", "metrics"),
        ("clients", "clients"),
    ],
)  # fmt: skip
def test_a_number_that_changed_on_the_way_is_named(run_file: Path, name: str, said: str) -> None:
    other = run_file.with_name("other.h5")
    other.write_bytes(run_file.read_bytes())
    with open_run(run_file) as whole, open_run(other) as same:
        assert changed_number(same, whole) == ""
    with edited(other) as file:
        rows = file[name][()]
        rows.view(np.uint8).reshape(-1)[2] ^= 1
        file[name][...] = rows
    with open_run(run_file) as whole, open_run(other) as changed:
        assert changed_number(changed, whole) == said


def test_one_line_may_follow_what_a_long_start_waits_for() -> None:
    assert is_one_line("areabench: waiting for 9 ranks (10 s)\nareabench: run.h5: failed\n")
    assert not is_one_line("areabench: waiting for 9 ranks (10 s)\n")
    assert not is_one_line("areabench: one\nareabench: two\n")


@pytest.mark.parametrize(
    ("errors", "named"),
    [
        ("areabench: rank 3 (PID 7) died before the run began; all ranks were ended\n", True),
        ("areabench: rank 0: ranks [3] were lost before the run began; all are ended\n", True),
        ("areabench: rank 13 died before the run began\n", False),
        ("areabench: mpirun returned 137\n", False),
    ],
)
def test_a_run_that_never_began_names_its_rank(tmp_path: Path, errors: str, named: bool) -> None:
    number = next(number for number, kind in enumerate(kinds()) if kind.act is Act.DIE_AT_START)
    case, found = replace(draw_case(1, number), victim=2), finding()
    room = Room(tmp_path, "none", tmp_path / "disc" / "run.h5")
    room.run_file.parent.mkdir()
    (tmp_path / MARK).write_text("0 100.0\n")
    check_never_begun(case, room, found, Ended(1, "", errors, hung=False, left=0, ended_at=103.0))
    assert found.passed == named
    assert found.ending_s == 3.0


def test_a_limit_fills_the_disc_of_one_process(tmp_path: Path) -> None:
    writer = (
        "import sys\nfile = open(sys.argv[1], 'wb', buffering=0)\nfile.write(bytes(100))\ninput()\n"
        "try:\n    file.write(bytes(1))\nexcept OSError as error:\n    print(error.errno)\n"
    )
    target, environment = tmp_path / "grows", {**os.environ, TOKEN: f"disc-{os.getpid()}"}
    read_end, write_end = os.pipe()
    started = start([sys.executable, "-c", writer, str(target)], tmp_path, "w", environment, stdin=read_end)
    assert started.wait_until(lambda: target.exists() and target.stat().st_size == 100, 20)
    assert Disc(tmp_path, mounted=False).fill(started.process.pid, target)
    os.write(write_end, b"\n")
    assert started.end(20).output.strip() == "27"  # EFBIG
    os.close(read_end)
    os.close(write_end)


# ------------------------------------------------------------------------------------------------------ log and page


def test_a_campaign_continues_where_its_log_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def play(case: Case, seed: int, folder: Path) -> Finding:
        ran.append(case.number)
        found = finding(case.number, case.kind.key)
        found.hit, found.state, found.code = True, "done", 0
        if case.number == 1:
            found.fail("something")
        return found

    monkeypatch.setattr(program, "run_case", play)
    options = ["--folder", str(tmp_path), "--seed", "1"]
    assert program.main([*options, "--runs", "3"]) == 1
    assert program.main([*options, "--runs", "4", "--jobs", "2"]) == 1
    assert sorted(ran) == [0, 1, 2, 3]
    assert program.main([*options, "--runs", "1"]) == 0
    assert program.main([*options, "--runs", "4", "--again"]) == 1
    assert sorted(ran) == [0, 1, 1, 2, 3]
    assert program.main([*options, "--runs", "4", "--minutes", "0", "--seed", "2"]) == 0
    assert len(ran) == 5


def test_a_log_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    append_log(log, finding(0))
    append_log(log, finding(1))
    log.write_text(log.read_text()[:-20])
    assert list(read_log(log, 1)) == [0]
    append_log(log, finding(1))
    assert list(read_log(log, 1)) == [0, 1]
    assert read_log(log, 2) == {}


def test_the_page_counts_what_was_seen() -> None:
    first, second, third = (
        finding(0, "mpi: client killed"),
        finding(1, "mpi: client killed"),
        finding(2, "mpi: no fault"),
    )
    for one in (first, third):
        one.hit, one.readable, one.replayed, one.resumed = True, True, True, True
    first.state, first.code, first.ending_s = "failed", 137, 2.5
    third.state, third.code = "done", 0
    second.state, second.code, second.readable, second.replayed = "done", 0, True, False
    second.fail("replay: exit code 1")
    text = page([first, second, third], Origin("python -m benchmarks.campaign", 120.0))
    assert "| mpi: client killed | 2 | 1 | failed 137 | 1/1 |  | 2.5 s |\n" in text
    assert "| mpi: no fault | 1 |  | done 0 |" in text
    assert "| **total** | 3 | 1 |" in text
    assert ": 3 runs, 1 fault hit, 1 missed, 1 run without a fault, **1 run failed**." in text
    assert "No process left: 3/3; no hang: 3/3; readable: 3/3; replayed: 2/3." in text
    assert "- run 1 (mpi: client killed, area): replay: exit code 1" in text
    assert DONE.codes == (0,)
