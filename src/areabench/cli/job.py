"""`areabench job`: a job script for an experiment or a sweep, with the resources and the walltime that it needs.

The scripts are in `job_templates`: the head of a scheduler, and what the job does. `{{name}}` stands for a value, and
a line whose value is missing is left out.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from areabench.cli import Command, CommandContext
from areabench.cli.options import force_option, positive, set_option
from areabench.errors import UserError
from areabench.files import run_file_path

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment

_MPIS = ("openmpi", "mpich")  # or what behaves like it
_WARNING_S = 60  # between the signal at which a run writes its checkpoint and stops, and the end of the walltime
_PBS_NAME_LENGTH = 15  # characters; newer versions take more
_SITE_WORD = re.compile(r"[A-Za-z0-9_.,:@/+=-]+")
_DIRECTIVE = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9-]*(=[!-~]+)?")  # name, and a value of printable characters
_FIELD = re.compile(r"\{\{(\w+)\}\}")  # of a template


def job_options(parser: argparse.ArgumentParser) -> None:
    """What the job runs, on how many cores, and what the cluster needs to know or to load."""
    set_option(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="experiment or sweep file (TOML)")
    parser.add_argument("--scheduler", choices=("slurm", "pbs"), required=True, help="scheduler of the cluster")
    parser.add_argument("-o", "--output", type=Path, metavar="SCRIPT", help="write it here (default: print it)")
    force_option(parser)
    parser.add_argument("--trials", type=positive, metavar="N", help="trials of a sweep, instead of the file's")
    parser.add_argument(
        "--runs", type=Path, metavar="PATH",
        help="run file or folder that the job writes (default in runs/)",
    )  # fmt: skip
    parser.add_argument(
        "--transport", choices=("mpi", "simulator"), default="mpi", help="real time (default), or virtual time"
    )
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes of a job on MPI (default 1)")
    parser.add_argument(
        "--clients-per-rank", type=positive, default=1, metavar="N",
        help="most clients per worker rank; n clients take n/N worker ranks, rounded up (default 1)",
    )  # fmt: skip
    parser.add_argument("--clients", type=positive, metavar="N", help="clients, instead of the file's clients.count")
    parser.add_argument(
        "--cores", type=positive, default=4, metavar="N", help="cores of a job in the simulator (default 4)"
    )
    parser.add_argument("--array", type=positive, metavar="N", help="for a sweep: N tasks, each with every N-th run")
    parser.add_argument("--walltime", metavar="HH:MM:SS", help="replaces the estimate, which the script explains")
    parser.add_argument(
        "--module", dest="modules", action="append", default=[], metavar="NAME",
        help="`module load` this in the job; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--venv", type=Path, metavar="DIR", help="environment to activate (default: this command's own)"
    )
    parser.add_argument(
        "--launcher", choices=("srun", "mpirun"),
        help="what starts the ranks (default: srun on Slurm, mpirun on PBS)",
    )  # fmt: skip
    parser.add_argument("--mpi", choices=_MPIS, help="family of the job's MPI (default: that of mpirun here)")
    parser.add_argument("--account", help="account or project to charge")
    parser.add_argument("--partition", "--queue", dest="queue", help="Slurm's partition, PBS's queue")
    parser.add_argument("--memory", dest="memory_mb", type=positive, metavar="MB", help="memory of each core")
    parser.add_argument(
        "--exclusive", action=argparse.BooleanOptionalAction,
        help="whole nodes: no other jobs beside this one, which would disturb its delays (default: on MPI)",
    )  # fmt: skip
    parser.add_argument(
        "--directive", dest="directives", action="append", default=[], metavar="NAME=VALUE",
        help="another line for the scheduler: qos=long, constraint=skylake, mail-user=ME on Slurm, m=abe, "
        "W=group_list=G on PBS; repeatable",
    )  # fmt: skip


def job_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print a job script, or write it to a file."""
    del context  # every command has one
    from areabench.files import refuse_existing, write_text

    _complete_options(options)
    _check_options(options)
    work = job_work(options)
    script = job_script(options, work)
    _warn_of_wheel(options)
    if work.is_tuned and options.array is not None:
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
    print(f"{output}: submit it with {'sbatch' if options.scheduler == 'slurm' else 'qsub'} {output}")
    return 0


