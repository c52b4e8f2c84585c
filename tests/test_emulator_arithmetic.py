"""What CUDA has beside C++ and the emulated GPU gives anew: warp functions, atomics, half types, bits, vector types."""

import ml_dtypes
import numpy as np
import pytest
from emulated import compiled, guarded

ONE = (1,)
INT = np.int32


# ---- warp functions ----------------------------------------------------------------------------------------------------------

WARP = """
#define FULL 0xffffffffu
extern "C" __global__ void shuffles(const double* x, double* y, int argument, int width) {
    const int i = threadIdx.x;
    const double v = x[i];
    y[i] = __shfl_sync(FULL, v, argument, width);
    y[blockDim.x + i] = __shfl_up_sync(FULL, v, argument, width);
    y[2 * blockDim.x + i] = __shfl_down_sync(FULL, v, argument, width);
    y[3 * blockDim.x + i] = __shfl_xor_sync(FULL, v, argument, width);
}
extern "C" __global__ void votes(const int* x, int* y) {
    const int i = threadIdx.x, odd = x[i] & 1;
    y[8 * i] = int(__ballot_sync(FULL, odd));
    y[8 * i + 1] = __any_sync(FULL, odd);
    y[8 * i + 2] = __all_sync(FULL, odd);
    y[8 * i + 3] = int(__match_any_sync(FULL, x[i] % 5));
    int same;
    y[8 * i + 4] = int(__match_all_sync(FULL, x[i], &same));
    y[8 * i + 5] = same;
    y[8 * i + 6] = __syncthreads_count(odd);
    y[8 * i + 7] = __syncthreads_and(odd) * 2 + __syncthreads_or(odd);
}
extern "C" __global__ void reductions(const int* x, int* y) {
    const int i = threadIdx.x;
    const unsigned u = unsigned(x[i]);
    y[8 * i] = __reduce_add_sync(FULL, x[i]);
    y[8 * i + 1] = __reduce_min_sync(FULL, x[i]);
    y[8 * i + 2] = __reduce_max_sync(FULL, x[i]);
    y[8 * i + 3] = int(__reduce_min_sync(FULL, u));
    y[8 * i + 4] = int(__reduce_max_sync(FULL, u));
    y[8 * i + 5] = int(__reduce_and_sync(FULL, u));
    y[8 * i + 6] = int(__reduce_or_sync(FULL, u));
    y[8 * i + 7] = int(__reduce_xor_sync(FULL, u));
}
extern "C" __global__ void halves(int* y) {  // the two halves of a warp go their own ways
    const int lane = threadIdx.x;
    if (lane < 16) y[lane] = __reduce_add_sync(0x0000ffffu, lane);
    else y[lane] = __shfl_sync(0xffff0000u, lane, 20) + int(__activemask() & 1);
    __syncwarp();
}
"""
LANE = np.arange(64) % 32


@pytest.mark.parametrize("order", ["forward", "random"])
@pytest.mark.parametrize(("argument", "width"), [(0, 32), (1, 32), (5, 8), (31, 32), (4, 4), (16, 32)])
def test_shuffles(argument, width, order):
    (shuffles,) = compiled(WARP, "shuffles")
    x = np.random.default_rng(0).standard_normal(64)
    y = np.zeros((4, 64))
    shuffles.run(ONE, (64,), x, y, INT(argument), INT(width), order=order, seed=3)
    first, warp = LANE // width * width, np.arange(64) // 32 * 32
    last = first + width - 1
    up, down, across = LANE - argument, LANE + argument, LANE ^ argument
    sources = [
        first + argument % width,
        np.where(up < first, LANE, up),
        np.where(down > last, LANE, down),
        np.where(across > last, LANE, across),
    ]
    for row, source in zip(y, sources):
        np.testing.assert_array_equal(row, x[warp + source])


