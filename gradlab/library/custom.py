"""`custom_op`: an operation of one's own from its parts, as a row like those of `gradlab.ops`."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from gradlab.autograd.record import bind
from gradlab.backends.cuda.launch import BY_ROW
from gradlab.dtype import as_numpy
from gradlab.kernel import Elementwise, Library
from gradlab.library import expression as expressions, signature as signatures, source
from gradlab.library.signature import Signature
from gradlab.library.source import CudaSource
from gradlab.library.tensor_op import TensorOp
from gradlab.op import Op
from gradlab.spec import DimensionError, ShapeError, Spec, broadcast_shapes

_NAME = re.compile(r"_?[a-zA-Z]\w*::_?[a-zA-Z]\w*")
_operations: dict[str, CustomOp | TensorOp] = {}
_lock = threading.Lock()
_made: dict[str, int] = {}  # how often each name was defined

Grad = Callable[..., Any] | dict[Any, Callable[..., Any]] | None
AUTOMATIC: Any = "automatic"


class CustomOp:
    """An operation made by `custom_op`. Calling it runs it on tensors.

    `row` is what gradlab knows of it, `reference` the NumPy function.
    """

    def __init__(self, name: str, row: Op, reference: Callable[..., Any], signature: Signature, cuda: Any) -> None:
        self.name, self.row, self.reference, self.signature, self.cuda = name, row, reference, signature, cuda
        self.__name__ = name.partition("::")[2]
        self.__doc__ = reference.__doc__
        self._call: Callable[..., Any] = bind(row)
        self._plain = not signature.params

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._plain and not kwargs and len(args) == len(self.signature.inputs):
            return self._call(*args)
        inputs, params = signatures.bound(self.name, self.signature, args, kwargs)
        return self._call(*inputs, **params)

    @property
    def default(self) -> CustomOp:
        """Its only overload: itself."""
        return self

    def __repr__(self) -> str:
        return f"<custom op {self.name}{self.signature}>"

    def __deepcopy__(self, memo: Any) -> CustomOp:
        return self

    def __reduce__(self) -> Any:
        return get, (self.name,)


def get(name: str) -> CustomOp | TensorOp:
    """The operation of that name. KeyError where none was made (in this process)."""
    if name not in _operations:
        raise KeyError(f"no operation {name!r} was made by gl.library.custom_op; there are {', '.join(_operations) or 'none'}")
    return _operations[name]


def custom_op(
    name: str,
    reference: Callable[..., Any] | None = None,
    *,
    cuda: str | CudaSource | None = None,
    infer: Callable[..., Any] | None = None,
    grad: Grad = None,
    outputs: Sequence[str] | None = None,
    promote: Literal["same", "float", "automatic"] | None = AUTOMATIC,
    replace: bool = False,
    mutates_args: str | Iterable[str] | None = None,
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """An operation of one's own, for eager use, traces, `gl.compile` and `gl.vmap`, on CPU and CUDA devices.

    name: "namespace::operation".
    reference: a NumPy function of the inputs. Its positional parameters are the operation's tensors (default None: optional), its
    keyword-only ones static values, whose type is that of their default or annotation. It returns an array, or a tuple for several
    outputs; or, where its last positional parameters are named as `outputs` says, it writes into them. It may not change its inputs;
    float16 and bfloat16 reach it as float32. It runs on the CPU, and on CUDA devices where `cuda` is None (through the host). Without
    it the call returns a decorator for it.
    cuda: a string is an elementwise expression of inputs and parameters in the terms of kernels/scalar_math.h, where `T` is the type it is
    computed in and literals are written `T(0.5)`; it is fused with its neighbours by `gl.compile`. A `CudaSource` is a kernel in CUDA C++.
    infer: a function of the inputs' Specs (`shape`, `dtype`) and of parameters that it names, which returns the output's Spec (a tuple for
    several). By default all outputs are like the first input; for an expression the inputs are broadcast.
    grad: formulas written with Tensor methods: a dict by input, or by a tuple of inputs for one that returns several gradients, or one
    function for all inputs. A formula's parameter names say what it gets: `g` (of several outputs `g_<output>`), inputs, outputs (`y`),
    `<input>_spec`, parameters; None for no gradient. Without it the operation is not differentiable.
    outputs: names of the outputs; by default one, `y` ("out" where an input is called y).
    promote: "float" casts inputs to their common floating point type, "same" to their common type, None leaves them. By default "float"
    for expressions, otherwise None.
    replace: allow a name that was used before, as when a notebook's cell runs again.
    mutates_args: given, as PyTorch's programs do, reference is a function of tensors, not of arrays, and this says which of them it writes
    to; all other options but device_types, schema and tags, which are taken, have no meaning then. `register_autograd` gives the gradient.

    Raises ValueError or TypeError, saying what does not fit, when the operation is made.

    >>> import numpy as np, gradlab as gl
    >>> squared_relu = gl.library.custom_op(
    ...     "docs::squared_relu", lambda x: np.maximum(x, 0) ** 2, cuda="square(maximum(x, T(0)))",
    ...     grad=lambda g, x: g * 2 * x.clamp(min=0),
    ... )
    >>> x = gl.tensor([-1.0, 3.0], requires_grad=True)
    >>> squared_relu(x)
    tensor([0., 9.], grad_fn=<DocsSquaredReluBackward0>)
    >>> squared_relu(x).sum().backward(); x.grad
    tensor([0., 6.])
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or "__" in name:
        raise ValueError(f"custom_op: a name is of the form 'namespace::operation' (letters, digits, single underscores), not {name!r}")
    if reference is None:
        return lambda function: custom_op(
            name, function, cuda=cuda, infer=infer, grad=grad, outputs=outputs, promote=promote, replace=replace, mutates_args=mutates_args,
        )  # fmt: skip
    if mutates_args is not None:
        _operations[name] = TensorOp(name, reference, mutates_args)  # anew, as PyTorch does
        return _operations[name]
    if name in _operations and not replace:
        raise ValueError(f"custom_op: {name!r} exists already; choose another name, or pass replace=True to define it anew")
    if isinstance(outputs, str):
        outputs = (outputs,)
    signature = signatures.read(name, reference, outputs)
    results = _outputs(name, outputs, signature)
    expression = cuda if isinstance(cuda, str) else None
    _check_cuda(name, cuda, signature, results)
    if promote == "automatic":
        promote = "float" if expression is not None else None
    rule = _named_rule(signature.inputs, _rule(name, signature, results, infer, expression))
    with _lock:
        if name in _operations and not replace:
            raise ValueError(f"custom_op: {name!r} exists already; choose another name, or pass replace=True to define it anew")
        number = _made.get(name, 0) + 1
        label = name.replace("::", "__") + (f"__{number}" if number > 1 else "")
        description: Any = Elementwise(expression) if expression is not None else None if cuda is None else Library(_not_called)
        try:
            row = Op(
                label, rule, cpu=_cpu(name, reference, signature, results), cuda=description, params=tuple(signature.params),
                outputs=results, grad=_grad(name, grad, signature), promote=promote, foreign=True,
            )  # fmt: skip
        except (ValueError, TypeError) as error:
            raise type(error)(f"custom_op {name}: {str(error).removeprefix(f'row {label}: ')}") from None
        if isinstance(cuda, CudaSource):
            BY_ROW[label] = source.rule(name, cuda, signature.inputs, results)
        _made[name] = number
        made = _operations[name] = CustomOp(name, row, reference, signature, cuda)
    return made


