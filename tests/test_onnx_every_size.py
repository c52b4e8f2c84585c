"""Every module exported with each of its sizes open, alone and with those equal to it: run at 1, 2, 5 and 7 beside eager."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.spec import ShapeError

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from gradlab.onnx.arguments import input_names  # noqa: E402

from onnx_modules import cases  # noqa: E402

SIZES = (1, 2, 5, 7)
REFUSALS = (TraceError, NotImplementedError, ShapeError, gl.onnx.UnsupportedError)


def sized(tensor, dims, n):
    """Of n entries along these dimensions: repeated, and no two the same."""
    array = tensor.detach().numpy()
    for d in dims:
        array = np.take(array, np.arange(n) % max(array.shape[d], 1), axis=d)
    if array.dtype.kind == "f":
        array = (array * (1 + 0.01 * np.sin(np.arange(array.size)).reshape(array.shape))).astype(array.dtype)
    return gl.tensor(array)


def choices(tensors):
    """Which (input, dimension) are open together: one, all of a size, those of a size that come first, the same one of all inputs."""
    by_size, found = {}, {}
    for i, tensor in enumerate(tensors):
        for d, size in enumerate(tensor.shape):
            by_size.setdefault(int(size), []).append((i, d))
            found[((i, d),)] = None
    for together in by_size.values():
        found[tuple(together)] = None
        if firsts := tuple(place for place in together if place[1] == 0):
            found[firsts] = None
    for d in (1, 2, 3):
        places = tuple((i, d) for i, tensor in enumerate(tensors) if tensor.ndim > d)
        if len(places) > 1 and len({int(tensors[i].shape[d]) for i, _ in places}) == 1:
            found[places] = None
    return list(found)


def results(function, arguments):
    with gl.no_grad(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [t.detach().numpy() for t in flatten(function(*arguments))[0]]


def beside(session, names, at, wants):
    """What is wrong at one of the sizes, or None."""
    for n, want in wants.items():
        taken = {i.name for i in session.get_inputs()}
        feed = {k: np.ascontiguousarray(t.numpy()) for k, t in zip(names, at(n), strict=True) if k in taken}
        for got, wanted in zip(session.run(None, feed), want, strict=True):
            if np.shape(got) != wanted.shape:
                return f"{n}: shape {np.shape(got)}, {wanted.shape} expected"
            if wanted.dtype.kind == "f":
                if not np.allclose(got, wanted, rtol=1e-3, atol=1e-4, equal_nan=True):
                    return f"{n}: off by {np.abs(got - wanted).max()}"
            elif (got != wanted).any():
                return f"{n}: other integers"
    return None


def trial(function, arguments, folder):
    """(what is open, what came of it, words) of each choice, exported from the example's sizes and from 1."""
    tensors, structure = flatten(tuple(arguments))
    names = input_names(function, structure, None)
    for choice in choices(tensors):
        per = {}
        for i, d in choice:
            per.setdefault(i, []).append(d)

        def at(n, per=per):
            return [sized(t, per[i], n) if i in per else t for i, t in enumerate(tensors)]

        wants = {}
        for n in SIZES:
            try:
                wants[n] = results(function, unflatten(structure, at(n)))
            except Exception:  # the size is not free
                continue
        if len(wants) < 2:
            continue
        for example in (tensors, at(1)) if 1 in wants else (tensors,):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    gl.onnx.export(function, tuple(unflatten(structure, example)), folder / "m.onnx",
                                   dynamic={i: dict.fromkeys(dims, "n") for i, dims in per.items()})  # fmt: skip
            except REFUSALS:
                yield choice, "refused", ""
                continue
            except gl.onnx.ExportError as error:
                yield choice, "not the same", str(error)
                continue
            except RuntimeError as error:
                yield choice, "refused" if "keep that size fixed" in str(error) else "error", str(error)
                continue
            except Exception as error:
                yield choice, "error", f"{type(error).__name__}: {error}"
                continue
            session = runtime.InferenceSession(str(folder / "m.onnx"), providers=["CPUExecutionProvider"])
            try:
                wrong = beside(session, names, at, wants)
            except Exception as error:
                wrong = str(error)
            yield choice, "right" if wrong is None else "wrong", wrong or ""


@pytest.mark.slow
def test_open_sizes(tmp_path):
    runtime.set_default_logger_severity(4)
    found, wrong = Counter(), []
    try:
        for name, make, arguments in cases():
            gl.manual_seed(1)
            for choice, outcome, words in trial(make().eval(), arguments, tmp_path):
                found[outcome] += 1
                if outcome in ("wrong", "error", "not the same"):
                    wrong.append(f"{name} {choice}: {outcome}: {words}"[:300])
    finally:
        runtime.set_default_logger_severity(2)
    print(dict(found))
    assert not wrong, "\n".join(wrong)
    assert found["right"] > 10 * found["refused"]
