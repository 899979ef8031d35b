"""The command line: exit codes, output, and errors in one line. MPI is only touched in subprocesses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from tests.support.answers import answer, complaint, finished, in_process, record
from tests.support.edited import edited
from tests.support.texts import LOGISTIC, QUADRATIC

from areabench import __version__
from areabench.cli import CommandContext
from areabench.cli.parser import TYPED
from areabench.engine.events import Kind, State
from areabench.errors import UserError
from areabench.experiment.parse import load_experiment, parse_experiment
from areabench.methods import METHODS
from areabench.runfile.read import Run, open_run

EXPERIMENT = "seed = 3" + QUADRATIC


@pytest.fixture(autouse=True)
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small experiment file, tiny.toml, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("tiny.toml")
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


@pytest.fixture
def run(experiment: Path) -> Path:
    """The run file of the small experiment."""
    answer("simulate tiny.toml -o tiny.h5")
    return Path("tiny.h5")


# ---------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize("command", TYPED)
def test_help_has_an_example_and_exit_codes(command: str) -> None:
    shown = " ".join(answer(command, "--help").out.split())
    assert f"areabench {command} " in shown.partition("example: ")[2]
    assert "exit codes: 0 " in shown


def test_help_lists_the_commands() -> None:
    shown = answer("--help").out
    without_a_command = answer("", code=2)
    assert without_a_command.out == ""
    assert without_a_command.err.startswith("usage: areabench COMMAND ...\n")
    for command in TYPED:
        assert f"    {command}" in shown
        assert command in without_a_command.err.split()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("simulat demo.toml", "unknown command 'simulat'; did you mean 'simulate'? allowed: check, "),
        ("x", "unknown command 'x'; allowed: check, "),
        ("methods fedasink", "unknown method 'fedasink'; did you mean 'fedasync'?"),
        ("sweep tiny.toml --trials 0", "tiny.toml: sweep.trials: 0 is out of range; allowed is a whole number >= 1"),
        ("simulate tiny.toml -o folder --force", "folder: cannot be written: Is a directory"),
        ("simulate tiny.toml -o folder/ --force", "folder: cannot be written: Is a directory"),
        ("simulate tiny.toml -o tiny.h5", "exists already; choose another --output or overwrite it with --force"),
        ("simulate tiny.toml -o tiny.h5 --set seed=-1 --force", "seed: -1 is out of range"),
        ("simulate tiny.toml --set problem.dimension=1000000000000", "not enough memory: Unable to allocate "),
        ("check tiny.toml --set \"delays={name='trace',file='no.csv'}\"", "no.csv: No such file or directory"),
        ("launch tiny.toml --set \"delays={name='trace',file='no.csv'}\"", "no.csv: No such file or directory"),
        ("summary tiny.h5 --plot runs.xyz", "runs.xyz: the plot cannot be written: "),
        ("summary tiny.h5 --plot tiny.toml/runs.png", "tiny.toml/runs.png: the plot cannot be written: "),
        ("summary folder", "folder: holds no run file (.h5); give run files, or a folder of them"),
        ("show folder", "folder: no such file; give the path of a run file (.h5)"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_changes_nothing(command: str, words: str, run: Path) -> None:
    Path("folder").mkdir()
    before = run.read_bytes()
    if "--plot" in command:
        pytest.importorskip("matplotlib")
        assert words in answer(command, code=2).err  # the table comes first
    else:
        assert words in complaint(command)
    assert run.read_bytes() == before
    assert {path.name for path in Path().rglob("*")} - {"runs"} == {"folder", "tiny.h5", "tiny.toml"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("--version", f"areabench {__version__}\n"),
        ("show tiny.h5", "16 updates, 4 server steps, 0 discarded"),
        ("show tiny.h5", "transport      simulator"),
        (
            "replay tiny.h5",
            "20 events (by checksum) and 10 snapshots (bit for bit) replayed, all equal\nmetrics: 10 of",
        ),
        ("simulate tiny.toml -o new/run.h5", "run.h5: done (20 iterations): 16 updates, 4 server steps, 0 discarded\n"),
        ("simulate tiny.toml", "runs/tiny-area-3.h5: done"),
        ("simulate tiny.toml -o runs/foo", "runs/foo.h5: done "),
        ("simulate tiny.toml -o a0.5", "a0.5.h5: done "),
        ("simulate tiny.toml -o x.h5", "x.h5: done "),
        ("simulate tiny.toml --set aggregation.updates=100", "\nthe server made no step, so the model is the one at"),
        ("methods", "chosen by: clients · exact · server: 2 d · Iakovidou and Kim"),
        ("methods fedasync", "mixing  a: weight of a fresh model (> 0 and <= 1, default 0.6)"),
        ("methods area --json", '"limit": "exact"'),
        ("sweep tiny.toml --dry-run", "runs/tiny: 1 run"),
        ("sweep tiny.toml --dry-run --transport mpi", "runs/tiny-mpi: "),
        ("sweep tiny.toml --dry-run -o here", "here: "),
        ("sweep tiny.toml other.toml --dry-run -o here", "\nhere/other: "),
    ],
)
def test_answers(command: str, words: str, run: Path) -> None:
    Path("other.toml").write_text(EXPERIMENT, encoding="utf-8")
    said = answer(command)
    assert words in said.out
    assert said.err == ""  # quiet: no terminal
    if command.startswith("simulate"):
        assert Path(said.out.partition(": ")[0]).is_file()


def test_all_methods_are_listed() -> None:
    listed = answer("methods").out
    assert all(f"\n{name} " in f"\n{listed}" for name in METHODS)


def test_as_a_module(experiment: Path) -> None:
    done = finished([sys.executable, "-m", "areabench", "check", "tiny.toml"])
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_experiment(done.stdout) == load_experiment(experiment)


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_a_sweep_needs_a_process(jobs: str) -> None:
    assert f"'{jobs}' is not a whole number >= 1" in answer("sweep tiny.toml", f"--jobs={jobs}", code=2).err


def test_a_sweep_uses_the_cores_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6}, raising=False)
    assert CommandContext({}, "areabench").cores == 3


# ---------------------------------------------------------------------------------------------------- check, simulate


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("method.name=fedbuff", "step_size = 0.05  # it sets the server's too: eta = alpha, "),
        ("method.name=afa-cs", "step_size = 0.05  # it sets the server's too: eta = alpha·M, "),
        ("seed=0", 'weighting = "share"  # client i descends (s_i/S)·f_i; '),
        ("problem.weighting=exact", 'weighting = "exact"  # client i descends n·(s_i/S)·f_i; '),
    ],
)
def test_check_and_show_say_what_defaults_do(change: str, line: str, experiment: Path) -> None:
    experiment.write_text(LOGISTIC, encoding="utf-8")
    printed = answer("check tiny.toml --set", change).out
    assert f"\n{line}" in printed
    assert parse_experiment(printed) == load_experiment(experiment, [change])
    answer("simulate tiny.toml -o said.h5 --set", change)
    assert f"\n  {line}" in answer("show said.h5").out


def test_a_server_step_size_that_is_given_needs_no_remark() -> None:
    assert "#" not in answer("check tiny.toml --set method.name=fedbuff --set method.server_step_size=1").out


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("simulate tiny.toml --step-size 5", "5; a key of the experiment is set by --set method.step_size=5"),
        ("simulate tiny.toml --method.step_size=5", "=5; a key of the experiment is set by --set method.step_size=5"),
        ("simulate tiny.toml --horizon 9", "9; a key of the experiment is set by --set stop.horizon_s=9"),
        ("simulate tiny.toml --seed", "by --set seed=VALUE or --set data.seed=VALUE"),
        ("simulate tiny.toml --colour red", "unrecognized arguments: --colour red"),
        ("show tiny.h5 --step-size 5", "unrecognized arguments: --step-size 5"),
    ],
)
def test_an_unknown_option_that_is_a_key(command: str, hint: str) -> None:
    assert answer(command, code=2).err.endswith(f"{hint}\n")


def test_a_frame_without_pandas(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with open_run(run) as recorded, pytest.raises(UserError, match=r"^a frame needs pandas \(.*\); install it with"):
        _ = recorded.metrics


def test_force_overwrites(run: Path) -> None:
    answer("simulate tiny.toml -o tiny.h5 --set seed=8 --force")
    with open_run(run) as recorded:
        assert recorded.experiment.seed == 8


def test_divergence() -> None:
    far = "--set method.step_size=1e300 --set stop.iterations=1000"
    assert "diverged (|x_s| = " in answer(f"simulate tiny.toml -o far.h5 {far}", code=3).out
    with open_run("far.h5") as recorded:
        assert recorded.status.state == State.DIVERGED
        assert recorded.status.updates > 0
    answer("show far.h5")
    pytest.importorskip("matplotlib")
    answer("summary far.h5 --plot far.png")


@pytest.mark.parametrize("limit_bytes", [3_000, 9_000, 200_000])
def test_a_disc_that_fills_up(limit_bytes: int) -> None:
    limits = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    )
    large = "--set problem.dimension=100 --set stop.iterations=4000"
    done = in_process(f"simulate tiny.toml -o full.h5 {large}", before=limits)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "areabench: full.h5: cannot be written any more: File too large; make room or choose another --output\n"
    )


def test_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("areabench.transports.session.Simulator.run", interrupt)
    assert complaint("simulate tiny.toml -o run.h5", code=130) == "areabench: interrupted"
    with open_run("run.h5") as recorded:
        assert (recorded.status.state, recorded.status.reason) == (State.FAILED, "KeyboardInterrupt: ")


@pytest.mark.parametrize(("choice", "is_shown"), [("auto", False), ("never", False), ("always", True)])
def test_progress(choice: str, is_shown: bool) -> None:
    shown = answer("simulate tiny.toml --progress", choice).err
    assert (" updates " in shown) == bool(shown) == is_shown


# ---------------------------------------------------------------------------------------------------- replay


def test_replay_finds_a_changed_event(run: Path) -> None:
    with edited(run) as file:
        row = file["events"][7]
        row["digest"] += 1
        file["events"][7] = row
    said = answer("replay tiny.h5", code=1)
    assert said.out == ""
    assert said.err.startswith("tiny.h5: event 7 differs: ")
    assert said.err.count("\n") == 1


def test_replay_finds_a_changed_snapshot(run: Path) -> None:
    with edited(run) as file:
        file["snapshots/model"][-1, 0] += 1e-12
    assert "1 of 3 entries differ" in answer("replay tiny.h5", code=1).err


def test_replay_finds_a_changed_metric(run: Path) -> None:
    with edited(run) as file:
        rows = file["metrics"][()]
        rows["train_loss"][[2, 5]] *= [1 + 1e-9, 2.0]
        file["metrics"][...] = rows
    said = answer("replay tiny.h5", code=1)
    assert "metrics: 9 of 10 rows equal (8 to the bit, the others to rounding: 1e-05, accuracy 0.05" in said.out
    assert said.err.startswith("tiny.h5: metrics differ: row 5 (")
    assert said.err.count("\n") == 1
    found = record("replay tiny.h5", code=1)
    assert (found["equal"], found["difference"]) == (False, None)
    assert [found["metrics"][name] for name in ("rows", "equal", "to_the_bit")] == [10, 9, 8]


# ---------------------------------------------------------------------------------------------------- show, summary


def test_show_counts_steps_that_were_not_made_and_cancelled_orders(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(run) as recorded:
        events = recorded.events_array.copy()
    events["kind"][:3] = [Kind.NO_STEP, Kind.CANCELLED, Kind.CANCELLED]
    monkeypatch.setattr(Run, "events_array", events)
    assert "4 server steps, 0 discarded, 1 no step, 2 cancelled; ended" in answer("show tiny.h5").out


def test_show_as_toml_can_be_run_again(run: Path, experiment: Path) -> None:
    assert parse_experiment(answer("show tiny.h5 --toml").out) == load_experiment(experiment)


def test_summary(run: Path) -> None:
    heading, rule, *rows = answer("summary tiny.h5 tiny.h5 --target 75").out.splitlines()
    assert heading.split()[:3] == ["file", "method", "alpha"]
    assert "time to 75 %" in heading
    assert set(rule) == {"-"}
    assert [row.split() for row in rows] == [rows[0].split()] * 2
    assert rows[0].split()[:4] == ["tiny.h5", "area", "0.05", "-"]
    assert rows[0].split()[5:9] == ["not", "reached", "16", "4"]


def test_summary_of_a_folder_names_files_and_what_differs(run: Path) -> None:
    answer("simulate tiny.toml -o more --set method.name=fedbuff --set seed=7 --set record.events=false")
    _, _, first, second = answer("summary .").out.splitlines()
    assert (first.split()[:2], second.split()[:2]) == (["more.h5", "fedbuff"], ["tiny.h5", "area"])
    assert (first.split("done")[1].strip(), second.split("done")[1].strip()) == ("seed = 7", "seed = 3")


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot(suffix: str, start: bytes, run: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = Path("plots", f"runs.{suffix}")
    assert f"plot: {picture}" in answer("summary tiny.h5 --plot", picture).out
    assert picture.read_bytes().startswith(start)


def test_a_plot_without_matplotlib(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "needs matplotlib" in answer("summary tiny.h5 --plot runs.png", code=2).err


def test_the_reader_of_the_output_may_leave(run: Path) -> None:
    script = f'set -o pipefail; "{sys.executable}" -m areabench show {run} | head -n 1'
    done = finished(["bash", "-c", script])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{run}\n", "")


# ---------------------------------------------------------------------------------------------------- broken run files


def unknown_state(file: h5py.File) -> None:
    status = file["status"][()]
    status["state"] = b"fine"
    file["status"][...] = status


def other_columns(file: h5py.File) -> None:
    del file["events"]
    file["events"] = [1.0, 2.0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.attrs.clear(), "is not a run file of areabench"),
        (lambda file: file.attrs.update(schema_version=99), "has schema version 99, this areabench reads"),
        (lambda file: file.attrs.pop("schema_version"), "is damaged ("),
        (lambda file: file.attrs.update(experiment="seed = -1"), "experiment: clients: is missing"),
        (unknown_state, "is damaged (fine); save what can be saved with `areabench recover`"),
        (lambda file: file.pop("provenance"), "is damaged ("),
        (other_columns, "has columns None, expected ('time_s', 'kind',"),
        (lambda file: file.pop("events"), "is damaged (/events"),
    ],
)
def test_damage_inside_of_a_run_file(damage: Callable[[h5py.File], object], words: str, run: Path) -> None:
    with edited(run) as file:
        damage(file)
    for command in ("summary", "show"):
        message = complaint(command, run)
        assert message.startswith(f"areabench: {run}: ")
        assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file; give the path of a run file (.h5)"),
        (lambda whole: b"no HDF5", "is not a readable HDF5 file (Unable to synchronously open file (file sig"),
        (lambda whole: b"", "is not a readable HDF5 file ("),
        (lambda whole: whole[: len(whole) // 2], "(truncated file"),
    ],
)
def test_what_is_no_run_file(content: Callable[[bytes], bytes] | None, words: str, run: Path) -> None:
    whole = run.read_bytes()
    run.unlink()
    if content is not None:
        run.write_bytes(content(whole))
    for command in ("summary", "show"):
        assert words in complaint(command, run)


def test_a_run_that_another_program_has_locked(run: Path) -> None:
    with h5py.File(run, "r"):
        done = in_process("summary tiny.h5", environment={"HDF5_USE_FILE_LOCKING": "TRUE"})
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------------------------------------- processes

BROKEN_WHEEL = """
import importlib.machinery, types

