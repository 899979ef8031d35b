"""Mutation testing of methods, engine, transports and runfile: python -m benchmarks.mutants --sample 200 --seed 2.

Verdicts are logged in build/mutants/log.jsonl; the same command continues an interrupted run. Survivors are tried again
when a test or the source has changed. `--only TEXT` tries the mutants whose key contains a text, drawn or not.

Why not a library: mutmut (3.8.1) leaves decorated functions (all properties) and the tables of a module as they are,
removes no statement, changes each string three times, and draws no sample. cosmic-ray (8.7.0) changes the source in
place and runs the same command, all tests, for every mutant. Here a mutant costs seconds: only tests that reach it run.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.interruptible import run_interruptible
from benchmarks.mutants.mutations import Mutant, mutants_of
from benchmarks.mutants.reach import ROOMS, digest, measure
from benchmarks.mutants.score import Score, page
from benchmarks.mutants.trial import Bench, Verdict, append_log, read_log

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
APART = tuple(f"transports/{name}.py" for name in ("mpi_run", "mpi_server", "mpi_worker", "server_rank", "world"))


def main(arguments: Sequence[str]) -> int:
    """Try what is asked for, print the scores; 0 unless a mutant that was drawn is left to be tried."""
    options = parser().parse_args(arguments)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        (folder / "log.jsonl").unlink(missing_ok=True)
    every = all_mutants(ROOT / "src" / "areabench")
    equivalent = read_equivalent(every)
    own = Draw(options.seed, tuple(options.rooms))
    drawn, seen = draw_new(every, options.sample // len(own.rooms), own, options.seen)
    shown = seen if options.again else []
    wanted = [mutant for mutant in every.values() if options.only in mutant.key] if options.only else [*drawn, *shown]
    left = [mutant for mutant in wanted if mutant.key not in equivalent or options.only]
    known = _verdicts(left, folder, options)
    if options.only:
        return 0
    complete = all(mutant.key in known for mutant in left)
    tables = [_scores(every, part, equivalent, known) for part in (drawn, shown) if part]
    for scores in tables:
        print("\n".join(score.row() for score in scores), end="\n\n", flush=True)
    if options.page is not None and complete:
        survivors = [known[mutant.key] for mutant in left if not known[mutant.key].noticed]
        options.page.write_text(page(tables, survivors, page_words(options)), encoding="utf-8")
    return 0 if complete else 1


def page_words(options: argparse.Namespace) -> dict[str, str]:
    """What the page says about the draw."""
    seen = [str(each) for each in options.seen]
    rooms = [] if len(options.rooms) == len(ROOMS) else ["--rooms", *options.rooms]
    asked = ["--sample", str(options.sample), "--seed", str(options.seed), *rooms, *(["--seen", *seen] if seen else [])]
    asked += ["--again"] if options.again else []
    command = " ".join(["python -m benchmarks.mutants", *asked])
    seeds = f"seed{'s' * (len(seen) > 1)} {enumeration([str(each.seed) for each in options.seen])}" if seen else ""
    apart = enumeration([f"`{path}`" for path in APART])
    return {"command": command, "seed": str(options.seed), "seen": seeds, "apart": apart}


def enumeration(words: Sequence[str]) -> str:
    """Words with commas, and with `and` before the last."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    found.add_argument("--sample", type=int, default=200, help="how many, in equal parts from the rooms (default 200)")
    found.add_argument("--seed", type=int, default=2)
    found.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS, help="those to draw from (default all)")
    found.add_argument(
        "--seen", nargs="+", type=Draw.parsed, default=[], metavar="SEED[:ROOM,ROOM]",
        help="earlier draws, in their order, whose survivors got tests: not drawn again",
    )  # fmt: skip
    found.add_argument("--again", action="store_true", help="also try what was drawn earlier: apart on the page")
    found.add_argument("--only", metavar="TEXT", default="", help="the mutants with this in their key, drawn or not")
    found.add_argument("--minutes", type=float, default=float("inf"), help="begin none after so many minutes")
    found.add_argument("--fresh", action="store_true", help="forget what is in the log")
    found.add_argument("--folder", type=Path, default=Path("build/mutants"), help="for the copy and the log")
    found.add_argument("--page", type=Path, help="write the page here")
    return found


