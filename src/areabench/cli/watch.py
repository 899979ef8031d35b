"""What `areabench watch` does, once argv and the environment have been read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from areabench.errors import harmless
from areabench.views.json import to_json
from areabench.views.terminal import Output
from areabench.views.watch.follower import Follower
from areabench.views.watch.frame import KILLED, WAITING, Frame
from areabench.views.watch.quality import Evaluator
from areabench.views.watch.screen import Screen, one_line, plain_page

_CODES = {"failed": 1, KILLED: 1, "diverged": 3, "stopped": 4}
_UNDER_WAY = ("running", WAITING)


@dataclass(frozen=True)
class Wishes:
    """How to watch: seconds between looks and to wait for news, whether to evaluate, and whose code to call for it."""

    interval_s: float = 1.0
    once: bool = False
    wait_s: float = 60.0
    evaluate: bool = True
    trusted: tuple[str, ...] = ()


def watch(path: Path, wishes: Wishes, cache: Path, output: Output) -> int:
    """Follow a run to its end; the exit code tells how it ended."""
    evaluator = Evaluator(path, cache, wishes.trusted) if wishes.evaluate else None
    follower = Follower(path, wishes.wait_s, evaluator, once=wishes.once)
    state = WAITING
    with ExitStack() as stack:
        show = _shower(output, stack, once=wishes.once)
        for frame in frames(follower, wishes):
            show(frame)
            state = frame.state
    return _CODES.get(state, 0)


def frames(follower: Follower, wishes: Wishes, pause: Callable[[float], None] = time.sleep) -> Iterator[Frame]:
    """Frames until the run has ended, at equal distances as far as looking leaves time."""
    while True:
        began_s = time.monotonic()
        frame = follower.frame()
        if not (wishes.once and frame.state == WAITING):
            yield frame
            if wishes.once or frame.state not in _UNDER_WAY:
                return
        pause(max(0.0, began_s + wishes.interval_s - time.monotonic()))


def _shower(output: Output, stack: ExitStack, *, once: bool) -> Callable[[Frame], None]:
    """What shows a frame: JSON, a page on a terminal, or plain words."""
    if output.as_json:
        return lambda frame: _write(to_json(frame, in_one_line=not once))
    if not output.is_terminal and not (once and output.colours):
        return (lambda frame: _write(plain_page(frame))) if once else (lambda frame: _write(f"{one_line(frame)}\n"))
    screen = Screen(output.colours)
    if once:
        return screen.leave
    stack.enter_context(screen.open())
    return screen.show


def _write(text: str) -> None:
    sys.stdout.write(harmless(text))
    sys.stdout.flush()  # who reads our lines wants them now