@pytest.mark.parametrize("order", ["reverse", "warps"])
def test_votes(order):
    (votes,) = compiled(WARP, "votes")
    draw = np.random.default_rng(0)
    for x in (draw.integers(0, 100, 64), np.full(64, 7), np.zeros(64)):
        x = x.astype(INT)
        y = np.zeros((64, 8), np.int32)
        votes.run(ONE, (64,), x, y, order=order)
        warps, odd = x.reshape(2, 32), x & 1
        masks = [int((1 << np.arange(32, dtype=np.int64))[w & 1 == 1].sum()) for w in warps]
        same = [int((w == w[0]).all()) for w in warps]
        for i in range(64):
            w = i // 32
            match = int((1 << np.arange(32, dtype=np.int64))[warps[w] % 5 == x[i] % 5].sum())
            block = [odd.sum(), 2 * odd.all() + odd.any()]
            expected = [masks[w], masks[w] != 0, masks[w] == 2**32 - 1, match, -same[w], same[w], *block]
            np.testing.assert_array_equal(y[i].view(np.uint32), np.array(expected, np.int64).astype(np.uint32))


def test_reductions_of_a_warp():
    (reductions,) = compiled(WARP, "reductions")
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 64).astype(INT)
    y = np.zeros((64, 8), np.int32)
    reductions.run(ONE, (64,), x, y)
    for i in range(64):
        w = x.reshape(2, 32)[i // 32]
        u = w.view(np.uint32)
        expected = [
            w.sum(dtype=INT),
            w.min(),
            w.max(),
            u.min(),
            u.max(),
            *(f.reduce(u) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)),
        ]
        np.testing.assert_array_equal(y[i], np.array([int(e) for e in expected], np.int64).astype(np.uint32).view(INT))


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "warps"])
def test_two_groups_of_lanes(order):
    (halves,) = compiled(WARP, "halves")
    y = np.zeros(32, np.int32)
    halves.run(ONE, (32,), y, order=order)
    np.testing.assert_array_equal(y, [120] * 16 + [21] * 16)


# ---- atomics -----------------------------------------------------------------------------------------------------------------

