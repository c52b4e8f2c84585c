"""Which rows sparse tensors offer, and how: `RULES` by the row's name. Whatever is not there refuses.

Every function and method that is a row, or is made of such rows, works on sparse tensors by way of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import Any, NoReturn

from gradlab import dispatch
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind
from gradlab.dtype import from_numpy, result_type
from gradlab.layout import sparse_coo
from gradlab.op import Op
from gradlab.ops import ROWS
from gradlab.sparse import entries, products
from gradlab.sparse.array import WAY_OUT, Lacking, Pattern, SparseArray, SparseError, is_sparse, only_eager, refusal, sparse
from gradlab.spec import ShapeError, broadcast_shapes, count
from gradlab.tensor.missing_names import Absent
from gradlab.tensor.selection import index_select
from gradlab.tensor.shape import cat
from gradlab.tensor.tensor import Tensor

# Of one input, 0 at 0: they work on the entries. The first are additive, so entries that share a place stay apart.
ADDITIVE = frozenset(("neg", "cast", "clone"))
AT_ZERO = frozenset((
    "abs", "sqrt", "sin", "tanh", "sign", "square", "floor", "ceil", "trunc", "round", "relu", "root", "expm1", "log1p", "tan", "asin",
    "atan", "sinh", "asinh", "atanh", "signbit", "erf", "erfinv", "gelu", "gelu_tanh", "silu", "mish", "elu", "leaky_relu", "hardswish",
    "isnan", "isinf",
))  # fmt: skip


def run(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """A row some of whose inputs are sparse."""
    only_eager(op.name)
    if op.name in ADDITIVE or op.name in AT_ZERO:
        (x,) = args
        array = x._array
        pattern, values = (array.pattern, array.values) if op.name in ADDITIVE else entries.distinct(array)
        return sparse(pattern, bind(op)(values, **params), array.layout)
    rule = RULES.get(op.name)
    if rule is None:
        raise refusal(op.name)
    try:
        return rule(*args, **params)
    except ShapeError as error:
        raise error if op.name in str(error) else ShapeError(f"{op.name}: {error}") from None


dispatch.layouts[SparseArray] = run


def _number(x: Any) -> bool:
    """Whether this is a Python number or a dense tensor of one element without dimensions."""
    return not isinstance(x, Differentiable) or (not is_sparse(x) and not x._array.shape)


def _of_values(x: Any, values: Any) -> Any:
    return sparse(x._array.pattern, values, x._array.layout)


def _pair(a: Any, b: Any, name: str) -> tuple[Pattern, Any, Any]:
    """Two sparse tensors' coalesced entries at the places of both, or the same places."""
    entries.fitting(name, a, b._array.shape)
    x, y = a._array, b._array
    if len(x.pattern.sizes) != len(y.pattern.sizes):
        raise SparseError(f"{name}: sparse tensors of as many sparse dimensions; x.to_dense() gives a dense tensor")
    if x.pattern.same(y.pattern) and (x.pattern.coalesced or x.layout is not sparse_coo):
        return x.pattern, x.values, y.values
    left, p = entries.coalesced(x.pattern, x.values)
    right, q = entries.coalesced(y.pattern, y.values)
    at, there = entries.places_in(right, left)
    kept = there.nonzero().flatten()
    return Pattern(left.indices[:, kept], left.sizes, True), index_select(p, 0, kept), index_select(q, 0, at[kept])


def _in_layout_of(a: Any, found: Any) -> Any:
    return found if a._array.layout is found._array.layout else found.to_sparse(layout=a._array.layout)


