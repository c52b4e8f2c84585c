"""Calls that one would not think of first, beside PyTorch's: each is one expression over a namespace that stands for either library."""

import numpy as np
import pytest

import gradlab as gl

BIG = 2**53 + 1


def joined(name, *sizes):
    return lambda T: getattr(T, name)([T.ones(*size) * i for i, size in enumerate(sizes)])


def backward(function, *leaves):
    """The gradients of the leaves."""

    def run(T):
        given = [T.tensor(leaf, requires_grad=True) for leaf in leaves]
        function(T, *given).sum().backward()
        return [x.grad for x in given]

    return run


def rates(T, first):
    """Those of ten steps in which a MultiplicativeLR follows another scheduler."""
    schedulers, optimizer = T.optim.lr_scheduler, T.optim.SGD([T.ones(1, requires_grad=True)], 1.0)
    both = [getattr(schedulers, name)(optimizer, lambda epoch: 0.75 + epoch / 8) for name in (first, "MultiplicativeLR")]
    sequence, found = schedulers.SequentialLR(optimizer, both, [3]), []
    for _ in range(6):
        optimizer.step()
        sequence.step()
        found.append(optimizer.param_groups[0]["lr"])
    return T.tensor(found)


CALLS = {
    "as_strided_scatter offset": lambda T: T.as_strided_scatter(T.zeros(10), T.ones(2, 2), (2, 2), (3, 1), 2),
    "as_strided_scatter of a view": lambda T: T.as_strided_scatter(T.arange(10.0)[1:], T.ones(2, 2), (2, 2), (3, 1)),
    "as_strided_scatter of a view, offset": lambda T: T.as_strided_scatter(T.arange(10.0)[1:], T.ones(2, 2), (2, 2), (3, 1), 2),
    "as_strided_scatter of columns": lambda T: T.as_strided_scatter(
        T.arange(12.0).view(3, 4)[:, 1:], T.ones(2, 2), (2, 2), (3, 1), 2
    ),
    "as_strided_scatter beyond": lambda T: T.as_strided_scatter(T.zeros(3), T.ones(2, 2), (2, 2), (3, 1), 2),
    "cat of nothing along 1": lambda T: T.cat([T.zeros(0), T.zeros(0)], 1),
    "cat gradient of nothing": backward(lambda T, x, y: T.cat([x, y], 1), [], [[1.0, 2.0]]),
    **{f"{name} {sizes}": joined(name, *sizes)
       for name in ("cat", "hstack", "vstack", "dstack", "column_stack", "stack")
       for sizes in (((0,), (2, 3)), ((2, 3), (0,), (1, 3)), ((2, 2, 3), (0,)), ((0, 3), (2, 3)))},
    **{f"lu_unpack {dtype}": lambda T, dtype=dtype: tuple(
        T.lu_unpack(T.tensor([[1, 2, 5], [3, 4, 6]]).to(getattr(T, dtype)), T.tensor([2, 2], dtype=T.int32)))
       for dtype in ("float16", "bfloat16", "int32", "int64", "bool", "float64", "complex64")},
    **{f"linear {x} {bias}": lambda T, x=x, bias=bias: T.nn.functional.linear(
        T.ones(*x, 3), T.arange(6.0).view(2, 3), T.arange(float(np.prod(bias))).view(*bias))
       for x in ((), (4,), (5, 4)) for bias in ((2,), (1,), (1, 2), (4, 2), (3, 2), (5, 4, 2))},
    "linear gradient": backward(lambda T, x, w, b: T.nn.functional.linear(x, w, b) ** 2, [[1.0, 2.0]] * 3, [[3.0, 4.0], [1.0, 2.0]],
                                [[1.0], [2.0], [3.0]]),
    **{f"avg_pool{rank}d int64": lambda T, rank=rank: getattr(T.nn.functional, f"avg_pool{rank}d")(
        T.arange(6**rank).view(1, 1, *(6,) * rank) * 7 - 40 + BIG, 3, 2, 1, ceil_mode=True, count_include_pad=False)
       for rank in (1, 2, 3)},
    "avg_pool1d of negative numbers": lambda T: T.nn.functional.avg_pool1d(T.tensor([[[-3, -4, -1, 0]]]), 2),
    **{f"{name} {dtype} of a tensor {value}": lambda T, name=name, dtype=dtype, value=value: (
        T.full_like(T.ones(2).to(getattr(T, dtype)), T.tensor(value)) if name == "full_like"
        else T.ones(2).to(getattr(T, dtype)).new_full((2,), T.tensor(value)))
       for name in ("full_like", "new_full") for dtype in ("float32", "bfloat16", "float16", "int64") for value in (True, 2)},
    **{f"MultiplicativeLR behind {name}": lambda T, name=name: rates(T, name) for name in ("LambdaLR", "MultiplicativeLR")},
    "0 steps written": lambda T: T.zeros(3).as_strided((3, 2), (0, 1)).add_(1),
}  # fmt: skip


def told(T, call):
    try:
        found = call(T)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return "refused"
    found = found if isinstance(found, (tuple, list)) else [found]
    return [(str(x.dtype).partition(".")[2], tuple(x.shape), x.detach().tolist()) for x in found]


@pytest.mark.torch
def test_as_torch():
    torch = pytest.importorskip("torch")
    different = {name: (ours, theirs) for name, call in CALLS.items() if (ours := told(gl, call)) != (theirs := told(torch, call))}
    assert not different


def test_whole_means_are_exact():
    x = gl.tensor([[[BIG, BIG, BIG, BIG + 2, -BIG]]])
    assert gl.nn.functional.avg_pool1d(x, 2).tolist() == [[[BIG, BIG + 1]]]
    assert gl.nn.functional.adaptive_avg_pool1d(x, 1).tolist() == [[[(3 * BIG + 2) // 5]]]
    assert gl.nn.functional.adaptive_avg_pool1d(x, 3).tolist() == [[[BIG, BIG, 1]]]
    grid = gl.arange(70).reshape(1, 2, 5, 7) * 10 + BIG
    assert (gl.nn.functional.adaptive_avg_pool2d(grid, (2, 3)) - BIG)[0].tolist() == [
        [[80, 100, 120], [220, 240, 260]], [[430, 450, 470], [570, 590, 610]]
    ]  # fmt: skip
