"""Matrix products by cuBLASLt, on the emulated GPU's stand-in (or the real library on a real GPU): rows against NumPy, what is copied, what
is cached, epilogues, misuse, and what happens where the library has no algorithm or is missing."""

from __future__ import annotations

import ctypes
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.gemm import binding, library, operands, rows
from gradlab.backends.cuda.gemm.binding import BlasError, ComputeType, Desc, Epilogue, Matrix, Operation, Preference, Status
from gradlab.backends.cuda.gemm.operands import Problem, Side, arrange, row_major, side
from gradlab.backends.cuda.gemm.plan import Blas, Handle, alignment_of
from gradlab.backends.cuda.gemm.settings import SETTINGS, set_candidates
from gradlab.dtype import as_numpy

TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
DTYPES = tuple(TOLERANCE)
RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(as_numpy(dtype))


def close(got, want, dtype):
    got = got.cpu().numpy()
    assert (got.shape, got.dtype) == (want.shape, as_numpy(dtype))
    want = want.astype(np.float64)
    scale = max(1.0, np.abs(want).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=TOLERANCE[dtype] * scale)


def wide(x):
    return x.astype(np.float64)


@pytest.fixture
def blas(cuda):
    found = library.blas_of(cuda.driver)
    if found is None:
        pytest.skip("no cuBLASLt")
    return found


@pytest.fixture
def standin(cuda, blas):
    """The stand-in, with refusals taken back and plans forgotten afterwards."""
    if cuda.driver.name != "emulated":
        pytest.skip("only on the emulated GPU")
    yield blas.library
    blas.library.refused = lambda task: False
    cuda._plans.clear()
    blas._prepared.clear()


class Counted:
    """How many products, kernels and copies something took."""

    def __init__(self, cuda, blas, monkeypatch):
        self.cuda, self.blas, self.copies = cuda, blas, 0
        plain = cuda.work.copy

        def copy(target, source):
            self.copies += 1
            plain(target, source)

        monkeypatch.setattr(cuda.work, "copy", copy)
        self.start()

    def start(self):
        self.products, self.copies = self.blas.library.launches, 0

    def took(self):
        return self.blas.library.launches - self.products, self.copies


@pytest.fixture
def counted(cuda, blas, standin, monkeypatch):
    return Counted(cuda, blas, monkeypatch)


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("rows_", "columns", "row", "column", "expected"),
    [
        (3, 4, 4, 1, Side(False, 4)),
        (3, 4, 9, 1, Side(False, 9)),
        (3, 4, 1, 3, Side(True, 3)),
        (3, 4, 1, 8, Side(True, 8)),
        (3, 4, 3, 1, None),  # rows overlap
        (3, 4, 0, 1, None),  # broadcast rows
        (3, 4, 8, 2, None),
        (1, 4, 77, 1, Side(False, 4)),
        (1, 4, 77, 3, Side(True, 3)),
        (3, 1, 5, 77, Side(False, 5)),
        (3, 1, 0, 77, None),
        (1, 1, 0, 0, Side(False, 1)),
        (3, 4, -4, 1, None),
    ],
)
def test_sides(rows_, columns, row, column, expected):
    assert side(rows_, columns, row, column) == expected


def test_row_major_products_are_transposed_columns():
    """C = A B in rows is Cᵀ = Bᵀ Aᵀ in columns: the first factor is our second."""
    made = arrange((3, 4), (4, 1), (4, 5), (5, 1), (), np.dtype("f4"), np.dtype("f4"), ComputeType.F32)
    assert made.problem == Problem(5, 3, 4, np.dtype("f4"), np.dtype("f4"), ComputeType.F32, False, False, 5, 4, 5)
    turned = arrange((3, 4), (1, 3), (4, 5), (1, 4), (), np.dtype("f4"), np.dtype("f4"), ComputeType.F32)
    assert turned.problem == made.problem._replace(transpose_a=True, transpose_b=True, ld_a=4, ld_b=3)
    assert (turned.copy_a, turned.copy_b) == (0, 0)


def test_one_matrix_for_a_batch_is_one_product():
    made = arrange((6, 3, 4), (12, 4, 1), (4, 5), (5, 1), (6,), np.dtype("f4"), np.dtype("f4"), ComputeType.F32)
    assert (made.problem.columns, made.problem.batch) == (18, 1)


