"""Small runs and sweeps for the pages that the browser looks at, in virtual time."""

from __future__ import annotations

from pathlib import Path

from tests.support.edited import edited

from areabench.cli.main import main
from areabench.sweeps.read import open_sweep
from areabench.timing.rates import UniformRates

HOSTILE = "</script><script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>"
_EXPERIMENT = """
name = "digits"
seed = 1
[problem]
name = "logistic"
batch_size = 8
[data]
name = "synthetic"
train_samples = 300
test_samples = 200
features = 6
classes = 4
spread = 0.3
[split]
name = "dirichlet"
concentration = 0.5
[clients]
count = 6
[rates]
name = "normal"
mean = 8.0
deviation = 4.0
[method]
name = "area"
step_size = 1.0
[aggregation]
name = "updates"
updates = 2
[stop]
horizon_s = 6.0
divergence_norm = 1e4
[record]
interval_s = 0.1
"""
_SWEEP = """
[sweep]
title = "Two methods and three step sizes"
trials = 2
[[sweep.grid]]
rates = [{ name = "uniform", rate = 8.0 }, { name = "normal", mean = 8.0, deviation = 4.0 }]
method.name = ["area", "fedbuff"]
method.step_size = [1e-3, 1.0, 1e5]
"""
_TUNED = """
[sweep]
trials = 6
[[sweep.grid]]
rates = [{ name = "uniform", rate = 8.0 }, { name = "normal", mean = 8.0, deviation = 4.0 }]
method.name = ["as-fedavg", "fedbuff"]
[tune]
budget = 4
trials = 1
[tune.keys]
method.step_size = [0.01, 1.0]
method.server_step_size = [0.5, 1.0]
"""
METHODS = {"area": 3.0, "fedbuff": 0.5, "as-fedavg": 1e7, "s-fedavg": 1e-3}  # the last two diverge, and learn nothing


def simulate(folder: Path, name: str, *changes: str) -> Path:
    """One run."""
    experiment = folder / "experiment.toml"
    output = folder / f"{name}.h5"
    experiment.write_text(_EXPERIMENT, encoding="utf-8")
    overrides = [word for change in changes for word in ("--set", change)]
    assert main(["simulate", str(experiment), "--output", str(output), *overrides]) in (0, 3)
    experiment.unlink()
    return output


def four_methods(folder: Path) -> Path:
    """A folder with four methods, a run that ended at a lower target, a failed one, and a file that is none."""
    folder.mkdir()
    for method, step_size in METHODS.items():
        simulate(folder, method, f"method.name={method}", f"method.step_size={step_size}")
    simulate(folder, "early", "stop.iterations=12")
    failed = simulate(folder, "failed", "seed=2")
    with edited(failed) as file:
        status = file["status"][0]
        status["state"] = b"failed"
        status["reason"] = HOSTILE.encode()
        file["status"][0] = status
        file["provenance"].attrs["command"] = HOSTILE
        file["metrics"].resize(0, axis=0)
    (folder / "damaged.h5").write_bytes(b"no HDF5 at all")
    return folder


def negative_losses(folder: Path) -> Path:
    """A folder with two trials at each of two step sizes, of which one ends with a loss below zero."""
    folder.mkdir()
    for seed in (1, 2):
        simulate(folder, f"small{seed}", f"seed={seed}", "method.step_size=0.5")
        simulate(folder, f"large{seed}", f"seed={seed}", "method.step_size=1.0")
    with edited(folder / "large2.h5") as file:
        metrics = file["metrics"][:]
        metrics["train_loss"][-3:] = (-0.25, 0.0, -0.5)
        file["metrics"][:] = metrics
    return folder


def swept(folder: Path, text: str) -> Path:
    """The folder of a sweep of this text."""
    folder.mkdir()
    file = folder / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["sweep", str(file), "-o", str(folder / "runs"), "--jobs", "1", "--progress", "never"]) == 0
    return folder / "runs"


def tuned_sweep(folder: Path) -> Path:
    """Twelve tuning runs, and twenty-four test runs of what they choose."""
    return swept(folder, f"{_EXPERIMENT}events = false{_TUNED}")


def small_sweep(folder: Path) -> Path:
    """Twenty-four runs, of which one is missing."""
    output = swept(folder, _EXPERIMENT + _SWEEP)
    uniform = [one.path for one in open_sweep(output).results if one.experiment.rates == UniformRates(rate=8.0)]
    next(path for path in uniform if path.name.startswith("area-1-2-")).unlink()
    return output
