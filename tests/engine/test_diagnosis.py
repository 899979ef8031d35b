"""The diagnosis of a run: from what was observed to the record, its file, its text and its figure."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.edited import edited
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.engine.diagnosis import (
    DIAGNOSIS_CLIENT,
    QUANTILE,
    SHARES,
    Cause,
    Diagnosis,
    RunObservations,
    diagnose,
    loads_of,
)
from areabench.engine.events import CLIENT, Event, Kind, State
from areabench.engine.messages import Flag
from areabench.engine.timings import TIMING
from areabench.errors import RunFailure, RunFileError
from areabench.experiment.parse import parse_experiment
from areabench.host import Footprint
from areabench.progress import Style
from areabench.results.diagnosis import diagnosis_of
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import open_run
from areabench.runfile.record import Recorder
from areabench.transports.options import RunOptions
from areabench.transports.session import simulate_run
from areabench.views.json import to_json
from areabench.views.text import describe_run, diagnosis_text, size

EXPERIMENT = quadratic("horizon_s = 10", clients=3, dimension=2) + '[delays]\nname = "fixed"\n'


def rows(count: int = 4) -> NDArray[Any]:
    """Updates of clients 0, 1, 2, 0, ... with delays of 100 ms, kept to the millisecond."""
    table = np.zeros(count, TIMING)
    table["client"] = np.arange(count) % 3
    table["drawn_s"], table["realised_s"], table["reply_s"], table["compute_s"] = 0.1, 0.101, 0.002, 0.01
    table["queue_s"], table["service_s"] = 0.0001, 0.0005
    if count:
        table["reply_s"][0] = math.nan
    return table


def observed(**changes: Any) -> RunObservations:
    """Three clients on two ranks at 10/s for 10 s, all well."""
    clients = np.zeros(3, CLIENT)
    clients["client"], clients["rank"], clients["rate"] = [0, 1, 2], [1, 2, 1], 10.0
    footprints = tuple(Footprint("here", frozenset({0, 1}), 0.1, 0.0, 50_000_000) for _ in range(3))
    base = RunObservations(
        experiment=parse_experiment(EXPERIMENT),
        virtual=False,
        duration_s=10.0,
        clients=clients,
        served=np.array([100, 99, 98]),
        rows=rows(),
        overruns=0,
        compute_s=np.array([1.0, 1.5, 2.0]),
        idle_s=8.0,
        serving_s=0.5,
        footprints=footprints,
        start_up_s=14.2,
    )
    return replace(base, **changes)


def test_counts_means_and_loads() -> None:
    found = diagnose(observed())
    assert (found.updates, found.expected_updates, found.duration_s, found.sampled) == (297, 300.0, 10.0, 4)
    assert (found.mean_drawn_s, found.mean_realised_s) == pytest.approx((0.1, 0.101))
    assert (found.mean_reply_s, found.mean_compute_s) == pytest.approx((0.002, 0.01))  # NaN is not counted
    assert (found.server_load, found.server_polling, found.server_serving) == pytest.approx((20.0, 15.0, 5.0))
    assert (found.busiest_rank, found.cores) == (1, 2)
    assert (found.busiest_load, found.core_load) == pytest.approx((30.0, 15.0))  # clients 0 and 2: 3 s of 10
    assert (found.ranks, found.memory_bytes, found.start_up_s) == (3, 150_000_000, 14.2)
    assert found.cause == Cause.DELAYS
    assert math.isnan(found.advised_stretch)


def test_what_worker_ranks_do_with_a_core() -> None:
    """Two ranks use 0.8 cores and wait for 0.2; computing takes 4.5 s of 10 s."""
    ranks = [replace(one, busy=0.4, waited=0.1) for one in observed().footprints]
    loads = loads_of(observed(footprints=(replace(ranks[0], busy=0.2), *ranks[1:])))
    assert (loads.workers, loads.looking, loads.waiting) == pytest.approx((0.8, 1 - 0.45 / 0.8, 0.2))
    assert loads.computing == pytest.approx(0.45)
    waited = [replace(one, waited=math.nan) for one in ranks]
    assert loads_of(observed(footprints=tuple(waited))).waiting == 0.0  # the system does not say
    assert math.isnan(loads_of(observed(footprints=())).looking)


def test_computing_that_needs_no_core_is_neither_looking_nor_waiting_for_one() -> None:
    """It may be done by another device: 0.45 of the time, with 0.1 cores."""
    loads = loads_of(observed(footprints=tuple(replace(one, busy=0.05, waited=0.045) for one in observed().footprints)))
    assert (loads.looking, loads.waiting) == pytest.approx((0.0, 0.2))


def test_a_client_that_was_served_less_than_expected_is_named() -> None:
    found = diagnose(observed(served=np.array([100, 90, 80])))
    assert found.clients["low"].tolist() == [96.0, 96.0, 96.0]  # 97 fit into 10 s / 1.03, less one
    assert found.short["client"].tolist() == [2, 1]
    text = diagnosis_text(found)
    assert "2 of 3 served less than chance allows: client 2 (80 of 100, at least 96), client 1 (90 of 100," in text


def test_of_many_clients_the_worst_are_named_and_the_others_counted() -> None:
    clients = np.zeros(40, CLIENT)
    clients["client"], clients["rate"], clients["rank"] = np.arange(40), 10.0, 1
    served, nothing = np.array([50] * 30 + [100] * 9 + [7]), np.zeros(40)
    text = diagnosis_text(diagnose(observed(clients=clients, served=served, compute_s=nothing)))
    assert "31 of 40 served less than chance allows: client 39 (7 of 100, at least 96), client 0" in text
    assert "and 28 more" in text


def test_quantiles() -> None:
    table = rows(101)
    table["realised_s"] = 0.1 + np.arange(101) / 1000
    found = diagnose(observed(rows=table))
    assert found.quantiles["share"].tolist() == SHARES.tolist()
    for share in (0, 50, 95, 99, 100):
        assert found.quantile("late_s", share) == pytest.approx(share / 1000)
        assert found.quantile("drawn_s", share) == 0.1
    assert math.isnan(found.quantile("late_s", 12.5))


def test_delays_that_are_shorter_than_what_a_cycle_needs() -> None:
    assert diagnose(observed()).expected_overruns == 0.0
    exponential = parse_experiment(EXPERIMENT, overrides=["delays.name=exponential"])
    found = diagnose(observed(experiment=exponential, overruns=33))
    expected = 100 * (3 * (1 - math.exp(-10 * 0.012)) + (1 - math.exp(-10 * 0.01))) / 4
    assert found.expected_overruns == pytest.approx(expected)
    assert f"33 of 297 updates were not ready when due (11.1 %); {expected:.1f} % of the delays" in diagnosis_text(
        found
    )


def test_a_run_without_updates() -> None:
    found = diagnose(observed(rows=rows(0), served=np.zeros(3, int), compute_s=np.zeros(3), idle_s=10.0))
    assert found.cause == Cause.NOTHING
    assert math.isnan(found.mean_drawn_s)
    assert len(found.quantiles) == 0
    assert "verdict          no updates" in diagnosis_text(found)


def test_clients_on_shared_ranks_that_compute_too_long() -> None:
    table = rows(90)
    table["realised_s"], table["compute_s"], table["flags"] = 0.2, 0.05, Flag.OVERRUN.value
    found = diagnose(observed(rows=table, served=np.array([50, 50, 50]), compute_s=np.array([5.0, 2.5, 5.0])))
    assert found.cause == Cause.COMPUTING
    assert found.busiest_load == pytest.approx(100.0)
    assert "more worker ranks" in found.advice
    parts = (found.excess_polling_s, found.excess_server_s, found.excess_compute_s, found.excess_machine_s)
    assert sum(parts) == pytest.approx(0.1)


# ---------------------------------------------------------------------------------------------------- text, JSON


def test_the_text_is_short_aligned_and_ends_with_the_verdict() -> None:
    lines = diagnosis_text(diagnose(observed())).splitlines()
    assert lines[0] == "diagnosis"
    assert 10 <= len(lines) <= 15
    assert all(line.startswith("  ") and line[18] == " " for line in lines[1:])
    assert lines[1].split() == ["updates", "297", "of", "300", "expected", "(99.0", "%):", "29.7", "of", "30/s"]
    assert "clients          3, none served less than chance allows" in lines[2]
    assert "drawn 100 ms, realised 101 ms on average (+1.0 %)" in lines[3]
    assert lines[5].split() == ["late", "(ms)", "1.000", "1.000", "1.000"]
    assert lines[6].split() == ["reply", "(ms)", "2.000", "2.000", "2.000"]
    assert "ready after 14.2 s; 150 MB in 3 ranks" in lines[-2]
    assert lines[-1] == "  verdict          delay-bound: cycles are as long as the delays drawn (+1.0 %)"


def test_a_stretched_clock_is_reported() -> None:
    stretched = parse_experiment(EXPERIMENT, overrides=["clock.stretch=4"])
    assert "; clock.stretch = 4\n" in diagnosis_text(diagnose(observed(experiment=stretched)))


def test_a_server_that_waits_for_a_core_is_reported() -> None:
    starved = tuple(replace(one, waited=0.125) for one in observed().footprints)
    busy = "server busy 20 % (polling 15 %, serving 5.0 %"
    assert f"{busy}, short of a core 12 %); rank 1" in diagnosis_text(diagnose(observed(footprints=starved)))
    assert f"{busy}); rank 1" in diagnosis_text(diagnose(observed()))
    assert "server busy 20 %; rank 1" in diagnosis_text(diagnose(observed(serving_s=math.nan)))  # it did not end


def test_sizes() -> None:
    assert (size(2.94e9), size(150e6)) == ("2.9 GB", "150 MB")


def test_json_has_every_field_and_null_for_what_is_not_known() -> None:
    found = json.loads(to_json(diagnose(observed(idle_s=math.nan))))
    assert list(found) == [item.name for item in fields(Diagnosis)]
    assert (found["server_load"], found["server_polling"], found["server_serving"]) == (None, None, 5.0)
    assert found["clients"][1] == {
        "client": 1, "served": 99, "expected": 100.0, "low": 96.0, "high": 101.0, "compute_s": 1.5
    }  # fmt: skip
    assert len(found["quantiles"]) == len(SHARES)


# ---------------------------------------------------------------------------------------------------- run files


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """A recorder of a run on MPI with two events of client 0."""
    recorder = Recorder(tmp_path / "run.h5", EXPERIMENT, 2, np.dtype(np.float64), force=False)
    recorder.begin(gather_provenance("mpi", "", "", 0), observed().clients)
    for time_s in (1.0, 2.0):
        recorder.tally.count(Kind.UPDATE, time_s, 0)
        times = {"drawn_delay_s": 1.0, "realised_delay_s": 1.5, "compute_s": 1.25, "flags": int(Flag.OVERRUN)}
        recorder.event(Event(time_s, Kind.UPDATE, 0, **times))  # type: ignore[arg-type]
    yield recorder
    with suppress(RunFailure):
        recorder.close()


def test_what_is_written_is_read(recorder: Recorder) -> None:
    written = diagnose(observed())
    recorder.diagnosis(written)
    recorder.close()
    with open_run(recorder.path) as run:
        read = run.diagnosis
        assert read is not None
        assert diagnosis_of(run) is read
        assert len(run.rows("diagnosis/summary")) == 1
        assert diagnosis_text(written).rstrip() in describe_run(run)
    for item in fields(Diagnosis):
        old, new = getattr(written, item.name), getattr(read, item.name)
        assert type(old) is type(new)
        assert np.array_equal(old, new, equal_nan=True) if isinstance(old, float) else np.all(old == new)
    assert (read.clients.dtype, read.quantiles.dtype) == (DIAGNOSIS_CLIENT, QUANTILE)


def test_a_run_that_did_not_end_is_judged_by_its_events(recorder: Recorder) -> None:
    recorder.set_status(recorder.tally.status(State.FAILED, "why"))
    recorder.close()
    with open_run(recorder.path) as run:
        assert run.diagnosis is None
        found = diagnosis_of(run)
    assert (found.updates, found.overruns, found.sampled) == (2, 2, 2)
    assert (found.mean_drawn_s, found.mean_realised_s) == (1.0, 1.5)
    assert found.cause == Cause.COMPUTING
    assert math.isnan(found.server_load)
    assert math.isnan(found.excess_polling_s)  # the server's part has it
    assert found.busiest_load == pytest.approx(100 * 2.5 / 2.0)


def test_a_run_without_any_event_cannot_be_judged(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.h5", EXPERIMENT, 2, np.dtype(np.float64), force=False)
    recorder.begin(gather_provenance("mpi", "", "", 0), observed().clients)
    recorder.close()
    with open_run(recorder.path) as run, pytest.raises(RunFileError, match="nothing to judge"):
        diagnosis_of(run)


def test_a_damaged_diagnosis_is_reported(recorder: Recorder) -> None:
    recorder.diagnosis(diagnose(observed()))
    recorder.close()
    with edited(recorder.path) as file:
        del file["diagnosis/summary"]
        file["diagnosis/summary"] = np.zeros(1, [("verdict", "S32")])
    with pytest.raises(RunFileError, match=r"/diagnosis/summary .* has columns"):
        open_run(recorder.path)


@pytest.fixture(params=["record.events=true", "record.events=false"])
def simulated(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A simulated run, with and without its events."""
    experiment = parse_experiment(EXPERIMENT, overrides=["delays.name=exponential", str(request.param)])
    path = tmp_path / "simulated.h5"
    simulate_run(experiment, RunOptions(path, tmp_path, "", False, Style.NONE))
    return path


