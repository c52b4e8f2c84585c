"""`gradlab kernels`: a stand-alone CUDA file on the emulated GPU."""

from __future__ import annotations

import shutil

import pytest

from gradlab.cli import main
from gradlab.testing.arithmetic import AnnotationError, comparison, evaluate
from gradlab.testing.stand_alone import kernels_in

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="the emulated GPU needs a C++ compiler")

GOOD = """
namespace mine {
template <class T> __global__ void scale(const T* x, T* y, float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
// gradlab: let n = 100
// gradlab: run scale<float><<<cdiv(n, 64), 64>>>(x: float32[n], y: float32[n], 2.0, n)
// gradlab: expect y == 2.0 * x
}
extern "C" __global__ void guessed(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1.0f; }
"""
BAD = """
__global__ void last_wins(int* y) { y[0] = threadIdx.x; }
// gradlab: run last_wins<<<1, 32>>>(y: int32[1])
__global__ void beside(float* y, int n) { y[threadIdx.x] = n; }
// gradlab: run beside<<<1, 32>>>(z: float32[31], 1)
// gradlab: expect z == 2
"""


def emulate(folder, text, capsys, *options):
    file = folder / "mine.cu"
    file.write_text(text, encoding="utf-8")
    code = main(["kernels", str(file), "--emulate", *options])
    return code, capsys.readouterr().out


@needs_compiler
def test_a_good_file(tmp_path, capsys):
    code, out = emulate(tmp_path, GOOD, capsys)
    assert code == 0, out
    assert "mine.cu:8: mine::scale<float>: ok" in out and "expect y == 2.0 * x: ok" in out and "launched by guess" in out


@needs_compiler
def test_a_bad_file(tmp_path, capsys):
    code, out = emulate(tmp_path, BAD, capsys)
    assert code == 1
    for words in ("the order 'reverse' of threads gives another result", "after an array of 124 bytes", "not as expected"):
        assert words in out


@needs_compiler
def test_what_does_not_compile(tmp_path, capsys):
    code, out = emulate(tmp_path, "__global__ void broken(float* y) { y[0] = nothing; }", capsys)
    assert code == 1 and "does not compile" in out


def test_mistakes(tmp_path, capsys):
    assert main(["kernels", str(tmp_path / "none.cu")]) == 2
    (tmp_path / "empty.cu").write_text("int x;", encoding="utf-8")
    assert main(["kernels", str(tmp_path / "empty.cu")]) == 1
    assert main(["kernels", str(tmp_path / "empty.cu"), "--emulate", "--arch", "90"]) == 2
    assert "no __global__ function" in capsys.readouterr().err


def test_kernels_are_found():
    assert [tuple(k) for k in kernels_in(GOOD)] == [("mine::scale", True), ("guessed", False)]


def test_the_language_of_annotations():
    assert evaluate("cdiv(n, 3) + n / 4", {"n": 10}) == 6
    assert comparison("y == 2 * 3", {"y": 6}) == (6, 6)
    for text in ("__import__('os')", "x.y", "nothing", "1 +", "[1 for a in b]", "open('f')"):
        with pytest.raises(AnnotationError):
            evaluate(text, {"x": 1})
