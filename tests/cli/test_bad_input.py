"""Bad input through every command that takes an experiment: one line, exit code 2, nothing written.

What looks bad and is not (one client, a criterion above n, one class, a batch above the data) is run, at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.support.answers import answer, complaint
from tests.support.texts import BLOBS, LOGISTIC, QUADRATIC

from areabench.cli.parser import build_parser
from areabench.engine.events import State
from areabench.experiment.parse import load_experiment
from areabench.runfile.read import Run, open_run

TRACE = QUADRATIC + '[delays]\nname = "trace"\nfile = "delays.csv"\n'
FILE = "try.toml"
COMMANDS: dict[str, list[str]] = {
    "simulate": ["simulate", FILE],
    "check": ["check", FILE],
    "launch": ["launch", FILE],
    "theory": ["theory", FILE],
    "job": ["job", FILE, "--scheduler", "slurm", "--transport", "simulator"],
    "sweep": ["sweep", FILE],
    "figures": ["figures", "--split", FILE],
}
BUILDING = ("simulate", "theory")  # these load the data and build the problem; a sweep lists it as a run that failed
Tree = dict[str, tuple[int, int]]
the_parser = cache(build_parser)  # making it takes longer than most of these commands


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, also for the cache; no command may get as far as starting mpirun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("areabench.cli.main.build_parser", the_parser)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = set(sys.modules)
    monkeypatch.setattr("areabench.launching.run.mpirun_command", lambda *_: pytest.fail("mpirun would be started"))
    yield tmp_path
    for name in [name for name in sys.modules if name not in loaded and name.startswith("net_")]:
        del sys.modules[name]


def tree(folder: Path) -> Tree:
    """Everything below a folder: size and time of the last change."""
    found = {str(path): path.lstat() for path in folder.rglob("*")}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def refused(command: list[str], changes: str = "") -> str:
    """The one line with which a command and changes of its experiment are refused; nothing may have been written."""
    before = tree(Path.cwd())
    told = complaint("", *command, *(part for change in changes.split() for part in ("--set", change)))
    assert told.isprintable()
    assert tree(Path.cwd()) == before
    return told


# ---------------------------------------------------------------------------------------------------- keys

KEYS = [  # what is set, and words of the answer
    ("rates.name=list rates.values=[1.0,0.0]", "rates.values.1: 0.0 is out of range; allowed is a number > 0 1/s"),
    ("rates.name=list rates.values=[nan,1.0]", "rates.values.0: nan is not finite"),
    ("rates.name=list rates.values=[1.0]", "1 rate for clients.count = 2; give one rate per client"),
    ("rates.name=list rates.values=[]", "0 rates for clients.count = 2"),
    ("stop.iterations=0", "stop.iterations: 0 is out of range; allowed is a whole number >= 1"),
    ("stop.iterations=-5", "stop.iterations: -5 is out of range"),
    ("clients.count=0", "clients.count: 0 is out of range; allowed is a whole number >= 1"),
    ("clients.count=1.5", "clients.count: 1.5 is not a whole number >= 1"),
    ("clients.local_steps=0", "clients.local_steps: 0 is out of range; allowed is a whole number >= 1"),
    ("problem.batch_size=0", "problem.batch_size: 0 is out of range; allowed is a whole number >= 1"),
    ("problem.batch_size=4000000000000", "more than 100,000,000 samples per round; use a smaller batch"),
    ("data.classes=1", "data.classes: 1 is out of range; allowed is a whole number >= 2 and <= 255"),
    (
        "clients.count=41",
        "41 clients with at least 1 samples each need 41 samples, but the training data has 40; lower",
    ),
    ("clients.count=70000 data={name='mnist'}", "but the training data has 60000; lower clients.count"),
    ("clients.count=1438 data={name='digits'}", "but the training data has 1437; lower clients.count"),
    ("split={name='dirichlet',minimum=21}", "at least 21 samples each need 42 samples, but the training data has 40"),
    ("method.name=s-fedavg", "method.clients_per_round: 4 is more than clients.count = 2; use at most 2"),
    (
        "aggregation={name='updates',updates=0}",
        "aggregation.updates: 0 is out of range; allowed is a whole number >= 1",
    ),
    ("nonsense", "--set nonsense: write it as section.key=value"),
    ("=", "--set =: write it as section.key=value"),
    (".count=1", "--set .count=1: write it as section.key=value"),
    ("clients..count=1", "write it as section.key=value"),
    ("clients.count.more=1", "'count' is a value, not a section"),
    ("clients=1", "clients: 1 is a value; write it as a section [clients]"),
    ("clients.count=", "clients.count: '' is not a whole number"),
    ("method=[", "method: '[' is a value"),
    ("clients.cuont=1", "unknown key 'cuont'; did you mean 'count'?"),
    ("clients.count=" + "[" * 5000, "is not a whole number"),
]
NUMBERS = [  # keys that take no zero (or only no negative number), no NaN and no infinity
    ("rates.name=uniform rates.rate", "0", "> 0 1/s"),
    ("rates.name=normal rates.mean", "0", "> 0 1/s"),
    ("rates.name=normal rates.deviation", "-1", ">= 0 1/s"),
    ("rates.name=lognormal rates.median", "0", "> 0 1/s"),
    ("rates.name=lognormal rates.sigma", "21", ">= 0 and <= 20"),
    ("method.step_size", "0", "> 0"),
    ("method.name=fedbuff method.server_step_size", "0", "> 0"),
    ("stop.horizon_s", "0", "> 0 s"),
    ("aggregation.name=poisson aggregation.rate", "0", "> 0 1/s"),
    ("aggregation.name=period aggregation.period_s", "0", "> 0 s"),
    ("problem.regularisation", "-1", ">= 0"),
]
KEYS += [
    (f"{key}={value}", f"{key.split()[-1]}: {float(value)} is {trouble}; allowed is a number {limit}")
    for key, outside, limit in NUMBERS
    for value, trouble in ((outside, "out of range"), ("nan", "not finite"), ("inf", "not finite"))
]
FAR = [  # found by tests/transports/test_properties.py: numbers beyond what can be computed with
    ("problem.dimension=9223372036854775807", ">= 1 and <= 1000000000000"),
    ("problem.curvature_max=1e300", "problem.curvature_max: 1e+300 is out of range; allowed is a number >= 1e-15"),
    ("problem.zeta=1 problem.heterogeneity=1e-300", "problem.zeta: 1.0 cannot be reached"),
    ("problem={name='median',spread=1e-308}", "allowed is a number >= 1e-15 and <= 1e+15"),
    ("problem={name='robust',samples=9223372036854775807}", "problem.samples: 9223372036854775807 is out of range"),
]
FAR_IN_THEORY = [  # refused where the theorems are asked
    ("schedule={name='theorem1',strong_convexity=1e-300}", "mu is 1e-300, the limits are 1e-60 and 1e+60"),
    ("schedule={name='theorem1',least_probability=1e-300}", "p_min is 1e-300, the limits are 1e-60 and 1e+60"),
    ("schedule={name='theorem2',lipschitz=1,noise=1,distance=1e308}", "is 1e+308, the limits are 1e-60 and 1e+60"),
]
TIMED = LOGISTIC.replace("iterations = 20", "horizon_s = 1")
ENDLESS = [  # changes of TIMED, which has two clients
    (
        "rates.name=uniform rates.rate=1e299",
        "rates: 2e+299 updates per second over stop.horizon_s = 1 s are 2e+299 events, more than 10,000,000,000; lower "
        "one of them, or give stop.iterations",
    ),
    ("rates.name=uniform rates.rate=5.0001e9", "rates: 1e+10 updates per second"),
    ("rates.name=normal rates.mean=1e11", "rates: 2e+11 updates per second"),
    ("rates.name=lognormal rates.median=1e11", "rates: 2e+11 updates per second"),
    ("rates.name=list rates.values=[1.0,1e15]", "rates: 1e+15 updates per second"),
    # The median is modest, and the rates that are drawn are not: client 0 gets 9e16 1/s.
    ("rates.name=lognormal rates.median=1 rates.sigma=20 seed=5", "rates: 9.35e+16 updates per second"),
    ("stop.horizon_s=1e10 record.snapshots=none", "over stop.horizon_s = 1e+10 s are 2e+11 events"),
    ("stop={iterations=10000000001}", "stop.iterations: 10,000,000,001 is more than 10,000,000,000; use fewer"),
    ("aggregation={name='poisson',rate=1e15}", "aggregation.rate: 1e+15 server steps per second over stop.horizon_s"),
    ("aggregation={name='period',period_s=1e-300}", "aggregation.period_s: a server step every 1e-300 s over"),
    ("aggregation={name='period',period_s=5e-324}", "are inf events, more than 10,000,000,000"),
    ("clients.local_steps=100000001", "clients.local_steps: 100,000,001 is more than 100,000,000; use fewer"),
    ("stop.target_accuracy=nan", "stop.target_accuracy: nan is not finite"),
    ("stop.target_loss=inf", "stop.target_loss: inf is not finite"),
]


@pytest.mark.parametrize(
    ("text", "names", "changes", "words"),
    [
        *((LOGISTIC, ("check",), *case) for case in KEYS),
        *((QUADRATIC, ("check", *BUILDING), *case) for case in FAR),
        *((QUADRATIC, ("simulate",), *case) for case in FAR_IN_THEORY),
        *((TIMED, ("check", *BUILDING), *case) for case in ENDLESS),
        *((LOGISTIC, tuple(COMMANDS), *KEYS[index]) for index in (0, 7, 12, 18, 21)),
    ],
)
def test_values(text: str, names: Sequence[str], changes: str, words: str) -> None:
    Path(FILE).write_text(text, encoding="utf-8")
    for name in names:
        assert words in refused(COMMANDS[name], changes)


def test_a_key_of_two_lines() -> None:
    Path(FILE).write_text(LOGISTIC, encoding="utf-8")
    assert "unknown key or section 'a\\nb'" in refused(["check", FILE, "--set", "a\nb=1"])


@pytest.mark.parametrize(
    "changes",
    [
        "rates.name=uniform rates.rate=5e9",
        "rates.name=uniform rates.rate=1e299 stop.iterations=10000000000",
        "aggregation={name='poisson',rate=1e10}",
        "aggregation={name='period',period_s=1e-10}",
        "clients.count=1000000 stop.horizon_s=100 data={name='synthetic',train_samples=1000000}",
        "method={name='s-fedavg',step_size=0.1,clients_per_round=1} rates.name=uniform rates.rate=1e10",
        "rates.name=uniform rates.rate=1e299 delays={name='m:f'}",
    ],
)
def test_what_ends_late_is_not_refused(changes: str) -> None:
    Path(FILE).write_text(TIMED, encoding="utf-8")
    load_experiment(Path(FILE), changes.split())


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "much"])
@pytest.mark.parametrize("words", ["summary a.h5", "table runs", "figures runs", "report runs"])
def test_a_target_is_a_number(words: str, value: str) -> None:
    told = answer(words, f"--target={value}", code=2).err
    assert f"argument --target: '{value}' is not a number >= 0\n" in told


@pytest.mark.parametrize("literal", ["nan", "+nan", "inf", "-inf", "1e999", "-0.0", "0", "1_0e400"])
def test_numbers_written_in_the_file(literal: str) -> None:
    Path(FILE).write_text(LOGISTIC.replace("0.05", literal), encoding="utf-8")
    message = refused(["check", FILE])
    assert f"{FILE}: method.step_size: " in message
    assert "a number > 0" in message


# ---------------------------------------------------------------------------------------------------- files

FILES: dict[str, tuple[bytes, str]] = {
    "latin1": (
        'title = "caf\xe9"\n'.encode("latin-1") + LOGISTIC.encode(),
        "is not UTF-8 at byte 12; save it as UTF-8",
    ),
    "utf-16": (LOGISTIC.encode("utf-16"), "is not UTF-8 at byte 0; save it as UTF-8"),
    "utf-16 without mark": (LOGISTIC.encode("utf-16-le"), "is not valid TOML"),
    "mark in the middle": (LOGISTIC.encode() + b"\xef\xbb\xbfx = 1", "is not valid TOML"),
    "byte 0": (LOGISTIC.encode() + b"\0", "is not valid TOML"),
    "empty": (b"", "clients: is missing; add a section [clients]"),
    "mark only": (b"\xef\xbb\xbf", "clients: is missing; add a section [clients]"),
    "binary": (bytes(range(256)), "is not UTF-8"),
    "half a file": (LOGISTIC.encode()[:-30], "is not valid TOML"),
    "brackets": (b"a = " + b"[" * 50_000, "brackets are nested too deeply; remove some"),
    "braces": (b"a = " + b"{a=" * 50_000, "brackets are nested too deeply; remove some"),
    "dots": (LOGISTIC.encode() + b"[" + b"a." * 3000 + b"a]\n", "nested more than 20 deep; remove some"),
    "lists": (LOGISTIC.encode() + b"[x]\na = " + b"[" * 30 + b"]" * 30, "nested more than 20 deep; remove some"),
    "twice": (LOGISTIC.encode() + BLOBS.encode(), "is not valid TOML"),
    "digits": (b"seed = " + b"9" * 5000 + LOGISTIC.encode(), "is not valid TOML"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_text_in_a_file(name: str) -> None:
    content, words = FILES[name]
    Path(FILE).write_bytes(content)
    for command in COMMANDS.values():
        message = refused(command)
        assert message.startswith(f"areabench: {FILE}: ")
        assert words in message


def test_a_file_that_is_too_large() -> None:
    with Path(FILE).open("wb") as file:
        file.truncate(100_000_000)
    for command in COMMANDS.values():
        assert "has more than 50,000,000 bytes; give the path of an experiment" in refused(command)


def test_a_mark_in_front_and_windows_lines_are_no_error() -> None:
    Path(FILE).write_bytes(LOGISTIC.replace("\n", "\r\n").encode("utf-8-sig"))
    assert 'name = "tiny"' in answer("check", FILE).out


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "cannot be read: No such file or directory; give the path of an experiment file"),
        ("nowhere.toml", "cannot be read: No such file or directory; give the path of an experiment file"),
        (".", "cannot be read: Is a directory; give the path of an experiment file"),
        (FILE, "Too many levels of symbolic links; give "),
        # It opens, and fails when it is read, also for root.
        ("/proc/self/mem", "cannot be read: Input/output error; give the path of an experiment file"),
    ],
)
def test_paths(target: str | None, words: str) -> None:
    if target is not None:
        Path(FILE).symlink_to(target)
    for command in COMMANDS.values():
        assert words in refused(command)


def test_names_that_are_too_long() -> None:
    name = "a" * 300
    Path(FILE).write_text(LOGISTIC, encoding="utf-8")
    for command in (["check", name], ["sweep", FILE, name], ["replay", name], ["summary", name], ["table", name],
                    ["simulate", FILE, "-o", name], ["theory", FILE, "--write", name]):  # fmt: skip
        assert f"{name[:100]}: cannot be used: File name too long; give another path" in refused(command)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_is_closed_to_the_user(folder: Path) -> None:
    commands = (
        "check closed/try.toml", "check secret.toml", "show closed/run.h5", "simulate try.toml -o closed/x.h5",
        "simulate try.toml -o half/x.h5",
    )  # fmt: skip
    for name, mode in (("closed", 0o700), ("half", 0o755)):
        (folder / name).mkdir(mode=mode)
    (folder / FILE).write_text(QUADRATIC, encoding="utf-8")
    (folder / "secret.toml").write_text(QUADRATIC, encoding="utf-8")
    (folder / "secret.toml").chmod(0o600)
    for parent in (folder, *folder.parents):
        if parent.is_relative_to(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(0o755)
    script = (
        "import contextlib, io, os, sys\nfrom areabench.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"  # Python itself may be closed to the other: load all of it
        "    assert main(['simulate', 'try.toml', '-o', 'first.h5']) == main(['show', 'first.h5']) == 0\n"
        "os.setuid(65534)\nsys.exit({main(command.split()) for command in sys.argv[1:]} != {2})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *commands], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands)
    for line in lines:
        assert line.startswith("areabench: ")
        assert "Permission denied" in line or "you may not write to" in line


# ---------------------------------------------------------------------------------------------------- outputs

WRITING = (["simulate", FILE, "-o"], ["launch", FILE, "-o"], ["theory", FILE, "--write"], [*COMMANDS["job"], "-o"])


@pytest.mark.parametrize("command", WRITING, ids=lambda command: str(command[0]))
def test_outputs(command: list[str], folder: Path) -> None:
    Path(FILE).write_text(QUADRATIC, encoding="utf-8")
    Path("link").symlink_to("elsewhere")
    option = "--write" if command[0] == "theory" else "--output"
    assert f"exists already; choose another {option} or overwrite" in refused([*command, "."])
    assert f"exists already; choose another {option} or overwrite" in refused([*command, "link"])
    assert f"Is a directory; choose another {option}" in refused([*command, ".", "--force"])
    below = refused([*command, f"{FILE}/more/x.h5"])
    assert f"{FILE}/more/x.h5: {FILE} is not a folder; choose another {option}" in below


@pytest.mark.parametrize(
    ("command", "output", "words"),
    [
        *(("sweep", output, "; choose another --output") for output in (FILE, f"{FILE}/deeper", "/proc/nowhere")),
        *(("figures", name, name) for name in (".", f"{FILE}/x.png", "x.xyz", "/proc/nowhere/x.png")),
    ],
)
def test_folders_of_sweeps_and_files_of_figures(command: str, output: str, words: str) -> None:
    pytest.importorskip("matplotlib")
    Path(FILE).write_text(LOGISTIC, encoding="utf-8")
    assert words in refused([*COMMANDS[command], "-o", output])


# ---------------------------------------------------------------------------------------------------- traces


@pytest.mark.parametrize(
    ("rows", "words"),  # more of them in tests/timing
    [
        ("", "line 1: header '', expected 'client,delay_s'"),
        ("client,delay_s\n0,1\n1,\0\n", "line 3: delay '\\x00' is not a number; write seconds"),
        (f"client,delay_s\n0,1\n{'9' * 5000},1\n", "is not a whole number; write 0 to 1"),
        (f'client,delay_s\n0,1\n1,"{"9" * 200_000}', "field larger than field limit"),
    ],
    ids=range(4),
)
def test_rows_of_traces(rows: str, words: str) -> None:
    Path(FILE).write_text(TRACE, encoding="utf-8")
    Path("delays.csv").write_text(rows, encoding="utf-8")
    message = refused(["check", FILE])
    assert message.startswith("areabench: trace ")
    assert words in message
    assert len(message) < 500


def test_a_trace_that_cannot_end() -> None:
    Path(FILE).write_text(TRACE.replace("iterations = 20", "horizon_s = 1"), encoding="utf-8")
    Path("delays.csv").write_text("client,delay_s\n0,1e-300\n1,0.5\n", encoding="utf-8")
    assert "delays.file: 1e+300 updates per second over stop.horizon_s" in refused(["check", FILE])


@pytest.mark.parametrize("target", ["/dev/zero", "."])
def test_a_trace_that_is_no_file(target: str) -> None:
    Path(FILE).write_text(TRACE, encoding="utf-8")
    Path("delays.csv").symlink_to(target)
    assert "is not a regular file; check delays.file" in refused(["check", FILE])


# ---------------------------------------------------------------------------------------------------- data

MNIST = LOGISTIC.partition("[data]")[0]


def test_data_that_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(FILE).write_text(LOGISTIC.partition("[data]")[0], encoding="utf-8")  # MNIST
    monkeypatch.setattr("importlib.resources.files", lambda _: folder / "nothing")
    for name in (*BUILDING, "figures"):
        assert "train-images-idx3-ubyte.gz in the package cannot be unpacked" in refused(COMMANDS[name])


def test_a_split_that_leaves_clients_empty() -> None:
    Path(FILE).write_text(LOGISTIC, encoding="utf-8")
    for name in (*BUILDING, "figures"):
        message = refused(COMMANDS[name], "clients.count=20 split.name=nearly-iid")
        assert "20 clients, but the most frequent label has 14 samples" in message
        assert "lower clients.count to 14 or take split `iid`" in message


# ---------------------------------------------------------------------------------------------------- torch

NETS = {  # more of them in tests/problems
    "net_absent:make": "No module named 'net_absent'",
    "net_raises:make": "importing 'net_raises' failed (RuntimeError: broken at net_raises.py, line 1)",
    "net_leaves:make": "importing 'net_leaves' failed (SystemExit: 7 at net_leaves.py, line 1)",
    "net_syntax:make": "importing 'net_syntax' failed (SyntaxError: ",
    "net_here:raises": "failed for 3 features and 3 classes (ValueError: two lines)",
    "net_here:leaves": "failed for 3 features and 3 classes (SystemExit: 5)",
}
NET_HERE = """
import sys
def raises(features, classes): raise ValueError("two\\nlines")
def leaves(features, classes): sys.exit(5)
"""


@pytest.mark.parametrize("path", NETS)
def test_modules(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("net_here.py").write_text(NET_HERE, encoding="utf-8")
    Path("net_raises.py").write_text("raise RuntimeError('broken')", encoding="utf-8")
    Path("net_leaves.py").write_text("raise SystemExit(7)", encoding="utf-8")
    Path("net_syntax.py").write_text("def (", encoding="utf-8")
    Path(FILE).write_text(LOGISTIC.replace('"logistic"', f'"torch"\nmodule = "{path}"'), encoding="utf-8")
    for name in BUILDING:
        message = refused(COMMANDS[name])
        assert f"problem.module = {path!r}" in message
        assert NETS[path] in message


# ---------------------------------------------------------------------------------------------------- on ranks


def test_run_reports_it_too(folder: Path) -> None:
    pytest.importorskip("mpi4py")
    Path(FILE).write_bytes(LOGISTIC.encode("utf-16"))
    command = [sys.executable, "-m", "areabench", "run", FILE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"areabench: {FILE}: is not UTF-8 at byte 0; save it as UTF-8 text\n"
    assert [path.name for path in folder.iterdir()] == [FILE]


# ---------------------------------------------------------------------------------------------------- legitimate


def simulated(text: str, *overrides: str) -> Run:
    """The run of an experiment that must work, replayed."""
    Path(FILE).write_text(text, encoding="utf-8")
    options = [part for override in overrides for part in ("--set", override)]
    answer("simulate", FILE, "-o", "run.h5", *options)
    assert answer("replay run.h5").out.endswith(" rows equal (to the bit)\n")
    run = open_run("run.h5")
    assert run.status.state == State.DONE
    assert np.isfinite(run.metrics_array["train_loss"]).all()
    return run


@pytest.mark.parametrize("method", ["area", "fedbuff", "as-fedavg", "s-fedavg"])
def test_one_client(method: str) -> None:
    changes = {"s-fedavg": ["method.clients_per_round=1"], "fedbuff": ["method.server_step_size=1"]}.get(method, [])
    changes += [f"method.name={method}", "clients.count=1", "stop.iterations=200"]
    with simulated(QUADRATIC, *changes, "aggregation={name='updates',updates=1}") as run:
        assert run.served.tolist() == [100]
        distance = run.metrics_array["squared_distance"]
        assert distance[-1] < 1e-2 * distance[0]


@pytest.mark.parametrize("method", ["area", "fedbuff", "as-fedavg"])
def test_a_criterion_of_more_updates_than_clients(method: str) -> None:
    with simulated(QUADRATIC, f"method.name={method}", "aggregation={name='updates',updates=7}") as run:
        assert (run.status.updates, run.status.server_steps) == (18, 2)


@pytest.mark.parametrize(
    ("changes", "samples"),
    [
        ("clients.count=1 method.step_size=1", [40]),
        ("data.train_samples=2 data.classes=2 split.name=iid stop.iterations=100", [1, 1]),  # a class for each client
        ("clients.count=1 data.train_samples=1", [1]),
        ("problem.batch_size=500", None),  # more than there are
    ],
)
@pytest.mark.parametrize("problem", ["logistic", "hinge"])
def test_little_data(changes: str, samples: list[int] | None, problem: str) -> None:
    with simulated(LOGISTIC, f"problem.name={problem}", *changes.split()) as run:
        assert samples in (None, run.clients_array["samples"].tolist())
        assert run.metrics_array["train_loss"][-1] < run.metrics_array["train_loss"][0]
