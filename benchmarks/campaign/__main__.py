"""The fault campaign: python -m benchmarks.campaign --runs 500 --seed 1 --jobs 2 --page docs/campaign.md.

The seed and its number determine a run. Runs in log.jsonl are not repeated, so an interrupted campaign continues;
--fresh forgets them. The folder of a failed run is kept below cases: experiment, run file, output of every command, and
failures.txt.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

from benchmarks.campaign.cases import draw_case
from benchmarks.campaign.commands import LIMIT_S
from benchmarks.campaign.findings import Finding, append_log, read_log
from benchmarks.campaign.kinds import kinds
from benchmarks.campaign.page import Origin, page
from benchmarks.campaign.processes import end_own
from benchmarks.campaign.run import run_case
from benchmarks.interruptible import run_interruptible

from areabench.runfile.provenance import gather_provenance


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 0 where everything was as expected."""
    options = _parser().parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    log = folder / "log.jsonl"
    if options.fresh:
        log.unlink(missing_ok=True)
    numbers = _numbers(options)
    known = {number: row for number, row in read_log(log, options.seed).items() if row.passed or not options.again}
    todo = [number for number in numbers if number not in known]
    print(f"{len(numbers)} runs, {len(numbers) - len(todo)} of them in {options.folder}/log.jsonl already", flush=True)
    deadline_s = time.monotonic() + 60 * options.minutes
    commit = gather_provenance("simulator", command="", threads="", seed=0).git_revision

    def play(number: int) -> Finding:
        finding = run_case(draw_case(options.seed, number), options.seed, folder / "cases")
        finding.commit = commit
        return finding

    (folder / "cases").mkdir(exist_ok=True)
    for finding in _played(play, todo, options.jobs, deadline_s):
        append_log(log, finding)
        known[finding.number] = finding
        _tell(finding, folder)
    return _conclude([known[number] for number in numbers if number in known], len(numbers), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, help="how many (default: each kind once)")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these runs, by their numbers")
    parser.add_argument("--kind", nargs="+", help="only runs of kinds with one of these in their name: 'mpi: SIG'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this many minutes")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--fresh", action="store_true", help="forget what is in the log")
    parser.add_argument("--again", action="store_true", help="run again what failed")
    parser.add_argument("--folder", type=Path, default=Path("runs/campaign"), help="for the log and kept runs")
    parser.add_argument("--page", type=Path, help="write the page here")
    return parser


def _numbers(options: argparse.Namespace) -> list[int]:
    """The numbers of the runs; the kinds take turns."""
    every = kinds()
    numbers = options.only or list(range(options.runs or len(every)))
    names = options.kind or [""]
    return [number for number in numbers if any(name in every[number % len(every)].key for name in names)]


def _played(play: Callable[[int], Finding], numbers: Sequence[int], jobs: int, deadline_s: float) -> Iterator[Finding]:
    """Findings as they come, some runs at a time; no run is started after the deadline."""
    waiting, under_way = iter(numbers), set[Future[Finding]]()
    with ThreadPoolExecutor(jobs) as pool:
        while True:
            if time.monotonic() < deadline_s:
                under_way |= {pool.submit(play, number) for number in islice(waiting, jobs - len(under_way))}
            if not under_way:
                return
            done, under_way = _wait(under_way)
            yield from (future.result() for future in done)


def _wait(under_way: set[Future[Finding]]) -> tuple[set[Future[Finding]], set[Future[Finding]]]:
    """Wait for a run to be over; an interrupt ends all that are running."""
    try:
        done, others = wait(under_way, return_when=FIRST_COMPLETED)
    except BaseException:
        end_own()
        raise
    return done, others


def _tell(finding: Finding, folder: Path) -> None:
    print(finding.line(), flush=True)
    for failure in finding.failures:
        print(f"      {failure}", flush=True)
    if finding.failures:
        kept = next((folder / "cases").glob(f"{finding.number:03d}-*"), folder)
        print(f"      kept in {kept}", flush=True)


def _conclude(findings: Sequence[Finding], wanted: int, options: argparse.Namespace) -> int:
    """Say how it went, write the page; returns the exit code."""
    failed = sum(not finding.passed for finding in findings)
    hit, skipped = sum(finding.hit for finding in findings), sum(bool(finding.skipped) for finding in findings)
    print(f"{len(findings)} of {wanted} runs: {hit} hit, {skipped} skipped, {failed} failed", flush=True)
    never = {kind.key for kind in kinds()} - {finding.kind for finding in findings}
    if never and not (options.kind or options.only):
        print(f"not reached: {', '.join(sorted(never))}", flush=True)
    if options.page is not None:
        words = " ".join(["python -m benchmarks.campaign", f"--runs {wanted}", f"--seed {options.seed}"])
        options.page.write_text(page(findings, Origin(words, LIMIT_S)), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    run_interruptible(main)
