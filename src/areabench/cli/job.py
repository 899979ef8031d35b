"""What the scripts of all schedulers have in common: surroundings, and the command that does the work."""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from areabench.cli.parser import MPICH, MPIRUN, OPEN_MPI, PBS, SLURM, SRUN
from areabench.engine.plugins.trust import trust_options
from areabench.errors import UserError
from areabench.experiment.fields import OwnPart, slug
from areabench.experiment.labels import MPI
from areabench.experiment.parse import load_experiment
from areabench.experiment.problem_records import DrawnSettings
from areabench.experiment.records import EveryPeriod, Experiment, PoissonAggregation, TraceDelays
from areabench.experiment.toml import read_text, read_toml
from areabench.files import refuse_existing
from areabench.launch.families import Family, mpi4py_family
from areabench.launch.mpirun import ask_launcher, find_mpirun
from areabench.sweeps.plan import Share, expected_cost, load_sweep, updates_per_second

_WORD = re.compile(r"[A-Za-z0-9_.,:@/+=-]+")


@dataclass(frozen=True)
class Site:
    """The cluster: what is loaded there, how ranks are started, and what the scheduler wants to know."""

    modules: tuple[str, ...] = ()
    venv: Path | None = None  # activated in the job; None where `areabench` is on the path
    launcher: str = SRUN
    mpi: str = OPEN_MPI  # or what behaves like MPICH
    account: str | None = None
    queue: str | None = None  # Slurm's partition
    memory_mb: int | None = None  # a core
    exclusive: bool = False  # no other jobs on the nodes


@dataclass(frozen=True)
class Request:
    """One job: what it runs, and on how much."""

    file: Path
    overrides: tuple[str, ...] = ()
    trials: int | None = None
    runs: Path | None = None  # run file, or folder of the sweep; None for the usual one
    transport: str = MPI
    scheduler: str = SLURM
    nodes: int = 1
    clients_per_rank: int = 1
    cores: int = 4  # of a job in the simulator
    array: int | None = None  # tasks that share a sweep
    walltime: str | None = None  # HH:MM:SS; None for the estimate
    site: Site = Site()


def check_request(request: Request) -> None:
    """Refuse what no scheduler could make sense of."""
    site = request.site
    for option in fields(Site):
        value = getattr(site, option.name)
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and not _WORD.fullmatch(word):
                name = "partition" if option.name == "queue" else option.name.removesuffix("s")
                raise UserError(f"--{name} {word!r}: letters, digits and _.,:@/+=- are allowed; leave out all others")
    if request.scheduler == PBS and site.launcher == SRUN:
        raise UserError("--launcher srun: PBS has no srun; use --launcher mpirun")
    if request.transport != MPI and request.nodes > 1:
        raise UserError(
            f"--nodes {request.nodes}: a job in the simulator has one node; divide a sweep over several with --array"
        )
    if request.walltime is not None and not re.fullmatch(r"\d{2,4}:[0-5]\d:[0-5]\d", request.walltime, re.ASCII):
        raise UserError(f"--walltime {request.walltime}: is not of the form HH:MM:SS; two hours are 02:00:00")


SET_UP_S = 120.0  # modules, environment and Python from a shared file system, once a job
RANK_S = 0.5  # more set-up a rank
DRAIN_S = 30.0  # split, barrier, the last updates and the writing, once a run
SNAPSHOT_S = 0.2  # evaluating one: several times what it takes on MNIST
STEP_S = 0.5e-3  # a simulated gradient step: several times what it takes on MNIST


@dataclass(frozen=True)
class Work:
    """The runs of a job."""

    name: str
    sweep: bool
    output: Path  # run file, or folder of a sweep
    runs: int
    ranks: int  # 0 in the simulator
    walltime_s: float  # of the longest task
    formula: str  # of the walltime
    trust: str = ""  # options with which a single run is resumed that calls code of the user's own


def work_of(request: Request) -> Work:
    """Read the file of a request."""
    table = read_toml(read_text(request.file), str(request.file))
    if "sweep" in table or "extends" in table:
        return _sweep(request)
    if request.trials is not None or request.array is not None:
        option = "--trials" if request.trials is not None else "--array"
        raise UserError(f"{option}: {request.file} is one run; add a section [sweep] to it, or leave {option} out")
    experiment = load_experiment(request.file, request.overrides)
    name = f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}"
    work = _work(request, name, Path(f"{name}{_ending(request)}.h5"), [[experiment]], sweep=False)
    return replace(work, trust=trust_options(experiment))


