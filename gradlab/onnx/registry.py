"""Which rows can be exported: a table from row names to converters, filled by `@exports` in `rows/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradlab.dtype import BOOL, FLOAT32, HALF
from gradlab.onnx.emitter import Emitter, Node, Unsupported, Wire
from gradlab.spec import Spec

Converter = Callable[..., Any]
COMPLEX = "ONNX has no operators that compute with complex numbers; write the model with real and imaginary parts in two tensors"
INT32 = np.dtype(np.int32)


class Export(NamedTuple):
    """converter(e, *inputs, **params) gives a wire for each output. wide: small types are computed in larger ones."""

    converter: Converter
    wide: bool
    truths: bool


CONVERTERS: dict[str, Export] = {}


def exports(*names: str, wide: bool = True, truths: bool = False) -> Callable[[Converter], Converter]:
    """Register how rows are written in ONNX: `converter(e, *inputs, **params)` returns one wire for each output.

    wide: half types are computed in float32 (unless the row is one ONNX operator, which float16 keeps, and its numbers are float16's),
    small integers in int32, as ONNX Runtime has few kernels of these; False for rows that only move elements. truths: so are truth values.
    A row of one's own (`gradlab.library`) is registered alike, under its full name.
    """

    def register(converter: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = Export(converter, wide, truths)
        return converter

    return register


def convert(e: Emitter, name: str, inputs: list[Any], params: dict[str, Any], outputs: tuple[Spec, ...]) -> tuple[Wire, ...]:
    """A row's nodes; the results have the dtypes of `outputs`. Raises Unsupported."""
    wires = [x for x in inputs if isinstance(x, Wire)]
    if any(d.kind == "c" for d in (*(w.dtype for w in wires), *(s.dtype for s in outputs))):
        raise Unsupported(COMPLEX)
    rule = CONVERTERS.get(name)
    if rule is None:
        raise Unsupported("there is no ONNX operator or composition for it")
    e.outputs = outputs
    main = next((x.dtype for x in wires if x.dtype != BOOL), BOOL)
    narrow = [x for x in wires if rule.wide and widened(x.dtype, rule.truths) != x.dtype]
    if narrow and all(x.dtype == np.float16 for x in narrow) and outputs[0].dtype != FLOAT32:
        start, e.rounded = len(e.nodes), False
        found = results(rule.converter(e, *(as_wire(e, x, main) for x in inputs), **params))
        if len(e.nodes) - start <= 1 and not e.rounded and all(takes_half(n) for n in e.nodes[start:]):
            return finished(e, found, outputs)
        del e.nodes[start:]
    if narrow:
        inputs = [cast_like(e, x, widened(x.dtype, rule.truths)) if isinstance(x, Wire) else x for x in inputs]
        main = widened(main, rule.truths)
    return finished(e, results(rule.converter(e, *(as_wire(e, x, main) for x in inputs), **params)), outputs)


def takes_half(node: Node) -> bool:
    """Whether ONNX Runtime runs an operator on float16."""
    return node.attributes.get("reduction", "none") == "none"


def as_wire(e: Emitter, x: Any, dtype: np.dtype[Any]) -> Wire | None:
    """An input as a wire: numbers become constants."""
    if x is None or isinstance(x, Wire):
        return x
    found = e.number(x, dtype)
    found.shape = ()
    return found


def cast_like(e: Emitter, x: Wire, dtype: np.dtype[Any]) -> Wire:
    """The value in another dtype, with its shape."""
    found = e.cast(x, dtype)
    found.shape = x.shape
    return found


def widened(dtype: np.dtype[Any], truths: bool) -> np.dtype[Any]:
    """The dtype in which one is computed."""
    if dtype in HALF:
        return FLOAT32
    if dtype == BOOL:
        return INT32 if truths else dtype
    return INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype


def results(found: Any) -> tuple[Wire, ...]:
    """Always a tuple."""
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def finished(e: Emitter, found: tuple[Wire, ...], outputs: tuple[Spec, ...]) -> tuple[Wire, ...]:
    """The results in the dtypes that the row gives, with its shapes."""
    wires = []
    for x, spec in zip(found, outputs, strict=True):
        y = e.cast(x, spec.dtype)
        if y.shape is None:
            y.shape = spec.shape
        wires.append(y)
    return tuple(wires)