def test_heads_of_attention_are_not_copied():
    """(batch, time, heads, features) seen as (batch, heads, time, features)."""
    b, t, h, d = 4, 6, 3, 5
    q = (t * h * d, d, h * d, 1)
    made = arrange((b, h, t, d), q, (b, h, d, t), (t * h * d, d, 1, h * d), (b, h), np.dtype("f4"), np.dtype("f4"), ComputeType.F32)
    assert (made.copy_a, made.copy_b, len(made.offsets), made.problem.batch) == (0, 0, 3, 4)
    many = arrange((99, 98, t, d), (t * 98 * d, d, 98 * d, 1), (99, 98, d, t), row_major((99, 98, d, t)), (99, 98), np.dtype("f4"),
                   np.dtype("f4"), ComputeType.F32)  # fmt: skip
    assert (many.copy_a, many.copy_b, len(many.offsets), many.problem.batch) == (operands.Copy.WHOLE, 0, 1, 99 * 98)


def test_sizes_beyond_32_bits_are_left_to_the_kernel():
    assert arrange((2**31, 1), (1, 1), (1, 1), (1, 1), (), np.dtype("f4"), np.dtype("f4"), ComputeType.F32) is None


def test_alignment():
    assert [alignment_of(a) for a in (0, 256, 512 | 1024, 32, 128, 16, 8, 4, 6, 1)] == [256, 256, 256, 16, 16, 16, 8, 4, 2, 1]


# ---------------------------------------------------------------- rows


SHAPES = [
    ((3, 4), (4, 5)),
    ((1, 7), (7, 1)),
    ((5, 1), (1, 6)),
    ((33, 17), (17, 65)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 5, 3, 4), (2, 1, 4, 2)),
    ((1, 3, 4), (6, 4, 2)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
    ((0, 3, 4), (4, 2)),
    ((2, 3, 0), (2, 0, 4)),
    ((2, 2, 2, 2, 3, 4), (2, 2, 2, 1, 4, 2)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(blas, left, right, dtype):
    a, b = normal(*left, dtype=dtype), normal(*right, dtype=dtype)
    close(gl.tensor(a, device="cuda") @ gl.tensor(b, device="cuda"), wide(a) @ wide(b), dtype)


def test_transposed_views_are_not_copied(blas, counted):
    a, b = normal(4, 3), normal(5, 4)
    x, y = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda")
    counted.start()
    close(x.mT @ y.mT, a.T @ b.T, "float32")
    close(x.mT @ x, a.T @ a, "float32")
    close(x[:, 1:] @ x.mT[1:], a[:, 1:] @ a.T[1:], "float32")
    close(x[::2] @ x[::2].mT, a[::2] @ a[::2].T, "float32")
    assert counted.took() == (4, 0)


def test_others_are_copied(blas, counted):
    a, b = normal(4, 6), normal(3, 5)
    x, y = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda")
    counted.start()
    close(x[:, ::2] @ y, a[:, ::2] @ b, "float32")
    close(y.mT @ x[:1, :3].expand(3, 3), b.T @ np.broadcast_to(a[:1, :3], (3, 3)), "float32")
    assert counted.took() == (2, 2)


def test_random_layouts(blas):
    """Factors as views of all kinds: transposed, cut, stepped, broadcast."""

    def view(shape, number):
        rank = len(shape)
        grown = [size + int(RNG.integers(0, 3)) for size in shape]
        order = RNG.permutation(rank) if number % 3 == 0 else np.r_[: rank - 2, RNG.permutation(2) + rank - 2]
        step = [2 if RNG.random() < 0.1 else 1 for _ in shape]
        base = normal(*[grown[i] * step[i] for i in order], dtype="float64")
        cut = tuple(slice(0, shape[i] * step[i], step[i]) for i in range(rank))
        back = tuple(int(i) for i in np.argsort(order))
        on_device = gl.tensor(base, device="cuda").permute(*back)[cut]
        return base.transpose(back)[cut], on_device

    for number in range(150):
        batch = tuple(int(n) for n in RNG.integers(1, 4, RNG.integers(0, 4)))
        m, n, k = (int(s) for s in RNG.integers(1, 6, 3))
        parts = []
        for shape in ((m, k), (k, n)):
            own = tuple(1 if RNG.random() < 0.25 else size for size in batch)[int(RNG.integers(0, len(batch) + 1)) :]
            parts.append(view((*own, *shape), number))
        (a, x), (b, y) = parts
        close(x @ y, a @ b, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 0, 4), (3, 0)])
