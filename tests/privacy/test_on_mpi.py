"""Secure aggregation on MPI: a helper rank beside server and clients, what it refuses, and what happens without it."""

from __future__ import annotations

import base64
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.launched.conftest import Launcher, own_cache, quadratic
from tests.launched.test_signals import Launched, launched

from areabench.cli import main as cli
from areabench.engine.events import State
from areabench.launching.families import Family, mpi4py_family
from areabench.launching.mpirun import find_launcher, mpirun_command

__all__ = ["launched", "own_cache", "quadratic"]  # fixtures
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]

PRIVATE = ("privacy.bits=32", "aggregation.updates=3")
SET_PRIVATE = tuple(word for each in PRIVATE for word in ("--set", each))
NOTED_KEYS = """
from pathlib import Path
from areabench.privacy import keys

agree = keys.KeyPair.agree

def noted(self, public, client):
    key = agree(self, public, client)
    with Path({folder!r}, f"{{rank}}").open("a") as file:
        print(key.hex(), self._private.private_bytes_raw().hex(), file=file)
    return key

keys.KeyPair.agree = noted
"""
GREEDY_SERVER = """
from areabench.transports.mpi_server import MpiHelperLink

total, asked = MpiHelperLink.total, []

def greedy(self, names):
    asked.append(names)
    return total(self, {names})

MpiHelperLink.total = greedy
"""


@pytest.fixture(autouse=True)
def own_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AREABENCH_CLIENT_SECRET", str(tmp_path / "client-secret"))


@pytest.mark.parametrize("method", ["area", "fedbuff", "dude"])
@pytest.mark.parametrize("ranks", [3, 4])  # two clients on one rank, or one on each
def test_a_private_run_replays_bit_for_bit(quadratic: Launcher, method: str, ranks: int) -> None:  # noqa: F811
    ended = quadratic.run(ranks, *PRIVATE, f"method.name={method}")
    assert ended.code == 0, ended.errors
    with quadratic.recorded() as run:
        assert run.status.state == State.DONE
        assert run.status.server_steps > 3
        assert not run.events_array["digest"][run.events_array["kind"] == 0].any()  # of updates that nobody can read
        assert run.provenance.ranks == ranks
        assert run.diagnosis is not None
        assert run.diagnosis.ranks == ranks - 1  # the helper is no client
    assert quadratic.replay() == 0


def test_updates_that_are_clipped_are_counted(quadratic: Launcher) -> None:  # noqa: F811
    ended = quadratic.run(3, *PRIVATE, "privacy.range=0.1", "method.name=fedbuff", "method.step_size=0.2")
    assert ended.code == 0, ended.errors
    with quadratic.recorded() as run:
        assert run.clipped > 0
        assert f"{run.clipped} updates had entries beyond privacy.range = 0.1" in ended.errors
    assert quadratic.replay() == 0


def test_too_few_ranks_leave_none_for_the_clients(quadratic: Launcher) -> None:  # noqa: F811
    ended = quadratic.run(2, *PRIVATE)
    assert ended.code == 2
    assert "2 ranks, the server's and the helper's, leave none for the clients; start 3 to 4: " in ended.errors
    ended = quadratic.run(5, *PRIVATE)
    assert ended.code == 2
    assert "5 ranks are more than one server, one helper and clients.count = 2 clients can use; " in ended.errors


@pytest.mark.parametrize("tolerance", ["auto", "off"])
def test_a_run_without_its_helper_fails_and_can_be_resumed(
    quadratic: Launcher,  # noqa: F811
    launched: Callable[..., Launched],  # noqa: F811
    tolerance: str,
) -> None:
    run = launched("--set", "stop.horizon_s=4", *SET_PRIVATE, "--fault-tolerant", tolerance)
    os.kill(run.rank(3), signal.SIGKILL)
    assert run.ended() != 0, run.output
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.FAILED
        if tolerance == "auto" and find_launcher(mpi4py_family()).survives:
            assert "the helper's rank 3 is gone, and masked updates are of no use without it" in recorded.status.reason
        steps = recorded.status.server_steps
    assert quadratic.replay() == 0
    ended = quadratic.start([sys.executable, "-m", "areabench", "resume", str(quadratic.run_file)])
    assert ended.code == 0, ended.errors
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.DONE
        assert recorded.status.server_steps > steps
    assert quadratic.replay() == 0


