"""Does a model compute the same on the CPU and on a GPU? `parity` runs it on both and names the first operation that differs.

Both runs start from the same weights, inputs and random state. Every operation's result, forward and backward, is compared in the order in
which they ran; an error is given in units of the tolerance that its dtype allows, so 1 is the limit.
"""

from __future__ import annotations

import copy
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradlab import call_site, dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.backends.native import ready
from gradlab.backends.native.thresholds import kernels_for
from gradlab.dispatch import DevicesDiffer
from gradlab.dtype import COMPLEX, FLOATING
from gradlab.nn import Module
from gradlab.op import Op
from gradlab.optim import SGD
from gradlab.quiet import quietly
from gradlab.tensor.generator import default_generator

# Relative to the value and to the root mean square of its array: a few hundred roundings, as sums of that many terms make.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}

NATIVE = "native"  # in place of a device: kernels of the CPU's, compared with NumPy


@dataclass
class Difference:
    """One array that was compared."""

    what: str  # the operation, "gradient of weight", …
    units: float  # largest error in units of the tolerance; inf for different shapes, dtypes, integers or NaN
    shape: tuple[int, ...]
    dtype: str
    place: str = ""  # the user's line

    def __str__(self) -> str:
        where = f"\n    {self.place}" if self.place else ""
        return f"{self.what}: {self.units:.3g} × tolerance ({self.dtype}, shape {self.shape}){where}"


@dataclass
class Report:
    """What `parity` found. True if everything agrees; printing it names the first operation that does not, and the largest errors."""

    device: str
    operations: int = 0
    first: Difference | None = None
    results: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every operation and every result is within the tolerance."""
        return self.first is None and all(r.units <= 1 for r in self.results)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"parity of cpu and {self.device}: {self.operations} operations, {len(self.results)} results"]
        if self.first is not None:
            lines.append(f"  first operation that differs: {self.first}")
        worst = sorted(self.results, key=lambda r: -r.units)[:5]
        lines += [f"  {r}" for r in worst if r.units > 1] or [f"  largest error: {worst[0]}" if worst else "  nothing to compare"]
        lines.append("  " + ("agrees" if self.ok else "DIFFERS"))
        return "\n".join(lines)


def host(array: Any) -> np.ndarray[Any, Any]:
    """Any backend's array as a NumPy copy."""
    return np.array(dispatch.backend_of(array).to_numpy(array))


