"""`autocast`: operations choose the precision that suits them.

A row says by its `autocast=` what becomes of its floating point inputs (float64 apart) while autocast is on for their device. They are cast
  "lower"       to the device's autocast dtype,
  "float32"     to float32,
  "reciprocal"  to float32 where a number is divided by them,
  "widest"      to the widest dtype among them,
  "refused"     to float32 on the CPU; on a GPU it is an error;
and with None they stay. The lists are those that PyTorch documents for CUDA, on both devices: one script, the same numbers everywhere.

What is on stands in `Mode.autocast` as a `Casting`, None while nothing is. There is one for each choice: `compile` tells by identity.
The general call path asks it to cast (`autograd/general.py`); the fast paths never see it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from gradlab.autograd.base import LEAF, Differentiable
from gradlab.autograd.mode import Mode, ModeContext, current, enter
from gradlab.batched import Batched
from gradlab.cuda import is_available
from gradlab.device import Device
from gradlab.dtype import FLOAT32, DType, as_dtype, bfloat16, float16, from_numpy
from gradlab.op import Op

Choice = tuple[bool, bool, np.dtype[Any], np.dtype[Any], bool]  # on for the CPU, for GPUs; their dtypes; whether casts are kept

LOWER = (float16, bfloat16)
NARROW = frozenset((float16.dtype, bfloat16.dtype, FLOAT32))  # what is cast; float64 was asked for
DEVICES = ("cpu", "cuda")
OTHERS = ("mps", "xpu", "mtia", "hpu", "ipu", "xla", "maia", "privateuseone")  # devices of PyTorch's that gradlab has not

_off: ContextVar[Choice] = ContextVar("gradlab_autocast", default=(False, False, bfloat16.dtype, float16.dtype, True))
_kept: ContextVar[dict[Any, Any] | None] = ContextVar("gradlab_autocast_casts", default=None)  # casts of the outermost region
_castings: dict[Choice, Casting] = {}


class Casting:
    """One choice of what autocast does; see `casting_of`."""

    __slots__ = ("choice", "keeps", "targets")

    def __init__(self, choice: Choice) -> None:
        cpu, cuda, cpu_dtype, cuda_dtype, self.keeps = self.choice = choice
        self.targets = {"cpu": cpu_dtype if cpu else None, "cuda": cuda_dtype if cuda else None, "meta": None}

    def cast(self, op: Op, inputs: Sequence[Any]) -> Sequence[Any]:
        """A row's inputs, cast as it asks for. RuntimeError for a row that is refused."""
        rule = op.autocast
        if rule == "reciprocal":
            if isinstance(inputs[0], Differentiable):
                return inputs
            rule = "float32"
        elif rule == "refused":
            if any(isinstance(x, Differentiable) and x.device.type != "cpu" for x in inputs):  # type: ignore[attr-defined]
                raise RuntimeError(f"{op.name}: {REFUSED[op.name]}")
            rule = "float32"
        return self.all_as(inputs, rule)

    def all_as(self, inputs: Sequence[Any], rule: Any) -> Sequence[Any]:
        """The tensors among some inputs, in half precision ("lower"), in float32 or in the widest dtype among them."""
        found, wide = list(inputs), None
        if rule == "widest":
            dtypes = [x._array.dtype for x in inputs if isinstance(x, Differentiable) and x._array.dtype in NARROW]
            if len(set(dtypes)) < 2:
                return inputs
            wide = FLOAT32  # also of float16 and bfloat16
        for i, x in enumerate(inputs):
            if isinstance(x, Differentiable) and x._array.dtype in NARROW:
                target = self.targets[x.device.type]  # type: ignore[attr-defined]
                if target is not None:
                    target = wide or (target if rule == "lower" else FLOAT32)
                    if x._array.dtype != target:
                        found[i] = self._to(x, target)
        return found

    def _to(self, tensor: Any, dtype: np.dtype[Any]) -> Any:
        """The tensor in another dtype. A float32 leaf's cast is kept for the outermost region, as long as nobody writes to the leaf."""
        mode, meta = current(), tensor._meta
        array = tensor._array
        keeps = self.keeps and mode.recording and tensor._edge is LEAF and array.dtype == FLOAT32 and type(array) is not Batched
        known = _casts(mode) if keeps and (meta is None or meta.base is None) else None
        if known is None:
            return tensor.to(dtype)
        written = 0 if meta is None or meta.version is None else meta.version.written
        key = (id(tensor), dtype)
        if key in known:
            leaf, held, when, cast = known[key]
            if leaf is tensor and held is array and when == written and cast._edge.saved is not None:  # not freed by a backward
                return cast
        cast = tensor.to(dtype)
        known[key] = (tensor, array, written, cast)
        return cast

    def __repr__(self) -> str:
        return ", ".join(f"{device} {dtype.name}" for device, dtype in self.targets.items() if dtype is not None)


