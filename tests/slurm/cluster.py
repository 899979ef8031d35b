"""A Slurm of one node in a folder of its own: its configuration, key, state, logs and ports; no service is touched."""

from __future__ import annotations

import ctypes
import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
PMIX = "libpmix.so"  # what `srun --mpi=pmix` opens; in Debian it is in the package for developers
PACKAGES = ("slurm-wlm", "munge", "libpmix-dev")
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # where daemons are, which is not on every user's path
CORES = 8  # that Slurm believes in: ranks of a small run mostly sleep, and may outnumber real cores
NODE = socket.gethostname().split(".")[0]  # Open MPI does not start on a node of another name
REQUEUE_S = 5  # a job that is requeued waits until the credentials of its first start have expired
UP_S = 30.0
COMMAND_S = 30.0
END_S = 20.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


class Trouble(Exception):
    """Something that should have worked."""


class Cluster:
    """The commands of a running Slurm."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def call(self, *command: str) -> str:
        """Run a command; what it prints."""
        done = subprocess.run(
            command, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=COMMAND_S,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise Trouble(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def states(self, job: str) -> list[str]:
        """The state of a job, or of each task of an array."""
        return re.findall(r"\bJobState=(\w+)", self.call("scontrol", "show", "job", "-o", job))

    def wait(self, job: str, limit_s: float) -> list[str]:
        """Wait until a job has ended; its states."""
        until(lambda: set(self.states(job)) <= ENDED, limit_s, lambda: f"job {job} is still {self.states(job)}")
        return self.states(job)

    def requeue(self, job: str, begun: Path, limit_s: float) -> None:
        """Send a job back to the queue once it has begun a file."""
        until(begun.exists, limit_s, lambda: f"job {job} has not begun {begun}, it is {self.states(job)}")
        self.call("scontrol", "requeue", job)

    def stop(self, job: str, begun: Path, limit_s: float) -> None:
        """Warn a job as Slurm does before the walltime ends, once it has begun a file; requeue it when it has ended."""
        until(begun.exists, limit_s, lambda: f"job {job} has not begun {begun}, it is {self.states(job)}")
        self.call("scancel", "--signal=USR1", job)
        if self.wait(job, limit_s) != ["FAILED"]:  # exit code 4
            raise Trouble(f"job {job} was stopped, and is {self.states(job)}")
        self.call("scontrol", "requeue", job)
        until(lambda: set(self.states(job)).isdisjoint(ENDED), limit_s, lambda: f"job {job} does not begin again")

    def end_all(self) -> None:
        """End what still runs, and wait for it: as long as a step has a process, its socket is in the spool."""
        with suppress(Trouble, subprocess.TimeoutExpired):
            if self.call("squeue", "--noheader"):
                self.call("scancel", "--full", "--user", getpass.getuser())
            until(lambda: not self.call("squeue", "--noheader"), END_S, lambda: "jobs outlive scancel")
            until(lambda: not [*(self._folder / "spool").glob(f"{NODE}_*")], END_S, lambda: "steps outlive their jobs")


def until(holds: Callable[[], bool], limit_s: float, trouble: Callable[[], str]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end_s:
            raise Trouble(f"{trouble()} after {limit_s:g} s")
        time.sleep(0.2)


def why_not() -> str:
    """Why there is no Slurm here; empty if there is."""
    os.environ["PATH"] += f":{SYSTEM_PATH}"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    try:
        ctypes.CDLL(PMIX)
    except OSError:
        missing.append(PMIX)
    if not missing:
        return ""
    return f"{', '.join(missing)} not found (Debian: apt-get install {' '.join(PACKAGES)})"


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Start munged, slurmctld and slurmd in a folder; end them, and all jobs, whatever happens."""
    folder.chmod(0o755)  # munged needs a socket that all users can reach
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(_configuration(folder))
    version = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=False).stdout
    plugin = "cgroup/v1"
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= (23, 11):
        plugin = "disabled"
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    socket_file = folder / "munge.socket"
    files = [f"--{name}-file={folder / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")]
    cluster = Cluster(folder, environment)

    def is_idle() -> bool:
        with suppress(Trouble):
            return "State=IDLE" in cluster.call("scontrol", "show", "node", NODE)
        return False

    with ExitStack() as stack:
        stack.enter_context(_daemon(["munged", "--foreground", f"--socket={socket_file}", *files], folder, environment))
        until(socket_file.exists, UP_S, lambda: f"munged: {_log(folder, 'munged')}")
        stack.enter_context(_daemon(["slurmctld", "-D", "-c"], folder, environment))
        stack.enter_context(_daemon(["slurmd", "-D", "-N", NODE], folder, environment))
        stack.callback(cluster.end_all)
        until(is_idle, UP_S, lambda: f"slurmctld: {_log(folder, 'slurmctld')}; {_log(folder, 'slurmd')}")
        yield cluster


@contextmanager
def _daemon(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """One daemon, in a session of its own: an interrupt from the keyboard is for the test, which then ends it."""
    with (folder / f"{command[0]}.out").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _log(folder: Path, daemon: str) -> str:
    lines = (folder / f"{daemon}.out").read_text(errors="replace").splitlines()
    return " / ".join(lines[-4:]) or "says nothing"


def _configuration(folder: Path) -> str:
    user = getpass.getuser()
    first_job = 1 + secrets.randbelow(10**6)  # MPICH names shared memory after the job, and a killed rank leaves it
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        controller_port = one.getsockname()[1]
        node_port = two.getsockname()[1]
    return f"""\
ClusterName=try
SlurmctldHost={NODE}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder / "munge.socket"},cred_expire={REQUEUE_S}
StateSaveLocation={folder / "state"}
SlurmdSpoolDir={folder / "spool"}
SlurmctldPidFile={folder / "slurmctld.pid"}
SlurmdPidFile={folder / "slurmd.pid"}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,sched_min_interval=100000
SlurmdParameters=config_overrides
JobRequeue=1
FirstJobId={first_job}
ReturnToService=2
KillWait=5
NodeName={NODE} NodeAddr=127.0.0.1 CPUs={CORES} CoresPerSocket={CORES} State=UNKNOWN
PartitionName=all Nodes={NODE} Default=YES State=UP
"""
