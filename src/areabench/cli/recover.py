"""Commands that write a run file anew: recover saves what can be saved, evaluate computes the metrics again."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from areabench.cli import CommandContext
from areabench.engine.events import ENDED
from areabench.engine.plugins.trust import scenario_of
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import RunFailure, RunFileError, UserError
from areabench.experiment.module_paths import named_code
from areabench.kernels import require
from areabench.progress import ProgressLine, Style
from areabench.runfile.lock import Claim, lock
from areabench.runfile.read import Run, open_run
from areabench.runfile.record import write_again
from areabench.runfile.recover import RecoveryLimits, Saved, salvage
from areabench.transports.replay import ReplayResult, evaluated_again, replay_models
from areabench.transports.session import told
from areabench.views.json import plain
from areabench.views.styled import counted

_LEAST_LIMIT_S, _BYTES_PER_SECOND = 60.0, 2e6  # time that reading may take at least, and its speed at worst


def recover(options: argparse.Namespace, context: CommandContext) -> int:
    """Save what can be saved of a damaged run file into another one."""
    path, output = options.run, options.output
    if not path.is_file():
        raise RunFileError(f"{path}: no such file; give the path of a run file (.h5)")
    if output.exists() and output.samefile(path):
        raise RunFileError(f"{output}: is the damaged file itself; choose another --output")
    claim = Claim(output, force=options.force)
    try:
        with _locked(path), TemporaryDirectory(prefix=f".{output.name}.", dir=claim.making.parent) as folder:
            made = Path(folder) / "saved.h5"  # no other user may read that folder
            saved, remark = _save(path, made, context)
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


def evaluate(options: argparse.Namespace, context: CommandContext) -> int:
    """Evaluate run files again; 1 where an evaluation fails, 2 where a run cannot be evaluated.

    It calls no code that a run file names and `--trust-module` does not.
    """
    answers, codes = [], [0]

    def build(run: Run) -> Scenario:
        if run.experiment.bits == "portable":
            require(run.provenance.kernels)  # a replay has to lead to the same bits
        return scenario_of(run.experiment, run.path, context.cache, options.trusted)

    for path in options.runs:
        snapshots, trouble = None, None
        try:
            snapshots = evaluate_file(path, build, context.progress)
        except (UserError, RunFailure) as error:  # the other files are evaluated all the same
            print(f"areabench: {error}", file=sys.stderr)
            trouble = str(error)
            codes.append(2 if isinstance(error, UserError) else 1)
        answers.append({"file": path, "snapshots": snapshots, "error": trouble})
    done = [each for each in answers if each["error"] is None]
    context.output.answer(
        lambda: "".join(f"{each['file']}: {counted(each['snapshots'], 'snapshot')} evaluated\n" for each in done),
        lambda: {"runs": answers},
    )
    return max(codes)


def evaluate_file(path: Path, build: Callable[[Run], Scenario], style: Style) -> int:
    """Evaluate a run that has ended again, and put the metrics into its file; how many snapshots it has.

    The file stays as it is until another one that holds everything takes its place. A RunFailure where the evaluation
    fails.
    """
    if not path.is_file():
        raise RunFileError(f"{path}: no such file; give the path of a run file (.h5)")
    claim = Claim(path, force=True)
    try:
        with open_run(path) as run, TemporaryDirectory(prefix=f".{path.name}.", dir=claim.making.parent) as folder:
            if run.status.state not in ENDED:
                raise RunFileError(
                    f"{path}: is {run.status.state.text}, and only a run that has ended is evaluated; resume it, or "
                    "run it again"
                )
            metrics, made = _metrics(run, build(run), style), Path(folder) / "evaluated.h5"
            write_again(run, metrics, made)
            made.replace(claim.making)
        claim.publish()
    finally:
        claim.release()
    return len(metrics)


def _metrics(run: Run, scenario: Scenario, style: Style) -> NDArray[Any]:
    """The metrics of all snapshots, as rows; a RunFailure with the cause where the evaluation fails."""
    scenario.check_data(run.provenance.data_digest, run.path)
    progress = ProgressLine("evaluate", run.status.end_s, style)
    try:
        return evaluated_again(run, scenario, progress)
    except (UserError, RunFailure):
        raise
    except (Exception, SystemExit) as error:  # whatever a user's problem raises
        reason = told(error, run.experiment)[1]
        raise RunFailure(f"{run.path}: its evaluation failed ({reason}); the file is as it was") from error
    finally:
        progress.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing the damaged file."""
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


def _save(path: Path, made: Path, context: CommandContext) -> tuple[Saved, str]:
    """What was saved, and what a replay of it found."""
    saved = _in_a_process(path, made, None)
    try:
        outcome = _replayed(made, context)
    except (UserError, RunFailure, MemoryError) as error:
        return saved, f"; not replayed: {str(error).removeprefix(f'{made}: ')}"  # a name that nobody gave
    if outcome is None or outcome.difference is None:
        return saved, ""
    again = _in_a_process(path, made, RecoveryLimits(outcome.difference.event, outcome.snapshots))
    return again, f"; then a replay differs: {outcome.difference.what}"


def _replayed(made: Path, context: CommandContext) -> ReplayResult | None:
    """A replay of what was saved; None where there is nothing to compare, or a replay would call code of others."""
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


def _in_a_process(damaged: Path, made: Path, limits: RecoveryLimits | None) -> Saved:
    """Salvage in a process of its own: on damaged files HDF5 may crash or never return."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, damaged, made, limits), daemon=True)
    process.start()
    there.close()
    limit_s = _LEAST_LIMIT_S + damaged.stat().st_blocks * 512 / _BYTES_PER_SECOND
    try:
        answer: Saved | str | None = here.recv() if here.poll(limit_s) else None
    except EOFError:
        process.join()
        raise RunFileError(
            f"{damaged}: nothing can be saved: HDF5 crashes on it ({_ended_by(process.exitcode)}); run it again"
        ) from None
    finally:
        process.kill()
        process.join()
    if answer is None:
        raise RunFileError(f"{damaged}: nothing can be saved: reading takes more than {limit_s:.0f} s")
    if isinstance(answer, str):
        raise RunFileError(answer)
    return answer


def _ended_by(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _child(answer: Connection, damaged: Path, made: Path, limits: RecoveryLimits | None) -> None:
    """Send back what was saved, or why nothing could be."""
    try:
        answer.send(salvage(damaged, made, limits))
    except (UserError, RunFailure) as error:
        answer.send(str(error))
