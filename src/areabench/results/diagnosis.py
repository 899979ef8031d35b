"""The diagnosis of a run file: the one that it holds, or one made from its events and counts."""

from __future__ import annotations

import numpy as np

from areabench.engine.diagnosis import Diagnosis, RunObservations, diagnose
from areabench.engine.events import Kind
from areabench.engine.messages import Flag
from areabench.engine.timings import TIMING
from areabench.errors import RunFileError
from areabench.runfile.read import Run

_FROM_EVENTS = {"drawn_s": "drawn_delay_s", "realised_s": "realised_delay_s"}  # columns that have another name there


@np.errstate(over="ignore", invalid="ignore")  # a file may hold any numbers
def diagnosis_of(run: Run) -> Diagnosis:
    """The diagnosis that the run stored; for a simulated or unfinished run, one from its file."""
    if run.diagnosis is not None:
        return run.diagnosis
    if not run.status.end_s > 0:
        raise RunFileError(f"{run.path}: has no event yet, so there is nothing to judge; run the experiment again")
    clients = run.clients_array
    used = run.events_array[run.events_array["kind"] == Kind.UPDATE]  # none where there is no event log
    rows = np.zeros(len(used), TIMING)
    for name in TIMING.names or ():
        rows[name] = used[_FROM_EVENTS.get(name, name)]
    return diagnose(
        RunObservations(
            experiment=run.experiment,
            virtual=run.provenance.transport == "simulator",
            duration_s=run.status.end_s,
            clients=clients,
            served=run.served,
            rows=rows,
            overruns=int(np.count_nonzero(rows["flags"] & Flag.OVERRUN.value)),
            compute_s=np.bincount(rows["client"], rows["compute_s"], len(clients)).astype(np.float64),
        )
    )
