"""Shared memory declarations of every shape are found and rewritten, and lines stay where they were."""

import numpy as np
import pytest
from emulated import compiled, fault

from gradlab.backends.cuda.emulator import CompileError
from gradlab.backends.cuda.emulator.source import rewrite_shared

FORMS = """
template <class T, int N> struct alignas(16) Pair { T first, second[N]; };
#define TILE __shared__ float named
template <class T>
__global__ void forms(T* y) {
    const int i = threadIdx.x;
    __shared__ T plain;
    __shared__ volatile T line[4 > 3 ? 8 : 4];  // a comparison is no template
    static __shared__ __align__(16) unsigned char raw[sizeof(T) * 8];
    alignas(32) __shared__ Pair<T, (4 > 2 ? 2 : 1)> pairs[8], more[2][3];
    __shared__ const T *pointer, *two[2];
    unsigned __shared__ int after;
    TILE[8];
    if (i == 0) { plain = T(1); pointer = y; two[1] = y + 1; after = 7u; }
    line[i] = T(i);
    reinterpret_cast<T*>(raw)[i] = T(2 * i);
    pairs[i].second[1] = T(3);
    more[i % 2][i % 3].first = T(i);
    named[i] = 5.0f;
    __syncthreads();
    y[i] = plain + line[7 - i] + reinterpret_cast<T*>(raw)[i] + pairs[7 - i].second[1] + T(pointer == y) + T(two[1] == y + 1) + T(after)
         + T(named[i]) + T(reinterpret_cast<size_t>(raw) % 16);
}
extern "C" __global__ void dynamic(float* y) {
    extern __shared__ __align__(16) unsigned char bytes[];
    extern __shared__ float rows[][4];
    rows[threadIdx.x / 4][threadIdx.x % 4] = float(threadIdx.x);
    __syncthreads();
    y[threadIdx.x] = reinterpret_cast<float*>(bytes)[7 - threadIdx.x];
}
__device__ const char* text() { return "a __shared__ word; in a string"; }
extern "C" __global__ void after_all(int* y) {
    __shared__ int
        value
        [2];
    value[0] = value[1] = text()[2] == '_';
    __syncthreads();
    if (value[1]) __trap();  // line 47
}
"""


@pytest.mark.parametrize("kind", ["float", "int"])
def test_forms(kind):
    (forms,) = compiled(FORMS, f"forms<{kind}>")
    y = np.zeros(8, {"float": "f4", "int": "i4"}[kind])
    forms.run((1,), (8,), y)
    i = np.arange(8)
    np.testing.assert_array_equal(y, 1 + (7 - i) + 2 * i + 3 + 1 + 1 + 7 + 5 + 0)


def test_dynamic_forms():
    (dynamic,) = compiled(FORMS, "dynamic")
    y = np.zeros(8, np.float32)
    dynamic.run((1,), (8,), y, shared=32)
    np.testing.assert_array_equal(y, np.arange(8)[::-1])


def test_lines():
    (kernel,) = compiled(FORMS, "after_all", label="lines.cu")
    found = fault(kernel, (1,), (4,), np.zeros(4, np.int32))
    assert (found.file, found.line) == ("lines.cu", FORMS[: FORMS.index("// line 47")].count("\n") + 1)


def test_headers_may_declare_shared_memory(tmp_path):
    (tmp_path / "block.cuh").write_text(
        "#pragma once\n__device__ int turned(int v) {\n    __shared__ int row[4];\n    row[threadIdx.x] = v;\n"
        "    __syncthreads();\n    return row[3 - threadIdx.x];\n}\n",
        encoding="utf-8",
    )
    source = '#include "block.cuh"\nextern "C" __global__ void k(int* y) { y[threadIdx.x] = turned(threadIdx.x); }'
    (kernel,) = compiled(source, "k", include=[tmp_path])
    y = np.zeros(4, np.int32)
    kernel.run((1,), (4,), y)
    assert y.tolist() == [3, 2, 1, 0]
    changed = (tmp_path / "block.cuh").read_text(encoding="utf-8").replace("3 -", "0 *")
    (tmp_path / "block.cuh").write_text(changed, encoding="utf-8")  # a changed header is a changed program
    (kernel,) = compiled(source, "k", include=[tmp_path])
    kernel.run((1,), (4,), y)
    assert y.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("declaration", ["__shared__ int;", "__shared__ int x = 3;", "extern __shared__ int x[4];", "__shared__ int x"])
def test_what_cannot_be_read(declaration):
    with pytest.raises(CompileError):
        rewrite_shared(f"void f() {{ {declaration} ")


def test_text_without_shared_memory_is_left_alone():
    text = 'int x; // nothing\nconst char* s = "__shared__ int y;";\n'
    assert rewrite_shared(text) == text
