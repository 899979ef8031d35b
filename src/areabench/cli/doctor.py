"""`areabench doctor`: check everything around a run on this machine, in a second or two."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence

from areabench.cli import CommandContext
from areabench.errors import UserError, one_line
from areabench.launching import doctor as checks
from areabench.launching.doctor import Finding, Mark, failed, to_record
from areabench.views.styled import BAD, DOUBTFUL, GOOD, Styled, joined

_STYLES = {Mark.OK: GOOD, Mark.WARN: DOUBTFUL, Mark.FAIL: BAD}
_WIDTH, _INDENT = 120, 18  # characters of a line, and before a remedy


def doctor(options: argparse.Namespace, context: CommandContext) -> int:
    """Print all findings; 1 where something fails."""
    if (started := context.started) is not None:
        raise UserError(
            f"{started.launcher} has started {started.ranks} doctors; one is enough, and it starts ranks itself: type "
            "`areabench doctor`"
        )
    findings = list(_examine(options, context))
    context.output.answer(lambda: findings_text(findings), lambda: to_record(findings))
    return 1 if failed(findings) else 0


def _examine(options: argparse.Namespace, context: CommandContext) -> Iterator[Finding]:
    """All findings; a check that fails itself is one too."""
    environment, ranks, cores, runs = context.environment, options.ranks, context.cores, options.runs
    library = checks.find_library(environment)
    family = library.family if isinstance(library, checks.Library) else None
    every: dict[str, Callable[[], Finding]] = {
        "areabench": checks.check_versions,
        "mpi4py": checks.check_mpi4py,
        "MPI library": lambda: checks.check_library(library),
        "launcher": lambda: checks.check_launcher(family),
        "on the path": lambda: checks.check_path(family),
        "open files": lambda: checks.check_open_files(ranks),
        "home": lambda: checks.check_home(environment["HOME"], given=context.home_given),
        "temporary": lambda: checks.check_temporary(environment),
        "two ranks": lambda: checks.check_two_ranks(environment),
        "scheduler": lambda: checks.check_scheduler(environment),
        "cores": lambda: checks.check_cores(cores, ranks),
        "threads": lambda: checks.check_threads(environment, cores, ranks),
        "bytecode": checks.check_bytecode,
        "sleep": checks.check_sleep,
        "cache": lambda: checks.check_cache(context.cache),
        "HDF5": lambda: checks.check_hdf5(runs),
        "disc": lambda: checks.check_disc(runs),
        "memory": lambda: checks.check_memory(ranks),
    }
    for name, check in every.items():
        yield guarded(name, check)


def guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check finds; a check that fails is a finding, not the end of all others."""
    try:
        return check()
    except Exception as error:  # whatever a broken machine makes of it
        return Finding(name, Mark.FAIL, f"cannot be checked: {one_line(error)}", "see what the system says about it")


# ---------------------------------------------------------------------------------------------------- text


def findings_text(findings: Sequence[Finding]) -> Styled:
    """One line per finding, its remedy below it, and a verdict at the end."""
    return joined([*(line for finding in findings for line in _lines(finding)), _verdict(findings)])


def _lines(finding: Finding) -> list[str]:
    mark = Styled((finding.mark.value, _STYLES[finding.mark]), " " * (6 - len(finding.mark)))
    lines: list[str] = [Styled(mark, f"{finding.name:<12}{finding.text}")]
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
