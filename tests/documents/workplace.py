"""A copy of the repository in which a document's commands are executed, with experiments that take no time.

Every document has one of its own, in the state after `make demo`, and with runs/stopped.h5, a run that was stopped.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.documents.documents import ROOT, Step, steps_of
from tests.documents.exceptions import STOPPED, UNKNOWN, exit_codes_of, is_known, reason_not_to_execute

from areabench.cli.parser import build_parser

_LINKED = {".venv", "src", "tests"}
_LEFT_OUT = ("runs", "build", "dist", ".*", "__pycache__", "*.egg-info")
_WHOLE = "benchmarks.whole"  # as they are in the repository
_HORIZON_S = 1.0  # that no experiment exceeds
_OF_MAKE = re.compile(r"(MAKE.*|MFLAGS|MPI|MPICC|PYTHON|VENV|TRIALS|RANKS|PYTEST.*)$")  # another MPI would be installed
LIMIT_S = 180.0  # for a command
PARSED = "docs/commands.md"  # generated from the help: its examples are parsed here, and executed by other documents
STOPPED_RUN = (
    ".venv/bin/areabench simulate benchmarks/experiments/demo/quadratic.toml --set stop.horizon_s=30000 "
    "-o runs/stopped.h5  # Ctrl-C"
)


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `output` is all that it printed."""

    code: int
    output: str


@dataclass
class Workplace:
    """Executes the steps of one document in order, each once."""

    folder: Path
    steps: list[Step]
    outcomes: list[Outcome] = field(default_factory=list)

    def reach(self, step: Step) -> Outcome:
        """How a step ended, after all steps before it."""
        place = self.steps.index(step)
        while len(self.outcomes) <= place:
            self.outcomes.append(carry_out(self.steps[len(self.outcomes)], self.folder))
        return self.outcomes[place]


class Workplaces(dict[str, Workplace]):
    """A workplace for each document, made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._base = folder, _base(folder / "base")

    def __missing__(self, document: str) -> Workplace:
        folder = self._folder / document.replace("/", "-")
        shutil.copytree(self._base, folder, symlinks=True)
        self[document] = Workplace(folder, steps_of(document))
        return self[document]


def _base(folder: Path) -> Path:
    """The first copy: shortened, with the runs of the demo and one that was stopped."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name in _LINKED:
            (folder / path.name).symlink_to(path)
        elif path.is_dir() and not path.name.startswith(".") and path.name not in _LEFT_OUT:
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        elif path.is_file():
            shutil.copy2(path, folder)
    for name in ("pyproject.toml", "constraints.txt"):
        os.utime(folder / name, (0, 0))  # older than .venv: nothing is to be installed from here
    shutil.copytree(folder / "benchmarks", folder / _WHOLE)
    for path in [*folder.glob("benchmarks/**/*.toml"), *folder.glob("analysis/**/*.toml")]:
        path.write_text(shortened(path.read_text(), path.name))
    for command in ("make demo", STOPPED_RUN):
        step = Step("the start", 0, "command", command)
        outcome = execute(step, folder)
        assert outcome.code in exit_codes_of(command), f"{command}\n{outcome.output}"
    return folder


def shortened(text: str, name: str = "") -> str:
    """An experiment or sweep that takes no time: short, with few clients, iterations and trials."""
    if name == "quadratic.toml":  # its horizon is long, so that there is time to stop it; its events are few
        return re.sub(r"\b(\d+)\.0(?=[,\]])|(?<=rate = )40", lambda rate: f"{float(rate[0]) / 20:g}", text)
    text = re.sub(r"(horizon_s = )([\d.e+]+)", lambda key: f"{key[1]}{min(float(key[2]), _HORIZON_S)}", text)
    text = re.sub(r"(interval_s = )([\d.]+)", lambda key: f"{key[1]}{min(float(key[2]), _HORIZON_S / 4)}", text)
    text = re.sub(r"(\biterations = )(\d+)", lambda key: f"{key[1]}{min(int(key[2]), 500)}", text)
    text = re.sub(r"(local_steps = )50\b", r"\g<1>5", text)
    text = re.sub(r"(trials = )\d+", r"\g<1>2", text)
    clients = ("8", "4") if name == "demo.toml" else ("128", "8")  # the demo is launched more often than all others
    return re.sub(rf"(count = ){clients[0]}\b", rf"\g<1>{clients[1]}", text)


