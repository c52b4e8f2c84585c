"""Symbols: what a traced tensor holds in place of an array. They have a shape and a dtype, and no values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from gradlab import call_site, dispatch
from gradlab.autograd.mode import current
from gradlab.device import Device
from gradlab.graph.staging.symbol_strides import Flags, Layout
from gradlab.op import Op
from gradlab.ops.elementwise import clone
from gradlab.spec import Spec, count
from gradlab.strides import Strides, is_row_major, row_major

if TYPE_CHECKING:
    from gradlab.graph.staging.tracer import Tracer


class TraceError(RuntimeError):
    """Something that a trace cannot do, such as reading a value."""


class Symbol:
    """Value number `id` of a trace.

    device: where it is known to be; None for what is wherever the program runs. layout: how its elements lie; None for row by row.
    """

    __slots__ = ("device", "dtype", "id", "layout", "shape", "tracer")

    def __init__(self, number: int, spec: Spec, tracer: Tracer, device: Device | None = None, layout: Layout | None = None) -> None:
        self.id = number
        self.shape, self.dtype = spec
        self.tracer, self.device, self.layout = tracer, device, layout

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return count(self.shape)

    @property
    def strides(self) -> Strides:
        return row_major(self.shape, self.dtype.itemsize) if self.layout is None else self.layout.strides()

    @property
    def flags(self) -> Flags:
        return Flags(self.layout is None or is_row_major(self.shape, self.layout.strides(), self.dtype.itemsize))

    def copy(self) -> Symbol:
        """The same values as a value of their own; for deepcopy of what is made in a trace."""
        if current().tracer is not self.tracer:
            raise unreadable(self)
        found: Symbol = self.tracer.run(clone, [self], {})
        return found

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise unreadable(self)

    def __bool__(self) -> NoReturn:
        raise unreadable(self)

    def __repr__(self) -> str:
        return f"%{self.id}: {self.dtype.name}{list(self.shape)}"


def unreadable(symbol: Symbol) -> TraceError:
    """The error for reading a value that is not there yet."""
    if hasattr(symbol.tracer, "unreadable"):  # of a gl.Graph
        found: TraceError = symbol.tracer.unreadable(symbol)
        return found
    return TraceError(
        f"a value was read while tracing: this tensor (shape {symbol.shape}, {symbol.dtype.name}) has no value yet. Keep decisions on "
        f"values inside tensor operations (gl.where), return the tensor and read it outside, or leave this part out of the trace{_where()}"
    )


def foreign(tensor: Any) -> TraceError:
    """The error for reading a value of a tensor from before a trace: a replay would go on with that value."""
    return TraceError(
        f"a value was read while tracing: that of a tensor (shape {tuple(tensor._array.shape)}, {tensor._array.dtype.name}) from before "
        f"the trace, which may be another at the next call. Keep decisions on values inside tensor operations (gl.where), read it outside "
        f"and pass the number as an argument, or leave this part out of the trace{_where()}"
    )


def sized_by_values() -> TraceError:
    """The error for a custom operation whose result has a size that only its values tell."""
    return TraceError(
        f"the size of a custom operation's result depends on values (new_dynamic_size), so it cannot be traced; give it a fixed size, or "
        f"leave this part out of the trace{_where()}"
    )


def _where() -> str:
    place = call_site.locate(*call_site.caller(), None)
    return f"\n  at: {place}" if place is not None else ""


class SymbolBackend:
    """Stands for all tracers in the dispatch table. Operations are run by the tracer of the current mode, never by this."""

    staged = True

    def run(self, op: Op, arrays: list[Any], params: dict[str, Any]) -> Any:
        for x in arrays:
            if type(x) is Symbol and hasattr(x.tracer, "misplaced"):  # of a gl.Graph
                raise x.tracer.misplaced(op, x)
        raise TraceError(f"{op.name}: a tensor of a trace was used after the trace had ended; return it from the traced function instead")

    def device_of(self, array: Symbol) -> Device:
        return array.device or array.tracer.device

    def to_numpy(self, array: Symbol) -> np.ndarray[Any, Any]:
        raise unreadable(array)

    def from_numpy(self, array: Any, device: Device) -> Any:
        return array

    def address(self, array: Symbol) -> NoReturn:
        raise TraceError(
            f"data_ptr: a tensor of a trace (shape {array.shape}, {array.dtype.name}) has no memory yet; ask outside of the trace{_where()}"
        )

    def copy(self, array: Symbol) -> NoReturn:
        raise unreadable(array)

    def assign(self, target: Any, source: Symbol) -> NoReturn:
        raise unreadable(source)


dispatch.register(Symbol, SymbolBackend())
