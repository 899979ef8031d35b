"""How much the demo's outcome varies over seeds: mean and range per method, and which methods can be told apart.

python analysis/demo_spread.py SWEEP    (`make demo-spread`: runs/demo_seeds)
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import pairwise

import numpy as np
from scipy.stats import t as student

from areabench import open_sweep
from areabench.experiment.labels import method_label
from areabench.results.statistics import spread_of

CONFIDENCE = 0.95

Accuracies = dict[int, float]  # final test accuracy in percent, by seed


def accuracies_of(folder: str) -> dict[str, Accuracies]:
    """Final accuracies by method, the highest mean first."""
    found: dict[str, Accuracies] = defaultdict(dict)
    for result in open_sweep(folder).results:
        found[result.experiment.method.name][result.experiment.seed] = result.final_accuracy
    return dict(sorted(found.items(), key=lambda item: -float(np.mean(list(item[1].values())))))


def compared(better: Accuracies, other: Accuracies) -> tuple[float, float]:
    """Mean difference over common seeds, and half the width of its confidence interval, in percentage points."""
    differences = np.array([better[seed] - other[seed] for seed in sorted(better.keys() & other.keys())])
    if len(differences) < 2:
        return float(differences.mean()), float("inf")
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(student.ppf((1 + CONFIDENCE) / 2, len(differences) - 1) * error)


def main(folder: str) -> None:
    found = accuracies_of(folder)
    seeds = max(map(len, found.values()))
    print(f"The same methods simulated with {seeds} seeds (other data splits, rates and delays), accuracy at the end:")
    for method, values in found.items():
        spread = spread_of(list(values.values()))
        name = method_label(method)
        if spread is None:
            print(f"  {name:<10} diverged with every seed")
            continue
        print(f"  {name:<10} mean {spread.mean:5.1f} %, range {spread.minimum:.1f} to {spread.maximum:.1f} %")
    for better, other in pairwise(found):
        difference, half_width = compared(found[better], found[other])
        verdict = "is better than" if difference > half_width else "cannot be told apart from"
        print(
            f"  {method_label(better)} {verdict} {method_label(other)}: "
            f"{difference:.1f} ± {half_width:.1f} points ({100 * CONFIDENCE:.0f} % interval)"
        )


if __name__ == "__main__":
    main(sys.argv[1])
