"""Rows of one time step of recurrent units: all that comes between the matrix products, in one pass over the gates.

`gates` is the input's share of the gates' sums and `own` the state's share, both (..., k·size); the states have (..., size). `acts` are the
gates after their sigmoid or tanh, which backward keeps. A recurrent layer runs these rows once for each time step.
Sources: Hochreiter and Schmidhuber, "Long short-term memory" (1997); Cho et al., "Learning phrase representations" (2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.movement import cat
from gradlab.spec import ShapeError, Spec, expect_shape


def expect_gates(gates: Spec, own: Spec, state: Spec, count: int) -> None:
    """Raises ShapeError unless both shares have `count` numbers for each of the state's."""
    wanted = (*state.shape[:-1], count * state.shape[-1]) if state.shape else None
    if gates.shape != wanted or own.shape != wanted:
        raise ShapeError(f"gates of shapes {gates.shape} and {own.shape} do not fit a state of shape {state.shape}: expected {wanted}")


def parts(x: Any, count: int) -> list[Any]:
    """Equal parts of the last dimension; views, for arrays and tensors."""
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


def joined(*xs: Any) -> Any:
    """Tensors one after the other along the last dimension."""
    return cat(*xs, dim=len(xs[0].shape) - 1)


def sigmoid_in_place(x: Any) -> None:
    x *= -1  # not numpy.negative, which NumPy 2.4 computes wrongly into a float32 array whose elements are not neighbours
    np.exp(x, x)
    x += 1
    np.reciprocal(x, x)


# ---------------------------------------------------------------- LSTM: gates i, f, g, o; c' = f·c + i·g, h' = o·tanh(c')


