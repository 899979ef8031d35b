"""Runs a command under the kernels of another processor: python -m tests.support.under_kernels NAME COMMAND...

NAME is one that OpenBLAS has for its kernels; numpy then takes what processors of that time had. `other` stands for
Sandybridge, or for the newest of this processor where it takes kernels as old as that by itself.
"""

from __future__ import annotations

import os
import sys

from areabench.kernels import Kernels, available, environment_of, kernels_in_force

OLD = ("Prescott", "Core2", "Nehalem", "Sandybridge")  # they multiply and add in two steps
# What numpy dispatches on, by the names of its builds: before 2.4 a feature each, since then levels of x86-64.
SIMD = {
    "Sandybridge": "SSE3 SSSE3 SSE41 POPCNT SSE42 X86_V2 AVX",
    "Haswell": "SSE3 SSSE3 SSE41 POPCNT SSE42 X86_V2 AVX F16C FMA3 AVX2 X86_V3",
}
SIMD |= {"Nehalem": "SSE3 SSSE3 SSE41 POPCNT SSE42 X86_V2", "Zen": SIMD["Haswell"]}


def variables_of(name: str) -> dict[str, str]:
    """The variables with which a process takes the kernels of this name; numpy's own choice for those with AVX-512."""
    if name not in SIMD:
        return {"OPENBLAS_CORETYPE": name}
    return environment_of(Kernels("", name, SIMD[name]))


def main(name: str, *command: str) -> int:
    """Replaces this process by the command; 0 where the processor lacks the kernels."""
    if name == "other":
        name = available()[-1] if kernels_in_force().blas in OLD else "Sandybridge"
    if name in available():
        os.environ.update({key: value for key, value in variables_of(name).items() if value})
        print(f"under the kernels {name}: {' '.join(command)}", flush=True)
        os.execvp(command[0], command)
    print(f"skipped: this processor or its OpenBLAS lacks the kernels {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
