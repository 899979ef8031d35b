"""The times that a run collects, and the load of a rank on its machine."""

from __future__ import annotations

import math

import numpy as np

from areabench.engine.messages import Flag, UpdateHeader
from areabench.engine.timings import TIMING, Timings


def header(client: int, drawn_s: float = 0.5, flags: Flag = Flag.NONE) -> UpdateHeader:
    return UpdateHeader(client, 0, 0, drawn_s, drawn_s + 0.25, 0.125, 0.0625, flags)


def test_all_rows_of_a_short_run_are_kept() -> None:
    timings = Timings(2)
    timings.add(header(0), 0.01, 0.02)
    timings.add(header(1, 2.0, Flag.OVERRUN)._replace(reply_s=math.nan), 0.03, 0.04)
    first, second = timings.rows
    assert timings.rows.dtype == TIMING
    assert first.tolist() == (0, 0.5, 0.75, 0.125, 0.0625, 0.01, 0.02, 0)
    assert math.isnan(second["reply_s"])
    assert (second["client"], second["drawn_s"], second["service_s"], second["flags"]) == (1, 2.0, 0.04, 1)


def test_counts_and_sums_are_of_all_updates() -> None:
    timings = Timings(3, most_rows=16)
    for number in range(1000):
        timings.add(header(number % 2, flags=Flag.OVERRUN if number < 10 else Flag.NONE), 0.0, 0.0)
    assert timings.overruns == 10
    assert timings.compute_s.tolist() == [500 * 0.0625, 500 * 0.0625, 0.0]
    assert len(timings.rows) < 16


def test_a_long_run_is_thinned_evenly() -> None:
    timings = Timings(4, most_rows=1000)
    for number in range(64_000):
        timings.add(header(number % 4, drawn_s=number / 64_000), 0.0, 0.0)
        if number % 5000 == 0:
            assert len(timings.rows) < 1000
    rows = timings.rows
    assert 200 < len(rows) < 1000
    assert (np.diff(rows["drawn_s"]) > 0).all()
    assert np.histogram(rows["drawn_s"], 4, (0, 1))[0].min() > len(rows) / 8  # no quarter of the run is missing
    assert np.bincount(rows["client"], minlength=4).min() > len(rows) / 8  # nor a client that shares its rank


def test_the_same_updates_leave_the_same_sample() -> None:
    samples = []
    for _ in range(2):
        timings = Timings(1, most_rows=64)
        for number in range(1000):
            timings.add(header(0, drawn_s=float(number)), 0.0, 0.0)
        samples.append(timings.rows.tobytes())
    assert samples[0] == samples[1]