def _not_called(*_: Any) -> Any:
    raise AssertionError("a kernel of one's own is launched by its rule")


def _outputs(name: str, outputs: Sequence[str] | None, signature: Signature) -> tuple[str, ...]:
    if outputs is None:
        return ("out",) if "y" in (*signature.inputs, *signature.params) else ("y",)
    found = tuple(outputs)
    if not found or len(set(found)) < len(found) or not all(isinstance(n, str) and n.isidentifier() for n in found):
        raise ValueError(f"custom_op {name}: outputs are different names, not {outputs!r}")
    return found


def _check_cuda(name: str, cuda: Any, signature: Signature, outputs: tuple[str, ...]) -> None:
    if isinstance(cuda, str):
        if "__global__" in cuda or cuda.endswith((".cu", ".cuh")):
            raise ValueError(f"custom_op {name}: a kernel's text or file is given as gl.library.CudaSource(source, kernel, launch)")
        if len(outputs) > 1:
            raise ValueError(f"custom_op {name}: an expression gives one output, not {len(outputs)}; use gl.library.CudaSource")
        expressions.check(name, cuda, signature.inputs, tuple(signature.params))
    elif isinstance(cuda, CudaSource):
        cuda.check(name, (*signature.inputs, *outputs, *signature.params))
    elif cuda is not None:
        raise TypeError(f"custom_op {name}: cuda is an expression, a gl.library.CudaSource or None, not {type(cuda).__name__}")


