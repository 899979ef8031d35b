"""What a run file from a stranger cannot do; nothing is unpickled, evaluated or listened to; permissions."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.support.answers import answer, complaint
from tests.support.edited import edited
from tests.support.texts import BLOBS, QUADRATIC

import areabench
from areabench.cli.main import main
from areabench.errors import UserError
from areabench.experiment.parse import parse_experiment
from areabench.files import with_checksum
from areabench.plugins.trust import check_trusted
from areabench.runfile.recover import salvage
from areabench.settings.parse import to_toml

MARKER = "marker.txt"
STRANGER = f"""
from pathlib import Path
Path({MARKER!r}).write_text("stranger_net")
def make(features, classes):
    from torch import nn
    return nn.Linear(features, classes)
def loss(outputs, labels):
    from torch.nn.functional import cross_entropy
    return cross_entropy(outputs, labels)
"""
SOURCES = sorted(Path(areabench.__file__).parent.rglob("*.py"))


def torch_experiment(module: str, loss: str = "torch.nn.functional:cross_entropy") -> str:
    """An experiment that trains a module."""
    problem = f'name = "torch"\nmodule = "{module}"\nloss = "{loss}"\n'
    return QUADRATIC.replace('name = "quadratic"\ndimension = 3\n', problem) + BLOBS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module in it that leaves a marker when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stranger_net.py").write_text(STRANGER, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("stranger_net", None)


@pytest.fixture
def own_run(folder: Path) -> Path:
    """A run file."""
    Path("try.toml").write_text(QUADRATIC, encoding="utf-8")
    answer("simulate try.toml -o run.h5")
    return folder / "run.h5"


@pytest.fixture
def run(own_run: Path) -> Path:
    """A run file in which a stranger has named a module and a loss."""
    with edited(own_run) as file:
        file.attrs["experiment"] = torch_experiment("stranger_net:make", "stranger_net:loss")
    return own_run


# ---------------------------------------------------------------------------------------------------- run files


@pytest.mark.parametrize(
    "command",
    [
        "show run.h5", "show run.h5 --toml", "summary run.h5", "summary run.h5 --plot x.png", "diagnose run.h5",
        "diagnose run.h5 -o y.png", "compare run.h5 run.h5", "compare run.h5 run.h5 --plot z.png",
        "check try.toml --ended-in run.h5", "theory try.toml --from run.h5",
    ],
)  # fmt: skip
def test_reading_imports_nothing_that_a_run_file_names(command: str, run: Path) -> None:
    if ".png" in command:
        pytest.importorskip("matplotlib")
    assert main(command.split()) in (0, 1, 2)
    assert "stranger_net" not in sys.modules
    assert not Path(MARKER).exists()


def test_tables_and_figures_import_nothing_that_a_run_file_names(run: Path) -> None:
    pytest.importorskip("matplotlib")
    text = torch_experiment("stranger_net:make", "stranger_net:loss")
    folder = '[folder]\nname = "it"\ntransport = "simulator"\n'
    Path("sweep.toml").write_text(with_checksum(f"{text}\n[sweep]\ntrials = 1\n{folder}"))
    member = areabench.open_sweep(".").plan.members[0]
    assert member.experiment is not None
    with edited(run) as file:
        file.attrs["experiment"] = to_toml(member.experiment)
    run.rename(member.file)
    for command in ("table .", "table . -o tables", "figures ."):
        answer(command)
    assert len(areabench.open_sweep(".").results) == 1
    assert not Path(MARKER).exists()


@pytest.mark.parametrize("trust", ["", "--trust-module stranger_net:loss", "--trust-module stranger_net"])
@pytest.mark.parametrize("command", ["replay", "evaluate"])
def test_replay_calls_no_code_that_the_user_has_not_named(command: str, trust: str, run: Path) -> None:
    said = complaint(f"{command} run.h5 {trust}")
    assert said.startswith("areabench: run.h5: would import and call 'stranger_net:make'")
    assert "which this run file names; if you trust that code, add --trust-module stranger_net:make" in said
    assert ("--trust-module stranger_net:loss" in said) == ("stranger_net:loss" not in trust)
    assert not Path(MARKER).exists()


def test_replay_calls_what_the_user_names(folder: Path) -> None:
    pytest.importorskip("torch")
    Path("try.toml").write_text(torch_experiment("stranger_net:make", "stranger_net:loss"), encoding="utf-8")
    answer("simulate try.toml -o run.h5")  # the user's own file: what it names is run
    assert Path(MARKER).exists()
    answer("replay run.h5", code=2)
    said = answer("replay run.h5 --trust-module stranger_net:make --trust-module stranger_net:loss").out
    assert said.endswith(" rows equal (to the bit)\n")


def test_replay_needs_no_option_for_the_examples(folder: Path) -> None:
    pytest.importorskip("torch")
    Path("try.toml").write_text(torch_experiment("areabench.problems.examples:mlp"), encoding="utf-8")
    answer("simulate try.toml -o run.h5")
    assert answer("replay run.h5").out.endswith(" rows equal (to the bit)\n")


# ------------------------------------------------------------------------------------------ the current folder

DECOYS = ("torch", "numpy", "h5py", "scipy", "psutil", "mpi4py", "multiprocessing", "pickle")


@pytest.fixture
def decoys(folder: Path) -> Path:
    """The current folder, with packages that have the names of installed ones and leave a marker when imported."""
    for name in DECOYS:
        (folder / name).mkdir()
        leave_marker = f"from pathlib import Path\nPath({MARKER!r}).open('a').write({name + ' '!r})\n"
        (folder / name / "__init__.py").write_text(leave_marker, encoding="utf-8")
    return folder


def areabench_in_a_process(*words: str, python: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A command in a process whose search path is that of a shell's command line, or of these arguments to Python."""
    script = "import sys; del sys.path[0]; from areabench.cli.main import entry; entry()"  # as the console script
    environment = {**os.environ, "PYTHONPATH": str(SOURCES[0].parents[1])}
    command = [sys.executable, *(python or ["-c", script]), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def imported() -> set[str]:
    """The packages of the current folder that were imported."""
    return set(Path(MARKER).read_text().split()) if Path(MARKER).exists() else set()


@pytest.fixture
def torch_run(folder: Path) -> Callable[[str], None]:
    """A function that makes run.h5 with a module."""
    pytest.importorskip("torch")

    def make(module: str) -> None:
        Path("try.toml").write_text(torch_experiment(module), encoding="utf-8")
        answer("simulate try.toml -o run.h5")
        Path(MARKER).unlink(missing_ok=True)

    return make


@pytest.mark.parametrize("python", [(), ("-m", "areabench")], ids=["areabench", "python -m areabench"])
@pytest.mark.parametrize(("command", "shown"), [("replay", "all equal"), ("watch --once", "accuracy")])
def test_built_in_names_are_not_looked_for_in_the_current_folder(
    command: str, shown: str, python: Sequence[str], torch_run: Callable[[str], None], decoys: Path
) -> None:
    torch_run("areabench.problems.examples:mlp")
    ended = areabench_in_a_process(*command.split(), "run.h5", python=python)
    assert imported() == set()
    assert (ended.returncode, shown in ended.stdout) == (0, True), ended.stderr


def test_code_that_the_user_trusts_does_not_bring_its_neighbours(
    torch_run: Callable[[str], None], decoys: Path
) -> None:
    """The user has named a file; the torch beside it is somebody else's."""
    torch_run("stranger_net:make")
    ended = areabench_in_a_process("replay", "run.h5", "--trust-module", "stranger_net.py")
    assert imported() == {"stranger_net"}
    assert (ended.returncode, "all equal" in ended.stdout) == (0, True), ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        "recover damaged.h5 -o saved.h5", "sweep sweep.toml -o s --jobs 2", "doctor",
        "launch try.toml --ranks 2 -o launched.h5",
    ],
)  # fmt: skip
def test_processes_that_a_command_starts_import_nothing_from_the_current_folder(
    words: str, own_run: Path, decoys: Path
) -> None:
    if words.startswith("launch"):
        pytest.importorskip("mpi4py")
    shutil.copy(own_run, "damaged.h5")
    with h5py.File("damaged.h5", "r+", locking=False) as file:
        file["events"][0] = file["events"][1]
    Path("sweep.toml").write_text(f"{QUADRATIC}\n[sweep]\ntrials = 2\n", encoding="utf-8")
    ended = areabench_in_a_process(*words.split())
    assert imported() == set()
    if not words.startswith("doctor"):  # which may find what is wrong with this machine
        assert ended.returncode == 0, ended.stderr


