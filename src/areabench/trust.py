"""Whose code a run file may call: a problem `torch` names functions by import path, and a stranger may have named them.

An experiment file is the user's own and is run as it is. A run file may come from anybody, so what it names is imported
only if it is part of areabench or of torch, or if the user names it too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.problem_settings import TorchModule
from areabench.reading import Run
from areabench.scenario import Scenario, build_scenario

_HARMLESS = ("areabench.problems.examples", "torch.nn.functional")  # all that they hold may be called with tensors
OPTION = "--trust-module"


def scenario_of(run: Run, cache: Path, trusted: Sequence[str] = ()) -> Scenario:
    """The parts of a recorded run, built again; a UserError if that would import what nobody vouches for."""
    check_trusted(run.experiment, run.path, trusted)
    return build_scenario(run.experiment, cache)


def check_trusted(experiment: Experiment, source: Path, trusted: Sequence[str] = ()) -> None:
    """Refuse an experiment out of a run file that names code which the user has not named: `trusted` import paths."""
    unknown = [path for path in named_code(experiment) if not _is_trusted(path, trusted)]
    if unknown:
        options = " ".join(f"{OPTION} {shlex.quote(path)}" for path in unknown)
        raise UserError(
            f"{source}: would import and call {', '.join(map(repr, unknown))}, which this run file names; if you "
            f"trust that code, add {options}"
        )


def named_code(experiment: Experiment) -> tuple[str, ...]:
    """The import paths that building an experiment follows."""
    problem = experiment.problem
    return (problem.module, problem.loss) if isinstance(problem, TorchModule) else ()


def _is_trusted(path: str, trusted: Sequence[str]) -> bool:
    return path in trusted or path.partition(":")[0] in _HARMLESS
