"""A rank for bench_launchers.py: notes signals and MPI's errors with their times, until it is told to end.

launcher_rank.py FOLDER: writes FOLDER/RANK, one event per line (seconds of the monotonic clock, and a word); the first
is its process id. It ends when FOLDER/end is there, and without MPI_Finalize when FOLDER/leave is there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

_LIMIT_S = 60  # this rank ends whatever happens to the others
_LOOK_S = 0.5e-3
_NOTED = (signal.SIGCONT, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def main(folder: Path) -> None:
    """Wait for a message that never comes, and note what happens meanwhile."""
    signal.alarm(_LIMIT_S)
    comm = MPI.COMM_WORLD
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    note = _notebook(folder / str(comm.rank))
    for each in _NOTED:
        signal.signal(each, lambda number, _: note(signal.Signals(number).name))
    partners = range(1, comm.size) if comm.rank == 0 else [0]
    requests = [comm.Irecv(np.zeros(8), source=partner) for partner in partners]
    comm.Barrier()
    note(str(os.getpid()))
    _wait(requests, note, folder)
    if (folder / "leave").exists():
        os._exit(0)
    for each in _NOTED:
        signal.signal(each, signal.SIG_IGN)  # MPICH signals the last ranks that the first have ended, which is expected
    for request in requests:
        request.Cancel()
        request.Wait()


def _notebook(path: Path) -> Callable[[str], None]:
    """A function that writes a line to a file at once, also in a signal handler."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def note(what: str) -> None:
        os.write(file, f"{time.monotonic()} {what}\n".encode())

    return note


def _wait(requests: list[MPI.Request], note: Callable[[str], None], folder: Path) -> None:
    """Look for messages as areabench does, until MPI says that a rank is lost; then only for the end."""
    lost = False
    while not any((folder / name).exists() for name in ("end", "leave")):
        try:
            if not lost:
                MPI.Request.Testsome(requests)
        except MPI.Exception:
            note("raised")
            lost = True
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
