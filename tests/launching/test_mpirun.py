"""Which signals mpirun gets; shell scripts replace mpirun, and end when the test says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from areabench.launching import watch
from areabench.launching.watch import LauncherExit, supervise

_LOOP = "echo up > {up}; while :; do sleep 0.02; done"
PATIENT = "trap 'echo usr1 >> {heard}; exit 4' USR1; " + _LOOP
DEAF = "trap 'echo usr1 >> {heard}' USR1; trap 'echo term >> {heard}; exit 5' TERM; " + _LOOP
DEAFER = "trap '' USR1 TERM; " + _LOOP
SUPERVISOR = """
import sys
from areabench.launching.watch import supervise
ending = supervise(["/bin/sh", "-c", sys.argv[1]])
print(ending.shell_code, ending.signal)
"""


class Supervised:
    """A process that supervises a script, so that signals can be sent to it."""

    def __init__(self, folder: Path, script: str) -> None:
        self.heard, self._up = folder / "heard", folder / "up"
        text = f"echo $$ > {folder / 'pid'}; " + script.format(heard=self.heard, up=self._up)
        environment = {**os.environ, "PYTHONPATH": str(Path(watch.__file__).parents[2])}
        command = [sys.executable, "-c", SUPERVISOR, text]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.wait_until(self._up.exists)
        self.child = int((folder / "pid").read_text())

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor."""
        self.process.send_signal(number)

    def ended(self) -> str:
        """What the supervisor says of the end."""
        return self.process.communicate(timeout=20)[0].strip()

    def wait_for_end_of_child(self) -> None:
        self.wait_until(lambda: not Path(f"/proc/{self.child}").exists())

    @staticmethod
    def wait_until(holds: Callable[[], bool]) -> None:
        end_s = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < end_s
            time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_gives_the_ranks_the_chance_to_end(tmp_path: Path, number: signal.Signals) -> None:
    supervised = Supervised(tmp_path, PATIENT)
    supervised.signal(number)
    assert supervised.ended() == f"4 {number.value}"
    assert supervised.heard.read_text() == "usr1\n"


def test_a_second_signal_ends_the_ranks(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, DEAF)
    supervised.signal(signal.SIGINT)
    Supervised.wait_until(supervised.heard.exists)
    supervised.signal(signal.SIGINT)
    assert supervised.ended() == f"5 {signal.SIGINT.value}"
    assert supervised.heard.read_text() == "usr1\nterm\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot")
def test_mpirun_does_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, PATIENT)
    supervised.process.kill()
    supervised.process.communicate()
    supervised.wait_for_end_of_child()


def test_patience_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "PATIENCE_S", 0.05)
    monkeypatch.setattr(watch, "_KILL_DELAY_S", 0.05)
    up = tmp_path / "up"
    tell = f"(while [ ! -e {up} ]; do sleep 0.02; done; kill -TERM {os.getpid()}) & " + DEAFER.format(up=up)
    ending = supervise(["/bin/sh", "-c", tell])
    assert ending == LauncherExit(-signal.SIGKILL, signal.SIGTERM)
    assert ending.shell_code == 137


def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert supervise(["/bin/sh", "-c", "exit 3"]) == LauncherExit(3)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_launcher_that_stays_without_ranks_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts a process, waits for its end, and stays."""
    monkeypatch.setattr("areabench.launching.watch._LAUNCHER_END_S", 1)
    script = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', 'import time; time.sleep(1.5)']); "
    assert supervise([sys.executable, "-c", script + "time.sleep(100)"]) == LauncherExit(0)


def test_a_launcher_with_ranks_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.launching.watch._LAUNCHER_END_S", 1)
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(2)']); sys.exit(3)"
    assert supervise([sys.executable, "-c", script]) == LauncherExit(3)


def test_dead_ranks_that_mpirun_has_not_collected_count_as_ended() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "true & exec sleep 60"]) as parent:
        try:
            child = psutil.Process(parent.pid)
            while child.name() != "sleep" or [dead.status() for dead in child.children()] != [psutil.STATUS_ZOMBIE]:
                time.sleep(0.01)
            assert not watch.has_children(parent.pid)
        finally:
            parent.kill()