# ---------------------------------------------------------------------------------------------------- executing


def carry_out(step: Step, folder: Path) -> Outcome:
    """Execute one step in a folder, or look at it where it is not to be executed."""
    if step.kind == "command" and not is_known(step.text):
        return Outcome(-1, UNKNOWN)
    if step.kind == "command" and (step.document == PARSED or reason_not_to_execute(step.text)):
        return _look_at(step, folder)
    if step.kind == "command" and "areabench job " in step.text:
        with _whole_experiments(folder):
            return execute(step, folder)
    return execute(step, folder)


@contextmanager
def _whole_experiments(folder: Path) -> Iterator[None]:
    """For a command that runs nothing: a job script wants all the clients that there are."""
    short, whole, aside = folder / "benchmarks", folder / _WHOLE, folder / "benchmarks.short"
    short.rename(aside)
    whole.rename(short)
    yield
    short.rename(whole)
    aside.rename(short)


def _look_at(step: Step, folder: Path) -> Outcome:
    """Check a command without executing it: by make -n, areabench's parser, and the files that it names."""
    if step.text.startswith("make "):
        return execute(replace(step, text=step.text.replace("make ", "make --dry-run ", 1)), folder)
    words = shlex.split(step.text.partition(" > ")[0], comments=True)
    called = [place for place, word in enumerate(words) if Path(word).name == "areabench"]
    if called and not _is_parsed(words[called[0] + 1 :]):
        return Outcome(-1, "areabench does not know what stands behind its name; see areabench --help")
    written = {after for word, after in itertools.pairwise(words) if word in ("-o", "--output", "--write")}
    named = [word for word in words if Path(word).suffix in (".sh", ".toml", ".py") and word not in written]
    missing = [word for word in named if not (folder / word).exists()]
    return Outcome(-1 if missing else 0, f"there is no {', '.join(missing)} in {folder}")


def _is_parsed(arguments: list[str]) -> bool:
    try:
        build_parser().parse_args(arguments)
    except SystemExit:
        return False
    return True


def execute(step: Step, folder: Path) -> Outcome:
    """Execute one step in a folder."""
    if step.kind == "file":
        path = folder / step.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shortened(step.text) if path.suffix == ".toml" else step.text)
        return Outcome(0, "")
    words = [".venv/bin/python", "-c", step.text] if step.kind == "python" else ["bash", "-c", step.text]
    process = subprocess.Popen(
        words, cwd=folder, env=_environment(folder), start_new_session=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        if step.kind == "command" and exit_codes_of(step.text) == STOPPED:
            _interrupt(process, folder / _output_of(step.text))
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Outcome(-1, f"took longer than {LIMIT_S:.0f} s; printed until then:\n{process.communicate()[0]}")
    return Outcome(process.returncode, output)


def _environment(folder: Path) -> dict[str, str]:
    """That of a reader, on any number of cores and also as root, with a home of its own."""
    mpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }  # fmt: skip
    outside = {name: value for name, value in os.environ.items() if not _OF_MAKE.match(name)}
    home = folder.parent / "home"
    (home / ".local/share/bash-completion/completions").mkdir(parents=True, exist_ok=True)
    caches = {  # matplotlib's has its fonts, which take long to find
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "AREABENCH_CACHE": str(folder.parent / "cache"),
    }
    return {**outside, **mpi, **caches, "HOME": str(home), "NO_COLOR": "1", "TERM": "dumb"}


def _output_of(command: str) -> str:
    named = re.search(r"(?:-o|--output) (\S+)", command)
    assert named, f"{command}: is to be interrupted when its run file is there; name it with -o"
    return named[1]


def _interrupt(process: subprocess.Popen[str], run_file: Path) -> None:
    """Press Ctrl-C as soon as the run has begun."""
    give_up = time.monotonic() + LIMIT_S
    while process.poll() is None and not run_file.exists() and time.monotonic() < give_up:
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
