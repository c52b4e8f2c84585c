"""The emulated GPU finds what is wrong with a kernel or a launch; correct kernels give one result in every order."""

import ctypes
import platform
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from emulated import FAULTS, compiled, fault, guarded, planted

from gradlab.backends.cuda.emulator import ORDERS, CompileError, Parameter, bounds, compile_kernels
from gradlab.backends.native import toolchain

ONE = (1, 1, 1)
INT = np.int32


def line_of(file: str, text: str) -> int:
    """The line of a file in tests/faults that holds a text."""
    lines = (FAULTS / file).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


# ---- memory ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "side"), [("write_after_global", "after"), ("write_before_global", "before")])
def test_a_write_beside_an_array(name, side):
    (kernel,) = planted("bounds.cu", name)
    found = fault(kernel, (2,), (32,), guarded((40,), "float32"), INT(40))
    assert f"parameter 0: a write {side} an array of 160 bytes" in str(found)
    assert found.kernel == name
    kernel.run((2,), (32,), guarded((64,), "float32")[8:], INT(40))  # inside the memory that a view belongs to: nothing to see


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
@pytest.mark.parametrize("name", ["read_after_global", "read_before_global", "read_far_away"])
def test_a_read_beside_an_array(name, size):
    (kernel,) = planted("bounds.cu", name)
    if not bounds.flags(""):
        pytest.skip("accesses are not checked on this machine")
    x, y = guarded((size,), "int8" if name == "read_far_away" else "float32", 0), guarded((size,), "float32")
    found = fault(kernel, (1,), (64,), x, y, INT(size)) if size < 64 else fault(kernel, (16,), (64,), x, y, INT(size))
    side = "after" if name == "read_after_global" else "before"
    assert f"{name}: parameter 0: a read {side} an array of {x.nbytes} bytes" in str(found)
    if found.file:  # where addr2line is installed
        assert (found.file, found.line) == ("bounds.cu", line_of("bounds.cu", f"{name}'s"))


@pytest.mark.parametrize(("way", "wanted"), [("load", 16), ("parts", 16), ("write", 8), ("shared", 8), ("static", 16), ("dynamic", 32)])
def test_a_misaligned_access(way, wanted):
    (kernel,) = planted("bounds.cu", f"misaligned_{way}")
    if not bounds.flags(""):
        pytest.skip("accesses are not checked on this machine")
    found = fault(kernel, (1,), (4,), guarded((64,), "float32"), guarded((64,), "float32"), shared=128 if way == "dynamic" else 0)
    beyond = wanted // 2 if way in ("static", "dynamic") else 4
    assert "a misaligned access: " in found.reason and f"lies at multiples of {wanted} bytes, not {beyond} beyond one" in found.reason
    line = line_of("bounds.cu", "(x + 1)[" if way == "load" else f"misaligned_{way}'s")
    assert found.thread == (0, 0, 0) and (found.file, found.line) == ("bounds.cu", line)


def test_a_read_beside_shared_memory():
    static, dynamic = planted("bounds.cu", "read_after_static", "read_after_dynamic")
    if not bounds.flags(""):
        pytest.skip("accesses are not checked on this machine")
    y = np.zeros(32, np.float32)
    assert "a read beside the shared variable `tile` (120 bytes)" in str(fault(static, (1,), (32,), y))
    assert "a read beside dynamic shared memory (120 bytes)" in str(fault(dynamic, (1,), (32,), y, shared=120))


def test_a_write_beside_shared_memory():
    static, dynamic = planted("bounds.cu", "write_after_static", "write_after_dynamic")
    y = np.zeros(32, np.float32)
    found = fault(static, (2,), (32,), y)
    assert "a write beside the shared variable `tile` (120 bytes)" in str(found)
    assert found.block == (0, 0, 0)
    assert "a write beside dynamic shared memory (120 bytes)" in str(fault(dynamic, (1,), (32,), y, shared=120))
    dynamic.run((1,), (32,), y, shared=128)
    assert "asked for 0 bytes" in str(fault(dynamic, (1,), (32,), y))


