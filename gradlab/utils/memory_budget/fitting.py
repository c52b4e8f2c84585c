"""`fit_memory`: a model's training step brought within a number of bytes, and what that costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradlab.autograd.mode import current
from gradlab.backends.cuda.driver import OutOfMemoryError, readable
from gradlab.device import Device
from gradlab.nn.module import Module
from gradlab.optim.offload import AT_ONCE, offload_state
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor import Tensor
from gradlab.utils.memory_budget.applying import Planned, apply
from gradlab.utils.memory_budget.choosing import Chosen, choose
from gradlab.utils.memory_budget.survey import Part, memory_of, survey, tensors_in, units
from gradlab.utils.memory_budget.trial import measured, second_per_byte, synchronizing, undisturbed

TRIES = 8
SLACK = 0.05  # of the budget: a plan that leaves more is tried with less
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


@dataclass
class MemoryPlan:
    """What `fit_memory` chose. Bytes and seconds are of one training step: forward, backward and what the optimizer holds."""

    budget: int
    device: str = ""
    peak: int | None = None  # measured
    peak_without: int | None = None  # without the plan: by what the parts keep
    seconds: float | None = None  # measured, without the optimizer's update
    extra_seconds: float = 0.0  # how much of them is owed to the plan: by the parts' forward times, and a byte's way to the host and back
    checkpointed: list[str] = field(default_factory=list)  # modules that are computed again in backward
    offloaded: list[str] = field(default_factory=list)  # modules whose kept values wait on the host
    optimizer_offloaded: bool = False
    _applied: list[Planned] = field(default_factory=list, repr=False)
    _waiting: Any = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        """Whether it was chosen yet: without example inputs it is at the model's first call in training."""
        return self.peak is not None

    def remove(self) -> None:
        """Let the model be what it was. An optimizer's state stays on the host."""
        for planned in self._applied:
            planned.remove()
        if self._waiting is not None:
            self._waiting.remove()
        self._applied, self._waiting = [], None

    def __str__(self) -> str:
        if self.peak is None or self.peak_without is None or self.seconds is None:
            return f"budget {readable(self.budget)}: chosen at the model's first call in training"
        plain = max(self.seconds - self.extra_seconds, 1e-9)
        lines = [
            f"budget          {readable(self.budget)} on {self.device}",
            f"without a plan  {readable(self.peak_without)} (predicted)",
            f"with it         {readable(self.peak)} (measured)",
            f"a step          {self.seconds * 1e3:.3g} ms (measured), {self.extra_seconds * 1e3:.3g} ms of them for the plan "
            f"(predicted: {self.extra_seconds / plain:+.0%})",
        ]
        for what, names in (("computed again", self.checkpointed), ("on the host", self.offloaded)):
            if names:
                lines.append(f"{what:<14}  {len(names)} modules: {', '.join(names[:6])}{', …' if len(names) > 6 else ''}")
        if self.optimizer_offloaded:
            lines.append("on the host     the optimizer's state")
        return "\n".join(lines)