def add(a: Any, b: Any, name: str = "add") -> Any:
    """a + b: two sparse tensors, or a sparse and a dense one, which gives a dense one."""
    if not is_sparse(a):
        a, b = b, a
    if _number(b):
        raise refusal(f"{name} of a sparse tensor and a number")
    if not is_sparse(b):
        shape = b._array.shape
        if broadcast_shapes(a._array.shape, shape) != shape:
            raise refusal(f"{name} of shapes {a._array.shape} and {shape}")
        if a._array.shape != shape:
            return b + a.to_dense()
        dtype = from_numpy(result_type([(x.dtype, len(shape)) for x in (b._array, a._array.values._array)]))
        return entries.add_to(b.to(dtype=dtype), a._array.pattern, a._array.values.to(dtype=dtype))
    entries.fitting(name, a, b._array.shape)
    x, y = a._array, b._array
    if x.pattern.same(y.pattern):
        return _of_values(a, x.values + y.values)
    if len(x.pattern.sizes) != len(y.pattern.sizes):
        raise SparseError(f"{name}: sparse tensors of as many sparse dimensions; x.to_dense() gives a dense tensor")
    both = Pattern(cat([x.pattern.indices, y.pattern.indices], 1), x.pattern.sizes)
    values = cat([x.values, y.values])
    distinct = x.layout is not sparse_coo or (x.pattern.coalesced and y.pattern.coalesced)
    return _in_layout_of(a, sparse(*entries.coalesced(both, values)) if distinct else sparse(both, values))


def sub(a: Any, b: Any) -> Any:
    """a - b"""
    return add(a, -b if isinstance(b, Tensor) else b, "sub")


def _scaled(a: Any, b: Any) -> Any:
    """A sparse tensor times a number or a dense tensor that broadcasts to its shape."""
    if _number(b):
        return _of_values(a, a._array.values * b)
    array = a._array
    if broadcast_shapes(array.shape, b._array.shape) != array.shape:
        raise refusal(f"mul of a sparse tensor of shape {array.shape} and a dense one of shape {b._array.shape}")
    return sparse(array.pattern, array.values * _read(b, array.pattern, array.shape), array.layout)


def _read(b: Any, pattern: Pattern, shape: tuple[int, ...]) -> Any:
    """What a dense tensor that broadcasts to `shape` has at the places of a pattern, without its being spread out."""
    dims = len(pattern.sizes)
    b = b.reshape((1,) * (len(shape) - len(b._array.shape)) + tuple(b._array.shape))
    rest = tuple(b._array.shape[dims:])
    sizes = tuple(b._array.shape[:dims])
    indices = cat([pattern.indices[d : d + 1] * int(sizes[d] != 1) for d in range(dims)])
    return index_select(b.reshape((count(sizes), *rest)), 0, Pattern(indices, sizes).keys())


def mul(a: Any, b: Any) -> Any:
    """a · b, at the places that both have."""
    if is_sparse(a) and is_sparse(b):
        pattern, x, y = _pair(a, b, "mul")
        found = x * y
        return sparse(pattern, found, a._array.layout) if pattern is a._array.pattern else _in_layout_of(a, sparse(pattern, found))
    return _scaled(a, b) if is_sparse(a) else _scaled(b, a)


def _divides(op: Op) -> Callable[..., Any]:
    def divide(a: Any, b: Any) -> Any:
        if not is_sparse(a) or is_sparse(b):
            raise refusal(f"{op.name}: by a sparse tensor")
        if not _number(b):
            raise refusal(f"{op.name}: by a dense tensor, which may hold zeros where there are no entries; x * (1 / d) leaves these out,")
        return _of_values(a, bind(op)(a._array.values, b))

    return divide


def pow(x: Any, exponent: Any) -> Any:
    """x to the power of a number above 0."""
    if not exponent > 0:
        raise refusal(f"pow: the exponent {exponent}, which is not 0 at 0,")
    array = x._array
    pattern, values = entries.distinct(array)
    return sparse(pattern, values**exponent, array.layout)


def pow_tensor(a: Any, b: Any) -> Any:
    """a to the power of b, a number."""
    if is_sparse(b) or not _number(b):
        raise refusal("pow: a tensor of exponents")
    return pow(a, b.item() if isinstance(b, Differentiable) else b)  # type: ignore[attr-defined]


def _limits(op: Op) -> Callable[..., Any]:
    def limit(x: Any, **limits: Any) -> Any:
        lo, hi = limits["lo"], limits["hi"]
        if (lo is not None and lo > 0) or (hi is not None and hi < 0):
            raise refusal(f"{op.name} to [{lo}, {hi}], which is not 0 at 0,")
        array = x._array
        pattern, values = entries.distinct(array)
        return sparse(pattern, bind(op)(values, **limits), array.layout)

    return limit


