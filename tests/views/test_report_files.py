"""The report from files: what is read, what is named as missing, what is refused, and that nothing is imported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.edited import edited
from tests.support.texts import logistic

from areabench.cli.main import main
from areabench.cli.parser import build_parser
from areabench.cli.report import time_span
from areabench.engine.events import Kind
from areabench.errors import RunFileError
from areabench.files import write_text
from areabench.problems.splits.own import OwnSplit
from areabench.problems.torch_module import TorchModule
from areabench.results.grouping import arrange
from areabench.runfile.read import open_run
from areabench.runfile.schema import EVENT
from areabench.sweeps.read import FAILURE_COLUMNS, Failure, open_sweep, read_result
from areabench.views.report.details import WHOLE_RUN, labels_of, steps_shown, timeline_of
from areabench.views.report.page import build_report
from areabench.views.report.records import NamedValue, ReportPage, Timeline
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


def simulated(folder: Path, name: str, *changes: str) -> Path:
    source, output = folder / "tiny.toml", folder / f"{name}.h5"
    source.write_text(EXPERIMENT, encoding="utf-8")
    overrides = [word for change in changes for word in ("--set", change)]
    assert main(["simulate", str(source), "--output", str(output), *overrides]) == 0
    return output


def built(*paths: Path, cache: Path = Path("cache")) -> ReportPage:
    return build_report(gather(paths, lambda runs: None), cache)


def set_attribute(path: Path, name: str, value: str) -> None:
    with edited(path) as file:
        file["provenance"].attrs[name] = value


# ---------------------------------------------------------------------------------------------------- axes


def test_updates_until_a_snapshot_are_the_same_with_and_without_event_log(tmp_path: Path) -> None:
    logged = read_result(simulated(tmp_path, "logged"))
    counted = read_result(simulated(tmp_path, "counted", "record.events=false"))
    assert logged.updates.tolist() == counted.updates.tolist()
    with open_run(tmp_path / "logged.h5") as run:
        updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        expected = [int((updates["time_s"] <= time_s).sum()) for time_s in run.snapshot_index["time_s"]]
    assert logged.updates.tolist() == expected
    assert logged.server_steps.tolist() == [count // 2 for count in expected]


def test_without_event_log_cancelled_orders_are_no_updates(tmp_path: Path) -> None:
    """A snapshot counts all events: those that were neither updates nor steps are taken to be spread evenly."""
    stops = ("method={name='ringmaster', step_size=0.01, max_delay=2, stops=true}",)
    logged = read_result(simulated(tmp_path, "logged", *stops))
    counted = read_result(simulated(tmp_path, "counted", "record.events=false", *stops))
    with open_run(tmp_path / "logged.h5") as run:
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
def test_trials_that_are_averaged(
    runs: dict[str, list[str]], series: list[tuple[str, int]], settings: int, tmp_path: Path
) -> None:
    paths = [simulated(tmp_path, name, *changes) for name, changes in runs.items()]
    page = built(*paths, paths[0])  # a run that is named twice is there once
    assert len(page.settings) == settings
    assert [(each.remark, each.trials) for each in page.series] == series


def test_the_page_says_whose_time_it_shows(tmp_path: Path) -> None:
    first, second = simulated(tmp_path, "first"), simulated(tmp_path, "second")
    set_attribute(second, "transport", "mpi")
    assert [built(first).clock, built(second).clock] == ["virtual time", "real time"]
    page = built(first, second)
    assert page.clock == "virtual time and real time"
    assert [detail.timeline.clock for detail in page.details if detail.timeline] == ["virtual time", "real time"]


def test_the_page_says_what_defaults_do(tmp_path: Path) -> None:
    area, fedbuff = simulated(tmp_path, "area"), simulated(tmp_path, "fedbuff", "method.name=fedbuff")
    weighting, eta = built(area, fedbuff).remarks
    assert weighting.startswith("problem.weighting: client i descends (s_i/S)·f_i; ")
    assert (
        eta == "FedBuff: method.step_size: it sets the server's too: eta = alpha, because server_step_size is left out."
    )
    given = simulated(tmp_path, "given", "method.name=fedbuff", "method.server_step_size=0.5")
    assert built(area, given).remarks == (weighting,)
    assert "# it sets the server's too: eta = alpha" in built(fedbuff).details[0].experiment


# ---------------------------------------------------------------------------------------------------- timeline


def test_the_timeline_shows_base_versions_and_steps(tmp_path: Path) -> None:
    with open_run(simulated(tmp_path, "run")) as run:
        events = run.events_array
        shown = timeline_of(run, WHOLE_RUN, 1000)
        late = timeline_of(run, (1.0, 1.5), 1000)
        few = timeline_of(run, WHOLE_RUN, 4)
        nothing = timeline_of(run, (1.9999999, 1.99999999), 10)
    updates = events[events["kind"] == Kind.UPDATE]
    assert isinstance(shown, Timeline)
    assert isinstance(late, Timeline)
    assert isinstance(few, Timeline)
    assert shown.end_s.tolist() == updates["time_s"].tolist()
    assert shown.base.tolist() == updates["base_version"].tolist()
    assert np.allclose(shown.start_s, updates["time_s"] - updates["drawn_delay_s"], atol=1e-12)
    assert shown.version.tolist() == list(range(len(shown.version)))  # 0 from the start on, then each step
    assert (late.end_s + 1.0 >= 1.0).all()
    assert (late.end_s + 1.0 <= 1.5).all()
    assert late.version[0] == late.base.min()
    assert (few.shown, few.of, few.until_s) == (4, len(updates), updates["time_s"][3])
    assert isinstance(nothing, str)


def test_of_early_steps_only_the_bases_of_rounds_are_shown() -> None:
    events = np.zeros(6, EVENT)
    events["kind"], events["version"], events["time_s"] = Kind.STEP, np.arange(1, 7), np.arange(1.0, 7.0)
    times_s, versions = steps_shown(events, np.array([2, 4, 4]), (4.5, 6.0))
    assert (times_s.tolist(), versions.tolist()) == ([2.0, 4.0, 5.0, 6.0], [2, 4, 5, 6])
    times_s, versions = steps_shown(events, np.array([0, 3]), (4.5, 5.5))
    assert (times_s.tolist(), versions.tolist()) == ([0.0, 3.0, 5.0], [0, 3, 5])
    assert steps_shown(events, np.array([1]), (0.0, 2.0))[1].tolist() == [0, 1, 2]


def test_a_run_without_event_log_says_so(tmp_path: Path) -> None:
    (detail,) = built(simulated(tmp_path, "run", "record.events=false")).details
    assert detail.timeline is None
    assert "record.events" in detail.no_timeline
    assert detail.participation is not None
    assert detail.commands[1].value == f"areabench replay {tmp_path}/run.h5"


def test_a_run_is_made_again_beside_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (detail,) = built(simulated(Path(), "run")).details
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


def test_labels_are_counted_or_a_reason_is_given(tmp_path: Path) -> None:
    (page,) = arrange([read_result(simulated(tmp_path, "run"))])
    (labels,) = labels_of([page], tmp_path)
    assert labels.counts.shape == (3, 3)
    assert labels.counts.sum() == 40
    elsewhere = replace(page, experiment=replace(page.experiment, problem=TorchModule(module="os:abort")))
    (same,) = labels_of([elsewhere], tmp_path)  # labels need neither problem nor method
    assert same.counts.tolist() == labels.counts.tolist()
    stranger = replace(page, experiment=replace(page.experiment, split=OwnSplit(name="os:abort")))
    (refused,) = labels_of([stranger], tmp_path)
    assert refused.counts.size == 0
    assert "come from 'os:abort', code that the run file names and that is not run" in refused.reason
    assert "--trust-module" not in refused.reason
    (plain,) = labels_of([replace(page, experiment=replace(page.experiment, data=None))], tmp_path)
    assert "has no labels" in plain.reason


# ---------------------------------------------------------------------------------------------------- sources


def test_runs_of_another_transport_or_state_are_not_averaged(tmp_path: Path) -> None:
    simulated(tmp_path, "a")
    simulated(tmp_path, "b", "seed=4")
    set_attribute(simulated(tmp_path, "c"), "transport", "mpi")
    report = built(tmp_path)
    assert [(series.remark, series.trials) for series in report.series] == [("simulator", 2), ("mpi", 1)]
    assert report.subtitle == "3 runs · 1 method · real time on MPI and virtual time"


def test_a_folder_names_what_it_cannot_read_and_a_file_is_an_error(tmp_path: Path) -> None:
    simulated(tmp_path, "a")
    (tmp_path / "bad.h5").write_bytes(b"nothing")
    (absent,) = built(tmp_path).absent
    assert (absent.file, absent.state) == (str(tmp_path / "bad.h5"), "unreadable")
    with pytest.raises(RunFileError, match="not a readable HDF5 file"):
        built(tmp_path / "bad.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFileError, match="holds no run file"):
        built(tmp_path / "empty")


def test_a_folder_stands_for_its_runs_and_its_sweeps(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(EXPERIMENT + "[sweep]\ntrials = 2\n", encoding="utf-8")
    assert main(["sweep", str(tmp_path / "s.toml"), "-o", str(tmp_path / "s"), "--jobs", "1"]) == 0
    simulated(tmp_path, "a", "seed=9")
    found = gather([tmp_path], lambda runs: None)
    assert [trial.result.experiment.seed for trial in found.trials] == [9, 3, 4]
    assert [sweep.folder for sweep in found.sweeps] == [tmp_path / "s"]


def test_failed_missing_and_invalid_runs_of_a_sweep_are_named(tmp_path: Path) -> None:
    sweep = "[sweep]\ntrials = 2\n[[sweep.grid]]\nmethod.step_size = [0.05, 0.1, -1.0]\n"
    (tmp_path / "s.toml").write_text(EXPERIMENT + sweep, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "s.toml"), "-o", str(tmp_path / "s"), "--jobs", "1"]) == 1
    first, *_, last = open_sweep(tmp_path / "s").results
    for path in (first.path, last.path):
        path.unlink()
    lines = [",".join(FAILURE_COLUMNS), ",".join(Failure(last.path.name, "out of luck").row)]
    (tmp_path / "s" / "failures.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = built(tmp_path)
    assert [absent.state for absent in report.absent] == ["missing", "failed", "invalid", "invalid"]
    assert report.absent[0].what == "AREA, α = 0.05, uniform (λ = 10), seed 3"
    assert report.absent[1].reason == "out of luck"
    assert [(series.trials, series.planned) for series in report.series] == [(1, 2), (1, 2)]
    assert report.title == "s"


# ---------------------------------------------------------------------------------------------------- command


def test_a_page_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, page = simulated(tmp_path, "run"), tmp_path / "new" / "page.html"
    capsys.readouterr()
    assert main(["report", str(run), "-o", str(page)]) == 0
    assert capsys.readouterr().out.startswith(f"report: {page} (1 run, 0.")
    text = page.read_text(encoding="utf-8")
    assert main(["report", str(run), "-o", str(page)]) == 2
    assert capsys.readouterr().err == (
        f"areabench: {page}: exists already; choose another --output or overwrite it with --force\n"
    )
    assert main(["report", str(run), "-o", str(page), "--force", "--title", "no text: \udc80"]) == 0
    assert "<title>no text: ?</title>" in page.read_text(encoding="utf-8")
    assert main(["report", str(run), "-o", str(page), "--force"]) == 0
    assert page.read_text(encoding="utf-8") == text  # nothing in it depends on when it was made


def test_an_interrupt_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
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


def test_a_run_that_failed_is_shown_with_its_status(tmp_path: Path) -> None:
    run = simulated(tmp_path, "run")
    with edited(run) as file:
        status = file["status"][0]
        status["state"], status["reason"] = b"failed", b"a full disc"
        file["status"][0] = status
        file["metrics"].resize(0, axis=0)
    report = built(run)
    assert report.series[0].remark == "failed, seed 3"
    assert report.series[0].curves.time.train_loss is None
    assert (report.details[0].state, report.details[0].reason) == ("failed", "a full disc")


def test_nothing_large_is_imported(tmp_path: Path) -> None:
    run = simulated(tmp_path, "run")
    script = (
        "import sys; from areabench.cli.main import main; main(sys.argv[1:]); "
        "print([name for name in ('pandas', 'matplotlib', 'mpi4py', 'torch') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, "report", str(run), "-o", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_runs_in_detail_are_few(tmp_path: Path) -> None:
    paths = [simulated(tmp_path, f"run{seed}", f"seed={seed}") for seed in range(13)]
    report = built(*paths)
    assert (len(report.details), report.not_detailed) == (1, 12)
    assert report.details[0].timeline is not None
