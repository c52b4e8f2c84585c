"""The Tensor class: an array, its place in the graph, and the methods of every family (`families.py`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab import autograd, dispatch
from gradlab.autograd import graph_cuts, inplace, record
from gradlab.autograd.base import LEAF, meta_of
from gradlab.autograd.hooks import RemovableHandle, add_hook, hooks_of
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.dtype import INEXACT
from gradlab.named_errors import flag, named_methods, tensors_have
from gradlab.op import Op
from gradlab.strides import inverse_order
from gradlab.tensor.families import Families
from gradlab.tensor.memory_formats import laid_as
from gradlab.tensor.printing import describe
from gradlab.tensor.size import Size
from gradlab.tensor.subclasses import disabled, of_class
from gradlab.tensor.typed_tensors import constructed


class Tensor(Families):
    """A multi-dimensional array of one dtype that records what is computed from it. Made by `gradlab.tensor` and its relatives.

    Called itself it is PyTorch's oldest way to make one: `Tensor(2, 3)` has that shape and values that do not matter (here zeros),
    `Tensor([1, 2])` holds those values, both in the default dtype, `Tensor()` is empty, and `Tensor(tensor)` is an alias, graph and all.
    A `Size`, such as `x.shape`, is a shape.
    What holds values is a list, a tuple, an array (whose memory is shared if the dtype is its own), or anything else that `gradlab.tensor`
    takes. TypeError for a number that is no size: use gl.tensor(number).
    """

    __slots__ = ()
    __array_priority__ = 1000

    def __new__(cls, *data: Any, device: Any = None, requires_grad: bool = False, size: Any = None) -> Any:
        made = constructed("Tensor", data if size is None else (Size(size),), device)
        if requires_grad is not False and flag("Tensor", "requires_grad", requires_grad):
            made.requires_grad_()
        return made if cls is Tensor else of_class(made, cls)

    def __apply__(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return record.bind(op)(*args, **params)

    # ------------------------------------------------------------ autograd

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded.

        >>> gl.ones(1, requires_grad=True).requires_grad
        True
        """
        if self._meta is not None:
            record.refresh(self)
        return self._edge is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise RuntimeError(f"requires_grad: True or False, not {value!r}")
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) recording operations on this leaf. RuntimeError for integers and for results of recorded operations.

        >>> gl.ones(1).requires_grad_()
        tensor([1.], requires_grad=True)
        """
        record.refresh(self)
        if not requires_grad:
            if self._edge is not None and self._edge is not LEAF:
                raise RuntimeError("requires_grad_: only leaves can stop requiring grad; use detach() for a tensor outside the graph")
            self._edge = None
        elif self._edge is None:
            if self._array.dtype not in INEXACT:
                raise RuntimeError(f"requires_grad_: only floating point tensors can require gradients, not {self.dtype}; use .float()")
            if self.is_inference() and not current().inference:
                raise RuntimeError("requires_grad_: an inference tensor cannot require grad outside inference_mode; clone() it first")
            self._edge = LEAF
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was not computed by a recorded operation.

        >>> (2 * gl.ones(1, requires_grad=True)).is_leaf
        False
        """
        if self._meta is not None:
            record.refresh(self)
        return self._edge is None or self._edge is LEAF

    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor; None for a leaf.

        >>> (2 * gl.ones(1, requires_grad=True)).grad_fn.name()
        'MulBackward0'
        """
        if self._meta is not None:
            record.refresh(self)
        edge = self._edge
        return None if edge is None or edge is LEAF else edge.node

    @property
    def output_nr(self) -> int:
        """Which of its node's outputs this tensor is.

        >>> gl.ones(2, requires_grad=True).max(0).values.output_nr
        0
        """
        record.refresh(self)
        edge = self._edge
        return 0 if edge is None or edge is LEAF else int(edge.index)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has added up so far; None before the first.

        >>> x = gl.tensor([2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4.])
        """
        if (tracer := current().tracer) is not None:
            tracer.reads_gradient(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if not isinstance(value, Tensor | None):
            raise TypeError(f"grad: a tensor or None, not {type(value).__name__}")
        if value is not None and (value.shape != self.shape or value._array.dtype != self._array.dtype):
            raise RuntimeError(
                f"grad: a gradient has its tensor's shape and dtype: {self.shape} {self.dtype}, not {value.shape} {value.dtype}"
            )
        if (tracer := current().tracer) is not None:
            tracer.before_gradient(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Add the gradient of this tensor with respect to each leaf to the leaf's `.grad`.

        gradient: needed if this tensor is not a single number: a tensor of its shape, the vector of the vector-Jacobian product.
        The other arguments are those of `gradlab.autograd.backward`.

        >>> x = gl.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).backward(gl.tensor([1.0, 10.0]))
        >>> x.grad
        tensor([ 2., 40.])
        """
        autograd.backward([self], [gradient], retain_graph, create_graph, inputs=inputs)

    def detach(self) -> Tensor:
        """The same memory outside the graph. Writing either in place is noticed by backward where it matters.

        >>> (2 * gl.ones(1, requires_grad=True)).detach()
        tensor([2.])
        """
        record.refresh(self)
        if self._edge is not None:
            graph_cuts.note("detach()", self)
        out: Tensor = record.wrap(self._array)
        inplace.mark_detached(out, self, current())
        return out

    def detach_(self) -> Tensor:
        """Take this tensor itself out of its graph.

        >>> (2 * gl.ones(1, requires_grad=True)).detach_()
        tensor([2.])
        """
        if self._meta is not None and self._meta.base is not None and not self._meta.hidden:
            raise RuntimeError("detach_: a view cannot be detached in place; use detach()")
        if self._edge is not None:
            graph_cuts.note("detach_()", self)
        self._edge = None
        if self._meta is not None and self._meta.hidden:
            self._meta.base._edge = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory outside the graph, whose changes backward does not notice.

        >>> x = gl.ones(2, requires_grad=True)
        >>> x.data.mul_(3)
        tensor([3., 3.])
        >>> x
        tensor([3., 3.], requires_grad=True)
        """
        mode = current()
        if mode.tracer is not None:
            return self.detach()
        if self._edge is not None:
            graph_cuts.note("data", self)
        return record.wrap(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data: a tensor, not {type(value).__name__}")
        if value.layout is not self.layout:
            raise RuntimeError(f"data: a tensor of layout {self.layout}, not {value.layout}; convert with to_dense()")
        if self._edge is not None and value._array.dtype not in INEXACT:
            raise RuntimeError(f"data: a tensor that requires grad holds floating point numbers, not {value.dtype}")
        tracer = current().tracer
        if tracer is not None:
            tracer.write(self, value._array)
            return
        if value._array is not self._array or (self._meta is not None and self._meta.base is not None):
            inplace.moved(self, value._array)
        if value.is_inference() is not self.is_inference():
            meta_of(self).inference = value.is_inference()

    def retain_grad(self) -> None:
        """Also keep the gradient of this computed tensor in `.grad` at the next backward.

        >>> x = gl.tensor([2.0], requires_grad=True)
        >>> y = x * x
        >>> y.retain_grad()
        >>> y.sum().backward()
        >>> y.grad
        tensor([1.])
        """
        record.refresh(self)
        if self._edge is None:
            raise RuntimeError("retain_grad: this tensor does not require grad")
        if self._edge is LEAF:
            return
        inplace.retain(self, self._edge)
        meta_of(self).retains = True

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called.

        >>> gl.ones(1).retains_grad
        False
        """
        return self._meta is not None and self._meta.retains

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(gradient)` when this tensor's gradient is computed; a tensor that it returns takes the gradient's place.

        >>> x = gl.tensor([2.0], requires_grad=True)
        >>> handle = x.register_hook(lambda g: 10 * g)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([40.])
        """
        record.refresh(self)
        if self._edge is None:
            raise RuntimeError("register_hook: this tensor does not require grad, so no gradient will come")
        if self._edge is LEAF:
            meta = meta_of(self)
            meta.hooks = {} if meta.hooks is None else meta.hooks
            return add_hook(meta.hooks, hook)
        return add_hook(hooks_of(self._edge.node).outputs.setdefault(self._edge.index, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(tensor)` after a gradient was added to this leaf's `.grad`; it returns None (RuntimeError).

        >>> x = gl.tensor([2.0], requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
        >>> (x * x).sum().backward()
        tensor([4.])
        """
        record.refresh(self)
        if self._edge is not LEAF:
            raise RuntimeError("register_post_accumulate_grad_hook: only for leaves that require grad")
        meta = meta_of(self)
        meta.post_hooks = {} if meta.post_hooks is None else meta.post_hooks
        return add_hook(meta.post_hooks, hook)

    @property
    def _version(self) -> int:
        """How often this memory was written in place (through this tensor, a view of it or a detached twin); a number that grows, where
        compiled programs write it."""
        return 0 if self._meta is None or self._meta.version is None else self._meta.version.count

    @property
    def _base(self) -> Tensor | None:
        """The tensor that this one is a view of."""
        return None if self._meta is None or self._meta.hidden else self._meta.base

    # ------------------------------------------------------------ as a Python object

    def __len__(self) -> int:
        if not self._array.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self._array.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self._array.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                f"the truth value of a tensor with {self.numel()} elements (shape {self.shape}) is ambiguous; use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self._real_number())

    def __int__(self) -> int:
        return int(self._real_number())

    def __complex__(self) -> complex:
        return complex(self.item())

    def _real_number(self) -> Any:
        value = self.item()
        if type(value) is complex:
            if value.imag:
                raise RuntimeError(f"value cannot be converted to a real number without overflow: {value}")
            return value.real
        return value

    def __index__(self) -> int:
        if self.is_floating_point() or self.numel() != 1:
            raise TypeError(f"only an integer tensor with one element is an index, not {self.dtype} of shape {self.shape}")
        return int(self.item())

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, int, float, complex, np.generic)):
            raise RuntimeError(f"in: a tensor contains numbers; {type(element).__name__} is none")
        return bool((self == element).any())

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._array.shape else self

    def __format__(self, spec: str) -> str:
        if not self._array.shape:
            return format(self.item(), spec)
        if spec:
            raise TypeError(f"format {spec!r} is for one number, but this tensor has shape {self.shape}; format its elements")
        return str(self)

    def __repr__(self) -> str:
        plain = type(self) is Tensor or type(self).__torch_function__ is disabled
        return describe(self, "tensor(" if plain else f"{type(self).__name__}(")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaves can be copied deeply; this tensor was computed and has a graph: use detach().clone()")
        if not isinstance(memo, dict):
            raise TypeError(f"__deepcopy__: the memory of what was copied is a dict, not {type(memo).__name__}; use copy.deepcopy")
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        array = self._array
        order = laid_as("deepcopy", self) if type(array) is np.ndarray else None
        if order is not None:
            twin._array = array.transpose(order).copy().transpose(inverse_order(order))
        else:
            twin._array = array.copy() if hasattr(array, "copy") else dispatch.backend_of(array).copy(array)
        twin._edge, twin._meta = self._edge, None
        for name, value in self.__dict__.items():
            if name == "_grad" and value is not None and not value.is_leaf:
                value = value.detach()
            twin.__dict__[name] = copy.deepcopy(value, memo)
        if (declare := getattr(current().tracer, "declare", None)) is not None:  # the copy of a gl.Graph's variable is another one
            declare(twin, like=self)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        place = self.device
        array = dispatch.backend_of(self._array).to_numpy(self._array)
        own = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        return _rebuild, (type(self), array, self.requires_grad, *(() if place.type == "cpu" else (str(place),))), own or None


def _rebuild(kind: type[Tensor], array: Any, requires_grad: bool, device: str = "cpu") -> Tensor:
    made = object.__new__(Tensor)
    if device != "cpu":
        place = Device(device)
        array = dispatch.backend_for(place).from_numpy(array, place)
    made._array, made._edge, made._meta = array, LEAF if requires_grad else None, None
    return made if kind is Tensor else of_class(made, kind)


record.adopt(Tensor)
named_methods(Tensor)
tensors_have(dir(Tensor))