def in_bytes(budget: Any) -> int:
    """A number of bytes, of a number or of text such as "2 GiB" or "500MB". ValueError, TypeError for others."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kmgt]?i?)b?\s*", budget.lower())
        if found is None or found[2] not in _UNITS:
            raise ValueError(f"fit_memory: {budget!r} is no number of bytes; write 2 GiB, 500MB, or a number")
        budget = float(found[1]) * _UNITS[found[2]]
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"fit_memory: budget is a number of bytes or text such as '2 GiB', not {type(budget).__name__}")
    if not budget > 0:
        raise ValueError(f"fit_memory: budget is a number of bytes above 0, not {budget}")
    return int(budget)


def fit_memory(
    model: Any, budget: Any, *inputs: Any, loss: Callable[[Any], Any] | None = None, optimizer: Any = None, **kwargs: Any
) -> MemoryPlan:
    """Bring a model's training step within `budget` bytes on its device, and say what that costs: a MemoryPlan, to be printed.

    The model is changed in place, with the same numbers as before: of some of its modules forward is computed again in backward
    (`gl.utils.checkpoint`); of some, on a GPU, what backward needs waits in the host's memory. Chosen is what takes least time, by what
    each part keeps and how long its forward takes; then a step is measured, and chosen again until it fits.

    budget: bytes, or text such as "2 GiB". It holds parameters, gradients, the inputs, what backward needs and what is computed from it
        and, if an optimizer is given, its state. On a GPU it is all that tensors hold there; on the host it is this step's.
    inputs, kwargs: what the model is called with in training, of the size that is to fit. Without them the plan is made at the first call
        in training (`plan.ready`).
    loss: from the model's output to the number that is differentiated; a loss that keeps a second copy of the output unless given.
    optimizer: its state is counted, and moved to the host (`gl.optim.offload_state`) where that is cheaper or else does not fit.

    Gradients, buffers and the random state are as they were afterwards. A model without submodules has nothing to choose from on the CPU.
    Raises MemoryError, with the model as it was, where the least that a step takes is more than the budget.

    >>> import gradlab as gl
    >>> model = gl.nn.Sequential(*[gl.nn.Sequential(gl.nn.Linear(64, 64), gl.nn.GELU()) for _ in range(16)])
    >>> plan = gl.utils.fit_memory(model, "4 MiB", gl.ones(512, 64))
    >>> plan.peak <= plan.budget < plan.peak_without, len(plan.checkpointed) > 0
    (True, True)
    """
    if not isinstance(model, Module):
        raise TypeError(f"fit_memory: expected an nn.Module, not {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f"fit_memory: expected an optimizer, not {type(optimizer).__name__}")
    if any(isinstance(module.__dict__.get("forward"), Planned) for module in model.modules()):
        raise RuntimeError("fit_memory: this model has a plan already; call remove() of that one first")
    plan = MemoryPlan(in_bytes(budget))
    if inputs or kwargs:
        _fit(plan, model, inputs, kwargs, loss, optimizer)
        return plan

    def first(module: Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        if module.training and current().recording and current().tracer is None:
            plan._waiting.remove()
            plan._waiting = None
            _fit(plan, module, args, given, loss, optimizer)

    plan._waiting = model.register_forward_pre_hook(first, with_kwargs=True)
    return plan


def _stand_in(output: Any) -> Any:
    """A loss that keeps as much as the usual ones: a function of the output."""
    return sum(x.tanh().sum() for x in tensors_in(output) if x.is_floating_point() and x.requires_grad)


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of an optimizer's state on its parameters' devices, there or still to be made: by what a step gives a small parameter."""
    total = 0
    for group in optimizer.param_groups:
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        ratios: dict[int, float] = {}
        for p in group["params"]:
            if not p.requires_grad:
                continue
            if optimizer.state.get(p):
                total += sum(v.numel() * v.element_size() for v in tensors_in(dict(optimizer.state[p])) if v.device == p.device)
                continue
            if p.ndim not in ratios:
                sample = p.detach().new_zeros([min(size, 4) for size in p.shape]).requires_grad_()
                sample.grad = sample.detach() + 1
                try:
                    other = object.__new__(type(optimizer))
                    other.__dict__.update({**type(optimizer).__new__(type(optimizer)).__dict__, "defaults": optimizer.defaults})
                    Optimizer.__init__(other, [{"params": [sample], **options}], optimizer.defaults)
                    other.step()
                    size = sum(v.numel() * v.element_size() for v in tensors_in(dict(other.state[sample])) if v.shape)
                except Exception:  # a step of another kind: as much as most keep
                    size = 2 * sample.numel() * sample.element_size()
                ratios[p.ndim] = size / max(sample.numel() * sample.element_size(), 1)
            total += int(ratios[p.ndim] * p.numel() * p.element_size())
    return total


