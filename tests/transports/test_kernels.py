"""Runs of other kernels: replayed within a measured tolerance, or again under their own; portable bits."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.ground.test_kernels import ASKED_FOR, WITH_AVX2
from tests.support.edited import edited

import areabench
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.criteria import EveryUpdates
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.iid import Iid
from areabench.progress import ProgressLine, Style
from areabench.runfile.read import Run
from areabench.transports import replay
from areabench.transports.replay import FACTOR, ReplayResult, replay_models, replay_run

Recorded = Callable[[Experiment], Run]
SILENT = ProgressLine("replay", 1.0, Style.NONE)
EXPERIMENT = Experiment(
    clients=Clients(count=3, local_steps=2),
    method=Area(step_size=0.1),
    stop=Stop(horizon_s=1.0),
    problem=Quadratic(dimension=5, noise=0.5),
    aggregation=EveryUpdates(updates=2),
    record=Record(interval_s=0.2),
)
WITHOUT_LOG = replace(EXPERIMENT, record=Record(interval_s=0.2, events=False))
LAST_ONLY = replace(EXPERIMENT, record=Record(interval_s=0.2, models="last", average=True))


@pytest.fixture
def other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run counts as one of other kernels."""
    monkeypatch.setattr(replay, "rounds_as_here", lambda recorded: False)


def rounded(run: Run, units: float) -> Scenario:
    """The scenario of a run in which the start is so many units in the last place away, as rounding might move it."""
    scenario = build_scenario(run.experiment, run.path.parent)
    start = scenario.start + units * np.spacing(np.abs(scenario.start).max()).astype(scenario.start.dtype)
    return replace(scenario, start=start.astype(scenario.start.dtype))


@pytest.mark.usefixtures("other_kernels")
@pytest.mark.parametrize("experiment", [EXPERIMENT, WITHOUT_LOG, LAST_ONLY], ids=["log", "no log", "last model"])
@pytest.mark.parametrize(("units", "equal"), [(3, True), (3_000, False)])
def test_rounding_is_equal_and_a_larger_difference_is_not(
    record: Recorded, experiment: Experiment, units: int, *, equal: bool
) -> None:
    run = record(experiment)
    found = replay_run(run, rounded(run, units), SILENT)
    assert found.equal is equal
    assert found.comparable
    assert found.rounding is not None
    assert found.rounding.distance > 0
    if equal:
        assert found.rounding.distance <= FACTOR * found.rounding.divergence
        assert found.metrics is not None
    else:
        assert found.difference is not None
        assert "rounding" in found.difference.what


def test_with_the_same_kernels_every_bit_is_compared(record: Recorded) -> None:
    run = record(EXPERIMENT)
    found = replay_run(run, rounded(run, 3), SILENT)
    assert found.rounding is None
    assert found.difference is not None


@pytest.mark.usefixtures("other_kernels")
def test_other_kernels_with_the_same_bits_need_no_tolerance(record: Recorded) -> None:
    run = record(EXPERIMENT)
    found = replay_run(run, build_scenario(run.experiment, run.path.parent), SILENT)
    assert found == ReplayResult(len(run.events_array), len(run.models), None, found.metrics)
    assert found.equal


@pytest.mark.usefixtures("other_kernels")
@pytest.mark.parametrize("change", ["model", "version", "step size", "last snapshot"])
def test_a_changed_file_is_found_beyond_rounding(record: Recorded, change: str) -> None:
    run = record(EXPERIMENT)
    run.close()
    with edited(run.path) as file:
        if change == "model":
            models = file["snapshots/model"][...]
            models[3] *= 1.01
            file["snapshots/model"][...] = models
        elif change == "last snapshot":
            file["events"].resize(len(file["events"]) - 2, axis=0)
        else:
            events = file["events"][...]
            events["version" if change == "version" else "step_size"][4] += 1
            file["events"][...] = events
    with Run(run.path) as changed:
        found = replay_run(changed, rounded(changed, 3), SILENT)
    assert not found.equal
    assert found.comparable
    assert found.difference is not None