@pytest.mark.parametrize(
    ("name", "arguments", "words", "place"),
    [
        ("null_pointer", (np.zeros(4, np.float32), 0), "null pointer", "float(*where)"),
        ("null_pointer", (np.zeros(4, np.float32), 0x123456000), "where there is no memory", "float(*where)"),
        ("division", (np.zeros(4, np.int32), INT(0)), "integer division by zero", "1000 / by"),
        ("recursion", (np.zeros(4, np.int32), INT(1000)), "stack of 64 KiB is full", None),
    ],
)
def test_what_would_kill_the_process(name, arguments, words, place):
    (kernel,) = planted("bounds.cu", name)
    found = fault(kernel, (1,), (4,), *arguments)
    assert words in str(found)
    assert found.thread == (0, 0, 0)
    if place and found.file:  # where addr2line is installed
        assert (found.file, found.line) == ("bounds.cu", line_of("bounds.cu", place))
    after = compiled('extern "C" __global__ void after(int* x) { __syncthreads(); x[threadIdx.x] = 7; }', "after")[0]
    x = np.zeros(64, np.int32)
    after.run((1,), (64,), x)
    assert (x == 7).all()


def test_fresh_shared_memory_is_nan():
    total, kept, dynamic = planted("uninitialised.cu", "static_total", "kept_between_blocks", "dynamic_total")
    y = np.zeros(4, np.float32)
    total.run((1,), (32,), y)
    assert np.isnan(y[0])
    kept.run((4,), (32,), y)
    assert y[0] == 1
    assert np.isnan(y[1:]).all()
    dynamic.run((1,), (4,), y, shared=16)
    assert np.isnan(y).all()
    assert np.isnan(guarded((3,), "float16")).all()


# ---- barriers ----------------------------------------------------------------------------------------------------------------


def run_barrier_kernel(kernel, name, order, seed=0):
    """Run one of tests/faults/barriers.cu on fixed numbers; whether the result is right."""
    draw = np.random.default_rng(1)
    if name == "tiles":
        a, b = (draw.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
        c = np.zeros_like(a)
        kernel.run((4, 4), (16, 16), a, b, c, INT(64), order=order, seed=seed)
        return np.allclose(c, a @ b, atol=1e-4)
    if name == "cleared_late":
        total = np.zeros(1, np.int32)
        kernel.run((1,), (128,), np.arange(128, dtype=np.int32), total, order=order, seed=seed)
        return total[0] == 127 * 64
    threads = 32 if name == "no_syncwarp" else 128
    x = draw.integers(1, 100, threads).astype(np.float32)
    y = np.zeros_like(x)
    kernel.run((1,), (threads,), x, y, order=order, seed=seed)
    expected = {"read_too_early": x[::-1], "write_too_early": np.full_like(x, 3 * x.sum()), "no_syncwarp": np.full_like(x, x.sum())}
    return np.array_equal(y, expected[name])


# In which orders each missing barrier shows. Only a warp that runs ahead does harm where a later write lacks one.
SEEN = {
    "read_too_early": {"forward", "reverse", "random", "warps"},
    "write_too_early": {"warps"},
    "tiles": {"warps", "forward", "reverse", "random"},
    "no_syncwarp": {"forward", "reverse", "random", "warps"},
    "cleared_late": {"forward"},
}


@pytest.mark.parametrize("name", SEEN)
def test_a_missing_barrier(name):
    wrong, right = planted("barriers.cu", f"{name}<true>", f"{name}<false>")
    for order in ORDERS:
        assert all(run_barrier_kernel(right, name, order, seed) for seed in range(3)), order
    seen = {order for order in ORDERS if not all(run_barrier_kernel(wrong, name, order, seed) for seed in range(4))}
    assert SEEN[name] <= seen


DIVERGENCE = {
    "divergent_barrier": "the thread waits in __syncthreads, while thread (0, 0, 0) waits in __syncthreads (divergence.cu:6)",
    "barrier_after_return": "waits in __syncthreads, but 12 of the block's 32 threads have returned",
    "barrier_or_shuffle": "lane 8 waits in __shfl_xor_sync with mask ffffffff for lane 0, which waits in __syncthreads",
    "shuffle_from_returned": "lane 4 reads lane 20, which has returned",
    "shuffle_outside_mask": "lane 0 reads lane 20, which is not in the mask",
    "shuffle_in_two_places": "warp divergence: lane 0 waits in __shfl_xor_sync",
    "not_in_own_mask": "lane 16 is not in its own mask 0000ffff",
    "odd_width": "width 12 is no power of two",
    "two_masks": "warp divergence: lane 0 waits in __syncwarp with mask 0001ffff for lane 16",
    "trapped": "__trap() was called",
    "asserted": "assertion failed: int(threadIdx.x) < n",
}


@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_part(order):
    for kernel in planted("divergence.cu", *DIVERGENCE):
        memory = np.zeros(64, kernel.signature[0].dtype)
        found = fault(kernel, (4,), (32,), memory, *[INT(20)] * (len(kernel.signature) - 1), order=order)
        if order == "forward":
            assert DIVERGENCE[kernel.name] in str(found)
        assert found.file == "divergence.cu"
        assert line_of("divergence.cu", f"void {kernel.name}(") <= found.line <= line_of("divergence.cu", f"void {kernel.name}(") + 8
        assert found.thread is not None
        if kernel.name == "trapped":
            assert (found.thread, found.block) == ((5, 0, 0), (2, 0, 0))


# ---- launches ----------------------------------------------------------------------------------------------------------------

SCALE = 'extern "C" __global__ void scale(float* x, const float* y, float by, int n, long long m, bool flag, void* any) {}'


def test_the_signature():
    (scale,) = compiled(SCALE, "scale")
    assert list(map(str, scale.signature)) == ["float32*", "const float32*", "float32", "int32", "int64", "bool", "void*"]
    assert scale.signature[1] == Parameter("float32", 8, pointer=True, constant=True)
    assert repr(scale).startswith("EmulatedFunction(scale(float32*")


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0, np.zeros(4), "an array of float64 for float32*"),
        (2, 2, "a Python int is passed as 8 bytes, which float32 is not"),
        (2, 2.0, "float for float32: pass a NumPy scalar"),
        (2, np.float64(2), "a float64 value for float32 (the GPU would read its raw bytes)"),
        (3, np.int64(2), "a int64 value for int32"),
        (4, b"1234", "4 bytes for int64"),
        (0, np.float32(1), "a float32 value for float32*"),
    ],
)
def test_arguments_are_checked(position, value, words):
    (scale,) = compiled(SCALE, "scale")
    x = np.zeros(4, np.float32)
    good = [x, x, np.float32(2), INT(4), 5, np.bool_(True), x]
    scale.run(ONE, ONE, *good)
    found = fault(scale, ONE, ONE, *good[:position], value, *good[position + 1 :])
    assert f"parameter {position}: {words}" in str(found)
    assert "it takes 7 parameters, not 6" in str(fault(scale, ONE, ONE, *good[:-1]))


