"""Scratch memory of native kernels: what a thread keeps from call to call, over all rows that have kernels, and a compiled CNN."""

import ctypes
import gc
import re
import sys
import threading

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.native import compiler, eager, thresholds
from gradlab.op import NEVER

from samples import SAMPLES

F = nn.functional
KEPT = 256 << 10  # bytes beyond the panels of products
PANELS = 320 << 10  # of gemm.h: of the second matrix, and of rows of the first
OTHER = 96 << 10  # plans, and what else Python keeps
NATIVE = sorted(name for name, op in ops.ROWS.items() if thresholds.threshold(op) != NEVER)
# Images, weights and options: by Winograd, direct, of few and many channels, depthwise, of one pixel, dilated, with a stride, large planes.
CONVOLUTIONS = (
    ((8, 64, 32, 32), (64, 64, 3, 3), {"padding": 1}), ((2, 256, 28, 28), (256, 256, 3, 3), {"padding": 1}),
    ((4, 3, 64, 64), (64, 3, 7, 7), {"stride": 2}), ((8, 64, 32, 32), (128, 64, 1, 1), {}),
    ((4, 96, 28, 28), (96, 1, 3, 3), {"groups": 96}), ((4, 1, 64, 64), (16, 1, 5, 5), {}),
    ((2, 32, 48, 48), (32, 32, 3, 3), {"dilation": 2}), ((2, 2, 200, 200), (8, 2, 3, 3), {}),
)  # fmt: skip


class Info(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "parts", "small", "maps", "mapped", "u", "s", "used", "free", "top")]


def in_use():
    """Bytes that malloc has given out."""
    gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Info
    found = library.mallinfo2()
    return found.used + found.mapped


def normal(*shape):
    return gl.from_numpy(np.random.default_rng(0).standard_normal(shape).astype("f")).requires_grad_()


def both_ways(f, *shapes):
    """What does f and its gradients, and keeps nothing."""

    def run():
        inputs = [normal(*s) for s in shapes]
        y = f(*inputs)
        y.backward(gl.ones_like(y))

    return run


def of_row(name):
    """What runs a row's samples as kernels."""

    def run():
        for one in SAMPLES.get(name, ())[:3]:
            given = [None if x is None else np.asarray(x) for x in one.inputs]
            arrays = [x.astype("f") if x is not None and x.dtype.kind == "f" else x for x in given]
            eager.run(ops.ROWS[name], arrays, one.params)

    return run


def step_of_a_cnn():
    """A compiled training step, which is dropped."""
    layers = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 10)
    model = nn.Sequential(*layers)
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1)

    @gl.compile
    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(normal(16, 1, 28, 28).detach())


@needs_compiler
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2") if sys.platform == "linux" else True, reason="glibc counts")
def test_no_kernel_keeps_more():
    """Each call's first run leaves no more than scratch memory may be."""
    calls = {name: of_row(name) for name in NATIVE}
    for x, w, options in CONVOLUTIONS:
        calls[f"convolution {x} {w} {options}"] = both_ways(lambda x, w, options=options: F.conv2d(x, w, **options), x, w)
    calls |= {
        "matmul": both_ways(lambda a, b: a @ b, (700, 900), (900, 800)),
        "matmul.T": both_ways(lambda a, b: a.mT @ b, (2048, 512), (2048, 64)),
        "norm": both_ways(lambda x: F.layer_norm(x, (4096,)), (64, 4096)),
        "batch_norm": both_ways(lambda x: F.batch_norm(x, None, None, training=True), (16, 512, 8, 8)),
        "max_pool": both_ways(lambda x: F.max_pool2d(x, 2), (4, 32, 128, 128)),
        "avg_pool": both_ways(lambda x: F.avg_pool2d(x, 3, 1), (4, 32, 64, 64)),
        "softmax": both_ways(lambda x: x.softmax(0), (500, 700)),
        "attention": both_ways(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (2, 4, 256, 64)),
        "sort": lambda: normal(30, 5000).sort(1),
        "lstm": lambda: nn.LSTM(200, 300)(normal(20, 40, 200))[0].sum().backward(),
        "a compiled CNN": step_of_a_cnn,
    }
    threads, left = gl.get_num_threads(), {}
    gl.set_num_threads(1)
    gc.freeze()  # collecting is quick then
    try:
        with kernels():
            for name, run in calls.items():
                first = threading.Thread(target=run)  # loads and plans; its scratch memory ends with it
                first.start()
                first.join()
                before = in_use()
                run()
                left[name] = in_use() - before
            assert len(used()) > 150
    finally:
        gc.unfreeze()
        gl.set_num_threads(threads)
    assert not {name: n for name, n in left.items() if n > KEPT + PANELS + OTHER}


def test_large_scratch_goes_back():
    """Wherever a kernel takes such memory, something gives it back at the end of the call."""
    texts = {path: path.read_text() for path in sorted(compiler.KERNELS.glob("*.*"))}
    large, found = {name for text in texts.values() for name in re.findall(r"\bLargeScratch (\w+);", text)}, 0
    for path, text in texts.items():
        for name in set(re.findall(r"(\w+)\.of\(", text)) & large:
            uses = len(re.findall(rf"\b{name}\.of\(", text))
            assert len(re.findall(rf"UntilTheEnd \w+\({name}\)", text)) == uses, f"{path.name}: {name}"
            found += uses
    assert found > 7
