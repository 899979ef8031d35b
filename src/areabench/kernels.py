"""The kernels with which BLAS, numpy and torch compute in this process; they decide how it rounds.

Each library takes the newest kernels that the processor has, unless the environment names others when the library is
loaded. So other kernels need another process: the commands start again in their own place.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from areabench.errors import OtherKernels, UserError
from areabench.threads import VARIABLES, limit_of

Bits = Literal["native", "portable"]

_TORCH_BOUNDS = ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR")  # of the libraries in torch that look at the processor themselves
_X86 = ("x86_64", "amd64")


@dataclass(frozen=True)
class Kernels:
    """What a process rounds with."""

    processor: str  # its model
    blas: str  # the name that OpenBLAS has for its kernels, as Haswell; else name and version of the BLAS
    simd: str  # what numpy uses beyond its baseline
    torch: str = ""  # its instruction set, and the variables that bind its libraries; empty where it is not loaded

    def rounds_as(self, other: Kernels) -> bool:
        """Whether both give the same bits; torch's also depend on the processor unless its libraries are bound."""
        same = (self.blas, self.simd, self.torch) == (other.blas, other.simd, other.torch)
        return same and (self.torch in ("", PORTABLE_TORCH) or self.processor == other.processor)

    def __str__(self) -> str:
        torch = f", torch {self.torch}" if self.torch else ""
        return f"BLAS {self.blas}, numpy {self.simd or 'baseline'}{torch} on {self.processor}"


PORTABLE_BLAS = "Haswell"
PORTABLE_SIMD = frozenset(  # at most
    ["SSE3", "SSSE3", "SSE41", "POPCNT", "SSE42", "X86_V2", "AVX", "F16C", "FMA3", "AVX2", "X86_V3"]
)
PORTABLE_TORCH = "AVX2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE"


# ---------------------------------------------------------------------------------------------------- in this process


def kernels_in_force() -> Kernels:
    """The kernels of the libraries that this process has loaded."""
    from threadpoolctl import get_cached_controller  # it looks again where modules were imported since

    simd = " ".join(_simd("found"))  # numpy's BLAS is loaded now
    libraries = [each for each in get_cached_controller().lib_controllers if each.user_api == "blas"]
    names = {getattr(each, "architecture", None) or f"{each.internal_api} {each.version}" for each in libraries}
    blas = ", ".join(sorted(names)) or "not known"
    torch: Any = sys.modules.get("torch")
    capability = ""
    if torch is not None:
        capability = _bound(torch.backends.cpu.get_cpu_capability())
    return Kernels(_processor().get("model name") or platform.machine(), blas, simd, capability)


def of_all(parts: Sequence[Kernels]) -> Kernels:
    """The kernels of a run whose nodes, or whose parts before and after a stop, may have different ones."""
    return Kernels(*("; ".join(dict.fromkeys(getattr(part, item.name) for part in parts)) for item in fields(Kernels)))


