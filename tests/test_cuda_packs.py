"""Elementwise kernels whose threads take several packs of large operands: chosen by size, the same results, every element written."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda import generate
from gradlab.backends.cuda.catalogue import signatures
from gradlab.ops import ROWS

FUNCTIONS = {
    "one array": lambda x, y: x.relu(), "two": lambda x, y: x * y, "three": lambda x, y: gl.where(x > 0, x, y),
    "a number": lambda x, y: x + 1, "none": lambda x, y: gl.full_like(x, 2), "in place": lambda x, y: x.clone().add_(y),
}  # fmt: skip


@pytest.fixture
def always(monkeypatch):
    """Several packs however small the operands are."""
    monkeypatch.setattr(generate, "FULL", 0)


@pytest.mark.parametrize("dtype", ["float32", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bfloat16", "int8"))])
def test_every_element_is_written_once(cuda, always, dtype):
    """Whole blocks, a block that ends within a thread's packs, a last pack that is not full; of each of the numbers of packs."""
    rng = np.random.default_rng(3)
    for size in (4096, 8192 + 3072 + 5, 1023, 1):
        x, y = (gl.tensor(rng.integers(-3, 4, size)).to(getattr(gl, dtype)) for _ in range(2))
        for name, function in FUNCTIONS.items():
            found = function(x.cuda(), y.cuda()).cpu()
            assert (found == function(x, y)).all(), (name, size)


@pytest.mark.parametrize("arrays", [1, 2])
def test_loops_of_compiled_programs(cuda, always, arrays):
    def function(x, y):
        z = x.relu() * 2 + 1
        return (z, z - x) if arrays == 1 else z * y

    run = gl.compile(function)
    for size in (4096, 8192 + 3072 + 5):
        x, y = gl.randn(size), gl.randn(size)
        for _ in range(2):
            found, wanted = run(x.cuda(), y.cuda()), function(x, y)
            for a, b in zip(found if arrays == 1 else (found,), wanted if arrays == 1 else (wanted,), strict=True):
                np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-6)


def test_how_many_packs():
    """Only what fills the GPU, computes little and leaves room in the registers."""
    assert [generate.packs_of(("a + b",), n, 4) for n in (0, 1, 2, 3, 4)] == [4, 4, 2, 2, 1]
    assert [generate.packs_of(("a + b",), 1, widest) for widest in (1, 2, 4, 8)] == [2, 2, 4, 4]
    assert generate.packs_of(("exp(x)",), 1, 4) == generate.packs_of(("a / b",), 2, 8) == 1 and generate.packs_of(("a / b",), 2, 4) == 2
    assert generate.blocks_of(1 << 20, 4, 4) == 1024
    assert generate.blocks_of(1 << 26, 4, 4) == 1 << 14


def test_long_series_are_called_for_one_element():
    """What a thread holds besides would be spilled around the call."""
    for name in ("zeta", "airy_ai", "i0", "orthogonal_polynomial", "igamma"):
        one, *_ = signatures(ROWS[name], [np.dtype(np.float32)])
        assert generate.contiguous_form(one, ROWS[name].cuda.expression) == (1, 1)
