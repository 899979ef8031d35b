"""Who ran what where."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import h5py
import numpy as np

from areabench import __version__
from areabench.engine.events import Provenance
from areabench.kernels import Kernels, kernels_in_force


def gather_provenance(
    transport: str,
    command: str,
    threads: str,
    seed: int,
    mpi: str = "",
    hosts: Sequence[str] = (),
    modules: str = "",
    data_digest: str = "",
    kernels: Kernels | None = None,
    files: str = "",
) -> Provenance:
    """Everything about this process and machine that a repetition needs; `hosts` has one entry per rank.

    `kernels` are those of all nodes; None: of this process.
    """
    kernels = kernels_in_force() if kernels is None else kernels
    return Provenance(
        transport=transport,
        command=command,
        areabench=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        h5py=h5py.__version__,
        blas=_blas(),
        processor=kernels.processor,
        blas_kernel=kernels.blas,
        simd=kernels.simd,
        torch_kernel=kernels.torch,
        packages=_packages(),
        threads=threads,
        mpi=mpi,
        ranks=max(1, len(hosts)),
        hosts=",".join(sorted(set(hosts))) or platform.node(),
        platform=platform.platform(),
        git_revision=_git_revision(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        modules=modules,
        data_digest=data_digest,
        files=files,
    )


def rounds_as_here(recorded: Provenance) -> bool:
    """Whether this process has the kernels, the numpy and the BLAS of a run, and its torch if that computed."""
    same = (recorded.numpy, recorded.blas) == (np.__version__, _blas())
    same &= not recorded.torch_kernel or recorded.packages == _packages()
    return same and kernels_in_force().rounds_as(recorded.kernels)


def _blas() -> str:
    """The BLAS that numpy was built with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _packages() -> str:
    """The optional packages that can decide a run's bits, as far as they are installed."""
    found = []
    for name in ("mpi4py", "torch", "scikit-learn"):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def _git_revision() -> str:
    """The revision of the checkout this package runs from, with `+` when it was changed; empty when there is none."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
