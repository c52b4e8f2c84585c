"""All steps of a layer of recurrent units in one launch: kernels against NumPy, in several orders of threads, forms and types."""

import functools
import itertools

import numpy as np
import pytest
from emulated import compiled, guarded

from gradlab.backends.cuda.compiler import file_source
from gradlab.backends.cuda.emulator import ORDERS
from gradlab.backends.cuda.launch import recurrent
from gradlab.backends.cuda.launch.recurrent import ALONE, form_of
from gradlab.dtype import bfloat16, float16, float32, float64, wide
from gradlab.graph.passes.step_rows import ROWS, TAKEN, arranged
from gradlab.spec import Spec

NAMES = {float32: "float", float64: "double", float16: "__half", bfloat16: "__nv_bfloat16"}
HALF_WAY = {float32: 5e-6, float64: 1e-13, float16: 2e-3, bfloat16: 2e-2}  # a state may be rounded to the other neighbour


@functools.cache
def kernels(file, *arguments, races):
    name = "recurrent_steps" if file == ALONE else "recurrent_cluster"
    names = [f"gradlab::{name}{way}<{', '.join(map(str, arguments))}>" for way in ("", "_backward")]
    return dict(zip((name, f"{name}_backward"), compiled(file_source(file), *names, label=file, races=races)))


class Bench:
    """What launch rules work with: NumPy's arrays, and kernels that run in a chosen order."""

    def __init__(self, dtype, order, races=False):
        self.storage, self.order, self.races = NAMES[dtype], order, races

    def pointer(self, array):
        return array.ctypes.data

    def kernel(self, file, name, dtype, unit, rows):
        return kernels(file, self.storage, unit, rows, races=self.races)[name]

    def launch(self, function, blocks, threads, *values, shared):
        function.max_dynamic_shared_size_bytes = 227 << 10
        given = [0 if v is None else v for v in values]
        function.run((blocks,), (threads,), *given, shared=shared, order=self.order, seed=1)


def numbers(rng, shape, dtype):
    made = guarded(shape, str(np.dtype(dtype)) if dtype.dtype.kind == "f" else "uint16").view(dtype.dtype)
    made[...] = rng.normal(size=shape).astype("f") / 2
    return made


def problem(unit, dtype, steps, batch, units, backwards):
    """A layer's arrays: gates of a step beside other columns, a weight that is turned, states with gaps; LSTM's cells or GRU's bias."""
    rng, gates = np.random.default_rng(steps + batch + units), recurrent.GATES[unit] * units
    kept = float64 if wide(dtype.dtype) == np.float64 else float32
    x = numbers(rng, (batch, steps, gates + 3), dtype)[..., 2:-1].transpose(1, 0, 2)
    weight = numbers(rng, (gates, units), dtype)
    first, begun = (numbers(rng, (batch, units, 2), kept)[..., 1] for _ in range(2))
    bias = numbers(rng, (gates, 2), kept)[:, 1]
    return x, weight, first, begun, bias, kept, {"unit": unit, "steps": steps, "backwards": backwards}


def close(found, wanted, dtype):
    for a, b in zip(found, wanted, strict=True):
        scale = max(np.abs(b.astype("d")).max(), 1e-3)
        np.testing.assert_allclose(a.astype("d") / scale, b.astype("d") / scale, atol=HALF_WAY[dtype])


def like(rows, way, inputs, params):
    """Guarded outputs of a row, twice."""
    specs = rows[way].infer(*(Spec(a.shape, a.dtype) for a in inputs), **params)
    return ([guarded(s.shape, str(s.dtype) if s.dtype.kind == "f" else "uint16").view(s.dtype) for s in specs] for _ in range(2))


