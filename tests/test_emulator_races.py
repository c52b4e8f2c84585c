"""Races: what two threads of a launch touch with nothing that orders them is a fault, whatever the result."""

import re

import numpy as np
import pytest
from emulated import FAULTS, compiled, guarded

import gradlab as gl
from gradlab.backends.cuda.emulator import KernelFault
from gradlab.cli import main
from gradlab.library import CudaSource, Launch, Spec

TEXT = """
#define KERNEL(name) extern "C" __global__ void name(float* y, int* count)
KERNEL(accumulation) { y[0] += 1.0f; }
KERNEL(same_value) { y[0] = 1.0f; }
KERNEL(read_beside_write) { if (threadIdx.x == 40) y[0] = 1.0f; else y[threadIdx.x + 1] = y[0]; }
KERNEL(other_warp) { y[threadIdx.x] = 1.0f; __syncwarp(); y[threadIdx.x + 256] = y[(threadIdx.x + 32) % 64]; }
KERNEL(other_half_of_warp) {
    y[threadIdx.x] = 1.0f;
    if (threadIdx.x % 32 < 16) __syncwarp(0xffffu); else __syncwarp(0xffff0000u);
    y[threadIdx.x + 256] = y[threadIdx.x ^ 16];
}
KERNEL(atomic_and_plain) { if (threadIdx.x == 3) y[0] = 0.0f; else atomicAdd(&y[0], 1.0f); }
KERNEL(read_of_atomic) { atomicAdd(&count[0], 1); y[threadIdx.x + 64 * blockIdx.x] = float(count[0]); }
KERNEL(blocks_write) { if (threadIdx.x == 0) y[0] = float(blockIdx.x); }
KERNEL(barrier_between_blocks) {
    if (threadIdx.x == 0) y[blockIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x + 128 + 64 * blockIdx.x] = y[1 - blockIdx.x];
}
KERNEL(bytes_of_a_word) { reinterpret_cast<short*>(y)[threadIdx.x / 2] = 1; }
KERNEL(fence_before_nothing) {
    if (threadIdx.x == 0) { y[blockIdx.x] = 1.0f; count[0] = 1; }
    __threadfence();
    if (threadIdx.x == 1) y[2 + blockIdx.x] = y[1 - blockIdx.x];
}
KERNEL(shared_sum) {
    __shared__ float t;
    if (threadIdx.x == 0) t = 0;
    __syncthreads();
    t += 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = t;
}
KERNEL(dynamic_shared) { extern __shared__ float d[]; d[threadIdx.x] = 1.0f; y[threadIdx.x + 64 * blockIdx.x] = d[threadIdx.x ^ 32]; }

KERNEL(right_atomic) { atomicAdd(&y[0], 1.0f); atomicMax(&count[0], int(threadIdx.x)); }
KERNEL(right_elements) { y[threadIdx.x + blockIdx.x * blockDim.x] += 1.0f; }
KERNEL(right_halves) { reinterpret_cast<short*>(y)[threadIdx.x + blockIdx.x * blockDim.x] = 1; }
KERNEL(right_barrier) {
    __shared__ float t[64];
    t[threadIdx.x] = 1.0f;
    __syncthreads();
    float s = t[63 - threadIdx.x];
    __syncthreads();
    t[threadIdx.x] = s;
    y[threadIdx.x + 64 * blockIdx.x] = t[threadIdx.x];
}
KERNEL(right_dynamic) {
    extern __shared__ float d[];
    d[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x + 64 * blockIdx.x] = d[threadIdx.x ^ 32];
}
KERNEL(right_warp) {
    float* of_block = y + 64 * blockIdx.x;
    of_block[threadIdx.x] = float(threadIdx.x);
    __syncwarp();
    float other = of_block[threadIdx.x ^ 1];
    __syncwarp();
    of_block[threadIdx.x] = other;
}
KERNEL(right_half_of_warp) {
    float* of_block = y + 64 * blockIdx.x;
    of_block[threadIdx.x] = 1.0f;
    if (threadIdx.x % 32 < 16) __syncwarp(0xffffu); else __syncwarp(0xffff0000u);
    y[threadIdx.x + 256 + 64 * blockIdx.x] = of_block[threadIdx.x ^ 8];
}
KERNEL(right_last_block) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[blockIdx.x] = float(blockIdx.x + 1);
        __threadfence();
        last = atomicAdd(&count[0], 1) == int(gridDim.x) - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 5) for (unsigned i = 0; i < gridDim.x; ++i) y[100] += y[i];
}
KERNEL(right_own_arrays) {
    float own[8];
    for (int i = 0; i < 8; ++i) own[(i + threadIdx.x) % 8] = float(i);
    y[threadIdx.x + blockIdx.x * blockDim.x] = own[threadIdx.x % 8];
}
"""
NAMES = re.findall(r"^KERNEL\((\w+)\)", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def kernels():
    return dict(zip(NAMES, compiled(TEXT, *NAMES, races=True)))


@pytest.mark.parametrize("order", ["forward", "reverse", "random", "warps"])
@pytest.mark.parametrize("name", NAMES)
def test_what_two_threads_touch(kernels, name, order):
    y, count = guarded((512,), "float32", 0), guarded((1,), "int32", 0)
    kernels[name].max_dynamic_shared_size_bytes = 256
    shared = 256 if "dynamic" in name else 0
    if name.startswith("right_"):
        kernels[name].run((2,), (64,), y, count, shared=shared, order=order)
        return
    with pytest.raises(KernelFault, match=r"a race: it (reads|writes|changes, atomically,) what thread \(\d+, 0, 0\) of") as caught:
        kernels[name].run((2,), (64,), y, count, shared=shared, order=order)
    assert TEXT.splitlines()[caught.value.line - 1].strip() and caught.value.thread is not None
    if "shared" not in name:
        assert "parameter " in str(caught.value) and "element " in str(caught.value)


def test_planted_faults():
    """Those that the thread sanitizer finds."""
    ones, a, keys = np.ones(128, np.float32), np.ones((32, 32), np.float32), np.zeros(64, np.int32)
    launches = {
        "races.cu": {"histogram": ((2,), (32,), keys, np.zeros(4, np.int32), np.int32(64)), "shared_sum": ((2,), (32,), ones, ones.copy()),
                     "overlapping": ((2,), (32,), ones.copy(), np.int32(128))},
        "barriers.cu": {"read_too_early": ((1,), (128,), ones, ones.copy()), "write_too_early": ((1,), (128,), ones, ones.copy()),
                        "tiles": ((2, 2), (16, 16), a, a, a.copy(), np.int32(32)), "no_syncwarp": ((1,), (32,), ones, ones.copy()),
                        "cleared_late": ((1,), (64,), np.ones(128, np.int32), np.zeros(4, np.int32))},
    }  # fmt: skip
    for file, of_file in launches.items():
        names = [f"{name}<{value}>" for name in of_file for value in ("true", "false")]
        functions = dict(zip(names, compiled((FAULTS / file).read_text(encoding="utf-8"), *names, label=file, races=True)))
        for name, arguments in of_file.items():
            functions[f"{name}<false>"].run(*arguments)
            with pytest.raises(KernelFault, match="a race"):
                functions[f"{name}<true>"].run(*arguments)


def test_from_the_shell(tmp_path, capsys, kernels):
    file = tmp_path / "sum.cu"
    file.write_text("__global__ void total(const float* x, float* y) { y[0] += x[threadIdx.x]; }\n"
                    "// gradlab: run total<<<1, 512>>>(x: float32[512], y: float32[1] = zeros)\n"
                    "// gradlab: expect y == sum(x)\n")  # fmt: skip
    assert main(["kernels", str(file), "--emulate"]) == 1
    out = capsys.readouterr().out
    assert "a race: it reads what thread (0, 0, 0) of the same block has written" in out and "sum.cu:1" in out and "all is well" not in out
    file.write_text(file.read_text().replace("y[0] += x[threadIdx.x]", "atomicAdd(y, x[threadIdx.x])"))
    assert main(["kernels", str(file), "--emulate"]) == 0
    assert "all is well" in capsys.readouterr().out


def test_opcheck_finds_it(kernels):
    source = "extern \"C\" __global__ void flag(const float* x, float* y) { y[0] = 1.0f; }"
    op = gl.library.custom_op(
        "tests::flag", lambda x: np.ones(1, x.dtype), infer=lambda x: Spec((1,), x.dtype),
        cuda=CudaSource(source, "flag", lambda x: Launch(grid=1, block=32, arguments=("x", "y"))),
    )  # fmt: skip
    report = gl.testing.opcheck(op, [(gl.ones(3),)], checks=["orders", "races"], raise_exception=False)
    assert report["orders"].status == "ok" and report["races"].status == "FAILED" and "a race" in report["races"].detail
