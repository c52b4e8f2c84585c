"""NumPy's functions on tensors: every one gives what it gives on arrays, with the graph, or says that it does not; none drops it."""

import io
import re
import warnings

import numpy as np
import numpy_calls
import pytest

import gradlab as gl
from gradlab.dtype import ALL

CALLS = numpy_calls.calls()
FREE = ("eig", "svd(", "qr(")  # vectors whose signs are free
UNDEFINED = {"empty_like(a)"}  # whose values do not matter


def run(call, arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"np.{call}", {"np": np, **arrays})


def letters(call):
    return [name for name in numpy_calls.ARRAYS if re.search(rf"(?<![\w.'\"]){name}(?![\w'\"=(])", call)]


def tensors(call, grad=False):
    own = {name: numpy_calls.ARRAYS[name] for name in letters(call)}
    return {**numpy_calls.ARRAYS, **{name: gl.tensor(x, requires_grad=grad and x.dtype.kind == "f") for name, x in own.items()}}


def leaves(value):
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def adapted(call):
    return call.replace(".copy()", ".clone()").replace(".astype(np.uint8)", ".to(gl.uint8)")


def on_tensors(call, arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"np.{adapted(call)}", {"np": np, "gl": gl, **arrays})


def number(x):
    return x.detach().numpy() if isinstance(x, gl.Tensor) else np.asarray(x)


def test_every_function_has_a_call():
    assert not numpy_calls.missing()


