"""Matrix products on the (emulated) GPU: how operands are read, rows against NumPy, what is copied, what runs without the library."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.gemm import library, operands, rows
from gradlab.backends.cuda.gemm.binding import ComputeType
from gradlab.backends.cuda.gemm.operands import Side, arrange, row_major, side
from gradlab.backends.cuda.gemm.plan import alignment_of

from products import DTYPES, PLAIN, RNG, close, normal, wide


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
    assert made.problem == PLAIN
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
