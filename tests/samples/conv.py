"""Samples of the convolution rows. The reference sums over output positions and kernel places, one at a time."""

import numpy as np

from samples.base import normal, sample


def geometry(stride, padding, dilation, groups):
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def padded(x, padding):
    return np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))


def places(kernel, outputs, stride, dilation):
    """Every (kernel place, slices of the padded input that it meets)."""
    for place in np.ndindex(*kernel):
        start = [i * d for i, d in zip(place, dilation, strict=True)]
        yield place, tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(start, stride, outputs, strict=True))


def outputs_of(sizes, kernel, stride, padding, dilation):
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)]


def convolution(x, w, b, *, stride, padding, dilation, groups):
    kernel = w.shape[2:]
    outputs = outputs_of(x.shape[2:], kernel, stride, padding, dilation)
    xs = padded(x, padding).reshape(x.shape[0], groups, x.shape[1] // groups, *padded(x, padding).shape[2:])
    ws = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.zeros((x.shape[0], groups, ws.shape[1], *outputs))
    for place, slices in places(kernel, outputs, stride, dilation):
        y += np.einsum("ngc...,goc->ngo...", xs[(..., *slices)], ws[(..., *place)])
    y = y.reshape(x.shape[0], w.shape[0], *outputs)
    return y if b is None else y + b.reshape(-1, *(1,) * len(kernel))


def convolution_dx(dy, w, *, shape, stride, padding, dilation, groups):
    kernel, outputs = w.shape[2:], dy.shape[2:]
    dys = dy.reshape(dy.shape[0], groups, dy.shape[1] // groups, *outputs)
    ws = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    wide = padded(np.zeros(shape), padding)
    dxs = wide.reshape(shape[0], groups, shape[1] // groups, *wide.shape[2:])
    for place, slices in places(kernel, outputs, stride, dilation):
        dxs[(..., *slices)] += np.einsum("ngo...,goc->ngc...", dys, ws[(..., *place)])
    return wide[(..., *(slice(p, p + s) for p, s in zip(padding, shape[2:], strict=True)))]


def convolution_transpose(x, w, b, **numbers):
    y = convolution_dx(x, w, **numbers)
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))


def convolution_dw(x, dy, *, shape, stride, padding, dilation, groups):
    kernel, outputs = shape[2:], dy.shape[2:]
    wide = padded(x, padding)
    xs = wide.reshape(x.shape[0], groups, x.shape[1] // groups, *wide.shape[2:])
    dys = dy.reshape(dy.shape[0], groups, dy.shape[1] // groups, *outputs)
    dw = np.zeros((groups, shape[0] // groups, *shape[1:]))
    letters = "hwd"[: len(kernel)]
    for place, slices in places(kernel, outputs, stride, dilation):
        dw[(..., *place)] += np.einsum(f"ngc{letters},ngo{letters}->goc", xs[(..., *slices)], dys)
    return dw.reshape(shape)


# (input, weight, stride, padding, dilation, groups): each way of the CPU side, and each geometry that is often wrong
CASES = [
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (1, 0), (1, 1), 1),  # unrolled planes, asymmetric kernel
    ((2, 8, 4, 3), (3, 8, 2, 3), (1, 1), (1, 1), (1, 1), 1),  # channels last
    ((2, 2, 8, 7), (4, 2, 3, 3), (3, 2), (1, 1), (1, 1), 1),  # the stride does not divide: rows that no window reaches
    ((1, 4, 9, 8), (2, 4, 3, 2), (2, 3), (1, 0), (2, 2), 1),  # stride and dilation together
    ((2, 4, 5, 5), (6, 2, 3, 3), (1, 1), (2, 2), (1, 2), 2),  # groups, dilation
    ((2, 3, 5, 6), (6, 1, 3, 2), (2, 1), (1, 1), (1, 2), 3),  # depthwise with a multiplier
    ((3, 4, 3, 5), (5, 4, 1, 1), (1, 2), (0, 0), (1, 1), 1),  # pointwise with a stride
    ((1, 2, 5, 5), (2, 2, 1, 1), (1, 1), (2, 1), (1, 1), 1),  # more padding than the kernel reaches
    ((2, 3, 11), (4, 3, 4), (2,), (2,), (1,), 1),
    ((1, 2, 4, 3, 5), (3, 2, 2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2), 1),
    ((0, 2, 4, 4), (3, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1),  # an empty batch
]
BIAS = (0, 2, 5, 8)


def _dy(x, w, stride, padding, dilation):
    return normal(x[0], w[0], *outputs_of(x[2:], w[2:], stride, padding, dilation), seed=3)


SAMPLES = {
    "convolution": [
        sample(normal(*x), normal(*w, seed=1), normal(w[0], seed=2) if i in BIAS else None, reference=convolution, **geometry(s, p, d, g))
        for i, (x, w, s, p, d, g) in enumerate(CASES)
    ],
    "convolution_dx": [
        sample(_dy(x, w, s, p, d), normal(*w, seed=1), reference=convolution_dx, shape=x, **geometry(s, p, d, g))
        for x, w, s, p, d, g in CASES
    ],
    "convolution_transpose": [
        sample(_dy(x, w, s, p, d), normal(*w, seed=1), normal(x[1], seed=2) if i in BIAS else None, reference=convolution_transpose,
               shape=x, **geometry(s, p, d, g))
        for i, (x, w, s, p, d, g) in enumerate(CASES) if i in BIAS or i >= 9
    ],
    "convolution_dw": [
        sample(normal(*x), _dy(x, w, s, p, d), reference=convolution_dw, shape=w, **geometry(s, p, d, g)) for x, w, s, p, d, g in CASES
    ],
}  # fmt: skip