ATOMICS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T>
__global__ void add(T* total, int n) {
    for (int i = 0; i < n; ++i) atomicAdd(total, T(1));
}
extern "C" __global__ void integers(int* x, unsigned* u) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicSub(x, i);
    atomicMax(x + 1, i);
    atomicMin(x + 2, -i);
    atomicAnd(u, ~(1u << i % 32));
    atomicOr(u + 1, 1u << i % 32);
    atomicXor(u + 2, 1u << i % 8);
    atomicInc(u + 3, 9);
    atomicDec(u + 4, 9);
    if (i == 0) atomicExch(x + 3, 42);
}
extern "C" __global__ void largest(float* x, const float* values) {  // the usual loop around atomicCAS
    int* bits = reinterpret_cast<int*>(x);
    int seen = *bits, expected;
    do {
        expected = seen;
        if (__int_as_float(expected) >= values[threadIdx.x]) break;
        seen = atomicCAS(bits, expected, __float_as_int(values[threadIdx.x]));
    } while (seen != expected);
}
"""
NUMBERS = {
    "int": "i4",
    "unsigned": "u4",
    "unsigned long long": "u8",
    "float": "f4",
    "double": "f8",
    "__half": "f2",
    "__nv_bfloat16": "bfloat16",
}


@pytest.mark.parametrize("order", ["forward", "random"])
def test_atomic_addition(order):
    for kernel, dtype in zip(compiled(ATOMICS, *(f"add<{name}>" for name in NUMBERS)), NUMBERS.values()):
        total = np.zeros(1, dtype)
        kernel.run((2,), (32,), total, INT(4), order=order)
        assert total[0] == 256, dtype
        assert str(kernel.signature[0]) == f"{np.dtype(dtype)}*"


def test_atomic_functions_of_integers():
    (integers,) = compiled(ATOMICS, "integers")
    x, u = np.zeros(4, np.int32), np.array([2**32 - 1, 0, 0, 0, 0], np.uint32)
    integers.run((2,), (32,), x, u, order="random", seed=1)
    np.testing.assert_array_equal(x, [-2016, 63, -63, 42])
    np.testing.assert_array_equal(u, [0, 2**32 - 1, 0, 4, 6])


def test_compare_and_swap():
    (largest,) = compiled(ATOMICS, "largest")
    values = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    for seed in range(3):
        x = np.full(1, -1e9, np.float32)
        largest.run(ONE, (256,), x, values, order="random", seed=seed)
        assert x[0] == values.max()


# ---- half types --------------------------------------------------------------------------------------------------------------

HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class H> struct Of;
template <> struct Of<__half> {
    static __half from(float x) { return __float2half_rn(x); }
    static __half from(double x) { return __double2half(x); }
    static float to(__half x) { return __half2float(x); }
    static __half2 pair(float x, float y) { return __floats2half2_rn(x, y); }
};
template <> struct Of<__nv_bfloat16> {
    static __nv_bfloat16 from(float x) { return __float2bfloat16_rn(x); }
    static __nv_bfloat16 from(double x) { return __double2bfloat16(x); }
    static float to(__nv_bfloat16 x) { return __bfloat162float(x); }
    static __nv_bfloat162 pair(float x, float y) { return __floats2bfloat162_rn(x, y); }
};
template <class H, class F>
__global__ void narrow(const F* x, H* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = Of<H>::from(x[i]);
}
template <class H>
__global__ void widen(const H* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = Of<H>::to(x[i]);
}
template <class H>
__global__ void arithmetic(const H* a, const H* b, H* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        y[i] = a[i] + b[i];
        y[n + i] = __hmul(a[i], b[i]);
        y[2 * n + i] = __hfma(a[i], b[i], a[i]);
        const auto pair = __hsub2(Of<H>::pair(Of<H>::to(a[i]), 0.0f), Of<H>::pair(Of<H>::to(b[i]), 1.0f));
        y[3 * n + i] = Of<H>::from(__low2float(pair));
        y[4 * n + i] = -pair.y;
        y[5 * n + i] = __hmax(a[i], b[i]);
        y[6 * n + i] = __hgt(a[i], b[i]) ? a[i] : b[i];
    }
}
"""
FORMATS = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}


@pytest.fixture(params=["own", "cuda"])
def headers(request, monkeypatch):
    """The emulator's own half types and, where they are installed, those of CUDA's headers."""
    build = pytest.importorskip("gradlab.backends.cuda.emulator.build")
    if request.param == "cuda" and build.toolkit_headers() is None:
        pytest.skip("CUDA's headers are not installed")
    monkeypatch.setenv("GRADLAB_EMULATOR_HEADERS", request.param)


def same_bits(got, want):
    """Equal in every bit, but for the bits of NaN."""
    kind = np.dtype(f"u{got.dtype.itemsize}")
    nan = np.isnan(got.astype(np.float64))
    np.testing.assert_array_equal(nan, np.isnan(want.astype(np.float64)))
    np.testing.assert_array_equal(got.view(kind)[~nan], want.view(kind)[~nan])


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize("name", FORMATS)
@np.errstate(all="ignore")
def test_conversions(name):
    dtype = FORMATS[name]
    from_float, from_double, widen = compiled(HALF, f"narrow<{name}, float>", f"narrow<{name}, double>", f"widen<{name}>")
    every = np.arange(65536, dtype=np.uint16).view(dtype)
    wide = np.zeros(65536, np.float32)
    widen.run(ONE, (64,), every, wide, INT(65536))
    same_bits(wide, every.astype(np.float32))
    # Every value, what lies half way to the next one, and their neighbours; then any bits.
    finite = every[np.isfinite(every.astype(np.float32))].astype(np.float64)
    middles = (finite[:-1] + finite[1:]) / 2
    draw = np.random.default_rng(0)
    for kernel, kind in ((from_float, np.float32), (from_double, np.float64)):
        values = np.concatenate([every.astype(kind), middles.astype(kind)])
        values = np.concatenate([values, np.nextafter(values, kind(np.inf)), np.nextafter(values, kind(-np.inf))])
        values = np.concatenate([values, np.frombuffer(draw.bytes(100000 * values.itemsize), kind)])
        if kind == np.float32 and name == "__half":  # the launch flushes subnormals of float, in CUDA's headers too
            values = values[(values == 0) | ~(np.abs(values) < np.finfo(np.float32).tiny)]
        got = np.zeros(values.size, dtype)
        kernel.run(ONE, (64,), values, got, INT(values.size))
        same_bits(got, rounded(values, dtype))


