"""What docs/determinism.md claims, each in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradlab.backends.native import compiler

pytestmark = pytest.mark.slow
CHANGES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GRADLAB_COMPILER", "GRADLAB_NATIVE")


def found(*options, **variables):
    """What a process of its own computes, as a checksum for each part."""
    environment = {**{name: value for name, value in os.environ.items() if name not in CHANGES}, "GRADLAB_NATIVE": "0", **variables}
    program = [sys.executable, str(Path(__file__).with_name("determinism.py")), *options]
    return json.loads(subprocess.run(program, capture_output=True, text=True, check=True, env=environment, timeout=900).stdout)


def test_every_run_of_eager_code_has_the_same_bits():
    assert found() == found(PYTHONHASHSEED="1")


def test_every_run_of_compiled_code_has_the_same_bits():
    assert found("--compile") == found("--compile", PYTHONHASHSEED="1")


def test_threads_of_blas_change_large_products_alone():
    one, two = (found(OPENBLAS_NUM_THREADS=n, OMP_NUM_THREADS=n) for n in ("1", "2"))
    assert {part: bits for part, bits in one.items() if part != "large"} == {part: bits for part, bits in two.items() if part != "large"}


def test_compiled_by_numpy_has_eagers_bits_where_nothing_is_summed_in_another_order():
    eager, compiled = found("--parts", "perceptron,images"), found("--parts", "perceptron,images", "--compile", GRADLAB_COMPILER="none")
    assert eager == compiled


@pytest.mark.skipif(not compiler.compiles(), reason="needs a C++ compiler")
def test_every_run_on_the_emulated_gpu_has_the_same_bits():
    options = ("--device", "cuda", "--parts", "perceptron")
    assert found(*options, GRADLAB_CUDA="emulated") == found(*options, GRADLAB_CUDA="emulated", PYTHONHASHSEED="1")
