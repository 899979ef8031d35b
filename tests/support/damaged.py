"""Damages run files in many ways and reads them with every command: either an error, or the numbers that were written.

Any other end, a traceback, a hang or a number that differs, ends this with 1.

    python -m tests.support.damaged 1000 7     # this many cases, from this seed

Every case is made of the seed and its number, and said before it is tried, so that a crash can be tried again.
"""

from __future__ import annotations

import faulthandler
import io
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.engine.events import Event
from areabench.errors import UserError
from areabench.experiment.parse import parse_experiment
from areabench.runfile.layout import close_after_write_error
from areabench.runfile.read import open_run
from areabench.runfile.reader import RunReader
from areabench.runfile.record import Recorder
from areabench.runfile.recover import salvage
from areabench.sweeps.result import ended_state, read_ended

EXPERIMENT = quadratic("iterations = 60")
OVERRIDES: tuple[list[str], ...] = ([], ["record.events=false", "record.models=last"])
COMMANDS = ("show", "summary", "diagnose", "replay")
PATIENCE_S = 60
FRONT = 16_000  # bytes in which HDF5 keeps nearly all that it knows of a small file


# ------------------------------------------------------------------------------------------------ whole files


def whole_files(folder: Path) -> list[bytes]:
    """A run file with events, one without them and with the last model alone, and one of a run that was killed."""
    files: list[bytes] = []
    for overrides in OVERRIDES:
        files.append(simulated(folder / f"whole-{len(files)}.h5", EXPERIMENT, overrides).read_bytes())
    return [*files, killed(folder / "whole-0.h5", folder / "killed.h5")]


def killed(whole: Path, path: Path) -> bytes:
    """The same run as it is on the disc before it has ended."""
    with open_run(whole) as run:
        recorder = Recorder(path, EXPERIMENT, *run.model_size, force=False)
        recorder.begin(run.provenance, run.clients_array)
        for row in run.events_array:
            recorder.event(Event(*row.tolist()))
        for row, model in zip(run.snapshot_index, run.models, strict=True):
            recorder.snapshot(row["time_s"], row["version"], model, events=row["event"])
        recorder.flush()
    close_after_write_error(recorder._file)
    return path.read_bytes()


# ---------------------------------------------------------------------------------------------------- damages


def cut_off(content: bytearray, chance: random.Random) -> bytearray:
    return content[: chance.randrange(len(content))]


def flipped(content: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        content[place(content, chance)] ^= 1 << chance.randrange(8)
    return content


def zeroed(content: bytearray, chance: random.Random) -> bytearray:
    first, size = place(content, chance), chance.choice((16, 512, 4096))
    content[first : first + size] = bytes(len(content[first : first + size]))
    return content


def scrambled(content: bytearray, chance: random.Random) -> bytearray:
    first, size = place(content, chance), chance.choice((8, 64, 512))
    content[first : first + size] = chance.randbytes(len(content[first : first + size]))
    return content


def extended(content: bytearray, chance: random.Random) -> bytearray:
    return content + chance.randbytes(chance.randrange(1, 5000))


def place(content: bytearray, chance: random.Random) -> int:
    """Somewhere in the file, as often as not near its front."""
    return chance.randrange(min(FRONT, len(content)) if chance.random() < 0.5 else len(content))


DAMAGES: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    cut_off, flipped, flipped, zeroed, scrambled, extended
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- trying


def tried(arguments: list[str]) -> str | None:
    """What a command prints; None where it refuses the file, in one line."""
    said, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        code = main(arguments)
    assert code in (0, 2), (code, complained.getvalue())
    assert "Traceback" not in complained.getvalue()
    assert code == 0 or complained.getvalue().count("\n") == 1, complained.getvalue()
    return said.getvalue() if code == 0 else None


ARRAYS = ("events_array", "snapshot_index", "metrics_array", "clients_array", "models", "staleness", "served")


def numbers(path: Path) -> dict[str, object]:
    """Everything that a run file holds."""
    with open_run(path) as run:
        arrays = {name: getattr(run, name).tobytes() for name in ARRAYS}
        return arrays | {"experiment": run.experiment, "status": run.status, "provenance": run.provenance}


@dataclass(frozen=True)
class Whole:
    """A file that is not damaged, what it holds, and what each command prints of it."""

    content: bytes
    numbers: dict[str, object]
    printed: dict[str, str | None]


def read_whole(content: bytes, path: Path) -> Whole:
    """Read a whole file at the place where its damaged copies will be."""
    path.write_bytes(content)
    return Whole(content, numbers(path), {command: tried([command, str(path)]) for command in COMMANDS})


def read_as_a_sweep_does(path: Path) -> None:
    with suppress(UserError), RunReader(path) as reader:  # as the results page reads who made each file
        _ = reader.provenance
    for overrides in OVERRIDES:
        experiment = parse_experiment(EXPERIMENT, overrides=overrides)
        ended_state(path, experiment)
        with suppress(UserError):
            read_ended(path, experiment)


def saved(path: Path, folder: Path, whole: Whole) -> bool:
    """Whether something could be saved: the beginning of what was written, which every command must read."""
    made = folder / "saved.h5"
    try:
        salvage(path, made, None)
    except UserError:
        return False
    found = numbers(made)
    for name in ARRAYS[:2]:
        assert whole.numbers[name].startswith(found[name]), f"recover changed {name}"  # type: ignore[attr-defined]
    assert found["metrics_array"] in (b"", whole.numbers["metrics_array"]), "recover changed metrics"
    assert whole.numbers["models"].startswith(found["models"]), "recover changed models"  # type: ignore[attr-defined]
    for command in COMMANDS[:-1]:
        with open_run(made) as run:
            nothing_to_judge = command == "diagnose" and not run.status.end_s > 0
        assert (tried([command, str(made)]) is None) == nothing_to_judge
    tried(["replay", str(made)])
    return True


def case(number: int, seed: int, files: list[Whole], folder: Path) -> str:
    """One file, damaged and read; what came of it in a word or two."""
    chance = random.Random(f"{seed}/{number}")
    damage, whole = DAMAGES[chance.randrange(len(DAMAGES))], files[chance.randrange(len(files))]
    path = folder / "damaged.h5"
    path.write_bytes(damage(bytearray(whole.content), chance))
    printed = {command: tried([command, str(path)]) for command in COMMANDS}
    for command, text in printed.items():
        assert text in (None, whole.printed[command]), f"{command} prints other numbers and no error:\n{text}"
    try:
        found = numbers(path)
    except UserError:
        found = {}
    for name, value in found.items():
        assert value == whole.numbers[name], f"{name} differs, and there is no error"
    read_as_a_sweep_does(path)
    return f"{'equal' if found else 'refused'}, {'saved' if saved(path, folder, whole) else 'nothing saved'}"


def run(cases: int, seed: int) -> Counter[str]:
    """Try this many cases; a hang or a crash ends the process."""
    found: Counter[str] = Counter()
    with TemporaryDirectory() as name:
        folder = Path(name)
        whole = [read_whole(content, folder / "damaged.h5") for content in whole_files(folder)]
        for number in range(cases):
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
            print(f"case {number} of seed {seed}", file=sys.stderr, flush=True)
            found[case(number, seed, whole, folder)] += 1
        faulthandler.cancel_dump_traceback_later()
    return found


if __name__ == "__main__":
    faulthandler.enable()
    for words, count in sorted(run(*map(int, sys.argv[1:3])).items()):
        print(f"{count:6} {words}")
