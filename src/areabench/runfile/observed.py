"""A recorder that tells observers what it writes, in the order in which it happened."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from areabench.engine.evaluation import evaluate_model
from areabench.engine.events import EVENT_ROW, Event, Kind, State, Status
from areabench.engine.scenario import Scenario
from areabench.errors import one_line
from areabench.problems.base import Metrics
from areabench.runfile.layout import metric_rows
from areabench.runfile.observers import METRICS, SnapshotSeen, observer_of
from areabench.runfile.record import Recorder


class ObservedRecorder(Recorder):
    """Tells of events when they are written; of snapshots too if it is `live`, otherwise once they are evaluated."""

    def observe(self, observers: Sequence[object], scenario: Scenario, *, live: bool, told: int = 0) -> None:
        """Tell these observers, objects or texts that describe them, from now on; the run is about to begin.

        Of a run that is resumed, `told` events have been recorded before.
        """
        self._problem, self._live, self._ended = scenario.problem, live, False
        self._told = told
        try:
            self._observers = [observer_of(each) for each in observers]
            for observer in self._observers:
                getattr(observer, "on_start", _nothing)(scenario.experiment)
        except BaseException:
            self._claim.release()
            raise

    def flush(self) -> None:
        """Write everything that waits, and tell of it."""
        rows, snapshots = bytes(self._waiting_events), list(self._waiting_snapshots)
        super().flush()
        events = (_event(row) for row in EVENT_ROW.iter_unpack(rows))
        for (time_s, version, count), model in snapshots if self._live else ():
            evaluate = partial(evaluate_model, self._problem, model)
            self._tell_events(events, count - self._told)
            self._tell("on_snapshot", SnapshotSeen(time_s, version, count, model, evaluate))
        self._tell_events(events, len(rows))

    def metrics(self, blocks: Sequence[Metrics], averages: Sequence[Metrics] = ()) -> None:
        """Add the quality of every snapshot, and tell of the snapshots if that has not been done."""
        super().metrics(blocks, averages)
        if self._live:
            return
        models = chain.from_iterable(self.model_blocks())
        for index, row, model in zip(
            self._file["snapshots/index"][:], metric_rows(blocks, averages), models, strict=True
        ):
            time_s, version, count, _ = index.tolist()
            known = {name: float(row[name]) for name in METRICS}
            self._tell("on_snapshot", SnapshotSeen(time_s, version, count, model, partial(dict, known)))

    def set_status(self, status: Status) -> None:
        """Write the status, and tell of the end."""
        super().set_status(status)
        if status.state != State.RUNNING and not self._ended:
            self._ended = True
            self._tell("on_end", status)

    def _tell_events(self, events: Iterator[Event], most: int) -> None:
        for _, event in zip(range(most), events, strict=False):
            self._told += 1
            self._tell("on_event", event)

    def _tell(self, method: str, what: object) -> None:
        """Call a method of all observers; one that fails is not called again."""
        for observer in list(self._observers):
            try:
                getattr(observer, method, _nothing)(what)
            except Exception as error:  # whatever it is, the run matters more
                self._observers.remove(observer)
                name = type(observer).__name__
                warnings.warn(f"observer {name}.{method} failed and is left out: {one_line(error)}", stacklevel=2)


def _event(row: tuple[Any, ...]) -> Event:
    event = Event(*row)
    return event._replace(kind=Kind(event.kind))


def _nothing(_: object) -> None:
    """What an observer without a method does."""
