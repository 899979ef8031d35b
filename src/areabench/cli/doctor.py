"""`areabench doctor`: check everything around a run on this machine, in a second or two."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import json_option, positive
from areabench.errors import UserError, one_line

if TYPE_CHECKING:
    from areabench.launching.doctor import Finding
    from areabench.views.styled import Styled

_WIDTH = 120  # characters of a line
_INDENT = 18  # characters before a remedy


def doctor_options(parser: argparse.ArgumentParser) -> None:
    """What runs will need."""
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks wanted (default 2)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the run files (default runs)"
    )
    json_option(parser)


def doctor_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print all findings; 1 where something fails."""
    from areabench.launching.doctor import failed, to_record

    if (started := context.started) is not None:
        raise UserError(
            f"{started.launcher} has started {started.ranks} doctors; one is enough, and it starts ranks itself: type "
            "`areabench doctor`"
        )
    findings = list(_examine(options, context))
    context.output.answer(lambda: doctor_text(findings), lambda: to_record(findings))
    return 1 if failed(findings) else 0


def _examine(options: argparse.Namespace, context: CommandContext) -> Iterator[Finding]:
    """All findings; a check that fails itself is one too."""
    from areabench.launching import doctor as checks

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
    from areabench.launching.doctor import Finding, Mark

    try:
        return check()
    except Exception as error:  # whatever a broken machine makes of it
        return Finding(name, Mark.FAIL, f"cannot be checked: {one_line(error)}", "see what the system says about it")


def doctor_text(findings: Sequence[Finding]) -> Styled:
    """One line per finding, its remedy below it, and a verdict at the end."""
    import textwrap

    from areabench.launching.doctor import Mark
    from areabench.views.styled import BAD, DOUBTFUL, GOOD, Styled, joined

    styles = {Mark.OK: GOOD, Mark.WARN: DOUBTFUL, Mark.FAIL: BAD}
    lines: list[str] = []
    for finding in findings:
        mark = Styled((finding.mark.value, styles[finding.mark]), " " * (6 - len(finding.mark)))
        lines.append(Styled(mark, f"{finding.name:<12}{finding.text}"))
        if finding.remedy:
            lines += textwrap.wrap(
                f"-> {finding.remedy}", _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * (_INDENT + 3),
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
    verdict = []
    for kind, words in ((Mark.FAIL, "to fix"), (Mark.WARN, "to look at")):
        if names := [finding.name for finding in findings if finding.mark == kind]:
            verdict.append(f"{words}: {', '.join(names)}")
    return joined([*lines, "; ".join(verdict) or "nothing to fix"])


COMMAND = Command(
    "--ranks 9",
    doctor_options,
    doctor_command,
    DONE | {"0": "nothing fails", "1": "something does, and is to be fixed"},
)
