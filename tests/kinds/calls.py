"""Every public function and tensor method with at least one sample call: what all enumerations over "everything public" share.

    for call in CALLS: call.run()                                     # with float32 tensors
    args, options = call.tensors(gl.float64, requires_grad=True)      # the tensors alone
    call.reference, call.run_reference(torch.float64)                 # PyTorch's function of that name, where PyTorch is installed

Names: gl.add, linalg.svd, special.erf, F.relu, Tensor.add_, Tensor.__add__, Tensor.mT. A new public name fails `test_calls.py` until it
stands in a table of `kinds/catalogue/`, or in `excused.py` with a reason; elementwise rows and reductions are called as in their samples.
Marks:

    in_place     writes its first tensor           random    draws random numbers (seed it yourself)
    no_gradient  its results never require grad    integer   takes no floating point tensor, but others
    making       takes no tensor                   plain     refuses tensors that require grad
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradlab as gl
from gradlab import ops
from gradlab.kernel import Reduction
from gradlab.tensor.missing_names import Absent

from kinds.catalogue import elementwise, losses, making, matrices, networks, reducing, shaping
from kinds.catalogue.excused import EXCUSED
from kinds.catalogue.giving import Fixed, Given
from kinds.catalogue.marks import IN_PLACE, NO_GRADIENT, PLAIN, RANDOM
from samples import SAMPLES

TABLE: dict[str, list[Given]] = {}
for module in (elementwise, losses, making, matrices, networks, reducing, shaping):
    TABLE.update({name: TABLE.get(name, []) + calls for name, calls in module.CALLS.items()})

ROOMS = {"gl": gl, "linalg": gl.linalg, "special": gl.special, "F": gl.nn.functional, "fft": gl.fft, "masked": gl.masked}
OPERATORS = {
    "abs": "abs", "add": "add", "and": "bitwise_and", "eq": "eq", "floordiv": "floor_divide", "ge": "ge", "gt": "gt",
    "invert": "bitwise_not",
    "le": "le", "lshift": "bitwise_left_shift", "lt": "lt", "matmul": "matmul", "mod": "remainder", "mul": "mul", "ne": "ne", "neg": "neg",
    "or": "bitwise_or", "pos": "positive", "pow": "pow", "rshift": "bitwise_right_shift", "sub": "sub", "truediv": "div",
    "xor": "bitwise_xor", "rmatmul": "matmul",
}  # fmt: skip


def public() -> dict[str, Any]:
    """Every public name and what it is: functions of the rooms; methods, operators and properties of a Tensor."""
    found = {}
    for room, module in ROOMS.items():
        for name in dir(module):
            value = getattr(module, name)
            # A method by another name: test_native_functions.py.
            method = module is gl and (name in gl._IN_PLACE or (name in gl._NATIVE and name.endswith("_")))
            if not (name.startswith("_") or method) and callable(value) and not inspect.isclass(value):
                found[f"{room}.{name}"] = value
    for name in dir(gl.Tensor):
        operator = name.startswith("__") and name.endswith("__") and (not hasattr(object, name) or name.strip("_") in OPERATORS)
        value = inspect.getattr_static(gl.Tensor, name)
        plain = inspect.isfunction(value) or isinstance(value, (property, bool))
        if (operator or not name.startswith("_")) and plain and not isinstance(value, Absent):
            found[f"Tensor.{name}"] = value
    return found


PUBLIC = public()


def given_for(name: str) -> list[Given] | None:
    """The table's arguments for a public name; None where it has none."""
    room, _, bare = name.partition(".")
    keys = [name, bare]
    if room == "Tensor" and bare.startswith("__"):
        word = bare.strip("_")
        known = OPERATORS.get(word) or (OPERATORS.get(word[1:]) if word[0] == "i" else None)
        keys = [name, f"Tensor.{known}", known or bare]
    elif bare.endswith("_"):
        keys += [f"{room}.{bare[:-1]}", bare[:-1]]
    found = next((TABLE[key] for key in keys if key in TABLE), None)
    if found is None and room in ("gl", "Tensor"):
        found = from_samples(bare.removesuffix("_"))
    return [given for given in found if not given.options.get("inplace")] if found and bare.endswith("_") else found


def from_samples(name: str) -> list[Given] | None:
    """Calls of the function of an elementwise row or a reduction that takes nothing but tensors: those of its samples. None of others."""
    row = ops.ROWS.get(name)
    if row is None or not ((row.elementwise and not row.params) or isinstance(row.cuda, Reduction)):
        return None
    inputs = [sample.inputs for sample in SAMPLES[name] if all(isinstance(x, np.ndarray) and x.size for x in sample.inputs)]
    return [Given(tuple(arrays), {}) for arrays in inputs[:2]] or None


