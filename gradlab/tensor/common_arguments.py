"""What several functions take besides their own arguments: `out=`, and NumPy's `axis` for `dim`.

The functions look at them in one comparison each, so that a call without them pays nothing; what there is to do is done here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.advice import warn as tell
from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.dtype import BOOL, COMPLEX, as_numpy, from_numpy, rank
from gradlab.layout import strided
from gradlab.named_errors import explain

# These write numbers of one type only, as in PyTorch; the others convert what they computed.
EXACT = frozenset({
    "abs", "addbmm", "addmm", "addmv", "alias_copy", "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "argsort",
    "as_strided_copy", "baddbmm", "bitwise_not", "bmm", "bucketize", "ceil", "chain_matmul", "cholesky_ex", "clamp", "clamp_max", "complex",
    "clamp_min", "conj_physical", "cross", "cummax", "cummin", "det", "detach_copy", "diag", "diagonal_copy", "dot", "eigh",
    "eigvalsh", "expand_copy", "fix", "float_power", "floor", "frac", "frexp", "gather", "hardshrink", "heaviside", "histc",
    "histogram", "ifft", "ihfft", "index_add", "index_copy", "index_reduce", "index_select", "inner", "inv_ex", "inverse", "isin",
    "isneginf", "isposinf", "kthvalue", "ldexp", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lerp.Tensor", "linalg.cholesky",
    "linalg.lu", "log_softmax", "logcumsumexp", "lu_factor", "lu_factor_ex", "lu_solve", "lu_unpack", "masked_select", "matmul",
    "matrix_norm", "matrix_power", "max", "median", "min", "mm", "mode", "msort", "multi_dot", "multinomial", "mv", "nan_to_num",
    "nanmedian", "nanquantile", "narrow_copy", "native_batch_norm", "neg", "nonzero", "nonzero_static", "norm", "ormqr",
    "permute_copy", "polar", "qr", "quantile", "renorm", "round", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "select_copy",
    "sgn", "sign", "signbit", "slice_copy", "slice_scatter", "slogdet", "softmax", "solve", "solve_ex", "solve_triangular", "sort",
    "split_copy", "split_with_sizes_copy", "squeeze_copy", "svd", "svdvals", "t_copy", "take", "take_along_dim", "tensordot",
    "topk", "transpose_copy", "triangular_solve", "tril", "triu", "trunc", "unbind_copy", "unfold_copy", "unsqueeze_copy", "vdot",
    "vecdot", "vector_norm", "view_copy", "where",
})  # fmt: skip


def only_tensors(name: str, *values: Any) -> None:
    """Raise TypeError unless all are tensors: where PyTorch takes no number, list or array, and for None, a forgotten `return`."""
    for value in values:
        if not isinstance(value, Differentiable):
            raise TypeError(f"{name}: takes tensors here, not {type(value).__name__}; use gradlab.tensor(...)")


def few_enough(name: str, what: str, number: int, size: int = 0) -> None:
    """Raise RuntimeError for a number of parts, steps or terms that no memory or patience suffices for: more than a million, and than
    `size`, of what there is. Without it a wrong argument is a loop without an end."""
    if number > max(size, 1 << 20):
        raise RuntimeError(f"{name}: {number} {what} are more than can be made; at most {max(size, 1 << 20)}")


def only_real(name: str, *values: Any) -> None:
    """Raise TypeError for complex tensors and numbers: where what is computed has a meaning, or a place, for real ones alone."""
    for value in values:
        if type(value) is complex or (isinstance(value, Differentiable) and value._array.dtype in COMPLEX):
            raise TypeError(f"{name}: is not defined for complex numbers; apply it to x.real and x.imag, or to x.abs(), whichever is meant")


def into(name: str, out: Any, result: Any, inputs: Sequence[Any] = (), *, warn: bool = True) -> Any:
    """Write a function's result into `out` (a tensor, or one for each result) and return that.

    inputs: tensors that `out` may share no memory with, for the functions where PyTorch refuses that. warn: whether giving `out` another
    shape is worth a warning.
    RuntimeError where the result's kind does not fit into the type of `out`, where gradients are recorded, where several elements of `out`
    lie in one place. A tensor of another shape is given the result's shape, with a UserWarning if it had elements.
    """
    try:
        for x in inputs:
            if isinstance(x, Differentiable) and isinstance(out, Differentiable) and _overlap(out._array, x._array):
                raise RuntimeError(f"{name}(): out shares memory with an input of shape {tuple(x._array.shape)}; give a tensor of its own")
        if isinstance(result, Differentiable):
            if not isinstance(out, Differentiable):
                raise TypeError(f"{name}(): argument 'out' must be a tensor, not {type(out).__name__}")
            return _write(name, out, result, warn)
        check_outs(name, out, len(result))
        outs = tuple(into(name, o, r, inputs, warn=warn) for o, r in zip(out, result, strict=True))
        return outs if type(result) is tuple else type(result)(*outs)
    except Exception as error:
        explain(error, name, into, (name, out, result), depth=1)


def check_outs(name: str, out: Any, number: int) -> None:
    """Raise TypeError unless `out` is a tensor for each of several results; called before other things are written."""
    if not isinstance(out, (tuple, list)) or len(out) != number:
        raise TypeError(f"{name}(): argument 'out' must be a tuple of {number} tensors, one for each result")
    for o in out:
        if not isinstance(o, Differentiable):
            raise TypeError(f"{name}(): argument 'out' must be a tensor, not {type(o).__name__}")


def _write(name: str, out: Any, result: Any, warn: bool) -> Any:
    if out.is_sparse != result.is_sparse:
        found, given = ("sparse" if t.is_sparse else "dense" for t in (result, out))
        raise RuntimeError(f"{name}(): the result is {found}, but out is {given}; use the function's result")
    mode = current()
    if mode.recording and (result._edge is not None or out._edge is not None):
        which = "one of the arguments" if result._edge is not None else "the tensor to write to"
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but {which} requires grad; "
            f"use the function's result, or no_grad()"
        )
    found, wanted = result._array.dtype, out._array.dtype
    if found != wanted:
        loses = rank(found) > rank(wanted) or (wanted == BOOL and found != BOOL)
        mask = name in ("all", "any") and wanted == np.uint8  # what masks were once
        if loses or (not mask and (name in EXACT or name.rpartition(".")[2] in EXACT)):
            raise RuntimeError(
                f"{name}(): result type {from_numpy(found)} can't be cast to the desired output type {from_numpy(wanted)}; "
                f"make out a tensor of the result's type"
            )
        result = result.to(wanted)
    if result.device != out.device:
        raise RuntimeError(f"{name}(): the result is on {result.device}, but out is on {out.device}")
    inplace.check(name, out, mode)
    steps = zip(getattr(out._array, "strides", ()), out._array.shape)
    if 0 not in out._array.shape and any(step == 0 and size > 1 for step, size in steps):
        raise RuntimeError(f"{name}(): several elements of out, of shape {tuple(out._array.shape)}, lie in one place; clone() it first")
    if result._array.shape == out._array.shape:
        return inplace.write(name, out, result)
    if out._base is not None:
        raise RuntimeError(f"{name}(): out is a view of shape {out.shape}, which cannot be resized to {result.shape}; give its own tensor")
    if warn and out.numel():
        tell(
            UserWarning,
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match the required "
            f"output shape {list(result.shape)}. out.resize_(0) says that this is meant",
        )
    return inplace.rebind(out, result.clone()._array, None, mode)


_SEQUENCES = ("arange", "linspace", "logspace", "range")


def made(name: str, out: Any, dtype: Any, device: Any, make: Callable[[Any, Any], Any]) -> Any:
    """Let a function that makes tensors, `make(dtype, device)`, make one like `out`, and write it there. A sequence goes into an `out` of
    another shape with as many elements in order, as in PyTorch.

    RuntimeError for a dtype or device that is not that of `out`.
    """
    if not isinstance(out, Differentiable):
        raise TypeError(f"{name}(): argument 'out' must be a tensor, not {type(out).__name__}")
    own, place = out._array.dtype, out.device  # type: ignore[attr-defined]
    if dtype is not None and as_numpy(dtype) != own:
        raise RuntimeError(f"{name}(): dtype {from_numpy(as_numpy(dtype))} does not match dtype of out parameter ({from_numpy(own)})")
    if device is not None and (Device(device).type, Device(device).index or 0) != (place.type, place.index or 0):
        raise RuntimeError(f"{name}(): device {Device(device)} does not match device of out parameter ({place})")
    result = make(own, place)
    if name in _SEQUENCES and result.numel() == out.numel():  # type: ignore[attr-defined]
        result = result.reshape(out._array.shape)
    return into(name, out, result, warn=False)


def plain(name: str, options: dict[str, Any]) -> None:
    """Look at what functions that make tensors take besides, and what changes nothing here: `layout` (strided), `pin_memory` (copies to a
    GPU need none) and `names` (None). NotImplementedError for another layout or for names, TypeError for other keywords."""
    for word, value in options.items():
        if word not in ("layout", "pin_memory", "names"):
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}")
        if word != "pin_memory" and value is not None and value is not strided:
            raise NotImplementedError(
                f"{name}: {word}={value!r} is not offered here: tensors are strided (gl.sparse_coo_tensor(size) is not), and without names"
            )


def sized(name: str, size: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """The sizes, which may come as the keyword `size`; the other keywords are `plain`'s."""
    if "size" in options:
        if size:
            raise TypeError(f"{name}() got sizes and size={options['size']!r}, which are one argument; give one of them")
        size = (options.pop("size"),)
    plain(name, options)
    return size