def _sweep(request: Request) -> Work:
    plan, tasks = load_sweep(request.file, request.overrides, request.trials), request.array or 1
    if tasks > len(plan.members):
        raise UserError(f"--array {tasks}: the sweep has {len(plan.members)} runs; use that many tasks or fewer")
    shares = [Share(number, tasks).taken_from(plan).members for number in range(1, tasks + 1)]
    runs = [[each.experiment for each in share if each.experiment is not None] for share in shares]
    return _work(request, plan.name, Path(f"{plan.name}{_ending(request)}"), runs, sweep=True)


def _ending(request: Request) -> str:
    return "-mpi" if request.transport == MPI else ""


def _work(request: Request, name: str, output: Path, tasks: Sequence[Sequence[Experiment]], *, sweep: bool) -> Work:
    runs, on_mpi = [run for task in tasks for run in task], request.transport == MPI
    ranks = _ranks(runs, request.clients_per_rank) if on_mpi else 0
    if request.nodes > max(ranks, 1):
        raise UserError(f"--nodes {request.nodes}: there are only {ranks} ranks; use that many nodes or fewer")
    if request.walltime is not None:
        walltime_s, formula = 0.0, "as asked for"
    elif on_mpi:
        walltime_s, formula = max(_real_time(task, ranks) for task in tasks)
    else:
        walltime_s, formula = max(_virtual_time(task, request.cores) for task in tasks)
    return Work(name, sweep, request.runs or Path("runs") / output, len(runs), ranks, walltime_s, formula)


def _ranks(runs: Sequence[Experiment], clients_per_rank: int) -> int:
    """The server's rank, and so many more that none has more clients; a run of fewer clients leaves some idle."""
    clients = max(run.clients.count for run in runs)
    if clients_per_rank > clients:
        raise UserError(
            f"--clients-per-rank {clients_per_rank}: there are {clients} clients; use a number from 1 to {clients}"
        )
    return 1 + math.ceil(clients / clients_per_rank)


# ---------------------------------------------------------------------------------------------------- walltime


def _real_time(runs: Sequence[Experiment], ranks: int) -> tuple[float, str]:
    """Walltime of runs one after the other on MPI, in seconds, and how it comes about."""
    clock_s = sum(run.clock.stretch * _duration_s(run) for run in runs)
    snapshots = sum(_snapshots(run) for run in runs)
    formula = (
        f"{SET_UP_S:g} s set-up + {RANK_S:g} s x {ranks} ranks + {len(runs)} run{'s' * (len(runs) != 1)} of "
        f"{clock_s:,.0f} s in all (horizon x stretch of the clock) + {DRAIN_S:g} s a run to start and drain "
        f"+ {SNAPSHOT_S:g} s x {snapshots:,.0f} snapshots to evaluate"
    )
    return SET_UP_S + RANK_S * ranks + clock_s + DRAIN_S * len(runs) + SNAPSHOT_S * snapshots, formula


def _virtual_time(runs: Sequence[Experiment], cores: int) -> tuple[float, str]:
    """Walltime of runs in the simulator, in seconds, and how it comes about."""
    steps = sum(expected_cost(run) for run in runs)
    formula = (
        f"{SET_UP_S:g} s set-up + {STEP_S * 1e3:g} ms x {steps:,.0f} gradient steps (evaluation included) of "
        f"{len(runs)} run{'s' * (len(runs) != 1)} on {cores} cores"
    )
    return SET_UP_S + STEP_S * steps / cores, formula


def _duration_s(run: Experiment) -> float:
    """How long the run's clock goes, at most, or as expected where only the iterations are given."""
    stop = run.stop
    if stop.horizon_s is not None:
        return stop.horizon_s
    assert stop.iterations is not None
    if isinstance(run.delays, TraceDelays | OwnPart):
        whose = "a trace" if isinstance(run.delays, TraceDelays) else run.delays.name
        raise UserError(f"the delays are those of {whose}, and there is no stop.horizon_s; give a --walltime")
    return stop.iterations / updates_per_second(run)


def _snapshots(run: Experiment) -> float:
    """Models that are evaluated after the run, about."""
    record, aggregation, duration_s = run.record, run.aggregation, _duration_s(run)
    if isinstance(run.problem, DrawnSettings) or record.snapshots == "none":
        return 1
    if record.snapshots == "grid":
        return duration_s / record.interval_s + 1
    match aggregation:
        case EveryPeriod():
            return duration_s / aggregation.period_s + 1
        case PoissonAggregation():
            return duration_s * aggregation.rate + 1
        case _:
            return duration_s * updates_per_second(run) / aggregation.updates + 1