def all_mutants(package: Path) -> dict[str, Mutant]:
    """The mutants of the rooms by key."""
    paths = sorted(path for room in ROOMS for path in (package / room).rglob("*.py"))
    names = {str(path.relative_to(package)): path for path in paths}
    return {
        mutant.key: mutant
        for name, path in names.items() if name not in APART
        for mutant in mutants_of(name, path.read_text(encoding="utf-8"))
    }  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """A seed, and the rooms that it draws from."""

    seed: int
    rooms: tuple[str, ...] = ROOMS

    @classmethod
    def parsed(cls, text: str) -> Draw:
        """From `3`, or `3:runfile,transports`."""
        seed, _, rooms = text.partition(":")
        found = tuple(rooms.split(",")) if rooms else ROOMS
        if unknown := set(found) - set(ROOMS):
            raise argparse.ArgumentTypeError(f"no room: {', '.join(sorted(unknown))}")
        return cls(int(seed), found)

    def __str__(self) -> str:
        """As it is given."""
        return str(self.seed) if self.rooms == ROOMS else f"{self.seed}:{','.join(self.rooms)}"

    def of(self, every: Iterable[Mutant], each: int) -> list[Mutant]:
        """The same number from each room, by hash: who changes a module changes the draw there alone."""
        ordered = sorted(every, key=lambda mutant: hashlib.sha256(f"{self.seed} {mutant.key}".encode()).digest())
        parts = ([mutant for mutant in ordered if mutant.path.startswith(f"{room}/")] for room in self.rooms)
        return [mutant for part in parts for mutant in part[:each]]


def draw_new(
    every: Mapping[str, Mutant], each: int, own: Draw, before: Sequence[Draw]
) -> tuple[list[Mutant], list[Mutant]]:
    """A draw of so many from each room, and what was seen before it; every draw leaves out what earlier ones have."""
    left, seen = set(every.values()), list[Mutant]()
    for earlier in before:
        seen += earlier.of(left, each)
        left.difference_update(seen)
    return own.of(left, each), seen


def read_equivalent(every: Mapping[str, Mutant]) -> dict[str, str]:
    """The mutants that no test can notice, each with its reason; says which of them no longer exist."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    found = {str(row["key"]): str(row["reason"]) for row in rows}
    for key in found.keys() - every.keys():
        print(f"{EQUIVALENT.name}: there is no mutant {key}", flush=True)
    return found


def _verdicts(wanted: Sequence[Mutant], folder: Path, options: argparse.Namespace) -> dict[str, Verdict]:
    """Verdicts on all mutants, from the log or from now."""
    log, source = folder / "log.jsonl", folder / "src"
    tests = digest(path for part in (*ROOMS, "support") for path in (ROOT / "tests" / part).rglob("*.py"))
    code = digest((ROOT / "src").rglob("*.py"))
    sources = {mutant.path: digest([ROOT / "src" / "areabench" / mutant.path]) for mutant in wanted}
    known = {key: verdict for key, verdict in read_log(log).items() if _holds(verdict, sources, tests + code, key)}
    left = [mutant for mutant in wanted if mutant.key not in known or options.only]
    print(f"{len(wanted)} mutants, {len(wanted) - len(left)} of them in {log.name} already", flush=True)
    if not left:
        return known
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    reach = measure(ROOT, source, folder)
    bench = Bench(ROOT, source, folder, reach.seconds)
    end_s = time.monotonic() + 60 * options.minutes
    for number, mutant in enumerate(left, start=1):
        if time.monotonic() > end_s:
            break
        begun_s = time.monotonic()
        state, by = bench.tried(mutant, reach.tests(mutant))
        taken_s = round(time.monotonic() - begun_s, 1)
        known[mutant.key] = Verdict(mutant.key, state, by, taken_s, sources[mutant.path], tests + code)
        append_log(log, known[mutant.key])
        print(f"{number:4d}/{len(left)} {taken_s:5.1f} s  {state:11s} {mutant.key}", flush=True)
    return known


def _holds(verdict: Verdict, sources: Mapping[str, str], tests: str, key: str) -> bool:
    """Whether a verdict still says something: its file is as it was, and nothing is new where it survived."""
    same = sources.get(key.split(" ")[0]) == verdict.source
    return same and (verdict.noticed or verdict.tests == tests)


def _scores(
    every: Mapping[str, Mutant], drawn: Sequence[Mutant], equivalent: Mapping[str, str], known: Mapping[str, Verdict]
) -> list[Score]:
    """One score per room, and that of all."""

    def score(name: str, prefix: str) -> Score:
        own = [mutant for mutant in drawn if mutant.path.startswith(prefix)]
        same = [mutant for mutant in own if mutant.key in equivalent]
        noticed = [mutant for mutant in own if mutant not in same and mutant.key in known and known[mutant.key].noticed]
        total = sum(mutant.path.startswith(prefix) for mutant in every.values())
        return Score(name, total, len(own), len(same), len(noticed))

    return [*(score(f"`{room}`", f"{room}/") for room in ROOMS), score("all", "")]


if __name__ == "__main__":
    run_interruptible(main)