@pytest.mark.parametrize("call", CALLS)
def test_values(call):
    try:
        expected = run(call, numpy_calls.ARRAYS)
    except TypeError:
        with pytest.raises((TypeError, RuntimeError)):
            on_tensors(call, tensors(call))
        return
    found = on_tensors(call, tensors(call))
    assert letters(call) or not isinstance(found, gl.Tensor)
    pairs = list(zip(leaves(found), leaves(expected), strict=True))
    for ours, theirs in pairs:
        if letters(call) and isinstance(theirs, np.ndarray) and theirs.dtype in {d.dtype for d in ALL}:
            assert isinstance(ours, gl.Tensor), f"{call} gives {type(ours).__name__}"
        if call in UNDEFINED or isinstance(theirs, (str, type, np.dtype)):
            continue
        if isinstance(theirs, (np.ndarray, np.generic, float)):
            assert number(ours).shape == np.shape(theirs)
        if not any(name in call for name in FREE) and isinstance(theirs, (np.ndarray, np.generic, float)):
            np.testing.assert_allclose(number(ours), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("call", CALLS)
def test_gradients(call):
    try:
        run(call, numpy_calls.ARRAYS)
    except TypeError:
        pytest.skip("NumPy has no such call")
    arrays = tensors(call, grad=True)
    asked = [x for x in arrays.values() if isinstance(x, gl.Tensor) and x.requires_grad]
    if not asked:
        return
    try:
        found = on_tensors(call, arrays)
    except RuntimeError as error:
        assert "requires grad" in str(error) and ("detach" in str(error) or "which is recorded" in str(error) or "which are" in str(error))
        return
    floating = [x for x in leaves(found) if isinstance(x, gl.Tensor) and x.is_floating_point()]
    loose = [x for x in leaves(found) if isinstance(x, (np.ndarray, np.floating)) and np.asarray(x).dtype.kind in "fc"]
    assert not loose, f"{call} gives an array outside of the graph"
    constant = call.split("(")[0] in ("empty_like", "full_like", "ones_like", "zeros_like", "imag", "min_scalar_type")
    if not floating or constant:
        return
    assert all(x.requires_grad for x in floating), f"{call} drops the graph"
    compare(call, found, arrays)


def compare(call, found, arrays):
    """The gradient of a weighted sum of all results with central differences of NumPy's own."""
    rng = np.random.default_rng(1)
    outs = [x for x in leaves(found) if isinstance(x, gl.Tensor) and x.is_floating_point()]
    if any(x.dtype != gl.float64 for x in outs) or any(name in call for name in FREE):
        return  # coarse, or free
    weights = [rng.normal(size=tuple(x.shape)) for x in outs]
    total = sum((x.nan_to_num() * gl.tensor(w)).sum() for x, w in zip(outs, weights, strict=True))
    asked = {name: x for name, x in arrays.items() if isinstance(x, gl.Tensor) and x.requires_grad}
    gradients = gl.autograd.grad(total, list(asked.values()), allow_unused=True)
    step = 1e-6
    for name, gradient in zip(asked, gradients, strict=True):
        array = numpy_calls.ARRAYS[name]
        direction = np.nan_to_num(rng.normal(size=array.shape)) * ~np.isnan(array)
        direction = direction + direction.T if name == "s" else direction  # what is symmetric stays so
        ends = []
        for sign in (1, -1):
            result = run(call, {**numpy_calls.ARRAYS, name: array + sign * step * direction})
            values = [np.asarray(r) for r in leaves(result) if np.asarray(r).dtype.kind == "f"]
            ends.append(sum((np.nan_to_num(r) * w).sum() for r, w in zip(values, weights, strict=True)))
        slope = (ends[0] - ends[1]) / (2 * step)
        own = 0.0 if gradient is None else float((gradient.numpy() * direction).sum())
        assert own == pytest.approx(slope, rel=1e-4, abs=1e-4), f"{call}: the gradient of {name}"


@pytest.mark.parametrize("call", ["sum(a, axis=0)", "concatenate([a, b])", "pad(a, 1)", "exp(a)", "add.reduce(a)", "cbrt(a)", "median(a)"])
def test_on_a_gpu(cuda, call):
    arrays = {k: gl.tensor(v).to("cuda") if v.dtype.kind == "f" else v for k, v in numpy_calls.ARRAYS.items()}
    found = on_tensors(call, arrays)
    assert found.device.type == "cuda"
    np.testing.assert_allclose(found.cpu().numpy(), run(call, numpy_calls.ARRAYS), rtol=1e-6)


def test_a_gpu_where_numpy_would_have_to_compute(cuda):
    with pytest.raises(TypeError, match=r"unwrap.*cuda.*\.cpu\(\)"):
        np.unwrap(gl.ones(3, device="cuda"))


def test_in_a_trace():
    traced = gl.jit.trace(lambda x: np.concatenate([np.exp(x), np.pad(x, 1)]), gl.ones(3))
    assert traced(gl.zeros(3)).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


READERS = {
    "numpy": lambda x: x.numpy(), "array": np.array, "asarray": np.asarray, "list": lambda x: np.array([x, x]),
    "histogram": lambda x: np.histogram(x)[0], "__array__": lambda x: x.__array__(), "save": lambda x: np.save(io.BytesIO(), x),
    "percentile": lambda x: np.percentile(x, 50),
    "full": lambda x: np.full(2, x[0, 0]), "ndarray.__setitem__": lambda x: np.zeros((2, 2)).__setitem__(0, x[0]),
    "integers": lambda x: np.array(x, dtype=int), "unique": np.unique, "fill_diagonal": lambda x: np.fill_diagonal(x, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("made", ["leaf", "computed", "view"])
def test_numbers_are_read_where_nothing_is_recorded(reader, made):
    leaf = gl.ones(2, 2).requires_grad_()
    x = {"leaf": leaf, "computed": leaf * 2, "view": leaf.t()}[made]
    with gl.no_grad():
        READERS[reader](x)
    with gl.inference_mode():
        assert np.asarray(x).shape == (2, 2)
    assert x.requires_grad
    if reader in ("numpy", "array", "asarray", "list", "__array__", "integers", "histogram", "fill_diagonal"):
        with pytest.raises(RuntimeError, match="requires grad"):
            READERS[reader](x)
