"""Random experiment files: valid ones run and replay, damaged ones run or are refused in one line.

How many are tried is hypothesis's profile: `--hypothesis-profile=long` tries many more, and others each time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.random_experiments import TRACE_FILE, experiments, traces

from areabench.cli.main import main
from areabench.cli.parser import build_parser
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import load_experiment
from areabench.problems.data.synthetic import Synthetic
from areabench.settings.parse import to_toml
from areabench.timing.rates import client_rates
from areabench.timing.trace import TraceDelays

the_parser = cache(build_parser)  # making it takes longer than a small run
in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder and a cache of the test's own; mpirun is not started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("areabench.cli.main.build_parser", the_parser)


@contextmanager
def empty_folder() -> Iterator[Path]:
    """An empty folder below the current one, for one example."""
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def outcome(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command."""
    said = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said):
        return main(arguments), said.getvalue()


def assert_refused(code: int, said: str) -> None:
    """Bad input, reported in one line."""
    assert code == 2, said
    assert said.startswith("areabench: ")
    assert said.count("\n") == 1
    assert said.strip().isprintable()


def fails_as_asked(experiment: Experiment, code: int, said: str) -> bool:
    """Whether a run has failed because its experiment asks for that: in one line, with what to do."""
    if code != 1 or said.count("\n") != 1:
        return False
    if experiment.faults.bad_update == "stop" and "not finite; look for the cause" in said:
        return True
    return experiment.privacy is not None and ("raise privacy.range" in said or "privacy.most_updates = " in said)


# ---------------------------------------------------------------------------------------------------- valid ones


ABSURD = "the loss at the start is"


@pytest.mark.slow
@in_a_folder
@given(experiments(), st.data())
def test_a_valid_experiment_runs_and_replays(experiment: Experiment, data: st.DataObject) -> None:
    with empty_folder() as folder:
        path, run = folder / "try.toml", str(folder / "run.h5")
        path.write_text(to_toml(experiment), encoding="utf-8")
        if isinstance(experiment.delays, TraceDelays):
            (folder / TRACE_FILE).write_text(data.draw(traces(experiment.clients.count)), encoding="utf-8")
        code, said = outcome("simulate", str(path), "-o", run)
        if fails_as_asked(experiment, code, said):
            return
        said = "".join(line for line in said.splitlines(keepends=True) if "and were clipped" not in line)
        if ABSURD in said:  # as a wide start has it
            said = "" if said.count("\n") == 1 else said
        assert (code in (0, 3), said) == (True, "")
        assert outcome("replay", run) == (0, "")
        assert outcome("show", run) == (0, "")


# ---------------------------------------------------------------------------------------------------- damaged ones

VALUES = (
    "0", "-1", "1", "2", "1.5", "0.0", "-0.0", "nan", "-nan", "inf", "-inf", "1e308", "1e-320", "1e400", "1e15", "true",
    "9223372036854775807", "9223372036854775808", '"text"', '""', "'area'", '"quadratic"', "[]", "[1]", "[1.0, nan]",
    "[[1.0]]", "{}", "{name = 'area'}", "1979-05-27", "07:32:00", "0x10", "1_000", "", '"\\u0000"', '"caf\u00e9"',
)  # fmt: skip
LINES = (
    "[unknown]",
    "[clients]",
    "[[method]]",
    "x = 1",
    "[sweep]",
    'extends = "try.toml"',
    "clients.count = 3",
    "[a.b.c]",
)
SLURM = ("--scheduler", "slurm", "--transport", "simulator")
GARBAGE = st.binary(min_size=1, max_size=8) | st.sampled_from([b"\0", b"\xef\xbb\xbf", b"\r", b'"', b"[", b"]]", b"="])