def joined(*xs: Any, dim: int) -> Any:
    """Sparse tensors one after the other along a sparse dimension."""
    if not all(map(is_sparse, xs)) or any(x._array.layout is not sparse_coo for x in xs):
        raise refusal("cat of tensors of several layouts")
    first = xs[0]._array
    dims, shapes = len(first.pattern.sizes), [x._array.shape for x in xs]
    if dim >= dims or any(len(x._array.pattern.sizes) != dims for x in xs):
        raise refusal("cat along a dense dimension")
    if any((*s[:dim], *s[dim + 1 :]) != (*shapes[0][:dim], *shapes[0][dim + 1 :]) for s in shapes):
        raise SparseError(f"cat: sparse tensors of one shape but for dimension {dim}, not {shapes}")
    parts, before = [], 0
    for x in xs:
        indices = x._array.pattern.indices
        parts.append(cat([indices[:dim], indices[dim : dim + 1] + before, indices[dim + 1 :]]))
        before += x._array.shape[dim]
    sizes = (*first.pattern.sizes[:dim], before, *first.pattern.sizes[dim + 1 :])
    ordered = all(x._array.pattern.coalesced for x in xs)
    made = Pattern(cat(parts, 1), sizes), cat([x._array.values for x in xs])
    return sparse(*(entries.coalesced(*made) if ordered else made))


def summed(x: Any, dim: Any, keepdim: bool) -> Any:
    """Sums along dimensions; over all of them a number."""
    everything = dim is None or dim == () or len(tuple(dim)) == len(x._array.shape)
    return entries.total(x, None if everything and not keepdim else dim, keepdim, None)


RULES: dict[str, Callable[..., Any]] = {
    "add": add, "sub": sub, "mul": mul, "div": _divides(ROWS["div"]), "floor_divide": _divides(ROWS["floor_divide"]),
    "pow": pow, "pow_tensor": pow_tensor, "clamp": _limits(ROWS["clamp"]), "hardtanh": _limits(ROWS["hardtanh"]),
    "matmul": products.matmul, "wide_matmul": products.matmul, "linear": products.linear,
    "cat": joined, "sum": summed,
    "view": entries.reshaped, "t": lambda x: x.t(), "transpose": lambda x, dim0, dim1: x.transpose(dim0, dim1),
}  # fmt: skip

# Methods of Tensor that sparse ones have as they are: facts, and what is made of the rows above.
INHERITED = frozenset((
    *ADDITIVE, *AT_ZERO,
    "absolute", "add", "addmm", "arcsin", "arcsinh", "arctan", "arctanh", "backward", "bfloat16", "bool", "byte", "char", "clamp",
    "clamp_max", "clamp_min", "clip", "conj", "cuda", "deg2rad", "device", "dim", "div", "divide", "double", "dtype", "element_size", "fix",
    "float", "floor_divide", "get_device", "grad", "half", "int", "is_complex", "is_conj", "is_cpu", "is_cuda", "is_floating_point",
    "is_meta", "is_neg", "is_nested", "is_quantized", "is_same_size", "is_signed", "itemsize", "long", "matmul", "mm", "mul", "multiply",
    "mv", "ndim", "ndimension", "negative", "nelement", "new_tensor", "numel", "positive", "pow", "rad2deg", "real", "relu",
    "resolve_conj", "resolve_neg", "sgn", "shape", "short", "size", "smm", "sub", "subtract", "true_divide", "type_as",
))  # fmt: skip


def refuse_the_rest(sparse_class: type[Tensor]) -> None:
    """Let the methods of dense tensors that sparse ones have not say so."""
    for name in dir(Tensor):
        known = getattr_static(Tensor, name)
        if not (name.startswith("_") or name in INHERITED or getattr_static(sparse_class, name) is not known or isinstance(known, Absent)):
            setattr(sparse_class, name, Refused(name, isinstance(known, property)))


class Refused:
    """A method of dense tensors that sparse ones have not."""

    def __init__(self, name: str, at_once: bool) -> None:
        self.name, self.at_once = name, at_once  # at_once: a property, which is not called

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return getattr(Tensor, self.name)
        if self.at_once:
            raise Lacking(f"a sparse tensor has no {self.name}: {WAY_OUT}")

        def refuse(*args: Any, **options: Any) -> NoReturn:
            raise refusal(self.name)

        return refuse
