"""`areabench watch`: follow a running run by reading its file repeatedly."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from areabench.cli import CommandContext
from areabench.errors import escape_controls
from areabench.views.json import to_json
from areabench.views.terminal import Output
from areabench.views.watch.follower import Follower
from areabench.views.watch.frame import KILLED, WAITING, Frame
from areabench.views.watch.quality import Evaluator
from areabench.views.watch.screen import Screen, log_line, plain_page

_CODES = {"failed": 1, KILLED: 1, "diverged": 3, "stopped": 4}
_UNDER_WAY = ("running", WAITING)


def watch(options: argparse.Namespace, context: CommandContext) -> int:
    """Follow a run to its end; the exit code says how it ended."""
    wait_s = options.wait if options.wait is not None else 0.0 if options.once else 60.0
    evaluator = Evaluator(options.run, context.cache, options.trusted) if options.evaluate else None
    follower = Follower(options.run, wait_s, evaluator, once=options.once)
    state = WAITING
    with ExitStack() as stack:
        show = _shower(context.output, stack, once=options.once)
        for frame in frames(follower, options.interval):
            show(frame)
            state = frame.state
    return _CODES.get(state, 0)


def frames(follower: Follower, interval_s: float = 1.0, pause: Callable[[float], None] = time.sleep) -> Iterator[Frame]:
    """Frames until the run has ended, at equal intervals as far as reading leaves time; only one with `once`."""
    while True:
        began_s = time.monotonic()
        frame = follower.frame()
        if not (follower.once and frame.state == WAITING):
            yield frame
            if follower.once or frame.state not in _UNDER_WAY:
                return
        pause(max(0.0, began_s + interval_s - time.monotonic()))


def _shower(output: Output, stack: ExitStack, *, once: bool) -> Callable[[Frame], None]:
    """The function that shows a frame: as JSON, as a page on a terminal, or as plain text."""
    if output.as_json:
        return lambda frame: _write(to_json(frame, in_one_line=not once))
    if not output.is_terminal and not (once and output.in_colour):
        return (lambda frame: _write(plain_page(frame))) if once else (lambda frame: _write(f"{log_line(frame)}\n"))
    screen = Screen(in_colour=output.in_colour)
    if once:
        return screen.leave
    stack.enter_context(screen.open())
    return screen.show


def _write(text: str) -> None:
    sys.stdout.write(escape_controls(text))
    sys.stdout.flush()  # a program that reads the lines gets each at once