def converted(value: Any, tensor: Callable[[np.ndarray], Any], other: Callable[[Any], Any] = lambda x: x) -> Any:
    """`value` with `tensor` called on each array in it, and `other` on what is neither an array nor holds one."""
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, (list, tuple)):
        return type(value)(converted(v, tensor, other) for v in value)
    return {k: converted(v, tensor, other) for k, v in value.items()} if isinstance(value, dict) else other(value)


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    found: list[np.ndarray] = []
    converted(value, found.append)
    yield from found


def parts(result: Any) -> list[Any]:
    """The tensors (gradlab's or PyTorch's) in a result, however deep; numbers and the like are left out."""
    if isinstance(result, gl.Tensor) or (TORCH is not None and isinstance(result, TORCH.Tensor)):
        return [result]
    if isinstance(result, (str, np.ndarray)) or not isinstance(result, Iterable):
        return []
    return [t for part in (result.values() if isinstance(result, dict) else result) for t in parts(part)]


@dataclass(frozen=True)
class Call:
    """One sample call: a public name, what it names, and arguments."""

    name: str
    number: int  # among the calls of this name
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    marks: frozenset[str]

    def __repr__(self) -> str:
        return f"{self.name}-{self.number}" if self.number else self.name

    def tensors(self, dtype: Any = gl.float32, requires_grad: bool = False, device: str = "cpu") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, arrays as new leaves: float arrays of `dtype`, others of their own."""

        def tensor(array: np.ndarray) -> gl.Tensor:
            if array.dtype != np.float64:
                return gl.tensor(array, device=device)
            made = gl.tensor(np.asarray(array), dtype=dtype, device=device)
            return made.requires_grad_(requires_grad and not isinstance(array, Fixed))

        return converted(self.arguments, tensor), converted(self.options, tensor)

    def run(self, dtype: Any = gl.float32, requires_grad: bool = False, device: str = "cpu") -> Any:
        args, options = self.tensors(dtype, requires_grad, device)
        return self.on(args, options)

    def on(self, args: tuple[Any, ...], options: dict[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """The call with these tensors; what it would write is a copy where it is a leaf that requires grad."""
        if "in_place" in self.marks and getattr(args[0], "requires_grad", False):
            args = (args[0].clone(), *args[1:])
        result = (function or self.function)(*args, **options)
        return args[0] if self.name == "Tensor.__setitem__" else result

    @property
    def reference(self) -> Callable[..., Any] | None:
        """PyTorch's function of this name; None where there is none, or PyTorch is not installed, or it runs on a GPU alone."""
        return None if TORCH is None or self.name in {"Tensor.pin_memory", "gl.native_norm"} else callable_of(TORCH, self.name)

    def reference_tensors(self, dtype: Any, requires_grad: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As `tensors`, of PyTorch; `dtype` is PyTorch's."""

        def tensor(array: np.ndarray) -> Any:
            made = TORCH.tensor(np.asarray(array))
            if array.dtype != np.float64:
                return made
            return made.to(dtype).requires_grad_(requires_grad and not isinstance(array, Fixed))

        def other(value: Any) -> Any:
            return getattr(TORCH, str(value).rpartition(".")[2]) if isinstance(value, gl.dtype) else value

        return converted(self.arguments, tensor, other), converted(self.options, tensor, other)

    def run_reference(self, dtype: Any, requires_grad: bool = False) -> Any:
        args, options = self.reference_tensors(dtype, requires_grad)
        return self.on(args, options, self.reference)


TORCH = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def callable_of(engine: Any, name: str) -> Callable[..., Any] | None:
    """What a name of the catalogue means in gradlab or PyTorch: a function; of a property, one that reads it."""
    room, _, bare = name.partition(".")
    owner = {"gl": engine, "F": engine.nn.functional, "Tensor": engine.Tensor}.get(room) or getattr(engine, room)
    found = getattr(owner, bare, None)
    if room == "Tensor" and not callable(found):
        return None if not hasattr(owner, bare) else lambda self: getattr(self, bare)
    return found


def marks_of(name: str, number: int, given: Given) -> frozenset[str]:
    room, _, bare = name.partition(".")
    keys = {name, bare, f"{name}-{number}", f"{bare}-{number}"}
    arrays = [*arrays_in(given.arguments), *arrays_in(given.options)]
    marks = {mark for mark, names in (("random", RANDOM), ("no_gradient", NO_GRADIENT), ("plain", PLAIN)) if keys & names}
    if name in IN_PLACE or (bare.endswith("_") and not bare.startswith("__") and room in ("Tensor", "F")) or given.options.get("inplace"):
        marks.add("in_place")
    if not any(a.dtype == np.float64 for a in arrays):
        marks |= {"integer" if arrays else "making", "no_gradient"}
    return frozenset(marks)


CALLS = [
    Call(name, number, callable_of(gl, name), given.arguments, given.options, marks_of(name, number, given))
    for name in PUBLIC
    if name not in EXCUSED
    for number, given in enumerate(given_for(name) or [])
]
