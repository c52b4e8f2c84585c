"""Update rows for many parameters in one launch, in place, on the (emulated) GPU."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab import ops
from gradlab.backends.cuda.launch.optim import COUNTED, multi_tensor, table_length

SHAPES = ((3, 5), (4097,), (), (0, 3), (4096,), (8191,), (1,))
H = {
    "sgd_momentum_update": np.array([0.1, 0.01, 0.9, 0.0]),
    "adam_update": np.array([0.1, 0.9, 0.99, 1e-8, 0.01]),
    "nadam_update": np.array([0.1, 0.9, 0.99, 1e-8, 0.01, 0.004]),
}
PARAMS = {
    "sgd_momentum_update": {"nesterov": True, "maximize": False},
    "adam_update": {"decoupled": True, "maximize": False},
    "nadam_update": {"decoupled": False, "maximize": True},
}


def arguments(name, shapes, dtype, seed=0):
    """Inputs of a row but h, for parameters of these shapes, each at another step."""
    rng = np.random.default_rng(seed)
    for k, shape in enumerate(shapes):
        p, g, m, v = (np.asarray(rng.normal(size=shape).astype(dtype)) for _ in range(4))
        if name == "sgd_momentum_update":
            yield [p, g, m if k % 2 else None]
        else:
            counters = [np.array(k, np.float32)]
            yield [p, g, m, np.asarray(v * v), *([np.array(0.5**k, np.float32)] if name == "nadam_update" else []), *counters]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(H))
@pytest.mark.parametrize("on_device", [False, True], ids=["h on the host", "h on the device"])
def test_many_parameters_equal_one_after_the_other(cuda, name, dtype, on_device):
    driver, row, h, params = cuda.driver, ops.ROWS[name], H[name], PARAMS[name]
    host = list(arguments(name, SHAPES, dtype))
    want = [row(*inputs, h, **params) for inputs in host]
    given = driver.upload(h) if on_device else h
    lists = [[*(x if x is None else driver.upload(x) for x in inputs), given] for inputs in host]
    found = multi_tensor(cuda.work, row, lists, params)
    for outputs, expected, inputs in zip(found, want, lists, strict=True):
        assert outputs[0] is inputs[0]
        for output, number, old in zip(outputs, expected, (inputs[0], *inputs[2:-1]), strict=True):
            assert old is None or output is old
            np.testing.assert_allclose(driver.download(output), number, rtol=1e-6 if dtype == "float32" else 1e-13)


def test_more_parameters_than_a_table_holds(cuda):
    driver, row = cuda.driver, ops.ROWS["adam_update"]
    number = min(table_length(2), COUNTED) * 2 + 1
    host = list(arguments("adam_update", [(3,)] * number, "float32"))
    lists = [[*map(driver.upload, inputs), H["adam_update"]] for inputs in host]
    before = getattr(driver, "launches", 0)
    multi_tensor(cuda.work, row, lists, PARAMS["adam_update"])
    if driver.name == "emulated":
        assert driver.launches - before == 6  # two for each of three tables
    for inputs, made in zip(host, lists, strict=True):
        want = row(*inputs, H["adam_update"], **PARAMS["adam_update"])
        np.testing.assert_allclose(driver.download(made[0]), want[0], rtol=1e-6)
        assert driver.download(made[4]) == want[3]


def test_strided_parameters_and_mixed_dtypes(cuda):
    driver, row, params = cuda.driver, ops.ROWS["sgd_momentum_update"], PARAMS["sgd_momentum_update"]
    rng = np.random.default_rng(3)
    host = [
        [rng.normal(size=(5, 6)).astype(dtype)[:, ::2], rng.normal(size=(5, 6)).astype(dtype)[:, 1::2], None] for dtype in ("f", "d", "e")
    ]
    h = H["sgd_momentum_update"]
    want = [row(*inputs, h, **params) for inputs in host]
    lists = []
    for p, g, _ in host:
        wide = driver.upload(np.repeat(p, 2, axis=1))
        lists.append([wide[:, ::2], driver.upload(np.ascontiguousarray(g)), None, h])
    for outputs, expected, inputs in zip(multi_tensor(cuda.work, row, lists, params), want, lists, strict=True):
        assert outputs[0] is inputs[0]
        for output, number in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(driver.download(cuda.work.contiguous(output)).astype("d"), number.astype("d"), rtol=1e-3)


def test_a_count_kept_in_place_is_the_next_steps(cuda):
    """Two steps in place equal two steps by new arrays."""
    driver, row, h, params = cuda.driver, ops.ROWS["adam_update"], H["adam_update"], PARAMS["adam_update"]
    (inputs,) = arguments("adam_update", [(4500,)], "float32")
    p, m, v, step = inputs[0], *inputs[2:]
    given = [*map(driver.upload, inputs), h]
    for _ in range(2):
        p, m, v, step = row(p, inputs[1], m, v, step, h, **params)
        multi_tensor(cuda.work, row, [given], params)
    np.testing.assert_allclose(driver.download(given[0]), p, rtol=1e-6)
    assert driver.download(given[4]) == step == 2


@pytest.mark.parametrize("name", list(H))
def test_a_flag_on_the_device_lets_everything_stay(cuda, name):
    driver, row, h, params = cuda.driver, ops.ROWS[name], H[name], PARAMS[name]
    host = [[np.zeros_like(inputs[0]) if x is None else x for x in inputs] for inputs in arguments(name, SHAPES, "float32")]
    for flag in (True, False):
        lists = [[*map(driver.upload, inputs), h] for inputs in host]
        multi_tensor(cuda.work, row, lists, params, skip=driver.upload(np.array(flag)))
        for given, inputs in zip(lists, host, strict=True):
            want = (inputs[0], *inputs[2:]) if flag else row(*inputs, h, **params)
            for array, number in zip((given[0], *given[2:-1]), want, strict=True):
                np.testing.assert_allclose(driver.download(array), number, rtol=0 if flag else 1e-6)
