"""`areabench doctor`: check everything around a run on this machine, in a second or two."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import json_option, positive
from areabench.errors import UserError

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
    from areabench.launching.doctor import Mark, examine

    if (started := context.started) is not None:
        raise UserError(
            f"{started.launcher} has started {started.ranks} doctors; one is enough, and it starts ranks itself: type "
            "`areabench doctor`"
        )
    findings = list(
        examine(context.environment, options.ranks, options.runs, context.cache, home_given=context.home_given)
    )
    fit = not any(finding.mark == Mark.FAIL for finding in findings)
    context.output.answer(lambda: doctor_text(findings), lambda: {"findings": findings, "ok": fit})
    return 0 if fit else 1


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