def test_simulated_delays_are_exact(simulated: Path) -> None:
    with open_run(simulated) as run:
        assert run.diagnosis is None
        found = diagnosis_of(run)
        assert found.clients["served"].tolist() == run.served.tolist()
    assert found.cause == Cause.VIRTUAL
    assert found.clients["expected"].tolist() == [100.0, 100.0, 100.0]
    assert not len(found.short)  # for this seed; chance is one in a hundred
    text = diagnosis_text(found)
    assert text.endswith("verdict          virtual time: delays are exact\n")
    assert "ms)" not in text


# ---------------------------------------------------------------------------------------------------- command


def test_diagnose_prints_and_draws(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "deep" / "figure.svg"
    assert main(["diagnose", str(simulated), "-o", str(figure)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("diagnosis\n  updates ")
    assert shown.endswith(f"figure: {figure}\n")
    assert "virtual time: delays are exact" in figure.read_text()


def test_diagnose_as_json(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["diagnose", str(simulated), "--json", "-o", str(tmp_path / "figure.png")]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "virtual time"
    assert (tmp_path / "figure.png").stat().st_size > 10_000


UNKNOWN = {"idle_s": math.nan, "serving_s": math.nan, "footprints": ()}


@pytest.mark.parametrize("changes", [{}, UNKNOWN, {"served": np.array([100, 10, 98])}])
def test_figure_of_a_run_on_mpi(changes: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    from areabench.views.figures.diagnosis import draw_diagnosis

    seen = observed(**changes)
    figure = draw_diagnosis(diagnose(seen), seen.experiment)
    assert len(figure.axes) == 6
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert ("outside it" in labels) == ("served" in changes)
    texts = [text.get_text() for text in figure.axes[5].texts]
    unknown = "not known"
    assert texts == (
        [unknown, unknown, unknown, "30", unknown] if "idle_s" in changes else ["20", "15", "5", "30", "15"]
    )
    causes = [label.get_text() for label in figure.axes[4].get_yticklabels()]
    named = ["server", "polling"] if "idle_s" in changes else ["polling", "serving"]
    assert causes == ["all", *named, "computing", "late wake-ups"]


def test_figure_of_a_run_without_updates() -> None:
    pytest.importorskip("matplotlib")
    from areabench.views.figures.diagnosis import draw_diagnosis

    seen = observed(rows=rows(0), served=np.zeros(3, int))
    assert len(draw_diagnosis(diagnose(seen), seen.experiment).axes) == 2


def test_a_rank_that_only_computes_does_not_load_scipy() -> None:
    code = "import sys, areabench.engine.diagnosis, areabench.transports.server_loop; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