WARNING_S = 60  # between the signal at which a run writes its checkpoint and stops, and the end of the walltime


@dataclass(frozen=True)
class Words:
    """What a scheduler calls things."""

    submit: str  # the command that takes a script
    folder: str  # the variable with the folder of the submission
    task: str  # the variable with the number of an array's task
    launcher: str  # starts the ranks, with everything that it needs
    cores: str  # cores of a job in the simulator, as a number or a variable
    warned: str = ""  # before the command of a single run: sees to it that it is warned before the walltime ends
    warning: tuple[str, ...] = ()  # lines that `warned` needs


def head(request: Request, work: Work, words: Words) -> list[str]:
    """What the script is."""
    file = _plain(request.file)
    what = f"The sweep {file}, {work.runs:,} runs" if work.sweep else f"One run of {file}"
    if request.array is not None:
        what += f", divided among {request.array} tasks, each"
    else:
        what += ","
    if request.transport != MPI:
        where = f"in the simulator, on {request.cores} cores."
    else:
        workers = f"{work.ranks - 1} worker rank{'s' * (work.ranks != 2)}"
        clients = f"up to {request.clients_per_rank} clients" if request.clients_per_rank > 1 else "one client"
        where = f"on {work.ranks} MPI ranks: the server, and {workers} of {clients} each."
    return [
        "#!/bin/bash",
        *comment(f"{what} {where}"),
        *comment(f"Submit it with `{words.submit} FILE` in the folder that the paths below start at."),
    ]


def placement(request: Request) -> list[str]:
    """Where the ranks are."""
    where = "Each rank has a core of its own, the server too: it is rank 0, the first one on the first node."
    return comment(where) if request.transport == MPI else []