# -------------------------------------------------------------------------------------------------- the options


def _complete_options(options: argparse.Namespace) -> None:
    """Fill in the defaults that depend on other options, or on this machine."""
    on_mpi = options.transport == "mpi"
    if options.clients is not None:
        options.overrides.append(f"clients.count={options.clients}")
    if options.array == 1:  # one task is no array
        options.array = None
    if options.exclusive is None:
        options.exclusive = on_mpi
    if options.venv is None and sys.prefix != sys.base_prefix:
        options.venv = Path(sys.prefix)
    if options.launcher is None:
        options.launcher = "srun" if options.scheduler == "slurm" else "mpirun"
    if options.mpi is None:
        options.mpi = _mpi_here() if on_mpi else "openmpi"


def _mpi_here() -> str:
    """The MPI that mpi4py uses here, or else that of the mpirun."""
    from areabench.launching.families import Family, mpi4py_family

    family = mpi4py_family()
    if family is None:
        from areabench.launching.mpirun import find_launcher

        try:
            family = find_launcher(None).family
        except UserError as error:
            raise UserError(
                f"--mpi: cannot be found out from the mpirun here: {error}; or give --mpi openmpi or --mpi mpich"
            ) from error
    return "mpich" if family == Family.MPICH else "openmpi"


def _check_options(options: argparse.Namespace) -> None:
    """Refuse what no scheduler could make sense of."""
    site_words = [("module", each) for each in options.modules]
    site_words += [("account", options.account), ("partition", options.queue)]
    for option, word in site_words:
        if word is not None and not _SITE_WORD.fullmatch(word):
            raise UserError(f"--{option} {word!r}: letters, digits and _.,:@/+=- are allowed; leave out all others")
    for directive in options.directives:
        if not _DIRECTIVE.fullmatch(directive):
            raise UserError(f"--directive {directive!r}: is not NAME=VALUE without spaces; write qos=long, for example")
    if options.scheduler == "pbs" and options.launcher == "srun":
        raise UserError("--launcher srun: PBS has no srun; use --launcher mpirun")
    if options.transport == "simulator" and options.nodes > 1:
        raise UserError(
            f"--nodes {options.nodes}: a job in the simulator has one node; divide a sweep over several with --array"
        )
    if options.walltime is not None and not re.fullmatch(r"\d{2,4}:[0-5]\d:[0-5]\d", options.walltime, re.ASCII):
        raise UserError(f"--walltime {options.walltime}: is not of the form HH:MM:SS; two hours are 02:00:00")


def _warn_of_wheel(options: argparse.Namespace) -> None:
    """Say that an MPI from a wheel is for one node."""
    if options.transport == "simulator" or options.nodes == 1 or options.venv is None:
        return
    packages = [path for name in _MPIS for path in options.venv.glob(f"lib/python*/site-packages/{name}-*.dist-info")]
    if packages:
        print(
            f"areabench: --nodes {options.nodes}: {options.venv} has an MPI from a wheel ({packages[0].stem}), which "
            "knows neither network nor launcher of a cluster; build against the site's: make install MPI=system",
            file=sys.stderr,
        )


# -------------------------------------------------------------------------------------------------- the work


class JobWork(NamedTuple):
    """The runs of a job, which each task of it makes one after the other."""

    name: str
    tasks: list[list[Experiment]]
    is_sweep: bool
    is_tuned: bool = False


