"""How long the report of a large sweep takes, and how large its page is: 500 small runs in runs/bench-report.

make bench-report, or: python benchmarks/perf/bench_report.py [--trials 5] [--output runs/bench-report]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from areabench.cli.main import main

SWEEP = """
name = "bench-report"
seed = 1
[problem]
name = "logistic"
batch_size = 4
[data]
name = "synthetic"
train_samples = 400
test_samples = 200
features = 8
classes = 4
[split]
name = "dirichlet"
concentration = 0.5
[clients]
count = 16
[method]
name = "area"
step_size = 1.0
[stop]
horizon_s = 15.0
[record]
interval_s = 0.1
[sweep]
title = "A hundred runs in each trial"
[[sweep.grid]]
rates = [{ name = "uniform", rate = 1.0 }, { name = "uniform", rate = 2.0 }, { name = "uniform", rate = 4.0 },
         { name = "normal", mean = 2.0, deviation = 1.0 }, { name = "lognormal", median = 2.0, sigma = 1.0 }]
method.name = ["s-fedavg", "as-fedavg", "fedbuff", "area"]
method.step_size = [1e-2, 1e-1, 1.0, 1e1, 1e2]
"""


def measure() -> int:
    """Make the sweep, which continues where it was interrupted, and its report."""
    parser = argparse.ArgumentParser(description="Time the report of a sweep, and weigh its page.")
    parser.add_argument("--trials", type=int, default=5, help="of a hundred runs each (default 5)")
    parser.add_argument("--output", type=Path, default=Path("runs/bench-report"), help="folder (%(default)s)")
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    sweep = folder / "bench.toml"
    page = folder / "report.html"
    sweep.write_text(SWEEP, encoding="utf-8")
    if exit_code := main(["sweep", str(sweep), "--output", str(folder / "runs"), "--trials", str(options.trials)]):
        return exit_code
    begun_s = time.perf_counter()
    used_s = time.process_time()
    if exit_code := main(["report", str(folder / "runs"), "--output", str(page), "--force"]):
        return exit_code
    elapsed_s = time.perf_counter() - begun_s
    used_s = time.process_time() - used_s
    print(f"{elapsed_s:.1f} s, of which {used_s:.1f} s on a core; {page.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(measure())
