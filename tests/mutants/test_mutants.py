"""The tool itself: which changes it makes, which it draws, and what it takes for noticed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from benchmarks.mutants.__main__ import Draw, draw_new, enumeration, page_words, parser
from benchmarks.mutants.mutations import Mutant, mutants_of
from benchmarks.mutants.reach import Reach
from benchmarks.mutants.score import Score, page, wilson
from benchmarks.mutants.trial import Verdict, append_log, batches, read_log


def changed(source: str) -> list[str]:
    """What becomes of a source."""
    return [mutant.apply(source.encode()).decode() for mutant in mutants_of("room/one.py", source)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", ["(a <= b)"]),
        ("a is not b", ["(a is b)"]),
        ("a + b", ["(a - b)"]),
        ("a and b", ["(a or b)"]),
        ("not a", ["(a)"]),
        ("x = 3", ["x = 4"]),
        ("x = True", ["x = False"]),
        ("ü = a[1]", ["ü = a[2]"]),
        ("call()", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["a -= b", "pass"]),
        ("x = a if b else c", ["x = a if (not (b)) else c"]),
        ("def f(a: int = 0) -> int | None: return a", ["def f(a: int = 0) -> int | None: return None"]),
        ("isinstance(a, B | C)", ["pass"]),
        ("raise E(f'{a + 1}')", ["pass"]),
        ("assert a is not None", []),
        ("import a", []),
        ("x = 'words'", []),
    ],
)
def test_every_change_is_made_alone(before: str, after: list[str]) -> None:
    found = changed(before)
    if before.startswith("def"):
        found = [text for text in found if "return None" in text]  # and the default, which is a number like others
    assert found == after


def test_a_key_names_a_mutant_whatever_the_line() -> None:
    source = "def f():\n    return g(1, 1)\n"
    keys = [mutant.key for mutant in mutants_of("room/one.py", source)]
    assert keys == [
        "room/one.py f: return g(1, 1) -> return None", "room/one.py f: 1 -> 2", "room/one.py f: 1 -> 2 (2)",
    ]  # fmt: skip
    assert [mutant.key for mutant in mutants_of("room/one.py", "\n\n" + source)] == keys


def mutant(key: str, line: int = 1, statement: int = 1) -> Mutant:
    return Mutant(key, "engine/one.py", line, statement, 0, 0, "")


def test_a_larger_draw_has_the_smaller_one_in_it() -> None:
    every = {key: mutant(key) for key in "abcdefgh"}
    few, many = (Draw(1).of(every.values(), count) for count in (2, 5))
    assert (len(few), len(many)) == (2, 5)
    assert many[:2] == few
    assert Draw(2).of(every.values(), 5) != many


def test_a_draw_leaves_out_what_each_earlier_one_had_seen() -> None:
    every = {key: mutant(key) for key in "abcdefgh"}
    first, _ = draw_new(every, 2, Draw(1), [])
    second, seen = draw_new(every, 2, Draw(2), [Draw(1)])
    assert seen == first
    third, seen = draw_new(every, 2, Draw(3), [Draw(1), Draw(2)])
    assert seen == first + second
    assert len({*first, *second, *third}) == 6


def test_an_earlier_draw_may_have_been_in_some_rooms_only() -> None:
    every = {key: mutant(key) for key in "abcdefgh"}
    assert draw_new(every, 2, Draw(3), [Draw.parsed("1:runfile")]) == (Draw(3).of(every.values(), 2), [])
    assert draw_new(every, 8, Draw(3), [Draw.parsed("1:runfile,engine")])[0] == []
    assert [str(Draw.parsed(text)) for text in ("1", "2:engine,runfile")] == ["1", "2:engine,runfile"]
    with pytest.raises(argparse.ArgumentTypeError, match="no room: cellar"):
        Draw.parsed("1:cellar")


def test_the_page_names_all_earlier_draws() -> None:
    words = page_words(parser().parse_args(["--seed", "9", "--seen", "1", "2", "3:engine", "--rooms", "engine"]))
    assert words["command"] == "python -m benchmarks.mutants --sample 200 --seed 9 --rooms engine --seen 1 2 3:engine"
    assert words["seen"] == "seeds 1, 2 and 3"
    assert [enumeration(list(letters)) for letters in ("", "a", "ab")] == ["", "a", "a and b"]


def test_the_tests_of_a_mutant_are_those_that_reach_it() -> None:
    reach = Reach(
        {"engine/one.py": {1: [""], 2: ["a", "b"], 3: ["b", "c"], 5: []}}, {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5}
    )  # fmt: skip
    assert reach.tests(mutant("", 2)) == ["b", "a"]
    assert reach.tests(mutant("", 4, 3)) == ["c", "b"]  # a statement of several lines
    assert reach.tests(mutant("", 1)) == ["d", "c", "b", "a"]  # run by the import
    assert reach.tests(mutant("", 5, 5)) == []


def test_the_first_batch_is_one_file_of_the_room() -> None:
    tests = ["tests/cli/x.py::a", "tests/engine/y.py::a", "tests/cli/x.py::b", "tests/engine/y.py::b"]
    assert batches(tests, "engine") == [tests[1::2], tests[::2]]
    assert batches(tests[:1], "engine") == [tests[:1]]


def test_the_last_verdict_in_the_log_counts(tmp_path: Path) -> None:
    for state in ("survived", "killed"):
        append_log(tmp_path / "log", Verdict("a", state, "", 1.0, "1", "2"))
    assert read_log(tmp_path / "log")["a"].noticed
    assert read_log(tmp_path / "none") == {}


def test_the_score_leaves_out_what_is_equivalent() -> None:
    score = Score("engine", 1000, 50, 10, 36)
    assert score.share == 90.0
    assert wilson(36, 40) == pytest.approx((76.95, 96.04), abs=0.01)  # as tables have it
    assert score.row() == "| engine | 1,000 | 50 | 10 | 36 | 4 | 90.0 | 76.9 to 96.0 |"


def test_the_page_says_what_was_left_out() -> None:
    """What was drawn before is tried again only if asked for."""
    words = page_words(parser().parse_args(["--seed", "9", "--seen", "1", "2"]))
    scores = [Score("all", 10, 4, 0, 4)]
    assert "\nLeft out are the mutants that were drawn by seeds 1 and 2 before" in page([scores], [], words)
    assert "Left out" not in page([scores, scores], [], words)
    assert "Left out" not in page([scores], [], words | {"seen": ""})
