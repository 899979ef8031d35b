"""`areabench job`: a job script for an experiment or a sweep, with the resources and the walltime that it needs.

The scripts are in `job_templates`: the head of a scheduler, and what the job does. `{{name}}` stands for a value.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from areabench.cli import Command, CommandContext
from areabench.cli.options import force_option, positive, run_file, set_option
from areabench.errors import UserError

_MPIS = ("openmpi", "mpich")  # or what behaves like it
_WARNING_S = 60  # between the signal at which a run writes its checkpoint and stops, and the end of the walltime
_PBS_NAME_LENGTH = 15  # characters; newer versions take more
_SITE_WORD = re.compile(r"[A-Za-z0-9_.,:@/+=-]+")
_DIRECTIVE = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9-]*)(?:=([!-~]+))?")  # name, and a value of printable characters


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
    script = _script(options, work)
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
        from areabench.launching.mpirun import ask_launcher, find_mpirun

        try:
            family = ask_launcher(find_mpirun()).family
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
    """The runs of a job."""

    name: str
    is_sweep: bool
    is_tuned: bool
    runs: int
    ranks: int  # 0 in the simulator
    has_helper: bool  # a rank of its own
    walltime: str  # HH:MM:SS, of the longest task
    estimate: str  # how the walltime comes about
    trust: str = ""  # options with which a single run is resumed that calls code of the user's own


def job_work(options: argparse.Namespace) -> JobWork:
    """The runs that are asked for, from their file."""
    from areabench.experiment.parse import load_experiment
    from areabench.plugins.trust import trust_options
    from areabench.settings.keys import slug
    from areabench.settings.toml import read_text, read_toml
    from areabench.sweeps.plan import Share, expected_tests, load_sweep
    from areabench.sweeps.walltime import walltime_in_simulator, walltime_on_mpi

    file = options.file
    is_tuned = False
    trust = ""
    table = read_toml(read_text(file), str(file))
    is_sweep = "sweep" in table or "extends" in table
    if is_sweep:
        plan = load_sweep(file, options.overrides, options.trials)
        count = options.array or 1
        if count > len(plan.members):
            raise UserError(f"--array {count}: use at most {len(plan.members)}, the number of runs in the sweep")
        shares = [Share(number, count).taken_from(plan).members for number in range(1, count + 1)]
        if plan.file is not None:  # tuned: each share makes its part of the test runs too
            is_tuned = True
            tests = expected_tests(plan.file)
            shares = [(*share, *tests[number::count]) for number, share in enumerate(shares)]
        name = plan.name
        tasks = [[member.experiment for member in share if member.experiment is not None] for share in shares]
    else:
        if options.trials is not None or options.array is not None:
            option = "--trials" if options.trials is not None else "--array"
            raise UserError(f"{option}: {file} is one run; add a section [sweep] to it, or leave {option} out")
        experiment = load_experiment(file, options.overrides)
        name = f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}"
        trust = trust_options(experiment)
        tasks = [[experiment]]
    runs = [run for task in tasks for run in task]
    has_helper = any(run.privacy is not None for run in runs)
    ranks = 0
    if options.transport == "mpi":
        clients = max(run.clients.count for run in runs)
        if options.clients_per_rank > clients:
            raise UserError(
                f"--clients-per-rank {options.clients_per_rank}: there are {clients} clients; use a number from 1 to "
                f"{clients}"
            )
        ranks = 1 + has_helper + -(-clients // options.clients_per_rank)
    if options.nodes > max(ranks, 1):
        raise UserError(f"--nodes {options.nodes}: there are only {ranks} ranks; use that many nodes or fewer")
    walltime = options.walltime
    estimate = "as asked for"
    if walltime is None:
        longest = max(
            walltime_on_mpi(task, ranks) if ranks else walltime_in_simulator(task, options.cores) for task in tasks
        )
        minutes = -(-longest.seconds // 60)
        walltime = f"{minutes // 60:02.0f}:{minutes % 60:02.0f}:00"
        estimate = longest.sum
    return JobWork(name, is_sweep, is_tuned, len(runs), ranks, has_helper, walltime, estimate, trust)


# -------------------------------------------------------------------------------------------------- the script


def _script(options: argparse.Namespace, work: JobWork) -> str:
    """The templates with their values; a line that is empty once these are filled in is left out."""
    on_slurm = options.scheduler == "slurm"
    by_srun = work.ranks > 0 and options.launcher == "srun"
    directives = list(_slurm_directives(options, work) if on_slurm else _pbs_directives(options, work))
    taken = set(map(_subject, [*directives, *_template(options.scheduler).splitlines()]))
    for directive in options.directives:
        line = _directive_line(options.scheduler, directive)
        if _subject(line) in taken:
            raise UserError(
                f"--directive {directive}: the script has that line; use the option of `areabench job` for it"
            )
        directives.append(line)
        taken.add(_subject(line))

    before = []
    start = []
    if by_srun and options.mpi == "mpich":
        before.append(_template("fresh_step"))
    if not work.is_sweep and on_slurm and not by_srun:  # srun gets the signal itself
        before.append(_template("passing_on"))
        start.append("passing_on")
    if not work.is_sweep and not on_slurm:
        before.append("# PBS does not warn: the run is told to stop while there is time for its checkpoint.")
        hours, minutes, seconds = map(int, work.walltime.split(":"))
        limit_s = 3600 * hours + 60 * minutes + seconds
        warned_after_s = max(limit_s - _WARNING_S, limit_s // 2)
        start.append(f"timeout --foreground --preserve-status --signal=USR1 {warned_after_s}")
    if work.ranks:
        start.append(_launcher(options, work))

    environment = [f"module load {shlex.quote(module)} || exit 1" for module in options.modules]
    if options.venv is not None:
        environment.append(f"source {shlex.quote(str(options.venv / 'bin' / 'activate'))} || exit 1")
    changes = [word for each in options.overrides for word in ("--set", each)]
    values = {
        "purpose": "\n".join(_comments(options, work)),
        "directives": "\n".join(directives),
        "environment": "\n".join(environment),
        "experiment": shlex.join([str(options.file), *changes]),
        "before": "\n\n".join(before),
        "start": "".join(f"{line} \\\n" for line in start) + "  " * (work.ranks > 0),
    }
    output = options.runs or Path("runs") / f"{work.name}{'-mpi' * (work.ranks > 0)}"
    if work.is_sweep:
        values |= {"command": "sweep", "options": _sweep_options(options, work)}
    else:
        output = run_file(f"{output}.h5" if options.runs is None else str(output))
        values |= {"command": "run" if work.ranks else "simulate", "options": f" {work.trust}" * bool(work.trust)}
    values["output"] = shlex.quote(str(output))
    head = _filled(_template(options.scheduler), values)
    return head + _filled(_template("sweep" if work.is_sweep else "run"), values)


def _template(name: str) -> str:
    return Path(__file__).with_name("job_templates").joinpath(f"{name}.sh").read_text(encoding="utf-8").rstrip("\n")


def _filled(template: str, values: Mapping[str, str]) -> str:
    lines = []
    for line in template.splitlines():
        filled = re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], line)
        if filled or not line:
            lines.append(f"{filled}\n")
    return "".join(lines)


def _comments(options: argparse.Namespace, work: JobWork) -> Iterator[str]:
    """What the script runs, and where, in lines of at most 110 characters."""
    import textwrap

    file = "".join(letter if letter.isprintable() else "?" for letter in str(options.file))  # a comment is one line
    what = f"The sweep {file}, {work.runs:,} run{'s' * (work.runs != 1)}" if work.is_sweep else f"One run of {file}"
    if options.array is not None:
        what += f", divided among {options.array} tasks, each"
    texts = []
    if work.ranks:
        clients = "one client"
        if options.clients_per_rank > 1:
            clients = f"up to {options.clients_per_rank} clients"
        workers = work.ranks - 1 - work.has_helper
        apart = "the server, the helper" if work.has_helper else "the server"
        texts.append(
            f"{what} on {work.ranks} MPI ranks: {apart}, and {workers} worker rank{'s' * (workers != 1)} of {clients} "
            "each."
        )
        texts.append("Each rank has a core of its own, the server too: it is rank 0, the first one on the first node.")
    else:
        texts.append(f"{what} in the simulator, on {options.cores} core{'s' * (options.cores != 1)}.")
    texts.append(f"Walltime: {work.estimate}.")
    if not work.is_sweep:
        texts.append("A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4).")
    for text in texts:
        yield from textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _slurm_directives(options: argparse.Namespace, work: JobWork) -> Iterator[str]:
    signal = None
    if not work.is_sweep:  # to the tasks of srun, or else to the script, which passes it on
        signal = f"{'' if work.ranks and options.launcher == 'srun' else 'B:'}USR1@{_WARNING_S}"
    values = {
        "job-name": _job_name(work),
        "nodes": options.nodes,
        "ntasks": work.ranks or 1,
        "ntasks-per-node": -(-work.ranks // options.nodes) if options.nodes > 1 else None,
        "cpus-per-task": 1 if work.ranks else options.cores,
        "threads-per-core": 1,
        "array": None if options.array is None else f"1-{options.array}",
        "time": work.walltime,
        "account": options.account,
        "partition": options.queue,
        "mem-per-cpu": None if options.memory_mb is None else f"{options.memory_mb}M",
        "signal": signal,
        "output": "%x-%j.out" if options.array is None else "%x-%A_%a.out",
    }
    yield from (f"#SBATCH --{name}={value}" for name, value in values.items() if value is not None)
    if options.exclusive:
        yield "#SBATCH --exclusive"


def _pbs_directives(options: argparse.Namespace, work: JobWork) -> Iterator[str]:
    name = _job_name(work)
    yield f"#PBS -N {(name if name[:1].isalpha() else f'job-{name}')[:_PBS_NAME_LENGTH]}"  # begins with a letter
    # The ranks are spread evenly over the nodes; where that does not come out even, the first ones get one more.
    each, more = divmod(work.ranks or options.cores, options.nodes)
    chunks = []
    for nodes, cores in ((more, each + 1), (options.nodes - more, each)):
        if nodes:
            ranks = f":mpiprocs={cores}" if work.ranks else ""
            memory = "" if options.memory_mb is None else f":mem={options.memory_mb * cores}mb"
            chunks.append(f"{nodes}:ncpus={cores}{ranks}{memory}")
    yield f"#PBS -l select={'+'.join(chunks)}"
    yield f"#PBS -l place=scatter{':excl' * options.exclusive}"
    yield f"#PBS -l walltime={work.walltime}"
    for option, value in (("J", options.array and f"1-{options.array}"), ("A", options.account), ("q", options.queue)):
        if value is not None:
            yield f"#PBS -{option} {value}"


def _job_name(work: JobWork) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)


def _directive_line(scheduler: str, directive: str) -> str:
    """A directive as the scheduler reads it."""
    match = _DIRECTIVE.fullmatch(directive)
    assert match is not None
    name, value = match.groups(default="")
    if scheduler == "pbs":
        return f"#PBS -{name} {value}".rstrip()
    if len(name) == 1:
        return f"#SBATCH -{name} {value}".rstrip()
    return f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"


def _subject(line: str) -> str:
    """What a directive sets: `#SBATCH --time`, `#PBS -N`, `#PBS -l walltime`."""
    words = line.partition("=")[0].split()
    return " ".join(words if words[1:2] in (["-l"], ["-W"]) else words[:2])


def _launcher(options: argparse.Namespace, work: JobWork) -> str:
    """The start of a command that gives each rank a core."""
    if options.launcher == "srun":  # ranks find each other through PMIx in Open MPI, and through PMI-2 in MPICH
        interface = "pmi2" if options.mpi == "mpich" else "pmix"
        return f"srun --mpi={interface} --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1"
    hosts = ""
    if options.scheduler == "pbs":
        hosts = f'{"--hostfile" if options.mpi == "openmpi" else "-f"} "$PBS_NODEFILE" '
    binding = "--map-by core --bind-to core" if options.mpi == "openmpi" else "-bind-to core"
    return f"mpirun {hosts}-n {work.ranks} {binding}"


def _sweep_options(options: argparse.Namespace, work: JobWork) -> str:
    """What follows the file of a sweep and its folder."""
    words = []
    if options.trials is not None:
        words.append(f"--trials {options.trials}")
    if work.ranks:
        words.append("--transport mpi --on-ranks")
    elif options.scheduler == "slurm":
        words.append('--jobs "$SLURM_CPUS_PER_TASK"')
    else:
        words.append(f"--jobs {options.cores}")
    if options.array is not None:
        task = "SLURM_ARRAY_TASK_ID" if options.scheduler == "slurm" else "PBS_ARRAY_INDEX"
        words.append(f'--share "${task}/{options.array}"')
    return "".join(f" {word}" for word in words)


COMMAND = Command(
    "benchmarks/experiments/paper/paper.toml --scheduler slurm --nodes 4 --clients-per-rank 8 -o paper.sh",
    job_options,
    job_command,
)