@pytest.mark.parametrize("bias", ["none", "vector", "one", "stepped"])
def test_linear(blas, shape, dtype, bias):
    x, w = normal(*shape, dtype=dtype), normal(6, shape[-1], dtype=dtype)
    b = {"none": None, "vector": normal(6, dtype=dtype), "one": normal(1, dtype=dtype), "stepped": normal(12, dtype=dtype)}[bias]
    tensor = None if b is None else gl.tensor(b, device="cuda")
    if bias == "stepped":
        b, tensor = b[::2], tensor[::2]
    want = wide(x) @ wide(w).T + (0 if b is None else wide(b))
    close(gl.nn.functional.linear(gl.tensor(x, device="cuda"), gl.tensor(w, device="cuda"), tensor), want, dtype)


def test_linear_is_one_call(blas, counted):
    x, w, b = normal(2, 3, 4), normal(5, 4), normal(5)
    tensors = [gl.tensor(t, device="cuda") for t in (x, w, b)]
    counted.start()
    close(gl.nn.functional.linear(*tensors), x @ w.T + b, "float32")
    assert counted.took() == (1, 0)
    close(gl.nn.functional.linear(tensors[0].mT.contiguous().mT, tensors[1], tensors[2]), x @ w.T + b, "float32")
    stepped = gl.tensor(np.repeat(w, 2, 1), device="cuda")[:, ::2]
    counted.start()
    close(gl.nn.functional.linear(tensors[0], stepped, tensors[2]), x @ w.T + b, "float32")
    assert counted.took() == (1, 1)


def test_linear_without_an_epilogue(blas, standin, counted):
    """float64 has none here, nor has a bias that is not well aligned: the product adds to the bias."""
    x, w, b = normal(3, 4), normal(5, 4), normal(6)
    tensors = [gl.tensor(t, device="cuda") for t in (x, w, b)]
    counted.start()
    close(gl.nn.functional.linear(tensors[0], tensors[1], tensors[2][1:]), x @ w.T + b[1:], "float32")
    assert counted.took() == (1, 1)


def test_without_an_algorithm(cuda, blas, standin, counted):
    """The kernel of our own takes over."""
    standin.refused = lambda task: True
    x, w, b = normal(3, 4), normal(7, 4), normal(7)
    tensors = [gl.tensor(t, device="cuda") for t in (x, w, b)]
    cuda._plans.clear()
    blas._prepared.clear()
    counted.start()
    close(gl.nn.functional.linear(*tensors), x @ w.T + b, "float32")
    close(tensors[0] @ tensors[1].mT, x @ w.T, "float32")
    assert counted.took()[0] == 0


def test_integers_are_left_to_the_kernel(blas, counted):
    a = np.arange(12).reshape(3, 4)
    x = gl.tensor(a, device="cuda")
    counted.start()
    np.testing.assert_array_equal((x @ x.mT).cpu().numpy(), a @ a.T)
    assert counted.took()[0] == 0


def test_gradients(blas):
    """Of a small network, as on the CPU."""
    x, w, b, v = normal(4, 5), normal(6, 5), normal(6), normal(6, 3)

    def gradients(device):
        tensors = [gl.tensor(t, device=device, requires_grad=True) for t in (x, w, b, v)]
        hidden = gl.nn.functional.linear(*tensors[:3]).relu()
        ((hidden @ tensors[3]) ** 2).sum().backward()
        return [t.grad for t in tensors]

    for got, want in zip(gradients("cuda"), gradients("cpu"), strict=True):
        close(got, want.numpy(), "float32")


