"""`areabench job`: a job script for an experiment or a sweep, with the resources and the walltime that it needs."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import string
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from areabench.cli import CommandContext
from areabench.cli.parser import MPICH, MPIRUN, MPIS, OPEN_MPI, PBS, SLURM, SRUN, run_file
from areabench.engine.plugins.trust import trust_options
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import MPI
from areabench.experiment.parse import load_experiment
from areabench.files import refuse_existing, write_text
from areabench.launching.families import Family, mpi4py_family
from areabench.settings.keys import slug
from areabench.settings.toml import read_text, read_toml
from areabench.sweeps.plan import Share, expected_cost, expected_tests, load_sweep, updates_per_second
from areabench.views.styled import counted

# The walltime is estimated from these, on the safe side.
SET_UP_S = 120.0  # modules, environment and Python from a shared file system, once per job
RANK_S = 0.5  # more set-up per rank
DRAIN_S = 30.0  # split, barrier, the last updates and the writing, once per run
SNAPSHOT_S = 0.2  # evaluating one: several times what it takes on MNIST
STEP_S = 0.5e-3  # a simulated gradient step: several times what it takes on MNIST

# ------------------------------------------------------------------------------------------------- templates
# `@name` stands for a value, `@@` for an @. A line that is empty once its values are filled in is left out.

_SLURM_SCRIPT = """\
#!/bin/bash
@purpose
# Submit it with `sbatch FILE` in the folder that the paths below start at.
#SBATCH --job-name=@name
@placement
#SBATCH --nodes=@nodes
#SBATCH --ntasks=@tasks
@tasks_per_node
#SBATCH --cpus-per-task=@cores_per_task
#SBATCH --threads-per-core=1
@array
@estimate
#SBATCH --time=@walltime
@account
@partition
@memory
@exclusive
@directives
@signal
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=@log

cd "$SLURM_SUBMIT_DIR" || exit 1
@body
"""

_PBS_SCRIPT = """\
#!/bin/bash
@purpose
# Submit it with `qsub FILE` in the folder that the paths below start at.
#PBS -S /bin/bash
#PBS -N @name
@placement
#PBS -l select=@chunks
#PBS -l place=scatter@exclusive
@array
@estimate
#PBS -l walltime=@walltime
@account
@queue
@directives
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
@body
"""

_BODY = """\
@modules
@environment
set -euo pipefail  # only now: the files of modules may use variables that are not set
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread per rank
areabench="$(command -v areabench)"

@work"""

# A sweep does not repeat runs that are done, so the same command starts it and continues it.
_SWEEP = """\
# A job that is started again continues: runs that are done are not repeated.
@fresh_step
@launcher"$areabench" @command --progress never@jobs@share"""

_RUN = """\
run_file=@run_file
task=(@command --output "$run_file")

# A job that is started again does not repeat a run that has ended, and resumes one that has a checkpoint.
#   An incomplete run without a checkpoint is kept under another name, and the run starts from the beginning.
if [ -e "$run_file" ]; then
  status=0
  "$areabench" check @experiment --ended-in "$run_file" || status=$?
  case "$status" in
    0) exit 0 ;;
    1) mv -v -- "$run_file" "${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"; rm -f -- "$run_file.checkpoint" ;;
    4) task=(@resume) ;;
    *) exit "$status" ;;
  esac
fi

