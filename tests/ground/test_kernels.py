"""The kernels of this process: known, asked for in another one, and refused where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_info

from areabench import kernels
from areabench.errors import OtherKernels, UserError
from areabench.kernels import (
    PORTABLE_TORCH,
    Kernels,
    check_bits,
    environment_for,
    environment_of,
    kernels_in_force,
    of_all,
    portable_environment,
    require,
    require_bits,
)

HERE = replace(kernels_in_force(), torch="")  # which another test may have imported
ON_X86 = "flags" in kernels._processor()
ASKED_FOR = pytest.mark.skipif(
    not ON_X86 or HERE.blas not in kernels._NEEDS, reason="needs an OpenBLAS with kernels for several x86-64 processors"
)
WITH_AVX2 = pytest.mark.skipif(not kernels._has(kernels._AVX2), reason="needs a processor with AVX2")


def kernels_under(variables: Mapping[str, str]) -> Kernels:
    """Those of a new process with these variables."""
    code = "from areabench.kernels import kernels_in_force as k; print(*vars(k()).values(), sep='\\n')"
    environment = {**os.environ, **variables}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return Kernels(*ended.stdout.split("\n")[:-1])


def test_the_kernels_are_those_that_the_libraries_name() -> None:
    assert HERE.blas in {each.get("architecture") for each in threadpool_info()}
    assert HERE.processor
    assert "BLAS" in str(HERE)


@ASKED_FOR
def test_another_process_takes_the_kernels_that_it_is_asked_for() -> None:
    old = replace(HERE, blas="Nehalem", simd="")
    assert kernels_under(environment_of(old)) == old


@WITH_AVX2
@ASKED_FOR
@pytest.mark.parametrize("before", [{}, {"OPENBLAS_CORETYPE": "Nehalem", "MKL_CBWR": "AVX"}])
def test_portable_kernels_are_taken_whatever_was_asked_for_before(before: Mapping[str, str]) -> None:
    found = kernels_under({**before, **portable_environment()})
    assert found.blas == "Haswell"
    assert set(found.simd.split()) <= kernels.PORTABLE_SIMD


FIRST = Kernels("one", "Haswell", "X86_V3")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (FIRST, True),
        (replace(FIRST, processor="another"), True),
        (replace(FIRST, blas="SkylakeX"), False),
        (replace(FIRST, simd="X86_V3 X86_V4"), False),
        (replace(FIRST, torch="AVX2"), False),
    ],
)
def test_same_kernels_give_the_same_bits(other: Kernels, *, same: bool) -> None:
    assert FIRST.rounds_as(other) is same


@pytest.mark.parametrize(("torch", "same"), [("AVX2", False), (PORTABLE_TORCH, True)])
def test_torch_looks_at_the_processor_unless_its_libraries_are_bound(torch: str, *, same: bool) -> None:
    one = replace(FIRST, torch=torch)
    assert one.rounds_as(one)
    assert one.rounds_as(replace(one, processor="another")) is same


def test_the_kernels_of_several_nodes_are_all_named() -> None:
    found = of_all([FIRST, FIRST, replace(FIRST, blas="SkylakeX")])
    assert found == Kernels("one", "Haswell; SkylakeX", "X86_V3")
    assert not found.rounds_as(FIRST)


@ASKED_FOR
def test_a_command_starts_again_for_other_kernels() -> None:
    here = kernels_in_force()
    require(here)
    with pytest.raises(OtherKernels) as needed:
        require(replace(here, blas="Nehalem" if HERE.blas != "Nehalem" else "Sandybridge"))
    assert needed.value.variables["OPENBLAS_CORETYPE"] in ("Nehalem", "Sandybridge")


def test_a_command_does_not_start_again_for_kernels_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS would take them, and the process would end by SIGILL."""
    monkeypatch.setattr(kernels, "_processor", lambda: {"flags": "sse4_2 avx"})
    monkeypatch.setattr(kernels, "kernels_in_force", lambda: replace(HERE, blas="Sandybridge"))
    for blas in ("Haswell", "SkylakeX", "not known"):
        require(replace(HERE, blas=blas))


def test_a_command_does_not_start_again_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(HERE, blas="Nehalem", simd="")
    for name, value in environment_of(other).items():
        monkeypatch.setenv(name, value)
    require(other)


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("platform.machine", lambda: "aarch64", "this is aarch64"),
        ("_processor", lambda: {"flags": "sse4_2 avx"}, "this processor has no AVX2"),
    ],
)
def test_portable_bits_are_refused_where_no_process_has_them(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, words: str
) -> None:
    monkeypatch.setattr(f"areabench.kernels.{attribute}", value)
    for ask in (check_bits, require_bits):
        ask("native")
        with pytest.raises(UserError, match=words):
            ask("portable")
    with pytest.raises(UserError, match=words), environment_for("portable"):
        pass


@WITH_AVX2
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Kernels("any", "SkylakeX", "X86_V3"), "start Python with OPENBLAS_CORETYPE='Haswell'"),
        (Kernels("any", "Haswell", "X86_V3 X86_V4"), "start Python with"),
        (Kernels("any", "Haswell", "X86_V3", "AVX512"), "start Python with"),
        (Kernels("any", "mkl 2024.2", "X86_V3"), "start Python with"),
    ],
)
def test_portable_bits_are_refused_in_a_process_with_other_kernels(
    monkeypatch: pytest.MonkeyPatch, found: Kernels, words: str
) -> None:
    monkeypatch.setattr(kernels, "kernels_in_force", lambda: found)
    with pytest.raises(UserError, match=words):
        check_bits("portable")
    with environment_for("portable"), pytest.raises(UserError, match="also where others were asked for"):
        check_bits("portable")


@WITH_AVX2
def test_portable_bits_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "kernels_in_force", lambda: FIRST)
    check_bits("portable")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with pytest.raises(UserError, match="OMP_NUM_THREADS = '2'"):
        check_bits("portable")


@WITH_AVX2
def test_the_environment_of_portable_bits_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    with environment_for("portable"):
        assert (os.environ["OPENBLAS_CORETYPE"], os.environ["ATEN_CPU_CAPABILITY"]) == ("Haswell", "avx2")
    assert (os.environ["OPENBLAS_CORETYPE"], os.environ.get("ATEN_CPU_CAPABILITY")) == ("Nehalem", None)