def checked(bench, form, dtype, steps, batch, units, backwards, slopes):
    """slopes: whether gradients arrive at all states; without them GRU has no bias either."""
    unit, rows = form.unit, ROWS[form.unit]
    x, weight, first, begun, bias, kept, params = problem(unit, dtype, steps, batch, units, backwards)
    rng = np.random.default_rng(5)
    inputs = (x[0], x[1], weight.T, first, *{"lstm": [begun], "gru": [bias] * slopes}.get(unit, []))
    found, wanted = like(rows, 0, inputs, params)
    recurrent.steps_forward(bench, form, inputs, found, backwards)
    rows[0].cpu(*inputs, *wanted, **params)
    close(found, wanted, dtype)
    hidden, *values, acts = wanted
    given = {
        **{name: [numbers(rng, (batch, units), kept)] for name in ("first", "arrived")}, "acts": acts[:2], "weight": [weight],
        "values": values[0][:2] if values else [], "begun": [begun], "states": hidden[1:3] if steps > 2 else hidden[[1, 1]],
    }  # fmt: skip
    others = numbers(rng, (steps - 1, batch, units), dtype)
    inputs = tuple(a for name in TAKEN[unit] for a in given[name]) + (tuple(others[:2]) if slopes else ())
    params |= {"slope": 0.25}
    found, wanted = like(rows, 1, inputs, params)
    recurrent.steps_backward(bench, form, arranged(unit, inputs), found, backwards, 0.25)
    rows[1].cpu(*inputs, *wanted, **params)
    close(found, wanted, dtype)


def form(blocks, rows, dtype, units, unit="lstm"):
    return recurrent._form(unit, blocks, rows, dtype.dtype, units)


@pytest.mark.parametrize("unit", recurrent.UNITS)
@pytest.mark.parametrize("order", ORDERS)
def test_one_block_and_a_cluster_in_every_order(order, unit):
    checked(Bench(float32, order), form(1, 4, float32, 5, unit), float32, 3, 5, 5, False, True)
    checked(Bench(float32, order), form(8, 4, float32, 11, unit), float32, 3, 5, 11, True, order != "warps")


@pytest.mark.slow
@pytest.mark.parametrize("unit", recurrent.UNITS)
def test_no_two_threads_race(unit):
    for blocks, units in ((1, 6), (8, 18)):
        checked(Bench(float32, "forward", True), form(blocks, 4, float32, units, unit), float32, 4, 5, units, False, True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(NAMES), ids=str)
@pytest.mark.parametrize("unit", recurrent.UNITS)
@pytest.mark.parametrize(("blocks", "rows", "steps", "batch", "units"), [
    (1, 4, 2, 1, 1), (1, 8, 5, 19, 33), (1, 4, 3, 4, 64), (8, 4, 2, 3, 8), (8, 8, 4, 9, 65), (8, 4, 3, 7, 130),
])  # fmt: skip
def test_forms_sizes_and_types(unit, dtype, blocks, rows, steps, batch, units):
    for backwards in (False, True):
        chosen = form(blocks, rows, dtype, units, unit)
        checked(Bench(dtype, "random"), chosen, dtype, steps, batch, units, backwards, True)
        checked(Bench(dtype, "reverse"), chosen, dtype, steps, batch, units, backwards, False)


def test_which_layers_one_launch_does():
    def blocks(capability, batch, units, dtype=float32, unit="lstm"):
        found = form_of(capability, unit, dtype.dtype, batch, units)
        return 0 if found is None else found.blocks

    assert blocks((9, 0), 32, 256) == blocks((10, 0), 32, 320) == blocks((12, 0), 32, 190) == 8
    assert blocks((9, 0), 32, 64) == blocks((8, 0), 32, 90) == blocks((8, 6), 32, 70) == blocks((7, 5), 32, 50) == 1
    assert blocks((8, 0), 32, 128) == blocks((7, 5), 32, 90) == blocks((9, 0), 32, 400) == blocks((12, 0), 32, 256) == 0
    assert blocks((8, 0), 32, 128, float16) == 1 and blocks((9, 0), 32, 440, float16) == 8
    assert blocks((9, 0), 32, 369, unit="gru") == blocks((9, 0), 32, 641, unit="tanh") == 8 and blocks((9, 0), 32, 370, unit="gru") == 0
    assert blocks((9, 0), 10000, 256) == 0  # a batch that products step by step make better use of
    for capability in recurrent.ROOM:
        for unit, units in itertools.product(recurrent.UNITS, range(1, 600, 37)):
            found = form_of(capability, unit, float32.dtype, 100, units)
            assert found is None or max(found.shared) <= recurrent.ROOM[capability] * 1024
