"""A name means one thing in all rooms."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_name_of_a_class_or_function_is_used_once() -> None:
    """Neither for another one nor for an alias of a type; type variables are local to their module."""
    used, defined = defaultdict(list), set()
    for path in ROOT.glob("src/**/*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("__"):
                if isinstance(node, ast.ClassDef) or not node.name.startswith("_"):
                    used[node.name].append(path.name)
                    defined.add(node.name)
            elif isinstance(node, ast.Assign) and "TypeVar(" not in ast.unparse(node.value):
                for name in node.targets:
                    used[ast.unparse(name)].append(path.name)
    assert not {name: used[name] for name in defined if len(used[name]) > 1}, "two meanings; rename one of them"
