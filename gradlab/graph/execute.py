"""Running a straight line of calls on NumPy arrays: buffers planned once, views taken once, results written where they belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab import dispatch
from gradlab.backends.cpu import immediate
from gradlab.device import CPU, Device
from gradlab.dtype import HALF
from gradlab.graph.ir import Call, Value
from gradlab.graph.memory import Moment, arena, plan_buffers
from gradlab.spec import count


class Line(NamedTuple):
    """What an executable is made of.

    calls    the rows, in order
    inputs   values whose arrays come with each run
    fixed    values whose arrays are known: state, constants, the small buffers for random states and hyper-parameters
    outputs  values that leave the program, in arrays of their own
    updates  (value of an input or of state, value that is written into its memory after all calls)
    device   where all of it lies
    lasting  positions of outputs whose arrays are mostly the same ones in each run
    """

    calls: Sequence[Call]
    inputs: Sequence[Value]
    fixed: dict[Value, Any]
    outputs: Sequence[Value]
    updates: Sequence[tuple[Value, Value]]
    device: Device = CPU
    lasting: frozenset[int] = frozenset()


class NumpyExecutable:
    """Runs a line with the rows' own NumPy functions. `run(arrays, outs)` fills the arrays `outs`, one for each output."""

    def __init__(self, line: Line) -> None:
        self.line = line
        root = roots(line)
        made = {v.id: v.spec for c in line.calls for v in c.outputs if root[v.id] == v.id and not c.op.view}
        self._outputs = [v.id for v in line.outputs]
        first: dict[int, int] = {}
        for i, number in enumerate(self._outputs):
            first.setdefault(number, i)
        # Results that a call makes are written where they leave the program; others are copied there.
        self._direct = [number in made and first[number] == i for i, number in enumerate(self._outputs)]
        direct = {n for n, d in zip(self._outputs, self._direct, strict=True) if d}
        moments = [
            Moment([root.get(x.id, x.id) for x in c.inputs if isinstance(x, Value)], [v.id for v in c.outputs]) for c in line.calls
        ]
        last = [root.get(v.id, v.id) for v in (*line.outputs, *(new for _, new in line.updates))]
        self.plan = plan_buffers(moments, {n: s for n, s in made.items() if n not in direct}, last)
        memory = arena(self.plan.size)
        self._env: dict[int, Any] = {v.id: a for v, a in line.fixed.items()}
        for n, offset in self.plan.places.items():
            size = count(made[n].shape) * made[n].dtype.itemsize
            self._env[n] = memory[offset : offset + size].view(made[n].dtype).reshape(made[n].shape)
        self._steps: list[Callable[[dict[int, Any]], None]] = []
        dynamic = {v.id for v in line.inputs} | direct
        for call in line.calls:
            if call.op.view:
                source, target = call.inputs[0].id, call.outputs[0].id
                if source not in dynamic:
                    array = call.op.cpu(self._env[source], **call.params)
                    if not array.size or np.may_share_memory(array, self._env[source]):
                        self._env[target] = array
                        continue
                dynamic.add(target)  # its source is another array in each run, or NumPy has to copy it
            self._steps.append(_step(call))

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute. Raises what a row raises; state is then as it was."""
        env = self._env.copy()
        line = self.line
        for value, array in zip(line.inputs, arrays):
            env[value.id] = array
        for number, array, direct in zip(self._outputs, outs, self._direct):
            if direct:
                env[number] = array
        for step in self._steps:
            step(env)
        for number, array, direct in zip(self._outputs, outs, self._direct):
            if not direct:
                np.copyto(array, env[number])
        # What does not lie in the arena may be state itself, which another update is about to write.
        sources = [env[new.id] if new.id in self.plan.places else np.array(env[new.id]) for _, new in line.updates]
        for (old, _), source in zip(line.updates, sources):
            np.copyto(env[old.id], source)


def roots(line: Line) -> dict[int, int]:
    """For each value that a call makes the value whose memory it lies in: itself, or what it is a view of."""
    found: dict[int, int] = {}
    for call in line.calls:
        source = call.inputs[0].id if call.op.view else None
        for v in call.outputs:
            found[v.id] = v.id if source is None else found.get(source, source)
    return found


def _step(call: Call) -> Callable[[dict[int, Any]], None]:
    """One call as a function of the environment."""
    op, params = call.op, call.params
    like = next((x for x in call.inputs if isinstance(x, Value)), None)
    dtype = like.spec.dtype if like is not None else np.dtype(np.float32)
    numbers = [immediate(x, dtype) if isinstance(x, (int, float)) else None for x in call.inputs]
    inputs = [(x.id if isinstance(x, Value) else None, number) for x, number in zip(call.inputs, numbers, strict=True)]
    outputs = [v.id for v in call.outputs]
    if op.view:
        source, target = call.inputs[0].id, outputs[0]

        def view(env: dict[int, Any]) -> None:
            env[target] = op.cpu(env[source], **params)

        return view
    if not inputs:
        params = {k: v for k, v in params.items() if k != "device"}
    half = not op.exact and any(v.spec.dtype in HALF for v in (*call.outputs, *(x for x in call.inputs if isinstance(x, Value))))
    if half or op.name == "to_device":
        backend = dispatch.backend_for(params["device"]) if "device" in params else dispatch._by_type[np.ndarray]

        def general(env: dict[int, Any]) -> None:
            result = backend.run(op, [env[n] if n is not None else x for n, x in inputs], params)
            for number, array in zip(outputs, result if op.result is not None else (result,)):
                np.copyto(env[number], array)

        return general
    cpu = op.cpu

    def run(env: dict[int, Any]) -> None:
        cpu(*[env[n] if n is not None else x for n, x in inputs], *[env[n] for n in outputs], **params)

    return run
