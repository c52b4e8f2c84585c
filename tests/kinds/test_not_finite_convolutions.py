"""Infinities and NaN in convolutions come out where the sum that defines them puts them: eagerly, compiled and in the C runner, whose fast
algorithms take differences of what they are given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from deployed import compiled, compiler, ran

import gradlab as gl

F = gl.nn.functional
VALUES = (np.inf, -np.inf, np.nan)


def case(n, c, o, sides, kernel, stride=1, padding=0, dilation=1, groups=1):
    return n, c, o, sides, kernel, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


CASES = [
    case(2, 32, 32, (14, 15), (3, 3), padding=1), case(1, 64, 40, (16, 16), (3, 3)), case(3, 17, 33, (9, 33), (3, 3), padding=1),
    case(9, 16, 16, (8, 8), (3, 3), padding=1), case(2, 16, 24, (13, 12), (3, 3), padding=2), case(2, 16, 24, (13, 12), (3, 3), stride=2),
    case(2, 16, 16, (9, 9), (3, 3), dilation=2, padding=2), case(2, 16, 16, (10, 9), (3, 3), groups=16, padding=1),
    case(2, 16, 32, (10, 9), (3, 3), groups=4, padding=1), case(2, 16, 16, (9, 8), (1, 1)), case(2, 3, 8, (9, 8), (5, 3), padding=1),
    case(2, 8, 8, (30,), (3,), padding=1), case(2, 4, 6, (30,), (4,), stride=3), case(1, 4, 6, (5, 6, 7), (3, 2, 3)),
]  # fmt: skip


def spoiled(shape, value, seed):
    """Random numbers with `value` in the first corner and wherever else chance will have it."""
    random = np.random.default_rng(seed)
    array = random.normal(size=shape).astype(np.float32)
    for at in [(0,) * len(shape), *(tuple(random.integers(0, shape)) for _ in range(3))]:
        array[at] = value
    return array


def operands(item, value, where):
    """Images, weights with zeros among them, bias and the result's gradient, of which that named `where` holds `value`."""
    n, c, o, sides, kernel, p = item
    made = [(k + 2 * p["padding"] - p["dilation"] * (size - 1) - 1) // p["stride"] + 1 for k, size in zip(sides, kernel, strict=True)]
    shapes = {"x": (n, c, *sides), "w": (o, c // p["groups"], *kernel), "b": (o,), "g": (n, o, *made)}
    arrays = {name: spoiled(shape, value if name == where else 1.0, seed) for seed, (name, shape) in enumerate(shapes.items())}
    if where != "w":
        arrays["w"][o // 2, :, kernel[0] // 2] = 0
    return arrays.values()


def summed(item, x, w, b, g):
    """Result, and gradients of x and w, by the definition, in double precision. Of each besides where it may as well be NaN, as zeros
    around an array may be left out or multiplied by what is not finite."""
    _, c, o, _, kernel, p = item
    pad, groups = p["padding"], p["groups"]
    x, w, b, g = (a.astype(np.float64) for a in (x, w, b, g))
    around = ((0, 0), (0, 0), *((pad, pad),) * len(kernel))
    padded, inside = np.pad(x, around), np.pad(np.ones_like(x), around) > 0
    y, dx, dw = np.zeros(g.shape), np.zeros(padded.shape), np.zeros(w.shape)
    y_free, dx_free, dw_free = (np.zeros(a.shape, bool) for a in (y, dx, dw))
    flat = (1, -1, *(1,) * len(kernel))
    for at, group in itertools.product(itertools.product(*map(range, kernel)), range(groups)):
        window = [slice(i * p["dilation"], i * p["dilation"] + (m - 1) * p["stride"] + 1, p["stride"]) for i, m in zip(at, g.shape[2:])]
        own, other = (slice(k // groups * group, k // groups * (group + 1)) for k in (o, c))
        part, tap = (slice(None), other, *window), (own, slice(None), *at)
        seen, there, slope, factor = padded[part], inside[part][:, :1], g[:, own], w[tap]
        bad = ~np.isfinite(factor)
        y[:, own] += np.where(there, np.einsum("oc,nc...->no...", factor, seen), 0)
        y_free[:, own] |= ~there & bad.any(1).reshape(flat)
        dx[part] += np.einsum("oc,no...->nc...", factor, slope)
        reached = np.zeros((1, c // groups, *padded.shape[2:]), bool)
        reached[(slice(None), slice(None), *window)] = True
        dx_free[:, other] |= ~reached & bad.any(0).reshape(flat)
        products = np.where(there[:, None], seen[:, None] * slope[:, :, None], 0)
        dw[tap] = products.sum((0, *range(3, products.ndim)))
        beyond = [~np.isfinite(np.moveaxis(a, 1, 0).reshape(a.shape[1], -1)).all(1) for a in (slope, x[:, other])]
        dw_free[tap] = beyond[0][:, None] | beyond[1]
    inner = (slice(None), slice(None), *(slice(pad, size - pad) for size in padded.shape[2:]))
    return [(y + b.reshape(flat), y_free), (dx[inner], dx_free[inner]), (dw, dw_free)]


def fault(got, want, free):
    """What is wrong about a result, or nothing."""
    sure = ~(free & np.isnan(got))
    for name, found in (("NaN", np.isnan), ("inf", np.isposinf), ("-inf", np.isneginf)):
        if (wrong := (found(got) != found(want)) & sure).any():
            return f"{name} {int(found(got).sum())} times instead of {int(found(want).sum())}, first at {np.argwhere(wrong)[0]}"
    own = np.isfinite(want) & sure
    error = np.abs(got[own] - want[own]).max(initial=0)
    return f"off by {error}" if error > 1e-4 * max(np.abs(want[own]).max(initial=0), 1) else ""


def faults(item, value, where, got, wanted):
    (y, free), *gradients = wanted
    wanted = {"y": (y, free), "relu": (np.where(y < 0, 0, y), free), **dict(zip(("dx", "dw"), gradients))}
    found = {name: fault(np.asarray(have), *want) for have, (name, want) in zip(got, wanted.items())}
    return [f"{item} {value} in {where}: {name}: {text}" for name, text in found.items() if text]


def convolve(item, x, w, b):
    return getattr(F, f"conv{len(item[3])}d")(x, w, b, **item[5])


def everything(item):
    """A function of x, w, b, g: the result, that with ReLU, and gradients."""

    def compute(x, w, b, g):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = convolve(item, x, w, b)
        return [y.detach(), F.relu(convolve(item, x, w, b)).detach(), *gl.autograd.grad(y, [x, w], g)]

    return compute


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("way", ["eager", "highest", "high"])
def test_eager_and_compiled(way):
    wrong = []
    gl.set_float32_matmul_precision("highest" if way == "eager" else way)
    try:
        for item in CASES[2:] if way != "high" else CASES[2:5]:
            compute = everything(item)
            if way != "eager":
                compute = gl.compile(compute)
                compute(*map(gl.from_numpy, operands(item, 1, "x")))  # the first call is an eager one
            for value, where in itertools.product(VALUES[1:], "xwg"):
                arrays = operands(item, value, where)
                got = compute(*map(gl.from_numpy, arrays))
                wrong += faults(item, value, where, [t.numpy() for t in got], summed(item, *arrays))
    finally:
        gl.set_float32_matmul_precision("highest")
    assert not wrong, "\n".join([f"{len(wrong)}", *wrong])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_pooling_behind_a_convolution():
    item = CASES[0]
    compute = gl.compile(lambda x, w, b: F.max_pool2d(F.relu(convolve(item, x, w, b)), 2))
    for value in (1, *VALUES):
        x, w, b, g = operands(item, value, "x")
        got = compute(*map(gl.from_numpy, (x, w, b))).numpy()
        y = np.maximum(summed(item, x, w, b, g)[0][0][..., :14], 0)
        n, c, high, wide = y.shape
        want = y.reshape(n, c, high // 2, 2, wide // 2, 2).max((3, 5))
        assert not fault(got, want, np.zeros(want.shape, bool))


def transposed(item, g, w):
    return getattr(F, f"conv_transpose{len(item[3])}d")(g, w, **item[5])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.skipif(compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("weight", [1, np.inf])
def test_the_c_runner(weight, tmp_path):
    """All cases in one program, whose weights are constants: convolutions, with ReLU, and transposed."""
    spoil = "w" if weight != 1 else "x"
    weights = [[gl.from_numpy(a) for a in itertools.islice(operands(item, weight, spoil), 1, 3)] for item in CASES]
    whole = [item[5]["stride"] == 1 for item in CASES]  # whose transpose has the images' size

    def compute(*images):
        found = []
        for i, (item, (w, b)) in enumerate(zip(CASES, weights, strict=True)):
            x, g = images[2 * i : 2 * i + 2]
            found += [convolve(item, x, w, b), F.relu(convolve(item, x, w, b)) + 1, *[transposed(item, g, w)] * whole[i]]
        return found

    wrong, program = [], None
    for value in VALUES if weight == 1 else (1,):
        arrays = [[*operands(item, value, "x")] for item in CASES]
        for item, own in zip(CASES, arrays, strict=True):
            own[1:3] = [t.numpy() for t in weights[CASES.index(item)]]
            own[3][0, 0] = value
        images = [gl.from_numpy(a) for own in arrays for a in own[::3]]
        if program is None:
            with gl.no_grad():
                built = gl.deploy.build(gl.jit.trace(compute, tuple(images)), tmp_path, name="spoiled")
            assert ("  gl_winograd_" in built.source.read_text()) == (weight == 1)
            program = compiled(built, "-O1", "-march=native")
        got = iter(ran(program, built, images))
        for item, own, same in zip(CASES, arrays, whole, strict=True):
            y, dx, _ = summed(item, *own)
            wrong += faults(item, value, spoil, [next(got), next(got) - 1], [y])
            text = fault(next(got), *dx) if same else ""
            wrong += [f"{item} {value} in {spoil}: transposed: {text}"] if text else []
    assert not wrong, "\n".join([f"{len(wrong)}", *wrong])
