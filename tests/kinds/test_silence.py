"""NumPy's warnings reach nobody: every public call with extreme values, forward and backward, while NumPy is to report all it finds."""

import contextlib
import contextvars
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.native import compiler

from kinds.calls import CALLS, converted, parts
from kinds.catalogue.giving import Fixed, X

DTYPES = (gl.float32, gl.float64, gl.float16)
TOP = {gl.float32: 3e38, gl.float64: 1.5e308, gl.float16: 6.5e4}
LEAST = {gl.float32: 1e-45, gl.float64: 5e-324, gl.float16: 6e-8}
MIXED = (0.0, 1.0, -np.inf, np.nan, np.inf, -0.0, -1.0)
# What stands in place of a call's numbers x; t and s are the top of the dtype's range and its least number.
WAYS = {
    "as they are": lambda x, t, s: x,
    "zeros": lambda x, t, s: np.zeros_like(x),
    "minus zeros": lambda x, t, s: -np.zeros_like(x),
    "infinities": lambda x, t, s: np.full_like(x, np.inf),
    "minus infinities": lambda x, t, s: np.full_like(x, -np.inf),
    "NaN": lambda x, t, s: np.full_like(x, np.nan),
    "the top of the range": lambda x, t, s: np.full_like(x, t),
    "both ends of the range": lambda x, t, s: np.resize([t, -t, t], x.shape).astype(x.dtype),
    "the least numbers": lambda x, t, s: np.resize([s, -s, s], x.shape).astype(x.dtype),
    "large": lambda x, t, s: x * 1000,
    "one element": lambda x, t, s: x[tuple([slice(1)] * x.ndim)],
    "all of them": lambda x, t, s: np.resize([*MIXED, t, -t, s, 90.0, -90.0], x.shape).astype(x.dtype),
}


FEW = ("as they are", "both ends of the range", "the least numbers", "all of them")
OPTIMIZERS = [name for name, found in vars(gl.optim).items() if isinstance(found, type) and gl.optim.Optimizer in found.__mro__[1:]]
REFUSED = (ValueError, TypeError, RuntimeError, IndexError, OverflowError)


class Leaks:
    """While it is entered NumPy reports to it, and warnings are errors."""

    def __init__(self):
        self.found = []

    def __call__(self, kind, flag):
        self.found.append(kind)

    def __enter__(self):
        self.contexts = (np.errstate(all="call", call=self), warnings.catch_warnings())
        for context in self.contexts:
            context.__enter__()
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        return self

    def __exit__(self, *error):
        for context in reversed(self.contexts):
            context.__exit__(*error)


def put(value, way, dtype):
    """The arrays in it with other numbers; what is fixed stays."""
    change = WAYS[way]

    def other(array):
        if array.dtype != np.float64 or isinstance(array, Fixed):
            return array
        with np.errstate(all="ignore"):
            return np.asarray(change(array, TOP[dtype], LEAST[dtype]))

    return converted(value, other)


def changed(call, way, dtype):
    return replace(call, arguments=put(call.arguments, way, dtype), options=put(call.options, way, dtype))


def run(call, way, dtype):
    """One call and the gradient of its results; that values are refused is no fault here."""
    try:
        found = parts(changed(call, way, dtype).run(dtype, requires_grad="plain" not in call.marks))
        for t in found:
            if isinstance(t, gl.Tensor) and t.requires_grad:
                t.backward(gl.ones_like(t), retain_graph=True)
    except (RuntimeWarning, FloatingPointError) as leak:
        return [str(leak)]
    except REFUSED:
        pass
    return []


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_calls_are_silent(call):
    leaks = {}
    for dtype in DTYPES:
        for way in WAYS if dtype == gl.float32 else FEW:
            with Leaks() as leaking:
                found = run(call, way, dtype) + leaking.found
            if found:
                leaks[way, dtype] = set(found)
    assert not leaks


@pytest.mark.parametrize("native", [False, True], ids=["numpy", "native"])
@pytest.mark.parametrize("call", [c for c in CALLS[::23] if not c.marks & {"making", "plain", "in_place", "no_gradient"}], ids=repr)
def test_compiled_calls_are_silent(call, native, monkeypatch):
    monkeypatch.setattr(compiler, "available", lambda: native)
    given = changed(call, "all of them", gl.float32)
    compiled = gl.compile(lambda args, options: [t.sum() for t in parts(given.on(args, options)) if t.requires_grad])
    with Leaks() as leaking, contextlib.suppress(*REFUSED):
        for _ in range(3):
            for loss in compiled(*given.tensors(requires_grad=True)):
                loss.backward(retain_graph=True)
    assert not leaking.found


def steps(optimizer, p, gradient):
    def closure():
        p.grad = gl.tensor(gradient).to_sparse(1) if isinstance(optimizer, gl.optim.SparseAdam) else gl.tensor(gradient)
        return (p * p).sum()

    for _ in range(3):
        optimizer.step(closure)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_silent(name, way):
    for dtype in (np.float32, np.float64):
        p = gl.tensor(X.astype(dtype), requires_grad=True)
        with np.errstate(all="ignore"):
            gradient = np.broadcast_to(put(X, way, gl.float32), X.shape).astype(dtype)
        optimizer = getattr(gl.optim, name)([p])
        with Leaks() as leaking:
            steps(optimizer, p, gradient)
            gl.nn.utils.clip_grad_norm_([p], 1.0)
        assert not leaking.found


@pytest.mark.parametrize("way", ["all of them", "the top of the range", "the least numbers", "minus infinities"])
def test_training_steps_are_silent(way):
    model = gl.nn.Sequential(
        gl.nn.Conv1d(1, 4, 3, padding=1), gl.nn.BatchNorm1d(4), gl.nn.GELU(), gl.nn.Flatten(), gl.nn.LayerNorm(16), gl.nn.Dropout(),
        gl.nn.Linear(16, 4), gl.nn.Softplus(), gl.nn.LogSoftmax(-1),
    )
    optimizer, loader = gl.optim.Adam(model.parameters()), gl.utils.data.DataLoader(gl.tensor(put(X, way, gl.float32))[:, None].float(), 2)
    with Leaks() as leaking:
        for x in loader:
            loss = gl.nn.functional.nll_loss(model(x), gl.tensor([0, 1, 2, 3])[: x.shape[0]])
            repr(loss), repr(x), loss.half().item()
            loss.backward(retain_graph=True)
            (loss * np.float32(3e38)).backward()
            optimizer.step()
    assert not leaking.found


def test_threads_compute_in_one_context_each():
    """Several threads at a time, each in a context of its own with its own errstate; results are as of one alone."""
    found, x = [], gl.arange(300 * 300).reshape(300, 300).float() * 1e33

    def work():
        with np.errstate(all="raise"):
            found.append((x @ x.exp()).sigmoid().add(x).sum().log().item())

    with Leaks() as leaking:
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(work,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8 and len({str(v) for v in found}) == 1 and not leaking.found


def test_the_users_own_numpy_warns_as_ever():
    word = contextvars.ContextVar("word", default="")
    seen = []

    def reference(x):
        seen.append(word.get())
        return 1 / x

    own = gl.library.custom_op("silence::own", reference)
    word.set("the user's")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert own(gl.tensor([0.0, 2.0])).tolist() == [np.inf, 0.5]  # quiet as gradlab's own rows, but in the user's context
        with pytest.raises(RuntimeWarning):
            np.float32(1) / np.zeros(3, np.float32)
        assert np.geterr()["divide"] == "warn"
    assert seen == ["the user's"]
