"""Ranks on two hosts: two network namespaces with addresses and names of their own, joined by one wire, TCP only."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from areabench.engine.events import State
from areabench.launching.families import Family, mpi4py_family, version_in
from areabench.launching.mpirun import find_launcher, rank_command

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(150)]

ADDRESSES = ("10.213.77.1", "10.213.77.2")
LIMIT_S = 20.0  # for a command that makes or removes a part of the network
# What a remote shell does, as far as launchers need it: options, the address, the command.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
echo "$*" >> {log}
exec {there} sh -c "$*"
"""


@dataclass(frozen=True)
class Host:
    """A network namespace: its name, the end of the wire in it, its address."""

    name: str
    wire: str
    address: str

    def run(self, *words: str) -> str:
        """What a command prints that runs on this host."""
        return command(*self.prefix(), *words)

    def prefix(self) -> list[str]:
        """Put before a command, this runs it here, under a host name of its own."""
        named = f'hostname {self.name}; exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", named, "sh"]

    def sent_bytes(self) -> int:
        """The bytes sent over the wire."""
        return int(self.run("cat", f"/sys/class/net/{self.wire}/statistics/tx_bytes"))


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode:
        raise OSError(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Two hosts that see each other, or the reason why there are none."""
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: the packages iproute2, util-linux, hostname)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if " " in sys.prefix:
        pytest.skip("launchers name their daemons to a remote shell without quotes; this path has a space in it")
    with ExitStack() as stack:
        try:
            pair = stack.enter_context(two_hosts())
        except OSError as error:
            pytest.skip(f"no network namespaces here: {error}")
        yield pair


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts and the wire between them; removed whatever happens, with all that runs on them."""
    names = [f"ab{os.getpid()}{end}" for end in "ab"]  # short: a wire's name has at most 15 letters
    pair = [Host(name, f"w{name}", address) for name, address in zip(names, ADDRESSES, strict=True)]
    with ExitStack() as stack:
        for host in pair:
            command("ip", "netns", "add", host.name)
            stack.callback(remove, host)
        connect(*pair)
        yield pair


def remove(host: Host) -> None:
    """End what still runs on a host, and delete it; its end of the wire goes with it, and so does the wire."""
    for process in command("ip", "netns", "pids", host.name).split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    command("ip", "netns", "delete", host.name)


def connect(here: Host, there: Host) -> None:
    """Lay the wire and give both ends their address."""
    command(
        "ip", "link", "add", here.wire, "netns", here.name, "type", "veth", "peer", "name", there.wire, "netns",
        there.name,
    )  # fmt: skip
    for host in (here, there):
        command("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", host.wire)
        for device in ("lo", host.wire):
            command("ip", "-n", host.name, "link", "set", device, "up")
        host.run("true")  # a host name of its own is allowed


def across(here: Host, there: Host, agent: Path, program: list[str]) -> list[str]:
    """The command that starts the server here and two clients there, over the wire only."""
    agent.write_text(AGENT.format(there=shlex.join(there.prefix()), log=shlex.quote(f"{agent}.log")))
    agent.chmod(0o755)
    shares = f"{here.address}:1,{there.address}:2"
    if mpi4py_family() == Family.MPICH:
        extra = ["-launcher", "ssh", "-launcher-exec", str(agent), "-iface", here.wire, "-hosts", shares]
        extra += [
            "-genv",
            "UCX_TLS",
            "tcp,self",
            "-genv",
            "FI_PROVIDER",
            "tcp",
        ]  # they would find out, and share memory
    else:
        extra = ["--host", shares, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]
        extra += ["--mca", "btl_tcp_if_include", f"{here.address}/24", *agent_options(agent)]
    return [*here.prefix(), *rank_command(3, program, extra)]


def agent_options(agent: Path) -> list[str]:
    """Open MPI starts its ranks elsewhere by a program that it calls ssh since version 5, and rsh before."""
    major = version_in(find_launcher(Family.OPEN_MPI).says).partition(".")[0]
    if int(major) < 5:
        return ["--mca", "plm_rsh_agent", str(agent)]
    return ["--prtemca", "plm_ssh_agent", str(agent)]


def test_a_server_and_its_clients_on_two_hosts(quadratic: Launcher, hosts: list[Host]) -> None:
    here, there = hosts
    before = [host.sent_bytes() for host in hosts]
    program = ["-m", "areabench", "run", str(quadratic.experiment), "--output", str(quadratic.run_file)]
    program += ["--set", "problem.dimension=500", "--set", "stop.horizon_s=1.5"]
    ended = quadratic.start(across(here, there, quadratic.folder / "agent", program))
    assert ended.code == 0, ended.errors
    sent = [host.sent_bytes() - first for host, first in zip(hosts, before, strict=True)]
    with quadratic.recorded() as run:
        assert (run.status.state, run.provenance.ranks) == (State.DONE, 3)
        assert run.provenance.hosts == f"{here.name},{there.name}"
        model_bytes = run.models[0].nbytes
        assert run.status.updates > 10
        assert min(sent) > run.status.updates * model_bytes  # each update came over the wire, and so did each model
    assert quadratic.replay() == 0
    assert (quadratic.folder / "agent.log").read_text()  # the launcher has used the other host
