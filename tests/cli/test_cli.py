"""The command line: exit codes, output, and errors in one line. MPI is only touched in subprocesses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import h5py
import pytest
from tests.support.edited import edited
from tests.support.texts import LOGISTIC, QUADRATIC

from areabench import __version__
from areabench.cli import CommandContext
from areabench.cli import main as cli
from areabench.cli.main import main
from areabench.cli.parser import TYPED
from areabench.engine.events import Kind, State
from areabench.errors import UserError
from areabench.experiment.parse import load_experiment, parse_experiment
from areabench.methods import METHODS
from areabench.runfile.read import Run, open_run

EXPERIMENT = "seed = 3" + QUADRATIC


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small experiment file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


@pytest.fixture
def run(experiment: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The run file of the small experiment."""
    output = experiment.with_name("tiny.h5")
    assert main(["simulate", str(experiment), "--output", str(output)]) == 0
    capsys.readouterr()
    return output


def in_process(
    *arguments: str, before: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`areabench ARGUMENTS` in a process of its own, after some lines of Python."""
    script = f"import sys\n{before}\nfrom areabench.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    return finished([sys.executable, "-c", script, *arguments], environment or {})


def finished(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    source = str(Path(cli.__file__).parents[2])
    variables = {**os.environ, "PYTHONPATH": source, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written to stderr: one line, and nothing to stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("areabench: ")
    assert captured.err.count("\n") == 1
    return captured.err.strip()


# ---------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize("command", TYPED)
def test_help_has_an_example_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "example: " in shown
    assert f"areabench {command} " in shown.partition("example: ")[2]
    assert "exit codes: 0 " in shown


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"    {command}" in shown for command in TYPED)


def test_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: areabench COMMAND ...\n")
    assert "\n  areabench simulate benchmarks/experiments/demo/demo.toml --output runs/first.h5\n" in captured.err
    listed = captured.err.split()
    assert all(command in listed for command in TYPED)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("simulat demo.toml", "unknown command 'simulat'; did you mean 'simulate'? allowed: check, "),
        ("x", "unknown command 'x'; allowed: check, "),
        ("sweep tiny.toml --trials 0", "tiny.toml: sweep.trials: 0 is not allowed; allowed is a whole number >= 1"),
        ("simulate tiny.toml -o folder --force", "folder: cannot be written: Is a directory"),
        ("simulate tiny.toml -o folder/ --force", "folder: cannot be written: Is a directory"),
        ("simulate tiny.toml -o tiny.h5", "exists already; choose another --output or overwrite it with --force"),
        ("simulate tiny.toml -o tiny.h5 --set seed=-1 --force", "seed: -1 is out of range"),
        ("simulate tiny.toml --set problem.dimension=1000000000000", "not enough memory: Unable to allocate "),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_changes_nothing(
    command: str, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()
    before = run.read_bytes()
    assert main(command.split()) == 2
    assert words in complaint(capsys)
    assert run.read_bytes() == before
    assert sorted(path.name for path in run.parent.rglob("*") if path.name != "runs") == [
        "folder", "tiny.h5", "tiny.toml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "show tiny.h5",
            ["done: 20 iterations", "16 updates, 4 server steps, 0 discarded", "transport      simulator"],
        ),
        ("replay tiny.h5", ["tiny.h5: 20 events (by checksum) and 10 snapshots (bit for bit) replayed, all equal\n"]),
        ("replay tiny.h5", ["\nmetrics: 10 of 10 rows equal (to the bit)\n"]),
    ],
)
def test_answers(command: str, words: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    assert [each for each in words if each not in printed] == []
    assert "made no step" not in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"areabench {__version__}\n"


def test_as_a_module(experiment: Path) -> None:
    done = finished([sys.executable, "-m", "areabench", "check", str(experiment)], {})
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_experiment(done.stdout) == load_experiment(experiment)


# ---------------------------------------------------------------------------------------------------- sweep


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_a_sweep_needs_a_process(jobs: str, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sweep", str(experiment), "--jobs", jobs])
    assert caught.value.code == 2
    assert f"'{jobs}' is not a whole number >= 1" in capsys.readouterr().err


def test_the_folder_of_a_sweep_is_named_after_its_file(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def folders(*options: str) -> list[str]:
        assert main(["sweep", str(experiment), *options, "--dry-run"]) == 0
        return [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]

    other = experiment.with_name("other.toml")
    other.write_text(EXPERIMENT, encoding="utf-8")
    assert folders() == ["runs/tiny"]
    assert folders("--transport", "mpi") == ["runs/tiny-mpi"]
    assert folders("--output", "here") == ["here"]
    assert folders(str(other), "--output", "here") == ["here/tiny", "here/other"]


def test_a_sweep_uses_the_cores_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6}, raising=False)
    assert CommandContext({}, "areabench").cores == 3


# ---------------------------------------------------------------------------------------------------- check, simulate


def test_check_prints_the_same_experiment(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(experiment), "--set", "seed=9"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert parse_experiment(captured.out) == load_experiment(experiment, ["seed=9"])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("method.name=fedbuff", "step_size = 0.05  # it sets the server's too: eta = alpha, "),
        ("method.name=afa-cs", "step_size = 0.05  # it sets the server's too: eta = alpha·M, "),
        ("seed=0", 'weighting = "share"  # client i descends (s_i/S)·f_i; '),
        ("problem.weighting=exact", 'weighting = "exact"  # client i descends n·(s_i/S)·f_i; '),
    ],
)
def test_check_and_show_say_what_defaults_do(
    change: str, line: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.write_text(LOGISTIC, encoding="utf-8")
    assert main(["check", str(experiment), "--set", change]) == 0
    printed = capsys.readouterr().out
    assert f"\n{line}" in printed
    assert parse_experiment(printed) == load_experiment(experiment, [change])
    assert main(["simulate", str(experiment), "--set", change, "-o", "said.h5"]) == 0
    assert main(["show", "said.h5"]) == 0
    assert f"\n  {line}" in capsys.readouterr().out


def test_a_server_step_size_that_is_given_needs_no_remark(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--set", "method.name=fedbuff", "--set", "method.server_step_size=1"]
    assert main(["check", str(experiment), *changes]) == 0
    assert "#" not in capsys.readouterr().out


def test_simulate_writes_and_says_where(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = experiment.parent / "new" / "folder" / "run.h5"
    assert main(["simulate", str(experiment), "-o", str(output)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{output}: done (20 iterations): 16 updates, 4 server steps, 0 discarded\n"
    assert captured.err == ""  # quiet: no terminal
    with open_run(output) as recorded:
        assert recorded.status.state == State.DONE
        assert recorded.experiment == load_experiment(experiment)


def test_default_output(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(experiment)]) == 0
    assert (experiment.parent / "runs" / "tiny-area-3.h5").is_file()
    assert capsys.readouterr().out.startswith("runs/tiny-area-3.h5: done")


@pytest.mark.parametrize(("name", "file"), [("runs/foo", "runs/foo.h5"), ("a0.5", "a0.5.h5"), ("x.h5", "x.h5")])
def test_a_run_file_ends_in_h5(name: str, file: str, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(experiment), "-o", name]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: done ")
    assert Path(file).is_file()


def test_a_run_without_a_server_step_says_so(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(experiment), "-o", "none.h5", "--set", "aggregation.updates=100"]) == 0
    assert "\nthe server made no step, so the model is the one at the start: " in capsys.readouterr().out
    assert main(["show", "none.h5"]) == 0
    assert "the server made no step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--step-size", "5"], "--step-size 5; a key of the experiment is set by --set method.step_size=5"),
        (["--method.step_size=5"], "=5; a key of the experiment is set by --set method.step_size=5"),
        (["--horizon", "9"], "9; a key of the experiment is set by --set stop.horizon_s=9"),
        (["--seed"], "--seed; a key of the experiment is set by --set seed=VALUE or --set data.seed=VALUE"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_an_unknown_option_that_is_a_key(
    words: list[str], hint: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", str(experiment), *words])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"{hint}\n")


def test_an_unknown_option_where_no_key_can_be_set(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", str(run), "--step-size", "5"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --step-size 5\n")


def test_a_frame_without_pandas(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with open_run(run) as recorded, pytest.raises(UserError, match=r"^a frame needs pandas \(.*\); install it with"):
        _ = recorded.metrics


def test_force_overwrites(experiment: Path, run: Path) -> None:
    assert main(["simulate", str(experiment), "-o", str(run), "--set", "seed=8", "--force"]) == 0
    with open_run(run) as recorded:
        assert recorded.experiment.seed == 8


def test_divergence(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = experiment.with_name("far.h5")
    overrides = ["--set", "method.step_size=1e6", "--set", "stop.iterations=1000"]
    assert main(["simulate", str(experiment), "-o", str(output), *overrides]) == 3
    assert "diverged (|x_s| = " in capsys.readouterr().out
    with open_run(output) as recorded:
        assert recorded.status.state == State.DIVERGED
        assert recorded.status.updates > 0


@pytest.mark.parametrize("limit_bytes", [3_000, 9_000, 200_000])
def test_a_disc_that_fills_up(experiment: Path, limit_bytes: int) -> None:
    limits = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    )
    more = ["--set", "problem.dimension=100", "--set", "stop.iterations=4000"]
    done = in_process("simulate", str(experiment), "-o", "full.h5", *more, before=limits)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "areabench: full.h5: cannot be written any more: File too large; make room or choose another --output\n"
    )


def test_interruption(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.transports.session.Simulator.run", interrupt)
    assert main(["simulate", str(experiment), "-o", "run.h5"]) == 130
    assert complaint(capsys) == "areabench: interrupted"
    with open_run("run.h5") as recorded:
        assert (recorded.status.state, recorded.status.reason) == (State.FAILED, "KeyboardInterrupt: ")


# ---------------------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize(("choice", "is_shown"), [("auto", False), ("never", False), ("always", True)])
def test_progress(choice: str, is_shown: bool, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(experiment), "--progress", choice]) == 0
    shown = capsys.readouterr().err
    assert (" updates " in shown) == bool(shown) == is_shown


# ---------------------------------------------------------------------------------------------------- replay


def test_replay_finds_a_changed_event(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(run) as file:
        row = file["events"][7]
        row["digest"] += 1
        file["events"][7] = row
    assert main(["replay", str(run)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{run}: event 7 differs: " in captured.err
    assert captured.err.count("\n") == 1


def test_replay_finds_a_changed_snapshot(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(run) as file:
        file["snapshots/model"][-1, 0] += 1e-12
    assert main(["replay", str(run)]) == 1
    assert "1 of 3 entries differ" in capsys.readouterr().err


def test_replay_finds_a_changed_metric(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(run) as file:
        rows = file["metrics"][()]
        rows["train_loss"][[2, 5]] *= [1 + 1e-9, 2.0]
        file["metrics"][...] = rows
    assert main(["replay", str(run)]) == 1
    said = capsys.readouterr()
    assert (
        "metrics: 9 of 10 rows equal (8 to the bit, the others to rounding: 1e-05, accuracy 0.05 points)\n" in said.out
    )
    assert said.err.startswith(f"{run}: metrics differ: row 5 (")
    assert said.err.count("\n") == 1
    assert main(["replay", str(run), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["equal"], record["difference"]) == (False, None)
    assert {name: record["metrics"][name] for name in ("rows", "equal", "to_the_bit")} == {
        "rows": 10, "equal": 9, "to_the_bit": 8
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- show, summary


def test_show_counts_steps_that_were_not_made_and_cancelled_orders(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_run(run) as recorded:
        events = recorded.events_array.copy()
    events["kind"][:3] = [Kind.NO_STEP, Kind.CANCELLED, Kind.CANCELLED]
    monkeypatch.setattr(Run, "events_array", events)
    assert main(["show", str(run)]) == 0
    assert "4 server steps, 0 discarded, 1 no step, 2 cancelled; ended" in capsys.readouterr().out


def test_show_as_toml_can_be_run_again(run: Path, experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run), "--toml"]) == 0
    assert parse_experiment(capsys.readouterr().out) == load_experiment(experiment)


def test_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(run), str(run), "--target", "75"]) == 0
    heading, rule, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["file", "method", "alpha"]
    assert "time to 75 %" in heading
    assert set(rule) == {"-"}
    assert [row.split() for row in rows] == [rows[0].split()] * 2
    assert rows[0].split()[:4] == ["tiny.h5", "area", "0.05", "-"]
    assert rows[0].split()[5:9] == ["not", "reached", "16", "4"]


def test_summary_of_a_folder_names_files_and_what_differs(
    run: Path, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = ["--set", "method.name=fedbuff", "--set", "seed=7", "--set", "record.events=false"]
    assert main(["simulate", str(experiment), "-o", "more", *change]) == 0
    capsys.readouterr()
    assert main(["summary", "."]) == 0
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert (first.split()[:2], second.split()[:2]) == (["more.h5", "fedbuff"], ["tiny.h5", "area"])
    assert (first.split("done")[1].strip(), second.split("done")[1].strip()) == ("seed = 7", "seed = 3")


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot(suffix: str, start: bytes, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = run.parent / "plots" / f"runs.{suffix}"
    assert main(["summary", str(run), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(start)
    assert f"plot: {picture}" in capsys.readouterr().out


def test_plot_of_a_run_that_diverged(experiment: Path) -> None:
    pytest.importorskip("matplotlib")
    overrides = ["--set", "method.step_size=1e300", "--set", "stop.iterations=1000"]
    assert main(["simulate", str(experiment), "-o", "far.h5", *overrides]) == 3
    assert main(["summary", "far.h5", "--plot", "far.png"]) == 0
    assert main(["show", "far.h5"]) == 0


@pytest.mark.parametrize("name", ["runs.xyz", "tiny.toml/runs.png"])
def test_a_plot_that_cannot_be_written(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["summary", str(run), "--plot", name]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"areabench: {name}: the plot cannot be written: ")
    assert shown.count("\n") == 1


def test_a_plot_without_matplotlib(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["summary", str(run), "--plot", "runs.png"]) == 2
    assert "needs matplotlib" in capsys.readouterr().err


def test_the_reader_of_the_output_may_leave(run: Path) -> None:
    script = f'"{sys.executable}" -m areabench show "{run}" | head -n 1'
    done = finished(["bash", "-c", f"set -o pipefail; {script}"], {})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{run}\n", "")


# ---------------------------------------------------------------------------------------------------- broken run files


def to_folder(run: Path) -> None:
    run.unlink()
    run.mkdir()


def to_foreign(run: Path) -> None:
    run.unlink()
    with h5py.File(run, "w") as file:
        file["numbers"] = [1, 2, 3]


def with_edit(edit: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    """Damage inside of a file."""

    def damage(run: Path) -> None:
        with edited(run) as file:
            edit(file)

    return damage


def unknown_state(file: h5py.File) -> None:
    status = file["status"][()]
    status["state"] = b"fine"
    file["status"][...] = status


def other_columns(file: h5py.File) -> None:
    del file["events"]
    file["events"] = [1.0, 2.0]


UNREADABLE = "is not a readable HDF5 file ("
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "no such file; give the path of a run file (.h5)"),
    "text": (lambda run: run.write_text("no HDF5 at all"), f"{UNREADABLE}Unable to synchronously open file (file sig"),
    "empty": (lambda run: run.write_bytes(b""), UNREADABLE),
    "foreign": (to_foreign, "is not a run file of areabench"),
    "truncated": (lambda run: run.write_bytes(run.read_bytes()[: run.stat().st_size // 2]), "(truncated file"),
    "version": (
        with_edit(lambda file: file.attrs.update(schema_version=99)),
        "has schema version 99, this areabench reads",
    ),
    "no version": (with_edit(lambda file: file.attrs.pop("schema_version")), "is damaged ("),
    "experiment": (
        with_edit(lambda file: file.attrs.update(experiment="seed = -1")),
        "experiment: clients: is missing",
    ),
    "status": (with_edit(unknown_state), "is damaged ('fine'); save what can be saved with `areabench recover`"),
    "provenance": (with_edit(lambda file: file.pop("provenance")), "is damaged ("),
    "columns": (with_edit(other_columns), "/events has columns None, expected ('time_s', 'kind',"),
    "no events": (with_edit(lambda file: file.pop("events")), "is damaged (/events cannot be read: "),
}


def test_a_folder_in_place_of_a_run_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to_folder(run)
    assert main(["show", str(run)]) == 2
    assert f"areabench: {run}: no such file; give the path of a run file (.h5)" in complaint(capsys)
    assert main(["summary", str(run)]) == 2
    assert f"areabench: {run}: holds no run file (.h5); give run files, or a folder of them" in complaint(capsys)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_run_files(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, words = BROKEN[name]
    damage(run)
    for command in ("summary", "show"):
        assert main([command, str(run)]) == 2
        message = complaint(capsys)
        assert message.startswith(f"areabench: {run}: ")
        assert words in message


def test_a_run_that_another_program_has_locked(run: Path) -> None:
    with h5py.File(run, "r"):
        done = in_process("summary", str(run), environment={"HDF5_USE_FILE_LOCKING": "TRUE"})
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------------------------------------- processes


def test_run_without_mpi_says_what_to_install(experiment: Path) -> None:
    done = in_process("run", str(experiment), before="sys.modules['mpi4py'] = None")
    assert done.returncode == 2
    assert done.stderr.startswith("areabench: MPI cannot be used: ")
    assert done.stderr.count("\n") == 1


def test_run_without_an_mpi_library_says_what_to_install(experiment: Path) -> None:
    before = """
import importlib.machinery, types

class Wheel(types.ModuleType):
    def __getattr__(self, name):
        raise RuntimeError("cannot load MPI library\\nlibmpi.so: cannot open shared object file")

sys.modules["mpi4py"] = Wheel("mpi4py")
sys.modules["mpi4py"].__spec__ = importlib.machinery.ModuleSpec("mpi4py", None)
"""
    done = in_process("run", str(experiment), before=before)
    assert done.returncode == 2
    assert "MPI cannot be used: RuntimeError: cannot load MPI library ... libmpi.so: cannot open" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_trace_is_reported_before_anything_is_written(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("check", "simulate", "launch"):
        assert main([command, str(experiment), "--set", "delays={name='trace',file='absent.csv'}"]) == 2
        assert "absent.csv: No such file or directory" in complaint(capsys)
    assert list(experiment.parent.iterdir()) == [experiment]


def test_run_on_one_rank_says_what_to_type(experiment: Path) -> None:
    pytest.importorskip("mpi4py")
    done = finished([sys.executable, "-m", "areabench", "run", str(experiment)], {})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "areabench: 1 rank, which is the server's, leaves none for the clients; start 2 to 3: "
    )
    assert "type `mpirun -n 3 areabench run ...`, or `areabench launch ...`" in done.stderr
    assert list(experiment.parent.iterdir()) == [experiment]


def test_a_run_that_is_killed_can_be_read(experiment: Path) -> None:
    kill = (
        "import os\nfrom areabench.progress import ProgressLine\n"
        "ProgressLine.__call__ = lambda self, time_s, updates: os._exit(9) if updates == 600 else None"
    )
    assert (
        in_process("simulate", "tiny.toml", "-o", "run.h5", "--set", "stop.iterations=5000", before=kill).returncode
        == 9
    )
    with open_run("run.h5") as recorded:
        assert recorded.status.state == State.RUNNING
        assert len(recorded.events_array) >= 512  # 600 updates and 149 or 150 steps, in blocks of 256 at the most
        assert recorded.summary().updates > 400
    assert main(["show", "run.h5"]) == 0


def test_simulation_imports_nothing_it_does_not_need(experiment: Path) -> None:
    experiment.write_text(LOGISTIC, encoding="utf-8")
    watch = (
        "import atexit\nheavy = ('torch', 'matplotlib', 'pandas', 'mpi4py', 'sklearn', 'rich')\n"
        "atexit.register(lambda: print('loaded', [name for name in heavy if name in sys.modules]))"
    )
    done = in_process("simulate", str(experiment), before=watch)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "loaded []"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are always text")
def test_a_file_name_that_is_no_text(experiment: Path) -> None:
    name = os.fsdecode(b"\xff.h5")
    command = [sys.executable, "-m", "areabench", "simulate", str(experiment), "-o", name]
    done = finished(command, {"PYTHONIOENCODING": "utf-8"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\udcff.h5: done")
    with open_run(name) as recorded:
        assert recorded.provenance.command.endswith("-o '\\udcff.h5'")


def test_one_thread_by_default(experiment: Path) -> None:
    chosen = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}
    assert in_process("simulate", str(experiment), "-o", "run.h5", environment=chosen).returncode == 0
    with open_run("run.h5") as recorded:
        assert recorded.provenance.threads.startswith(
            "openblas 2 (OPENBLAS_NUM_THREADS), openmp 3 (OMP_NUM_THREADS), mkl 1"
        )


# ---------------------------------------------------------------------------------------------------- methods


@pytest.mark.parametrize(
    ("words", "code", "needle"),
    [
        ([], 0, "chosen by: clients · exact · server: 2 d · Iakovidou and Kim"),
        (["fedasync"], 0, "mixing  a: weight of a fresh model (> 0 and <= 1, default 0.6)"),
        (["area", "--json"], 0, '"limit": "exact"'),
        (["fedasink"], 2, "unknown method 'fedasink'; did you mean 'fedasync'?"),
    ],
)
def test_methods(words: list[str], code: int, needle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", *words]) == code
    printed = capsys.readouterr()
    assert needle in printed.out + printed.err
    if not words:
        assert all(f"\n{name} " in f"\n{printed.out}" for name in METHODS)
