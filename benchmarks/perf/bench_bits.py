"""What portable bits cost: the same work under the kernels of this processor and under portable ones.

make bench-bits, or: python benchmarks/perf/bench_bits.py [--quick] [--output FILE]

Kernels are chosen when a library is loaded, so each measurement is a process of its own. Processes alternate; processor
time is counted, and what is shown is the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from bench_page import describe_machine, markdown_table, page_options, print_page
from bench_simulator import FULL, PAPER, QUICK, Sizes, bare_step_s, lane_experiments, logistic

from areabench.cli import main as cli
from areabench.engine.lanes import build_pass
from areabench.engine.scenario import build_scenario
from areabench.experiment.parse import load_experiment
from areabench.kernels import available, kernels_in_force, portable_environment
from areabench.transports.simulator import simulate_lanes

TABLE = PAPER.parent / "tables" / "M_1_n_4_non_iid.toml"
WORK = {
    "gradient": "a gradient step of multinomial logistic regression (batch 32, 784 features)",
    "lanes": "a lane-step of a pass of 21 lanes, n = 128, M = 1",
    "table": "one trial of the paper's table M = 1, n = 4 (56 runs, evaluation included)",
}


def measure(sizes: Sizes, *, quick: bool) -> dict[str, float]:
    """Seconds of processor time of each work, and the kernels, in this process."""
    with tempfile.TemporaryDirectory() as name, np.errstate(over="ignore", invalid="ignore"):
        folder = Path(name)
        problem = logistic(build_scenario(load_experiment(PAPER), folder))
        gradient_s = bare_step_s(problem, sizes.bare_steps)
        experiments = lane_experiments(sizes, sizes.passes[0])
        scenario = build_scenario(experiments[0], folder)
        begun_s = time.process_time()
        ends = simulate_lanes(build_pass(scenario, experiments), lambda _time_s, _updates: None)
        pass_s = time.process_time() - begun_s
        updates = max(end.status.updates for end in ends if end is not None)
        shorter = ["--set", "stop.horizon_s=0.5"] if quick else []
        begun_s = with_children_s()
        with contextlib.redirect_stdout(sys.stderr):
            cli.main(["sweep", str(TABLE), "--trials", "1", "--jobs", "1", "-o", f"{name}/table", *shorter])
        table_s = with_children_s() - begun_s
    return {"gradient": gradient_s, "lanes": pass_s / updates / len(experiments), "table": table_s}


def with_children_s() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def in_process(variables: dict[str, str], *, quick: bool) -> tuple[str, dict[str, float]]:
    """What a new process with these variables measures, and its kernels in words."""
    command = [sys.executable, __file__, "--one", *(["--quick"] if quick else [])]
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    kernels, found = json.loads(ended.stdout)
    return kernels, found


def main() -> None:
    """Measure, print the page, write it to a file if asked."""
    parser = page_options("Time the same work under native and under portable kernels.")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sizes = replace(QUICK if arguments.quick else FULL, turns=1)
    if arguments.one:
        found = measure(sizes, quick=arguments.quick)
        print(json.dumps([str(kernels_in_force()), found]))
        return
    newest = {"OPENBLAS_CORETYPE": available()[-1]}
    sides = {"native": {}, "newest": newest, "portable": portable_environment()}
    turns: list[dict[str, dict[str, float]]] = []
    names: dict[str, str] = {}
    for turn in range(1 if arguments.quick else 5):
        turns.append({})
        for side, variables in sides.items():
            names[side], turns[-1][side] = in_process(variables, quick=arguments.quick)
            print(f"turn {turn + 1}: {side} done", file=sys.stderr)
    print_page(page(names, turns), arguments.output)


def page(names: dict[str, str], turns: Sequence[dict[str, dict[str, float]]]) -> str:
    """The page in Markdown."""
    rows = [["processor time", "native", "newest", "portable", "portable / native", "portable / newest"]]
    for key, words in WORK.items():
        seconds = [amount(median(turn[side][key] for turn in turns)) for side in names]
        ratios = [ratio([turn["portable"][key] / turn[side][key] for turn in turns]) for side in ("native", "newest")]
        rows.append([words, *seconds, *ratios])
    listing = "\n".join(f"- *{side}*: {kernels}" for side, kernels in names.items())
    return (
        "# What portable bits cost\n\n"
        "`make bench-bits`: the same work under the kernels that the libraries choose by themselves (*native*), under\n"
        'the newest that this processor can run, and with `bits = "portable"`. Processes alternate; times are medians\n'
        f"of processor time, ratios medians of {len(turns)} neighbours, with their range.\n\n{listing}\n\n"
        f"{markdown_table(rows)}\n{describe_machine()}\n"
    )


def amount(seconds: float) -> str:
    """A duration as text."""
    return f"{1e6 * seconds:.1f} µs" if seconds < 1e-2 else f"{seconds:.1f} s"


def ratio(values: Sequence[float]) -> str:
    """A median with its range."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
