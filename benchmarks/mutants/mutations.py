"""Mutants of a module: every small change that is tried, as a span of its text and what stands there instead.

Words are not changed (strings, docstrings, annotations), nor assertions, which are for the type checker.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import shorten
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
WIDTH = 100  # of what a key shows of the text before and after
PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr, ast.Subscript)  # conditions that are nothing but true


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    key: str  # names it whatever the line: file, function, what becomes of what, and which of several alike
    path: str  # below src/areabench
    line: int
    statement: int  # the line at which its statement begins
    first: int  # byte of the span
    last: int  # byte behind it
    text: str  # that stands there instead

    def apply(self, source: bytes) -> bytes:
        """The changed source."""
        return source[: self.first] + self.text.encode() + source[self.last :]


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    content, found, alike = source.encode(), list[Mutant](), Counter[str]()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function, statement, node, text in _changes(ast.parse(source), "", 1):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before, after = (shorten(words, WIDTH, placeholder=" ...") for words in (content[first:last].decode(), text))
        key = f"{path} {function or 'module'}: {before} -> {after}"
        alike[key] += 1
        key += f" ({alike[key]})" if alike[key] > 1 else ""
        found.append(Mutant(key, path, node.lineno, statement, first, last, text))
    return found


class Change(NamedTuple):
    """A node that is replaced, the function and the first line of the statement that it is in, and the new text."""

    function: str
    statement: int
    node: ast.expr | ast.stmt
    text: str


def _changes(node: ast.AST, function: str, statement: int) -> Iterator[Change]:
    """The changes below a node."""
    for child in ast.iter_child_nodes(node):
        if _is_left_alone(node, child):
            continue
        inner, line = function, child.lineno if isinstance(child, ast.stmt) else statement
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}" if function else child.name
        if isinstance(child, ast.expr | ast.stmt):
            yield from (Change(inner, line, child, text) for text in _replacements(child))
        if isinstance(child, ast.If | ast.While | ast.IfExp) and isinstance(child.test, PLAIN):
            yield Change(inner, line, child.test, f"(not ({ast.unparse(child.test)}))")
        yield from _changes(child, inner, line)


def _is_left_alone(parent: ast.AST, child: ast.AST) -> bool:
    if isinstance(child, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(child, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in child.bases):
        return True
    if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
        return True
    if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "isinstance" and child is not parent.args[0]:
        return True
    annotations = (getattr(parent, "annotation", None), getattr(parent, "returns", None))
    decorators = getattr(parent, "decorator_list", [])
    return any(child is each for each in (*annotations, *decorators, *getattr(parent, "type_params", [])))


def _replacements(node: ast.expr | ast.stmt) -> Iterator[str]:
    match node:
        case ast.Compare(left, [operator, *operators], comparators) if type(operator) in COMPARISONS:
            yield _text(ast.Compare(left, [COMPARISONS[type(operator)](), *operators], comparators))
        case ast.BinOp(left, operator, right) if not _is_text(left):
            yield _text(ast.BinOp(left, OPERATORS[type(operator)](), right))
        case ast.BoolOp(operator, values):
            yield _text(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(ast.Not(), operand) | ast.UnaryOp(ast.Invert(), operand) | ast.UnaryOp(ast.USub(), operand):
            yield _text(operand)
        case ast.Constant(bool() as value):
            yield str(not value)
        case ast.Constant(int() | float() as value):
            yield repr(value + 1)
        case ast.Return(value) if value is not None and not _is_none(value):
            yield "return None"
        case ast.AugAssign(target, operator, value):
            yield f"{ast.unparse(target)} {_sign(OPERATORS[type(operator)]())}= {ast.unparse(value)}"
            yield "pass"
        case ast.Assign(targets) if any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield "pass"
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            yield "pass"
        case _:
            pass


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _sign(operator: ast.operator) -> str:
    return ast.unparse(ast.BinOp(ast.Name("a"), operator, ast.Name("b")))[2:-2]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.expr) -> bool:
    """Whether this is words that are put together."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