def test_threads(blas):
    """The bias's address is part of a descriptor that threads share."""
    x, w = normal(3, 4), normal(8, 4)
    on = [gl.tensor(t, device="cuda") for t in (x, w)]

    def work(number):
        bias = np.full(8, number, np.float32)
        tensor = gl.tensor(bias, device="cuda")
        return [gl.nn.functional.linear(*on, tensor).cpu().numpy() - (x @ w.T + bias) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for differences in pool.map(work, range(4)):
            assert np.abs(differences).max() < 1e-5


def test_second_device(cuda, blas):
    if gl.cuda.device_count() < 2:
        pytest.skip("one device")
    a = normal(3, 4)
    x = gl.tensor(a, device="cuda:1")
    found = x @ x.mT
    assert found.device == gl.device("cuda:1")
    close(found, a @ a.T, "float32")


# ---------------------------------------------------------------- settings


def test_precision(blas):
    a, b = normal(8, 16), normal(16, 8)
    x, y = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda")
    assert gl.get_float32_matmul_precision() == "highest"
    exact = (x @ y).cpu().numpy()
    try:
        for precision in ("high", "medium"):
            gl.set_float32_matmul_precision(precision)
            assert gl.get_float32_matmul_precision() == precision
            rounded = (x @ y).cpu().numpy()
            error = np.abs(rounded - wide(a) @ wide(b)).max()
            assert error < 2e-2
            if blas.driver.name == "emulated":
                assert error > 1e-4
            close(x.half() @ y.half(), wide(a.astype("f2")) @ wide(b.astype("f2")), "float16")
    finally:
        gl.set_float32_matmul_precision("highest")
    np.testing.assert_array_equal((x @ y).cpu().numpy(), exact)
    with pytest.raises(ValueError, match="'highest', 'high', 'medium'"):
        gl.set_float32_matmul_precision("low")


def test_a_gpu_without_tensorfloat(blas, standin):
    standin.refused = lambda task: task.compute is ComputeType.F32_FAST_TF32
    a = normal(9, 16)
    x = gl.tensor(a, device="cuda")
    try:
        gl.set_float32_matmul_precision("high")
        close(x @ x.mT, a @ a.T, "float32")
    finally:
        gl.set_float32_matmul_precision("highest")


def test_timed_candidates(blas):
    a, b = normal(5, 16), normal(4, 16)
    x, y, z = gl.tensor(a, device="cuda"), gl.tensor(b, device="cuda"), gl.tensor(b[:, 0].copy(), device="cuda")
    try:
        set_candidates(4)
        for _ in range(2):
            close(x @ y.mT, a @ b.T, "float32")
            close(gl.nn.functional.linear(x, y, z), a @ b.T + b[:, 0], "float32")
    finally:
        set_candidates(1)
    assert SETTINGS.candidates == 1
    with pytest.raises(ValueError, match="at least 1"):
        set_candidates(0)


# ---------------------------------------------------------------- what is made once


def test_prepared_once(cuda, blas, standin):
    x, y = gl.tensor(normal(6, 7), device="cuda"), gl.tensor(normal(7, 6), device="cuda")
    x @ y
    objects, prepared = len(standin._objects), len(blas._prepared)
    for _ in range(3):
        x @ y
    assert (len(standin._objects), len(blas._prepared)) == (objects, prepared)


def test_dropped_with_the_plan(cuda, blas, standin):
    x = gl.tensor(normal(6, 7), device="cuda")
    x @ x.mT
    assert standin._objects
    cuda._plans.clear()
    blas._prepared.clear()
    assert not standin._objects


def test_workspace_of_each_stream(cuda, blas):
    """Made by `warm`, kept for good: captured graphs hold the address."""
    blas.warm()
    first = blas.workspace(blas.stream())
    memory = gl.cuda.memory_allocated()
    a = normal(2, 20000)
    x = gl.tensor(a, device="cuda")
    close(x @ x.mT, a @ a.T, "float32")
    assert blas.workspace(blas.stream()) == first
    del x
    gl.cuda.synchronize()
    assert gl.cuda.memory_allocated() <= memory + 65536
    stream = gl.cuda.Stream()
    with gl.cuda.stream(stream):
        library.warm(cuda.driver)
        assert blas.workspace(blas.stream()) != first


# ---------------------------------------------------------------- epilogues


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slope(x):
    h = 1e-5
    return (gelu(x + h) - gelu(x - h)) / (2 * h)


class Problems:
    """One product by columns with all that its epilogue needs, on the device."""

    m, n, k = 24, 8, 16

    def __init__(self, cuda, blas, dtype, batch):
        self.cuda, self.blas, self.dtype, self.batch = cuda, blas, as_numpy(dtype), batch
        self.tolerance = 8 * TOLERANCE[dtype]
        self.a, self.b = normal(batch, self.m, self.k, dtype=dtype), normal(batch, self.k, self.n, dtype=dtype)
        self.bias = normal(batch, 32, dtype=dtype)  # padded, so that each one is aligned
        self.zeros = np.zeros_like(self.bias)
        self.plain = wide(self.a) @ wide(self.b)
        self.biased = self.plain + wide(self.bias)[:, : self.m, None]

    def put(self, array):
        return self.cuda.driver.upload(np.ascontiguousarray(array))

    def run(self, epilogue, bias=None, aux=None, aux_ld=0):
        """D, and the arrays of bias and aux afterwards. aux_ld: for one column, in bits or elements."""
        m, n, k = self.m, self.n, self.k
        problem = Problem(
            m, n, k, self.dtype, self.dtype, ComputeType.F32, False, False, m, k, m, self.batch, m * k, k * n, m * n, epilogue=epilogue,
            ld_aux=aux_ld, stride_aux=aux_ld * n, stride_bias=0 if bias is None else bias.shape[-1],
        )  # fmt: skip
        prepared = self.blas.prepare(problem, 256)
        if prepared is None:
            assert self.cuda.driver.name != "emulated"
            pytest.skip(f"this library has no {epilogue.name} in {self.dtype}, {self.batch} at once")
        driver = self.cuda.driver
        on = [self.put(np.swapaxes(x, 1, 2)) for x in (self.a, self.b)]
        d = driver.empty((self.batch, n, m), self.dtype)
        extra = [None if x is None else self.put(x) for x in (bias, aux)]
        prepared.run(*map(driver.pointer, (*on, d)), *(0 if x is None else driver.pointer(x) for x in extra))
        return np.swapaxes(driver.download(d), 1, 2), *(None if x is None else driver.download(x) for x in extra)

    def near(self, got, want):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=self.tolerance, atol=self.tolerance)


