"""`torch._utils`, `torch.utils._contextlib`, `torch.utils._foreach_utils`: small functions inside PyTorch that other libraries use, too."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import gradlab
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.distributions import Dirichlet
from gradlab.tensor import Tensor


class ExceptionWrapper:
    """An exception of another thread or process, to be raised in this one with the text of where it came from."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type: Any = kind
        self.where = where
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))

    def reraise(self) -> NoReturn:
        """Raise it."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:  # which would show the text with its line breaks escaped
            raise RuntimeError(text)
        try:
            error = self.exc_type(text)
        except Exception:  # it wants other arguments
            raise RuntimeError(text) from None
        raise error


class classproperty:
    """A property of a class."""

    def __init__(self, fget: Any) -> None:
        self.fget = fget if isinstance(fget, (classmethod, staticmethod)) else classmethod(fget)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.fget.__get__(None, owner)()


def is_compiling() -> bool:
    """Whether a program is being traced."""
    return current().tracer is not None


def _assert(condition: Any, message: str) -> None:
    """An `assert` that a trace can go through."""
    assert condition, message


def kineto_available() -> bool:
    """Whether PyTorch's profiler of GPUs is there: no; `gl.profiler` measures by itself."""
    return False


def cpu_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """All values in one row."""
    return gradlab.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The row cut into tensors of these tensors' shapes."""
    known = list(tensors)
    return tuple(part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in known]), known, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterable[list[Tensor]]:
    """The tensors in groups of one dtype with at most so many bytes, but for single ones that are larger."""
    groups: dict[Any, list[Tensor]] = {}
    for t in tensors:
        group = groups.setdefault(t.dtype, [])
        if group and sum(each.nbytes for each in group) + t.nbytes > size_limit:
            yield groups.pop(t.dtype)
            group = groups.setdefault(t.dtype, [])
        group.append(t)
    yield from groups.values()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """A GPU's number; that of the current one for None, if optional."""
    if isinstance(device, str):
        device = Device(device)
    if isinstance(device, Device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "cuda":
            raise ValueError(f"expected a CUDA device, got {device}")
        device = device.index
    if device is None:
        if not optional:
            raise ValueError("expected a device with an index")
        return gradlab.cuda.current_device()
    return int(device)


def _import_dotted_name(name: str) -> Any:
    """What `a.b.c` names: an attribute of a module, or of something in one."""
    first, *rest = name.split(".")
    found = import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


def _element_size(dtype: Any) -> int:
    """Bytes of one value."""
    return gradlab.empty(0, dtype=dtype).element_size()


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in a context of its own in each call; ctx: what makes one, or one that is made."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with ctx() if callable(ctx) and not hasattr(ctx, "clone") else ctx.clone():
            return func(*args, **kwargs)

    return wrapped


class _DecoratorContextManager:
    """A context manager that is a decorator, too: of functions, and of generators, which run in it step by step."""

    def __call__(self, orig_func: Any) -> Any:
        if inspect.isgeneratorfunction(orig_func):
            return self._wrap_generator(orig_func)
        return context_decorator(self, orig_func)

    def _wrap_generator(self, func: Any) -> Any:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator, sent = func(*args, **kwargs), None
            while True:
                with self.clone():
                    try:
                        given = generator.send(sent)
                    except StopIteration as stop:
                        return stop.value
                sent = yield given

        return wrapped

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another one like it; a class with arguments defines it."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that may be written without brackets."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Lists of tensors by the device and dtype of those in the first: `{(device, dtype): (lists, places)}`."""
    groups: dict[Any, Any] = {}
    for place, row in enumerate(zip(*tensorlistlist, strict=True)):
        first = row[0]
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for each, value in zip(lists, row, strict=True):
            each.append(value)
        places.append(place)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cuda"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _has_foreach_support(tensors: Sequence[Any], device: Any) -> bool:
    """Whether they are updated together by one kernel: never, as far as such programs are concerned."""
    return False


def _device_has_foreach_support(device: Any) -> bool:
    """Whether tensors there are updated together."""
    return False


def get_cpu_capability() -> str:
    """Which instructions the kernels use, of which PyTorch's names are "DEFAULT", "AVX2" and others."""
    return "DEFAULT"


def _sample_dirichlet(concentration: Tensor) -> Tensor:
    """A sample of shares, whose public name is in `torch.distributions`."""
    return Dirichlet(concentration).sample()


__all__ = ["ExceptionWrapper", "classproperty", "context_decorator", "cpu_count", "is_compiling"]