# ------------------------------------------------------------------------------------------------ harmless names


@pytest.mark.parametrize(
    "module",
    [
        "areabench.problems.examples.more:make", "areabench.problems.base.examplesx:make", "areabench.cli.main:main",
        "areabench.plugins.callables:load_callable", "os:system", "torch:load", "torch.nn.functional.evil:x",
    ],
)  # fmt: skip
def test_only_two_modules_are_known_to_be_harmless(module: str) -> None:
    experiment = parse_experiment(torch_experiment(module))
    with pytest.raises(UserError, match="would import and call"):
        check_trusted(experiment, Path("run.h5"))
    check_trusted(experiment, Path("run.h5"), [module])


def test_a_remedy_can_be_pasted() -> None:
    experiment = parse_experiment(torch_experiment("a; rm -rf b:make"))
    with pytest.raises(UserError, match="--trust-module 'a; rm -rf b:make'$"):
        check_trusted(experiment, Path("run.h5"))


# ---------------------------------------------------------------------------------------------------- odd contents


def empty(file: h5py.File) -> None:
    file.attrs["experiment"] = h5py.Empty("f8")


def reference(file: h5py.File) -> None:
    file.attrs.create("schema_version", file["events"].ref, dtype=h5py.ref_dtype)


def ragged(file: h5py.File) -> None:
    rows = np.array([np.arange(3), np.arange(2)], dtype=object)
    file["provenance"].attrs.create("seed", rows, dtype=h5py.vlen_dtype(np.int64))


