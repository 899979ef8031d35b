"""The contents of run files: whether two are the same to the bit, and whether AREA's invariant holds in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from areabench.engine.events import Kind
from areabench.engine.scenario import Scenario, build_scenario
from areabench.runfile.read import Run, open_run
from areabench.transports.replay import Difference, Replay

ALLOWED_TO_DIFFER = ("provenance", "checksums")  # the blocks of the latter are as long as the rows that waited


def difference(one: Path, other: Path) -> str:
    """The first thing that differs between two run files; empty where nothing does."""
    with h5py.File(one, "r") as first, h5py.File(other, "r") as second:
        if first.attrs["experiment"] != second.attrs["experiment"]:
            return "the experiment differs"
        for name in _names(first) | _names(second):
            if found := _item_difference(first, second, name):
                return found
    return ""


def _names(file: h5py.File) -> set[str]:
    names: list[str] = []
    file.visit(names.append)
    return {name for name in names if name.partition("/")[0] not in ALLOWED_TO_DIFFER}


def _item_difference(first: h5py.File, second: h5py.File, name: str) -> str:
    if name not in first or name not in second:
        return f"/{name} is in one file only"
    one, other = first[name], second[name]
    if isinstance(one, h5py.Dataset):
        return "" if _same_rows(one, other) else f"/{name} differs"
    old, new = dict(one.attrs), dict(other.attrs)
    differing = [key for key in old.keys() | new.keys() if not _same(old.get(key), new.get(key))]
    return f"/{name}: {differing[0]} is {old.get(differing[0])!r} and {new.get(differing[0])!r}" if differing else ""


def _same_rows(one: h5py.Dataset, other: h5py.Dataset) -> bool:
    """Compared by bytes, so that NaN equals NaN."""
    return bool(one.dtype == other.dtype and one.shape == other.shape and one[()].tobytes() == other[()].tobytes())


def _same(one: object, other: object) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes() if isinstance(one, np.generic) else one == other


class InvariantReplay(Replay):
    """Replays a run, and compares the server with its clients after every event."""

    def __init__(self, run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> None:
        super().__init__(run, scenario, progress)
        count = scenario.experiment.clients.count
        self._memories = np.tile(scenario.start.astype(np.float64), (count, 1))  # as the server has received them
        self._counts = np.ones(count, bool)  # the client's memory is a part of the mean
        self._lost_so_far: list[int] = []
        self._scale = max(1.0, float(np.abs(self._memories).max()))
        self.worst = 0.0  # distance between both sides, against what rounding explains

    def _event(self, number: int, row: np.void) -> Difference | None:
        difference = super()._event(number, row)
        client = int(row["client"])
        if row["kind"] == Kind.UPDATE:
            self._memories[client] = self._clients[client].memory
            self._scale = max(self._scale, float(np.abs(self._memories[client]).max()))
        elif row["kind"] == Kind.LOST:
            self._lost_so_far.append(client)
        elif row["kind"] == Kind.REMOVED:
            self._counts[self._lost_so_far] = False
        self.worst = max(self.worst, self._distance() / self._rounding(number + 1))
        return difference

    def _distance(self) -> float:
        state = self._server.state
        mean = self._memories[self._counts].mean(axis=0)
        return float(np.abs(state.model + state.aggregator - mean).max())

    def _rounding(self, events: int) -> float:
        """The largest error that this many roundings may add up to."""
        return float((64 + events) * np.finfo(self._server.model.dtype).eps) * self._scale


def broken_invariant(path: Path, cache: Path) -> str:
    """How a run of AREA breaks its invariant; empty where it holds, and for other methods."""
    with open_run(path) as run:
        if run.experiment.method.name != "area":
            return ""
        replay = InvariantReplay(run, build_scenario(run.experiment, cache), lambda _time_s, _events: None)
        replay.run()
    return "" if replay.worst <= 1.0 else f"AREA's invariant is off by {replay.worst:.3g} times what rounding explains"