@pytest.fixture(params=list(itertools.product(["float32", "float16", "bfloat16"], [1, 2])), ids="{0[0]}-{0[1]}".format)
def problems(request, cuda, blas):
    return Problems(cuda, blas, *request.param)


def test_epilogues(problems):
    plain, biased, bias, run, near = problems.plain, problems.biased, problems.bias, problems.run, problems.near
    near(run(Epilogue.DEFAULT)[0], plain)
    near(run(Epilogue.BIAS, bias)[0], biased)
    near(run(Epilogue.RELU)[0], np.maximum(plain, 0))
    near(run(Epilogue.RELU_BIAS, bias)[0], np.maximum(biased, 0))
    near(run(Epilogue.GELU)[0], gelu(plain))
    near(run(Epilogue.GELU_BIAS, bias)[0], gelu(biased))


def test_epilogues_of_relu(problems):
    plain, run, near, m = problems.plain, problems.run, problems.near, problems.m
    empty = np.zeros((problems.batch, problems.n, 16), np.uint8)
    for epilogue, before, bias in ((Epilogue.RELU_AUX, plain, None), (Epilogue.RELU_AUX_BIAS, problems.biased, problems.bias)):
        d, _, bits = run(epilogue, bias, empty, 128)
        near(d, np.maximum(before, 0))
        kept = np.unpackbits(bits, axis=2, bitorder="little")[:, :, :m].swapaxes(1, 2)
        np.testing.assert_array_equal(kept, before > 0)
        near(run(Epilogue.DRELU, None, bits, 128)[0], plain * kept)
        d, gradient, _ = run(Epilogue.DRELU_BGRAD, problems.zeros, bits, 128)
        near(d, plain * kept)
        near(gradient[:, :m], (plain * kept).sum(2))


