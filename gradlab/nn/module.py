"""Module: the base of every layer and model. Registers parameters, buffers and submodules as they are assigned."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from sys import _getframe as getframe
from typing import Any, TypeVar

import numpy as np

from gradlab.above import above
from gradlab.autograd.general import new
from gradlab.autograd.mode import current, enter, leave, no_grad
from gradlab.call_site import Scope
from gradlab.device import TYPES, Device
from gradlab.dtype import INEXACT, as_numpy, bfloat16, float16, float32, float64
from gradlab.named_errors import explain, name_classes
from gradlab.nn.hooks import HookMethods, everywhere
from gradlab.nn.parameter import Buffer, Parameter, declare, is_lazy, zero_gradient
from gradlab.nn.private_names import PrivateNames
from gradlab.nn.state import StateMethods
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty_like

M = TypeVar("M", bound="Module")
_TABLES = (
    "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


class MissingAttribute(AttributeError):
    """A module has no such attribute. The text, with close names, is made when it is read, so that `hasattr` stays fast."""

    def __init__(self, module: Module, name: str) -> None:
        super().__init__(module, name)
        self.module, self.attribute = module, name

    def __str__(self) -> str:
        kind, name = type(self.module).__name__, self.attribute
        if "_parameters" not in self.module.__dict__:
            return f"{kind!r} object has no attribute {name!r}: {kind}.__init__ has not called super().__init__() yet"
        close = difflib.get_close_matches(name, [n for n in dir(self.module) if not n.startswith("_")], 3, 0.6)
        return f"{kind!r} object has no attribute {name!r}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")


class Module(HookMethods, StateMethods, PrivateNames):
    """Base class of layers and models.

    A subclass calls `super().__init__()`, assigns parameters and submodules to attributes, and defines `forward`.
    Calling the module runs `forward` and the hooks.
    """

    training: bool
    _name: str  # the attribute under which a parent holds this module
    __dict__: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_classes(cls, "__init__ __call__")

    def __init__(self) -> None:
        known = self.__dict__
        for table in _TABLES:
            known[table] = {}
        known["_non_persistent_buffers_set"] = set()
        known["_hooked"] = False
        known["_name"] = ""
        known["training"] = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what a pickle holds, of a version or of PyTorch's that knows fewer tables too."""
        Module.__init__(self)
        known = self.__dict__
        known.update(state)
        for name, child in known["_modules"].items():
            if child is not None:
                child.__dict__["_name"] = name
        known["_hooked"] = known["_hooked"] or any(known[table] for table in _TABLES if table.endswith(("forward_hooks", "_pre_hooks")))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define what the module computes")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode, frame = current(), getframe(1)
        scope = new(Scope)  # without its __init__: half the time
        scope.module, scope.name, scope.outer = type(self).__name__, self._name, mode.scope
        scope.code, scope.lasti = frame.f_code, frame.f_lasti
        token = enter(mode.within(scope))
        try:
            return self._call_hooked(args, kwargs) if self._hooked or everywhere else self.forward(*args, **kwargs)
        except Exception as error:
            explain(error, type(self).__name__, type(self).forward, (self, *args), kwargs)
        finally:
            leave(token)

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Let this module's calls run compiled from now on, hooks included: `gl.compile` in place, which takes the same arguments.

        The module stays the object it was, with the same names in `state_dict`. Returns what runs in place of the call, for its `stats()`,
        `graph`, `explain()`; None where nothing is compiled (disable=True, GRADLAB_COMPILE=0), which undoes an earlier `compile`.

        >>> import gradlab as gl
        >>> model = gl.nn.Sequential(gl.nn.Linear(2, 4), gl.nn.Tanh())
        >>> compiled = model.compile()
        >>> for _ in range(3):
        ...     y = model(gl.ones(5, 2))
        >>> len(compiled.programs), list(model.state_dict())
        (1, ['0.weight', '0.bias'])
        """
        made = above("compile")(self._plain_call, *args, **kwargs)
        self.__dict__["_compiled_call"] = found = None if made == self._plain_call else made
        self._hooked = self._hooked or found is not None
        return found

    # ------------------------------------------------------------ registration

    def _check_name(self, kind: str, name: str, table: dict[str, Any]) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign a {kind} before {type(self).__name__} called super().__init__()")
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} is a string, not {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"the name of a {kind} is not empty and has no dot: {name!r}")
        known = self.__dict__
        taken = name in known or name in known["_parameters"] or name in known["_buffers"] or name in known["_modules"]
        if name not in table and (taken or (hasattr(type(self), name) and hasattr(self, name))):  # a property may have no value yet
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None as the place of one that is switched off."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", {}))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot register {type(param).__name__} as parameter {name!r}: wrap it in nn.Parameter")
        self._parameters[name] = param
        if param is not None:
            declare(param, name, self)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not trained. persistent: whether `state_dict` holds it."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", {}))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot register {type(tensor).__name__} as buffer {name!r}: expected a tensor or None")
        self._buffers[name] = tensor
        if tensor is not None:
            declare(tensor, name, self)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module")
        self._check_name("module", name, self.__dict__.get("_modules", {}))
        self._modules[name] = module
        if module is not None:
            module.__dict__["_name"] = name

    register_module = add_module

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__
        parameters = known.get("_parameters")
        if isinstance(value, (Parameter, Module, Buffer)):
            if parameters is None:
                kind = type(value).__name__
                raise AttributeError(f"cannot assign {kind} {name!r} before {type(self).__name__} called super().__init__()")
            if isinstance(value, Parameter):
                self._forget(name, "_parameters")
                self.register_parameter(name, value)
            elif isinstance(value, Module):
                self._forget(name, "_modules")
                known["_modules"][name] = value
                value.__dict__["_name"] = name
            else:
                self._forget(name, "_buffers")
                self.register_buffer(name, value, value.persistent)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(f"cannot assign {type(value).__name__} as parameter {name!r}: nn.Parameter or None expected")
            parameters[name] = None
        elif parameters is not None and name in known["_modules"]:
            if value is not None:
                raise TypeError(f"cannot assign {type(value).__name__} as child module {name!r}: nn.Module or None expected")
            known["_modules"][name] = None
        elif parameters is not None and name in known["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign {type(value).__name__} as buffer {name!r}: a tensor or None expected")
            known["_buffers"][name] = value
        else:
            super().__setattr__(name, value)

    def _forget(self, name: str, own: str) -> None:
        """Make a name free for a new registration in the table `own`, where a value that is replaced keeps its place."""
        known = self.__dict__
        known.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != own:
                known[table].pop(name, None)
        known["_non_persistent_buffers_set"].discard(name)

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__
        try:
            return known["_parameters"][name]
        except KeyError:
            pass
        for table in ("_buffers", "_modules"):
            found = known.get(table)
            if found is not None and name in found:
                return found[name]
        raise MissingAttribute(self, name)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        known = self.__dict__
        names = [n for table in ("_parameters", "_buffers", "_modules") for n in known.get(table, ()) if n.isidentifier()]
        return sorted({*super().__dir__(), *names})

    # ------------------------------------------------------------ modes and gradients

    def train(self: M, mode: bool = True) -> M:
        """Training mode for this module and all below it: dropout drops, batch norm uses the batch."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: mode is True or False, not {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)  # which a class may have its own of
        return self

    def eval(self: M) -> M:
        """`train(False)`."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Let all parameters be trained, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters; set_to_none=False fills them with zeros instead."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                if set_to_none:
                    parameter.grad = None
                else:
                    zero_gradient(parameter)

    # ------------------------------------------------------------ conversion

    def _apply(self: M, fn: Callable[[Any], Any], recurse: bool = True) -> M:
        """Put fn(tensor) in the place of every parameter, gradient and buffer. Parameters stay the same objects."""
        for child in self.children() if recurse else ():
            child._apply(fn)  # which may say something else for itself
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    parameter.data = fn(parameter)  # itself: what writes in place is seen by graphs that need what was there
                    if parameter._grad is not None:
                        parameter._grad = fn(parameter._grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    changed = fn(buffer)
                    if is_lazy(buffer):
                        buffer.data = changed
                    else:
                        self._buffers[name] = changed
        return self

    def to(self: M, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None) -> M:
        """Parameters and buffers on another device (`to("cuda")`), floating point ones in another dtype (`to(gl.float16)`), those of four
        and five dimensions in another memory format (`to(memory_format=gl.channels_last)`)."""
        for argument in args:
            if isinstance(argument, Tensor):
                dtype, device = argument.dtype, argument.device
            elif isinstance(argument, Device) or (isinstance(argument, str) and argument.split(":")[0] in TYPES):
                device = argument
            elif argument is not None and not isinstance(argument, bool):
                dtype = argument
        chosen = None if dtype is None else dtype if isinstance(dtype, np.dtype) else as_numpy(dtype)
        if chosen is not None and chosen not in INEXACT:
            raise TypeError(f"Module.to: parameters are floating point or complex numbers; {dtype} is not")

        def converted(t: Tensor) -> Tensor:
            order = memory_format if t.dim() in (4, 5) else None
            return t.to(dtype=chosen if t._array.dtype in INEXACT else None, device=device, memory_format=order)

        return self._apply(converted)

    def float(self: M) -> M:
        """Floating point tensors as float32."""
        return self._apply(lambda t: t.to(dtype=float32) if t.is_floating_point() else t)

    def double(self: M) -> M:
        """Floating point tensors as float64."""
        return self._apply(lambda t: t.to(dtype=float64) if t.is_floating_point() else t)

    def half(self: M) -> M:
        """Floating point tensors as float16."""
        return self._apply(lambda t: t.to(dtype=float16) if t.is_floating_point() else t)

    def bfloat16(self: M) -> M:
        """Floating point tensors as bfloat16."""
        return self._apply(lambda t: t.to(dtype=bfloat16) if t.is_floating_point() else t)

    def type(self: M, dst_type: Any) -> M:
        """All tensors, integers too, in that dtype."""
        return self._apply(lambda t: t.to(dtype=dst_type))

    def cpu(self: M) -> M:
        """To the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: M, device: Any = None) -> M:
        """To a GPU: the current one, or the one of that index."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Parameters and buffers as memory on a device whose values do not matter (here zeros): for a module on "meta", whose values are
        loaded or initialised next."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def share_memory(self: M) -> M:
        """Parameters and buffers in memory that other processes can share (`Tensor.share_memory_`)."""
        return self._apply(lambda t: t.share_memory_())

    # ------------------------------------------------------------ as text

    def extra_repr(self) -> str:
        """What the class's repr says about its settings; a subclass may define it."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def _own_parameters(self) -> str:
        own = {n: p for n, p in self._parameters.items() if p is not None}
        if not own or any(map(is_lazy, own.values())):
            return ""
        shapes = ", ".join(f"{n} {tuple(p.shape)}" for n, p in own.items())
        return f"{shapes}: {sum(p.numel() for p in own.values()):,} parameters"

    def _children_as_text(self) -> list[tuple[str, str]]:
        return [(n, repr(child)) for n, child in self._modules.items()]

    def __repr__(self) -> str:
        extra, name = self.extra_repr(), self._get_name()
        note = self._own_parameters()
        children = [f"({n}): {_indented(text)}" for n, text in self._children_as_text()]
        if not children:
            text = f"{name}({_indented(extra)})" if "\n" not in extra else f"{name}(\n  {_indented(extra)}\n)"
            return f"{text}  # {note}" if note else text
        lines = [*([_indented(extra)] if extra else []), *children]
        total = sum(p.numel() for p in self.parameters() if not is_lazy(p))
        count = f"  # {total:,} parameters" if total else ""
        head = f"{name}(  # {note}" if note else f"{name}("
        return head + "".join(f"\n  {line}" for line in lines) + f"\n){count}"

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of the submodules."""
        shown: str = above("table in a notebook")(self)
        return shown


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