@pytest.mark.usefixtures("other_kernels")
def test_a_metric_that_does_not_follow_from_the_models_is_found(record: Recorded) -> None:
    run = record(LAST_ONLY)
    run.close()
    with edited(run.path) as file:
        metrics = file["metrics"][...]
        metrics["train_loss"][2] *= 1.01
        file["metrics"][...] = metrics
    with Run(run.path) as changed:
        found = replay_run(changed, rounded(changed, 3), SILENT)
    assert found.difference is None
    assert found.metrics is not None
    assert not found.equal


@pytest.mark.usefixtures("other_kernels")
@pytest.mark.parametrize("events", [True, False])
def test_a_run_that_diverges_from_itself_is_not_comparable(record: Recorded, *, events: bool) -> None:
    """Noise of a random mini-batch and steps far beyond the stable ones: softmax jumps between its extremes."""
    chaotic = replace(
        EXPERIMENT,
        method=Area(step_size=300.0),
        stop=Stop(horizon_s=6.0),
        problem=Logistic(batch_size=4),
        data=Synthetic(train_samples=120, test_samples=20, features=20, classes=3),
        split=Iid(),
        record=Record(events=events),
    )
    run = record(chaotic)
    scenario = build_scenario(run.experiment, run.path.parent)
    moved = replace(scenario, start=scenario.start + np.float32(1e-5))
    found = replay_models(run, moved, SILENT)
    assert not found.comparable
    assert not found.equal
    assert found.difference is None


def test_the_start_is_moved_in_every_entry_in_both_directions() -> None:
    """A unit of the largest entry: the neighbour of zero is no number that rounding leads to."""
    start = np.zeros(50, np.float32)
    moved = replay._moved(start, 2.0)
    assert set(np.unique(moved / np.spacing(np.float32(2.0)))) == {-1.0, 1.0}
    assert math.isclose(replay._moved(np.ones(3), 1.0)[0], 1.0, rel_tol=1e-15)


# ---------------------------------------------------------------------------------------------------- real kernels

FILE = """
seed = 3
[problem]
name = "logistic"
[data]
name = "synthetic"
train_samples = 200
test_samples = 50
features = 100
[split]
name = "iid"
[clients]
count = 3
[rates]
rate = 20.0
[method]
name = "area"
step_size = 0.5
[stop]
horizon_s = 1.0
"""
OLD = {"OPENBLAS_CORETYPE": "Nehalem"}


