"""Kernels that `gl.compile` writes for whole programs, for checks without a GPU (`gradlab.testing.kernels`).

A fixed set of small training steps stands for what users compile: their fused loops and mega-kernels are taken from the same code that
writes them for a device, from traces made on the CPU. Nothing is run but the eager steps before the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gradlab import dispatch, nn, optim
from gradlab.autograd.mode import current
from gradlab.backends.cuda.catalogue import LEAST_ARCHITECTURE, Program
from gradlab.backends.cuda.compiler import inlined, program
from gradlab.backends.cuda.launch.optim import FORMS
from gradlab.backends.native.lowerings.loops import Loop
from gradlab.dtype import DType, bfloat16, float16, float32
from gradlab.graph.calls.runner import Runner
from gradlab.graph.executables.cuda import epilogues, loops, mega
from gradlab.graph.executables.cuda.executable import SMALL
from gradlab.graph.executables.cuda.ordering import updates_last
from gradlab.graph.executables.native.planning import Arranged, arrange
from gradlab.graph.ir.linear import Line
from gradlab.graph.staging.stage import stage
from gradlab.spec import count
from gradlab.tensor import Tensor
from gradlab.tensor.random import randint, randn

F = nn.functional
Criterion = Callable[[Any, Any], Any]


class Case(NamedTuple):
    """A training step: its model, optimizer and criterion, the shape of the input, and a shape and number of classes for the target."""

    name: str
    model: Callable[[], Any]
    optimizer: Callable[[Any], Any]
    criterion: Criterion
    shape: tuple[int, ...]
    target: tuple[int, ...]
    classes: int = 0


def _mlp() -> Any:
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def _classifier() -> Any:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Linear(16, 10))


def _block() -> Any:
    return nn.TransformerEncoderLayer(64, 4, 256, activation="gelu", batch_first=True, norm_first=True)


def _images() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.SiLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip


def _sgd(parameters: Any) -> Any:
    return optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def _adamw(parameters: Any) -> Any:
    return optim.AdamW(parameters, lr=0.01)


CASES = (
    Case("MLP SGD", _mlp, lambda p: optim.SGD(p, lr=0.1), F.mse_loss, (32, 2), (32, 1)),
    Case("classifier AdamW", _classifier, _adamw, F.cross_entropy, (24, 8), (24,), 10),
    Case("transformer block", _block, _adamw, F.smooth_l1_loss, (8, 64, 64), (8, 64, 64)),
    Case("images", _images, _sgd, F.cross_entropy, (16, 3, 16, 16), (16,), 10),
)
DTYPES = (float32, float16, bfloat16)


def line_of(case: Case, dtype: DType) -> Line:
    """The calls of one training step."""
    model = case.model().to(dtype)
    update = case.optimizer(model.parameters())
    x: Tensor = randn(case.shape, dtype=dtype)
    y: Tensor = randint(0, case.classes, case.target) if case.classes else randn(case.target, dtype=dtype)

    def step(x: Any, y: Any) -> Any:
        loss = case.criterion(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    step(x, y)  # makes the optimizer's state and the gradients
    step(x, y)
    found: list[Line] = []

    def keep(line: Line) -> Any:
        found.append(line)

    Runner(stage(step, (x, y), {}, current()), keep)
    return found[0]


def kernels_of(line: Line) -> Iterator[tuple[str, str, str]]:
    """The label, name and text of each kernel that is written for a line on a GPU."""
    ends = {v.id for v in line.outputs} | {new.id for _, new in line.updates}
    backend: Any = dispatch.backend_for(line.device)
    fixed, calls = dict(line.fixed), []
    for call in updates_last(line.calls, frozenset(FORMS)):
        if call.op.name == "full" and call.outputs[0].id not in ends and count(call.outputs[0].spec.shape) <= SMALL:
            fixed[call.outputs[0]] = backend.run(call.op, [], call.params)
        else:
            calls.append(call)
    line = line._replace(fixed=fixed, calls=epilogues.joined(line, calls))
    arranged = arrange(line, gather=mega.gathered)
    arrays = _arrays(line, arranged)
    for unit in arranged.units:
        if unit.parts:
            name, text, _ = mega.kernel_of(unit, arranged, lambda number: number, lambda call: 0)
            yield f"{len(unit.parts)} stages", name, text
        elif unit.loop:
            stored = [v for c in unit.calls for v in c.outputs if v.id in arrays]
            loop = Loop(unit.calls, stored)
            made = loops.loop_kernel(loop, [arrays[v.id] for v in loop.loaded], [arrays[v.id] for v in stored], lambda a: a.ctypes.data)
            if stored and made is not None:
                yield "loop", made.name, made.text


def _arrays(line: Line, arranged: Arranged) -> dict[int, Any]:
    """An array for each value that has memory; what it holds does not matter."""
    values = [*line.inputs, *line.outputs]
    bases = [np.zeros(max(arranged.plan.size, 1), np.uint8), None, *(np.zeros(v.spec.shape, v.spec.dtype) for v in values), *arranged.fixed]
    return {number: place.array(bases[place.base]) for number, place in arranged.places.items()}


def generated_programs() -> Iterator[Program]:
    """The mega-kernels of each case and dtype, and its fused loops, as programs."""
    for case in CASES:
        for dtype in DTYPES:
            found: dict[str, dict[str, str]] = {"stages": {}, "loops": {}}
            for label, name, text in kernels_of(line_of(case, dtype)):
                found["loops" if label == "loop" else "stages"][name] = text
            for (kind, texts), header in zip(found.items(), ("stages.cuh", "elementwise.cuh"), strict=True):
                if texts:
                    source = inlined(program(header, *(texts[name] for name in sorted(texts))))
                    names = [f"gradlab::{name}" for name in sorted(texts)]
                    yield Program(f"compiled {case.name} {str(dtype).removeprefix('gradlab.')} {kind}", source, names, LEAST_ARCHITECTURE)