def test_a_signal_stops_a_private_run_and_it_can_continue(
    quadratic: Launcher,  # noqa: F811
    launched: Callable[..., Launched],  # noqa: F811
) -> None:
    run = launched("--set", "stop.horizon_s=3", *SET_PRIVATE)
    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 4, run.output
    assert quadratic.start([sys.executable, "-m", "areabench", "resume", str(quadratic.run_file)]).code == 0
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.DONE
    assert quadratic.replay() == 0


def test_a_client_that_is_killed_leaves_its_last_updates_usable(
    quadratic: Launcher,  # noqa: F811
    launched: Callable[..., Launched],  # noqa: F811
) -> None:
    if not find_launcher(mpi4py_family()).survives:
        pytest.skip("this MPI cannot continue without a rank")
    run = launched("--set", "stop.horizon_s=2", "--set", "clients.count=3", *SET_PRIVATE)
    os.kill(run.rank(2), signal.SIGKILL)
    assert run.ended() == 0, run.output
    with quadratic.recorded() as recorded:
        assert (recorded.status.state, recorded.status.lost) == (State.DONE, 1)
    assert quadratic.replay() == 0


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("names[:1]", "a sum of 1 clients is below the threshold of 2"),
        ("[*names, names[0]]", "was part of a sum before"),
        ("asked[0]", "was part of a sum before"),
        ("[*names, (7, 0)]", "there is no update 0 of client 7"),
    ],
)
def test_the_helper_refuses_and_the_run_fails(quadratic: Launcher, names: str, why: str) -> None:  # noqa: F811
    """A server that asks for one update alone, for one twice, or for one that is not there."""
    ended = quadratic.run(3, *PRIVATE, "stop.horizon_s=3", defect=GREEDY_SERVER.format(names=names))
    assert ended.code == 1, ended.errors
    with quadratic.recorded() as run:
        assert run.status.state == State.FAILED
        assert "the helper gives no sum of" in run.status.reason
        assert why in run.status.reason


def test_keys_are_in_no_file_and_a_resumed_run_has_new_ones(
    quadratic: Launcher,  # noqa: F811
    launched: Callable[..., Launched],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Agreed and private keys, in bytes, hexadecimal and base64: not in run file, checkpoint, output or log."""
    folder = tmp_path / "keys"
    folder.mkdir()
    quadratic.write_defect(NOTED_KEYS.format(folder=str(folder)))
    words = ["--output", str(quadratic.run_file), *SET_PRIVATE, "--checkpoint-every", "0.2"]
    command = mpirun_command(4, ["run", str(quadratic.experiment), *words])
    ended = quadratic.start(["broken" if word == "areabench" else word for word in command])
    assert ended.code == 0, ended.errors
    keys = {bytes.fromhex(word) for path in folder.iterdir() for word in path.read_text().split()}
    assert len(keys) == 2 + 3  # those agreed of two clients, the private ones of the clients and the helper
    kept = [path for path in quadratic.folder.rglob("*") if path.is_file() and path.parent != folder]
    texts = [path.read_bytes() for path in kept if path.name != "client-secret"]
    assert quadratic.run_file in kept
    for key in keys:
        for form in (key, key.hex().encode(), base64.b64encode(key)):
            assert all(form not in text for text in texts)


def test_the_server_is_near_to_the_same_experiment_in_virtual_time(quadratic: Launcher, tmp_path: Path) -> None:  # noqa: F811
    """One client's rounds on MPI and in the simulator differ in their order only, so both end near one point."""
    assert quadratic.run(4, *PRIVATE, "stop.horizon_s=2").code == 0
    with quadratic.recorded() as real, quadratic.simulated(*PRIVATE, "stop.horizon_s=2") as virtual:
        assert np.abs(real.models[-1] - virtual.models[-1]).max() < 0.1


def test_a_private_sweep_on_mpi(quadratic: Launcher, tmp_path: Path) -> None:  # noqa: F811
    if mpi4py_family() == Family.MPICH:
        pytest.skip("one MPI is enough")
    sweep = tmp_path / "sweep.toml"
    text = quadratic.experiment.read_text() + "[aggregation]\nupdates = 3\n[privacy]\n"
    sweep.write_text(
        text + '[sweep]\ntrials = 1\n[[sweep.grid]]\nmethod.name = ["area", "fedbuff"]\nmethod.step_size = [0.02]\n'
    )
    try:
        code = cli.main(["sweep", str(sweep), "--transport", "mpi", "--output", str(tmp_path / "runs")])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 0
    assert len(list((tmp_path / "runs").rglob("*.h5"))) == 2