REFUSED = {
    "bce": "binary_cross_entropy and BCELoss are unsafe to autocast: the logarithm of what a sigmoid gave in half precision. Use "
    "binary_cross_entropy_with_logits or BCEWithLogitsLoss without the sigmoid, which are safe, or compute the loss in float32 within "
    "autocast('cuda', enabled=False)",
}


def casting_of(choice: Choice) -> Casting | None:
    """The one object for a choice; None where it is off for all devices."""
    if not (choice[0] or choice[1]):
        return None
    found = _castings.get(choice)
    return _castings.setdefault(choice, Casting(choice)) if found is None else found


def _casts(mode: Mode) -> dict[Any, Any] | None:
    """Where casts are kept: a trace has its own, which end with it."""
    kept = _kept.get()
    if mode.tracer is None or kept is None:
        return kept
    return mode.tracer.__dict__.setdefault("casts", {})


def _choice(mode: Mode) -> Choice:
    """What is set now. The mode comes first: a checkpoint brings back that of its forward."""
    if mode.autocast is not None:
        return mode.autocast.choice
    return (False, False, *_off.get()[2:])


def _set(choice: Choice) -> None:
    _off.set(choice)
    enter(current().replace(autocast=casting_of(choice)))


def check_device(device_type: Any, what: str) -> str:
    """The kind of a device, checked."""
    if isinstance(device_type, Device):
        device_type = device_type.type
    if not isinstance(device_type, str):
        raise ValueError(f"{what}: expected `device_type` of type `str`, got {type(device_type).__name__}; it is 'cpu' or 'cuda'")
    if device_type not in DEVICES:
        raise RuntimeError(f"{what}: unsupported autocast device_type {device_type!r}; it is 'cpu' or 'cuda'")
    return device_type