def test_a_read_only_array():
    (scale,) = compiled(SCALE, "scale")
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    y = np.zeros(4, np.float32)
    scale.run(ONE, ONE, y, x, np.float32(2), INT(4), 5, np.bool_(True), y)
    assert "read-only" in str(fault(scale, ONE, ONE, x, x, np.float32(2), INT(4), 5, np.bool_(True), y))


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        ((1, 1, 1), (2048, 1, 1), 0, "block (2048, 1, 1) is not within"),
        ((1, 1, 1), (1024, 2, 1), 0, "more than 1024 threads"),
        ((1, 1, 1), (1, 1, 65), 0, "is not within"),
        ((0, 1, 1), (1, 1, 1), 0, "grid (0, 1, 1) is not within"),
        ((1, 65536, 1), (1, 1, 1), 0, "is not within"),
        ((1, 1, 1), (1, 1, 1), 60000, "49152 are allowed; set max_dynamic_shared_size_bytes"),
        ((1, 1, 1), (1, 1, 1), 240000, "the hardware has 232448"),
    ],
)
def test_launches_are_checked(grid, block, shared, words):
    (empty,) = compiled('extern "C" __global__ void empty() {}', "empty")
    assert words in str(fault(empty, grid, block, shared=shared))
    empty.max_dynamic_shared_size_bytes = 100000
    empty.run(ONE, ONE, shared=60000)
    with pytest.raises(ValueError, match="order is 'sideways'"):
        empty.run(ONE, ONE, order="sideways")


def test_too_much_static_shared_memory():
    source = """extern "C" __global__ void large(float* x) {
        __shared__ float first[8000], second[8000];
        first[threadIdx.x] = second[threadIdx.x] = 1.0f; x[threadIdx.x] = first[0];
    }"""
    (large,) = compiled(source, "large")
    found = fault(large, ONE, (4,), np.zeros(4, np.float32))
    assert "64000 bytes of static shared memory, with `second`; the hardware has 48 KiB" in str(found)


def test_a_table_of_addresses():
    """As the driver's launch takes its parameters."""
    (add,) = compiled('struct Two { int a, b; }; extern "C" __global__ void add(int* x, Two by) { x[threadIdx.x] += by.a + by.b; }', "add")
    x, by = np.zeros(3, np.int32), np.array([1, 2], np.int32)
    address = ctypes.c_uint64(x.ctypes.data)
    table = (ctypes.c_void_p * 2)(ctypes.addressof(address), by.ctypes.data)
    add.launch((1, 1, 1), (3, 1, 1), ctypes.addressof(table), 0)
    assert (x == 3).all()
    add.run(ONE, (3,), x, by.tobytes())
    assert (x == 6).all()
    assert str(add.signature[1]) == "struct of 8 bytes"


