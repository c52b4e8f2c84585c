"""Copies in the background land as late as they may on the emulated GPU: what the hardware leaves undefined is a fault."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulated import compiled, fault, guarded

from gradlab.backends.cuda.emulator import KernelFault

ORDERS = ["forward", "reverse", "random", "warps"]

# A sum of each column's numbers over rounds of 64, three stages: the waits, the barriers and what is written where may be planted wrong.
TEXT = """
#include "mma.cuh"
using namespace gradlab;
template <int Waits, bool Barrier, bool Again, int Ahead>
__global__ void rounds(const float* x, float* y, int count) {
    __shared__ alignas(16) float stage[3][64 * 4];
    float sum = 0;
    auto fetch = [&](int round) {
        if (round < count) copy_ahead<16>(&stage[round % 3][threadIdx.x * 4], x + (round * 64 + threadIdx.x) * 4, true);
        end_of_group();
    };
    for (int i = 0; i < 2; ++i) fetch(i);
    for (int round = 0; round < count; ++round) {
        await_groups<Waits>();
        if (Barrier) __syncthreads();
        fetch(round + Ahead);
        for (int i = 0; i < 4; ++i) sum += stage[round % 3][i * 64 + (threadIdx.x + 40) % 64];
        if (Again) __syncthreads();
    }
    await_copies();
    y[threadIdx.x] = sum;
}
__global__ void no_wait(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    end_of_group();
    y[threadIdx.x] = room[threadIdx.x];
    await_groups<0>();
}
__global__ void no_group(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    await_groups<0>();
    y[threadIdx.x] = room[threadIdx.x];
    await_copies();
}
__global__ void no_end(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    end_of_group();
}
__global__ void written_meanwhile(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    room[threadIdx.x] = 1.0f;
    await_copies();
}
__global__ void from_changes(float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    x[threadIdx.x] += 1.0f;
    await_copies();
    y[threadIdx.x] = room[threadIdx.x];
}
__global__ void askew(const float* x, float* y) {
    __shared__ alignas(16) float room[68];
    if (threadIdx.x == 3) copy_ahead<16>(&room[threadIdx.x], x, true);
    await_copies();
}
__global__ void from_askew(const float* x, float* y) {
    __shared__ alignas(16) float room[64];
    if (threadIdx.x < 16) copy_ahead<16>(&room[threadIdx.x * 4], x + threadIdx.x * 4 + 1, threadIdx.x < 8);  // also where nothing is read
    await_copies();
}
__global__ void not_taken_askew(const float* x, float* y) {
    __shared__ alignas(16) float room[4];
    if (threadIdx.x == 0) copy_ahead<16>(room, x + 1, false);
    await_copies();
}
__global__ void into_unaligned(const float* x, float* y) {
    __shared__ float room[256];
    copy_ahead<16>(&room[threadIdx.x * 4], x, true);
    await_copies();
}
__global__ void beside_room(const float* x, float* y) {
    __shared__ alignas(16) float room[252];
    copy_ahead<16>(&room[threadIdx.x * 4], x, true);
    await_copies();
}
__global__ void into_global(const float* x, float* y) { copy_ahead<4>(&y[threadIdx.x], x + threadIdx.x, true); await_copies(); }
__global__ void behind(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x + 1, true);
    await_copies();
}
__global__ void right(const float* x, float* y) {
    __shared__ float room[64];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, threadIdx.x % 3 != 0);
    await_copies();
    y[threadIdx.x] = room[threadIdx.x];  // its own: the neighbour's four bytes may be on their way
}
"""
ROUNDS = {
    "right": "rounds<1, true, false, 2>", "a wait too few": "rounds<2, true, false, 2>", "no barrier": "rounds<1, false, false, 2>",
    "a stage too early": "rounds<2, true, true, 3>",
}  # fmt: skip
OTHERS = {
    "no_wait": r"a read of shared memory where its own asynchronous copy \(.*mma.cuh:\d+\) has not landed",
    "no_group": r"a read of shared memory where its own asynchronous copy .* has not landed: it is not awaited",
    "no_end": r"the thread returns while 1 of its asynchronous copies are in flight",
    "written_meanwhile": r"a write of shared memory where its own asynchronous copy",
    "from_changes": r"what an asynchronous copy reads has changed before it was awaited",
    "askew": r"an asynchronous copy of 16 bytes: both addresses are multiples of its size",
    "from_askew": r"an asynchronous copy of 16 bytes: both addresses are multiples of its size",
    "not_taken_askew": r"an asynchronous copy of 16 bytes: both addresses are multiples of its size",
    "into_unaligned": r"an asynchronous copy of 16 bytes: both addresses are multiples of its size",
    "beside_room": r"an asynchronous copy of 16 bytes: it goes into shared memory",
    "into_global": r"an asynchronous copy of 4 bytes: it goes into shared memory",
    "behind": r"parameter 0: a read after an array of 256 bytes",
}


@pytest.fixture(scope="module", params=[False, True], ids=["bounds", "races"])
def kernels(request):
    names = [*ROUNDS.values(), *OTHERS, "right"]
    return request.param, dict(zip(names, compiled(TEXT, *names, races=request.param)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_stages_that_are_awaited_rightly(kernels, order, rounds):
    x, y = guarded((rounds, 256), "float32"), guarded((64,), "float32", 0)
    x[:] = np.arange(rounds * 256).reshape(rounds, 256)
    kernels[1][ROUNDS["right"]].run((1,), (64,), x, y, np.int32(rounds), order=order)
    np.testing.assert_array_equal(y, np.roll(x.sum(0).reshape(4, 64).sum(0), -40))


@pytest.mark.parametrize("planted", [name for name in ROUNDS if name != "right"])
def test_a_wait_or_a_barrier_too_few_is_a_fault(kernels, planted):
    """Without a barrier a thread may read where no copy has begun: then the result tells, if not the search for races."""
    races, made = kernels
    x = guarded((7, 256), "float32", 1)
    for order in ORDERS:
        y = guarded((64,), "float32", 0)
        try:
            made[ROUNDS[planted]].run((1,), (64,), x, y, np.int32(7), order=order)
        except KernelFault as error:
            assert re.search("asynchronous copy .* has not landed|a race", str(error))
        else:
            assert planted == "no barrier" and not races and not np.array_equal(y, np.full(64, 28.0))


@pytest.mark.parametrize("name", OTHERS)
def test_faults_of_one_copy(kernels, name):
    races, made = kernels
    if name == "behind" and races:
        return  # a compiler checks one of the two
    x, y = guarded((64,), "float32", 1), guarded((64,), "float32", 0)
    found = fault(made[name], (1,), (64,), x, y)
    assert re.search(OTHERS[name], str(found)), found
    assert found.thread is not None and found.line


def test_after_a_fault_the_memory_is_as_before(kernels):
    x, y = guarded((64,), "float32", 1), guarded((64,), "float32", 0)
    fault(kernels[1]["no_wait"], (1,), (64,), x, y)
    kernels[1]["right"].run((1,), (64,), x, y)
    np.testing.assert_array_equal(y, np.arange(64) % 3 != 0)


PIPELINE = """
#include <cuda_pipeline_primitives.h>
extern "C" __global__ void halves(const double* x, double* y) {
    __shared__ double room[2][32];
    __pipeline_memcpy_async(&room[0][threadIdx.x], x + threadIdx.x, 8);
    __pipeline_commit();
    __pipeline_memcpy_async(&room[1][threadIdx.x], x + 32 + threadIdx.x, 8, 4);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    y[threadIdx.x] = room[0][threadIdx.x];
    __pipeline_wait_prior(0);
    y[32 + threadIdx.x] = room[1][threadIdx.x];
}
"""


def test_the_names_that_cuda_has_for_them():
    (kernel,) = compiled(PIPELINE, "halves")
    x = np.random.default_rng(1).normal(size=64)
    y = np.zeros(64)
    kernel.run((1,), (32,), x, y)
    want = x.copy()
    want.view(np.uint64)[32:] &= 0xFFFFFFFF  # the last four bytes are zeros
    np.testing.assert_array_equal(y.view(np.uint64), want.view(np.uint64))
