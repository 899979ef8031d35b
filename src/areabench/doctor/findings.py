"""Findings: what was looked at, whether it is well, and what to do where it is not."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_WIDTH = 120
_INDENT = 18


class Mark(StrEnum):
    """How well: `FAIL` keeps a run on MPI from working, `warn` makes it worse than it could be."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's; a remedy where the mark is not ok."""

    name: str
    mark: Mark
    text: str
    remedy: str = ""


def to_page(findings: Sequence[Finding]) -> str:
    """All findings, a line each, remedies below what they are for, and a verdict."""
    return "\n".join([*(line for finding in findings for line in _lines(finding)), _verdict(findings), ""])


def to_record(findings: Sequence[Finding]) -> dict[str, object]:
    """The same for a program."""
    return {"findings": list(findings), "ok": not failed(findings)}


def failed(findings: Sequence[Finding]) -> bool:
    """Whether something must be fixed."""
    return any(finding.mark == Mark.FAIL for finding in findings)


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.mark:<6}{finding.name:<12}{finding.text}"]
    if finding.remedy:
        lines += textwrap.wrap(
            f"-> {finding.remedy}", _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * (_INDENT + 3),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return lines


def _verdict(findings: Sequence[Finding]) -> str:
    fails, warns = ([finding.name for finding in findings if finding.mark == mark] for mark in (Mark.FAIL, Mark.WARN))
    if not fails and not warns:
        return "nothing to fix"
    parts = [f"to fix: {', '.join(fails)}"] * bool(fails) + [f"to look at: {', '.join(warns)}"] * bool(warns)
    return "; ".join(parts)
