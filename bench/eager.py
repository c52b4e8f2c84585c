"""Sixty common operations in eager mode beside PyTorch: forward, and with backward, at a small, a middle and a large size.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/eager.py [names] [--sizes large] [--threads 2] [--rounds 5] [--cpu]

Both engines run in turns in one process; each number is gradlab's time over PyTorch's, of the medians of the rounds (with --cpu of
the least processor times, for a machine that others use as well; not with several threads: PyTorch's spin while they wait). Kernels have
to lie ready (`gradlab warm`); the table says how many do.
--steps: the training steps of bench/workloads.py in their place, and a chain of elementwise operations over four million numbers.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

import gradlab
from gradlab.backends.native import ready

sys.path.insert(0, str(Path(__file__).resolve().parent))
import workloads

SIZES = {"small": 16, "middle": 1 << 14, "large": 1 << 20}


def vector(lib, r, n):
    return lib.from_numpy(r.standard_normal(n).astype("f"))


def matrix(lib, r, n):
    width = max(4, int(n**0.5) // 4 * 4)
    return lib.from_numpy(r.standard_normal((n // width, width)).astype("f"))


def image(lib, r, n):
    side = {16: 2, 1 << 14: 16, 1 << 20: 64}[n]
    channels = {16: 4, 1 << 14: 16, 1 << 20: 32}[n]
    return lib.from_numpy(r.standard_normal((n // side // side // channels or 1, channels, side, side)).astype("f"))


def signal(lib, r, n):
    channels = {16: 4, 1 << 14: 16, 1 << 20: 32}[n]
    length = {16: 4, 1 << 14: 64, 1 << 20: 512}[n]
    return lib.from_numpy(r.standard_normal((n // channels // length or 1, channels, length)).astype("f"))


def heads(lib, r, n):
    length, width = {16: (2, 4), 1 << 14: (32, 16), 1 << 20: (128, 32)}[n]
    return lib.from_numpy(r.standard_normal((max(1, n // length // width // 4), 4 if n > 16 else 2, length, width)).astype("f"))


def convolved(lib, F, x):
    """With a kernel of three by three and 16 results that is made of the first image, or one of a single pixel."""
    channels = x.shape[1]
    if x.shape[2] == 2:
        return F.conv2d(x, x.reshape(4, 4, 1, 1))
    return F.conv2d(x, x[:1].reshape(-1)[: 9 * 16 * channels].reshape(-1, channels, 3, 3), padding=1)


OPERATIONS = {
    "add": (vector, lambda L, F, x: x + x),
    "mul": (vector, lambda L, F, x: x * x),
    "sub number": (vector, lambda L, F, x: x - 1.5),
    "mul number": (vector, lambda L, F, x: x * 1.5),
    "div": (vector, lambda L, F, x: x / (x * x + 1)),
    "neg": (vector, lambda L, F, x: -x),
    "abs": (vector, lambda L, F, x: x.abs()),
    "square": (vector, lambda L, F, x: x.square()),
    "pow 3": (vector, lambda L, F, x: x**3),
    "exp": (vector, lambda L, F, x: x.exp()),
    "log": (vector, lambda L, F, x: (x * x + 1).log()),
    "sqrt": (vector, lambda L, F, x: (x * x + 1).sqrt()),
    "sin": (vector, lambda L, F, x: x.sin()),
    "tanh": (vector, lambda L, F, x: x.tanh()),
    "sigmoid": (vector, lambda L, F, x: x.sigmoid()),
    "relu": (vector, lambda L, F, x: F.relu(x)),
    "gelu": (vector, lambda L, F, x: F.gelu(x)),
    "gelu tanh": (vector, lambda L, F, x: F.gelu(x, approximate="tanh")),
    "silu": (vector, lambda L, F, x: F.silu(x)),
    "softplus": (vector, lambda L, F, x: F.softplus(x)),
    "leaky_relu": (vector, lambda L, F, x: F.leaky_relu(x)),
    "elu": (vector, lambda L, F, x: F.elu(x)),
    "hardswish": (vector, lambda L, F, x: F.hardswish(x)),
    "erf": (vector, lambda L, F, x: x.erf()),
    "clamp": (vector, lambda L, F, x: x.clamp(-0.5, 0.5)),
    "maximum": (vector, lambda L, F, x: L.maximum(x, -x)),
    "where": (vector, lambda L, F, x: L.where(x > 0, x, -x)),
    "masked_fill": (vector, lambda L, F, x: x.masked_fill(x > 0, 0.0)),
    "lerp": (vector, lambda L, F, x: L.lerp(x, -x, 0.3)),
    "dropout": (vector, lambda L, F, x: F.dropout(x, 0.1)),
    "add row": (matrix, lambda L, F, x: x + x[0]),
    "mul column": (matrix, lambda L, F, x: x * x[:, :1]),
    "sum": (vector, lambda L, F, x: x.sum()),
    "sum of columns": (matrix, lambda L, F, x: x.sum(0)),
    "mean of rows": (matrix, lambda L, F, x: x.mean(1)),
    "var": (matrix, lambda L, F, x: x.var(1)),
    "amax": (matrix, lambda L, F, x: x.amax(1)),
    "max": (matrix, lambda L, F, x: x.max(1).values),
    "norm": (vector, lambda L, F, x: x.norm()),
    "logsumexp": (matrix, lambda L, F, x: x.logsumexp(1)),
    "cumsum": (matrix, lambda L, F, x: x.cumsum(1)),
    "sort": (matrix, lambda L, F, x: x.sort(1).values),
    "softmax": (matrix, lambda L, F, x: F.softmax(x, 1)),
    "log_softmax": (matrix, lambda L, F, x: F.log_softmax(x, 1)),
    "cross_entropy": (matrix, lambda L, F, x: F.cross_entropy(x, L.arange(x.shape[0]) % x.shape[1])),
    "mse_loss": (vector, lambda L, F, x: F.mse_loss(x, x.detach() + 1)),
    "layer_norm": (matrix, lambda L, F, x: F.layer_norm(x, x.shape[1:])),
    "rms_norm": (matrix, lambda L, F, x: F.rms_norm(x, x.shape[1:])),
    "group_norm": (image, lambda L, F, x: F.group_norm(x, 2)),
    "batch_norm": (image, lambda L, F, x: F.batch_norm(x, None, None, training=True)),
    "embedding": (matrix, lambda L, F, x: F.embedding(L.arange(x.shape[0] * 2) % x.shape[0], x)),
    "matmul": (matrix, lambda L, F, x: x @ x.mT),
    "linear": (matrix, lambda L, F, x: F.linear(x, x[:64])),
    "attention": (heads, lambda L, F, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "conv2d": (image, convolved),
    "conv1d": (signal, lambda L, F, x: F.conv1d(x, x[:1, :, :3] * 1.0, padding=1)),
    "max_pool2d": (image, lambda L, F, x: F.max_pool2d(x, 2)),
    "avg_pool2d": (image, lambda L, F, x: F.avg_pool2d(x, 2)),
    "cat": (matrix, lambda L, F, x: L.cat([x, x], 1)),
    "transposed copy": (matrix, lambda L, F, x: x.mT.contiguous()),
}


def work(lib, name, size, back):
    """A function without arguments that does the operation."""
    make, f = OPERATIONS[name]
    F = lib.nn.functional
    x = make(lib, np.random.default_rng(0), size)
    if not back:

        def forward():
            with lib.no_grad():
                f(lib, F, x)

        return forward
    x.requires_grad_()

    def both():
        x.grad = None
        y = f(lib, F, x)
        y.backward(lib.ones_like(y))

    return both


def timed(f, seconds, clock):
    """The least and the median time of one call, in microseconds, of calls that take so long together."""
    f()
    begin = time.perf_counter()
    f()
    number = max(1, min(200, int(2e-3 / max(time.perf_counter() - begin, 1e-7))))
    found, end = [], time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        begin = clock()
        for _ in range(number):
            f()
        found.append((clock() - begin) / number * 1e6)
    return min(found), statistics.median(found)


def step(lib, name):
    """A function without arguments that makes one training step."""
    if name != "chain":
        return workloads.prepared(name, lib, None)[0]
    x = lib.from_numpy(np.random.default_rng(0).standard_normal(1 << 22).astype("f")).requires_grad_()

    def chain():
        x.grad = None
        ((x * 1.5 + 1).tanh() * x).sigmoid().sum().backward()

    return chain


def steps(names, args, clock):
    """Milliseconds of each workload's step and their ratio."""
    for name in names:
        works = [step(lib, name) for lib in (gradlab, torch)]
        times = [[timed(f, 10 * args.seconds, clock) for f in works] for _ in range(args.rounds)]
        of = [(min if args.cpu else statistics.median)(pair[i][0 if args.cpu else 1] for pair in times) / 1e3 for i in (0, 1)]
        print(f"{name:12}{of[0]:10.2f}{of[1]:10.2f}{of[0] / of[1]:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", action="store_true", help="training steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--cpu", action="store_true", help="compare the least processor times")
    args = parser.parse_args()
    gradlab.set_num_threads(args.threads)
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu else time.perf_counter
    print(f"{len(ready.state().libraries)} kernels lie ready; {args.threads} threads; {'least processor' if args.cpu else 'median'} times")
    if args.steps:
        return steps(args.names or [*workloads.NAMES, "chain"], args, clock)
    columns = [f"{size}{' + back' * back}" for back in (False, True) for size in args.sizes]
    print(f"{'':18}" + "".join(f"{c:>16}" for c in columns))
    every = []
    for name in args.names or OPERATIONS:
        row = []
        for back in (False, True):
            for size in (SIZES[name] for name in args.sizes):
                works = [work(lib, name, size, back) for lib in (gradlab, torch)]
                times = [[timed(f, args.seconds, clock) for f in works] for _ in range(args.rounds)]
                if args.cpu:
                    row.append(min(a[0] for a, _ in times) / max(min(b[0] for _, b in times), 1e-3))
                else:
                    row.append(statistics.median(a[1] for a, _ in times) / statistics.median(b[1] for _, b in times))
        every.append(row)
        print(f"{name:18}" + "".join(f"{r:16.2f}" for r in row), flush=True)
    print(f"{'median':18}" + "".join(f"{statistics.median(column):16.2f}" for column in zip(*every)))
    print(f"{'above 1.0':18}" + "".join(f"{sum(r > 1 for r in column):16d}" for column in zip(*every)))


if __name__ == "__main__":
    main()