@warning
@fresh_step
@launcher"$areabench" "${task[@@]}" --progress never"""

# MPICH names shared memory after job and step, and would wait forever in what a killed start of the job has left.
_FRESH_STEP = """\
# Each restart of the job takes a step of another number, away from shared memory that the last one left.
for ((restart = 0; restart < ${SLURM_RESTART_COUNT:-0}; restart++)); do srun --ntasks=1 true; done"""

# A shell handles a signal only when its command has ended, unless it waits for one in the background.
_SLURM_WARNING = """\
# Runs a command, and passes on the signal that comes before the walltime ends.
passing_on() {
  local process="" warned="" status=0
  trap 'warned=yes; kill -USR1 $process 2>/dev/null || true' USR1
  "$@" &
  process=$!
  [ -z "$warned" ] || kill -USR1 "$process"  # it came before there was anything to pass it on to
  wait "$process" || status=$?  # a signal ends the waiting
  while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done
  ((status < 128)) || { status=0; wait "$process" || status=$?; }
  return "$status"
}
"""

_PBS_WARNING = "# PBS does not warn: the run is told to stop while there is time for its checkpoint."


WARNING_S = 60  # between the signal at which a run writes its checkpoint and stops, and the end of the walltime
_PBS_NAME_LENGTH = 15  # characters; newer versions take more
_SITE_WORD = re.compile(r"[A-Za-z0-9_.,:@/+=-]+")
_DIRECTIVE = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9-]*)(?:=([!-~]+))?")  # name, and a value of printable characters
_SITE_OPTIONS = {"modules": "module", "account": "account", "queue": "partition"}


@dataclass(frozen=True)
class JobRequest:
    """One job: what it runs, on how much, and what the cluster wants to know."""

    file: Path
    overrides: tuple[str, ...]
    trials: int | None
    runs: Path | None  # run file, or folder of the sweep; None for the usual one
    transport: str
    scheduler: str
    nodes: int
    clients_per_rank: int
    cores: int  # of a job in the simulator
    array: int | None  # tasks that share a sweep
    walltime: str | None  # HH:MM:SS; None for the estimate
    modules: tuple[str, ...]
    venv: Path | None  # activated in the job; None where `areabench` is on the path
    launcher: str
    mpi: str  # OPEN_MPI, or what behaves like MPICH
    account: str | None
    queue: str | None  # Slurm's partition
    memory_mb: int | None  # per core
    exclusive: bool  # no other jobs on the nodes
    directives: tuple[str, ...]  # NAME or NAME=VALUE

    @property
    def on_mpi(self) -> bool:
        """Whether the job runs in real time."""
        return self.transport == MPI

    @property
    def by_srun(self) -> bool:
        """Whether srun starts the ranks, and passes signals on to them."""
        return self.on_mpi and self.launcher == SRUN


@dataclass(frozen=True)
class JobRuns:
    """The runs of a job."""

    name: str
    sweep: bool
    output: Path  # run file, or folder of a sweep
    runs: int
    ranks: int  # 0 in the simulator
    walltime: str  # HH:MM:SS, of the longest task
    estimate: str  # how the walltime comes about
    has_helper: bool = False  # on MPI, a rank of its own
    trust: str = ""  # options with which a single run is resumed that calls code of the user's own
    again: bool = False  # whether it is to be submitted once more


def job(options: argparse.Namespace, context: CommandContext) -> int:
    """Print a job script, or write it to a file."""
    del context  # every command has one
    request = _request(options)
    _check(request)
    work = work_of(request)
    script = _slurm_script(request, work) if request.scheduler == SLURM else _pbs_script(request, work)
    _check_directives(request, script)
    _warn_of_wheel(request)
    if work.again:
        print(
            "areabench: a tuned sweep in an array is submitted twice: test runs begin when all tuning runs are done",
            file=sys.stderr,
        )
    output = options.output
    if output is None:
        print(script, end="")
        return 0
    refuse_existing(output, force=options.force)
    write_text(output, script)
    print(f"{output}: submit it with {'sbatch' if request.scheduler == SLURM else 'qsub'} {output}")
    return 0


# -------------------------------------------------------------------------------------------------- the request


def _request(options: argparse.Namespace) -> JobRequest:
    """What was asked for, with the defaults that depend on this machine."""
    here = Path(sys.prefix) if sys.prefix != sys.base_prefix else None  # the environment that this command is in
    clients = [] if options.clients is None else [f"clients.count={options.clients}"]
    resolved = {
        "overrides": (*options.overrides, *clients),
        "array": None if options.array == 1 else options.array,  # one task is no array
        "modules": tuple(options.modules),
        "directives": tuple(options.directives),
        "exclusive": options.transport == MPI if options.exclusive is None else options.exclusive,
        "venv": options.venv or here,
        "launcher": options.launcher or (SRUN if options.scheduler == SLURM else MPIRUN),
        "mpi": options.mpi or (_mpi_here() if options.transport == MPI else OPEN_MPI),
    }
    given = {item.name: getattr(options, item.name) for item in fields(JobRequest)}
    return JobRequest(**{**given, **resolved})


def _mpi_here() -> str:
    """The MPI that mpi4py uses here, or else that of the mpirun."""
    family = mpi4py_family()
    if family is not None:
        return MPICH if family == Family.MPICH else OPEN_MPI
    from areabench.launching.mpirun import ask_launcher, find_mpirun

    try:
        family = ask_launcher(find_mpirun()).family
    except UserError as error:
        raise UserError(
            f"--mpi: cannot be found out from the mpirun here: {error}; or give --mpi openmpi or --mpi mpich"
        ) from error
    return MPICH if family == Family.MPICH else OPEN_MPI


def _check(request: JobRequest) -> None:
    """Refuse what no scheduler could make sense of."""
    for field, option in _SITE_OPTIONS.items():
        value = getattr(request, field)
        for word in value if isinstance(value, tuple) else (value,):
            if word is not None and not _SITE_WORD.fullmatch(word):
                raise UserError(f"--{option} {word!r}: letters, digits and _.,:@/+=- are allowed; leave out all others")
    for directive in request.directives:
        if not _DIRECTIVE.fullmatch(directive):
            raise UserError(f"--directive {directive!r}: is not NAME=VALUE without spaces; write qos=long, for example")
    if request.scheduler == PBS and request.launcher == SRUN:
        raise UserError("--launcher srun: PBS has no srun; use --launcher mpirun")
    if not request.on_mpi and request.nodes > 1:
        raise UserError(
            f"--nodes {request.nodes}: a job in the simulator has one node; divide a sweep over several with --array"
        )
    if request.walltime is not None and not re.fullmatch(r"\d{2,4}:[0-5]\d:[0-5]\d", request.walltime, re.ASCII):
        raise UserError(f"--walltime {request.walltime}: is not of the form HH:MM:SS; two hours are 02:00:00")


def _directive_line(scheduler: str, directive: str) -> str:
    """A directive as the scheduler reads it."""
    match = _DIRECTIVE.fullmatch(directive)
    assert match is not None
    name, value = match.groups(default="")
    if scheduler == SLURM and len(name) > 1:
        return f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
    return f"#{'SBATCH' if scheduler == SLURM else 'PBS'} -{name} {value}".rstrip()


def _check_directives(request: JobRequest, script: str) -> None:
    """Refuse a directive whose value the script has already, from the experiment or from an option."""
    top = [_subject(line) for line in script.splitlines()]
    for directive in request.directives:
        if top.count(_subject(_directive_line(request.scheduler, directive))) > 1:
            raise UserError(
                f"--directive {directive}: the script has that line; use the option of `areabench job` for it"
            )


def _subject(line: str) -> str:
    """What a directive sets: `#SBATCH --time`, `#PBS -N`, `#PBS -l walltime`."""
    words = line.partition("=")[0].split()
    return " ".join(words if words[1:2] in (["-l"], ["-W"]) else words[:2])


def _warn_of_wheel(request: JobRequest) -> None:
    """Say that an MPI from a wheel is for one node."""
    if not request.on_mpi or request.nodes == 1 or request.venv is None:
        return
    packages = [path for name in MPIS for path in request.venv.glob(f"lib/python*/site-packages/{name}-*.dist-info")]
    if packages:
        print(
            f"areabench: --nodes {request.nodes}: {request.venv} has an MPI from a wheel ({packages[0].stem}), which "
            "knows neither network nor launcher of a cluster; build against the site's: make install MPI=system",
            file=sys.stderr,
        )


# -------------------------------------------------------------------------------------------------- the work


def work_of(request: JobRequest) -> JobRuns:
    """The runs of a request, from its file."""
    table = read_toml(read_text(request.file), str(request.file))
    if "sweep" in table or "extends" in table:
        return _sweep_work(request)
    if request.trials is not None or request.array is not None:
        option = "--trials" if request.trials is not None else "--array"
        raise UserError(f"{option}: {request.file} is one run; add a section [sweep] to it, or leave {option} out")
    experiment = load_experiment(request.file, request.overrides)
    name = f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}"
    work = _work(request, name, [[experiment]], sweep=False)
    return replace(work, trust=trust_options(experiment))


def _sweep_work(request: JobRequest) -> JobRuns:
    plan, tasks = load_sweep(request.file, request.overrides, request.trials), request.array or 1
    if tasks > len(plan.members):
        raise UserError(f"--array {tasks}: use at most {len(plan.members)}, the number of runs in the sweep")
    shares = [Share(number, tasks).taken_from(plan).members for number in range(1, tasks + 1)]
    if plan.file is not None:  # tuned: each share makes its part of the test runs too
        tests = expected_tests(plan.file)
        shares = [(*share, *tests[number::tasks]) for number, share in enumerate(shares)]
    runs = [[member.experiment for member in share if member.experiment is not None] for share in shares]
    return replace(_work(request, plan.name, runs, sweep=True), again=plan.file is not None and tasks > 1)


def _work(request: JobRequest, name: str, tasks: Sequence[Sequence[Experiment]], *, sweep: bool) -> JobRuns:
    """The work of tasks, each of which makes its runs one after the other."""
    runs = [run for task in tasks for run in task]
    ranks = _ranks(runs, request.clients_per_rank) if request.on_mpi else 0
    if request.nodes > max(ranks, 1):
        raise UserError(f"--nodes {request.nodes}: there are only {ranks} ranks; use that many nodes or fewer")
    if request.walltime is not None:
        walltime, estimate = request.walltime, "as asked for"
    else:
        walltime_s, estimate = max(
            _real_time(task, ranks) if request.on_mpi else _virtual_time(task, request.cores) for task in tasks
        )
        minutes = math.ceil(walltime_s / 60)
        walltime = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    usual = Path("runs") / f"{name}{'-mpi' * request.on_mpi}{'' if sweep else '.h5'}"
    output = usual if request.runs is None else request.runs if sweep else run_file(str(request.runs))
    return JobRuns(name, sweep, output, len(runs), ranks, walltime, estimate, _needs_helper(runs))


def _ranks(runs: Sequence[Experiment], clients_per_rank: int) -> int:
    """The server's, the helper's if there is one, and as many workers as the largest run needs."""
    clients = max(run.clients.count for run in runs)
    if clients_per_rank > clients:
        raise UserError(
            f"--clients-per-rank {clients_per_rank}: there are {clients} clients; use a number from 1 to {clients}"
        )
    return 1 + _needs_helper(runs) + math.ceil(clients / clients_per_rank)


def _needs_helper(runs: Sequence[Experiment]) -> bool:
    return any(run.privacy is not None for run in runs)


def _real_time(runs: Sequence[Experiment], ranks: int) -> tuple[float, str]:
    """Walltime of runs one after the other on MPI, in seconds, and its sum in words."""
    clock_s = sum(run.clock.stretch * _duration_s(run) for run in runs)
    snapshots = sum(_snapshots(run) for run in runs)
    estimate = (
        f"{SET_UP_S:g} s set-up + {RANK_S:g} s x {ranks} ranks + {counted(len(runs), 'run')} of "
        f"{clock_s:,.0f} s in all (horizon x stretch of the clock) + {DRAIN_S:g} s per run to start and drain "
        f"+ {SNAPSHOT_S:g} s x {snapshots:,.0f} snapshots to evaluate"
    )
    return SET_UP_S + RANK_S * ranks + clock_s + DRAIN_S * len(runs) + SNAPSHOT_S * snapshots, estimate


def _virtual_time(runs: Sequence[Experiment], cores: int) -> tuple[float, str]:
    """Walltime of runs in the simulator, in seconds, and its sum in words."""
    steps = sum(expected_cost(run) for run in runs)
    estimate = (
        f"{SET_UP_S:g} s set-up + {STEP_S * 1e3:g} ms x {steps:,.0f} gradient steps (evaluation included) of "
        f"{counted(len(runs), 'run')} on {counted(cores, 'core')}"
    )
    return SET_UP_S + STEP_S * steps / cores, estimate


def _duration_s(run: Experiment) -> float:
    """How long the run's clock goes, at most, or as expected where only the iterations are given."""
    stop = run.stop
    if stop.horizon_s is not None:
        return stop.horizon_s
    assert stop.iterations is not None
    if not run.delays.follows_rates:
        whose = "a trace" if run.delays.source is not None else run.delays.name
        raise UserError(f"the delays are those of {whose}, and there is no stop.horizon_s; give a --walltime")
    return stop.iterations / updates_per_second(run)


