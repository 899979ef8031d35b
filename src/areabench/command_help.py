"""How every command introduces itself: purpose, example, exit codes."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_CODES = "exit codes: 0 done; 2 bad input; 130 interrupted"
EXIT_CODES_OF_A_RUN = (
    "exit codes: 0 done or target reached; 1 the run failed; 2 bad input; 3 diverged; 4 stopped by "
    "a signal, to be resumed; 130 interrupted"
)
EXIT_CODES_OF_A_SWEEP = (
    "exit codes: 0 done, also where runs diverged; 1 a run failed, or cannot be run; 2 bad input; "
    "129, 130 or 143 interrupted"
)
EXIT_CODES_OF_CHECK = (
    "exit codes: 0 done; with --ended-in: 0 ended, 4 it can be resumed, 1 neither; 2 bad input; 130 interrupted"
)
EXIT_CODES_OF_REPLAY = "exit codes: 0 done, all equal; 1 there is a difference; 2 bad input; 130 interrupted"
EXIT_CODES_OF_RECOVER = "exit codes: 0 something was saved; 2 nothing could be, or bad input; 130 interrupted"
EXIT_CODES_OF_COMPARE = "exit codes: 0 done, both tolerances hold; 1 one does not; 2 bad input; 130 interrupted"
EXIT_CODES_OF_WATCH = (
    "exit codes: 0 done or target reached, with --once also under way; 1 the run failed or was killed; 2 bad input, or "
    "no file or news within --wait; 3 diverged; 4 stopped by a signal, to be resumed; 130 interrupted"
)
EXIT_CODES_OF_DOCTOR = "exit codes: 0 nothing fails; 1 something does, and is to be fixed; 2 bad input; 130 interrupted"


def add_command(
    commands: Commands,
    name: str,
    purpose: str,
    example: str,
    launcher: str = "",
    exit_codes: str = EXIT_CODES,
) -> argparse.ArgumentParser:
    """A command, without options."""
    parser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=f"example: {launcher}areabench {name} {example}. {exit_codes}"
    )
    parser.set_defaults(command=name)
    return parser
