"""The table of the benchmark of launchers, from times that were made up."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "perf"

if TYPE_CHECKING:  # folders of scripts are not on the path of the tests
    import launcher_page
else:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        launcher_page = importlib.import_module("launcher_page")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_times_are_summed_up_over_all_ranks_and_tries() -> None:
    assert launcher_page.summary([[1.0, 2.0], [4.0, 250.4]]) == "3.0 (1.0–250)"
    assert launcher_page.summary([[20.0], []]) == "20 (20–20, in 1 of 2)"
    assert launcher_page.summary([[], []]) == "no"


def test_a_row_names_signals_in_the_order_in_which_they_come() -> None:
    first = launcher_page.Tried({0: {"SIGTERM": 250.0, "SIGCONT": 2.0}, 1: {"SIGCONT": 3.0}}, {0: 500.0, 1: 510.0}, 137)
    second = launcher_page.Tried({0: {"raised": 30.0}, 1: {"raised": 40.0}}, {}, 0)
    assert launcher_page.row([first]) == [
        "SIGCONT 2.5 (2.0–3.0), SIGTERM 250 (250–250)", "no", "no", "505 (500–510)", "137",
    ]  # fmt: skip
    assert launcher_page.row([second]) == ["none", "30 (30–30)", "40 (40–40)", "no", "0"]
    assert launcher_page.row([first, second])[-1] == "0 (1), 137 (1)"


def test_the_page_has_a_row_for_each_launcher_and_case() -> None:
    tried = [launcher_page.Tried({0: {}}, {}, 0)]
    lines = launcher_page.page({("some MPI", "nothing happens"): tried}, 1, "a machine.").splitlines()
    assert lines[0].endswith("over the ranks of 1 launches of 4 ranks each; a machine.")
    assert lines[-1] == "| some MPI | nothing happens | none | no | no | no | 0 |"