class Folder:
    """A folder in which commands run, each under kernels of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "x.toml").write_text(FILE)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command."""
        package = str(Path(areabench.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": package, "AREABENCH_CACHE": str(self.path / "cache"), **variables}
        command = [sys.executable, "-P", "-m", "areabench", *words]
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False, timeout=100
        )

    def bits(self, name: str) -> bytes:
        """Models and metrics of a run."""
        with areabench.open_run(self.path / name) as run:
            return run.models.tobytes() + run.metrics_array.tobytes()

    def blas(self, name: str) -> str:
        """The kernels of a run."""
        with areabench.open_run(self.path / name) as run:
            return run.provenance.blas_kernel


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@ASKED_FOR
def test_a_run_of_older_kernels_replays_within_rounding_and_exactly_under_its_own(folder: Folder) -> None:
    assert folder.run("simulate", "x.toml", "-o", "old.h5", **OLD).returncode == 0
    assert folder.blas("old.h5") == "Nehalem"
    here = folder.run("replay", "old.h5", "--json")
    assert here.returncode == 0
    found = json.loads(here.stdout)
    assert found["kernels"]["recorded"]["blas"] == "Nehalem"
    if found["kernels"]["here"]["blas"] not in ("Nehalem", "Sandybridge"):  # both multiply and add in two steps
        assert 0 < found["rounding"]["distance"] < FACTOR * found["rounding"]["divergence"]
        assert "made with BLAS Nehalem" in here.stderr
    exact = folder.run("replay", "old.h5", "--exact")
    assert (exact.returncode, "bit for bit" in exact.stdout) == (0, True)
    with edited(folder.path / "old.h5") as file:
        models = file["snapshots/model"][...]
        models[-1, 0] = np.nextafter(models[-1, 0], 9)
        file["snapshots/model"][...] = models
    assert folder.run("replay", "old.h5", "--exact").returncode == 1


@ASKED_FOR
def test_a_resumed_run_continues_with_the_kernels_of_its_beginning(folder: Folder) -> None:
    """A checkpoint of the middle: the run is stopped as by a scheduler."""
    slow = ["--set", "stop.horizon_s=1000000", "--set", "record.snapshots=none", "--checkpoint-every", "0.2"]
    stop = "import os, signal, threading; threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()"
    (folder.path / "sitecustomize.py").write_text(stop)
    package = str(Path(areabench.__file__).parents[1])
    path = os.pathsep.join([str(folder.path), package])
    assert folder.run("simulate", "x.toml", *slow, "-o", "old.h5", **OLD, PYTHONPATH=path).returncode == 4
    assert folder.run("resume", "old.h5", PYTHONPATH=path).returncode == 4
    assert folder.blas("old.h5") == "Nehalem"


def test_exact_is_refused_for_kernels_that_cannot_be_had(folder: Folder) -> None:
    assert folder.run("simulate", "x.toml", "-o", "x.h5").returncode == 0
    with edited(folder.path / "x.h5") as file:
        attributes = file["provenance"].attrs
        areabench.runfile.layout.write_attributes(attributes, {"blas_kernel": "A64FX"})
    refused = folder.run("replay", "x.h5", "--exact")
    assert refused.returncode == 2
    assert "leave --exact out" in refused.stderr
    assert folder.run("replay", "x.h5").returncode == 0


@WITH_AVX2
@ASKED_FOR
def test_portable_bits_are_the_same_under_all_kernels(folder: Folder) -> None:
    portable, names = ["--set", "bits=portable"], []
    for number, kernel in enumerate(areabench.kernels.available()):
        names.append(f"{number}.h5")
        variables = {"OPENBLAS_CORETYPE": kernel, "MKL_CBWR": "AVX"}
        assert folder.run("simulate", "x.toml", *portable, "-o", names[-1], **variables).returncode == 0
    assert {folder.blas(name) for name in names} == {"Haswell"}
    assert len({folder.bits(name) for name in names}) == 1
    assert "bit for bit" in folder.run("replay", "0.h5", **OLD).stdout
    assert folder.run("simulate", "x.toml", "-o", "native.h5", **OLD).returncode == 0
    assert folder.bits("native.h5") != folder.bits("0.h5")


@WITH_AVX2
@ASKED_FOR
def test_a_sweep_has_portable_bits(folder: Folder) -> None:
    """Three step sizes in one pass, in processes that inherit the kernels."""
    (folder.path / "s.toml").write_text(
        f'bits = "portable"\n{FILE}[record]\nevents = false\n[sweep]\ntrials = 1\n[[sweep.grid]]\n'
        "method.step_size = [0.1, 0.5, 1.0]\n"
    )
    for name, kernel in (("one", "Nehalem"), ("two", "Haswell")):
        assert folder.run("sweep", "s.toml", "-o", name, "--jobs", "1", OPENBLAS_CORETYPE=kernel).returncode == 0
    files = sorted(each.name for each in (folder.path / "one").glob("*.h5"))
    assert len(files) == 3
    for file in files:
        assert folder.blas(f"one/{file}") == "Haswell"
        assert folder.bits(f"one/{file}") == folder.bits(f"two/{file}")


def test_one_sweep_has_one_kind_of_bits(folder: Folder) -> None:
    (folder.path / "s.toml").write_text(f'{FILE}[sweep]\ntrials = 1\n[[sweep.grid]]\nbits = ["native", "portable"]\n')
    refused = folder.run("sweep", "s.toml", "-o", "s")
    assert refused.returncode == 2
    assert "give them to two sweeps" in refused.stderr


@WITH_AVX2
def test_a_script_is_told_how_to_start_for_portable_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    if areabench.kernels.kernels_in_force().blas == "Haswell":
        monkeypatch.setattr("areabench.kernels._simd", lambda *lists: ["X86_V4"])
    with pytest.raises(UserError, match="start Python with OPENBLAS_CORETYPE"):
        areabench.simulate(FILE, bits="portable", progress=False)