class Wheel(types.ModuleType):
    def __getattr__(self, name):
        raise RuntimeError("cannot load MPI library\\nlibmpi.so: cannot open shared object file")

sys.modules["mpi4py"] = Wheel("mpi4py")
sys.modules["mpi4py"].__spec__ = importlib.machinery.ModuleSpec("mpi4py", None)
"""


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("sys.modules['mpi4py'] = None", "areabench: MPI cannot be used: "),
        (BROKEN_WHEEL, "MPI cannot be used: RuntimeError: cannot load MPI library ... libmpi.so: cannot open"),
        ("", "areabench: 1 rank, which is the server's, leaves none for the clients; start 2 to 3: "),
        ("", "type `mpirun -n 3 areabench run ...`, or `areabench launch ...`"),
    ],
)
def test_run_where_there_are_no_ranks(before: str, words: str, experiment: Path) -> None:
    if not before:
        pytest.importorskip("mpi4py")
    done = in_process("run tiny.toml", before=before)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(Path().iterdir()) == [experiment]


def test_a_run_that_is_killed_can_be_read() -> None:
    kill = (
        "import os\nfrom areabench.progress import ProgressLine\n"
        "ProgressLine.__call__ = lambda self, time_s, updates: os._exit(9) if updates == 600 else None"
    )
    assert in_process("simulate tiny.toml -o run.h5 --set stop.iterations=5000", before=kill).returncode == 9
    with open_run("run.h5") as recorded:
        assert recorded.status.state == State.RUNNING
        assert len(recorded.events_array) >= 512  # 600 updates and 149 or 150 steps, in blocks of 256 at the most
        assert recorded.summary().updates > 400
    answer("show run.h5")


def test_simulation_imports_nothing_it_does_not_need(experiment: Path) -> None:
    experiment.write_text(LOGISTIC, encoding="utf-8")
    watch = (
        "import atexit\nheavy = ('torch', 'matplotlib', 'pandas', 'mpi4py', 'sklearn', 'rich')\n"
        "atexit.register(lambda: print('loaded', [name for name in heavy if name in sys.modules]))"
    )
    done = in_process("simulate tiny.toml", before=watch)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "loaded []"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are always text")
def test_a_file_name_that_is_no_text() -> None:
    name = os.fsdecode(b"\xff.h5")
    command = [sys.executable, "-m", "areabench", "simulate", "tiny.toml", "-o", name]
    done = finished(command, {"PYTHONIOENCODING": "utf-8"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\udcff.h5: done")
    with open_run(name) as recorded:
        assert recorded.provenance.command.endswith("-o '\\udcff.h5'")


def test_the_user_s_threads_are_recorded() -> None:
    chosen = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}
    assert in_process("simulate tiny.toml -o run.h5", environment=chosen).returncode == 0
    with open_run("run.h5") as recorded:
        assert recorded.provenance.threads.startswith(
            "openblas 2 (OPENBLAS_NUM_THREADS), openmp 3 (OMP_NUM_THREADS), mkl 1"
        )
