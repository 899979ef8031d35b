"""The parts of the user's own in an experiment: checked before a run, and blamed for how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from areabench.errors import RunFailure
from areabench.experiment.checks import check_record
from areabench.experiment.experiment import Experiment
from areabench.experiment.module_paths import own_parts
from areabench.plugins.call import check_signature, record_of
from areabench.plugins.callables import load_callable, look_in, place_in


def check_parts(experiment: Experiment, folders: Sequence[str] = ()) -> None:
    """Import what an experiment names: a record is checked as those of the package, a function by its signature."""
    parts = own_parts(experiment)
    if parts:
        look_in(folders)
    for section, part in parts.items():
        missing = ("data", "parts") if section == "problem" and experiment.data is None else ()
        if (record := record_of(part)) is not None:
            check_record(experiment, record)
        else:
            check_signature(part, load_callable(part.name, f"{section}.name"), missing)


def exit_failure(error: SystemExit, experiment: Experiment) -> RunFailure:
    """The failure of a run whose own code has called sys.exit, whatever the code: a part must not end a run so."""
    own = own_parts(experiment).items()
    places = {f"{section}.name = {part.name!r}": place_in(error, part.name.partition(":")[0]) for section, part in own}
    blamed = [part for part, place in places.items() if place]
    where = next(filter(None, places.values()), "")
    who = " or ".join(blamed) or "the code of this experiment"
    return RunFailure(f"{who} called sys.exit({error.code!r}){where}; let it return, or raise an error")
