"""How much of the copies to a GPU lies beside the work on it: `python bench/prefetch.py`, on a machine with a GPU.

Batches of 64 MB are multiplied for about as long as a copy takes. Printed are milliseconds a batch: of copies alone, of the work alone, of
one after the other, and with `gl.utils.data.Prefetcher`; and what a profile says of the last: the share of the copies' time in which the
device worked on another batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import gradlab as gl

BATCHES, ROWS, WIDTH = 24, 4096, 4096


def work(x: gl.Tensor, weight: gl.Tensor) -> float:
    """As a training step: some products, and a number that the host waits for."""
    for _ in range(4):
        x = (x @ weight).tanh()
    return float(x.sum().item())


def milliseconds(batches: Callable[[], Iterable[Any]], run: Callable[[Any], Any]) -> float:
    best = float("inf")
    for _ in range(3):
        gl.cuda.synchronize()
        begin = time.perf_counter()
        for (x,) in batches():
            run(x)
        gl.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best / BATCHES * 1e3


def hidden(events: Iterable[Any]) -> float:
    """The share of the copies' time on the device in which something else ran there."""
    found = [e for e in events if e.stream is not None]
    spans = [(e.device_start, e.device_start + e.device) for e in found if e.name != "to_device"]
    copies = [(e.device_start, e.device_start + e.device) for e in found if e.name == "to_device"]
    beside = sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in spans)
    return beside / max(sum(b - a for a, b in copies), 1e-9)


def main() -> None:
    if not gl.cuda.is_available():
        raise SystemExit("bench/prefetch.py: there is no GPU here")
    loader = gl.utils.data.DataLoader(gl.utils.data.TensorDataset(gl.rand(BATCHES * ROWS, WIDTH)), ROWS)
    weight = gl.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5
    ahead = gl.utils.data.Prefetcher(loader, "cuda")
    there = [(x.cuda(),) for (x,) in loader][:1] * BATCHES
    print(f"copies {milliseconds(lambda: loader, lambda x: x.cuda()):.2f} ms")
    print(f"work {milliseconds(lambda: there, lambda x: work(x, weight)):.2f} ms")
    print(f"one after the other {milliseconds(lambda: loader, lambda x: work(x.cuda(), weight)):.2f} ms")
    print(f"prefetched {milliseconds(lambda: ahead, lambda x: work(x, weight)):.2f} ms")
    with gl.profiler.profile() as profile:
        for (x,) in ahead:
            work(x, weight)
    print(f"of the copies' time {hidden(profile.events()):.0%} lies beside work")


if __name__ == "__main__":
    main()
