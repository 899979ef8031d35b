"""`areabench watch`: follow a running run by reading its file repeatedly."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from areabench.cli import WATCHED_END, Command, CommandContext
from areabench.cli.options import json_option, run_argument, seconds, trust_option

if TYPE_CHECKING:
    from contextlib import ExitStack

    from areabench.views.terminal import Output
    from areabench.views.watch.follower import Follower
    from areabench.views.watch.frame import Frame


def watch_options(parser: argparse.ArgumentParser) -> None:
    """A run file, how often it is looked at, and how long it is waited for."""
    run_argument(parser, "run file; it may not exist yet, and is only read")
    parser.add_argument(
        "--interval", type=_above_zero, default=1.0, metavar="SECONDS", help="time between two looks (default 1)"
    )
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument(
        "--wait", type=seconds, metavar="SECONDS",
        help="how long to wait for the file, or for news if the writer cannot be seen (default 60; 0 with --once)",
    )  # fmt: skip
    parser.add_argument(
        "--no-evaluate", dest="evaluate", action="store_false", help="do not compute loss and accuracy of snapshots"
    )
    trust_option(parser)
    json_option(parser, "print one line of JSON per look, with --once one object")


def _above_zero(text: str) -> float:
    try:
        value = seconds(text)
    except argparse.ArgumentTypeError:
        value = 0.0
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds > 0")
    return value


def watch_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Follow a run to its end; the exit code says how it ended."""
    from contextlib import ExitStack

    from areabench.views.watch.follower import Follower
    from areabench.views.watch.frame import KILLED, WAITING
    from areabench.views.watch.quality import Evaluator

    wait_s = options.wait
    if wait_s is None and options.once:
        wait_s = 0.0
    elif wait_s is None:
        wait_s = 60.0
    evaluator = None
    if options.evaluate:
        evaluator = Evaluator(options.run, context.cache, options.trusted)
    follower = Follower(options.run, wait_s, evaluator, once=options.once)
    state = WAITING
    with ExitStack() as stack:
        show = _shower(context.output, stack, once=options.once)
        for frame in frames(follower, options.interval):
            show(frame)
            state = frame.state
    return {"failed": 1, KILLED: 1, "diverged": 3, "stopped": 4}.get(state, 0)


def frames(follower: Follower, interval_s: float = 1.0, pause: Callable[[float], None] = time.sleep) -> Iterator[Frame]:
    """Frames until the run has ended, at equal intervals as far as reading leaves time; only one with `once`."""
    from areabench.views.watch.frame import WAITING

    while True:
        began_s = time.monotonic()
        frame = follower.frame()
        if not (follower.once and frame.state == WAITING):
            yield frame
            if follower.once or frame.state not in ("running", WAITING):
                return
        pause(max(0.0, began_s + interval_s - time.monotonic()))


def _shower(output: Output, stack: ExitStack, *, once: bool) -> Callable[[Frame], None]:
    """The function that shows a frame: as JSON, as a page on a terminal, or as plain text."""
    from areabench.views.json import to_json
    from areabench.views.watch.screen import Screen, log_line, plain_page

    if output.as_json:
        return lambda frame: _write(to_json(frame, in_one_line=not once))
    if not output.is_terminal and not once:
        return lambda frame: _write(f"{log_line(frame)}\n")
    if not output.is_terminal and not output.in_colour:
        return lambda frame: _write(plain_page(frame))
    screen = Screen(in_colour=output.in_colour)
    if once:
        return screen.leave
    stack.enter_context(screen.open())
    return screen.show


def _write(text: str) -> None:
    from areabench.errors import escape_controls

    sys.stdout.write(escape_controls(text))
    sys.stdout.flush()  # a program that reads the lines gets each at once


COMMAND = Command(
    "runs/demo/area.h5",
    watch_options,
    watch_command,
    WATCHED_END
    | {
        "0": "done or target reached, with --once also running",
        "1": "the run failed or was killed",
        "2": "bad input, or no file or news within --wait",
    },
)
