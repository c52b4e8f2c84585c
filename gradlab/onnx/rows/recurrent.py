"""One time step of recurrent units."""

from __future__ import annotations

from typing import Any

from gradlab.onnx.emitter import Emitter, Wire
from gradlab.onnx.registry import exports


def parts(e: Emitter, x: Wire, number: int) -> tuple[Any, ...]:
    """Equal parts of the last dimension."""
    found: tuple[Any, ...] = e("Split", x, outputs=number, axis=-1, num_outputs=number)
    return found


def joined(e: Emitter, *xs: Any) -> Any:
    """One after the other along the last dimension."""
    return e("Concat", *xs, axis=-1)


@exports("lstm_cell")
def lstm_cell(e: Emitter, gates: Wire, own: Wire, c: Wire) -> Any:
    """Gates i, f, g, o; c' = f·c + i·g, h' = o·tanh(c')."""
    i, f, g, o = parts(e, gates + own, 4)
    i, f, g, o = e("Sigmoid", i), e("Sigmoid", f), e("Tanh", g), e("Sigmoid", o)
    cell = f * c + i * g
    return o * e("Tanh", cell), cell, joined(e, i, f, g, o)


@exports("lstm_cell_backward")
def lstm_cell_backward(e: Emitter, dh: Wire, dc: Wire, acts: Wire, c: Wire, cell: Wire) -> Any:
    """The gradients of the gates' sums and of the old cell state."""
    i, f, g, o = parts(e, acts, 4)
    t = e("Tanh", cell)
    arrived = dh * o * (1.0 - t * t) + dc
    slopes = (i * (1.0 - i) * g * arrived, f * (1.0 - f) * c * arrived, (1.0 - g * g) * i * arrived, o * (1.0 - o) * t * dh)
    return joined(e, *slopes), arrived * f


@exports("gru_cell")
def gru_cell(e: Emitter, gates: Wire, own: Wire, h: Wire) -> Any:
    """Gates r, z, n = tanh(gates_n + r·own_n); h' = n + z·(h - n)."""
    (gr, gz, gn), (wr, wz, wn) = parts(e, gates, 3), parts(e, own, 3)
    r, z = e("Sigmoid", gr + wr), e("Sigmoid", gz + wz)
    n = e("Tanh", r * wn + gn)
    return (h - n) * z + n, joined(e, r, z, n)


@exports("gru_cell_backward")
def gru_cell_backward(e: Emitter, dh: Wire, acts: Wire, own: Wire, h: Wire) -> Any:
    """The gradients of both shares of the gates' sums, and of the old state."""
    r, z, n = parts(e, acts, 3)
    dn = (1.0 - n * n) * (1.0 - z) * dh
    dz = z * (1.0 - z) * (h - n) * dh
    dr = r * (1.0 - r) * dn * parts(e, own, 3)[2]
    return joined(e, dr, dz, dn), joined(e, dr, dz, dn * r), dh * z
