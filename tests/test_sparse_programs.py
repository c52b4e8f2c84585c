"""Random programs of sparse tensors give what they give on dense ones, with the same gradients of the values."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def is_matrix(x):
    return x.layout is not gl.strided and x.ndim == 2 and x.dense_dim() == 0


ONE = {
    "neg": lambda a: -a, "abs": lambda a: a.abs(), "times": lambda a: a * 2.5, "over": lambda a: a / 3, "square": lambda a: a**2,
    "tanh": lambda a: a.tanh(), "clone": lambda a: a.clone(), "coalesce": lambda a: a.coalesce() if a.layout is gl.sparse_coo else a,
    "csr": lambda a: a.to_sparse_csr().to_sparse() if is_matrix(a) else a,
    "csc": lambda a: a.to_sparse_csc().to_sparse() if is_matrix(a) else a,
    "sum": lambda a: a.sum(0), "sum of the last": lambda a: a.sum(-1), "kept sum": lambda a: a.sum(0, keepdim=True),
    "transpose": lambda a: a.transpose(0, 1) if a.ndim > 1 else a, "first": lambda a: a[0] if a.ndim > 1 and a.shape[0] else a,
    "slice": lambda a: a[1:3], "last two": lambda a: a[-2:], "column": lambda a: a[:, 0] if a.ndim == 2 and a.shape[1] else a,
    "select": lambda a: a.index_select(0, gl.tensor([a.shape[0] - 1, 0, 0])) if a.shape[0] else a,
    "unsqueeze": lambda a: a.unsqueeze(0) if a.ndim < 4 else a, "clamp": lambda a: a.clamp(-0.5, 0.5),
    "narrow": lambda a: a.narrow(0, 0, a.shape[0] // 2),
}  # fmt: skip
TWO = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "cat": lambda a, b: gl.cat([a, b]),
    "cat of the last": lambda a, b: gl.cat([a, b], -1), "product": lambda a, b: a @ b.t() if a.ndim == 2 else a + b,
    "stack": lambda a, b: gl.stack([a, b]) if a.ndim < 3 else a + b,
}  # fmt: skip


def run(steps, a, b):
    for name in steps:
        if name in ONE:
            a, b = ONE[name](a), ONE[name](b)
        else:
            a = b = TWO[name](a, b)
    return a + b


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_programs(first):
    compared = 0
    for seed in range(first, first + 50):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist())
        dims = int(rng.integers(1, len(shape) + 1))
        values, tensors = [], []
        for _ in range(2):
            number = int(rng.integers(0, 9))
            places = np.stack([rng.integers(0, s, number) for s in shape[:dims]])
            values.append(gl.tensor(rng.normal(size=(number, *shape[dims:])), requires_grad=True))
            tensors.append(gl.sparse_coo_tensor(places, values[-1], shape))
        steps = rng.choice([*ONE, *TWO], 5).tolist()
        try:
            expected = run(steps, *(t.to_dense() for t in tensors))
        except (RuntimeError, IndexError):  # shapes that do not fit
            continue
        try:
            found = run(steps, *tensors).to_dense()
        except NotImplementedError as error:
            assert "to_dense" in str(error)
            continue
        compared += 1
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-9, err_msg=f"{seed}: {steps}")
        if not expected.requires_grad:
            continue
        weight = gl.tensor(rng.normal(size=tuple(expected.shape)))
        grads = [gl.autograd.grad((y * weight).sum(), values, retain_graph=True, materialize_grads=True) for y in (found, expected)]
        for one, two in zip(*grads, strict=True):
            np.testing.assert_allclose(one.numpy(), two.numpy(), atol=1e-9, err_msg=f"{seed}: {steps}")
    assert compared > 15
