"""`areabench methods`: all methods, or one with its keys."""

from __future__ import annotations

import argparse

from areabench.cli import Command, CommandContext
from areabench.cli.options import json_option
from areabench.errors import UserError


def methods_options(parser: argparse.ArgumentParser) -> None:
    """A method."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the keys of this method too")
    json_option(parser)


def methods_command(options: argparse.Namespace, context: CommandContext) -> int:
    """List all methods, or one with its keys."""
    from areabench.results.methods import listed_methods
    from areabench.settings.parse import unknown
    from areabench.views.text import methods_text

    found = listed_methods()
    if options.name is not None:
        known = [each.name for each in found]
        if options.name not in known:
            raise UserError(unknown("method", options.name, known))
        found = [each for each in found if each.name == options.name]
    context.output.answer(lambda: methods_text(found, keys=options.name is not None), lambda: found)
    return 0


COMMAND = Command(
    "--json",
    methods_options,
    methods_command,
)
