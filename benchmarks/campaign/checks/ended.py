"""How a command ended: by itself, alone, with the right exit code, and with one line where it refuses something."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.campaign.findings import Finding
from benchmarks.campaign.processes import Ended


def check_ended(finding: Finding, ended: Ended, what: str) -> None:
    """A command has ended by itself, left no process behind and shown no traceback."""
    if ended.hung:
        finding.no_hang = False
        finding.fail(f"{what} hung")
    elif ended.left:
        finding.none_left = False
        finding.fail(f"{what}: {ended.left} processes were left")
    finding.require("Traceback (most recent call last)" not in ended.errors, f"{what}: shows a traceback")


def check_reported(finding: Finding, ended: Ended, codes: Sequence[int], what: str) -> None:
    """It ended with one of these exit codes, and where it could not do its work it says why in one line."""
    check_ended(finding, ended, what)
    finding.require(ended.code in codes, f"{what}: exit code {ended.code}: {(ended.output + ended.errors)[-300:]}")
    told = ended.code != 2 or is_one_line(ended.errors)
    finding.require(told, f"{what} does not say in one line what is wrong: {ended.errors[:300]!r}")


def is_one_line(errors: str) -> bool:
    """Whether this is one line of areabench, apart from those that say what a long start waits for."""
    lines = [line for line in errors.splitlines() if not line.startswith("areabench: waiting for ")]
    return len(lines) == 1 and lines[0].startswith("areabench: ")