def job_work(options: argparse.Namespace) -> JobWork:
    """The runs that are asked for, from their file."""
    from areabench.experiment.parse import load_experiment
    from areabench.settings.keys import slug
    from areabench.settings.toml import read_text, read_toml
    from areabench.sweeps.plan import Share, expected_tests, load_sweep

    file = options.file
    table = read_toml(read_text(file), str(file))
    if "sweep" not in table and "extends" not in table:
        for option, value in (("--trials", options.trials), ("--array", options.array)):
            if value is not None:
                raise UserError(f"{option}: {file} is one run; add a section [sweep] to it, or leave {option} out")
        experiment = load_experiment(file, options.overrides)
        name = f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}"
        return JobWork(name, [[experiment]], is_sweep=False)
    plan = load_sweep(file, options.overrides, options.trials)
    count = options.array or 1
    if count > len(plan.members):
        raise UserError(f"--array {count}: use at most {len(plan.members)}, the number of runs in the sweep")
    tasks = []
    for number in range(count):
        members = [*Share(number + 1, count).taken_from(plan).members]
        if plan.is_tuned:  # tuned: each share makes its part of the test runs too
            members += expected_tests(plan.file)[number::count]
        tasks.append([member.experiment for member in members if member.experiment is not None])
    return JobWork(plan.name, tasks, is_sweep=True, is_tuned=plan.is_tuned)


# -------------------------------------------------------------------------------------------------- the script