def opaque(file: h5py.File) -> None:
    file["provenance"].attrs["ranks"] = np.void(b"\x80\x04N.")  # a pickle


def link(file: h5py.File) -> None:
    del file["events"]
    file["events"] = h5py.ExternalLink("pipe", "/events")


def objects(file: h5py.File) -> None:
    del file["events"]
    file.create_dataset("events", (3,), dtype=h5py.string_dtype())


def gigantic(file: h5py.File) -> None:
    kind = file["events"].dtype
    del file["events"]
    file.create_dataset("events", (2**45,), dtype=kind, chunks=(1024,))


def stored_elsewhere(file: h5py.File) -> None:
    """The metrics' bytes lie in another file."""
    del file["metrics"]
    file.create_dataset("metrics", (3,), "f8", external=[("pipe", 0, 24)])


def mapped_elsewhere(file: h5py.File) -> None:
    """The metrics are a view of another file."""
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource("pipe", "x", (3,))
    del file["metrics"]
    file.create_virtual_dataset("metrics", layout)


def provenance_elsewhere(file: h5py.File) -> None:
    """The provenance is in another file."""
    del file["provenance"]
    file["provenance"] = h5py.ExternalLink("pipe", "/provenance")


def checksums_elsewhere(file: h5py.File) -> None:
    """The checksums are in another file."""
    del file["checksums"]
    file["checksums"] = h5py.ExternalLink("pipe", "/checksums")


def far_too_wide(file: h5py.File) -> None:
    """A model declares 10^10 parameters and stores none."""
    del file["snapshots/model"]
    file.create_dataset("snapshots/model", (3, 10**10), "f8", maxshape=(None, 10**10), chunks=(1, 1000))


def unknown_verdict(file: h5py.File) -> None:
    """A diagnosis in which no verdict is one of ours."""
    row = np.zeros(1, file["diagnosis/summary"].dtype)
    row["verdict"] = b"splendid"
    file["diagnosis/summary"].resize(1, axis=0)
    file["diagnosis/summary"][:] = row


TRICKS = (
    empty, reference, ragged, opaque, link, objects, gigantic, stored_elsewhere, mapped_elsewhere, far_too_wide,
    provenance_elsewhere, checksums_elsewhere, unknown_verdict,
)  # fmt: skip


