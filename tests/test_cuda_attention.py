"""Attention on the (emulated) GPU: by FMA and on tensor cores, every head size, tiles that end in the middle, all kinds of masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.backends.cuda import fallback, launch
from gradlab.backends.cuda.emulator import CompilerMissing
from gradlab.backends.cuda.emulator.sanitizer import run_sanitized, sanitized_environment
from gradlab.dtype import as_numpy

NAME = "scaled_dot_product_attention"
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "tf32": 4e-3, "float16": 4e-3, "bfloat16": 3e-2}
RNG = np.random.default_rng(5)


def masks(kind, lead, queries, keys):
    """A mask of a kind, and whether attention is causal."""
    hidden = RNG.random((*lead, queries, keys)) > 0.4
    hidden[0, 0, queries // 2] = False  # a query that may look at nothing
    padding = np.ones((lead[0], 1, 1, keys), bool)
    padding[-1, ..., keys // 2 :] = False
    added = RNG.normal(size=(1, lead[1], queries, keys))
    shut = np.where(hidden[:1, :1], 0.5, -np.inf)
    return {"none": (None, False), "causal": (None, True), "hidden": (hidden, False), "padding": (padding, True), "added": (added, False),
            "shut": (shut, True)}[kind]  # fmt: skip


# (images and heads, queries, keys, size, value size, mask)
CASES = {
    "one tile": ((1, 2), 20, 17, 16, 16, "none"),
    "several tiles": ((2, 1), 70, 75, 24, 16, "hidden"),
    "causal": ((1, 2), 75, 70, 32, 20, "causal"),
    "more keys": ((1, 1), 18, 140, 64, 64, "padding"),
    "added": ((2, 2), 33, 30, 8, 12, "added"),
    "shut": ((1, 2), 40, 66, 80, 96, "shut"),
    "largest heads": ((1, 1), 35, 40, 128, 100, "causal"),
}


def run(cuda, name, inputs, order, **params):
    """The row's outputs on the device, as NumPy arrays."""
    driver = cuda.driver
    if driver.name == "emulated":
        driver.order = order
    try:
        made = ops.ROWS[name](*[x if x is None else driver.upload(np.ascontiguousarray(x)) for x in inputs], **params)
        return [driver.download(m) for m in made]
    finally:
        if driver.name == "emulated":
            driver.order = "forward"


def close(got, want, kind):
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[kind] * max(1.0, np.abs(want).max(initial=0)))


def problem(case, dtype):
    """Row, inputs and parameters of the forward and of the backward pass."""
    lead, queries, keys, size, value_size, kind = CASES[case]
    mask, causal = masks(kind, lead, queries, keys)
    make = lambda *shape: RNG.normal(size=shape).astype(as_numpy(dtype))
    q, k, v = make(*lead, queries, size), make(*lead, keys, size), make(*lead, keys, value_size)
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(as_numpy(dtype))
    params = {"scale": size**-0.5, "causal": causal}
    y, lse = ops.ROWS[NAME](q, k, v, mask, **params)
    g, g_lse = make(*y.shape), RNG.normal(size=lse.shape).astype(lse.dtype) if causal else None
    return [(NAME, (q, k, v, mask), params), (f"{NAME}_backward", (g, g_lse, q, k, v, mask, y, lse), params)]


@pytest.fixture
def precision():
    """Sets float32's precision; sets it back."""
    yield gl.set_float32_matmul_precision
    gl.set_float32_matmul_precision("highest")


LOWER = ("tf32", "float16", "bfloat16")
FEW = [("several tiles", "tf32"), ("more keys", "float16"), ("largest heads", "bfloat16")]
KINDS = [(c, "float32") for c in CASES] + [
    pytest.param(c, d, marks=() if (c, d) in FEW else pytest.mark.whole) for c, _ in FEW for d in LOWER
]


@pytest.mark.parametrize(("case", "kind"), [*KINDS, ("causal", "float64"), ("shut", "float16"), ("added", "tf32"), ("added", "bfloat16")])
def test_attention_equals_the_cpu(cuda, precision, case, kind):
    precision("high" if kind == "tf32" else "highest")
    fallback.counts.clear()
    for name, inputs, params in problem(case, "float32" if kind == "tf32" else kind):
        want = ops.ROWS[name](*inputs, **params)
        orders = ("forward", "reverse", "random", "warps") if case in ("one tile", "added") else ("forward", "warps")
        found = [run(cuda, name, inputs, order, **params) for order in orders]
        for got, expected in zip(found[0], want, strict=True):
            assert got.dtype == expected.dtype
            close(got, expected, kind)
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), err_msg="the order of threads shows in the result")
    assert not fallback.counts


