"""The entry of the command line: read argv and the environment, call one command, turn errors into exit codes."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TextIO

from areabench.cli import CommandContext
from areabench.cli.parser import COMMANDS, TYPED, build_parser, command_of, commands_of, overview
from areabench.errors import OtherKernels, OutputFailure, RunFailure, SilentExit, UserError

_STARTING_RUNS = ("launch", "resume")  # on ranks, which takes a while
_STARTING_RANKS = ("launch", "resume", "sweep", "doctor")  # on this machine
_ON_RANKS = ("run", "batch")


def entry() -> NoReturn:
    """The console script."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that it starts import nothing from the current folder by themselves
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how the line may continue
        from areabench.cli.completion import complete

        complete(os.environ["COMP_LINE"])
    try:
        for name in ("stdout", "stderr"):
            setattr(sys, name, _Stream.checked(name))
        try:
            code: int | str | None = main(sys.argv[1:])
        except SystemExit as ended:  # of the parser
            code = ended.code
        except OtherKernels as needed:
            from areabench.kernels import restart

            restart(needed.variables)
        for stream in (sys.stdout, sys.stderr):
            _finish(stream)
    except OutputFailure as failure:
        code = _say_elsewhere(failure)
    sys.exit(code)


class _Stream(io.TextIOWrapper):
    """Stdout or stderr; an error in writing there is distinguished from all other errors."""

    called = ""

    @classmethod
    def checked(cls, name: str) -> _Stream:
        """The stream of this name; an OutputFailure if it is closed, or takes nothing, as /dev/full does."""
        stream = getattr(sys, name)
        if stream is None:
            raise OutputFailure(name, f"is closed; redirect it to a file or to {os.devnull} instead")
        with _writing(name):
            os.write(stream.fileno(), b"")
        errors = "backslashreplace"  # a file name that is no text must not end in a traceback
        made = cls(stream.detach(), stream.encoding, errors, line_buffering=stream.line_buffering)
        made.called = name
        return made

    def write(self, text: str, /) -> int:
        with _writing(self.called):
            return super().write(text)

    def flush(self) -> None:
        with _writing(self.called):
            super().flush()


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """A context that writes to the stream of this name; a reader that has left is no failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = "redirect it elsewhere, or make room"
        raise OutputFailure(name, f"cannot be written: {error.strerror}; {remedy}") from error


def _say_elsewhere(failure: OutputFailure) -> int:
    """Print on the other stream that one cannot be written, if there is another; returns the exit code."""
    other = sys.stdout if failure.stream == "stderr" else sys.stderr
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, OutputFailure):
                if stream is other:
                    print(f"areabench: {failure}", file=stream)
            with suppress(OSError, OutputFailure):
                _finish(stream)
    return 2


def _finish(stream: TextIO) -> None:
    """Write what a stream holds; where that fails, let it go nowhere, so that Python does not try again."""
    try:
        stream.flush()
    except (OSError, OutputFailure) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader has left, as in `areabench show RUN | head`
            raise


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    if not arguments:
        print(overview(), file=sys.stderr)
        return 2
    if arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        from areabench.settings.parse import unknown

        print(f"areabench: {unknown('command', arguments[0], TYPED)}", file=sys.stderr)
        return 2
    # The parser of one command loads the file of that command alone: every rank of a launch makes one.
    if arguments[0] in COMMANDS:
        parser = build_parser((arguments[0],))
    else:
        parser = build_parser(with_options=arguments[0] not in ("-h", "--help", "--version"))
    options, others = parser.parse_known_args(arguments)
    if others:
        commands_of(parser)[options.command].error(
            f"unrecognized arguments: {' '.join(others)}{_hint(options, others)}"
        )
    from areabench.files import check_paths
    from areabench.threads import set_before_numpy

    # BLAS and MPI read these variables when they are loaded, which the action of the command does.
    set_before_numpy(os.environ)
    if options.command in (*_STARTING_RANKS, *_ON_RANKS):
        from areabench.launching.families import set_mpi_defaults

        set_mpi_defaults(os.environ, one_machine=options.command in _STARTING_RANKS)

    try:
        context = CommandContext(
            os.environ,
            shlex.join(sys.argv).encode(errors="backslashreplace").decode(),
            getattr(options, "progress", "never"),
            getattr(options, "json", False),
            _set_home(),
        )
        with _stoppable(options.command in _STARTING_RUNS and context.started is None):
            check_paths(vars(options))
            return command_of(options.command).act(options, context)
    except _Stopped as stopped:
        print(f"areabench: {stopped} came while no run was under way; start it again", file=sys.stderr)
        return 4
    except (SilentExit, OutputFailure):
        raise
    except SystemExit as ended:
        # Code that the user has named has called it; it must not look like our own success.
        import traceback

        frame = traceback.extract_tb(ended.__traceback__)[-1]
        place = f"{frame.filename}, line {frame.lineno},"
        print(f"areabench: {place} called sys.exit({ended.code!r}); let it return, or raise an error", file=sys.stderr)
        return 1
    except UserError as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 2
    except RunFailure as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"areabench: not enough memory: {error}; use fewer clients, a smaller problem or data", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("areabench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left, as in `areabench show RUN | head`
        _finish(sys.stdout)
        return 0


def _hint(options: argparse.Namespace, others: Sequence[str]) -> str:
    """How to say what an unknown option means, where that is a key of an experiment; else nothing."""
    if not hasattr(options, "overrides"):
        return ""
    import difflib

    from areabench.cli.completion import override_words

    name, _, value = others[0].lstrip("-").partition("=")
    value = value or next((word for word in others[1:2] if not word.startswith("--")), "VALUE")
    keys = {word.partition("=")[0] for word in override_words()}
    names = [*keys, *(key.rpartition(".")[2] for key in keys)]
    near = difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.8)
    meant = [key for key in keys if near and f".{key}".endswith(f".{near[0]}")]
    if not meant:
        return ""
    choices = " or ".join(f"--set {key}={value}" for key in sorted(meant, key=lambda key: (key.count("."), key)))
    return f"; a key of the experiment is set by {choices}"


class _Stopped(BaseException):
    """A signal that came before a run was under way."""


@contextmanager
def _stoppable(handled: bool) -> Iterator[None]:
    """A context in which signals raise _Stopped if `handled`; a run has its own handlers for them."""
    if not handled:
        yield
        return
    from areabench.host import restore_handlers, set_handlers
    from areabench.transports.signals import STOP_SIGNALS

    def handle(number: int, frame: FrameType | None) -> None:
        raise _Stopped(signal.Signals(number).name)

    signals = {*STOP_SIGNALS, signal.SIGHUP} - {signal.SIGINT}  # Python raises KeyboardInterrupt itself
    before = set_handlers((each for each in signals if signal.getsignal(each) != signal.SIG_IGN), handle)
    try:
        yield
    finally:
        restore_handlers(before)


def _set_home() -> bool:
    """Set HOME where it is not set, because Open MPI does not start without it; returns whether it was."""
    given = bool(os.environ.get("HOME"))
    if not given:
        from areabench.host import spare_home

        os.environ["HOME"] = str(spare_home())
    return given