def units(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], noise: float = 0.0) -> float:
    """The largest error in units of the dtype's tolerance. noise: the size that what cancelled in the result had, see `_noise`."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if got.size == 0:
        return 0.0
    if got.dtype in COMPLEX:  # real and imaginary parts, each in units of both together
        got, want = (np.stack([x.real, x.imag]) for x in (got, want))
    if got.dtype not in FLOATING:
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.isfinite(b[~same]).all() or not np.isfinite(a[~same]).all():
        return float("inf")
    finite = b[np.isfinite(b)]
    scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
    limit = TOLERANCE[got.dtype.name] * (np.abs(b) + scale + noise) + 1e-30
    return float(np.max(np.where(same, 0.0, np.abs(quietly(np.subtract, a, b)) / limit)))


@dataclass
class _Step:
    op: str
    results: list[np.ndarray[Any, Any]]
    place: str
    noise: float = 0.0


def _noise(op: str, inputs: list[Any], result: np.ndarray[Any, Any]) -> float:
    """How large a sum is whose terms have random signs. A sum may be much smaller, such as a bias's gradient in front of a batch norm,
    which is 0 but for rounding; rounding is relative to this size then.
    """
    if op not in ("sum", "mean") or not result.size:
        return 0.0
    terms = host(getattr(inputs[0], "_array", inputs[0]))
    terms = np.abs(terms).astype(np.float64)
    number = terms.size / result.size
    size = float(np.sqrt(np.mean(terms * terms) * number)) if terms.size and np.isfinite(terms).all() else 0.0
    return size / number if op == "mean" else size


class _Recorder:
    """Observes one run: keeps its results, or compares with those of a run before."""

    def __init__(self, reference: list[_Step] | None, report: Report | None) -> None:
        self.steps: list[_Step] = []
        self.reference, self.report = reference, report
        self.count = 0
        self.part = "the model"  # what runs
        self.node: Any = None  # in backward, the node being differentiated; the walk sets it

    def __call__(self, op: Op, inputs: list[Any], result: Any, params: Any) -> None:
        if not inputs or op.view or op.name == "clone":  # a device may fill and copy where the other need not; nothing is computed
            return
        results = [host(a) for a in ((result,) if op.result is None else result)]
        place = self.node.forward_position if self.node is not None else call_site.locate(*call_site.caller(), current().scope)
        step = _Step(op.name, results, str(place) if place is not None else "")
        if self.reference is None:
            step.noise = _noise(op.name, inputs, results[0])
            self.steps.append(step)
        elif self.report is not None and self.report.first is None:
            self._compare(step)
        self.count += 1

    def _compare(self, step: _Step) -> None:
        assert self.reference is not None and self.report is not None
        if self.count >= len(self.reference) or self.reference[self.count].op != step.op:
            other = self.reference[self.count].op if self.count < len(self.reference) else "nothing"
            self.report.first = Difference(f"operation {self.count}: {step.op} where the cpu ran {other}", float("inf"), (), "", step.place)
            return
        for got, want in zip(step.results, self.reference[self.count].results, strict=True):
            error = units(got, want, self.reference[self.count].noise)
            if error > 1:
                self.report.first = Difference(f"operation {self.count}: {step.op}", error, got.shape, got.dtype.name, step.place)
                return


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Differentiable):
        twin = value.detach().to(device)  # type: ignore[attr-defined]
        return twin.requires_grad_(True) if value.requires_grad else twin  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(v, device) for v in value)
    if isinstance(value, dict):
        return {k: _moved(v, device) for k, v in value.items()}
    return value


def _tensors(value: Any, name: str = "result") -> list[tuple[str, Any]]:
    if isinstance(value, Differentiable):
        return [(name, value)]
    if isinstance(value, (list, tuple)):
        return [t for i, v in enumerate(value) for t in _tensors(v, f"{name}[{i}]")]
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in _tensors(v, f"{name}[{k!r}]")]
    return []


def _run(function: Any, inputs: Sequence[Any], loss: Any, steps: int, lr: float, recorder: _Recorder) -> list[tuple[str, Any]]:
    """One run: `steps` training steps, or one forward and backward where there are no parameters."""
    parameters = list(function.named_parameters()) if isinstance(function, Module) else []
    optimizer = SGD([p for _, p in parameters if p.requires_grad], lr=lr) if parameters else None
    found: list[tuple[str, Any]] = []
    token = enter(current().replace(observer=recorder))
    try:
        for step in range(max(steps, 1)):
            recorder.part = "the model"
            output = function(*inputs)
            recorder.part = "the loss"
            total = loss(output) if loss is not None else _weighted(output)
            found += [(f"step {step}: {name}", host(t._array)) for name, t in _tensors(output)]
            if total is None or not total.requires_grad:
                break
            if optimizer is not None:
                optimizer.zero_grad()
            total.backward()
            found += [(f"step {step}: gradient of {name}", host(p.grad._array)) for name, p in parameters if p.grad is not None]
            if step == 0:
                found += [(f"gradient of {name}", host(t.grad._array)) for name, t in _tensors(list(inputs), "input") if t.grad is not None]
            for _, t in _tensors(list(inputs)):
                t.grad = None
            if optimizer is None:
                break
            optimizer.step()
    finally:
        leave(token)
    found += [(f"{name} after {steps} steps", host(p._array)) for name, p in parameters]
    return found


def _weighted(output: Any) -> Any:
    """A scalar of all floating point outputs: their sum, each element weighted by a fixed irregular number."""
    total = None
    for _, t in _tensors(output):
        if t.is_floating_point():
            weights = np.cos(np.arange(t.numel(), dtype=np.float64)).reshape(t.shape) + 0.5
            part = (t * t.new_tensor(weights)).sum()
            total = part if total is None else total + part
    return total


def _left_behind(error: DevicesDiffer, part: str, device: str) -> RuntimeError:
    """One line on a tensor that was not moved: where, which, and how to have it where the others are."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    lines = [(file, line) for file, line in frames if not call_site.inside[file]]
    where = f" ({os.path.basename(lines[-1][0])}:{lines[-1][1]})" if lines else ""
    left = " and ".join(name for name, place in error.places if place.partition(":")[0] != device.partition(":")[0])
    advice = (
        "move the target to the output's device, target.to(out.device)"
        if part == "the loss"
        else "keep it in a buffer (self.register_buffer), or make it on the input's device (device=x.device)"
    )
    return RuntimeError(f"parity: {part}{where} leaves `{left}` of {error.op} on another device than {device}: {advice}")


def parity(
    model: Any, inputs: Any, loss: Callable[[Any], Any] | None = None, steps: int = 3, *, device: str = "cuda", lr: float = 0.01
) -> Report:
    """Run `model` (an nn.Module or a function of tensors) on the CPU and on `device` and compare everything.

    inputs: a tensor, or a sequence of the positional arguments, on the CPU; those that require grad have their gradients compared.
    loss: makes a scalar of the model's output; without it a fixed weighted sum of the outputs is used.
    steps: training steps by plain SGD with learning rate `lr`, for a module with parameters; their gradients and the weights at the end are
    compared. RuntimeError, in one line, where a tensor was left on the CPU: a loss moves its target, `target.to(out.device)`.
    device="native": the CPU's own kernels (`gradlab warm`) beside NumPy, as if they were a device; RuntimeError where they are not ready.
    Returns a Report: true if all agrees; `print(report)` says what differs first, and where. The model itself is not changed.
    """
    if device == NATIVE and not ready.state().ready:
        raise RuntimeError(f"parity: the CPU's kernels for eager code cannot be compared with NumPy: {ready.state().why}")
    arguments = [inputs] if isinstance(inputs, Differentiable) else list(inputs)
    state = default_generator.get_state()
    report = Report(device)
    runs = []
    reference: list[_Step] | None = None
    try:
        for place in ("cpu", device):
            default_generator.set_state(state)
            recorder = _Recorder(reference, report)
            where = "cpu" if place == NATIVE else place
            function = copy.deepcopy(model).to(where) if isinstance(model, Module) else model
            with kernels_for(place == NATIVE) if device == NATIVE else nullcontext():
                try:
                    runs.append(_run(function, _moved(arguments, where), loss, steps, lr, recorder))
                except DevicesDiffer as error:
                    raise _left_behind(error, recorder.part, place) from None
            reference, report.operations = recorder.steps or reference, recorder.count
    finally:
        default_generator.set_state(state)
    noise = {step.results[0].tobytes(): step.noise for step in reference or () if step.noise}  # a gradient may be such a sum
    for (name, want), (_, got) in zip(*runs, strict=True):
        report.results.append(Difference(name, units(got, want, noise.get(want.tobytes(), 0.0)), got.shape, got.dtype.name))
    return report
