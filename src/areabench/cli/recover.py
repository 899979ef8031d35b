"""`areabench recover`: save what can be saved of a damaged run file."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import force_option, json_option, progress_option, run_argument
from areabench.errors import RunFailure, RunFileError, UserError
from areabench.files import run_file_path

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from areabench.runfile.recover import Recovery, RecoveryLimits
    from areabench.transports.replay import ReplayResult

_LEAST_LIMIT_S = 60.0  # time that reading may take at least
_BYTES_PER_SECOND = 2e6  # its speed at worst


def recover_options(parser: argparse.ArgumentParser) -> None:
    """A damaged file, and the one to write."""
    run_argument(parser, "damaged run file; it is not changed")
    parser.add_argument("-o", "--output", type=run_file_path, required=True, help="run file to write")
    force_option(parser)
    json_option(parser)
    progress_option(parser)


def recover_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Save what can be saved of a damaged run file into another one."""
    from tempfile import TemporaryDirectory

    from areabench.runfile.lock import Claim
    from areabench.runfile.recover import RecoveryLimits
    from areabench.views.json import plain

    path = options.run
    output = options.output
    if not path.is_file():
        raise RunFileError(f"{path}: no such file; give the path of a run file (.h5)")
    if output.exists() and output.samefile(path):
        raise RunFileError(f"{output}: is the damaged file itself; choose another --output")
    claim = Claim(output, force=options.force)
    try:
        with _locked(path), TemporaryDirectory(prefix=f".{output.name}.", dir=claim.making.parent) as folder:
            made = Path(folder) / "saved.h5"  # no other user may read that folder
            saved = _in_a_process(path, made, None)
            remark = ""
            try:
                outcome = _replayed(made, context)
            except (UserError, RunFailure, MemoryError) as error:
                remark = f"; not replayed: {str(error).removeprefix(f'{made}: ')}"  # a name that nobody gave
            else:
                if outcome is not None and outcome.difference is not None:
                    remark = f"; then a replay differs: {outcome.difference.what}"
                    saved = _in_a_process(path, made, RecoveryLimits(outcome.difference.event, outcome.snapshots))
            if not saved.events and not saved.snapshots:
                raise RunFileError(f"{path}: nothing can be saved: {saved.text}{remark}; run the experiment again")
            made.replace(claim.making)
        claim.publish()
    finally:
        claim.release()
    context.output.answer(
        lambda: f"{output}: saved {saved.text}{remark}\n",
        lambda: {
            "file": path,
            "output": output,
            **plain(saved),
            "everything": saved.everything and not remark,
            "remark": remark.removeprefix("; ") or None,
        },
    )
    return 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing the damaged file."""
    from areabench.runfile.lock import lock

    try:
        descriptor = lock(path)
    except BlockingIOError as error:
        raise RunFileError(f"{path}: {error}; wait until it has ended") from error
    except OSError:
        yield  # a file that may only be read needs no lock
        return
    try:
        yield
    finally:
        os.close(descriptor)


def _replayed(made: Path, context: CommandContext) -> ReplayResult | None:
    """A replay of what was saved; None where there is nothing to compare, or a replay would call code of others."""
    from areabench.engine.scenario import build_scenario
    from areabench.plugins.paths import named_code
    from areabench.progress import ProgressLine
    from areabench.runfile.read import open_run
    from areabench.transports.replay import replay_models

    with open_run(made) as run:
        names_code = bool(named_code(run.experiment))  # a damaged file may name any module
        if names_code or not (len(run.snapshot_index) or len(run.events_array)):
            return None
        progress = ProgressLine("replay", run.status.end_s, context.progress)
        scenario = build_scenario(run.experiment, context.cache)
        scenario.check_data(run.provenance.data_digest, run.path)
        try:
            return replay_models(run, scenario, progress)
        finally:
            progress.close()


# ------------------------------------------------------------------------------------------------ in a process


def _in_a_process(damaged: Path, made: Path, limits: RecoveryLimits | None) -> Recovery:
    """Salvage in a process of its own: on damaged files HDF5 may crash or never return."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, damaged, made, limits), daemon=True)
    process.start()
    there.close()
    limit_s = _LEAST_LIMIT_S + damaged.stat().st_blocks * 512 / _BYTES_PER_SECOND
    try:
        answer: Recovery | str | None = here.recv() if here.poll(limit_s) else None
    except EOFError:
        process.join()
        code = process.exitcode or 0
        ended_by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise RunFileError(f"{damaged}: nothing can be saved: HDF5 crashes on it ({ended_by}); run it again") from None
    finally:
        process.kill()
        process.join()
    if answer is None:
        raise RunFileError(f"{damaged}: nothing can be saved: reading takes more than {limit_s:.0f} s")
    if isinstance(answer, str):
        raise RunFileError(answer)
    return answer


def _child(answer: Connection, damaged: Path, made: Path, limits: RecoveryLimits | None) -> None:
    """Send back what was saved, or why nothing could be."""
    from areabench.runfile.recover import salvage

    try:
        answer.send(salvage(damaged, made, limits))
    except (UserError, RunFailure) as error:
        answer.send(str(error))


COMMAND = Command(
    "RUN.h5 -o SAVED.h5",
    recover_options,
    recover_command,
    DONE | {"0": "something was saved", "2": "nothing could be, or bad input"},
)