def warned_after_s(request: Request, work: Work) -> int:
    """When a run is told to stop, in seconds: a minute before the walltime ends, for a short one at half of it."""
    hours, minutes, seconds = map(int, walltime(request, work).split(":"))
    limit_s = 3600 * hours + 60 * minutes + seconds
    return max(limit_s - WARNING_S, limit_s // 2)


def walltime(request: Request, work: Work) -> str:
    """The walltime as HH:MM:SS, rounded up to minutes."""
    minutes = math.ceil(work.walltime_s / 60)
    return request.walltime or f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def comment(text: str) -> list[str]:
    """A comment in lines of a bearable length."""
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def body(request: Request, work: Work, words: Words) -> list[str]:
    """Everything below the directives."""
    lines = ["", f'cd "${words.folder}" || exit 1', *_surroundings(request)]
    return [*lines, *(_sweep_script(request, work, words) if work.sweep else _run(request, work, words))]


def _surroundings(request: Request) -> list[str]:
    site = request.site
    lines = [f"module load {shlex.quote(module)} || exit 1" for module in site.modules]
    if site.venv is not None:
        lines.append(f"source {shlex.quote(str(site.venv / 'bin' / 'activate'))} || exit 1")
    return [
        *lines,
        "set -euo pipefail  # not before: the files of modules may use what is not set",
        "export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread a rank",
        'areabench="$(command -v areabench)"',
        "",
    ]


def _sweep_script(request: Request, work: Work, words: Words) -> list[str]:
    """Runs that are done are not done again, so the same command begins the sweep and goes on with it."""
    options = ["--transport", "mpi", "--on-ranks"] if request.transport == MPI else []
    trials = [] if request.trials is None else ["--trials", str(request.trials)]
    typed = ["sweep", str(request.file), *_overrides(request), *trials, *options, "--output", str(work.output)]
    line = f'"$areabench" {shlex.join(typed)} --progress never'
    if request.transport != MPI:
        line += f" --jobs {words.cores}"
    if request.array is not None:
        line += f' --share "${words.task}/{request.array}"'
    return [
        "# A job that is started again goes on: runs that are done are not done again.",
        _launched(request, words) + line,
    ]


def _run(request: Request, work: Work, words: Words) -> list[str]:
    """One run; a job that is started again keeps what is there."""
    typed = shlex.join([str(request.file), *_overrides(request)])
    command = "run" if request.transport == MPI else "simulate"
    resumed = ["resume", '"$run_file"', work.trust]
    kept = '"${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"'
    return [
        f"run_file={shlex.quote(str(work.output))}",
        f'task=({command} {typed} --output "$run_file")',
        "",
        *comment(
            "A job that is started again does not repeat a run that has ended, and goes on with one that has a "
            "checkpoint; one without is kept, and begun anew."
        ),
        'if [ -e "$run_file" ]; then',
        "  status=0",
        f'  "$areabench" check {typed} --ended-in "$run_file" || status=$?',
        '  case "$status" in',
        "    0) exit 0 ;;",
        f'    1) mv -v -- "$run_file" {kept}; rm -f -- "$run_file.checkpoint" ;;',
        f"    4) task=({' '.join(filter(None, resumed))}) ;;",
        '    *) exit "$status" ;;',
        "  esac",
        "fi",
        "",
        *words.warning,
        f'{_launched(request, words, words.warned)}"$areabench" "${{task[@]}}" --progress never',
    ]


def _launched(request: Request, words: Words, warned: str = "") -> str:
    """What comes before areabench; a launcher may have lines of its own before it, which stay in front."""
    *lines, launcher = words.launcher.split("\n")
    return "\n".join([*lines, f"{warned}{launcher} \\\n  "]) if request.transport == MPI else warned


def _overrides(request: Request) -> list[str]:
    return [word for override in request.overrides for word in ("--set", override)]


def mpirun(request: Request, work: Work, hosts: Sequence[str] = ()) -> str:
    """The start of an mpirun command that gives each rank a core."""
    open_mpi = request.site.mpi == OPEN_MPI
    binding = ["--map-by", "core", "--bind-to", "core"] if open_mpi else ["-bind-to", "core"]
    return " ".join([MPIRUN, *hosts, "-n", str(work.ranks), *binding])


def _plain(path: Path) -> str:
    """A path in a comment, which ends with its line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def slurm_script(request: Request, work: Work) -> str:
    """The whole script."""
    launcher, cores = _launcher(request, work), '"$SLURM_CPUS_PER_TASK"'
    warned, warning = ("", ()) if _by_srun(request) else ("passing_on \\\n", _PASSING_ON)
    words = Words("sbatch", "SLURM_SUBMIT_DIR", "SLURM_ARRAY_TASK_ID", launcher, cores, warned, warning)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)
    lines = [
        *head(request, work, words),
        _directive("job-name", name),
        *placement(request),
        *_resources(request, work),
        *comment(f"Walltime: {work.formula}."),
        _directive("time", walltime(request, work)),
        *_site(request),
        *([] if work.sweep else _warning(request)),
        "#SBATCH --requeue",
        _directive("open-mode", "append"),
        _directive("output", "%x-%A_%a.out" if request.array is not None else "%x-%j.out"),
        *body(request, work, words),
    ]
    return "\n".join(lines) + "\n"


def _directive(name: str, value: object) -> str:
    return f"#SBATCH --{name}={value}"


def _resources(request: Request, work: Work) -> list[str]:
    nodes = request.nodes
    lines = [_directive("nodes", nodes)]
    if request.transport != MPI:
        lines += [_directive("ntasks", 1), _directive("cpus-per-task", request.cores)]
    else:
        lines.append(_directive("ntasks", work.ranks))
        lines += [_directive("ntasks-per-node", -(-work.ranks // nodes))] if nodes > 1 else []
        lines.append(_directive("cpus-per-task", 1))
    lines.append(_directive("threads-per-core", 1))
    if request.array is not None:
        lines.append(_directive("array", f"1-{request.array}"))
    return lines


def _site(request: Request) -> list[str]:
    site = request.site
    lines = [] if site.account is None else [_directive("account", site.account)]
    lines += [] if site.queue is None else [_directive("partition", site.queue)]
    lines += [] if site.memory_mb is None else [_directive("mem-per-cpu", f"{site.memory_mb}M")]
    return [*lines, "#SBATCH --exclusive"] if site.exclusive else lines


def _warning(request: Request) -> list[str]:
    """The signal before the walltime ends: to the tasks of srun, else to the script, which passes it on."""
    whom = "" if _by_srun(request) else "B:"
    return [
        *comment("A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4)."),
        _directive("signal", f"{whom}USR1@{WARNING_S}"),
    ]


def _by_srun(request: Request) -> bool:
    return request.transport == MPI and request.site.launcher == SRUN


def _launcher(request: Request, work: Work) -> str:
    """Ranks find each other through PMIx in Open MPI, and through PMI-2 in MPICH."""
    if request.site.launcher != SRUN:
        return mpirun(request, work)
    bound = "--cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1"
    return f"{_FRESH_STEP}srun --mpi=pmi2 {bound}" if request.site.mpi == MPICH else f"srun --mpi=pmix {bound}"


# MPICH names shared memory after job and step, and would wait for ever in what a killed start of the job has left.
_FRESH_STEP = """\
# Each restart of the job takes a step of another number, away from shared memory that the last one left.
for ((restart = 0; restart < ${SLURM_RESTART_COUNT:-0}; restart++)); do srun --ntasks=1 true; done
"""

# A shell hears a signal only when its command has ended, unless it waits for one in the background.
_PASSING_ON = (
    "# Runs a command, and passes on the signal that comes before the walltime ends.",
    "passing_on() {",
    '  local process="" warned="" status=0',
    "  trap 'warned=yes; kill -USR1 $process 2>/dev/null || true' USR1",
    '  "$@" &',
    "  process=$!",
    '  [ -z "$warned" ] || kill -USR1 "$process"  # it came before there was anything to pass it on to',
    '  wait "$process" || status=$?  # a signal ends the waiting',
    '  while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done',
    '  ((status < 128)) || { status=0; wait "$process" || status=$?; }',
    '  return "$status"',
    "}",
    "",
)


_LONGEST_NAME = 15  # characters; newer versions take more


def pbs_script(request: Request, work: Work) -> str:
    """The whole script."""
    hosts = ["--hostfile" if request.site.mpi == OPEN_MPI else "-f", '"$PBS_NODEFILE"']
    warned = f"timeout --foreground --preserve-status --signal=USR1 {warned_after_s(request, work)} \\\n"
    warning = ("# PBS does not warn: a run is told to stop while there is time for its checkpoint.",)
    launcher = mpirun(request, work, hosts)
    words = Words("qsub", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX", launcher, str(request.cores), warned, warning)
    lines = [
        *head(request, work, words),
        "#PBS -S /bin/bash",
        f"#PBS -N {_name(work)}",
        *placement(request),
        f"#PBS -l select={_chunks(request, work)}",
        f"#PBS -l place=scatter{':excl' * request.site.exclusive}",
        *([] if request.array is None else [f"#PBS -J 1-{request.array}"]),
        *comment(f"Walltime: {work.formula}."),
        f"#PBS -l walltime={walltime(request, work)}",
        *([] if request.site.account is None else [f"#PBS -A {request.site.account}"]),
        *([] if request.site.queue is None else [f"#PBS -q {request.site.queue}"]),
        "#PBS -r y",
        "#PBS -j oe",
        *body(request, work, words),
    ]
    return "\n".join(lines) + "\n"


def _name(work: Work) -> str:
    """A name that PBS takes: short, and beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)
    return (name if name[:1].isalpha() else f"job-{name}")[:_LONGEST_NAME]