def rounded(values, dtype):
    """To nearest, ties to even, in one step: ml_dtypes goes from double to bfloat16 by way of float."""
    if dtype == np.float16 or values.dtype == np.float32:
        return values.astype(dtype)
    near = values.astype(np.float32)
    towards = np.nextafter(near, np.where(values > near, np.float32(np.inf), np.float32(-np.inf)))
    odd = np.where((near == values) | (near.view(np.uint32) & 1 == 1) | ~np.isfinite(near), near, towards)  # round to odd first
    return odd.astype(dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_arithmetic_of_halves(name):
    """With the emulator's own headers: CUDA's leave __hfma and others to the device."""
    dtype = FORMATS[name]
    (arithmetic,) = compiled(HALF, f"arithmetic<{name}>")
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(1000).astype(dtype) for _ in range(2))
    y = np.zeros((7, 1000), dtype)
    arithmetic.run(ONE, (32,), a, b, y, INT(1000))
    x, z = a.astype(np.float64), b.astype(np.float64)
    expected = [x + z, x * z, x * z + x, x - z, np.ones(1000), np.maximum(x, z), np.maximum(x, z)]
    for row, want in zip(y, expected):
        same_bits(row, rounded(want, dtype))


def test_other_functions_of_cuda_need_its_headers(monkeypatch):
    """A function that the emulator's own half header has not is taken from CUDA's, where they are installed."""
    build = pytest.importorskip("gradlab.backends.cuda.emulator.build")
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* x) { x[0] = __ushort2half_rn(x[0] > __half(0.0f)); }'
    monkeypatch.setenv("GRADLAB_EMULATOR_HEADERS", "own")
    with pytest.raises(build.CompileError, match="__ushort2half_rn"):
        compiled(source, "k")
    if build.toolkit_headers() is None:
        pytest.skip("CUDA's headers are not installed")
    monkeypatch.delenv("GRADLAB_EMULATOR_HEADERS")
    (kernel,) = compiled(source, "k")
    x = np.full(1, 5, np.float16)
    kernel.run(ONE, ONE, x)
    assert x[0] == 1


# ---- the rest ----------------------------------------------------------------------------------------------------------------

REST = """
extern "C" __global__ void bits(const unsigned* x, unsigned* y) {
    const unsigned v = x[threadIdx.x];
    unsigned* out = y + 12 * threadIdx.x;
    out[0] = __popc(v); out[1] = __clz(int(v)); out[2] = __ffs(int(v)); out[3] = __brev(v);
    out[4] = __byte_perm(v, ~v, 0x7043); out[5] = __funnelshift_l(v, ~v, 7); out[6] = __funnelshift_r(v, ~v, 7);
    out[7] = __umulhi(v, v); out[8] = unsigned(__mulhi(int(v), -3));
    const unsigned long long twice = v * 0x100000001ull;
    out[9] = unsigned(__umul64hi(twice, twice) >> 32);
    out[10] = unsigned(__dp4a(int(v), int(v), 1)); out[11] = unsigned(__float_as_int(__uint_as_float(v)));
}
extern "C" __global__ void conversions(const float* x, int* y, float* z) {
    const int i = threadIdx.x;
    y[4 * i] = __float2int_rn(x[i]); y[4 * i + 1] = __float2int_rz(x[i]);
    y[4 * i + 2] = __float2int_rd(x[i]); y[4 * i + 3] = int(__float2uint_rn(x[i]));
    z[3 * i] = min(x[i], 1.0f); z[3 * i + 1] = max(x[i], 1.0); z[3 * i + 2] = __saturatef(x[i]);
}
extern "C" __global__ void vectors(const float4* x, float2* y, long long* sizes) {
    const float4 v = __ldg(x + threadIdx.x);
    y[threadIdx.x] = make_float2(v.x + v.y, v.z + v.w);
    sizes[0] = sizeof(float3) * 100 + alignof(float3); sizes[1] = sizeof(double4) * 100 + alignof(double2);
    sizes[2] = sizeof(uchar4) * 100 + alignof(uchar4); sizes[3] = sizeof(longlong2) * 100 + alignof(longlong2);
    sizes[4] = dim3(3).y + uint3{1, 2, 3}.z; sizes[5] = clock64() > 0; sizes[6] = warpSize;
}
"""


