"""What the graph keeps: of every row exactly what its formulas ask for; and nothing grows from step to step, with the collector off."""

import gc
import itertools
import tracemalloc

import numpy as np
import pytest
from test_ops import CASES

import gradlab as gl
from gradlab import nn, ops
from gradlab.nn import functional as F

from samples import SAMPLES


def kept_names(row, wanted):
    """The inputs and outputs that the formulas for these inputs ask for."""
    asked = {w for step in row.steps if set(step.targets) & wanted for w in step.wants}
    return [name in asked for name in (*row.kept_inputs, *row.kept_outputs)]


def node_of(result):
    outs = result if isinstance(result, tuple) else (result,)
    return outs, next((y.grad_fn for y in outs if y.grad_fn is not None), None)


def size(value):
    """Bytes of what a node keeps in one place: a Tensor, several, or a raw array."""
    if isinstance(value, tuple):
        return sum(map(size, value))
    return value.nbytes if isinstance(value, (gl.Tensor, np.ndarray)) else 0


@pytest.mark.parametrize(("name", "number"), CASES, ids=lambda value: str(value))
def test_a_row_keeps_what_its_formulas_need_and_no_more(name, number):
    sample, row = SAMPLES[name][number], ops.ROWS[name]
    if not row.steps or row.dynamic:
        pytest.skip("no gradient")
    floats = [i for i, x in enumerate(sample.inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    sizes = [len(floats)] if row.variadic else range(1, min(len(floats), 4) + 1)
    subsets = [set(chosen) for r in sizes for chosen in itertools.combinations(floats, r)]
    for subset in subsets:
        inputs = [gl.tensor(x, requires_grad=i in subset) if isinstance(x, np.ndarray) else x for i, x in enumerate(sample.inputs)]
        outs, node = node_of(row(*inputs, **sample.params))
        wanted = set(row.inputs) if row.variadic else {row.inputs[i] for i in subset}
        served = any(set(step.targets) & wanted for step in row.steps)
        if node is None:
            assert not served or not any(y.is_floating_point() for y in outs)
            continue
        assert served
        names = (*row.kept_inputs, *row.kept_outputs)
        by_name = {n: (inputs if row.variadic else [x]) for n, x in zip(row.inputs, inputs, strict=False)}
        by_name |= {n: [y] for n, y in zip(row.outputs, outs, strict=True)}
        assert len(node.saved) in (0, len(names))
        saved = node.saved or (None,) * len(names)
        for n, asked, value in zip(names, kept_names(row, wanted), saved, strict=True):
            given = [x for x in by_name.get(n, [None]) if isinstance(x, gl.Tensor)]
            if asked:
                assert size(value) == sum(x.nbytes for x in given), n
            else:
                assert value is None, n
        for value in saved:  # nothing of a larger array comes along, but what the caller's own tensors hold
            if isinstance(value, np.ndarray) and value.base is not None:
                assert any(np.shares_memory(value, y._array) for y in outs)


# ---------------------------------------------------------------- from step to step


def growth(step, count, warm=400, windows=3):
    """What stays behind after `count` steps with the collector off: bytes, and objects in cycles that only the collector would free.

    Of several windows of so many steps the bytes are those of the best: what leaks does so in each, while a cache or a dictionary of
    Python's own grows in leaps, in one of them.

    The collection at the end also empties Python's free lists of tuples, which would look like growth. `warm` fills caches and Python's own
    pools, traced too: what a step that does everything leaves there dies away over
    some hundred steps (tuples, which tracemalloc goes on counting for the line that first made them when another reuses them).
    """
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(warm):
            step()
        gc.collect()
        grown, unreachable = [], 0
        for _ in range(windows):
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                step()
            unreachable += gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
        return min(grown), unreachable
    finally:
        tracemalloc.stop()
        gc.enable()


def mlp_step():
    gl.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = gl.optim.Adam(net.parameters())
    x, y = gl.randn(32, 8), gl.randint(0, 3, (32,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


class Twice(gl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 2


def everything_step():
    """Views written in place, hooks, checkpoints, a Function, second derivatives, module hooks, a retained gradient."""
    w = gl.ones(4, 4, dtype=gl.float64, requires_grad=True)
    layer = nn.Linear(4, 4).double()
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)

    def step():
        y = (w * 2).tanh() * 1
        y[0].mul_(3)
        y.retain_grad()
        y.register_hook(lambda g: g * 1)
        z = gl.utils.checkpoint.checkpoint(lambda v: (v @ w).exp().sin(), y * 0.1)
        z = Twice.apply(layer(z))
        with gl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            z = z.sigmoid() * z
        (g,) = gl.autograd.grad(z.sum(), w, create_graph=True)
        (g.square().sum() + z.sum()).backward()
        w.grad = None
        layer.zero_grad()
        Twice.apply(w)  # dropped without a backward

    return step


@pytest.mark.alone
@pytest.mark.parametrize("make", [mlp_step, everything_step])
def test_memory_is_flat(make):
    grown, unreachable = growth(make(), 200)
    assert unreachable == 0
    assert grown < 32 * 200  # one object that stays is more


@pytest.mark.alone
@pytest.mark.slow
def test_memory_is_flat_for_ten_thousand_steps():
    grown, unreachable = growth(mlp_step(), 10_000, windows=1)
    assert unreachable == 0
    assert grown < 0.2 * 10_000  # bytes
