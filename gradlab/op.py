"""One operation is one row: an `Op` says everything about a primitive.

Rows are made in `ops/*.py`, one file per family. A row is checked once, when it is made: a gradient formula that names something the
row does not have is an error there. Calling a row with raw arrays runs it; with Tensors it is recorded (see `autograd/record.py`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Literal

import numpy as np

from gradlab import dispatch
from gradlab.dtype import wide
from gradlab.kernel import Elementwise
from gradlab.quiet import quieted
from gradlab.spec import DimensionError, ShapeError, Spec
from gradlab.strides import like_operands

Formula = Callable[..., Any]
Promotion = Literal["same", "float"] | None
NEVER = sys.maxsize
_VARIADIC = 0x04  # the code flag of a function with *args


def positional(function: Callable[..., Any]) -> tuple[tuple[str, ...], bool, frozenset[str]]:
    """A function's positional parameters, whether it takes `*args` (whose name then comes last), and those that default to None.

    Read from the code object: `inspect.signature` takes 20 µs, which several hundred formulas make noticeable at import.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"rules and formulas are plain functions, not {function!r}")
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    optional = frozenset(n for n, d in zip(names[len(names) - len(defaults) :], defaults, strict=True) if d is None)
    variadic = bool(code.co_flags & _VARIADIC)
    if variadic:
        names = (*names, code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
    return names, variadic, optional


def result_class(name: str, outputs: tuple[str, ...]) -> type:
    """A named tuple of a row's outputs, shown as `max(values=…, indices=…)`. `namedtuple` compiles text: 15 times slower."""

    def build(cls: type, *values: Any) -> Any:
        return tuple.__new__(cls, values)

    def text(self: Any) -> str:
        return f"{name}({', '.join(f'{field}={value!r}' for field, value in zip(outputs, self, strict=True))})"

    fields = {field: property(operator.itemgetter(i)) for i, field in enumerate(outputs)}
    return type(name, (tuple,), {"__slots__": (), "__new__": build, "__repr__": text, "_fields": outputs, **fields})


class Step:
    """One gradient formula: which inputs it serves, and which values it asks for by its parameter names."""

    __slots__ = ("formula", "joint", "optional", "targets", "wants")

    def __init__(self, targets: tuple[str, ...], joint: bool, formula: Formula) -> None:
        self.targets = targets
        self.joint = joint
        self.formula = formula
        self.wants, _, self.optional = positional(formula)


class Op:
    """A primitive operation.

    name      in lower case; a recorded node of `mul` is called `MulBackward0`.
    rule      maps the inputs' Specs and the parameters to one Spec or a tuple of Specs (one for each of `outputs`). Its positional
              parameters name the inputs; one `*xs` is a variadic input. It raises ShapeError/DimensionError/TypeError, without the name.
    cpu       the NumPy side, `cpu(*inputs, *outputs, **params)`, writing into the outputs; a view row returns a view instead, a
              dynamic row (size known only after running) returns its result.
    cuda      a description from `gradlab.kernel`, or None where the CUDA backend runs `cpu` through CuPy views.
    params    names of the static parameters, which are passed by keyword.
    outputs   names of the outputs; one output is called `y`.
    grad      formulas by input name (or a tuple of names for a joint formula, which returns a tuple). A formula's parameters say what
              backward keeps: `g` or `g_<output>`, an output, an input, `<input>_spec`, a parameter. Written with Tensor methods.
    promote   "same": inputs are cast to their common result type; "float": the same, and integers become the default float type.
    exact     True where half types need no float32 arithmetic (copies, comparisons, indexing); of every view.
    view      the output shares the input's memory; `inverse(base, value, **params)` gives the base that a write to the view makes.
    dynamic   the output's shape depends on values; a trace refuses the row and names `instead`.
    scratch   Specs of the work space that the CUDA kernel needs, from the same arguments as `rule`.
    autocast  what autocast does with the inputs: "lower", "float32" and others (see gradlab/amp/autocast_mode.py).
    batch     the vmap rule.
    foreign   True where `cpu` calls code of users', which runs in their own context (gradlab/quiet.py).
    varying   parameters that have another value in each call, and that kernels take as they are: nothing is kept for each of their values.
    sharp     True where the gradient is computed from the result in a way that the rounding of a half type would spoil: on half types that
              need a gradient the row runs in float32, between casts.
    roundings how many steps of a gradient round their results, at most; read from the formulas unless it is given (autograd/rounding.py).
    complex   what becomes of complex inputs: None, they are refused; else see gradlab/ops/complex.py, where it is set.
    lies      how results lie in memory where an input does not lie row by row (a function of gradlab/strides.py): as the operands of an
              elementwise row unless it is False, otherwise row by row unless given. Asked by whoever runs the row; `cpu` itself always
              writes row-major outputs.
    """

    def __init__(
        self,
        name: str,
        rule: Callable[..., Any],
        *,
        cpu: Callable[..., Any],
        cuda: Any = None,
        params: tuple[str, ...] = (),
        outputs: tuple[str, ...] = ("y",),
        grad: Mapping[str | tuple[str, ...], Formula] | None = None,
        promote: Promotion = None,
        exact: bool = False,
        view: bool = False,
        inverse: Formula | None = None,
        dynamic: bool = False,
        instead: str = "",
        scratch: Callable[..., Any] | None = None,
        autocast: str | None = None,
        batch: Callable[..., Any] | None = None,
        foreign: bool = False,
        varying: tuple[str, ...] = (),
        sharp: bool = False,
        roundings: int | None = None,
        lies: Callable[..., Any] | Literal[False] | None = None,
    ) -> None:
        self.name, self.rule, self.cpu, self.cuda = name, rule, cpu, cuda
        self.params, self.outputs = params, outputs
        self.promote, self.exact, self.view, self.inverse = promote, exact or view, view, inverse
        self.dynamic, self.instead, self.scratch = dynamic, instead, scratch
        self.autocast, self.batch, self.foreign, self.varying = autocast, batch, foreign, varying
        self.sharp, self.roundings = sharp, roundings
        self.complex: Any = None
        self.together = "by" in params  # whether several processes run it (ops/collective.py): then none of them may leave it out
        self.elementwise = isinstance(cuda, Elementwise) and not outputs[1:]
        self.lies = like_operands if lies is None and self.elementwise else lies or None
        self.pays = NEVER  # from how many elements on `dispatch.by_kernel` is asked first, on the CPU (backends/native/thresholds.py)
        self.quietly = quieted(cpu, foreign)  # `cpu` without NumPy's warnings
        self.fixed = tuple([name for name in params if name not in varying])  # what is kept for a call depends on these
        self.inputs, self.variadic, _ = positional(rule)
        self.steps = tuple(
            Step((key,) if isinstance(key, str) else key, not isinstance(key, str), formula)
            for key, formula in (grad or {}).items()
        )
        self.result = result_class(name, outputs) if len(outputs) > 1 else None
        self.call: Callable[..., Any] | None = None  # the recorded call, made once by autograd.record.bind
        self.node: Any = None  # the Node subclass, made with it
        self._check()
        kept = dict.fromkeys(w for step in self.steps for w in step.wants)
        self.kept_inputs = tuple(w for w in kept if w in self.inputs)
        self.kept_outputs = tuple(w for w in kept if w in self.outputs)

    def _check(self) -> None:
        gradients = set() if not self.steps else {"g"} if len(self.outputs) == 1 else {f"g_{o}" for o in self.outputs}
        specs = {f"{i}_spec" for i in self.inputs} | {f"{o}_spec" for o in self.outputs}
        known = gradients | specs | set(self.inputs) | set(self.outputs) | set(self.params)
        if len(known) != len(gradients) + len(specs) + len(self.inputs) + len(self.outputs) + len(self.params):
            raise ValueError(f"row {self.name}: an input, an output and a parameter share a name")
        for step in self.steps:
            unknown = [n for n in (*step.targets, *step.wants) if n not in known]
            if unknown or not set(step.targets) <= set(self.inputs):
                raise ValueError(f"row {self.name}: a gradient names {unknown or step.targets}; it may name {sorted(known)}")
        if self.view and self.inverse is None:
            raise ValueError(f"row {self.name}: a view needs an inverse")
        if self.dynamic and not self.instead:
            raise ValueError(f"row {self.name}: a dynamic row says what to use instead in a trace")

    def infer(self, *specs: Any, **params: Any) -> Any:
        """The output's Spec (a tuple of Specs for several outputs). Errors name the operation."""
        try:
            return self.rule(*specs, **params)
        except DimensionError as error:
            raise DimensionError(f"{self.name}: {error}") from None
        except ShapeError as error:
            raise ShapeError(f"{self.name}: {error}") from None
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        except AttributeError:
            if any(spec is None for spec in specs):
                raise TypeError(f"{self.name}: inputs are tensors or numbers, not None; does a function lack its return?") from None
            raise

    def specs(self, *specs: Any, **params: Any) -> tuple[Spec, ...]:
        """As `infer`, always a tuple."""
        found = self.infer(*specs, **params)
        return (found,) if isinstance(found, Spec) else tuple(found)

    def number_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype that a Python number has beside arrays of `dtype`. Half types are computed in float32, and so is the number: what is
        rounded is the result. A row that computes nothing may have the number as its result, or compares: `x.fill_(0.1) == 0.1`."""
        return dtype if self.exact and not self.name.startswith("logical_") else wide(dtype)

    def __call__(self, *args: Any, **params: Any) -> Any:
        if self.call is not None and args and hasattr(args[0], "_edge"):  # formulas come this way: a Tensor first, the call bound
            return self.call(*args, **params) if params else self.call(*args)
        for argument in args:
            apply = getattr(argument, "__apply__", None)
            if apply is not None:
                return apply(self, args, params)
        backend = dispatch.choose(self, list(args)) if args else dispatch.backend_for(params["device"])
        return backend.run(self, list(args), params)

    def __repr__(self) -> str:
        return f"<row {self.name}({', '.join((*self.inputs, *self.params))})>"
