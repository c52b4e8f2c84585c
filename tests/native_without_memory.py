"""The program of `test_native_memory.py`: native kernels for whose own use there is no memory. It runs under a library, loaded before all
others, whose `posix_memalign` fails after as many calls as `let` says (-1: never); all work space of kernels comes from there.

What it prints is a JSON list of lines: what was called, how often memory was refused, what came of it ("right", "MemoryError", or what
else).
"""

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from native_eager import kernels
from test_native_scratch import CONVOLUTIONS, NATIVE

import gradlab as gl
from gradlab import nn, ops
from gradlab.backends.native import eager

from samples import SAMPLES

F = nn.functional
shim = ctypes.CDLL(None)
lines = []


def arrays_of(found):
    return [np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))]


def tried(name, call, wanted, after=0):
    """One call with memory refused, then one with it."""
    shim.let(after)
    try:
        found = in_new_thread(call)
        outcome = "nothing" if found is None else "right" if same(found, wanted) else "wrong"
    except MemoryError:
        outcome = "MemoryError"
    except Exception as error:
        outcome = repr(error)
    refused = shim.refused()
    shim.let(-1)
    lines.append((name, refused, outcome))
    again = call()
    if again is not None and not same(again, wanted):
        lines.append((name, refused, "wrong afterwards"))


def in_new_thread(call):
    """A thread keeps work space from call to call; a new one has none."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def same(found, wanted):
    return all(np.allclose(f, w, rtol=1e-3, atol=1e-3, equal_nan=True) for f, w in zip(arrays_of(found), arrays_of(wanted), strict=True))


def normal(*shape):
    return gl.from_numpy(np.random.default_rng(0).standard_normal(shape).astype("f")).requires_grad_()


def rows():
    for name in NATIVE:
        op = ops.ROWS[name]
        for sample in SAMPLES[name][:2]:
            if all(isinstance(x, np.ndarray) for x in sample.inputs):
                inputs = [x.astype("f") if x.dtype == np.float64 else x for x in sample.inputs]
                wanted = eager.run(op, inputs, dict(sample.params))
                if wanted is not None:
                    tried(name, lambda op=op, inputs=inputs, sample=sample: eager.run(op, inputs, dict(sample.params)), wanted)


def programs():
    """Compiled steps and what they are called with."""
    for shape, weight, options in CONVOLUTIONS:
        x, w = normal(*shape), normal(*weight)
        yield f"conv{options}", lambda x, w, options=options: F.max_pool2d(F.conv2d(x, w, **options).relu(), 2).square().mean(), (x, w)
    q = normal(2, 4, 65, 32)
    yield "attention", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum(), (q,)
    table, at = normal(5, 24), gl.tensor(np.random.default_rng(1).integers(0, 5, 900))
    yield "embedding", lambda t: (F.embedding(at, t) ** 2).sum(), (table,)
    a, b = normal(200, 700), normal(700, 150)
    yield "product", lambda a, b: (a @ b).tanh().sum(), (a, b)
    image, scale, shift = normal(4, 16, 24, 24), normal(16), normal(16)
    yield "norm", lambda x, s, t: F.avg_pool2d(F.batch_norm(x, None, None, s, t, True).relu(), 3, 2).square().sum(), (image, scale, shift)
    yield "sort", lambda a: (a.sort(1).values * a).sum() + a.topk(3).values.sum(), (normal(40, 50),)


def main():
    if sys.argv[1] == "rows":
        with kernels():
            rows()
    for name, function, inputs in programs() if sys.argv[1] == "programs" else ():

        def step(*inputs, function=function):
            return gl.autograd.grad(function(*inputs), inputs)

        wanted = [g.numpy() for g in step(*inputs)]
        step = gl.compile(step)
        step(*inputs)
        for after in (0, 1, 2, 0):
            tried(name, lambda step=step, inputs=inputs: tuple(g.numpy() for g in step(*inputs)), tuple(wanted), after)
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
