"""`areabench replay`: run the method again from the events of a run file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import json_option, progress_option, run_argument, trust_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.transports.replay import MetricsResult, ReplayResult


def replay_options(parser: argparse.ArgumentParser) -> None:
    """A run file, and the code that it may call."""
    run_argument(parser)
    parser.add_argument(
        "--exact", action="store_true",
        help="where other kernels made the run, start again with those and compare every bit (default: compare it then "
        "within rounding)",
    )  # fmt: skip
    trust_option(parser)
    json_option(parser)
    progress_option(parser)


def replay_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Replay a run file and evaluate its snapshots again; 1 at the first difference.

    It calls no code that the run file names and `--trust-module` does not.
    """
    from areabench.engine.scenario import trusted_scenario
    from areabench.kernels import kernels_in_force, require
    from areabench.plugins.modules import changes
    from areabench.progress import ProgressLine
    from areabench.runfile.read import open_run
    from areabench.transports.replay import follows_log, replay_run

    path = options.run
    with open_run(path) as recorded:
        then = recorded.provenance.kernels
        if options.exact or recorded.experiment.bits == "portable":
            require(then)
        progress = ProgressLine("replay", recorded.status.end_s, context.progress)
        scenario = trusted_scenario(recorded.experiment, path, context.cache, options.trusted)
        for changed in changes(recorded.provenance.modules, recorded.experiment):
            print(f"areabench: {path}: {changed}", file=sys.stderr)
        scenario.check_data(recorded.provenance.data_digest, path)
        kept = follows_log(recorded)
        here = kernels_in_force()
        if options.exact and not here.rounds_as(then):
            raise UserError(
                f"--exact: {path} was made with {then}, which cannot be had here ({here}); leave --exact out to "
                "compare it within rounding"
            )
        outcome = replay_run(recorded, scenario, progress)
        progress.close()
    if not here.rounds_as(then):
        print(f"{path}: made with {then}; replayed with {here}", file=sys.stderr)
    if not outcome.comparable:
        assert outcome.rounding is not None
        print(
            f"{path}: not comparable: one unit in the last place at the start grows to "
            f"{outcome.rounding.divergence:.2g} of the model within {outcome.snapshots:,} snapshots; replay it with "
            "--exact, or on a processor like that of the run",
            file=sys.stderr,
        )
    if (outcome.difference is None and outcome.comparable) or context.as_json:
        record = {
            "file": path,
            "how": "replayed" if kept else "simulated again",
            "equal": outcome.equal,
            "events": outcome.events,
            "snapshots": outcome.snapshots,
            "difference": outcome.difference,
            "metrics": outcome.metrics,
            "kernels": {"recorded": then, "here": here},
            "rounding": outcome.rounding,
            "comparable": outcome.comparable,
        }
        context.output.answer(
            lambda: f"{path}: {_equal_text(outcome, kept=kept)}\n{_metrics_text(outcome.metrics)}\n", lambda: record
        )
    if outcome.difference is not None:
        print(f"{path}: event {outcome.difference.event:,} differs: {outcome.difference.what}", file=sys.stderr)
    if outcome.metrics is not None and outcome.metrics.difference is not None:
        print(f"{path}: metrics differ: {outcome.metrics.difference}", file=sys.stderr)
    if outcome.equal:
        return 0
    if outcome.comparable:
        return 1
    return 3


def _equal_text(outcome: ReplayResult, *, kept: bool) -> str:
    """What was equal, and how it was compared."""
    from areabench.transports.replay import FACTOR
    from areabench.views.styled import counted

    events = counted(outcome.events, "event")
    snapshots = counted(outcome.snapshots, "snapshot")
    if (rounding := outcome.rounding) is not None:
        how = "replayed" if kept else "simulated again"
        return (
            f"{events} (counted) and {snapshots} {how}, equal but for rounding: {rounding.snapshots:,} models at most "
            f"{rounding.distance:.2g} of their largest entry away, where {FACTOR * rounding.divergence:.2g} is allowed "
            f"({FACTOR:g} times what one unit in the last place at the start grows to)"
        )
    if kept:
        return f"{events} (by checksum) and {snapshots} (bit for bit) replayed, all equal"
    return f"simulated again, {events} (counted) and {snapshots} (by checksum), all equal"


def _metrics_text(metrics: MetricsResult | None) -> str:
    """How many rows are equal, and how equal they are."""
    if metrics is None:
        return "metrics: none are recorded"
    from areabench.transports.replay import ACCURACY_ROUNDING, ROUNDING

    if metrics.equal == metrics.to_the_bit:
        how = "to the bit"
    else:
        limits = f"{ROUNDING:g}, accuracy {ACCURACY_ROUNDING:g} points"
        how = f"{metrics.to_the_bit:,} to the bit, the others to rounding: {limits}"
    return f"metrics: {metrics.equal:,} of {metrics.rows:,} rows equal ({how})"


COMMAND = Command(
    "RUN.h5",
    replay_options,
    replay_command,
    DONE
    | {
        "0": "done, all equal: to the bit, or but for rounding where other kernels made the run",
        "1": "there is a difference",
        "3": "not comparable: under these kernels the run diverges from itself",
    },
)