@st.composite
def damages(draw: st.DrawFn, text: str) -> bytes:
    """A text with one to three places changed: lines, keys, values or bytes."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        lines = draw(changed_lines(lines, number))
        if not lines:
            return b""
    content = "\n".join(lines).encode()
    if draw(st.integers(0, 3)):
        return content
    first, length = draw(st.integers(0, len(content))), draw(st.integers(0, 20))
    return content[:first] + draw(GARBAGE | st.just(b"")) + content[first + length :]


@st.composite
def changed_lines(draw: st.DrawFn, lines: list[str], number: int) -> list[str]:
    """Lines with one of them changed, lost, doubled or moved."""
    before, line, after = lines[:number], lines[number], lines[number + 1 :]
    key, _, value = line.partition(" = ")
    match draw(st.sampled_from(["value", "value", "value", "key", "drop", "double", "insert", "swap", "cut"])):
        case "value":
            line = f"{key} = {draw(st.sampled_from(VALUES))}"
        case "key":
            line = f"{key[:-1]}{draw(st.sampled_from('xyz_'))} = {value}" if value else f"{line[:-1]}x]"
        case "drop":
            return before + after
        case "double":
            return [*before, line, line, *after]
        case "insert":
            return [*before, draw(st.sampled_from(LINES)), line, *after]
        case "swap" if value and (others := [other for other in lines if " = " in other]):
            line = f"{key} = {draw(st.sampled_from(others)).partition(' = ')[2]}"
        case _:
            line = line[: draw(st.integers(0, len(line)))]
    return [*before, line, *after]


def is_quick(experiment: Experiment) -> bool:
    """Whether a damaged experiment that is still one can be run in a moment."""
    stop, clients, data = experiment.stop, experiment.clients, experiment.data
    if not isinstance(data, Synthetic | None) or clients.count > 9 or clients.local_steps > 20:
        return False
    settings = [experiment.problem, *([data] if data is not None else [])]
    sizes = [getattr(each, name, 1) for each in settings for name in SIZES]
    try:
        rate = float(client_rates(experiment.rates, clients.count, experiment.seed).sum())
    except UserError:
        return True
    if stop.iterations is None or stop.iterations > 500 or not 1 <= rate <= 1e6 or max(sizes) > 100:
        return False
    return stop.iterations / rate / experiment.record.interval_s < 1e4


SIZES = ("dimension", "samples", "batch_size", "train_samples", "test_samples", "features")


@in_a_folder
@given(experiments(), st.data())
def test_a_damaged_experiment_runs_or_is_refused(experiment: Experiment, data: st.DataObject) -> None:
    with empty_folder() as folder:
        path, run = folder / "try.toml", folder / "run.h5"
        (folder / TRACE_FILE).write_text(data.draw(traces(experiment.clients.count)), encoding="utf-8")
        path.write_bytes(data.draw(damages(to_toml(experiment))))
        before = sorted(folder.iterdir())
        code, said = outcome("check", str(path))
        if code:
            for command in (
                ["check"],
                ["simulate", "-o", str(run)],
                ["launch"],
                ["theory"],
                ["job", *SLURM],
                ["sweep", "--dry-run"],
            ):
                code, said = outcome(*command, str(path))
                if command[0] not in ("sweep", "job") or code:
                    assert_refused(code, said)
        elif is_quick(loaded := load_experiment(path)):
            code, said = outcome("theory", str(path))
            if code:
                assert_refused(code, said)
            code, said = outcome("simulate", str(path), "-o", str(run))
            if code in (0, 3) or fails_as_asked(loaded, code, said):
                run.unlink()
            else:
                assert_refused(code, said)
        assert sorted(folder.iterdir()) == before


# ---------------------------------------------------------------------------------------------------- found so far

OVERFLOWING = """
[clients]
count = 2
[method]
name = "s-fedavg"
step_size = 1000.0
clients_per_round = 1
[stop]
iterations = 60
divergence_norm = 1e300
[problem]
name = "logistic"
regularisation = 10.0
[data]
name = "synthetic"
train_samples = 8
test_samples = 4
features = 2
classes = 2
[record]
events = false
snapshots = "aggregations"
"""


def test_a_bound_beyond_single_precision_ends_lanes_too() -> None:
    """A model of float32 overflows before it reaches such a bound; lanes, by which it is repeated, went on to NaN."""
    Path("try.toml").write_text(OVERFLOWING, encoding="utf-8")
    assert outcome("simulate", "try.toml", "-o", "run.h5") == (3, "")
    assert outcome("replay", "run.h5") == (0, "")