def job_script(options: argparse.Namespace, work: JobWork) -> str:
    """The templates of the scheduler and of what is run, with the options and what follows from them."""
    from areabench.plugins.trust import trust_options
    from areabench.sweeps.cost import walltime_in_simulator, walltime_on_mpi
    from areabench.views.styled import counted

    on_slurm = options.scheduler == "slurm"
    on_mpi = options.transport == "mpi"
    runs = [run for task in work.tasks for run in task]
    ranks = 1
    if on_mpi:
        clients = max(run.clients.count for run in runs)
        if options.clients_per_rank > clients:
            raise UserError(
                f"--clients-per-rank {options.clients_per_rank}: there are {clients} clients; use a number from 1 to "
                f"{clients}"
            )
        has_helper = any(run.privacy is not None for run in runs)
        ranks = 1 + has_helper + math.ceil(clients / options.clients_per_rank)
    if options.nodes > ranks:
        raise UserError(f"--nodes {options.nodes}: there are only {ranks} ranks; use that many nodes or fewer")

    changes = [word for each in options.overrides for word in ("--set", each)]
    environment = [f"module load {shlex.quote(module)} || exit 1" for module in options.modules]
    if options.venv is not None:
        environment.append(f"source {shlex.quote(str(options.venv / 'bin' / 'activate'))} || exit 1")
    values: dict[str, object] = vars(options) | {
        "what": f"{counted(len(runs), 'run')} of {ascii(str(options.file))}.",  # a comment is one line
        "name": re.sub(r"[^A-Za-z0-9_.-]", "_", work.name),
        "ranks": ranks,
        "environment": "\n".join(environment) or None,
        "experiment": shlex.join([str(options.file), *changes]),
    }
    if options.walltime is None:
        if on_mpi:
            longest = max(walltime_on_mpi(task, ranks) for task in work.tasks)
        else:
            longest = max(walltime_in_simulator(task, options.cores) for task in work.tasks)
        hours, minutes = divmod(math.ceil(longest.seconds / 60), 60)
        values |= {"walltime": f"{hours:02}:{minutes:02}:00", "estimate": longest.sum}

    path = Path("runs", work.name)
    if on_mpi:
        path = Path("runs", f"{work.name}-mpi")
        values |= {"command": "run", "mpi_ranks": ranks, "on_ranks": "--on-ranks", "cores_per_rank": 1}
        if options.launcher == "mpirun":
            values |= {"hosts": "", "binding": "--map-by core --bind-to core"}
            if options.mpi == "mpich":
                values["binding"] = "-bind-to core"
        elif options.mpi == "mpich":  # whose ranks find each other through PMI-2, and Open MPI's through PMIx
            values |= {"interface": "pmi2", "fresh_step": _filled("fresh_step", {})}
        else:
            values["interface"] = "pmix"
    else:
        values |= {"command": "simulate", "jobs": options.cores, "cores_per_rank": options.cores}

    if on_slurm:
        values |= {"folder": "SLURM_SUBMIT_DIR", "task": "SLURM_ARRAY_TASK_ID", "log": "%x-%j.out", "exclusive": None}
        if options.array is not None:
            values["log"] = "%x-%A_%a.out"
        if options.exclusive:
            values["exclusive"] = "exclusive"
        if options.nodes > 1:
            values["ranks_per_node"] = math.ceil(ranks / options.nodes)
        if "interface" in values:
            values["signal"] = "USR1"  # for the tasks of srun
        else:  # for the script
            values |= {"signal": "B:USR1", "passing_on": _filled("passing_on", {}), "pass_on": "passing_on"}
        if work.is_sweep:
            del values["signal"]
    else:
        # PBS has short names that begin with a letter.
        name = str(values["name"])
        if not name[:1].isalpha():
            name = f"job-{name}"
        values |= {"folder": "PBS_O_WORKDIR", "task": "PBS_ARRAY_INDEX", "name": name[:_PBS_NAME_LENGTH]}
        values |= {"chunks": _pbs_chunks(options, ranks if on_mpi else options.cores), "place": "scatter"}
        if options.exclusive:
            values["place"] = "scatter:excl"
        if "hosts" in values:
            values["hosts"] = '--hostfile "$PBS_NODEFILE" '
            if options.mpi == "mpich":
                values["hosts"] = '-f "$PBS_NODEFILE" '
        hours, minutes, seconds = map(int, str(values["walltime"]).split(":"))
        limit_s = 3600 * hours + 60 * minutes + seconds
        values["warned_after_s"] = max(limit_s - _WARNING_S, limit_s // 2)

    head = _filled(options.scheduler, values)
    head += _directive_lines(options, head)
    if work.is_sweep:
        values["output"] = shlex.quote(str(options.runs or path))
        return f"{head}\n{_filled('sweep', values)}"
    path = path.with_name(f"{path.name}.h5")
    if options.runs is not None:
        path = run_file_path(str(options.runs))
    values["output"] = shlex.quote(str(path))
    values["trust"] = ""
    if trust := trust_options(runs[0]):
        values["trust"] = f" {trust}"
    return f"{head}\n{_filled('run', values)}"


def _pbs_chunks(options: argparse.Namespace, cores: int) -> str:
    """The cores, spread evenly over the nodes; where that does not come out even, the first ones get one more."""
    each, more = divmod(cores, options.nodes)
    chunks = []
    for nodes, per_node in ((more, each + 1), (options.nodes - more, each)):
        chunk = f"{nodes}:ncpus={per_node}"
        if options.transport == "mpi":
            chunk += f":mpiprocs={per_node}"
        if options.memory_mb is not None:
            chunk += f":mem={options.memory_mb * per_node}mb"
        if nodes:
            chunks.append(chunk)
    return "+".join(chunks)


def _filled(name: str, values: Mapping[str, object]) -> str:
    """A template with its values; a line with a value that is missing or None is left out."""
    template = Path(__file__).with_name("job_templates") / f"{name}.sh"
    lines = []
    for line in template.read_text(encoding="utf-8").splitlines():
        if all(values.get(field) is not None for field in _FIELD.findall(line)):
            lines.append(_FIELD.sub(lambda found: str(values[found[1]]), line))
    return "\n".join(lines) + "\n"


def _directive_lines(options: argparse.Namespace, head: str) -> str:
    """The lines of `--directive`, none of which may set what the head of the script sets already."""
    lines: list[str] = []
    for directive in options.directives:
        name, _, value = directive.lstrip("-").partition("=")
        if options.scheduler == "pbs":
            line = f"#PBS -{name} {value}".rstrip()
        elif len(name) == 1:
            line = f"#SBATCH -{name} {value}".rstrip()
        else:
            line = f"#SBATCH --{name}={value}".removesuffix("=")
        if _subject(line) in map(_subject, [*head.splitlines(), *lines]):
            raise UserError(
                f"--directive {directive}: the script has that line; use the option of `areabench job` for it"
            )
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _subject(line: str) -> str:
    """What a directive sets: `#SBATCH --time`, `#PBS -N`, `#PBS -l walltime`."""
    words = line.partition("=")[0].split()
    return " ".join(words if words[1:2] in (["-l"], ["-W"]) else words[:2])


COMMAND = Command(
    "benchmarks/experiments/paper/paper.toml --scheduler slurm --nodes 4 --clients-per-rank 8 -o paper.sh",
    job_options,
    job_command,
)
