"""`GradScaler`: the loss times a large number, so that small gradients do not vanish in float16; the gradients divided by it again.

Everything that depends on values is a tensor: the scale, how many steps it has stood, the factors, and whether a gradient was not finite.
So a whole step with a scaler is one static program: there the optimizer's update is computed and then chosen or not by that tensor
(`where`), and no replay waits for a value. Eagerly on a GPU the update's kernels read that tensor; on the CPU `step` reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from gradlab.amp.autocast_mode import check_device
from gradlab.autograd.inplace import write
from gradlab.autograd.mode import Mode, current, enter, leave, no_grad
from gradlab.cuda import is_available
from gradlab.device import Device
from gradlab.dtype import float16, float32, int32
from gradlab.optim.row_optimizer import RowOptimizer
from gradlab.tensor import Tensor
from gradlab.tensor.creation import full
from gradlab.tensor.where import where

_READY, _UNSCALED, _STEPPED = range(3)
_ONE_PLACE = "within gl.compile, unscale_(), step() and update() belong into one compiled function, all of them or none"


class _State:
    """What happened to one optimizer since the last update. found: a 0-d truth value, whether a gradient was not finite."""

    __slots__ = ("found", "optimizer", "stage")

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.stage = optimizer, _READY  # the optimizer is kept: its id is the key
        self.found: Any = None


class GradScaler:
    """Scales losses, unscales gradients, skips steps whose gradients are not finite, and adapts the scale.

        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # only to look at the gradients, or to clip them
        scaler.step(optimizer)
        scaler.update()

    The scale starts at `init_scale`. After a step with an infinite or NaN gradient, which is skipped, it is multiplied by `backoff_factor`,
    and after `growth_interval` steps without by `growth_factor`. enabled: with False all methods only pass things on.
    device: "cuda" or "cpu"; without a GPU "cuda" warns and disables the scaler. bfloat16 has float32's range and needs no scaler.
    Raises ValueError or AssertionError for factors on the wrong side of 1.

    >>> w = gl.ones(2, requires_grad=True)
    >>> optimizer, scaler = gl.optim.SGD([w], lr=0.5), gl.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale(w.sum()).backward()
    >>> w.grad
    tensor([8., 8.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w, w.grad
    (tensor([0.5000, 0.5000], requires_grad=True), tensor([1., 1.]))
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = check_device(device, "GradScaler"), bool(enabled)
        if self._enabled and self._device == "cuda" and not is_available():
            warnings.warn("GradScaler: enabled for 'cuda', but CUDA is not available; it is disabled", UserWarning, stacklevel=2)
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError(f"GradScaler: the growth factor must be > 1.0, not {growth_factor}")
            if backoff_factor >= 1.0:
                raise AssertionError(f"GradScaler: the backoff factor must be < 1.0, not {backoff_factor}")
        self._init_scale, self._init_growth_tracker = float(init_scale), 0
        self._numbers = {"growth": float(growth_factor), "backoff": float(backoff_factor), "interval": int(growth_interval)}
        self._tensors: dict[str, Tensor] = {}  # the same, "scale" and "tracker": on the device of the first loss, from then on
        self._states: dict[int, _State] = {}

    # ------------------------------------------------------------ state

    def _begin(self, device: Device) -> dict[str, Tensor]:
        """The tensors. Made outside of any trace: they are state of its program."""
        if not self._tensors:
            token = enter(Mode())
            try:
                self._tensors = {
                    "scale": full((), self._init_scale, dtype=float32, device=device),
                    "tracker": full((), self._init_growth_tracker, dtype=int32, device=device),
                    **{
                        name: full((), value, dtype=int32 if name == "interval" else float32, device=device)
                        for name, value in self._numbers.items()
                    },
                }
            finally:
                leave(token)
        return self._tensors

    def _begun(self, what: str) -> dict[str, Tensor]:
        if not self._tensors:
            raise AssertionError(
                f"GradScaler: {what} was called before scale(loss), so there is no scale yet; call scaler.scale(loss).backward() first"
            )
        return self._tensors

    def _known(self) -> dict[int, _State]:
        """The optimizers' states. Those of a trace end with it: a program must leave none behind."""
        tracer = current().tracer
        if tracer is None:
            return self._states
        if self._states:
            raise RuntimeError(f"GradScaler: update() was not called since unscale_() or step(); {_ONE_PLACE}")
        known: dict[int, dict[int, _State]] = tracer.__dict__.setdefault("scalers", {})
        return known.setdefault(id(self), {})

    def _state(self, optimizer: Any) -> _State:
        known = self._known()
        found = known.get(id(optimizer))
        if found is None:
            found = known[id(optimizer)] = _State(optimizer)
        return found

    # ------------------------------------------------------------ a step

    def scale(self, outputs: Any) -> Any:
        """A tensor, or an iterable of tensors (nested, as lists and tuples), times the scale.

        >>> gl.amp.GradScaler("cpu", init_scale=4.0).scale(gl.tensor(0.5))
        tensor(2.)
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._begin(outputs.device)["scale"].to(device=outputs.device)
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):  # whose parts are strings again
            scaled = [self.scale(x) for x in outputs]
            return type(outputs)(scaled) if type(outputs) in (list, tuple) else scaled  # type: ignore[call-arg]
        raise ValueError(f"GradScaler: outputs must be a Tensor or an iterable of Tensors, not {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, and note whether all were finite.

        `step` does it if it was not done. Raises RuntimeError a second time before `update`, ValueError for float16 gradients.
        """
        if not self._enabled:
            return
        scale = self._begun("unscale_")["scale"]
        state = self._state(optimizer)
        if state.stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state.stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(g.dtype == float16 for g in gradients):
            raise ValueError(
                "Attempting to unscale FP16 gradients. Keep the parameters in float32 and compute under autocast: their gradients are "
                "float32 then"
            )
        with no_grad():
            inverse = scale.double().reciprocal().float()
            total: Any = None  # of zeros, or NaN: it takes one pass over the gradients, and no truth values
            for g in gradients:
                part = (g * 0).sum().float().to(device=scale.device)
                total = part if total is None else total + part
                g.mul_(inverse.to(device=g.device))
            state.found = None if total is None else total.isnan()
        state.stage = _UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)`, unless a gradient is infinite or NaN. Gradients are unscaled first if they were not yet.

        On a GPU the kernels of the library's optimizers look for themselves whether to change anything, and the host does not wait; in a
        compiled step the update is computed and chosen or not. Otherwise one number is read, and the update skipped.
        Returns what the optimizer's step returns, None for a skipped one.
        Raises RuntimeError for a closure, and for a second step before `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._begun("step")
        state = self._state(optimizer)
        if state.stage == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state.stage == _READY:
            self.unscale_(optimizer)
        if state.found is None:
            raise AssertionError("No inf checks were recorded for this optimizer: none of its parameters has a gradient.")
        state.stage = _STEPPED
        if current().tracer is not None:
            return _chosen(state.found, optimizer, kwargs)
        if _skips_by_itself(optimizer, state.found):
            optimizer.found_inf = state.found
            try:
                return optimizer.step(**kwargs)
            finally:
                optimizer.found_inf = None
        return None if state.found.item() else optimizer.step(**kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what the steps since the last update have met, or set it to `new_scale`, a number or a float32 tensor of one
        element. Raises AssertionError where there was no step."""
        if not self._enabled:
            return
        tensors, known = self._begun("update"), self._known()
        scale, tracker = tensors["scale"], tensors["tracker"]
        with no_grad():
            if isinstance(new_scale, Tensor):
                if new_scale.numel() != 1 or new_scale.dtype != float32 or new_scale.requires_grad:
                    raise AssertionError("new_scale should be a float or a 1-element float32 tensor with requires_grad=False.")
                scale.copy_(new_scale.reshape(()))
            elif new_scale is not None:
                scale.fill_(float(new_scale))
            else:
                checks = [s.found for s in known.values() if s.found is not None]
                if not checks:
                    raise AssertionError(f"No inf checks were recorded prior to update; {_ONE_PLACE}.")
                found = checks[0]
                for other in checks[1:]:
                    found = found.logical_or(other)
                successes, grown = tracker + 1, scale * tensors["growth"]
                full_count = successes >= tensors["interval"]
                grows = full_count.logical_and(grown.isfinite())
                kept = where(grows, grown, scale)
                write("update", scale, where(found, scale * tensors["backoff"], kept))
                write("update", tracker, where(found.logical_or(full_count), tracker.zeros_like(), successes))
        known.clear()

    # ------------------------------------------------------------ numbers

    def _read(self, name: str, otherwise: float) -> float:
        if current().tracer is not None:
            raise RuntimeError(
                f"GradScaler: the {name} is read as a number within a compiled function, which would keep the number of its trace; read it "
                f"outside, or leave it to scale(), step() and update()"
            )
        return self._tensors[name].item() if self._tensors else otherwise

    def get_scale(self) -> float:
        """The scale as a number, which on a GPU waits for the device; 1.0 if disabled.

        >>> gl.amp.GradScaler("cpu").get_scale()
        65536.0
        """
        if not self._enabled:
            return 1.0
        return float(self._read("scale", self._init_scale))

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by after `growth_interval` steps."""
        return self._numbers["growth"]

    def set_growth_factor(self, new_factor: float) -> None:
        """Set it."""
        self._set("growth", float(new_factor))

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a step that was skipped."""
        return self._numbers["backoff"]

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set it."""
        self._set("backoff", float(new_factor))

    def get_growth_interval(self) -> int:
        """How many steps without infinite gradients let the scale grow."""
        return int(self._numbers["interval"])

    def set_growth_interval(self, new_interval: int) -> None:
        """Set it."""
        self._set("interval", int(new_interval))

    def _set(self, name: str, value: float) -> None:
        self._numbers[name] = value
        if self._tensors:  # in place: programs read it there
            with no_grad():
                self._tensors[name].fill_(value)

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """The scale, the factors and the count of steps as numbers; empty if disabled.

        >>> gl.amp.GradScaler("cpu").state_dict()["growth_interval"]
        2000
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self.get_growth_factor(), "backoff_factor": self.get_backoff_factor(),
            "growth_interval": self.get_growth_interval(),
            "_growth_tracker": int(self._read("tracker", self._init_growth_tracker)),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`. RuntimeError for an empty one, unless the scaler is disabled."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale, self._init_growth_tracker = float(state_dict["scale"]), int(state_dict["_growth_tracker"])
        if self._tensors:
            with no_grad():
                self._tensors["scale"].fill_(self._init_scale)
                self._tensors["tracker"].fill_(self._init_growth_tracker)
        self.set_growth_factor(state_dict["growth_factor"])
        self.set_backoff_factor(state_dict["backoff_factor"])
        self.set_growth_interval(state_dict["growth_interval"])


def _skips_by_itself(optimizer: Any, found: Tensor) -> bool:
    """Whether an optimizer's kernels look at `found_inf` themselves: one of the library's, all gradients on the GPU that `found` is on."""
    if not isinstance(optimizer, RowOptimizer) or not type(optimizer).__module__.startswith("gradlab.optim"):
        return False
    places = {p._grad.device for group in optimizer.param_groups for p in group["params"] if p._grad is not None}
    return found.device.type == "cuda" and places == {found.device}


def _chosen(found: Tensor, optimizer: Any, kwargs: dict[str, Any]) -> Any:
    """In a trace: the optimizer's step, and then each parameter and buffer that it wrote as it was before where `found` holds."""
    with no_grad():
        tensors = {id(p): p for group in optimizer.param_groups for p in group["params"] if p._grad is not None}
        for entries in optimizer.state.values():
            tensors.update((id(t), t) for t in (entries.values() if isinstance(entries, dict) else ()) if isinstance(t, Tensor))
        before = [(t, t.clone(), t._array) for t in tensors.values()]
        result = optimizer.step(**kwargs)
        for t, old, array in before:
            if t._array is not array:
                write("step", t, where(found.to(device=t.device), old, t))
    return result
