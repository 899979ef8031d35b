"""Runs this folder's tests inside three ranks, with the launcher of whichever MPI mpi4py uses, and a time limit.

The first failure ends its rank, which shows its traceback, and the time limit then ends the others, from a thread
because a rank that waits in MPI hears no signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from areabench.launching.mpirun import rank_command
from areabench.launching.watch import PATIENCE_S, private_tmpdir

RANKS = 3
LIMIT_S = 300.0
PYTEST = ("-u", "-m", "pytest", "-xq", "--color=no", "-p", "no:cacheprovider", "--with-mpi", "--timeout-method=thread")


def main() -> int:
    """The exit code of the tests; 1 where they took too long."""
    command = rank_command(RANKS, [*PYTEST, str(Path(__file__).parent)])
    with private_tmpdir() as environment:
        process = subprocess.Popen(command, start_new_session=True, env=environment)
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"not ended after {LIMIT_S:g} s", file=sys.stderr)
            return 1
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End mpirun and its ranks, if they have not ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
