"""Invertible functions with the logarithm of how they stretch space, from which `TransformedDistribution` makes distributions."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from gradlab.distributions.constraints import Constraint
from gradlab.distributions.joint import summed
from gradlab.distributions.rounding import Measured
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros_like

Shape = tuple[int, ...]


def _dims_of(which: str) -> property:
    return property(lambda self: getattr(self, which).event_dim)


_UNTOLD = {"_cache_size": 0, "_cached_x_y": None, "_inv": None}  # what an object keeps, and what says nothing of its function


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, tensors in all their elements and in shape."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return getattr(a, "shape", ()) == getattr(b, "shape", ()) and bool((a == b).all())
    return bool(a == b)


class Transform(Measured):
    """A function y of x: `t(x)`, its inverse `t.inv(y)`, and `t.log_abs_det_jacobian(x, y)`, the logarithm of the volume's factor.

    dim_in, dim_out: how many of the last dimensions are one value of x, and of y. cache_size: 1 keeps the last pair, so that the inverse of
    the very tensor that was made gives its x, without rounding.
    """

    bijective = False
    dim_in = dim_out = 0
    domain: Any  # the sets that it takes and gives: see transform_domains.py
    codomain: Any

    def __init_subclass__(cls, **options: Any) -> None:
        """A transform of a user's says by its domain and codomain how many dimensions are one value."""
        super().__init_subclass__(**options)
        for which, dims in (("domain", "dim_in"), ("codomain", "dim_out")):
            found = vars(cls).get(which)
            if isinstance(found, property):  # of each object
                setattr(cls, dims, _dims_of(which))
            elif isinstance(found, Constraint):
                setattr(cls, dims, found.event_dim)

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size is 0 or 1, not {cache_size!r}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        self._inv: Any = None
        super().__init__()  # of a class that is a module, too

    def __eq__(self, other: object) -> bool:
        """Whether both are the same function: of a kind that is gradlab's own, with equal numbers; any other is equal to itself alone."""
        if self is other or type(self) is not type(other) or not type(self).__module__.startswith("gradlab."):
            return self is other
        return _same({**vars(self), **_UNTOLD}, {**vars(other), **_UNTOLD})

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def sign(self) -> Any:
        """1 where it rises, -1 where it falls; `cdf` asks for it."""
        raise NotImplementedError(f"{type(self).__name__} has no sign; define one: 1 if it rises, -1 if it falls")

    @property
    def event_dim(self) -> int:
        """How many of the last dimensions are one value, on both sides alike. ValueError where they are not."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"{type(self).__name__}: event_dim differs between its sides; ask domain.event_dim or codomain.event_dim")
        return int(self.domain.event_dim)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        """x of y."""
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    @property
    def inv(self) -> Transform:
        """The inverse as a transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx|, one number for each value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for that of x."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for that of y."""
        return shape

    @property
    def cache_size(self) -> int:
        """1 if the last pair is kept."""
        return self._cache_size

    def with_cache(self, cache_size: int = 1) -> Transform:
        """This transform, or a copy, that keeps the last pair or (0) does not."""
        if self._cache_size == cache_size:
            return self
        twin = copy.copy(self)
        twin._cache_size, twin._cached_x_y, twin._inv = cache_size, (None, None), None
        return twin

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, inner: Transform) -> None:
        super().__init__()
        self._inner = inner
        self.dim_in, self.dim_out, self.bijective = inner.dim_out, inner.dim_in, inner.bijective

    @property
    def sign(self) -> Any:
        """As the other's."""
        return self._inner.sign

    @property
    def inv(self) -> Transform:
        """The other."""
        return self._inner

    def __call__(self, x: Tensor) -> Tensor:
        return self._inner._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        """x of y."""
        return self._inner(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Less that of the other."""
        return -self._inner.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for that of x."""
        return self._inner.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for that of y."""
        return self._inner.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self._inner!r}.inv"


class ComposeTransform(Transform):
    """One after the other, the first first.

    >>> from gradlab.distributions import AffineTransform, ComposeTransform, ExpTransform
    >>> t = ComposeTransform([AffineTransform(0.0, 2.0), ExpTransform()])
    >>> t(gl.zeros(1)), t.inv(gl.ones(1))
    (tensor([1.]), tensor([0.]))
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)
        for p in reversed(self.parts):
            self.dim_in = max(self.dim_in + p.dim_in - p.dim_out, p.dim_in)
        for p in self.parts:
            self.dim_out = max(self.dim_out + p.dim_out - p.dim_in, p.dim_out)

    @property
    def sign(self) -> Any:
        """The product of theirs."""
        found: Any = 1
        for p in self.parts:
            found = found * p.sign
        return found

    def _call(self, x: Tensor) -> Tensor:
        for p in self.parts:
            x = p(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for p in reversed(self.parts):
            y = p._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of theirs."""
        if not self.parts:
            return zeros_like(x)
        found: Any = 0
        dims = self.dim_in
        for i, p in enumerate(self.parts):
            z = y if i == len(self.parts) - 1 else p(x)
            found = found + summed(p.log_abs_det_jacobian(x, z), dims - p.dim_in)
            dims += p.dim_out - p.dim_in
            x = z
        return found

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for that of x."""
        for p in self.parts:
            shape = p.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for that of y."""
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform over vectors: `reinterpreted_batch_ndims` more of the last dimensions are one value.

    >>> from gradlab.distributions import ExpTransform, IndependentTransform
    >>> x = gl.ones(3)
    >>> t = IndependentTransform(ExpTransform(), 1)
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor(3.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.dim_in = base_transform.dim_in + reinterpreted_batch_ndims
        self.dim_out = base_transform.dim_out + reinterpreted_batch_ndims

    @property
    def sign(self) -> Any:
        """As the base's."""
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The other's, summed."""
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for that of x."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for that of y."""
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The last dimensions, of shape `in_shape`, in the shape `out_shape`.

    >>> from gradlab.distributions import ReshapeTransform
    >>> ReshapeTransform((4,), (2, 2))(gl.zeros(3, 4)).shape
    (3, 2, 2)
    """

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} have different numbers of elements")
        self.dim_in, self.dim_out = len(self.in_shape), len(self.out_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """0."""
        return x.new_zeros(x.shape[: x.ndim - self.dim_in])

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for that of x."""
        return _swapped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for that of y."""
        return _swapped(shape, self.out_shape, self.in_shape)


def _swapped(shape: Shape, end: Shape, by: Shape) -> Shape:
    cut = len(shape) - len(end)
    if cut < 0 or shape[cut:] != end:
        raise ValueError(f"ReshapeTransform: a shape that ends in {end} is expected, not {shape}")
    return (*shape[:cut], *by)
