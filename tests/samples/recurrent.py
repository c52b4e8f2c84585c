"""Samples of the recurrent units' rows."""

from __future__ import annotations

import numpy as np

from samples.base import normal, sample


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def split(x, count):
    return np.split(x, count, axis=-1)


def lstm(gates, own, c):
    i, f, g, o = split(gates + own, 4)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    cell = f * c + i * g
    return o * np.tanh(cell), cell, np.concatenate([i, f, g, o], -1)


def lstm_backward(dh, dc, acts, c, cell):
    i, f, g, o = split(acts, 4)
    t = np.tanh(cell)
    arrived = dc + dh * o * (1 - t**2)
    parts = [arrived * g * i * (1 - i), arrived * c * f * (1 - f), arrived * i * (1 - g**2), dh * t * o * (1 - o)]
    return np.concatenate(parts, -1), arrived * f


def gru(gates, own, h):
    (xr, xz, xn), (wr, wz, wn) = split(gates, 3), split(own, 3)
    r, z = sigmoid(xr + wr), sigmoid(xz + wz)
    n = np.tanh(xn + r * wn)
    return (1 - z) * n + z * h, np.concatenate([r, z, n], -1)


def gru_backward(dh, acts, own, h):
    (r, z, n), wn = split(acts, 3), split(own, 3)[2]
    dn, dz = dh * (1 - z) * (1 - n**2), dh * (h - n) * z * (1 - z)
    dr = dn * wn * r * (1 - r)
    return np.concatenate([dr, dz, dn], -1), np.concatenate([dr, dz, dn * r], -1), dh * z


def acts(count, tanh, *shape):
    """Gates as they come out: in (0, 1), the one at `tanh` in (-1, 1)."""
    return np.concatenate([np.tanh(normal(*shape, seed=i)) if i == tanh else sigmoid(normal(*shape, seed=i)) for i in range(count)], -1)


SHAPES = [(3, 4), (5,), (2, 3, 1), (0, 2)]


def wide(shape, count):
    return (*shape[:-1], count * shape[-1])


SAMPLES = {
    "lstm_cell": [
        sample(normal(*wide(s, 4)), normal(*wide(s, 4), seed=1), normal(*s, seed=2), reference=lstm) for s in SHAPES
    ],
    "lstm_cell_backward": [
        sample(normal(*s), normal(*s, seed=1), acts(4, 2, *s), normal(*s, seed=2), normal(*s, seed=3), reference=lstm_backward)
        for s in SHAPES
    ],
    "gru_cell": [
        sample(normal(*wide(s, 3)), normal(*wide(s, 3), seed=1), normal(*s, seed=2), reference=gru) for s in SHAPES
    ],
    "gru_cell_backward": [
        sample(normal(*s), acts(3, 2, *s), normal(*wide(s, 3), seed=1), normal(*s, seed=2), reference=gru_backward) for s in SHAPES
    ],
}  # fmt: skip
