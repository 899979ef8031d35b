"""Seven cells of the paper's tables, three simulated trials each, beside the published values (Markdown).

make cells, or: python benchmarks/check_cells.py [--trials 3]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trials import simulate

PAPER = Path(__file__).parent / "paper.toml"


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


def spread(values: Sequence[float]) -> str:
    """Mean (min - max)."""
    return f"{statistics.mean(values):.2f} ({min(values):.2f} - {max(values):.2f})"


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3, help="trials a cell, seeds 1 to TRIALS (default 3)")
    trials = parser.parse_args().trials
    print("| cell: mean (min - max) | loss | paper | accuracy % | paper |\n|---|---|---|---|---|")
    for cell in CELLS:
        found = [simulate(PAPER, (*cell.settings, f"seed={seed}")) for seed in range(1, trials + 1)]
        loss, accuracy = spread([one.loss for one in found]), spread([one.accuracy for one in found])
        print(f"| {cell.name} | {loss} | {cell.paper_loss} | {accuracy} | {cell.paper_accuracy} |", flush=True)


if __name__ == "__main__":
    main()
