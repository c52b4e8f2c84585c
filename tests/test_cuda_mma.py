"""The warp's matrix primitives of kernels/mma.cuh: where the PTX ISA says elements lie, rounding, and what whole warps must do."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import compiled, fault, guarded

from gradlab.backends.cuda.emulator import bounds
from gradlab.dtype import as_numpy

SOURCE = """
#include "mma.cuh"
using namespace gradlab;
// One warp: c [16 x 8] += a [16 x K] · b [K x 8]; the registers as the PTX ISA describes them.
template <class S>
__global__ void tile(const S* a, const S* b, float* c) {
    const int group = threadIdx.x >> 2, member = threadIdx.x % 4, each = 4 / sizeof(S), K = 8 * each;
    unsigned left[4] = {0, 0, 0, 0}, right[2] = {0, 0};
    float sum[4];
    for (int i = 0; i < 4 * each; ++i) {
        // .tf32 m16n8k8: row = group for a0, a2, else group + 8; col = member for a0, a1, else member + 4.
        // .f16/.bf16 m16n8k16: row = group for 0 <= i < 2 or 4 <= i < 6; col = member * 2 + (i & 1), + 8 for i >= 4.
        const int row = each == 1 ? group + (i & 1) * 8 : group + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
        const int col = each == 1 ? member + (i >= 2 ? 4 : 0) : member * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        if constexpr (each == 1) left[i] = tensor_float(a[row * K + col]);
        else left[i / 2] |= (pair<S>(load(a[row * K + col]), 0.0f) & 0xffff) << 16 * (i & 1);
    }
    for (int i = 0; i < 2 * each; ++i) {
        // .tf32: row = member + i * 4; .f16/.bf16: row = member * 2 + (i & 1), + 8 for i >= 2; col = group.
        const int row = each == 1 ? member + i * 4 : member * 2 + (i & 1) + (i >= 2 ? 8 : 0);
        if constexpr (each == 1) right[i] = tensor_float(b[row * 8 + group]);
        else right[i / 2] |= (pair<S>(load(b[row * 8 + group]), 0.0f) & 0xffff) << 16 * (i & 1);
    }
    for (int i = 0; i < 4; ++i) sum[i] = c[(group + (i >> 1) * 8) * 8 + member * 2 + (i & 1)];
    multiply_add<S>(sum, left, right);
    for (int i = 0; i < 4; ++i) c[(group + (i >> 1) * 8) * 8 + member * 2 + (i & 1)] = sum[i];
}
__global__ void blocks(const unsigned short* from, unsigned* plain, unsigned* turned) {  // four blocks of 8 rows of 8 numbers
    __shared__ uint4 room[32];
    copy_ahead<16>(&room[threadIdx.x], from + threadIdx.x * 8, true);
    await_copies();
    __syncthreads();
    unsigned found[4];
    load_blocks<false>(found, &room[threadIdx.x]);
    for (int j = 0; j < 4; ++j) plain[j * 32 + threadIdx.x] = found[j];
    load_blocks<true>(found, &room[threadIdx.x]);
    for (int j = 0; j < 4; ++j) turned[j * 32 + threadIdx.x] = found[j];
}
// Planted: where a lane's row may not lie.
template <int Way>
__global__ void astray(const unsigned short* from, unsigned* to) {
    __shared__ alignas(16) unsigned short room[64 * 8 + 4];
    __shared__ unsigned short low[32 * 8];
    for (int i = threadIdx.x; i < 64 * 8 + 4; i += 32) room[i] = from[i % 256];
    for (int i = threadIdx.x; i < 32 * 8; i += 32) low[i] = from[i];
    __syncthreads();
    const int lane = threadIdx.x;
    const unsigned short* const row = Way == 0 ? room + lane * 8                            // right
                                    : Way == 1 ? room + lane * 8 + (lane == 7 ? 4 : 0)      // not a multiple of 16 bytes
                                    : Way == 2 ? room + (lane < 31 ? lane : 64) * 8         // half of it beyond the array
                                    : Way == 3 ? from + lane * 8                            // not in shared memory
                                               : low + lane * 8;                            // whose declaration promises nothing
    unsigned found[4];
    load_blocks<Way % 2 == 0>(found, row);
    for (int j = 0; j < 4; ++j) to[j * 32 + lane] = found[j];
}
__global__ void fragment(const __half* from, float* c) {
    __shared__ alignas(16) __half room[16 * 16 + 16];
    for (int i = threadIdx.x; i < 16 * 16 + 16; i += 32) room[i] = from[i];
    __syncthreads();
    const int group = threadIdx.x >> 2, member = threadIdx.x & 3;
    unsigned a[4] = {0, 0, 0, 0}, b[2];
    for (int i = 0; i < 2; ++i) b[i] = *reinterpret_cast<const unsigned*>(room + group * 17 + 2 * member + 8 * i);  // planted: an even step
    float sum[4] = {0, 0, 0, 0};
    multiply_add<__half>(sum, a, b);
    c[threadIdx.x] = sum[0];
}
__global__ void parted(float* c) {
    const unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    float sum[4] = {0, 0, 0, 0};
    if (threadIdx.x < 16) multiply_add<float>(sum, a, b);  // planted
    c[threadIdx.x] = sum[0];
}
"""


def tensor_float(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


KINDS = [("float", "float32", 8), ("__half", "float16", 16), ("__nv_bfloat16", "bfloat16", 16)]


@pytest.mark.parametrize(("kind", "dtype", "depth"), KINDS)
@pytest.mark.parametrize("order", ["forward", "reverse", "random", "warps"])
def test_a_tile(kind, dtype, depth, order):
    (tile,) = compiled(SOURCE, f"tile<{kind}>")
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(16, depth)).astype(as_numpy(dtype)), rng.normal(size=(depth, 8)).astype(as_numpy(dtype))
    c = rng.normal(size=(16, 8)).astype(np.float32)
    x, y = (tensor_float(a), tensor_float(b)) if dtype == "float32" else (a, b)
    want = (c + x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
    tile.run((1,), (32,), a, b, c, order=order)
    np.testing.assert_allclose(c, want, rtol=1e-6, atol=1e-6)


def test_blocks_of_rows():
    (kernel,) = compiled(SOURCE, "blocks")
    x = np.arange(256, dtype=np.uint16)
    plain, turned = np.zeros((4, 32), np.uint32), np.zeros((4, 32), np.uint32)
    kernel.run((1,), (32,), x, plain, turned)
    pieces = x.reshape(4, 8, 8)
    np.testing.assert_array_equal(plain.view(np.uint16).reshape(4, 8, 8), pieces)
    np.testing.assert_array_equal(turned.view(np.uint16).reshape(4, 8, 8), pieces.transpose(0, 2, 1))


@pytest.mark.parametrize("races", [False, True], ids=["bounds", "races"])
def test_rows_of_blocks_lie_in_shared_memory_at_multiples_of_16_bytes(races):
    ways = compiled(SOURCE, *(f"astray<{way}>" for way in range(5)), races=races)
    x, y = guarded((256,), "uint16", 1), guarded((128,), "uint32", 0)
    ways[0].run((1,), (32,), x, y)
    askew, outside = "it is no multiple of 16", "not all of it is in the block's shared memory"
    for kernel, lane, why in zip(ways[1:], (7, 31, 0, 0), (askew, outside, outside, askew), strict=True):
        found = fault(kernel, (1,), (32,), x, y)
        assert found.reason == f"ldmatrix takes from each lane the address of 16 bytes of shared memory: {why}"
        assert found.thread == (lane, 0, 0) and found.file.endswith("mma.cuh")


def test_fragments_that_are_read_at_odd_places():
    (kernel,) = compiled(SOURCE, "fragment")
    if not bounds.flags(""):
        pytest.skip("accesses are not checked on this machine")
    found = fault(kernel, (1,), (32,), guarded((272,), "float16", 1), guarded((32,), "float32", 0))
    assert "a misaligned access: " in found.reason and found.thread == (4, 0, 0)


def test_a_part_of_a_warp_is_a_fault():
    found = fault(compiled(SOURCE, "parted")[0], (1,), (32,), np.zeros(32, np.float32))
    assert "mma.sync" in found.reason
    found = fault(compiled(SOURCE, "parted")[0], (1,), (16,), np.zeros(32, np.float32))
    assert "all 32 lanes" in found.reason
