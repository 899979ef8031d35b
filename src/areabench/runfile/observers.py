"""Observers: told of a run's events, snapshots and end as they are recorded, off the clock; some ready ones.

An observer is any object with some of the methods of `Observer`. It is told of what happened when the run file is
written: in spare moments, or some seconds later. In the simulator that takes no virtual time. In real time rank 0 has
the snapshots evaluated, and tells of them, when the clock has stopped. An error in `on_start` keeps the run from
beginning; after any other error the observer is not called any more, and the run continues. Observers of a run that
is resumed are told of what is recorded from its checkpoint on; in real time of all snapshots.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from areabench.arrays import Vector
from areabench.engine.events import Event, Kind, Status
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.plugins.callables import load_callable
from areabench.runfile.export import finite

METRICS = ("train_loss", "test_accuracy", "squared_distance")


class SnapshotSeen:
    """A snapshot: the model after `events` events and `version` server steps, and its quality, NaN where not defined.

    In the simulator the quality is computed when it is first asked for.
    """

    def __init__(
        self, time_s: float, version: int, events: int, model: Vector, evaluate: Callable[[], Mapping[str, float]]
    ) -> None:
        self.time_s, self.version, self.events, self.model = time_s, version, events, model.view()
        self.model.flags.writeable = False
        self._evaluate = evaluate

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Loss on the training data, accuracy on the test data in percent, squared distance to the minimiser."""
        return self._evaluate()

    @property
    def train_loss(self) -> float:
        """Loss on the training data."""
        return self.metrics["train_loss"]

    @property
    def test_accuracy(self) -> float:
        """Accuracy on the test data in percent."""
        return self.metrics["test_accuracy"]

    @property
    def row(self) -> dict[str, float]:
        """The snapshot without its model, by column."""
        return {"time_s": self.time_s, "version": self.version, "events": self.events, **self.metrics}


class Observer:
    """What an observer may do; here nothing."""

    def on_start(self, experiment: Experiment) -> None:
        """The run is about to begin."""

    def on_event(self, event: Event) -> None:
        """An event was recorded; not called where record.events is false."""

    def on_snapshot(self, snapshot: SnapshotSeen) -> None:
        """A snapshot was recorded."""

    def on_end(self, status: Status) -> None:
        """The run has ended, failed or been stopped."""


class CsvObserver(Observer):
    """Writes events.csv and snapshots.csv into a folder, line by line."""

    def __init__(self, folder: str | Path) -> None:
        self.spec = f"csv={folder}"
        self._folder = Path(folder)
        self._files: dict[str, IO[str]] = {}
        self._writers: dict[str, Any] = {}

    def on_start(self, experiment: Experiment) -> None:
        """Make the files, which must not exist."""
        for name, columns in (("events", Event._fields), ("snapshots", ("time_s", "version", "events", *METRICS))):
            self._files[name] = file = new_file(self._folder / f"{name}.csv")
            self._writers[name] = csv.writer(file, lineterminator="\n")
            self._writers[name].writerow(columns)

    def on_event(self, event: Event) -> None:
        """Add a row."""
        self._writers["events"].writerow(event._replace(kind=event.kind.text))  # type: ignore[arg-type]

    def on_snapshot(self, snapshot: SnapshotSeen) -> None:
        """Add a row, and let readers see all so far."""
        self._writers["snapshots"].writerow(snapshot.row.values())
        for file in self._files.values():
            file.flush()

    def on_end(self, status: Status) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class JsonLinesObserver(Observer):
    """Writes one JSON object per line: the event, the snapshot or the end, with a key `what` that says which."""

    def __init__(self, path: str | Path) -> None:
        self.spec = f"jsonl={path}"
        self._path = Path(path)
        self._file: IO[str]

    def on_start(self, experiment: Experiment) -> None:
        """Make the file, which must not exist."""
        self._file = new_file(self._path)

    def on_event(self, event: Event) -> None:
        """Add a line."""
        self._write("event", {**event._asdict(), "kind": event.kind.text})

    def on_snapshot(self, snapshot: SnapshotSeen) -> None:
        """Add a line, and let readers see all so far."""
        self._write("snapshot", snapshot.row)
        self._file.flush()

    def on_end(self, status: Status) -> None:
        """Add the last line."""
        self._write("end", {**asdict(status), "state": status.state.text})
        self._file.close()

    def _write(self, what: str, values: Mapping[str, Any]) -> None:
        known = {name: finite(value) for name, value in values.items()}
        self._file.write(json.dumps({"what": what, **known}) + "\n")


class TensorBoardObserver(Observer):
    """Writes scalars for TensorBoard into a folder, over server steps; their wall time is the time of the run."""

    def __init__(self, folder: str | Path) -> None:
        self.spec = f"tensorboard={folder}"
        self._folder = folder
        self._staleness: list[int] = []  # of updates since the last snapshot
        self._updates = 0  # also those before a run was resumed

    def on_start(self, experiment: Experiment) -> None:
        """Open the folder, and write down the experiment."""
        try:
            from tensorboardX import SummaryWriter  # an extra
        except ImportError as error:
            raise UserError(f"TensorBoard: needs tensorboardX ({error}); `pip install tensorboardX`") from error
        from areabench.settings.parse import to_toml

        self._writer = SummaryWriter(str(self._folder), flush_secs=2)
        indented = "".join(f"    {line}\n" for line in to_toml(experiment).splitlines())  # Markdown shows it as it is
        self._writer.add_text("experiment", indented)

    def on_event(self, event: Event) -> None:
        """Count it."""
        if event.kind == Kind.UPDATE:
            self._updates = event.iteration - event.version
            self._staleness.append(event.staleness)

    def on_snapshot(self, snapshot: SnapshotSeen) -> None:
        """Add the scalars."""
        staleness, self._staleness = self._staleness, []
        values = {**snapshot.metrics, "updates": self._updates or math.nan}
        values["staleness"] = sum(staleness) / len(staleness) if staleness else math.nan
        for name, value in values.items():
            if not math.isnan(value):
                self._writer.add_scalar(name, value, snapshot.version, walltime=snapshot.time_s)

    def on_end(self, status: Status) -> None:
        """Close the folder."""
        self._writer.close()


_READY: dict[str, Callable[[str], Observer]] = {
    "csv": CsvObserver, "jsonl": JsonLinesObserver, "tensorboard": TensorBoardObserver
}  # fmt: skip


def observer_of(described: object) -> object:
    """An observer, or the one that a text describes: `csv=FOLDER`, or the import path of a function that makes it."""
    if not isinstance(described, str):
        return described
    name, equals, place = described.partition("=")
    if equals and place and name in _READY:
        return _READY[name](place)
    if not equals and ":" in described:
        return load_callable(described, "observer")()
    names = ", ".join(f"{known}=PATH" for known in _READY)
    raise UserError(f"observer {described!r}: is not known; write {names}, or module:function")


def description_of(observer: object) -> str:
    """The text that describes an observer to another process."""
    text = observer if isinstance(observer, str) else getattr(observer, "spec", None)
    if not isinstance(text, str):
        raise UserError(
            f"observer {type(observer).__name__}: an object of this process cannot be sent to MPI ranks; give the "
            "import path module:function of a function that makes it"
        )
    return text


def new_file(path: Path) -> IO[str]:
    """A text file that did not exist before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x", encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path}: cannot be made: {error.strerror}; give another path") from error