def _chunks(request: Request, work: Work) -> str:
    """The ranks spread evenly over the nodes, the first ones with one more where that does not come out even."""
    if request.transport != MPI:
        return _chunk(1, request.cores, request, mpiprocs=False)
    each, more = divmod(work.ranks, request.nodes)
    chunks = [(more, each + 1), (request.nodes - more, each)]
    return "+".join(_chunk(nodes, ranks, request, mpiprocs=True) for nodes, ranks in chunks if nodes)


def _chunk(nodes: int, cores: int, request: Request, *, mpiprocs: bool) -> str:
    memory_mb = request.site.memory_mb
    words = [str(nodes), f"ncpus={cores}", *([f"mpiprocs={cores}"] if mpiprocs else [])]
    return ":".join([*words, *([] if memory_mb is None else [f"mem={memory_mb * cores}mb"])])


def job(request: Request, output: Path | None, *, force: bool) -> int:
    """Print a job script, or write it to a file."""
    check_request(request)
    work = work_of(request)
    script = slurm_script(request, work) if request.scheduler == SLURM else pbs_script(request, work)
    if output is None:
        print(script, end="")
        return 0
    refuse_existing(output, force=force)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(script, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}; choose another file") from error
    print(f"{output}: submit it with {'sbatch' if request.scheduler == SLURM else 'qsub'} {output}")
    return 0


def mpi_at_hand() -> str:
    """The MPI that mpi4py uses here, or else that of the mpirun."""
    try:
        family = mpi4py_family() or ask_launcher(find_mpirun()).family
    except UserError as error:
        raise UserError(
            f"--mpi: cannot be told by the mpirun here: {error}; or give --mpi openmpi or --mpi mpich"
        ) from error
    return MPICH if family == Family.MPICH else OPEN_MPI