class autocast(ModeContext):
    """Within the block (or the decorated function) operations on that kind of device choose their precision.

    Matrix products, convolutions, linear and recurrent layers and attention compute in `dtype`; losses, norms, softmax, sums, exponentials
    and powers in float32; all others in what they are given, the widest of it. Parameters stay float32, and so do their gradients.
    docs/amp.md has the lists. Leave the block before `backward()`: each gradient is computed in its operation's precision anyway.

    device_type: "cpu" or "cuda". dtype: bfloat16 or float16; by default bfloat16 on the CPU and float16 on a GPU (`get_autocast_dtype`).
    enabled: False switches autocast off within the block. cache_enabled: whether a parameter is cast once for all its uses.
    Raises ValueError or RuntimeError for another device_type; another dtype, or "cuda" without a GPU, warns and leaves autocast off.

    >>> x = gl.ones(2, 2)
    >>> with gl.autocast("cpu"):
    ...     y = x @ x
    ...     z = y.exp()
    >>> y.dtype, z.dtype
    (gradlab.bfloat16, gradlab.float32)
    """

    def __init__(self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        super().__init__()
        self.device_type = self.device = check_device(device_type, "autocast")
        self.fast_dtype = get_autocast_dtype(self.device_type) if dtype is None else as_dtype(dtype)
        self._enabled, self._keeps = bool(enabled), cache_enabled
        if self._enabled and self.device_type == "cuda" and not is_available():
            warnings.warn("autocast: device_type is 'cuda', but CUDA is not available; autocast stays off", UserWarning, stacklevel=2)
            self._enabled = False
        if self._enabled and self.fast_dtype not in LOWER:
            what = f"autocast: {self.fast_dtype} is no dtype to lower to, use bfloat16 or float16; autocast stays off"
            warnings.warn(what, UserWarning, stacklevel=2)
            self._enabled = False
        self._stack: list[tuple[Mode, Mode, Choice, bool]] = []  # the mode before and in the region, the choice, whether it is outermost

    def _changed(self, mode: Mode) -> Mode:
        choice = _changed(_choice(mode), self.device_type, self._enabled, self.fast_dtype.dtype, self._keeps)
        _off.set(choice)
        return mode.replace(autocast=casting_of(choice))

    def _clone(self) -> ModeContext:
        copy: Any = super()._clone()
        copy._stack = []
        return copy

    def __enter__(self) -> None:
        mode, before, outermost = current(), _off.get(), _kept.get() is None
        if outermost:
            _kept.set({})
        changed = self._changed(mode)
        self._stack.append((mode, changed, before, outermost))
        enter(changed)

    def __exit__(self, *_: object) -> None:
        mode, changed, before, outermost = self._stack.pop()
        if outermost:
            clear_autocast_cache()
            _kept.set(None)
        _off.set(before)
        now = current()
        enter(mode if now is changed else now.replace(autocast=mode.autocast))  # what else was switched within the region stays


def _changed(choice: Choice, device_type: str, enabled: bool | None, dtype: np.dtype[Any] | None, keeps: bool | None) -> Choice:
    """The choice with some parts replaced."""
    on, dtypes, at = list(choice[:2]), list(choice[2:4]), DEVICES.index(device_type)
    if enabled is not None:
        on[at] = enabled
    if dtype is not None:
        dtypes[at] = dtype
    return (on[0], on[1], dtypes[0], dtypes[1], choice[4] if keeps is None else bool(keeps))


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` knows that kind of device.

    >>> gl.amp.is_autocast_available("cpu")
    True
    """
    if not isinstance(device_type, str):
        raise ValueError(f"is_autocast_available: expected a str, got {type(device_type).__name__}")
    return device_type in DEVICES


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for that kind of device; without one, for GPUs, as in PyTorch. On PyTorch's other devices it never is.

    >>> with gl.autocast("cpu"):
    ...     gl.is_autocast_enabled("cpu")
    True
    """
    if device_type in OTHERS:
        return False
    casting, device_type = current().autocast, check_device("cuda" if device_type is None else device_type, "is_autocast_enabled")
    return casting is not None and casting.targets[device_type] is not None


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that autocast lowers to on that kind of device.

    >>> gl.get_autocast_dtype("cpu"), gl.get_autocast_dtype("cuda")
    (gradlab.bfloat16, gradlab.float16)
    """
    _, _, cpu, cuda, _ = _choice(current())
    return from_numpy(cpu if check_device(device_type, "get_autocast_dtype") == "cpu" else cuda)


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch autocast on or off from here on, in this thread.

    >>> gl.set_autocast_enabled("cpu", False)
    """
    device_type = check_device(device_type, "set_autocast_enabled")
    if not isinstance(enabled, (bool, int, np.bool_)):
        raise TypeError(f"set_autocast_enabled: enabled is True or False, not {type(enabled).__name__}")
    _set(_changed(_choice(current()), device_type, bool(enabled), None, None))


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the dtype that autocast lowers to from here on, in this thread. ValueError unless it is bfloat16 or float16.

    >>> gl.set_autocast_dtype("cpu", gl.bfloat16)
    """
    device_type, dtype = check_device(device_type, "set_autocast_dtype"), as_dtype(dtype)
    if dtype not in LOWER:
        raise ValueError(f"set_autocast_dtype: {dtype} is no dtype to lower to; use bfloat16 or float16")
    _set(_changed(_choice(current()), device_type, None, dtype.dtype, None))


def is_autocast_cache_enabled() -> bool:
    """Whether a parameter is cast once for all its uses within a region.

    >>> gl.is_autocast_cache_enabled()
    True
    """
    return _choice(current())[4]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Let a parameter be cast once for all its uses within a region, or for each of them.

    >>> gl.set_autocast_cache_enabled(True)
    """
    choice = _choice(current())
    _set((*choice[:4], bool(enabled)))


def clear_autocast_cache() -> None:
    """Forget the casts of parameters that this region has kept so far.

    >>> gl.clear_autocast_cache()
    """
    for kept in (_kept.get(), getattr(current().tracer, "casts", None)):
        if kept is not None:
            kept.clear()
