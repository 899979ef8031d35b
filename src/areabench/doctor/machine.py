"""The machine: cores, threads, sleep, cache, HDF5, disc, memory, temporary folder."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from areabench import __version__
from areabench.datasets import mnist_folder
from areabench.doctor.findings import Finding, Mark
from areabench.transports.waiting import sharpen_sleep

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SLEEP_S, _SLEEPS = 1e-3, 50
_LATE_S = 1e-3  # a sleep that is later than this blurs delays of a few milliseconds
_RANK_BYTES = 60e6  # what a rank takes with numpy, h5py and MPI
_LEAST_BYTES, _FEW_BYTES = 50e6, 2e9  # of disc: MNIST unpacked; a day of runs
_SHARED = Path("/dev/shm")  # where MPI's ranks on a node meet


def look_at_versions() -> Finding:
    """What runs here."""
    return Finding("areabench", Mark.OK, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")


def look_at_cores(cores: int, ranks: int) -> Finding:
    """Whether each rank can have a core."""
    text = f"{cores} usable for {ranks} rank{'s' * (ranks != 1)}"
    if ranks <= cores:
        return Finding("cores", Mark.OK, text)
    remedy = "ranks share cores: keep computing well below the delays, or use fewer ranks, or simulate"
    return Finding("cores", Mark.WARN, f"{text}: {ranks / cores:.3g} ranks a core", remedy)


def look_at_threads(environment: Mapping[str, str], cores: int, ranks: int) -> Finding:
    """Whether the ranks' threads fit the cores; areabench sets one where nothing is set."""
    values = {name: environment.get(name, "1") for name in _THREADS}
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    strange = [name for name, value in values.items() if not value.isdecimal() or int(value) < 1]
    if strange:
        return Finding("threads", Mark.WARN, text, f"{strange[0]} is no whole number >= 1: `export {strange[0]}=1`")
    most = max(map(int, values.values()))
    if most > 1 and most * ranks > cores:
        remedy = f"{ranks} ranks x {most} threads on {cores} cores disturb the clock: " + _exports()
        return Finding("threads", Mark.WARN, text, remedy)
    return Finding("threads", Mark.OK, text)


def _exports() -> str:
    return "`export " + " ".join(f"{name}=1" for name in _THREADS) + "`"


def look_at_sleep() -> Finding:
    """How exactly a rank sleeps: as runs do, with the finest timer."""
    sharpen_sleep()
    late_s = sorted(_late_s() for _ in range(_SLEEPS))
    middle_s, worst_s = statistics.median(late_s), late_s[-1]
    text = f"1 ms of sleep is {middle_s * 1e3:.2f} ms late (median of {_SLEEPS}), {worst_s * 1e3:.2f} ms at worst"
    if middle_s <= _LATE_S:
        return Finding("sleep", Mark.OK, text)
    remedy = (
        "the machine is busy or its timer is coarse: delays of a few ms will be late; end other work, or slow clients"
    )
    return Finding("sleep", Mark.WARN, text, remedy)


def _late_s() -> float:
    begun_s = time.perf_counter()
    time.sleep(_SLEEP_S)
    return time.perf_counter() - begun_s - _SLEEP_S


def look_at_cache(cache: Path) -> Finding:
    """Whether data sets can be unpacked, and which are."""
    held = "MNIST is unpacked" if mnist_folder(cache).is_dir() else "MNIST is not unpacked yet"
    if problem := _unwritable(_existing(cache)):
        mark = Mark.WARN if mnist_folder(cache).is_dir() else Mark.FAIL
        return Finding("cache", mark, f"{cache}: {problem}; {held}", "set AREABENCH_CACHE to a writable folder")
    return Finding("cache", Mark.OK, f"{cache}: writable, {held}")


def look_at_hdf5(runs: Path) -> Finding:
    """Whether a run file can be written and read where runs go."""
    try:
        import h5py
    except ImportError as error:
        return Finding("HDF5", Mark.FAIL, f"h5py cannot be imported: {error}", "`pip install h5py`")
    versions = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    path = _existing(runs) / f".doctor-{uuid.uuid4().hex}.h5"
    try:
        with h5py.File(path, "w") as file:
            file["probe"] = 1.5
        with h5py.File(path, "r") as file:
            same = file["probe"][()] == 1.5
    except OSError as error:
        remedy = "choose another folder with --output; on network discs also try `export HDF5_USE_FILE_LOCKING=FALSE`"
        return Finding("HDF5", Mark.FAIL, f"{versions}: no file can be written in {runs}: {error}", remedy)
    finally:
        path.unlink(missing_ok=True)
    text = f"{versions}, a file written and read in {runs}"
    return (
        Finding("HDF5", Mark.OK, text)
        if same
        else Finding("HDF5", Mark.FAIL, text, "what is read is not what was written")
    )


def look_at_disc(runs: Path) -> Finding:
    """Room for run files."""
    free = shutil.disk_usage(_existing(runs)).free
    text = f"{_size(free)} free for {runs}"
    if free >= _FEW_BYTES:
        return Finding("disc", Mark.OK, text)
    mark = Mark.WARN if free >= _LEAST_BYTES else Mark.FAIL
    return Finding("disc", mark, text, "make room, choose another folder with --output, or keep fewer snapshots")


def look_at_memory(ranks: int, meminfo: Path = Path("/proc/meminfo")) -> Finding:
    """Room for the ranks."""
    lines = meminfo.read_text(encoding="ascii").splitlines() if meminfo.exists() else []
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
    if free is None:
        return Finding("memory", Mark.OK, "not told by this system")
    text, needed = f"{_size(free)} free", ranks * _RANK_BYTES
    if needed <= free:
        return Finding("memory", Mark.OK, text)
    remedy = f"{ranks} ranks take about {_size(needed)} without data: use fewer ranks a node"
    return Finding("memory", Mark.FAIL, text, remedy)


def look_at_temporary(environment: Mapping[str, str], shared: Path = _SHARED) -> Finding:
    """Whether MPI finds room for what its ranks share."""
    folder = Path(environment.get("TMPDIR") or tempfile.gettempdir())
    if problem := _unwritable(folder):
        return Finding("temporary", Mark.FAIL, f"{folder}: {problem}", "`export TMPDIR=` a writable, local folder")
    text = f"{folder}: writable, {_size(shutil.disk_usage(folder).free)} free"
    if not shared.is_dir():
        return Finding("temporary", Mark.OK, text)
    room = shutil.disk_usage(shared).free
    text += f"; {shared}: {_size(room)} free"
    if room >= _LEAST_BYTES * 2 and os.access(shared, os.W_OK):
        return Finding("temporary", Mark.OK, text)
    remedy = f"ranks of a node meet in {shared}: empty it, or in a container enlarge it (--shm-size=1g)"
    return Finding("temporary", Mark.WARN, text, remedy)


def _existing(folder: Path) -> Path:
    """The folder, or where it would be made."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _unwritable(folder: Path) -> str:
    """Why no file can be made here; empty where one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"probe")
    except OSError as error:
        return f"not writable ({error.strerror or error})"
    return ""


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
