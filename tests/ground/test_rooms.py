"""The rooms stay narrow, and a name means one thing in all of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDEST = 14  # Python files in a folder


def test_no_folder_is_wide() -> None:
    counts = {folder: len([*folder.glob("*.py")]) for top in ("src", "tests") for folder in ROOT.glob(f"{top}/**/")}
    wide = {str(folder): count for folder, count in counts.items() if count > WIDEST and folder.name != "methods"}
    assert not wide, f"more than {WIDEST} Python files; join what is one idea, or make a folder"


def test_the_name_of_a_class_is_used_once() -> None:
    """Neither for another class nor for an alias of a type; type variables are local to their module."""
    used, classes = defaultdict(list), set()
    for path in ROOT.glob("src/**/*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                used[node.name].append(path.name)
                classes.add(node.name)
            elif isinstance(node, ast.Assign) and "TypeVar(" not in ast.unparse(node.value):
                for name in node.targets:
                    used[ast.unparse(name)].append(path.name)
    assert not {name: used[name] for name in classes if len(used[name]) > 1}, "two meanings; rename one of them"
