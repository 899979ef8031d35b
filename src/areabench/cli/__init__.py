"""The command line: one file per command, which has its options, example, exit codes and action together.

It may import every other room. Every command line reads the files of the commands that it names, and the help and the
shell's completion those of all: so an action imports what it needs when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from areabench.errors import UserError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from areabench.launching.families import StartedBy
    from areabench.progress import Style
    from areabench.views.terminal import Output

DONE = {"0": "done", "2": "bad input", "130": "interrupted"}
WATCHED_END = {
    "0": "done or target reached",
    "1": "the run failed",
    "2": "bad input",
    "3": "diverged",
    "4": "stopped by a signal, to be resumed",
    "130": "interrupted",
}
END_OF_RUN = WATCHED_END | {"5": "ended, but its evaluation failed: `areabench evaluate` tries again"}
END_OF_LAUNCH = END_OF_RUN | {
    "4": "stopped by a signal, to be resumed, or to be started again if the run had not begun"
}


class Command(NamedTuple):
    """A command: its options, and what it does. Its name is that of its file, its purpose stands in `parser`."""

    example: str  # what follows the name
    add_options: Callable[[argparse.ArgumentParser], None]
    act: Callable[[argparse.Namespace, CommandContext], int]  # returns the exit code
    exit_codes: Mapping[str, str] = DONE
    launcher: str = ""  # what precedes `areabench` in the example


class CommandContext(NamedTuple):
    """The process of a command."""

    environment: Mapping[str, str]
    command_line: str  # as typed, for the run file
    progress_choice: str = "never"  # --progress
    as_json: bool = False  # --json
    home_given: bool = True  # whether HOME was set; it is now

    @property
    def cache(self) -> Path:
        """The folder of prepared data sets."""
        from areabench.problems.datasets import default_cache

        return default_cache(self.environment)

    @property
    def cores(self) -> int:
        """Cores that this process may use."""
        from areabench.host import own_cores

        return len(own_cores())

    @property
    def started(self) -> StartedBy | None:
        """The launcher that started this process as one of several ranks."""
        from areabench.launching.families import started_by

        return started_by(self.environment)

    @property
    def progress(self) -> Style:
        """How progress is shown on stderr."""
        from areabench.views.terminal import progress_style

        return progress_style(self.progress_choice, self.environment, is_terminal=sys.stderr.isatty())

    @property
    def output(self) -> Output:
        """How answers are printed on stdout."""
        from areabench.views.terminal import Output, is_dumb, wants_colours

        is_terminal = sys.stdout.isatty()
        in_colour = wants_colours(self.environment, is_terminal=is_terminal)
        return Output(self.as_json, in_colour, is_terminal and not is_dumb(self.environment))


def need_matplotlib(what: str) -> None:
    """Refuse what cannot be drawn here; `what` is the command or option that draws."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UserError(
            f"{what}: needs matplotlib ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error
    del mpl  # only whether it is there counts
