"""A training step on trial: the memory it takes at most and its time, with the model as it was afterwards."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradlab import cuda
from gradlab.autograd.mode import no_grad
from gradlab.device import Device
from gradlab.nn.module import Module
from gradlab.tensor import Tensor
from gradlab.tensor.generator import get_rng_state, set_rng_state
from gradlab.utils.memory_budget.survey import memory_of


def synchronizing(device: Device) -> Callable[[], None]:
    """What waits for the device's work."""
    return (lambda: cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


@contextmanager
def undisturbed(model: Module) -> Iterator[int]:
    """Within the block the parameters have no gradients. Afterwards gradients, buffers and the random state are as before. Gives the bytes
    of what is put aside."""
    parameters, buffers = list(model.parameters()), list(model.buffers())
    gradients = [p.grad for p in parameters]
    before = [buffer.detach().cpu().clone() for buffer in buffers]
    random = get_rng_state()
    for p in parameters:
        p.grad = None
    try:
        yield sum(memory_of(gradients).values())
    finally:
        with no_grad():
            for p, gradient in zip(parameters, gradients, strict=True):
                p.grad = gradient
            for buffer, values in zip(buffers, before, strict=True):
                buffer.copy_(values)
        set_rng_state(random)


def measured(step: Callable[[], Any], model: Module, resident: int, device: Device) -> tuple[int, float]:
    """The most bytes that tensors hold on the device in a step, and its seconds. resident: bytes on the host that are there before.

    On the host: what Python and NumPy take while the step runs (by `tracemalloc`), and what was there. On a GPU: what its pool counts,
    tensors of other models among it.
    """
    synchronize = synchronizing(device)
    with undisturbed(model) as aside:
        if device.type == "cuda":
            synchronize()
            gc.collect()
            cuda.reset_peak_memory_stats(device)
            step()
            synchronize()
            peak = cuda.max_memory_allocated(device) - aside
        else:
            peak = resident + _traced(step)
    with undisturbed(model):  # another time: counting takes time
        begun = time.perf_counter()
        step()
        synchronize()
        seconds = time.perf_counter() - begun
    return peak, seconds


def _traced(step: Callable[[], Any]) -> int:
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start(1)
    try:
        gc.collect()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()


def second_per_byte(device: Device, like: Tensor) -> float:
    """What moving a byte from the device to the host and back takes."""
    synchronize = synchronizing(device)
    sample = like.new_zeros((min(like.numel(), 1 << 20),))  # the device may be nearly full
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        sample.cpu().to(device)
        synchronize()
        best = min(best, time.perf_counter() - begun)
    return best / (sample.numel() * sample.element_size())
