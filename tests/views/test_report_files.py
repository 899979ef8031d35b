"""The report from files: what is read, what is named as missing, what is refused, and that nothing is imported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.edited import edited
from tests.support.texts import logistic

from areabench.cli.main import main
from areabench.cli.parser import build_parser
from areabench.cli.report import time_span
from areabench.engine.events import EVENT, Kind
from areabench.errors import RunFileError
from areabench.files import write_text
from areabench.problems.splits.own import OwnSplit
from areabench.problems.torch_module import TorchModule
from areabench.results.grouping import arrange
from areabench.runfile.read import open_run
from areabench.sweeps.read import FAILURE_COLUMNS, Failure, open_sweep
from areabench.sweeps.result import read_result
from areabench.views.report.details import WHOLE_RUN, Window, labels_of, steps_shown, timeline_of
from areabench.views.report.page import build_report
from areabench.views.report.records import Labels, NamedValue, ReportPage, Timeline
from areabench.views.report.sources import gather

EXPERIMENT = f"""
seed = 3
{logistic("horizon_s = 2.0", clients=3)}
[aggregation]
name = "updates"
updates = 2
[record]
interval_s = 0.2
"""
HERE = Path()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulated(name: str, *changes: str) -> Path:
    """A run file in the current folder."""
    output = Path(f"{name}.h5")
    Path("tiny.toml").write_text(EXPERIMENT, encoding="utf-8")
    overrides = [word for change in changes for word in ("--set", change)]
    assert main(["simulate", "tiny.toml", "--output", str(output), *overrides]) == 0
    return output


def swept(text: str, code: int = 0) -> Path:
    """A sweep in the current folder."""
    Path("s.toml").write_text(EXPERIMENT + text, encoding="utf-8")
    assert main(["sweep", "s.toml", "-o", "s", "--jobs", "1"]) == code
    return Path("s")


def built(*paths: Path) -> ReportPage:
    return build_report(gather(paths, lambda runs: None), Path("cache"))


def on_mpi(path: Path) -> Path:
    """The run, as if it had been made on MPI."""
    with edited(path) as file:
        file["provenance"].attrs["transport"] = "mpi"
    return path


# ---------------------------------------------------------------------------------------------------- axes


def test_updates_until_a_snapshot_are_the_same_with_and_without_event_log() -> None:
    logged = read_result(simulated("logged"))
    counted = read_result(simulated("counted", "record.events=false"))
    with open_run("logged.h5") as run:
        updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        expected = [int((updates["time_s"] <= time_s).sum()) for time_s in run.snapshot_index["time_s"]]
    assert logged.updates.tolist() == counted.updates.tolist() == expected
    assert logged.server_steps.tolist() == [count // 2 for count in expected]


def test_without_event_log_cancelled_orders_are_no_updates() -> None:
    """A snapshot counts all events: those that were neither updates nor steps are taken to be spread evenly."""
    stops = "method={name='ringmaster', step_size=0.01, max_delay=2, stops=true}"
    logged = read_result(simulated("logged", stops))
    counted = read_result(simulated("counted", stops, "record.events=false"))
    with open_run("logged.h5") as run:
        assert np.count_nonzero(run.events_array["kind"] == Kind.CANCELLED) > 5
    assert counted.updates[-1] == logged.updates[-1] == logged.status.updates
    assert counted.updates[0] == 0
    assert np.abs(counted.updates - logged.updates).max() < 0.2 * logged.status.updates


@pytest.mark.parametrize(
    ("runs", "series", "settings"),
    [
        ({"one": [], "other": ['name="other"']}, [("one", 1), ("other", 1)], 1),  # no repetition with another seed
        ({"one": [], "other": []}, [("one", 1), ("other", 1)], 1),
        ({"often": [], "seldom": ["record.interval_s=0.4", "seed=4"]}, [("", 2)], 1),
        ({"often": [], "seldom": ["record.interval_s=0.4"]}, [("often", 1), ("seldom", 1)], 2),
    ],
)
def test_trials_that_are_averaged(runs: dict[str, list[str]], series: list[tuple[str, int]], settings: int) -> None:
    paths = [simulated(name, *changes) for name, changes in runs.items()]
    page = built(*paths, paths[0])  # a run that is named twice is there once
    assert len(page.settings) == settings
    assert [(each.remark, each.trials) for each in page.series] == series


def test_the_page_says_whose_time_it_shows_and_averages_it_apart() -> None:
    for name, seed in (("a", 3), ("b", 4)):
        simulated(name, f"seed={seed}")
    real = on_mpi(simulated("c"))
    assert [built(Path("a.h5")).clock, built(real).clock] == ["virtual time", "real time"]
    page = built(HERE)
    assert page.clock == "virtual time and real time"
    assert page.subtitle == "3 runs · 1 method · real time on MPI and virtual time"
    assert [(series.remark, series.trials) for series in page.series] == [("simulator", 2), ("mpi", 1)]
    assert {detail.timeline.clock for detail in page.details if detail.timeline} == {"virtual time", "real time"}


def test_the_page_says_what_defaults_do() -> None:
    area = simulated("area")
    fedbuff = simulated("fedbuff", "method.name=fedbuff")
    weighting, eta = built(area, fedbuff).remarks
    assert weighting.startswith("problem.weighting: client i descends (s_i/S)·f_i; ")
    assert eta.startswith("FedBuff: method.step_size: it sets the server's too: eta = alpha, because")
    given = simulated("given", "method.name=fedbuff", "method.server_step_size=0.5")
    assert built(area, given).remarks == (weighting,)
    assert "# it sets the server's too: eta = alpha" in built(fedbuff).details[0].experiment


# ---------------------------------------------------------------------------------------------------- timeline


def test_the_timeline_shows_base_versions_and_steps() -> None:
    with open_run(simulated("run")) as run:
        events = run.events_array

        def shown(window: Window, most: int) -> Timeline:
            found = timeline_of(run, window, most)
            assert isinstance(found, Timeline)
            return found

        whole = shown(WHOLE_RUN, 1000)
        late = shown((1.0, 1.5), 1000)
        few = shown(WHOLE_RUN, 4)
        assert isinstance(timeline_of(run, (1.9999999, 1.99999999), 10), str)
    updates = events[events["kind"] == Kind.UPDATE]
    assert whole.end_s.tolist() == updates["time_s"].tolist()
    assert whole.base.tolist() == updates["base_version"].tolist()
    assert np.allclose(whole.start_s, updates["time_s"] - updates["drawn_delay_s"], atol=1e-12)
    assert whole.version.tolist() == list(range(len(whole.version)))  # 0 from the start on, then each step
    assert 0.0 <= late.end_s.min() < late.end_s.max() <= 0.5
    assert late.version[0] == late.base.min()
    assert (few.shown, few.of, few.until_s) == (4, len(updates), updates["time_s"][3])


@pytest.mark.parametrize(
    ("bases", "window", "times_s", "versions"),
    [
        ([2, 4, 4], (4.5, 6.0), [2.0, 4.0, 5.0, 6.0], [2, 4, 5, 6]),
        ([0, 3], (4.5, 5.5), [0.0, 3.0, 5.0], [0, 3, 5]),
        ([1], (0.0, 2.0), [0.0, 1.0, 2.0], [0, 1, 2]),
    ],
)
def test_of_early_steps_only_the_bases_of_rounds_are_shown(
    bases: list[int], window: Window, times_s: list[float], versions: list[int]
) -> None:
    events = np.zeros(6, EVENT)
    events["kind"] = Kind.STEP
    events["version"] = np.arange(1, 7)
    events["time_s"] = np.arange(1.0, 7.0)
    found_s, found = steps_shown(events, np.array(bases), window)
    assert (found_s.tolist(), found.tolist()) == (times_s, versions)


def test_a_run_without_event_log_says_so_and_how_it_is_made_again() -> None:
    (detail,) = built(simulated("run", "record.events=false")).details
    assert detail.timeline is None
    assert "record.events" in detail.no_timeline
    assert detail.participation is not None
    assert detail.commands[1].value == "areabench replay run.h5"
    assert detail.commands[2] == NamedValue(
        "make it again from its file alone",
        "areabench show run.h5 --toml > run-again.toml\nareabench simulate run-again.toml --output run-again.h5",
    )


@pytest.mark.parametrize(("text", "expected"), [("0:2.5", (0.0, 2.5)), (":3", (0.0, 3.0)), ("1:", (1.0, np.inf))])
def test_a_part_of_a_run(text: str, expected: tuple[float, float]) -> None:
    assert time_span(text) == expected


@pytest.mark.parametrize("text", ["5", "3:2", "a:b", "-1:2", "2:2"])
def test_an_empty_part_of_a_run(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["report", "runs", f"--timeline={text}"])
    assert "is not START:END" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- labels


def test_labels_are_counted_or_a_reason_is_given() -> None:
    (page,) = arrange([read_result(simulated("run"))])

    def labels(**changes: Any) -> Labels:
        (found,) = labels_of([replace(page, experiment=replace(page.experiment, **changes))], HERE)
        return found

    counts = labels().counts
    assert (counts.shape, counts.sum()) == ((3, 3), 40)
    assert labels(problem=TorchModule(module="os:abort")).counts.tolist() == counts.tolist()  # they do not need it
    refused = labels(split=OwnSplit(name="os:abort"))
    assert refused.counts.size == 0
    assert "come from 'os:abort', code that the run file names and that is not run" in refused.reason
    assert "--trust-module" not in refused.reason
    assert "has no labels" in labels(data=None).reason


# ---------------------------------------------------------------------------------------------------- sources


def test_a_folder_names_what_it_cannot_read_and_a_file_is_an_error() -> None:
    simulated("a")
    Path("bad.h5").write_bytes(b"nothing")
    (absent,) = built(HERE).absent
    assert (absent.file, absent.state) == ("bad.h5", "unreadable")
    with pytest.raises(RunFileError, match="not a readable HDF5 file"):
        built(Path("bad.h5"))
    Path("empty").mkdir()
    with pytest.raises(RunFileError, match="holds no run file"):
        built(Path("empty"))


def test_a_folder_stands_for_its_runs_and_its_sweeps() -> None:
    sweep = swept("[sweep]\ntrials = 2\n")
    simulated("a", "seed=9")
    found = gather([HERE], lambda runs: None)
    assert [trial.result.experiment.seed for trial in found.trials] == [9, 3, 4]
    assert [each.folder for each in found.sweeps] == [sweep]


def test_failed_missing_and_invalid_runs_of_a_sweep_are_named() -> None:
    folder = swept("[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.step_size = [0.05, 0.1, -1.0]\n", code=1)
    first, *_, last = open_sweep(folder).results
    for path in (first.path, last.path):
        path.unlink()
    lines = [",".join(FAILURE_COLUMNS), ",".join(Failure(last.path.name, "out of luck").row)]
    (folder / "failures.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = built(HERE)
    assert [absent.state for absent in report.absent] == ["missing", "failed", "invalid", "invalid"]
    assert report.absent[0].what == "AREA, α = 0.05, uniform (λ = 10), seed 3"
    assert report.absent[1].reason == "out of luck"
    assert [(series.trials, series.planned) for series in report.series] == [(1, 2), (1, 2)]
    assert report.title == "s"


# ---------------------------------------------------------------------------------------------------- command


def test_a_page_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path("new/page.html")
    command = ["report", str(simulated("run")), "-o", str(page)]
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"report: {page} (1 run, 0.")
    text = page.read_text(encoding="utf-8")
    assert main(command) == 2
    assert "exists already; choose another --output or overwrite it with --force" in capsys.readouterr().err
    assert main([*command, "--force", "--title", "no text: \udc80"]) == 0
    assert "<title>no text: ?</title>" in page.read_text(encoding="utf-8")
    assert main([*command, "--force"]) == 0
    assert page.read_text(encoding="utf-8") == text  # nothing in it depends on when it was made


def test_an_interrupt_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    link = tmp_path / "link.html"
    write_text(page, "old")
    link.symlink_to(page)

    def interrupted(self: Path, target: Path) -> Path:
        assert (self.read_text(encoding="utf-8"), target) == ("new", page)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_text(link, "new")
    assert page.read_text(encoding="utf-8") == "old"
    write_text(link, "new")
    assert page.read_text(encoding="utf-8") == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_a_run_that_failed_is_shown_with_its_status() -> None:
    run = simulated("run")
    with edited(run) as file:
        status = file["status"][0]
        status["state"] = b"failed"
        status["reason"] = b"a full disc"
        file["status"][0] = status
        file["metrics"].resize(0, axis=0)
    report = built(run)
    assert report.series[0].remark == "failed, seed 3"
    assert report.series[0].curves.time.train_loss is None
    assert (report.details[0].state, report.details[0].reason) == ("failed", "a full disc")


def test_nothing_large_is_imported() -> None:
    script = (
        "import sys; from areabench.cli.main import main; main(sys.argv[1:]); "
        "print([name for name in ('pandas', 'matplotlib', 'mpi4py', 'torch') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, "report", str(simulated("run")), "-o", "page.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_runs_in_detail_are_few() -> None:
    report = built(*(simulated(f"run{seed}", f"seed={seed}") for seed in range(13)))
    assert (len(report.details), report.not_detailed) == (1, 12)
    assert report.details[0].timeline is not None