@pytest.mark.parametrize(("case", "dtype"), [("shut", "bfloat16"), ("one tile", "float16"), ("largest heads", "float16")])
def test_half_types_on_older_devices(cuda, monkeypatch, case, dtype):
    monkeypatch.setattr(cuda.driver, "capability", lambda index: (7, 5), raising=False)
    for name, inputs, params in problem(case, dtype):
        for got, want in zip(run(cuda, name, inputs, "forward", **params), ops.ROWS[name](*inputs, **params), strict=True):
            close(got, want, dtype)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [("several tiles", "float16"), ("more keys", "bfloat16"),
     *(pytest.param(*one, marks=pytest.mark.whole) for one in (("added", "float16"), ("shut", "bfloat16"), ("largest heads", "float16")))],
)  # fmt: skip
def test_blocks_of_128_queries(cuda, monkeypatch, case, dtype):
    """Which large grids have: two rows of tiles for each warp, in a ring of keys and values."""
    if cuda.driver.name == "emulated" and cuda.driver.capability(0) < (8, 0):
        pytest.skip("compute capability 8.0 copies in the background")
    monkeypatch.setattr(launch.attention, "ENOUGH_BLOCKS", 1)
    (name, inputs, params), _ = problem(case, dtype)
    want = ops.ROWS[name](*inputs, **params)
    found = [run(cuda, name, inputs, order, **params) for order in ("forward", "random", "warps")]
    for one in found:
        for got, expected in zip(one, want, strict=True):
            close(got, expected, dtype)
    for got in found[1:]:
        np.testing.assert_array_equal(got[0].view(np.uint16), found[0][0].view(np.uint16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_strided_heads_are_not_copied(cuda, dtype):
    """Heads cut out of one projection, as multi-head attention has them: the same result as from copies of their own."""
    x = RNG.normal(size=(21, 2, 3 * 2 * 16)).astype(np.float32)
    found = []
    for device in ("cpu", "cuda"):
        joined = gl.tensor(x, device=device).to(getattr(gl, dtype)).requires_grad_()
        q, k, v = (part.reshape(21, 2, 2, 16).permute(1, 2, 0, 3) for part in joined.chunk(3, -1))
        out = gl.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        node = out.grad_fn if device == "cuda" else out.grad_fn.next_functions[0][0]  # the result lies as the heads do
        while type(node).__name__ in ("CastBackward0", "CloneBackward0", "TransposeBackward0", "PermuteBackward0"):
            node = node.next_functions[0][0]
        assert type(node).__name__ == "ScaledDotProductAttentionBackward0"
        out.float().square().sum().backward()
        found.append((out.detach().cpu().float().numpy(), joined.grad.cpu().float().numpy()))
    for got, want in zip(found[1], found[0], strict=True):
        close(got, want, dtype)


def test_what_the_kernels_do_not_take_runs_on_the_host_or_in_parts(cuda):
    q = gl.tensor(RNG.normal(size=(1, 1, 3, 130)), device="cuda")
    fallback.counts.clear()
    out = gl.nn.functional.scaled_dot_product_attention(q, q, q)
    want = gl.nn.functional.scaled_dot_product_attention(q.cpu(), q.cpu(), q.cpu())
    close(out.cpu().numpy(), want.numpy(), "float64")
    assert not fallback.counts


SANITIZED = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import gradlab as gl
from gradlab.dtype import as_numpy
from gradlab import ops
from gradlab.backends.cuda import launch
from gradlab.backends.cuda.loading import load
driver = load().driver
rng = np.random.default_rng(1)
SIZES = (("float32", "highest", 16), ("float32", "high", 9), ("float16", "high", 16), ("bfloat16", "high", 11), ("float16", "high", 32))
for dtype, precision, size in SIZES:
    launch.attention.ENOUGH_BLOCKS = 1 if size == 32 else 132  # blocks of 128 queries
    gl.set_float32_matmul_precision(precision)
    make = lambda *shape: driver.upload(rng.normal(size=shape).astype(as_numpy(dtype)))
    q, k, v, mask = make(1, 2, 19, size), make(1, 2, 70, size), make(1, 2, 70, 5), driver.upload(rng.random((1, 1, 19, 70)) > 0.3)
    params = {{"scale": 0.3, "causal": dtype == "float16"}}
    y, lse = ops.ROWS["scaled_dot_product_attention"](q, k, v, mask, **params)
    ops.ROWS["scaled_dot_product_attention_backward"](make(*y.shape), None, q, k, v, mask, y, lse, **params)
    driver.synchronize()
print("== end")
"""


@pytest.mark.whole
@pytest.mark.parametrize("sanitize", ["address,undefined", "thread"])
def test_the_sanitizers_find_nothing(cuda, sanitize):
    if cuda.driver.name != "emulated":
        pytest.skip("of the emulated GPU")
    try:
        sanitized_environment(sanitize)
    except (CompilerMissing, RuntimeError) as error:
        pytest.skip(str(error))
    here = Path(__file__).resolve().parent
    code = SANITIZED.format(paths=[str(here), str(here.parent)])
    done = run_sanitized(["-c", code], sanitize=sanitize, keep_going=True, environment={"GRADLAB_CUDA": "emulated"})
    assert "== end" in done.output, done.output[-3000:]
    assert not done.reports, done.output[-3000:]