def test_every_thread_of_every_block_runs_once():
    source = """extern "C" __global__ void mark(int* x) {
        const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        x[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
    }"""
    (mark,) = compiled(source, "mark")
    for order in ORDERS:
        x = np.zeros(2 * 3 * 4 * 5 * 6 * 7, np.int32)
        mark.run((2, 3, 4), (5, 6, 7), x, order=order)
        assert (x == 1).all(), order


@pytest.mark.parametrize("fibers", ["assembly", "ucontext"])
def test_both_ways_to_switch(fibers, monkeypatch):
    if fibers == "assembly" and platform.machine() not in {"x86_64", "AMD64"}:
        pytest.skip("the switch in assembly is for x86-64")
    monkeypatch.setenv("GRADLAB_EMULATOR_FIBERS", fibers)
    right, wrong = planted("barriers.cu", "write_too_early<false>", "write_too_early<true>")
    (exact,) = compiled('extern "C" __global__ void third(float* x) { __syncthreads(); x[threadIdx.x] = x[threadIdx.x] * 0.5f; }', "third")
    for order in ORDERS:
        assert run_barrier_kernel(right, "write_too_early", order)
        tiny = np.full(64, 1.5e-38, np.float32)
        exact.run(ONE, (64,), tiny, order=order)
        assert (tiny == 0).all()  # subnormal results are zero, also after a switch
    assert not run_barrier_kernel(wrong, "write_too_early", "warps")
    (kernel,) = planted("divergence.cu", "divergent_barrier")
    for _ in range(2):
        assert "divergent barrier" in str(fault(kernel, ONE, (32,), np.zeros(64, np.float32)))
    (kernel,) = planted("bounds.cu", "null_pointer")
    assert "null pointer" in str(fault(kernel, ONE, (32,), np.zeros(64, np.float32), 0))


def test_an_unknown_way_to_switch(monkeypatch):
    monkeypatch.setenv("GRADLAB_EMULATOR_FIBERS", "threads")
    with pytest.raises(ValueError, match="assembly or ucontext"):
        compile_kernels("", [], label="empty.cu")


def test_subnormals_of_double_are_kept():
    source = "template <class T> __global__ void half_of(T* x) { x[threadIdx.x] *= T(0.5); }"
    small, large = compiled(source, "half_of<float>", "half_of<double>")
    x, y = np.full(1, np.finfo(np.float32).tiny), np.full(1, np.finfo(np.float64).tiny)
    small.run(ONE, ONE, x)
    large.run(ONE, ONE, y)
    assert x[0] == 0
    assert y[0] > 0


# ---- sources -----------------------------------------------------------------------------------------------------------------


def test_a_faulty_source():
    with pytest.raises(CompileError, match=r"broken.cu does not compile[\s\S]*broken.cu:2"):
        compiled('\nextern "C" __global__ void broken() { undeclared(); }', "broken", label="broken.cu")


def test_shared_memory_outside_a_function():
    with pytest.raises(CompileError, match="`outside` is declared outside a function"):
        compiled('__shared__ float outside[4]; extern "C" __global__ void k(float* x) { x[0] = outside[0]; }', "k")


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    toolchain.compiler.cache_clear()
    try:
        with pytest.raises(toolchain.CompilerMissing, match="CXX names no-such-compiler"):
            compile_kernels("", [], label="empty.cu")
        monkeypatch.delenv("CXX")
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(toolchain.CompilerMissing, match="apt install g"):
            compile_kernels("", [], label="empty.cu")
    finally:
        toolchain.compiler.cache_clear()


def test_programs_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void one(int* x) { *x = 1; }'
    compiled(source, "one")
    built = sorted(path.name for path in (tmp_path / "emulator").iterdir())
    assert [name.partition("-")[0] for name in built if not name.startswith("header")] == ["program", "runtime"]
    compiled(source, "one")
    assert sorted(path.name for path in (tmp_path / "emulator").iterdir()) == built
    with ThreadPoolExecutor(3) as pool:  # who builds the same at the same time gets the same
        made = list(pool.map(lambda _: compiled(source.replace("= 1", "= 2"), "one")[0], range(3)))
    x = np.zeros(1, np.int32)
    for one in made:
        one.run(ONE, ONE, x)
    assert x[0] == 2
    assert len(list((tmp_path / "emulator").iterdir())) == len(built) + 1
