"""What secure aggregation costs: updates per second and bytes with and without it, and the time of masks.

make bench-privacy, or: python benchmarks/perf/bench_privacy.py [--seconds S] [--output FILE]

Runs with and without [privacy] alternate, without delays, on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from bench_page import describe_machine, markdown_table, number, print_page

import areabench
from areabench.engine.scenario import build_scenario
from areabench.methods.fixed_point import FixedPoint, Privacy
from areabench.privacy.masks import MaskKeeper, MaskStream
from areabench.problems.datasets import default_cache

PARAMETERS = 1_000_000
CLIENTS = (4, 32, 128)
WORKERS = 4  # ranks that share the clients, at most
REPEATS = 5
GOAL_MS = 2.0  # for the masks of an update of a million parameters

EXPERIMENT = """
[problem]
name = "logistic"
[data]
name = "mnist"
[split]
name = "iid"
[clients]
count = {clients}
[rates]
rate = {rate}
[method]
name = "area"
step_size = 1.0
[aggregation]
updates = 4
[stop]
horizon_s = {seconds}
[record]
snapshots = "none"
"""


def timed_ms(call: Callable[[int], object]) -> float:
    """The median duration of twenty calls with the numbers 0, 1, ..."""
    taken = []
    for each in range(20):
        begun_s = time.perf_counter()
        call(each)
        taken.append(1e3 * (time.perf_counter() - begun_s))
    return median(taken)


def mask_rows() -> list[tuple[str, ...]]:
    """Times of the parts of an update of a million parameters."""
    rows: list[tuple[str, ...]] = [("a million parameters, ms", "32 bits", "64 bits", "goal")]
    values = np.random.default_rng(0).standard_normal(PARAMETERS).astype(np.float32)
    columns = []
    for bits in (32, 64):
        fixed = FixedPoint.of(Privacy(bits=bits))
        like, _ = fixed.encode(values)
        stream = MaskStream(bytes(32), like)
        copied = np.empty_like(like)
        keeper = MaskKeeper(lambda client: bytes([client]) * 32, 4, like, threshold=2)
        columns.append(
            [
                timed_ms(lambda _number, like=like, copied=copied: np.copyto(copied, like)),  # type: ignore[misc]
                timed_ms(stream.mask),
                timed_ms(lambda _number, fixed=fixed: fixed.encode(values)),  # type: ignore[misc]
                timed_ms(lambda each, stream=stream, like=like: stream.cover(like, each)),  # type: ignore[misc]
                timed_ms(lambda each, keeper=keeper: keeper.total([(client, each) for client in range(4)])),  # type: ignore[misc]
            ]
        )
    labels = (
        "a copy of the update, for comparison",
        "client: stretch a mask",
        "client: float32 to integers",
        "client: stretch a mask and add it",
        "helper: the sum of four masks",
    )
    for label, narrow, wide in zip(labels, *columns, strict=True):
        goal = f"{GOAL_MS:g}" if label == "client: stretch a mask" else ""
        rows.append((label, f"{narrow:.2f}", f"{wide:.2f}", goal))
    return rows


def payload_bytes(text: str) -> int:
    """Bytes of one update."""
    return build_scenario(areabench.read_experiment(text), default_cache(os.environ)).shapes.payload.nbytes


def simulated(text: str) -> float:
    """Updates per second of processor time in the simulator."""
    begun_s = time.process_time()
    with areabench.simulate(text, progress=False) as run:
        return run.status.updates / (time.process_time() - begun_s)


def launched(text: str, clients: int, folder: Path, *, helper: bool) -> float:
    """Updates per second on MPI, without delays."""
    ranks = min(clients, WORKERS) + 1 + helper
    with areabench.launch(text, output=folder / "run.h5", ranks=ranks, force=True, progress=False) as run:
        return run.status.updates / run.status.end_s


def rate_rows(seconds: float, folder: Path) -> list[tuple[str, ...]]:
    """One row per number of clients and way to run, with medians of runs that alternate."""
    rows: list[tuple[str, ...]] = [
        ("clients", "where", "plain, updates/s", "32 bits", "64 bits", "32/plain", "64/plain", "bytes of an update")
    ]
    kinds = ("", "[privacy]\n", "[privacy]\nbits = 64\n")
    for clients in CLIENTS:
        texts = [EXPERIMENT.format(clients=clients, rate=1e4, seconds=seconds) + kind for kind in kinds]
        virtual = [EXPERIMENT.format(clients=clients, rate=10, seconds=2000 / (10 * clients)) + kind for kind in kinds]
        found: dict[str, list[list[float]]] = {"simulator": [[], [], []], "MPI": [[], [], []]}
        for _ in range(REPEATS):
            for place, (real_text, virtual_text) in enumerate(zip(texts, virtual, strict=True)):
                found["simulator"][place].append(simulated(virtual_text))
                found["MPI"][place].append(launched(real_text, clients, folder, helper=place > 0))
        sizes = " / ".join(f"{payload_bytes(text):,}" for text in virtual)
        for where, rates in found.items():
            plain, narrow, wide = (median(each) for each in rates)
            shares = [median(np.divide(each, rates[0])) for each in rates[1:]]
            measured = (*map(number, (plain, narrow, wide)), *(f"{share:.0%}" for share in shares))
            rows.append((str(clients), where, *measured, sizes))
    return rows


def page(masks: Sequence[tuple[str, ...]], rates: Sequence[tuple[str, ...]]) -> str:
    """The page."""
    return f"""# What secure aggregation costs

`make bench-privacy`: AREA on MNIST (7,840 parameters, batch 32, M = 1, Delta = 4) as fast as it goes. Runs without and
with [privacy](../../docs/privacy.md) alternate; medians of {REPEATS} runs each, percentages are medians of the ratios
of neighbours. On MPI {WORKERS} ranks share the clients, and the helper is one more. *Simulator*: updates per second of
processor time, with all parties in one process.

{markdown_table(list(rates))}
Every step also sends 16 bytes per update to the helper, and one vector of integers back.

{markdown_table(list(masks))}
{describe_machine()}
"""


def main() -> None:
    """Measure, print the page, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of a run on MPI (default 3)")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = page(mask_rows(), rate_rows(options.seconds, Path(folder)))
    print_page(text, options.output)


if __name__ == "__main__":
    main()
