"""Products, convolutions and attention beside NVIDIA's libraries, as PyTorch calls them (cuBLASLt, cuDNN, FlashAttention), and copies.

    python bench/contact/beside.py [--smoke]

Device times by events, medians, in µs; a line of JSON behind an @ for each: `ratio` is ours to the best of theirs. Convolutions are
ResNet-20's, theirs also channels-last. Without PyTorch, or on the emulated GPU, ours alone.
"""

import importlib
import importlib.util
import json
import statistics
import sys

import gradlab as gl

SMOKE = "--smoke" in sys.argv
BATCHES, CALLS = (1, 1) if SMOKE else (7, 20)


def microseconds(m, run):
    """Median of batches of calls, by the engine's own events."""
    for _ in range(1 if SMOKE else 3):
        run()
    m.cuda.synchronize()
    times = []
    for _ in range(BATCHES):
        start, end = m.cuda.Event(enable_timing=True), m.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(CALLS):
            run()
        end.record()
        m.cuda.synchronize()
        times.append(start.elapsed_time(end) / CALLS * 1e3)
    return statistics.median(times)


def made(m, shape, dtype):
    """Random numbers; the same work for both."""
    return m.randn(*shape, device="cuda").to(getattr(m, dtype))


def products(m, dtype):
    sizes = [(8, 8, 8)] if SMOKE else [(128, 784, 256), (2048, 128, 512), (1024, 1024, 1024), (4096, 4096, 4096)]
    for rows, depth, columns in sizes:
        a, b = made(m, (rows, depth), dtype), made(m, (depth, columns), dtype)
        yield f"product {rows}x{depth}x{columns}", [lambda a=a, b=b: a @ b]


def convolutions(m, dtype):
    layers = [(64, 3, 32, 16, 1), (64, 16, 32, 16, 1), (64, 16, 32, 32, 2), (64, 32, 16, 32, 1), (64, 64, 8, 64, 1)]
    if SMOKE:
        layers = [(2, 3, 8, 16, 1)]
    for n, c, side, out, stride in layers:
        x, w = made(m, (n, c, side, side), dtype), made(m, (out, c, 3, 3), dtype)

        def run(x=x, w=w, stride=stride):
            return m.nn.functional.conv2d(x, w, None, stride, 1)

        runs = [run]
        if m is not gl:
            turned = [a.to(memory_format=m.channels_last) for a in (x, w)]
            runs.append(lambda turned=turned, run=run: run(*turned))
        yield f"conv {c}->{out} {side}x{side} /{stride}", runs


def attentions(m, dtype):
    for b, h, t, d in [(1, 1, 16, 16)] if SMOKE else [(16, 4, 128, 32), (8, 12, 1024, 64)]:
        q, k, v = (made(m, (b, h, t, d), dtype).requires_grad_() for _ in range(3))
        g = made(m, (b, h, t, d), dtype)

        def run(q=q, k=k, v=v):
            return m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        yield f"attention {b}x{h}x{t}x{d}", [run]
        yield f"attention with backward {b}x{h}x{t}x{d}", [lambda run=run, g=g: run().backward(g)]


def main():
    engines = [gl]
    if not SMOKE and importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            torch.backends.cudnn.benchmark = True
            engines.append(torch)
    for precision in ("float32",) if SMOKE else ("float32", "tf32", "bfloat16"):
        dtype = "bfloat16" if precision == "bfloat16" else "float32"
        gl.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        if len(engines) > 1:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        for family in (products, convolutions, attentions):
            pairs = zip(*(family(m, dtype) for m in engines), strict=True)
            for found in pairs:
                times = [min(microseconds(m, run) for run in runs) for m, (_, runs) in zip(engines, found, strict=True)]
                line = {"what": found[0][0], "precision": precision, "us": round(times[0], 2)}
                if len(times) > 1:
                    line |= {"theirs_us": round(times[1], 2), "ratio": round(times[1] / times[0], 2)}
                print("@" + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
