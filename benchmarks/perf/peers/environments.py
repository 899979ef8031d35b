"""One environment per peer, below build/peers: made once, with pinned versions, by pip and the names of packages.

torch is installed once for all of them, in its build for processors: another would bring gigabytes of CUDA libraries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.errors import UserError


@dataclass(frozen=True)
class Needs:
    """What an environment is made of: its folder, a requirement as pip reads it, a module that shows that it works."""

    folder: str
    requirement: str
    module: str


def make_environment(home: Path, needs: Needs, torch: str) -> Path:
    """The Python of the environment; UserError, with the reason, where it cannot be made."""
    folder = home.resolve() / needs.folder
    home = home.resolve()
    python = folder / "bin" / "python"
    stamp = folder / "installed"
    text = f"{torch} {needs.requirement}\n"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == text:
        return python
    print(f"installing {needs.requirement} into {folder}", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    shared = _install_torch(home, python, torch)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{shared}\n", encoding="utf-8")
    limits = folder / "constraints.txt"
    limits.write_text(f"{torch}\n", encoding="utf-8")
    _pip(python, "--constraint", str(limits), "torch", needs.requirement)
    _run([str(python), "-W", "ignore", "-c", f"import peers.repairs, {needs.module}"], cwd=Path(__file__).parents[1])
    stamp.write_text(text, encoding="utf-8")
    return python


def _install_torch(home: Path, python: Path, torch: str) -> Path:
    """The folder of the torch that all environments share; what torch needs is in each of them."""
    folder = home / "torch"
    stamp = home / "torch" / "installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != torch:
        _pip(python, "--no-deps", "--upgrade", "--target", str(folder), torch)
        stamp.write_text(torch, encoding="utf-8")
    return folder


def _pip(python: Path, *arguments: str) -> None:
    _run([str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--no-compile", *arguments])


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    """Run to the end; the last line of the error is the reason of a failure."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise UserError(lines[-1].removeprefix("ERROR: "))
