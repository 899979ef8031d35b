"""The soak without MPI: what it reads of a run file in blocks, and its verdicts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soak
import soak_page
import soak_samples

from areabench.engine.events import EVENT, Kind, State, Status
from areabench.experiment.parse import parse_experiment

DONE = Status(State.DONE, "horizon", 3600.0, 1000, 0, 250)


def series(slope_mb_an_hour: float, start_mb: float = 30.0) -> soak_samples.Series:
    """An hour of samples on a line."""
    time_s = np.arange(0.0, 3600.0, 10.0)
    return soak_samples.Series(time_s, 1e6 * (start_mb + slope_mb_an_hour * time_s / 3600))


def quiet_hour() -> soak_page.Soak:
    """An hour in which nothing drifts."""
    samples = soak_samples.Samples(
        {0: series(1.0), 1: series(0.0), 2: series(-0.5)}, series(500.0, 0.0), series(0.0, 0.1)
    )
    quantiles = (4e-4, 2e-3, 5e-3)
    windows = [soak_samples.Window(60.0 * minute, 60_000, quantiles, quantiles) for minute in range(60)]
    return soak_page.Soak(60.0, 2, 1000.0, 3, samples, windows, DONE)


def test_an_hour_in_which_nothing_drifts_holds() -> None:
    verdicts = soak_page.verdicts(quiet_hour())
    assert [verdict.holds for verdict in verdicts] == [True] * 6
    assert verdicts[1].text == "memory, the server's rank: +1.00 MB per hour (at most 8)"
    assert "steepest slope: -0.50 MB per hour (at most 4)" in verdicts[2].text
    assert "grows by 500.0 MB per hour, on a line: R² = 1.00000" in verdicts[3].text
    assert "0.40 ms in the first and 0.40 ms in the last 10 minutes" in verdicts[4].text


def test_a_rank_that_leaks_a_curved_file_and_a_drift_are_seen() -> None:
    quiet = quiet_hour()
    leaking = replace(quiet.samples, memory={**quiet.samples.memory, 2: series(5.0)})
    line = quiet.samples.file
    curved = replace(quiet.samples, file=soak_samples.Series(line.time_s, line.value**2))
    slow = [replace(one, reply_s=(6e-4, 2e-3, 5e-3)) for one in quiet.windows[50:]]
    assert not soak_page.verdicts(replace(quiet, samples=leaking))[2].holds
    assert not soak_page.verdicts(replace(quiet, samples=curved))[3].holds
    drifting = soak_page.verdicts(replace(quiet, windows=[*quiet.windows[:50], *slow]))
    assert [verdict.holds for verdict in drifting] == [True, True, True, True, False, True]
    assert not soak_page.holds(replace(quiet, status=replace(DONE, state=State.FAILED)))


def test_a_soak_of_one_sample_holds_in_nothing_that_needs_two() -> None:
    first = soak_samples.Series(np.array([0.0]), np.array([1e6]))
    one = soak_samples.Samples({0: first, 1: first}, first, first)
    short = replace(quiet_hour(), minutes=0.05, samples=one, windows=[])
    assert [verdict.holds for verdict in soak_page.verdicts(short)] == [True] + [False] * 5
    assert "1 – " not in soak_page.page(short, "figure.png")


def test_a_soak_without_samples_has_a_page() -> None:
    none = soak_samples.Series(np.empty(0), np.empty(0))
    crashed = replace(quiet_hour(), samples=soak_samples.Samples({}, none, none), windows=[])
    assert not soak_page.holds(crashed)
    assert "memory, the server's rank: +nan" in soak_page.page(crashed, "figure.png")


def test_windows_are_those_of_all_events_read_at_once() -> None:
    events = np.zeros(100, EVENT)
    events["time_s"] = np.linspace(0.0, 170.0, 100)
    events["kind"] = np.where(np.arange(100) % 5, Kind.UPDATE, Kind.STEP)
    events["reply_s"] = np.arange(100) * 1e-3
    events["reply_s"][1] = np.nan  # the order was no reply
    windows = list(soak_samples._windows(events[first : first + 7] for first in range(0, 100, 7)))
    assert [window.begin_s for window in windows] == [0.0, 60.0, 120.0]
    for window in windows:
        inside = events[(events["time_s"] // 60 == window.begin_s / 60) & (events["kind"] == Kind.UPDATE)]
        assert window.updates == len(inside)
        assert window.reply_s[0] == pytest.approx(np.nanmedian(inside["reply_s"]))


def test_samples_find_a_rank_by_its_token_and_survive_a_cut_off_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {soak_samples.TOKEN: "test", "OMPI_COMM_WORLD_RANK": "4"}
    monkeypatch.setattr(soak_samples, "processes_of", lambda _token: {os.getpid(): own})
    run_file = tmp_path / "run.h5"
    run_file.write_bytes(bytes(123))
    sampler = soak_samples.Sampler(tmp_path / "samples.csv", "test", run_file)
    taken = [sampler.sample(), sampler.sample()]
    with (tmp_path / "samples.csv").open("a") as file:
        file.write("30.0,fi")
    samples = soak_samples.read_samples(tmp_path / "samples.csv")
    assert samples.memory[4].value.tolist() == taken
    assert samples.file.value.tolist() == [123.0, 123.0]
    assert samples.checkpoint.value.tolist() == [0.0, 0.0]


def test_the_experiment_is_valid_and_has_the_rate_that_was_asked_for(tmp_path: Path) -> None:
    experiment = parse_experiment(soak.Plan(60.0, 32, 1000.0, 33, tmp_path).experiment())
    assert 32 * getattr(experiment.rates, "rate", 0.0) == 1000.0
    assert experiment.stop.horizon_s == 3600.0
    assert experiment.record.events