def _grad(name: str, grad: Any, signature: Signature) -> dict[Any, Callable[..., Any]]:
    if grad is None or isinstance(grad, dict):
        return grad or {}
    if not callable(grad):
        raise TypeError(f"custom_op {name}: grad is a dict of formulas or a function, not {type(grad).__name__}")
    return {signature.inputs if len(signature.inputs) > 1 else signature.inputs[0]: grad}


def _cpu(name: str, reference: Callable[..., Any], signature: Signature, outputs: tuple[str, ...]) -> Callable[..., Any]:
    """The row's CPU function."""
    inputs = len(signature.inputs)

    def write(*arrays: Any, **params: Any) -> None:
        reference(*arrays, **params)

    def compute(*arrays: Any, **params: Any) -> None:
        found = reference(*arrays[:inputs], **params)
        targets = arrays[inputs:]
        results = found if isinstance(found, tuple) else (found,)
        if len(results) != len(targets):
            raise RuntimeError(f"{name}: the reference returned {len(results)} array(s), but the outputs are {', '.join(outputs)}")
        for output, target, result in zip(outputs, targets, results):
            value = np.asarray(result)
            if value.shape != target.shape:
                raise RuntimeError(
                    f"{name}: the reference gave {output} the shape {value.shape}, but infer says {target.shape}; mend one of them "
                    f"(without infer= an output is like the first input)"
                )
            if value.dtype != target.dtype and not np.can_cast(value.dtype, target.dtype, "same_kind"):
                raise TypeError(f"{name}: the reference gave {output} the dtype {value.dtype}, but infer says {target.dtype}")
            np.copyto(target, value, casting="same_kind")

    return write if signature.writes else compute


def _rule(
    name: str, signature: Signature, outputs: tuple[str, ...], infer: Callable[..., Any] | None, expression: str | None
) -> Callable[..., Any]:
    """The row's rule, as a function of a tuple of Specs and a dict of parameters."""
    if infer is None:
        return _broadcast if expression is not None else lambda specs, params: specs[0] if len(outputs) == 1 else (specs[0],) * len(outputs)
    if not callable(infer):
        raise TypeError(f"custom_op {name}: infer is a function of Specs, not {type(infer).__name__}")
    taken = inspect.signature(infer).parameters
    everything = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    unknown = [n for n, p in taken.items() if p.kind is p.KEYWORD_ONLY and n not in signature.params and p.default is p.empty]
    places = [p for p in taken.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in taken.values())
    named = [n for n in signature.params if everything or n in taken]
    if unknown:
        raise ValueError(f"custom_op {name}: infer asks for {', '.join(unknown)}, which is no parameter of {name}{signature}")
    if not variadic and len([p for p in places if p.name not in signature.params]) != len(signature.inputs):
        raise ValueError(f"custom_op {name}: infer takes the Specs of {', '.join(signature.inputs)} in this order, not {tuple(taken)}")

    def rule(specs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        try:
            found = infer(*specs, **{n: params[n] for n in named if n in params})
        except (ShapeError, DimensionError):
            raise
        except ValueError as error:
            raise ShapeError(str(error)) from None
        several = (found,) if isinstance(found, Spec) else found
        if not isinstance(several, (tuple, list)) or len(several) != len(outputs) or not all(isinstance(s, Spec) for s in several):
            raise TypeError(f"infer returns a gl.library.Spec for each of {', '.join(outputs)}, not {found!r}")
        made = tuple(Spec(tuple(map(int, s.shape)), as_numpy(s.dtype)) for s in several)
        if expression is not None and made[0].shape != broadcast_shapes(*(s.shape for s in specs if s is not None)):
            raise ShapeError(f"infer says {made[0].shape}, but an expression's output has the shape that its inputs broadcast to")
        return made[0] if len(made) == 1 else made

    return rule


def _broadcast(specs: tuple[Any, ...], params: dict[str, Any]) -> Spec:
    present = [s for s in specs if s is not None]
    dtype = next((s.dtype for s in present if s.dtype.kind != "b"), present[0].dtype)
    return Spec(broadcast_shapes(*(s.shape for s in present)), dtype)


def _named_rule(inputs: tuple[str, ...], rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the inputs' names as its parameters, where `Op` reads them."""
    listed = ", ".join(inputs)
    made: Callable[..., Any] = eval(f"lambda {listed}, **_params: _rule(({listed},), _params)", {"_rule": rule})
    return made