@pytest.mark.timeout(30)
@pytest.mark.parametrize("trick", TRICKS)
def test_hostile_run_files_are_refused_at_once(trick: Callable[[h5py.File], None], own_run: Path) -> None:
    """Opening the pipe would never return."""
    os.mkfifo("pipe")
    shutil.copyfile("run.h5", "whole.h5")
    with edited("run.h5") as file:
        trick(file)
    for command in ("show run.h5", "summary run.h5", "diagnose run.h5", "replay run.h5", "report run.h5 -o page.html",
                    "compare run.h5 whole.h5", "watch run.h5 --once"):  # fmt: skip
        if trick is unknown_verdict or (trick in (ragged, opaque) and "watch" in command):  # which shows no provenance
            assert main(command.split()) in (0, 2)
        else:
            complaint(command)
    with suppress(UserError):
        salvage(Path("run.h5"), Path("saved.h5"), None)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("client", 99), ("client", -5), ("time_s", np.nan), ("time_s", -1.0), ("time_s", 1e308), ("round", 10**15),
        ("round", -7), ("staleness", 2**40), ("version", -3), ("iteration", 2**60), ("drawn_delay_s", np.nan),
        ("realised_delay_s", np.inf),
    ],
)  # fmt: skip
def test_no_number_in_the_events_ends_in_a_traceback(
    column: str, value: float, own_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile("run.h5", "whole.h5")
    with edited("run.h5") as file:
        rows = file["events"][()]
        rows[column][5:7] = value
        file["events"][...] = rows
    for command in ("show", "summary", "diagnose", "compare whole.h5", "replay", "report -o page.html --force",
                    "watch --once"):  # fmt: skip
        first, *more = command.split()
        assert main([first, "run.h5", *more]) in (0, 1, 2)
        assert capsys.readouterr().err.count("\n") <= 1, command


def test_a_run_file_does_not_command_the_terminal(own_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with edited(own_run) as file:
        command = "fine\x1b]0;new title\x07\x9b2J\rdone\u202egnorw\u2066"
        file["provenance"].attrs.update({"command": command, "transport": "\x1b[8mhidden"})
    assert "fine\\x1b]0;new title" in answer("show run.h5").out
    for command in ("show run.h5", "summary run.h5", "diagnose run.h5", "compare run.h5 run.h5"):
        assert main(command.split()) in (0, 1, 2)
        captured = capsys.readouterr()
        assert all(character.isprintable() or character == "\n" for character in captured.out + captured.err)


# ---------------------------------------------------------------------------------------------------- the code

FORBIDDEN = (
    "import pickle", "from socket import socket", "import urllib.request", "eval('1')", "import numpy; numpy.load('x')",
    "import subprocess; subprocess.run('ls', shell=True)", "import os; os.system('ls')", "exec(text)",
)  # fmt: skip


@pytest.mark.parametrize("source", FORBIDDEN)
def test_ruff_forbids_to_unpickle_to_evaluate_and_to_connect(source: str) -> None:
    """It checks the package in `make lint`; whether its settings are still there is tested here."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "S,TID251", "--stdin-filename", str(SOURCES[0]), "-"]
    ended = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended


def test_no_module_does_what_ruff_does_not_see() -> None:
    unseen = re.compile(r"(?<![.\w])(compile|__import__)\(|allow_pickle|load_module|noqa: (S\d|TID)")
    assert [path.name for path in SOURCES if unseen.search(path.read_text(encoding="utf-8"))] == []


def computed_imports(path: Path) -> list[str]:
    """The calls of `import_module` with a name that is neither written out nor one of areabench's own modules."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [ast.unparse(node) for node in calls if ast.unparse(node.func).endswith("import_module")]
    return [call for call in named if not re.search(r"""import_module\(('[\w.]+'|f'areabench\.)""", call)]


def test_one_module_imports_what_an_experiment_names() -> None:
    assert {path.name for path in SOURCES if computed_imports(path)} == {"callables.py"}


def test_a_run_neither_connects_nor_unpickles(folder: Path) -> None:
    Path("try.toml").write_text(QUADRATIC, encoding="utf-8")
    script = """
import sys
from areabench.cli.main import main
seen = set()
sys.addaudithook(lambda event, _: seen.add(event))
for arguments in ("simulate try.toml -o run.h5", "show run.h5", "summary run.h5", "replay run.h5"):
    assert main(arguments.split()) == 0
assert "open" in seen  # the hook works
print(sorted(event for event in seen - {"socket.gethostname"} if event.startswith(("socket.", "pickle.", "urllib."))))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"


# ---------------------------------------------------------------------------------------------------- permissions


def test_the_cache_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom areabench.problems.data.mnist import Mnist\n"
        "os.umask(0)\nMnist().prepare(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "cache")], timeout=60, check=True)
    made = [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]
    assert len(made) == 6
    assert not any(path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) for path in made)


def test_a_link_that_somebody_placed_is_not_followed(folder: Path) -> None:
    Path("try.toml").write_text(QUADRATIC, encoding="utf-8")
    Path("run.h5").symlink_to("private.h5")
    for command in ("simulate try.toml -o run.h5", "theory try.toml --write run.h5"):
        assert "run.h5: exists already" in complaint(command)
    assert not Path("private.h5").exists()


def test_nothing_is_left_in_the_folder_for_temporary_files(own_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = own_run.parent / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))  # also for the processes of a sweep
    monkeypatch.setattr(tempfile, "tempdir", None)
    for command in ("simulate try.toml", "sweep try.toml --jobs 1", "replay run.h5"):
        answer(command)
    assert list(temporary.iterdir()) == []
