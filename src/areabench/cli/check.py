"""`areabench check`: an experiment resolved, or whether a run file holds an ended run of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import experiment_options, json_option
from areabench.errors import RunFileError

if TYPE_CHECKING:
    from areabench.engine.data import DataSummary
    from areabench.experiment.experiment import Experiment


def check_options(parser: argparse.ArgumentParser) -> None:
    """An experiment, and a run file that may hold a run of it."""
    experiment_options(parser)
    parser.add_argument(
        "--ended-in", type=Path, metavar="RUN",
        help="report instead whether this run file holds an ended run of it",
    )  # fmt: skip
    json_option(parser)


def check_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the resolved experiment, or whether a run file holds an ended run of it: 4 if it can be resumed, else 1."""
    from areabench.experiment.parse import load_experiment

    experiment = load_experiment(options.experiment, options.overrides)
    if options.ended_in is not None:
        return _check_run(options.ended_in, experiment, context)
    from areabench.views.styled import Styled
    from areabench.views.text import data_text, experiment_text

    data = _try_experiment(experiment, context)
    record = {"file": options.experiment, "experiment": experiment, "data": data}
    context.output.answer(lambda: Styled(experiment_text(experiment), data_text(data)), lambda: record)
    return 0


def _try_experiment(experiment: Experiment, context: CommandContext) -> DataSummary | None:
    """Build all parts, load the data and try the user's own functions, as a run does first; what the data are like."""
    from areabench.engine.data import describe
    from areabench.engine.scenario import build_scenario, try_parts
    from areabench.plugins.paths import named_code

    if experiment.data is None and not named_code(experiment):
        return None
    scenario = build_scenario(experiment, context.cache, experiment.module_folders or ())
    try_parts(scenario, context.cache)
    if scenario.data is None:
        return None
    if not getattr(experiment.problem, "minimiser", False):  # an evaluation would solve for it, which may take a minute
        loss = float(scenario.problem.evaluate([scenario.start]).train_loss[0])
        if remark := scenario.first_loss_remark(loss):
            print(f"areabench: {remark}", file=sys.stderr)
    return describe(scenario.data)


def _check_run(path: Path, experiment: Experiment, context: CommandContext) -> int:
    from areabench.plugins.trust import command_on
    from areabench.runfile.open import open_file
    from areabench.runfile.read import open_run
    from areabench.sweeps.result import can_continue, ended_state

    state = ended_state(path, experiment)
    resumable = state is None and can_continue(path, experiment)
    if state is not None:
        code = 0
        text = state.text
    elif resumable:
        code = 4
        text = f"has not ended, and can continue from its checkpoint: {command_on('resume', path, experiment)}"
    else:
        code = 1
        text = "holds no run of this experiment that has ended"
        try:
            open_file(path).close()
        except RunFileError:
            pass  # there is no such file, or another one
        else:
            open_run(
                path
            ).close()  # a changed number is an error: the file may hold what a new run would take hours for
    context.output.answer(lambda: f"{path}: {text}\n", lambda: {"file": path, "state": state, "can_go_on": resumable})
    return code


COMMAND = Command(
    "demo.toml",
    check_options,
    check_command,
    DONE | {"0": "done; with --ended-in: 0 ended, 4 it can be resumed, 1 neither"},
)