def _overlap(a: Any, b: Any) -> bool:
    """Whether two arrays share memory; a tensor with itself also where memory cannot be compared."""
    return a is b or (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b))


def either(name: str, dim: Any, default: Any, axis: Any) -> Any:
    """`axis`, where `dim` was left at its default. TypeError for both."""
    if dim is not default and dim != default:
        raise TypeError(f"{name}(): got both dim={dim} and axis={axis}, which are one argument; give one of them")
    return axis


def one_of(name: str, given: tuple[Any, ...], dims: Any) -> tuple[Any, ...]:
    """What stands in places, or as `dims`. TypeError for both."""
    if given and dims is not None:
        raise TypeError(f"{name}() got multiple values for argument 'dims'")
    return given if dims is None else (dims,)


def required(name: str, dim: Any, axis: Any) -> Any:
    """The one of `dim` and `axis` that was given. TypeError for none and for both."""
    if dim is None and axis is None:
        raise TypeError(f"{name}() missing 1 required positional argument: 'dim'")
    return dim if axis is None else either(name, dim, None, axis)


def takes_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which takes `axis` for `dim`, too: for those where a call's cost is not the wrapper's."""
    signature = inspect.signature(function)
    place = list(signature.parameters).index("dim")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (axis := kwargs.pop("axis", None)) is not None:
            if len(args) > place or kwargs.get("dim") is not None:
                dim = args[place] if len(args) > place else kwargs["dim"]
                raise TypeError(f"{function.__name__}(): got both dim={dim} and axis={axis}, which are one argument; give one of them")
            kwargs["dim"] = axis
        return function(*args, **kwargs)

    axis = inspect.Parameter("axis", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), axis])  # type: ignore[attr-defined]
    vars(call).pop("names_itself", None)  # which it does only where a user calls it
    return call


def functions_take_axis(name: str) -> None:
    """`takes_axis` for all public functions of a module that have a `dim`; before `named_functions`."""
    module = vars(sys.modules[name])
    for word in module["__all__"]:
        parameters = inspect.signature(module[word]).parameters
        if "dim" in parameters and "axis" not in parameters:
            module[word] = takes_axis(module[word])
