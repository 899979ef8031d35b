"""The comparison with other frameworks without them: what is timed and checked, environments, the page."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import bench_peers
import pytest
from bench_peers import Effort, Entrant, Piece
from peers import environments
from peers.environments import Needs
from peers.window import Plan, Report, Window

from areabench.errors import UserError

PLAN = Plan(clients=4, local_steps=50, window_s=1.0, data="", folder="")


# ---------------------------------------------------------------------------------------------------- window


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, its only element, as a program sees it."""
    now_s = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    return now_s


def test_a_window_begins_after_the_warm_up_and_ends_when_its_time_is_over(clock: list[float]) -> None:
    timed = Window(PLAN, warm_up=2)
    for updates, now_s in enumerate((1.0, 5.0, 5.75, 6.5, 9.0), start=1):
        clock[0] = now_s
        timed.note(updates, 50 * updates)
        assert timed.is_over == (updates >= 4)
    assert timed.report() == Report(updates=2, local_steps=100, seconds=1.5)


def test_local_steps_that_were_not_made_are_an_error(clock: list[float]) -> None:
    timed = Window(PLAN, warm_up=0)
    timed.note(0, 0)
    clock[0] = 1.0
    timed.note(2, 99)
    with pytest.raises(RuntimeError, match="99 local steps were executed, expected 100"):
        timed.report()


def test_a_run_that_ends_within_the_window_is_an_error() -> None:
    timed = Window(PLAN, warm_up=0)
    timed.note(0, 0)
    with pytest.raises(RuntimeError, match="within the window"):
        timed.report()


@pytest.mark.parametrize(("clients", "buffer", "share"), [(4, 2, 14_976), (128, 10, 448)])
def test_clients_hold_whole_batches(clients: int, buffer: int, share: int) -> None:
    plan = Plan(clients, 1, 1.0, "", "")
    assert (plan.buffer, plan.share) == (buffer, share)


# ---------------------------------------------------------------------------------------------------- programs


def entrant_of(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Entrant:
    """An entrant whose program is this code."""
    (folder / "made_up_peer.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Entrant("made up", ("made_up_peer",), None, "", "")


def measure(entrant: Entrant, folder: Path) -> Report:
    """What its program reports for two clients and three local steps."""
    return bench_peers.measure_piece(Path(sys.executable), entrant, Plan(2, 3, 0.1, "", str(folder)))


def test_the_last_line_of_a_program_is_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from peers.window import Report, run_program
print("something else")
run_program(lambda plan: Report(plan.clients, plan.clients * plan.local_steps, 0.5))
"""
    assert measure(entrant_of(tmp_path, code, monkeypatch), tmp_path) == Report(2, 6, 0.5)


def test_the_last_line_of_the_error_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entrant = entrant_of(tmp_path, "raise ValueError('no such scheme')", monkeypatch)
    with pytest.raises(UserError, match="^ValueError: no such scheme$"):
        measure(entrant, tmp_path)


def test_what_fails_is_named_and_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def report(_python: Path, entrant: Entrant, plan: Plan) -> Report:
        if entrant.name == "second":
            raise UserError("took too long")
        return Report(10, 10 * plan.local_steps, 2.0)

    monkeypatch.setattr(bench_peers, "measure_piece", report)
    entrants = [Entrant(name, (), None, "", "") for name in ("first", "second")]
    effort = Effort(((4, 1),), 1.0, turns=2)
    rates, failures = bench_peers.measure_turns(dict.fromkeys(("first", "second"), Path()), entrants, effort)
    assert rates == {Piece("first", (4, 1)): [5.0, 5.0]}
    assert failures == {f"second, n = 4, M = 1, turn {turn}": "took too long" for turn in (1, 2)}


# ---------------------------------------------------------------------------------------------------- environments


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_run", lambda *_, **__: pytest.fail("nothing is to be installed"))
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "installed").write_text("torch==2 made==1\n", encoding="utf-8")
    python = environments.make_environment(tmp_path, Needs("made", "made==1", "made"), "torch==2")
    assert python == tmp_path / "made" / "bin" / "python"


def test_what_cannot_be_installed_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_home: Path, _needs: Needs, _torch: str) -> Path:
        raise UserError("No matching distribution found")

    monkeypatch.setattr(bench_peers, "make_environment", refuse)
    entrants = [Entrant("own", (), None, "", ""), Entrant("other", (), Needs("other", "other==1", "other"), "", "")]
    pythons, failures = bench_peers.find_pythons(entrants, "torch")
    assert pythons == {"own": Path(sys.executable)}
    assert failures == {"other": "not installed: No matching distribution found"}


# ---------------------------------------------------------------------------------------------------- page


def test_the_page_has_a_row_for_what_was_measured_and_names_the_rest() -> None:
    needs = Needs("other", "other==1", "other")
    entrants = [Entrant("own", (), None, "a scheme", ""), Entrant("other", (), needs, "", "")]
    effort = Effort(((4, 1), (4, 50)), 1.0, turns=1)
    page = bench_peers.page(entrants, {Piece("own", (4, 50)): [7.0]}, {"other": "not installed: gone"}, effort)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    assert rows[0] == ["updates/s", "n = 4, M = 1", "n = 4, M = 50"]
    assert rows[2:] == [["own", "–", "7 (7 to 7)"]]
    assert page.endswith("## What is missing\n\n- other: not installed: gone\n")
