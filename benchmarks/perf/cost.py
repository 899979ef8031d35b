"""What a simulated update costs, in time and memory, against clients n, parameters d and local steps M.

make bench-cost, or: python benchmarks/perf/cost.py [--quick] [--memory-gb 8] [--output runs/cost]

Each point has a process of its own with one thread. Writes cost.md, cost.png and cost.svg.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from bench_page import describe_machine, markdown_table, page_options, print_page, run_script
from cost_point import (
    QUICK,
    Cost,
    Letter,
    Measured,
    Point,
    Sizes,
    dimension,
    many_clients,
    measure_apart,
    memories_bytes,
    models_bytes,
    plan,
    set_up,
    versions_bytes,
    warm_up,
)

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import method_label

CLAIM_BYTES = 1e9
TITLES: dict[Letter, str] = {
    "n": "Against the number of clients n: M = 1, synthetic data, 7,840 parameters",
    "d": "Against the number of parameters d: n = 128, M = 1, synthetic data of 100 classes",
    "M": "Against the number of local steps M: n = 128, MNIST, 7,840 parameters",
}
INTRODUCTION = """\
Logistic regression with mini-batches of 32, exponential delays and a server step after every 4 updates. The
time per update is processor time, from the first update to the last, without run file and evaluation; a client's first
update includes making the client. Each client works at least four times on average. The peak memory is that of the
whole process, with the data and what drawing them takes. Two columns say what the models alone take: those that
asynchronous clients work on at the same time (on average 0.52·n·d floats for exponential delays), and
AREA's memories (n·d floats).
"""
SET_UP_KINDS = ("20 features", "784 features", "quadratics")
SET_UP_WORDS = """\
Processor time from the experiment to the first update, with drawing the data or the functions, the first delays and the
first orders; without importing areabench. Synthetic data have 10 classes and one sample per client, quadratics 10
dimensions.
"""


def measure(points: Sequence[Point], limit_bytes: float, cache: Path) -> list[Measured]:
    """Each point in turn; those whose models alone pass the limit are left out."""
    measured = []
    for point in points:
        fits = models_bytes(point.experiment) <= limit_bytes
        measured.append(Measured(point, measure_apart(point.experiment, cache) if fits else None))
        say(point.experiment, measured[-1].cost)
    return measured


def say(experiment: Experiment, cost: Cost | None) -> None:
    """A line of progress."""
    words = f"{1e6 * cost.update_s:.0f} µs per update, {megabytes(cost.peak_bytes)} MB" if cost else "left out"
    print(f"{experiment.name}: {words}", file=sys.stderr, flush=True)


def megabytes(count: float) -> str:
    """Bytes in MB (10^6), to at least two digits."""
    return f"{count / 1e6:,.0f}" if count >= 1e7 else f"{count / 1e6:.2g}"


# ---------------------------------------------------------------------------------------------------- page


def axis_table(measured: Sequence[Measured], letter: Letter) -> str:
    """Times and peaks of one axis, one row per value."""
    chosen = [one for one in measured if one.point.letter == letter]
    methods = [method_label(method) for method in dict.fromkeys(one.point.method for one in chosen)]
    heading = [letter, *(f"{method} µs" for method in methods), *(f"{method} MB" for method in methods)]
    rows = [heading + ["sent models MB", "memories MB", "start s"]]
    for value in dict.fromkeys(one.point.value for one in chosen):
        rows.append([f"{value:,}", *_value_cells([one for one in chosen if one.point.value == value])])
    return markdown_table(rows)


def _value_cells(same: Sequence[Measured]) -> list[str]:
    """The cells of one value of an axis: all methods in order."""
    experiment = same[0].point.experiment
    start_s = max((one.cost.start_s for one in same if one.cost), default=0.0)
    return [
        *(f"{1e6 * one.cost.update_s:,.0f}" if one.cost else "left out" for one in same),
        *(megabytes(one.cost.peak_bytes) if one.cost else "left out" for one in same),
        megabytes(versions_bytes(experiment)),
        megabytes(memories_bytes(experiment)),
        f"{start_s:.1f}",
    ]


def left_out(measured: Sequence[Measured], limit_bytes: float) -> str:
    """Which points were not measured, and why."""
    words = [
        f"{method_label(one.point.method)} at {one.point.letter} = {one.point.value:,} is left out: its models alone "
        f"take {models_bytes(one.point.experiment) / 1e9:.2g} GB, the limit is {limit_bytes / 1e9:g} GB: --memory-gb\n"
        for one in measured
        if one.cost is None
    ]
    return "\n".join(words)


def set_up_table(experiments: Sequence[Experiment], costs: Sequence[Cost]) -> str:
    """The section about making clients ready to work; the kinds of problems follow each other."""
    rows = [("n", *(f"{kind} {unit}" for kind in SET_UP_KINDS for unit in ("s", "MB")))]
    for first in range(0, len(experiments), len(SET_UP_KINDS)):
        cells = [
            (f"{cost.start_s:.2f}", megabytes(cost.peak_bytes)) for cost in costs[first : first + len(SET_UP_KINDS)]
        ]
        rows.append((f"{experiments[first].clients.count:,}", *chain.from_iterable(cells)))
    return f"## Until the first update of AREA\n\n{SET_UP_WORDS}\n{markdown_table(rows)}"


def claim(experiments: Sequence[Experiment], costs: Sequence[Cost]) -> str:
    """The section about many clients without client memories."""
    rows = [("method", "updates", "s", "peak MB", "under 1 GB")]
    for experiment, cost in zip(experiments, costs, strict=True):
        verdict = "yes" if cost.peak_bytes < CLAIM_BYTES else "no"
        name = method_label(experiment.method.name)
        rows.append((name, f"{cost.updates:,}", f"{cost.run_s:.1f}", megabytes(cost.peak_bytes), verdict))
    count = experiments[0].clients.count
    parameters = dimension(experiments[0])
    title = f"## {count:,} clients on the paper's problem: MNIST, non-IID, {parameters:,} parameters, M = 1, Delta = 4"
    words = "As `areabench simulate` runs it, with run file, event log and the evaluation of the last model."
    return f"{title}\n\n{words}\n\n{markdown_table(rows)}"


def page(measured: Sequence[Measured], sections: Sequence[str], limit_bytes: float) -> str:
    """The whole page."""
    parts = ["# Cost of a simulated update", describe_machine(), INTRODUCTION.rstrip()]
    parts += [f"## {title}\n\n{axis_table(measured, letter).rstrip()}" for letter, title in TITLES.items()]
    parts += [
        left_out(measured, limit_bytes).rstrip(),
        *map(str.rstrip, sections),
        "![Cost against n, d and M](cost.png)",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    """Measure all points, write the page and the figure."""
    parser = page_options("Measure time and memory of a simulated update against n, d and M.", "runs/cost")
    parser.add_argument("--memory-gb", type=float, default=8.0, help="leave out what has more models (default 8)")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    limit_bytes = 1e9 * arguments.memory_gb
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        measure_apart(warm_up(), cache)
        measured = measure(plan(sizes), limit_bytes, cache)
        ready = [measure_apart(experiment, cache) for experiment in set_up(sizes)]
        experiments = many_clients(sizes)
        many = claim(experiments, [measure_apart(experiment, cache, whole=True) for experiment in experiments])
    from cost_figure import draw_files  # not before: a point's process starts with the memory of this one

    text = page(measured, (set_up_table(set_up(sizes), ready), many), limit_bytes)
    draw_files(measured, arguments.output)
    print_page(text, arguments.output / "cost.md")


if __name__ == "__main__":
    run_script(main)