def _snapshots(run: Experiment) -> float:
    """About how many models are evaluated after the run."""
    record, aggregation, duration_s = run.record, run.aggregation, _duration_s(run)
    if not run.problem.takes_data or record.snapshots == "none":
        return 1
    if record.snapshots == "grid":
        return duration_s / record.interval_s + 1
    if aggregation.delta is None:
        assert aggregation.mean_period_s is not None
        return duration_s / aggregation.mean_period_s + 1
    return duration_s * updates_per_second(run) / aggregation.delta + 1


# -------------------------------------------------------------------------------------------------- the script


def _slurm_script(request: JobRequest, work: JobRuns) -> str:
    mpi, nodes = request.on_mpi, request.nodes
    whom = "" if request.by_srun else "B:"  # the tasks of srun, or else the script, which passes it on
    warned = "A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4)."
    values = {
        **_common_values(request, work),
        "name": _job_name(work),
        "nodes": nodes,
        "tasks": work.ranks if mpi else 1,
        "tasks_per_node": _slurm("ntasks-per-node", -(-work.ranks // nodes) if mpi and nodes > 1 else None),
        "cores_per_task": 1 if mpi else request.cores,
        "array": _slurm("array", request.array and f"1-{request.array}"),
        "account": _slurm("account", request.account),
        "partition": _slurm("partition", request.queue),
        "memory": _slurm("mem-per-cpu", request.memory_mb and f"{request.memory_mb}M"),
        "exclusive": "#SBATCH --exclusive" if request.exclusive else "",
        "signal": "" if work.sweep else f"{_comment(warned)}\n{_slurm('signal', f'{whom}USR1@{WARNING_S}')}",
        "log": "%x-%A_%a.out" if request.array is not None else "%x-%j.out",
        "body": _body(
            request,
            work,
            task="SLURM_ARRAY_TASK_ID",
            cores='"$SLURM_CPUS_PER_TASK"',
            launcher=_slurm_launcher(request, work),
            warned="" if request.by_srun else "passing_on",
            warning="" if request.by_srun else _SLURM_WARNING,
        ),
    }
    return _filled(_SLURM_SCRIPT, values)


def _slurm(name: str, value: object) -> str:
    """A directive; nothing where there is no value."""
    return "" if value is None else f"#SBATCH --{name}={value}"


def _slurm_launcher(request: JobRequest, work: JobRuns) -> str:
    """Ranks find each other through PMIx in Open MPI, and through PMI-2 in MPICH."""
    if request.launcher != SRUN:
        return _mpirun(request, work)
    interface = "pmi2" if request.mpi == MPICH else "pmix"
    return f"srun --mpi={interface} --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1"


def _pbs_script(request: JobRequest, work: JobRuns) -> str:
    hosts = ["--hostfile" if request.mpi == OPEN_MPI else "-f", '"$PBS_NODEFILE"']
    name = _job_name(work)
    values = {
        **_common_values(request, work),
        "name": (name if name[:1].isalpha() else f"job-{name}")[:_PBS_NAME_LENGTH],  # begins with a letter
        "chunks": _pbs_chunks(request, work),
        "exclusive": ":excl" * request.exclusive,
        "array": "" if request.array is None else f"#PBS -J 1-{request.array}",
        "account": "" if request.account is None else f"#PBS -A {request.account}",
        "queue": "" if request.queue is None else f"#PBS -q {request.queue}",
        "body": _body(
            request,
            work,
            task="PBS_ARRAY_INDEX",
            cores=str(request.cores),
            launcher=_mpirun(request, work, hosts),
            warned=f"timeout --foreground --preserve-status --signal=USR1 {_warned_after_s(work)}",
            warning=_PBS_WARNING,
        ),
    }
    return _filled(_PBS_SCRIPT, values)


def _pbs_chunks(request: JobRequest, work: JobRuns) -> str:
    """The ranks spread evenly over the nodes; where that does not come out even, the first ones get one more."""
    each, more = divmod(work.ranks if request.on_mpi else request.cores, request.nodes)
    chunks = []
    for nodes, cores in ((more, each + 1), (request.nodes - more, each)):
        if nodes:
            ranks = f":mpiprocs={cores}" if request.on_mpi else ""
            memory = "" if request.memory_mb is None else f":mem={request.memory_mb * cores}mb"
            chunks.append(f"{nodes}:ncpus={cores}{ranks}{memory}")
    return "+".join(chunks)


def _warned_after_s(work: JobRuns) -> int:
    """When a run is told to stop, in seconds: a minute before the walltime ends, for a short one at half of it."""
    hours, minutes, seconds = map(int, work.walltime.split(":"))
    limit_s = 3600 * hours + 60 * minutes + seconds
    return max(limit_s - WARNING_S, limit_s // 2)


def _mpirun(request: JobRequest, work: JobRuns, hosts: Sequence[str] = ()) -> str:
    """The start of an mpirun command that gives each rank a core."""
    binding = ["--map-by", "core", "--bind-to", "core"] if request.mpi == OPEN_MPI else ["-bind-to", "core"]
    return " ".join([MPIRUN, *hosts, "-n", str(work.ranks), *binding])


def _common_values(request: JobRequest, work: JobRuns) -> dict[str, object]:
    """What the directives of both schedulers say."""
    place = "Each rank has a core of its own, the server too: it is rank 0, the first one on the first node."
    return {
        "purpose": _comment(_purpose(request, work)),
        "placement": _comment(place) if request.on_mpi else "",
        "directives": "\n".join(_directive_line(request.scheduler, each) for each in request.directives),
        "estimate": _comment(f"Walltime: {work.estimate}."),
        "walltime": work.walltime,
    }


def _purpose(request: JobRequest, work: JobRuns) -> str:
    """What the script runs, in words."""
    file = "".join(letter if letter.isprintable() else "?" for letter in str(request.file))  # a comment is one line
    what = f"The sweep {file}, {counted(work.runs, 'run')}" if work.sweep else f"One run of {file}"
    divided = "" if request.array is None else f" divided among {request.array} tasks, each"
    if not request.on_mpi:
        return f"{what},{divided} in the simulator, on {counted(request.cores, 'core')}."
    clients = f"up to {request.clients_per_rank} clients" if request.clients_per_rank > 1 else "one client"
    workers = counted(work.ranks - 1 - work.has_helper, "worker rank")
    apart = "the server, the helper" if work.has_helper else "the server"
    return f"{what},{divided} on {work.ranks} MPI ranks: {apart}, and {workers} of {clients} each."


def _body(
    request: JobRequest, work: JobRuns, *, task: str, cores: str, launcher: str, warned: str, warning: str
) -> str:
    """Everything below the directives.

    `task` is the variable with the number of an array's task, `cores` the cores of a job in the simulator, `launcher`
    starts the ranks, and `warned`, which needs the lines of `warning`, warns a single run before the walltime ends.
    """
    experiment = shlex.join([str(request.file), *(word for each in request.overrides for word in ("--set", each))])
    mpi, trials = request.on_mpi, "" if request.trials is None else f" --trials {request.trials}"
    before = [*([] if work.sweep or not warned else [warned]), *([launcher] if mpi else [])]
    indent = "  " * mpi
    values: dict[str, object] = {
        "launcher": "".join(f"{line} \\\n" for line in before) + indent,
        "fresh_step": _FRESH_STEP if request.by_srun and request.mpi == MPICH else "",
    }
    if work.sweep:
        on_mpi = " --transport mpi --on-ranks" if mpi else ""
        values["command"] = f"sweep {experiment}{trials}{on_mpi} --output {shlex.quote(str(work.output))}"
        values["jobs"] = "" if mpi else f" --jobs {cores}"
        values["share"] = "" if request.array is None else f' --share "${task}/{request.array}"'
    else:
        values["command"] = f"{'run' if mpi else 'simulate'} {experiment}"
        values["run_file"] = shlex.quote(str(work.output))
        values["experiment"] = experiment
        values["resume"] = " ".join(filter(None, ["resume", '"$run_file"', work.trust]))
        values["warning"] = warning
    activated = "" if request.venv is None else shlex.quote(str(request.venv / "bin" / "activate"))
    shared = {
        "modules": "\n".join(f"module load {shlex.quote(module)} || exit 1" for module in request.modules),
        "environment": f"source {activated} || exit 1" if activated else "",
        "work": _filled(_SWEEP if work.sweep else _RUN, values).rstrip("\n"),
    }
    return _filled(_BODY, shared).rstrip("\n")


class _ScriptTemplate(string.Template):
    """A template whose values start with @, because scripts are full of $."""

    delimiter = "@"


def _filled(template: str, values: Mapping[str, object]) -> str:
    """A template with its values; a line that becomes empty is left out."""
    lines = []
    for line in template.splitlines():
        filled = _ScriptTemplate(line).substitute(values)
        if filled or not line:
            lines.append(filled)
    return "\n".join(lines) + "\n"


def _job_name(work: JobRuns) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)


def _comment(text: str) -> str:
    """A comment in lines of at most 110 characters."""
    lines = textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
    return "\n".join(lines)