@cache
def _processor() -> Mapping[str, str]:
    """What Linux says of the first processor, by field; nothing elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _simd(*lists: str) -> list[str]:
    """The features that numpy was built to use beyond its baseline: those `found` in this process, or `not found`."""
    import numpy as np

    built: Any = np.show_config(mode="dicts")
    return [name for each in lists for name in built.get("SIMD Extensions", {}).get(each, [])]


def _bound(capability: str) -> str:
    """An instruction set of torch, and the variables that bind its libraries."""
    bounds = [f"{name}={os.environ[name]}" for name in _TORCH_BOUNDS if os.environ.get(name)]
    return " ".join([capability, *bounds])


# ---------------------------------------------------------------------------------------------------- in another one

# What a processor must have for OpenBLAS's kernels of this name, which takes them from any processor when told to.
_AVX2 = frozenset({"avx2", "fma"})
_AVX512 = _AVX2 | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
_NEEDS: Mapping[str, frozenset[str]] = {
    "Nehalem": frozenset({"sse4_2"}),
    "Sandybridge": frozenset({"avx"}),
    "Haswell": _AVX2,
    "Zen": _AVX2,
    "SkylakeX": _AVX512,
    "Cooperlake": _AVX512 | {"avx512_bf16"},
    "SapphireRapids": _AVX512 | {"avx512_bf16", "amx_tile"},
}


def restart(variables: Mapping[str, str]) -> NoReturn:
    """Start this program again in its own place, with the same arguments and these variables."""
    _set(variables)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def require(kernels: Kernels) -> None:
    """Raise OtherKernels unless this process has these kernels, or the machine cannot give them."""
    variables = environment_of(kernels)
    here = kernels_in_force()
    if kernels.torch and not here.torch:  # it will be loaded with the problem
        newest = "DEFAULT"
        for name, needed in (("AVX2", _AVX2), ("AVX512", _AVX512)):
            if _has(needed):
                newest = name
        here = replace(here, torch=_bound(os.environ.get("ATEN_CPU_CAPABILITY", newest).upper()))
    # A process that was started with these variables and has other kernels would start again for ever.
    if not here.rounds_as(kernels) and not _are_set(variables) and kernels.blas in available():
        raise OtherKernels(variables)


def require_bits(bits: Bits) -> None:
    """Raise OtherKernels unless this process was started with the kernels that the key `bits` asks for."""
    if bits == "portable":
        _refuse(_no_avx2())
        if not _are_set(variables := portable_environment()):
            raise OtherKernels(variables)


@contextmanager
def environment_for(bits: Bits) -> Iterator[None]:
    """A context in which processes are started with the kernels that the key `bits` asks for."""
    if bits == "native":
        yield
        return
    _refuse(_no_avx2())
    variables = portable_environment()
    before = {name: os.environ.get(name, "") for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def environment_of(kernels: Kernels) -> dict[str, str]:
    """The variables with which a process takes these kernels, where its processor has them; empty: not set."""
    wanted = kernels.simd.split()
    bounds = dict(each.split("=", 1) for each in kernels.torch.split()[1:] if "=" in each)
    capability = kernels.torch.partition(" ")[0].lower()  # torch, too, would take what the processor lacks
    return {
        "OPENBLAS_CORETYPE": kernels.blas,
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in _simd("found", "not found") if name not in wanted),
        "NPY_ENABLE_CPU_FEATURES": "",  # numpy refuses both
        "ATEN_CPU_CAPABILITY": capability if capability in ("default", "avx2") else "",
        **{name: bounds.get(name, "") for name in _TORCH_BOUNDS},
    }


def portable_environment() -> dict[str, str]:
    """The variables with which a process takes kernels that every x86-64 processor with AVX2 has."""
    wanted = " ".join(name for name in _simd("found", "not found") if name in PORTABLE_SIMD)
    return environment_of(Kernels("", PORTABLE_BLAS, wanted, PORTABLE_TORCH))


def _are_set(variables: Mapping[str, str]) -> bool:
    return all(os.environ.get(name, "") == value for name, value in variables.items())


def _set(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def available() -> list[str]:
    """The kernels of OpenBLAS that this processor can run, by OpenBLAS's names, oldest first; none off x86-64 Linux."""
    return [name for name, needed in _NEEDS.items() if _has(needed)]


def _has(needed: frozenset[str]) -> bool:
    return needed <= set(_processor().get("flags", "").split())


# ---------------------------------------------------------------------------------------------------- portable bits


def check_bits(bits: Bits) -> None:
    """A UserError where the key `bits` asks for portable bits and what this process has loaded gives others."""
    if bits != "portable":
        return
    _refuse(_no_avx2())
    kernels = kernels_in_force()
    threads = [name for kind, name in VARIABLES.items() if limit_of(kind, os.environ) > 1]
    if threads:
        _refuse(f"{threads[0]} = {os.environ[threads[0]]!r}, and more threads than one round in another way; unset it")
    simd = kernels.simd.split()
    if kernels.blas == PORTABLE_BLAS and PORTABLE_SIMD.issuperset(simd) and kernels.torch in ("", PORTABLE_TORCH):
        return
    if _are_set(portable_environment()):
        _refuse(f"{kernels} were taken also where others were asked for; use the numpy and torch of the package index")
    words = " ".join(f"{name}={value!r}" for name, value in portable_environment().items() if value)
    _refuse(f"this process has {kernels}; libraries choose when they are loaded, so start Python with {words}")


def _no_avx2() -> str:
    """Why no process of this machine has portable bits; empty where it has what they need."""
    if platform.machine().lower() not in _X86:
        return f"this is {platform.machine()}, and they are those of x86-64 processors with AVX2"
    if "flags" in _processor() and not _has(_AVX2):
        return "this processor has no AVX2"
    return ""


def _refuse(trouble: str) -> None:
    if trouble:
        raise UserError(f'bits = "portable" cannot be had: {trouble}; or take bits = "native"')
