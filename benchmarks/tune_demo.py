"""How the demo's step sizes were chosen: mean final loss over the seeds 1 to 3 in the simulator, the lowest marked.

make tune-demo
"""

from __future__ import annotations

import statistics
from pathlib import Path

from trials import simulate

DEMO = Path(__file__).parent / "demo.toml"
METHODS = ("area", "fedbuff", "as-fedavg", "s-fedavg")
STEP_SIZES = (1, 2, 3, 5, 10, 30, 100)
SEEDS = (1, 2, 3)  # not the demo's own


def final_loss(method: str, step_size: float) -> float:
    """Mean final loss over the seeds; infinite where a trial diverged."""
    settings = (f"method.name={method}", f"method.step_size={step_size}")
    return statistics.mean(simulate(DEMO, (*settings, f"seed={seed}")).loss for seed in SEEDS)


def main() -> None:
    """Print a row a method as soon as it is there."""
    print("| method | " + " | ".join(f"alpha = {step_size}" for step_size in STEP_SIZES) + " |")
    print("|---" * (1 + len(STEP_SIZES)) + "|")
    for method in METHODS:
        losses = [final_loss(method, step_size) for step_size in STEP_SIZES]
        cells = [f"**{loss:.3f}**" if loss == min(losses) else f"{loss:.4g}" for loss in losses]
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