def _fit(plan: MemoryPlan, model: Module, inputs: Any, kwargs: Any, loss: Any, optimizer: Any) -> None:
    parameters = list(model.parameters())
    tensors = [*parameters, *model.buffers(), *tensors_in(inputs, kwargs)]
    device = next((x.device for x in tensors), Device("cpu"))
    synchronize = synchronizing(device)
    graded = sum(memory_of(p for p in parameters if p.requires_grad).values())
    held = sum(size for x in {id(x): x for x in tensors}.values() if x.device == device for size in memory_of([x]).values())
    state = 0 if optimizer is None or optimizer._offload is not None else state_bytes(optimizer)
    there = 0 if optimizer is None else sum(memory_of(v for v in tensors_in(dict(optimizer.state)) if v.device == device).values())
    gradients = [x.grad for x in tensors_in(inputs, kwargs)]

    def forward() -> Any:
        output = model(*inputs, **kwargs)
        return _stand_in(output) if loss is None else loss(output)

    def step() -> None:
        value = forward()
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise ValueError("fit_memory: nothing that the model gives requires a gradient; give loss=, or let parameters require one")
        value.backward()

    def trial() -> tuple[float, float]:
        """Bytes and seconds; with the state that the optimizer has still to make."""
        try:
            size, seconds = measured(step, model, held, device)
        except OutOfMemoryError:
            return float("inf"), 0.0
        finally:
            for x, gradient in zip(tensors_in(inputs, kwargs), gradients, strict=True):
                x.grad = gradient
        size -= there if device.type == "cuda" else 0
        return (max(size, updating) if offloads else size + state), seconds

    with undisturbed(model):
        for _ in range(2):  # the first time kernels are compiled
            parts = survey(model, forward, tensors_in(inputs, kwargs), synchronize)
    levels = [units(model, parts, deeper) for deeper in (False, True)]
    per_byte = second_per_byte(device, max(parameters or tensors, key=lambda x: x.numel()).detach()) if device.type == "cuda" else None
    at_once = min(AT_ONCE, max(plan.budget // 16, 1))
    part = max([at_once, *(p.numel() * p.element_size() for p in parameters)]) / max(graded, 1)
    updating = held + graded + int(state * min(part, 1))  # bytes while parameters are updated whose state waits on the host

    def options(found: list[Part], target: float) -> list[tuple[Chosen, bool]]:
        base = held + graded + max(parts[model].kept - sum(unit.kept for unit in found), 0)
        with_state = choose(found, base + state, int(target), per_byte)
        kinds = [(with_state, False)]
        if per_byte is not None and part < 1 and state:
            moved = choose(found, base, int(target), per_byte)
            kinds.append((moved._replace(peak=max(moved.peak, updating), seconds=moved.seconds + per_byte * state), True))
        return sorted(kinds, key=lambda kind: (kind[0].peak > target, kind[0].seconds if kind[0].peak <= target else kind[0].peak))

    best: tuple[Chosen, bool, float, float] | None = None
    least, tried, target, too_much, level = float("inf"), set(), float(plan.budget), float("inf"), 0
    for _ in range(2 * TRIES):
        chosen, offloads = options(levels[level], target)[0]
        key = (offloads, tuple((run.how, run.parts[0].name, len(run.parts)) for run in chosen.runs))
        if key in tried:
            if best is not None or level:
                break
            level, target, too_much = 1, float(plan.budget), float("inf")  # nothing more to gain from large parts
            continue
        tried.add(key)
        applied = apply(chosen.runs)
        try:
            size, seconds = trial()
        finally:
            for planned in applied:
                planned.remove()
        least = min(least, size)
        if size <= plan.budget:
            if best is None or chosen.seconds < best[0].seconds:
                best = (chosen, offloads, size, seconds)
            if chosen.seconds == 0 or size > (1 - SLACK) * plan.budget:
                break
            target = min(chosen.peak + plan.budget - size, (chosen.peak + too_much) / 2)  # less of it may do
        else:
            too_much = min(too_much, chosen.peak)
            if best is not None:
                target = (best[0].peak + too_much) / 2
            else:
                over = size - plan.budget if size < float("inf") else plan.budget / 8
                target = min(target, chosen.peak) - max(over, 0.02 * plan.budget)
    if best is None:
        raise MemoryError(
            f"fit_memory: a step takes {readable(int(least)) if least < float('inf') else 'more than the device has'} at least, with all "
            f"that is worth it computed again{' or moved to the host' if per_byte is not None else ''}; the budget is "
            f"{readable(plan.budget)}. Parameters, gradients, buffers and inputs take {readable(held + graded)}"
            f"{f', the state of the optimizer {readable(state)}' if state else ''}. Use a smaller batch, a smaller model or gl.autocast"
        )
    chosen, plan.optimizer_offloaded, size, seconds = best
    plan._applied = apply(chosen.runs)
    if plan.optimizer_offloaded:
        offload_state(optimizer, at_once)
    plan.device, plan.peak, plan.peak_without = str(device), int(size), held + graded + state + parts[model].kept
    plan.seconds, plan.extra_seconds = seconds, chosen.seconds
    for how, names in (("checkpoint", plan.checkpointed), ("offload", plan.offloaded)):
        names += [part.name for run in chosen.runs if run.how == how for part in run.parts]