def test_epilogues_of_gelu(problems):
    plain, run, near, m = problems.plain, problems.run, problems.near, problems.m
    empty = np.zeros((problems.batch, problems.n, 32), problems.dtype)
    for epilogue, before, bias in ((Epilogue.GELU_AUX, plain, None), (Epilogue.GELU_AUX_BIAS, problems.biased, problems.bias)):
        d, _, inputs = run(epilogue, bias, empty, 32)
        near(d, gelu(before))
        near(inputs[:, :, :m].swapaxes(1, 2), before)
        steps = slope(wide(inputs[:, :, :m].swapaxes(1, 2)))
        near(run(Epilogue.DGELU, None, inputs, 32)[0], plain * steps)
        d, gradient, _ = run(Epilogue.DGELU_BGRAD, problems.zeros, inputs, 32)
        near(d, plain * steps)
        near(gradient[:, :m], (plain * steps).sum(2))


@pytest.mark.parametrize("epilogue", [Epilogue.BGRADA, Epilogue.BGRADB])
def test_epilogues_of_bias(problems, epilogue):
    d, gradient, _ = problems.run(epilogue, problems.zeros)
    problems.near(d, problems.plain)
    want = wide(problems.a).sum(2) if epilogue is Epilogue.BGRADA else wide(problems.b).sum(1)
    problems.near(gradient[:, : want.shape[1]], want)


def test_half_factors_into_float32(cuda, blas):
    a, b = normal(5, 4, dtype="float16"), normal(4, 3, dtype="float16")
    half, single = as_numpy("float16"), as_numpy("float32")
    made = arrange((5, 4), (4, 1), (4, 3), (3, 1), (), half, single, ComputeType.F32)
    x, y, z = cuda.driver.upload(a), cuda.driver.upload(b), cuda.driver.empty((5, 3), single)
    blas.prepare(made.problem, 256).run(*map(cuda.driver.pointer, (y, x, z)))
    np.testing.assert_allclose(cuda.driver.download(z), wide(a) @ wide(b), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- misuse, on the stand-in


F32 = np.dtype("f4")
PLAIN = Problem(5, 3, 4, F32, F32, ComputeType.F32, False, False, 5, 4, 5)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (PLAIN._replace(ld_a=4), "INVALID_VALUE.*leading dimension 4 is less than 5"),
        (PLAIN._replace(ld_d=3), "INVALID_VALUE.*leading dimension 3 is less than 5"),
        (PLAIN._replace(depth=0), "INVALID_VALUE.*an empty matrix"),
        (PLAIN._replace(batch=2, stride_a=20, stride_b=12, stride_d=14), "INVALID_VALUE.*matrices of D would overlap"),
        (PLAIN._replace(epilogue=Epilogue.RELU_AUX, ld_aux=64), "INVALID_VALUE.*a multiple of 128"),
        (PLAIN._replace(epilogue=Epilogue.GELU_AUX, ld_aux=4), "INVALID_VALUE.*a multiple of 8"),
        (PLAIN._replace(epilogue=Epilogue.DRELU), "INVALID_VALUE.*aux leading dimension 0"),
    ],
)
def test_wrong_problems(blas, standin, problem, message):
    with pytest.raises(BlasError, match=message):
        blas.prepare(problem, 256)


@pytest.mark.parametrize(
    "problem",
    [
        PLAIN._replace(compute=ComputeType.F64),
        PLAIN._replace(dtype=np.dtype("f2"), out=np.dtype("f8")),
        PLAIN._replace(dtype=np.dtype("f8"), out=np.dtype("f8"), compute=ComputeType.F64, epilogue=Epilogue.BIAS),
        PLAIN._replace(columns=2**31, ld_d=5),
    ],
)
def test_problems_without_an_algorithm(blas, standin, problem):
    assert blas.prepare(problem, 256) is None


