"""What sparse tensors do not offer says so and says how to go on: every public function and method, traces, vmap, files, optimizers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS

# Methods that answer something else of a sparse tensor, as they should.
OTHERWISE = {
    "Tensor.dense_dim", "Tensor.sparse_dim", "Tensor.is_sparse", "Tensor.layout", "Tensor.nbytes", "Tensor.type", "Tensor.__iter__",
    "gl.typename",
}  # fmt: skip
WITHOUT_MEMORY = {"gl.from_dlpack", "Tensor.__dlpack__", "Tensor.__dlpack_device__"}


def with_a_zero(x):
    y = x.clone()
    if y.ndim and y.numel() > 1:
        y[(0,) * (y.ndim - 1) + (-1,)] = 0
    return y


def equal(a, b):
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(equal, a, b))
    if not isinstance(a, gl.Tensor):
        return a == b
    a, b = a.to_dense().detach(), b.to_dense().detach()
    return a.shape == b.shape and a.dtype == b.dtype and np.allclose(a.double().numpy(), b.double().numpy(), equal_nan=True)


def tried(call, where):
    """What a call says or gives with one of its tensors sparse, and what it gives with all of them dense."""
    args, options = call.tensors(gl.float64)
    args = [with_a_zero(x) if isinstance(x, gl.Tensor) and x.is_floating_point() else x for x in args]
    dense = [x.clone() if isinstance(x, gl.Tensor) else x for x in args]
    args[where] = args[where].to_sparse()
    bare = call.name.partition(".")[2]
    gl.manual_seed(0)
    try:
        if call.name.startswith("Tensor.") and where == 0:
            found = getattr(args[0], bare)
            found = found(*args[1:], **options) if callable(found) else found
        else:
            found = call.function(*args, **options)
    except Exception as error:
        return error, None
    gl.manual_seed(0)
    return found, call.on(dense, options)


def test_every_public_call_is_right_or_refuses():
    counts, wrong = {"the same": 0, "refused": 0}, []
    for call in CALLS:
        for where, x in enumerate(call.tensors(gl.float64)[0]):
            if not (isinstance(x, gl.Tensor) and x.ndim) or call.name in OTHERWISE:
                continue
            found, expected = tried(call, where)
            if isinstance(found, Exception):
                counts["refused"] += 1
                if "to_dense" not in str(found) and call.name not in WITHOUT_MEMORY:
                    wrong.append(f"{call!r}, argument {where}: {type(found).__name__}: {found}")
            else:
                counts["the same"] += 1
                if not equal(found, expected):
                    wrong.append(f"{call!r}, argument {where}: {found} in place of {expected}")
    assert wrong == []
    assert counts["the same"] > 400 and counts["refused"] > 1500


def test_hasattr_and_numpy():
    x = gl.eye(2).to_sparse()
    assert not hasattr(x, "H") and hasattr(x, "T")
    assert len(x) == 2 and [row.to_dense().tolist() for row in x] == [[1, 0], [0, 1]]
    for ask in (np.asarray, lambda x: np.add(x, 1), lambda x: x.__setitem__(0, 1), lambda x: x == x, lambda x: 1 / x, lambda x: x + 1):
        with pytest.raises(NotImplementedError, match="to_dense"):
            ask(x)


def test_traces_and_vmap():
    x, d = gl.eye(3).to_sparse(), gl.ones(3, 2)
    compiled = gl.compile(lambda d: x @ d)
    with pytest.raises(NotImplementedError, match="not traced or compiled"):
        for _ in range(3):
            compiled(d)
    of_arguments = gl.compile(lambda a, d: a @ d), gl.compile(lambda a, d: d * a.shape[0]), gl.compile(lambda a, d: (a.to_dense(), d))
    for compiled in of_arguments:
        with pytest.raises(NotImplementedError, match="not traced or compiled"):
            for _ in range(3):
                compiled(x, d)
    with pytest.raises(NotImplementedError, match="to_dense"):
        gl.vmap(lambda a: a.to_dense().sum())(gl.stack([x, x]))
    for wrong in (lambda: gl.jit.trace(lambda d: x @ d, (d,)), lambda: gl.vmap(lambda d: x @ d)(gl.ones(4, 3, 2))):
        with pytest.raises(NotImplementedError, match="sparse"):
            wrong()


def test_parameters_and_files(tmp_path):
    x = gl.eye(3).to_sparse()
    with pytest.raises(NotImplementedError, match="make its values one"):
        gl.nn.Parameter(x)
    module = gl.nn.Linear(3, 2)
    module.register_buffer("adjacency", x)
    assert module.double().adjacency.dtype == gl.float64 and module.state_dict()["adjacency"].is_sparse
    d = gl.ones(3, 3)
    gl.save(module.state_dict(), tmp_path / "a.pt")
    assert gl.load(tmp_path / "a.pt")["adjacency"].to_dense().equal(x.to_dense().double())
    for wrong in (lambda: setattr(d, "data", x), lambda: d.set_(x), lambda: gl.save(module.state_dict(), tmp_path / "a.safetensors")):
        with pytest.raises((RuntimeError, TypeError), match="to_dense"):
            wrong()


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_methods_of_dense_tensors_called_by_their_class_name_themselves(layout):
    """What a row refuses names the row; anything else that a sparse tensor has not, the method that asked."""
    x, named = getattr(gl.eye(3), layout)(), set()
    for name in sorted(dir(gl.Tensor)):
        method = getattr(gl.Tensor, name, None)
        if name.startswith("_") or not callable(method):
            continue
        try:
            method(x)
        except Exception as error:
            if re.search(r"a sparse tensor (is|has) no|the address", str(error)):
                named.add(name)
                assert str(error).startswith(f"{name}: "), (name, error)
    assert {"item", "tolist", "numpy", "untyped_storage", "storage", "data_ptr", "is_contiguous"} <= named
