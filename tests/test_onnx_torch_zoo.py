"""What PyTorch's own exporter writes of some 280 of its modules and functions: loaded, compiled, traced, trained and exported again."""

from __future__ import annotations

import io
import logging
import warnings
from collections import Counter

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph import TraceError

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
zoo = pytest.importorskip("onnx_torch_zoo").zoo

pytestmark = [pytest.mark.slow, pytest.mark.torch]
# How many results there are depends on values, or where a window reaches on an open size: refused by name.
REFUSED = {"masked_scatter", "nonzero", "unique", "AvgPool1d odd", "AvgPool2d odd", "AvgPool3d odd"}
RANKS = {"movedim"}  # squeeze() of an open size: how many dimensions are left is decided when PyTorch writes the file


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, (tuple, list)) else [value]


def nested(like, leaves):
    return tuple(nested(part, leaves) for part in like) if isinstance(like, tuple) else next(leaves)


def array(value):
    return value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)


def close(found, wanted, rtol=1e-3, atol=2e-4):
    for a, b in zip(map(array, found), map(array, wanted), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol)


def resized(tensors, open_, sizes):
    """The example's tensors with other sizes, their elements repeated and changed a little."""
    found = []
    for i, t in enumerate(tensors):
        a = t.numpy()
        for dim, name in open_.get(i, {}).items():
            a = np.take(a, np.arange(sizes[name]) % a.shape[dim], axis=dim)
        if a.dtype.kind == "f":
            a = (a * (1 + 0.01 * np.sin(np.arange(a.size)).reshape(a.shape))).astype(a.dtype)
        found.append(torch.from_numpy(np.ascontiguousarray(a)))
    return found


class File:
    """A module of the zoo and the file that PyTorch makes of it."""

    def __init__(self, module, args, open_):
        self.module, self.args, self.tensors, self.open = module.eval(), args, flat(args), open_
        self.names = [f"x{i}" for i in range(len(self.tensors))]
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, args, buffer, dynamo=False, opset_version=17, input_names=self.names,
                              dynamic_axes={self.names[i]: dims for i, dims in open_.items()})  # fmt: skip
        self.bytes = buffer.getvalue()
        self.session = runtime.InferenceSession(self.bytes, providers=["CPUExecutionProvider"])
        self.kept = [i for i, n in enumerate(self.names) if n in {v.name for v in self.session.get_inputs()}]

    def theirs(self, tensors):
        """PyTorch's results, None where its own file gives others: it wrote a size of the example into it."""
        try:
            with torch.no_grad():
                want = flat(self.module(*nested(self.args, iter(tensors))))
            close(self.session.run(None, {self.names[i]: tensors[i].numpy() for i in self.kept}), want)
        except Exception:
            return None
        return want

    def sets(self):
        """Tensors and results of the sizes that the file takes, and the names of those sizes."""
        own = {n: int(self.tensors[i].shape[d]) for i, dims in self.open.items() for d, n in dims.items()}
        taken = {n for n in own if self.theirs(resized(self.tensors, self.open, {**own, n: own[n] + 2})) is not None}
        changes = (lambda n, k: 1, lambda n, k: n + 1 + k, lambda n, k: 2 * n, lambda n, k: n + 2) if taken else ()
        others = [{n: change(s, k) if n in taken else s for k, (n, s) in enumerate(own.items())} for change in changes]
        found = [self.tensors, *(resized(self.tensors, self.open, sizes) for sizes in others)]
        return [(ts, want) for ts in found if (want := self.theirs(ts)) is not None], taken

    def ours(self, tensors):
        return [gl.tensor(tensors[i].detach().numpy()) for i in self.kept]


def used(file, folder):
    """Everything that is done with a file; an AssertionError where numbers or names differ."""
    sets, taken = file.sets()
    if not sets:
        return "PyTorch's file is wrong"
    loaded = gl.onnx.load(file.bytes)
    compiled = gl.compile(loaded)
    with gl.no_grad():
        for tensors, want in sets:
            close(flat(loaded(*file.ours(tensors))), want)
        for tensors, want in (*sets, sets[0]):
            close(flat(compiled(*file.ours(tensors))), want)
        program = gl.jit.trace(loaded, tuple(file.ours(file.tensors)), check_trace=False)
        close(flat(program(*file.ours(file.tensors))), sets[0][1])
    trained(file, sets[-1][0], loaded, compiled)
    dynamic = {k: {d: n for d, n in file.open[i].items() if n in taken} for k, i in enumerate(file.kept) if i in file.open}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gl.onnx.export(loaded, tuple(file.ours(file.tensors)), folder / "again.onnx", dynamic=dynamic if taken else None)
    again = runtime.InferenceSession(str(folder / "again.onnx"), providers=["CPUExecutionProvider"])
    assert [v.name for v in again.get_inputs()] == [v.name for v in file.session.get_inputs()]
    assert [v.name for v in again.get_outputs()] == [v.name for v in file.session.get_outputs()]
    for tensors, want in sets:
        close(again.run(None, {file.names[i]: tensors[i].numpy() for i in file.kept}), want)
    return "through"


def weighed(results, engine):
    """A number of the results that require grad, or None."""
    found = [y for y in results if y.is_floating_point() and y.requires_grad]
    return sum((y * engine.sin(engine.arange(y.numel()).float()).view(y.shape)).sum() for y in found) if found else None


def trained(file, tensors, *models):
    """Gradients of the inputs, as PyTorch's."""
    leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in tensors]
    total = weighed(flat(file.module(*nested(file.args, iter(leaves)))), torch)
    if total is None:
        return
    total.backward()
    for model in models:
        mine = [gl.tensor(leaves[i].detach().numpy(), requires_grad=leaves[i].is_floating_point()) for i in file.kept]
        total = weighed(flat(model(*mine)), gl)
        if total is not None:
            total.backward()
        for x, i in zip(mine, file.kept, strict=True):
            want = leaves[i].grad if leaves[i].requires_grad else None
            if want is not None and bool(want.abs().max() > 0):
                close([x.grad], [want], 5e-3, 5e-3)


def test_every_file(tmp_path):
    logging.disable(logging.WARNING)
    try:
        found, wrong = Counter(), []
        for name, module, args, open_ in zoo():
            try:
                file = File(module, args, open_)
            except Exception:  # its exporter has no such operator
                found["not written"] += 1
                continue
            try:
                found[used(file, tmp_path)] += 1
            except (gl.onnx.UnsupportedError, gl.onnx.OnnxLoadError, TraceError) as error:
                found["refused"] += 1
                if name not in REFUSED:
                    wrong.append(f"{name}: {error}"[:400])
            except Exception as error:
                if name not in RANKS:
                    wrong.append(f"{name}: {type(error).__name__}: {error}"[:400])
    finally:
        logging.disable(logging.NOTSET)
    print(dict(found))
    assert not wrong
    assert found["through"] >= 240
