"""What holds for runs of every method: a replay finds no difference, a resumed run equals one that was not stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import h5py
import numpy as np
import pytest

from areabench.engine.events import State
from areabench.engine.scenario import build_scenario
from areabench.experiment.experiment import Experiment, Record
from areabench.methods.base import MethodSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.progress import Style
from areabench.runfile.read import Run, open_run
from areabench.transports import session
from areabench.transports.options import RunOptions
from areabench.transports.replay import Replay
from areabench.transports.session import resume_simulation, simulate_run, simulate_together
from areabench.transports.signals import CheckpointTriggers


def replayed(run: Run) -> str:
    """The first difference that a replay finds; empty if there is none."""
    scenario = build_scenario(run.experiment, run.path.parent)
    difference = Replay(run, scenario, lambda _time_s, _number: None).run().difference
    return difference.what if difference else ""


def resumed(experiment: Experiment, folder: Path, patch: pytest.MonkeyPatch, stop: int) -> tuple[bytes, bytes]:
    """All that the file of a run has that was stopped before event `stop` and resumed, and of one that was not."""

    class StopsOnce(CheckpointTriggers):
        asked = count()

        def due(self) -> bool:
            if next(self.asked) == stop:
                self.stop_signal = "SIGTERM"
            return bool(self.stop_signal)

    whole, cut = folder / "whole.h5", folder / "cut.h5"
    simulate_run(experiment, _options(whole, None))
    with patch.context() as patched:
        patched.setattr(session, "CheckpointTriggers", StopsOnce)
        assert simulate_run(experiment, _options(cut, 0.0)).state == State.STOPPED
        with open_run(cut) as run:
            assert resume_simulation(run, _options(cut, 0.0)).state == State.DONE
    return _contents(cut), _contents(whole)


def _options(output: Path | None, checkpoint_s: float | None) -> RunOptions:
    folder = Path() if output is None else output.parent
    return RunOptions(output, folder / "cache", "a test", False, Style.NONE, checkpoint_s)


def _contents(path: Path) -> bytes:
    """Every dataset; not the checksums, whose blocks are as long as the rows that waited."""
    found: dict[str, bytes] = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    return b"".join(found[name] for name in sorted(found) if name != "checksums")


def farthest_lane(base: Experiment, methods: Sequence[MethodSettings], folder: Path) -> float:
    """How far the last model of a lane lies from that of the run alone at most, relative to its largest entry."""
    logistic = replace(
        base,
        problem=Logistic(batch_size=8, weighting="exact"),
        data=Synthetic(train_samples=200, test_samples=40, features=6, classes=3),
        split=Dirichlet(concentration=0.5),
        record=Record(interval_s=0.5, models="last", events=False),
    )
    experiments = [replace(logistic, method=method) for method in methods]
    together = [folder / f"lane{number}.h5" for number in range(len(methods))]
    simulate_together(experiments, together, replace(_options(together[0], None), output=None))
    farthest = 0.0
    for number, experiment in enumerate(experiments):
        alone = folder / f"alone{number}.h5"
        simulate_run(experiment, _options(alone, None))
        with open_run(together[number]) as lane, open_run(alone) as run:
            difference = np.abs(lane.model(-1) - run.model(-1)).max() / np.abs(run.model(-1)).max()
            farthest = max(farthest, float(difference))
    return farthest
