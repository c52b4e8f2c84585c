"""Reading and writing by index tensors in eager code: kernels beside NumPy's functions, out of place, in place, recorded and not."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab.backends.native import thresholds
from gradlab.ops import ROWS

pytestmark = needs_compiler
AT, MANY = gl.tensor([2, 0, 1, 1]), gl.arange(400) % 3
FUNCTIONS = {
    "getitem": lambda x, y: x[AT],
    "getitem of two": lambda x, y: x[AT, AT[:1]],
    "getitem of a later one": lambda x, y: x[:, AT],
    "getitem from behind": lambda x, y: x[AT - 3],
    "index_select": lambda x, y: x.index_select(1, AT),
    "index_add": lambda x, y: x.index_add(0, AT, y),
    "index_add of columns": lambda x, y: x.index_add(1, AT, y[:3], alpha=2),
    "index_copy": lambda x, y: x.index_copy(1, AT[:3], y[:3, :3]),
    "index_fill": lambda x, y: x.index_fill(1, AT, 3.0),
    "index_put": lambda x, y: x.index_put((AT,), y),
    "index_put of one": lambda x, y: x.index_put((AT, AT), y[0, :1]),
    "index_put added": lambda x, y: x.index_put((AT, AT), y[:, 0], accumulate=True),
    "put": lambda x, y: x.put(AT, y[0]),
    "put added": lambda x, y: x.put(AT - 4, y[0], accumulate=True),
    "index_add_": lambda x, y: x.index_add_(0, AT, y),
    "index_copy_": lambda x, y: x.index_copy_(1, AT[:3], y[:3, :3]),
    "index_fill_": lambda x, y: x.index_fill_(0, AT, -1),
    "index_put_": lambda x, y: x.index_put_((AT,), y),
    "index_put_ added": lambda x, y: x.index_put_((AT, AT), y[:, 0], accumulate=True),
    "put_": lambda x, y: x.put_(AT, y[0]),
    "setitem": lambda x, y: x.__setitem__(AT, y) or x,
    "setitem of a part": lambda x, y: x.__setitem__((slice(1), AT), y[0]) or x,
    "from itself": lambda x, y: x.index_put_((AT[:3],), x[:]),
    "from itself, added": lambda x, y: x.index_add_(0, AT[:3], x),
    "of a view": lambda x, y: x[:, ::2].index_fill_(1, AT[1:3], 2.0),
    "nothing": lambda x, y: x.index_add(0, AT[:0], y[:0]) + x[AT[:0]].sum(),
    "one place many times": lambda x, y: x[:, :3].index_add(0, MANY, y[:1, :3].expand(400, 3)),
}
MADE = {
    "plain": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "every other": lambda x: gl.stack([x, x], 2).flatten(1)[:, ::2],
    "expanded": lambda x: x[:1].expand(x.shape).clone(memory_format=gl.preserve_format),
}


@pytest.fixture(scope="module", autouse=True)
def on():
    with kernels():
        thresholds.attach(ROWS.values())
        yield


def without_kernels(work):
    before = {op: op.pays for op in thresholds.attached.values()}
    thresholds.switch_off()
    try:
        return work()
    finally:
        for op, pays in before.items():
            op.pays = pays


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    function = FUNCTIONS[name]
    numbers = np.random.default_rng(0).integers(-8, 8, (2, 4, 4)) / 4
    numbers[0, 0] = [np.nan, np.inf, -0.0, 1e-40]
    for made in MADE.values():
        for dtype in (gl.float32, gl.float64, gl.int64, gl.bfloat16):
            finite = np.nan_to_num(numbers, posinf=5.0) if dtype == gl.int64 else numbers

            def plain(made=made, dtype=dtype, finite=finite):
                x, y = (made(gl.tensor(a).to(dtype))[:rows] for a, rows in zip(finite, (3, 4), strict=True))
                version = x._version
                result = function(x, y)
                return [result, x, gl.tensor(x._version - version)]

            def recorded(made=made, dtype=dtype):
                x, y = (made(gl.tensor(a).to(dtype))[:rows].requires_grad_() for a, rows in zip(numbers, (3, 4), strict=True))
                result = function(x * 1, y * 1)
                return [result.detach(), *gl.autograd.grad(result.double().sin().nansum(), (x, y), allow_unused=True)]

            for work in (plain, recorded) if dtype.is_floating_point else (plain,):
                for got, want in zip(work(), without_kernels(work), strict=True):
                    if want is None:
                        assert got is None, name
                        continue
                    assert got.shape == want.shape and got.dtype == want.dtype, name
                    near = 1e-5 if work is recorded else 0  # other kernels sum up the gradients
                    np.testing.assert_allclose(got.double().numpy(), want.double().numpy(), near, 0, err_msg=f"{name}, {dtype}")


def test_kernels_are_asked():
    x, y = gl.randn(3, 4), gl.randn(4, 4)
    for name in ("getitem", "index_add", "index_put_"):
        FUNCTIONS[name](x, y)
    assert {"index", "index_put"} <= used()


@pytest.mark.parametrize("places", [(1, 9), (0, -77)])
@pytest.mark.parametrize("name", ["index_add_", "index_copy_", "index_fill_", "put_"])
def test_nothing_is_written_where_an_index_lies_outside(name, places):
    for size in (3, 3000):  # by a kernel, and in the memory itself
        x, at = gl.ones(size), gl.tensor([places[0], places[1] * size])
        given = {"index_fill_": (0, at, 5.0), "put_": (at, gl.zeros(2))}.get(name, (0, at, gl.zeros(2)))
        version = x._version
        with pytest.raises(IndexError, match="out of range"):
            getattr(x, name)(*given)
        assert (x == 1).all() and x._version == version


def test_sums_of_many_numbers_are_of_doubles():
    ones, at = gl.full((40_000,), 0.1), gl.zeros(40_000, dtype=gl.int64)
    assert abs(gl.zeros(1).index_add(0, at, ones).item() - 4000) < 1e-3
    assert abs(gl.zeros(2).index_put((at,), ones, accumulate=True)[0].item() - 4000) < 1e-3
    weight = gl.zeros(1, 1, requires_grad=True)
    (weight[at] * 0.1).sum().backward()
    assert abs(weight.grad.item() - 4000) < 1e-3


def test_transforms_and_modes_see_them():
    x, y = gl.randn(3, 4), gl.randn(4, 4)

    def work():
        mapped = gl.vmap(lambda row: row[AT].index_add(0, AT, row))(gl.stack([y[0], y[1]]))
        tangent = gl.func.jvp(lambda t: t.index_put((AT,), y * t[0]), (x,), (gl.ones(3, 4),))[1]
        compiled = gl.compile(lambda a, b: a.index_add(0, AT, b)[AT])(x, y)
        with gl.autocast("cpu", dtype=gl.bfloat16):
            low = x.index_add(0, AT, y)
        return [mapped, tangent, compiled, low.float()]

    for got, want in zip(work(), without_kernels(work), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


SPECIAL = [gl.nan, gl.inf, -gl.inf, 1.5, -0.0]


def test_nan_to_num_by_both_ways():
    """Recorded it is made of several rows, otherwise of NumPy's functions."""
    for dtype in (gl.float16, gl.bfloat16, gl.float32, gl.float64):
        for options in ({}, {"nan": 7.0}, {"nan": None, "posinf": 2, "neginf": -1e30}, {"posinf": gl.nan}, {"nan": 1e300}):
            x = gl.tensor(SPECIAL, dtype=dtype)
            want = gl.nan_to_num(x.clone().requires_grad_(), **options).detach()
            for given in (x, gl.stack([x, x], 1)[:, 0]):
                got = gl.nan_to_num(given, **options)
                assert got.dtype == dtype
                np.testing.assert_array_equal(got.double().numpy(), want.double().numpy())
                assert (got.signbit() == want.signbit()).all()
            again = x.clone()
            version = again._version
            assert again.nan_to_num_(**options) is again and again._version == version + 1
            np.testing.assert_array_equal(again.double().numpy(), want.double().numpy())
    assert gl.nan_to_num(gl.zeros(0, 3)).shape == (0, 3) and gl.nan_to_num(gl.tensor(gl.nan)).item() == 0
    mapped = gl.vmap(gl.nan_to_num)(gl.tensor([SPECIAL, SPECIAL]))
    assert mapped[1].equal(gl.nan_to_num(gl.tensor(SPECIAL)))


def test_triangles():
    for find, other in ((gl.tril_indices, np.tril_indices), (gl.triu_indices, np.triu_indices)):
        for row, col, offset in ((4, 4, 0), (3, 5, 1), (5, 3, -2), (0, 3, 0), (3, 0, 0), (2, 2, 9), (2, 2, -9)):
            np.testing.assert_array_equal(find(row, col, offset).numpy(), np.stack(other(row, offset, col)))
        assert find(2, 2, dtype=gl.int32).dtype == gl.int32


def test_coins_are_the_same_in_any_number():
    for size in (7, 40_000):  # a probability for each in memory, and one for all
        gl.manual_seed(3)
        one = gl.bernoulli(gl.zeros(size), 0.3)
        gl.manual_seed(3)
        each = gl.bernoulli(gl.full((size,), 0.3, dtype=gl.float64))
        assert one.double().equal(each) and 0.1 < one.mean() + 0.2 < 0.9