def lstm_cell_rule(gates: Spec, own: Spec, c: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: the new hidden state, the new cell state, and the gates."""
    expect_gates(gates, own, c, 4)
    return c, c, gates


def lstm_cell_cpu(gates: Any, own: Any, c: Any, hidden: Any, cell: Any, acts: Any) -> None:
    np.add(gates, own, acts)
    i, f, g, o = parts(acts, 4)
    tilt = g.copy()
    sigmoid_in_place(acts)  # of g in vain: one run over neighbours is faster than three between gaps
    np.tanh(tilt, g)
    np.multiply(f, c, cell)
    np.multiply(i, g, hidden)
    cell += hidden
    np.tanh(cell, hidden)
    hidden *= o


def lstm_cell_backward_rule(dh: Spec, dc: Spec, acts: Spec, c: Spec, cell: Spec) -> tuple[Spec, Spec]:
    """Rule: the gradients of the gates' sums and of the old cell state."""
    expect_gates(acts, acts, c, 4)
    for what, found in (("the state's gradient", dh), ("the cell's gradient", dc), ("the cell", cell)):
        expect_shape(what, found, c.shape)
    return acts, c


def lstm_cell_backward_cpu(dh: Any, dc: Any, acts: Any, c: Any, cell: Any, dgates: Any, dold: Any) -> None:
    i, f, g, o = parts(acts, 4)
    di, df, dg, do = parts(dgates, 4)
    np.subtract(1, acts, dgates)
    dgates *= acts  # the sigmoids' slopes
    np.multiply(g, g, dg)
    np.subtract(1, dg, dg)
    t = np.tanh(cell, np.empty_like(dold))
    do *= t
    do *= dh
    np.multiply(t, t, t)
    np.subtract(1, t, t)
    t *= o
    t *= dh
    t += dc  # all that arrives at the new cell state
    di *= g
    di *= t
    df *= c
    df *= t
    dg *= i
    dg *= t
    np.multiply(t, f, dold)


def _slopes(acts: Any) -> tuple[Any, ...]:
    """The derivatives of i, f, g and o by their sums."""
    i, f, g, o = parts(acts, 4)
    return i - i * i, f - f * f, 1 - g * g, o - o * o


def _lstm_gradient(g_hidden: Any, g_cell: Any, acts: Any, c: Any, cell: Any, g_acts: Any = None) -> Any:
    dgates, dold = lstm_cell_backward(g_hidden, g_cell, acts, c, cell)
    if g_acts is not None:
        dgates = dgates + g_acts * joined(*_slopes(acts))
    return dgates, dgates, dold


def _lstm_second(g_dgates: Any, g_dold: Any, dh: Any, dc: Any, acts: Any, c: Any, cell: Any) -> Any:
    """The gradients of Σ outputs·(their gradients) by the inputs; `k` is that by what arrives at the cell state."""
    i, f, g, o = parts(acts, 4)
    gi, gf, gg, go = parts(g_dgates, 4)
    si, sf, sg, so = _slopes(acts)
    t = cell.tanh()
    st = 1 - t * t
    arrived = dh * o * st + dc
    k = gi * g * si + gf * c * sf + gg * i * sg + g_dold * f
    dacts = joined(
        arrived * (gi * g * (1 - 2 * i) + gg * sg),
        arrived * (gf * c * (1 - 2 * f) + g_dold),
        arrived * (gi * si - 2 * gg * i * g),
        dh * (go * t * (1 - 2 * o) + k * st),
    )
    return k * o * st + go * t * so, k, dacts, arrived * gf * sf, st * dh * (go * so - 2 * k * o * t)


lstm_cell: Op = Op("lstm_cell", lstm_cell_rule, outputs=("hidden", "cell", "acts"), cpu=lstm_cell_cpu, promote="same", autocast="lower",
               cuda=Kernel("recurrent.cu", "lstm_cell", "step"), grad={("gates", "own", "c"): _lstm_gradient})  # fmt: skip
lstm_cell_backward: Op = Op("lstm_cell_backward", lstm_cell_backward_rule, outputs=("dgates", "dold"), cpu=lstm_cell_backward_cpu,
                        cuda=Kernel("recurrent.cu", "lstm_cell_backward", "step"), promote="same",
                        grad={("dh", "dc", "acts", "c", "cell"): _lstm_second})  # fmt: skip

# ---------------------------------------------------------------- GRU: gates r, z, n = tanh(gates_n + r·own_n); h' = n + z·(h - n)


def gru_cell_rule(gates: Spec, own: Spec, h: Spec) -> tuple[Spec, Spec]:
    """Rule: the new hidden state, and the gates."""
    expect_gates(gates, own, h, 3)
    return h, gates


def gru_cell_cpu(gates: Any, own: Any, h: Any, hidden: Any, acts: Any) -> None:
    size = h.shape[-1]
    r, z, n = parts(acts, 3)
    both = acts[..., : 2 * size]
    np.add(gates[..., : 2 * size], own[..., : 2 * size], both)
    sigmoid_in_place(both)
    np.multiply(r, own[..., 2 * size :], n)
    n += gates[..., 2 * size :]
    np.tanh(n, n)
    np.subtract(h, n, hidden)
    hidden *= z
    hidden += n


def gru_cell_backward_rule(dh: Spec, acts: Spec, own: Spec, h: Spec) -> tuple[Spec, Spec, Spec]:
    """Rule: the gradients of both shares of the gates' sums, and of the old state through the last step alone."""
    expect_gates(acts, own, h, 3)
    expect_shape("the state's gradient", dh, h.shape)
    return acts, acts, h


def gru_cell_backward_cpu(dh: Any, acts: Any, own: Any, h: Any, dgates: Any, down: Any, dold: Any) -> None:
    size = h.shape[-1]
    r, z, n = parts(acts, 3)
    dr, dz, dn = parts(dgates, 3)
    np.subtract(1, acts, dgates)
    dgates[..., : 2 * size] *= acts[..., : 2 * size]
    np.subtract(h, n, dold)
    dz *= dold
    dz *= dh
    np.multiply(n, n, dn)
    np.subtract(1, dn, dn)
    np.subtract(1, z, dold)
    dn *= dold
    dn *= dh
    dr *= dn
    dr *= own[..., 2 * size :]
    down[..., : 2 * size] = dgates[..., : 2 * size]
    np.multiply(dn, r, down[..., 2 * size :])
    np.multiply(dh, z, dold)


def _gru_gradient(g_hidden: Any, acts: Any, own: Any, h: Any, g_acts: Any = None) -> Any:
    dgates, down, dold = gru_cell_backward(g_hidden, acts, own, h)
    if g_acts is not None:
        r, z, n = parts(acts, 3)
        gr, gz, gn = parts(g_acts, 3)
        dn = gn * (1 - n * n)
        dr, dz = (gr + dn * parts(own, 3)[2]) * (r - r * r), gz * (z - z * z)
        dgates, down = dgates + joined(dr, dz, dn), down + joined(dr, dz, dn * r)
    return dgates, down, dold


def _gru_second(g_dgates: Any, g_down: Any, g_dold: Any, dh: Any, acts: Any, own: Any, h: Any) -> Any:
    """As `_lstm_second`; `k` is the derivative by the gradient that reaches n's sum."""
    r, z, n = parts(acts, 3)
    sr, sz, sn = r - r * r, z - z * z, 1 - n * n
    own_n = parts(own, 3)[2]
    xr, xz, xn = parts(g_dgates, 3)
    wr, wz, wn = parts(g_down, 3)
    a, b = xr + wr, xz + wz
    k = xn + wn * r + a * own_n * sr
    dn = dh * (1 - z) * sn
    ddh = k * (1 - z) * sn + b * (h - n) * sz + g_dold * z
    dacts = joined(
        dn * (wn + a * own_n * (1 - 2 * r)),
        dh * (b * (h - n) * (1 - 2 * z) + g_dold - k * sn),
        -dh * (2 * k * (1 - z) * n + b * sz),
    )
    zeros = own_n.zeros_like()
    return ddh, dacts, joined(zeros, zeros, a * dn * sr), b * dh * sz


gru_cell: Op = Op("gru_cell", gru_cell_rule, outputs=("hidden", "acts"), cpu=gru_cell_cpu, promote="same", autocast="lower",
              cuda=Kernel("recurrent.cu", "gru_cell", "step"), grad={("gates", "own", "h"): _gru_gradient})  # fmt: skip
gru_cell_backward: Op = Op("gru_cell_backward", gru_cell_backward_rule, outputs=("dgates", "down", "dold"), cpu=gru_cell_backward_cpu,
                       cuda=Kernel("recurrent.cu", "gru_cell_backward", "step"), promote="same",
                       grad={("dh", "acts", "own", "h"): _gru_second})  # fmt: skip
