"""Seven cells of the paper's tables, one simulated trial each, beside the published values (Markdown).

make cells, or: python benchmarks/check_cells.py [--seed 1]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import areabench

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cell:
    """One cell: what to set on top of paper.toml, and what the paper prints."""

    name: str
    settings: tuple[str, ...]
    paper_loss: str
    paper_accuracy: str


IID = "split={name='nearly-iid'}"
NORMAL = "rates={name='normal'}"
FOUR = ("clients.count=4", "aggregation.updates=2", "split={name='iid'}")
CELLS = (
    Cell(
        "n=128 M=1 IID uniform FedBuff 1",
        (IID, "method={name='fedbuff',step_size=1.0}"),
        "0.80 (0.79 - 0.82)",
        "85.64 (84.94 - 86.11)",
    ),
    Cell(
        "n=128 M=1 IID uniform AREA 1000", (IID, "method.step_size=1000"), "0.48 (0.45 - 0.52)", "90.20 (88.20 - 91.53)"
    ),
    Cell("n=128 M=1 non-IID uniform AREA 100", (), "0.74 (0.73 - 0.75)", "87.38 (87.07 - 87.92)"),
    Cell("n=128 M=1 non-IID non-uniform AREA 100", (NORMAL,), "0.84 (0.79 - 0.93)", "84.37 (81.83 - 86.11)"),
    Cell(
        "n=128 M=50 non-IID uniform AREA 100",
        ("clients.local_steps=50", "stop.horizon_s=2"),
        "0.59 (0.58 - 0.61)",
        "88.02 (87.53 - 88.32)",
    ),
    Cell(
        "n=4 M=1 IID uniform AS-FedAvg 1",
        (*FOUR, "method={name='as-fedavg',step_size=1.0}", "stop.horizon_s=100"),
        "0.60 (0.59 - 0.62)",
        "90.00 (89.65 - 90.31)",
    ),
    Cell(
        "n=4 M=50 IID uniform AREA 1 (horizon 15 s)",
        (*FOUR, "clients.local_steps=50", "method.step_size=1", "stop.horizon_s=15"),
        "0.39 (0.39 - 0.39)",
        "91.84 (91.58 - 92.05)",
    ),
)


def simulate(cell: Cell, seed: int, folder: Path) -> areabench.Run:
    """Run one cell in the simulator."""
    output = folder / "cell.h5"
    command = [sys.executable, "-m", "areabench", "simulate", str(HERE / "paper.toml")]
    command += ["--output", str(output), "--force"]
    for setting in (*cell.settings, f"seed={seed}", "record.snapshots=none"):
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return areabench.open_run(output)


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the trial (default 1)")
    seed = parser.parse_args().seed
    print("| cell | loss | paper: mean (min - max) | accuracy % | paper: mean (min - max) |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for cell in CELLS:
            with simulate(cell, seed, Path(folder)) as run:
                end = run.metrics_array[-1]
                print(
                    f"| {cell.name} | {end['train_loss']:.2f} | {cell.paper_loss} | {end['test_accuracy']:.2f} "
                    f"| {cell.paper_accuracy} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
