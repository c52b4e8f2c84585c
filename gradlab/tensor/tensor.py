"""The Tensor class: an array, its place in the graph, and the methods of every family (one mixin each)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradlab import autograd, dispatch
from gradlab.autograd import cuts, inplace, record
from gradlab.autograd.base import LEAF, Differentiable, meta_of
from gradlab.autograd.hooks import RemovableHandle, add_hook, hooks_of
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.dtype import FLOATING, DType, as_numpy, from_numpy, get_default_dtype
from gradlab.op import Op
from gradlab.spec import count
from gradlab.tensor.activation import ActivationMethods
from gradlab.tensor.assembly import AssemblyMethods
from gradlab.tensor.closeness import ClosenessMethods
from gradlab.tensor.comparison import ComparisonMethods
from gradlab.tensor.convert import ConvertMethods
from gradlab.tensor.factoring import FactoringMethods
from gradlab.tensor.gamma import GammaMethods
from gradlab.tensor.gather import GatherMethods
from gradlab.tensor.indexing import IndexingMethods
from gradlab.tensor.layout import LayoutMethods
from gradlab.tensor.linalg import LinalgMethods
from gradlab.tensor.math import MathMethods
from gradlab.tensor.math_in_place import MathInPlaceMethods
from gradlab.tensor.math_pairs import PairMethods
from gradlab.tensor.placing import PlacingMethods
from gradlab.tensor.pointwise import PointwiseMethods
from gradlab.tensor.pointwise_in_place import PointwiseInPlaceMethods
from gradlab.tensor.printing import describe
from gradlab.tensor.products import ProductMethods
from gradlab.tensor.random import RandomMethods
from gradlab.tensor.reduction import ReductionMethods
from gradlab.tensor.reshaping import ReshapingMethods
from gradlab.tensor.scan import ScanMethods
from gradlab.tensor.shape import ShapeMethods
from gradlab.tensor.solving import SolvingMethods
from gradlab.tensor.sorting import SortingMethods
from gradlab.tensor.special import SpecialMethods
from gradlab.tensor.statistics import StatisticsMethods
from gradlab.tensor.twins import TwinMethods


class Tensor(
    ActivationMethods, SpecialMethods, PointwiseMethods, ComparisonMethods, ReductionMethods, ShapeMethods, IndexingMethods,
    GatherMethods, SortingMethods, LinalgMethods, ConvertMethods, RandomMethods, MathMethods, MathInPlaceMethods, ClosenessMethods,
    ScanMethods, StatisticsMethods, LayoutMethods, AssemblyMethods, ProductMethods, SolvingMethods, FactoringMethods, GammaMethods,
    ReshapingMethods, PlacingMethods, PairMethods, PointwiseInPlaceMethods, TwinMethods,
):  # fmt: skip
    """A multi-dimensional array of one dtype that records what is computed from it. Made by `gradlab.tensor` and its relatives."""

    __slots__ = ()
    __array_priority__ = 1000
    __array_ufunc__ = None  # so that `numpy_value * tensor` comes here

    def __init__(self, data: Any = None, requires_grad: bool = False) -> None:
        if isinstance(data, Differentiable):
            array = data._array
        elif data is None:
            array = np.empty((0,), as_numpy(get_default_dtype()))
        else:
            array = np.array(data)
            array = array if array.dtype in FLOATING else array.astype(as_numpy(get_default_dtype()))
        self._array = array
        self._edge = LEAF if requires_grad else None
        self._meta = None
        if current().inference:
            meta_of(self).inference = True

    def __apply__(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return record.bind(op)(*args, **params)

    # ------------------------------------------------------------ facts

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self._array.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self._array.shape if dim is None else self._array.shape[dim]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._array.shape)

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self._array.shape)

    def numel(self) -> int:
        """Number of elements."""
        return count(self._array.shape)

    nelement = numel

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return from_numpy(self._array.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self._array.dtype.itemsize)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self._array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.itemsize

    @property
    def device(self) -> Device:
        """Where the elements live."""
        return dispatch.backend_of(self._array).device_of(self._array)

    def is_floating_point(self) -> bool:
        """Whether the dtype is float16, bfloat16, float32 or float64."""
        return self._array.dtype in FLOATING

    def is_inference(self) -> bool:
        """Whether made under `inference_mode`."""
        return self._meta is not None and self._meta.inference

    def stride(self, dim: int | None = None) -> Any:
        """Elements (not bytes) to step in memory from one index to the next, of each dimension or of one."""
        steps = tuple(s // self._array.dtype.itemsize for s in self._array.strides)
        return steps if dim is None else steps[dim]

    def storage_offset(self) -> int:
        """Elements between the start of the underlying memory and the first element of this tensor."""
        array = self._array
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        first = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return int(first // array.dtype.itemsize) if array.size else 0

    def is_contiguous(self) -> bool:
        """Whether the elements lie in memory in row-major order without gaps."""
        return bool(self._array.flags.c_contiguous)

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._array.__array_interface__["data"][0])

    # ------------------------------------------------------------ autograd

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        if self._meta is not None:
            record.refresh(self)
        return self._edge is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) recording operations on this leaf. RuntimeError for integers and for results of recorded operations."""
        record.refresh(self)
        if not requires_grad:
            if self._edge is not None and self._edge is not LEAF:
                raise RuntimeError("requires_grad_: only leaves can stop requiring grad; use detach() for a tensor outside the graph")
            self._edge = None
        elif self._edge is None:
            if self._array.dtype not in FLOATING:
                raise RuntimeError(f"requires_grad_: only floating point tensors can require gradients, not {self.dtype}; use .float()")
            if self.is_inference() and not current().inference:
                raise RuntimeError("requires_grad_: an inference tensor cannot require grad outside inference_mode; clone() it first")
            self._edge = LEAF
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was not computed by a recorded operation."""
        if self._meta is not None:
            record.refresh(self)
        return self._edge is None or self._edge is LEAF

    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor; None for a leaf."""
        if self._meta is not None:
            record.refresh(self)
        edge = self._edge
        return None if edge is None or edge is LEAF else edge.node

    @property
    def output_nr(self) -> int:
        """Which of its node's outputs this tensor is."""
        record.refresh(self)
        edge = self._edge
        return 0 if edge is None or edge is LEAF else int(edge.index)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has added up so far; None before the first."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad: a tensor or None, not {type(value).__name__}")
            if value.shape != self.shape or value._array.dtype != self._array.dtype:
                raise RuntimeError(
                    f"grad: a gradient has its tensor's shape and dtype: {self.shape} {self.dtype}, not {value.shape} {value.dtype}"
                )
        tracer = current().tracer
        if tracer is not None:
            tracer.before_gradient(self)
        self._grad = value

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Add the gradient of this tensor with respect to each leaf to the leaf's `.grad`.

        gradient: needed if this tensor is not a single number: a tensor of its shape, the vector of the vector-Jacobian product.
        The other arguments are those of `gradlab.autograd.backward`.
        """
        autograd.backward([self], [gradient], retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """The same memory outside the graph. Writing either in place is noticed by backward where it matters."""
        record.refresh(self)
        if self._edge is not None:
            cuts.note("detach()", self)
        out: Tensor = record.wrap(self._array)
        inplace.mark_detached(out, self, current())
        return out

    def detach_(self) -> Tensor:
        """Take this tensor itself out of its graph."""
        if self._meta is not None and self._meta.base is not None and not self._meta.hidden:
            raise RuntimeError("detach_: a view cannot be detached in place; use detach()")
        if self._edge is not None:
            cuts.note("detach_()", self)
        self._edge = None
        if self._meta is not None and self._meta.hidden:
            self._meta.base._edge = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory outside the graph, whose changes backward does not notice."""
        mode = current()
        if mode.tracer is not None:
            return self.detach()
        if self._edge is not None:
            cuts.note("data", self)
        return record.wrap(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data: a tensor, not {type(value).__name__}")
        if self._edge is not None and value._array.dtype not in FLOATING:
            raise RuntimeError(f"data: a tensor that requires grad holds floating point numbers, not {value.dtype}")
        tracer = current().tracer
        if tracer is not None:
            tracer.write(self, value._array)
            return
        self._array = value._array
        if self._meta is not None and self._meta.base is not None:
            inplace.leave_base(self._meta)
        if value.is_inference() is not self.is_inference():
            meta_of(self).inference = value.is_inference()

    def retain_grad(self) -> None:
        """Also keep the gradient of this computed tensor in `.grad` at the next backward."""
        record.refresh(self)
        if self._edge is None:
            raise RuntimeError("retain_grad: this tensor does not require grad")
        if self._edge is LEAF:
            return
        inplace.retain(self, self._edge)
        meta_of(self).retains = True

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self._meta is not None and self._meta.retains

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(gradient)` when this tensor's gradient is computed; a tensor that it returns takes the gradient's place."""
        record.refresh(self)
        if self._edge is None:
            raise RuntimeError("register_hook: this tensor does not require grad, so no gradient will come")
        if self._edge is LEAF:
            meta = meta_of(self)
            meta.hooks = {} if meta.hooks is None else meta.hooks
            return add_hook(meta.hooks, hook)
        return add_hook(hooks_of(self._edge.node).outputs.setdefault(self._edge.index, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(tensor)` after a gradient was added to this leaf's `.grad`."""
        record.refresh(self)
        if self._edge is not LEAF:
            raise RuntimeError("register_post_accumulate_grad_hook: only for leaves that require grad")
        meta = meta_of(self)
        meta.post_hooks = {} if meta.post_hooks is None else meta.post_hooks
        return add_hook(meta.post_hooks, hook)

    @property
    def _version(self) -> int:
        """How often this memory was written in place (through this tensor, a view of it or a detached twin)."""
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
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.is_floating_point() or self.numel() != 1:
            raise TypeError(f"only an integer tensor with one element is an index, not {self.dtype} of shape {self.shape}")
        return int(self.item())

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, int, float, np.generic)):
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
        return describe(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaves can be copied deeply; this tensor was computed and has a graph: use detach().clone()")
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin._array, twin._edge, twin._meta = self._array.copy(), self._edge, None
        for name, value in self.__dict__.items():
            twin.__dict__[name] = value.detach().clone() if name == "_grad" and value is not None else copy.deepcopy(value, memo)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("pickle: a computed tensor's graph cannot be pickled; use detach() first")
        return _rebuild, (type(self), dispatch.backend_of(self._array).to_numpy(self._array), self._edge is LEAF)


def _rebuild(kind: type[Tensor], array: Any, requires_grad: bool) -> Tensor:
    made = object.__new__(kind)
    made._array, made._edge, made._meta = array, LEAF if requires_grad else None, None
    return made


record.adopt(Tensor)