def test_bits():
    (kernel,) = compiled(REST, "bits")
    x = np.array([0, 1, 2, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xF0E1D2C3], np.uint32)
    y = np.zeros((x.size, 12), np.uint32)
    kernel.run(ONE, (x.size,), x, y)
    for v, row in zip(map(int, x), y):
        other = v ^ 0xFFFFFFFF
        both, signed = other << 32 | v, v - 2**32 if v >> 31 else v
        byte = both.to_bytes(8, "little")
        parts = [(v >> 8 * i & 255) - (256 if v >> 8 * i & 128 else 0) for i in range(4)]
        expected = [
            v.bit_count(), 32 - v.bit_length(), (v & -v).bit_length(), int(f"{v:032b}"[::-1], 2),
            byte[7] << 24 | byte[0] << 16 | byte[4] << 8 | byte[3], (both << 7 >> 32) & 0xFFFFFFFF, both >> 7 & 0xFFFFFFFF,
            v * v >> 32, signed * -3 >> 32, (v * 0x100000001 & (2**64 - 1)) ** 2 >> 96, sum(p * p for p in parts) + 1, v,
        ]  # fmt: skip
        assert [int(n) for n in row] == [n & 0xFFFFFFFF for n in expected], hex(v)


def test_conversions_of_numbers():
    (kernel,) = compiled(REST, "conversions")
    x = np.array([0.5, 1.5, -1.5, np.nan, np.inf, -np.inf, 3e9, -0.4], np.float32)
    y, z = np.zeros((8, 4), np.int32), np.zeros((8, 3), np.float32)
    kernel.run(ONE, (8,), x, y, z)
    most, least = 2**31 - 1, -(2**31)
    assert y[:, 0].tolist() == [0, 2, -2, 0, most, least, most, 0]
    assert y[:, 1].tolist() == [0, 1, -1, 0, most, least, most, 0]
    assert y[:, 2].tolist() == [0, 1, -2, 0, most, least, most, -1]
    assert y[:, 3].view(np.uint32).tolist() == [0, 2, 0, 0, 2**32 - 1, 0, 3000000000, 0]
    np.testing.assert_array_equal(z[:, 0], np.fmin(x, 1))
    np.testing.assert_array_equal(z[:, 1], np.fmax(x, 1))
    assert z[3].tolist() == [1, 1, 0]


@pytest.mark.usefixtures("headers")
def test_vector_types():
    (kernel,) = compiled(REST, "vectors")
    x, y, sizes = guarded((3, 4), "float32"), guarded((3, 2), "float32"), guarded((7,), "int64")
    x[...] = np.arange(12).reshape(3, 4)
    kernel.run(ONE, (3,), x, y, sizes)
    np.testing.assert_array_equal(y, x.reshape(3, 2, 2).sum(2))
    assert sizes.tolist() == [1204, 3216, 404, 1616, 4, 1, 32]