@pytest.fixture
def guarded(cuda, blas, standin):
    """The plain problem and its matrices in guarded memory: addresses of a, b, d."""
    module = pytest.importorskip("gradlab.backends.cuda.emulator.guarded")
    memory = [module.GuardedMemory(4 * n) for n in (20, 12, 15, 5)]
    for piece in memory[:2]:
        piece.array((piece.size // 4,), F32)[...] = 1
    own = Blas(cuda.driver, type(standin)(module.allocation), 1024, lambda: 0)
    yield own, [piece.address for piece in memory], memory


def test_memory_is_checked(guarded):
    blas, (a, b, d, bias), memory = guarded
    blas.prepare(PLAIN, 256).run(a, b, d)
    np.testing.assert_array_equal(memory[2].array((15,), F32), 4)
    prepared = blas.prepare(PLAIN, 16)
    for addresses, message in (
        ((a + 16, b, d), "EXECUTION_FAILED.*A reaches 16 bytes beyond an array of 80 bytes"),
        ((a, b + 32, d), "B reaches 32 bytes beyond"),
        ((a, b, d + 16), "D reaches 16 bytes beyond"),
        ((a + 4, b, d), "INVALID_VALUE.*A at .* is not aligned to 16 bytes"),
        ((a, b, d + 8), "D at .* is not aligned to 16 bytes"),
        ((0, b, d), "A is a null pointer"),
    ):
        with pytest.raises(BlasError, match=message):
            prepared.run(*addresses)
    biased = blas.prepare(PLAIN._replace(epilogue=Epilogue.BIAS), 256)
    memory[3].array((5,), F32)[...] = 2
    biased.run(a, b, d, bias)
    np.testing.assert_array_equal(memory[2].array((15,), F32), 6)
    for address, message in ((bias + 16, "bias reaches 16 bytes beyond"), (bias + 4, "bias at .* is not aligned")):
        with pytest.raises(BlasError, match=message):
            biased.run(a, b, d, address)


def test_algorithms_belong_to_their_problem(guarded):
    blas, (a, b, d, _), _ = guarded
    one, other = blas.prepare(PLAIN, 256), blas.prepare(PLAIN._replace(transpose_a=True, ld_a=4), 256)
    one._choice = other._choice
    with pytest.raises(BlasError, match="chosen for another problem"):
        one.run(a, b, d)


def test_workspace_is_checked(guarded):
    blas, (a, b, d, _), _ = guarded
    prepared = blas.prepare(PLAIN, 256)
    result = blas.candidates(prepared._handles, prepared._fixed[0], PLAIN, 256, 2)
    assert [r.workspace for r in result] == [0]  # the second needs more than there is
    blas.workspace_size = 4096
    second = blas.candidates(prepared._handles, prepared._fixed[0], PLAIN, 256, 2)[1]
    prepared._use(second)
    prepared._choice = (prepared._choice[0], 0, second)
    with pytest.raises(BlasError, match="needs 2048 bytes of work space, there are 0"):
        prepared.run(a, b, d)


def test_descriptors_are_checked(standin):
    desc = Handle(standin, "MatmulDesc", binding.DESC_TYPES, ComputeType.F32, 0)
    layout = Handle(standin, "MatrixLayout", binding.MATRIX_TYPES, 0, 5, 3, 5)
    value, size = ctypes.c_int(1), ctypes.c_size_t()
    at = ctypes.addressof(value)
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, 999, at, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, at, 8) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, None, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(layout.value, Desc.TRANSA, at, 4) == Status.INVALID_VALUE
    assert standin.cublasLtMatmulDescSetAttribute(desc.value, Desc.TRANSA, at, 4) == Status.SUCCESS
    value.value = 0
    assert standin.cublasLtMatmulDescGetAttribute(desc.value, Desc.TRANSA, at, 4, ctypes.addressof(size)) == Status.SUCCESS
    assert (value.value, size.value) == (Operation.T, 4)
    handle = layout.value
    del layout
    assert standin.cublasLtMatrixLayoutDestroy(handle) == Status.INVALID_VALUE  # destroyed before
    assert standin.cublasLtMatmul(*[None] * 14, 0, None) == Status.NOT_INITIALIZED


# ---------------------------------------------------------------- the real library's host side, where it is installed


@pytest.fixture(scope="module")
def real():
    try:
        return binding.load()
    except binding.LibraryMissing as error:
        pytest.skip(str(error))


def attributes(lib, kind, handle, types):
    """Each attribute's value by the ctypes type that the binding says it has; the library checks the size."""
    found = {}
    for name, ctype in types.items():
        value, written = ctype(), ctypes.c_size_t()
        status = getattr(lib, f"cublasLt{kind}GetAttribute")(
            handle.value, name, ctypes.addressof(value), ctypes.sizeof(value), ctypes.addressof(written)
        )
        assert status == 0, (kind, name)
        assert written.value == ctypes.sizeof(value)
        found[name] = value.value or 0
    return found


def test_descriptors_are_the_real_ones(real, standin):
    """The stand-in's descriptors have the real ones' attributes, sizes and defaults, and keep what is set."""
    for kind, types, made, changed in (
        ("MatmulDesc", binding.DESC_TYPES, (ComputeType.F32_FAST_TF32, 0), {
            Desc.TRANSA: 1, Desc.EPILOGUE: Epilogue.GELU_AUX_BIAS, Desc.BIAS_POINTER: 256, Desc.EPILOGUE_AUX_LD: 128,
        }),
        ("MatrixLayout", binding.MATRIX_TYPES, (binding.DataType.R_16BF, 5, 3, 7), {
            Matrix.BATCH_COUNT: 4, Matrix.STRIDED_BATCH_OFFSET: 21,
        }),
        ("MatmulPreference", binding.PREFERENCE_TYPES, (), {Preference.MAX_WORKSPACE_BYTES: 1 << 20, Preference.MIN_ALIGNMENT_A_BYTES: 16}),
    ):  # fmt: skip
        handles = [Handle(lib, kind, types, *made) for lib in (real, standin)]
        assert attributes(real, kind, handles[0], types) == attributes(standin, kind, handles[1], types)
        for handle in handles:
            for name, value in changed.items():
                handle.set(name, value)
        found = attributes(real, kind, handles[0], types)
        assert found == attributes(standin, kind, handles[1], types)
        assert changed.items() <= found.items()
        value = ctypes.c_double()
        for attribute, size in itertools.product((next(iter(types)), 999), (0, 2, 16)):
            answers = [
                getattr(lib, f"cublasLt{kind}SetAttribute")(handle.value, attribute, ctypes.addressof(value), size)
                for lib, handle in zip((real, standin), handles, strict=True)
            ]
            assert answers[0] == answers[1] == Status.INVALID_VALUE


def test_version(real, standin):
    assert int(binding.version(real).split(".")[0]) >= 12
    assert binding.version(standin) == "13.0.2"


# ---------------------------------------------------------------- where it is missing


class NoLibrary:
    """A driver without cuBLASLt."""

    name = "real"


def test_missing_library(monkeypatch, cuda):
    def missing(name):
        raise RuntimeError(f"Failure finding {name}.so\nmore")

    class Finder:
        load_nvidia_dynamic_lib = staticmethod(missing)

    monkeypatch.setattr(binding.importlib, "import_module", lambda name: Finder)
    with pytest.raises(binding.LibraryMissing, match=r"pip install nvidia-cublas .*Failure finding cublasLt\.so\)$"):
        binding.load()
    with pytest.warns(RuntimeWarning, match="products on the GPU are slow: cuBLASLt is not installed"):
        assert library.blas_of(NoLibrary()) is None

    def no_module(name):
        raise ImportError(name)

    monkeypatch.setattr(binding.importlib, "import_module", no_module)
    with pytest.raises(binding.LibraryMissing, match="pip install cuda-pathfinder"):
        binding.load()


def test_rows_without_the_library(cuda, monkeypatch):
    monkeypatch.setattr(rows, "blas_of", lambda driver: None)
    cuda._plans.clear()
    try:
        x, w, b = normal(3, 4), normal(5, 4), normal(5)
        tensors = [gl.tensor(t, device="cuda") for t in (x, w, b)]
        close(gl.nn.functional.linear(*tensors), x @ w.T + b, "float32")
        close(tensors[0] @ tensors[1].mT, x @ w.T, "float32")
    finally:
        cuda._plans.clear()


def test_statuses_in_words():
    expected = "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (the library has no algorithm for it)"
    assert str(BlasError("cublasLtMatmul", 15, None)) == expected
    assert str(BlasError("x", 7, "why")) == "x: CUBLAS_STATUS_INVALID_VALUE (why)"
    assert "does not know" in str(BlasError("x", 99, None))
