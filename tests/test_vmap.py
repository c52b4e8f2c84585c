"""vmap: dimensions, errors, in-place writes, randomness, loops, traces."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab.func import grad, vmap, vmap_levels
from gradlab.graph import trace

X = np.random.default_rng(0).normal(size=(4, 3))


def x64(array=X):
    return gl.tensor(array)


def close(got, want):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy() if isinstance(want, gl.Tensor) else want, 1e-10, 1e-12)


# ---------------------------------------------------------------- dimensions


def test_dimensions_in_and_out():
    a, b = x64(), x64(X.T.copy())
    close(gl.vmap(lambda u, v: u * v.sum(), in_dims=(0, 1))(a, b), X * X.sum(1)[:, None])
    close(gl.vmap(lambda u: u * 2, in_dims=1, out_dims=1)(a), 2 * X)
    close(gl.vmap(lambda u: u * 2, in_dims=-1)(a), 2 * X.T)
    close(gl.vmap(lambda u, v: u + v, in_dims=(0, None), out_dims=-1)(a, a[0]), (X + X[0]).T)
    close(gl.vmap(lambda u: gl.ones(2))(a), np.ones((4, 2)))
    close(gl.vmap(lambda u, v: v * 1, in_dims=(0, None), out_dims=None)(a, a), X)


def test_nested_arguments_and_results():
    Pair = collections.namedtuple("Pair", "left right")

    def f(d, pair):
        return Pair(d["a"] + pair.left, {"sum": (d["b"][0] * pair.right).sum()})

    found = gl.vmap(f, in_dims=({"a": 0, "b": None}, 0), out_dims=(1, 0))({"a": x64(), "b": [x64(X[0])]}, Pair(x64(), x64()))
    close(found.left, 2 * X.T)
    close(found.right["sum"], (X * X[0]).sum(1))


def test_keyword_arguments_are_the_same_for_every_sample():
    close(gl.vmap(lambda u, *, v: u * v.sum())(x64(), v=x64()), X * X.sum())


@pytest.mark.parametrize("chunk_size", [1, 3, 4, 100])
def test_chunks(chunk_size):
    found = gl.vmap(lambda u: (u * 2, u.sum()), out_dims=(1, 0), chunk_size=chunk_size)(x64())
    close(found[0], 2 * X.T)
    close(found[1], X.sum(1))


def test_vmap_of_vmap():
    b = np.random.default_rng(1).normal(size=(5, 3))
    close(gl.vmap(gl.vmap(lambda u, v: (u * v).sum(), (None, 0)), (0, None))(x64(), gl.tensor(b)), X @ b.T)
    close(gl.vmap(gl.vmap(gl.vmap(lambda u: u * u)))(gl.ones(2, 3, 4) * 3), np.full((2, 3, 4), 9))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: vmap(lambda u: u)(), ValueError, "no positional arguments"),
        (lambda: vmap(lambda u: u)(3.0), ValueError, "float"),
        (lambda: vmap(lambda u: u, in_dims=2)(x64()), ValueError, "no dimension 2"),
        (lambda: vmap(lambda u: u, in_dims=(None,))(x64()), ValueError, "no argument is mapped"),
        (lambda: vmap(lambda u, v: u)(x64(), x64()[:2]), ValueError, "different sizes"),
        (lambda: vmap(lambda u: u, in_dims=(0, 0))(x64()), ValueError, "nest"),
        (lambda: vmap(lambda u: u, in_dims="ab")(x64()), ValueError, "in_dims"),
        (lambda: vmap(lambda u: u, in_dims=((0,),))(x64()), ValueError, "deeper"),
        (lambda: vmap(lambda u: 1.0)(x64()), ValueError, "float"),
        (lambda: vmap(lambda u: u, out_dims=None)(x64()), ValueError, "out_dims is None"),
        (lambda: vmap(lambda u: u, out_dims=5)(x64()), IndexError, "out of range"),
        (lambda: vmap(lambda u: (u, u), out_dims=(0,))(x64()), ValueError, "nest"),
        (lambda: vmap(lambda u: u, randomness="some"), RuntimeError, "randomness"),
        (lambda: vmap(lambda u: u, chunk_size=0), ValueError, "chunk_size"),
        (lambda: vmap(lambda u: u.nonzero())(x64()), RuntimeError, "sample to sample"),
        (lambda: vmap(lambda u: u[u > 0])(x64()), RuntimeError, "sample to sample"),
        (lambda: vmap(lambda u: u @ gl.ones(5, 2, dtype=gl.float64))(x64()), RuntimeError, "size"),
    ],
)
def test_wrong_use_says_what_is_wrong(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("read", [bool, float, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy(), lambda t: 1 if t > 0 else 2])
def test_reading_a_value_teaches_where(read):
    with pytest.raises(RuntimeError, match=r"gl\.where"):
        gl.vmap(lambda u: u * read(u))(gl.ones(3))


def test_a_tensor_shows_what_it_is():
    shown = []
    gl.vmap(lambda u: (shown.append(repr(u)), u)[1])(x64())
    assert "shape=(3,)" in shown[0]


def test_a_tensor_that_escaped_says_so():
    kept = []
    gl.vmap(lambda u: (kept.append(u), u)[1])(x64())
    with pytest.raises(RuntimeError, match="over"):
        kept[0] + 1
    with pytest.raises(RuntimeError, match="function is over"):
        gl.vmap(lambda u: u + kept[0])(x64())


# ---------------------------------------------------------------- writing in place


def test_writes_change_what_belongs_to_each_sample():
    def f(u):
        made = u.new_zeros(3)
        made[1] = u.sum()
        part = made[:2]
        part.add_(1)
        twin = u.clone()
        twin.mul_(2).clamp_(min=0)
        twin[gl.tensor([0, 2])] = made[:2]
        return made, twin

    made, twin = gl.vmap(f)(x64())
    for i in range(4):
        want = f(x64(X[i]))
        close(made[i], want[0])
        close(twin[i], want[1])
    jacobian = gl.func.jacrev(lambda u: f(u)[1])
    close(gl.vmap(jacobian)(x64())[1], jacobian(x64(X[1])))


def test_writing_into_an_argument_writes_into_the_tensor_that_was_given():
    for dim in (0, 1):
        a = x64()
        gl.vmap(lambda u: u.mul_(2), in_dims=dim)(a)
        close(a, 2 * X)
    a = x64()
    gl.vmap(lambda u: u[0].zero_())(a)
    close(a, X * [0, 1, 1])
    b = x64().requires_grad_()
    c = b * 1
    gl.vmap(lambda u: u.mul_(3))(c)
    c.sum().backward()
    close(b.grad, 3 * np.ones((4, 3)))


def test_a_shared_tensor_cannot_hold_a_value_of_each_sample():
    shared = gl.zeros(3, dtype=gl.float64)
    with pytest.raises(RuntimeError, match="new_zeros"):
        gl.vmap(lambda u: shared.add_(u))(x64())
    assert float(shared.abs().sum()) == 0


# ---------------------------------------------------------------- randomness


def test_randomness():
    a = gl.zeros(5, 3)
    with pytest.raises(RuntimeError, match="randomness"):
        gl.vmap(lambda u: u + gl.rand(3))(a)
    same = gl.vmap(lambda u: u + gl.rand(3), randomness="same")(a).numpy()
    assert (same == same[0]).all()
    different = gl.vmap(lambda u: u + gl.rand(3), randomness="different")(a).numpy()
    assert len(np.unique(different)) == 15


@pytest.mark.parametrize(
    "make",
    [
        lambda u: gl.randn(5), lambda u: gl.rand_like(u), lambda u: gl.randint(0, 1000000, (4,)), lambda u: gl.randperm(30),
        lambda u: gl.bernoulli(u.new_full((40,), 0.5)), lambda u: gl.bernoulli((u[:1] * 0 + 0.5).expand(40)),
        lambda u: gl.multinomial(gl.ones(50), 10), lambda u: gl.multinomial(u.new_ones(50), 10, replacement=True),
        lambda u: F.dropout(gl.ones(40), 0.5), lambda u: F.dropout(u[:1] * 0 + u.new_ones(40), 0.5),
        lambda u: gl.poisson(u.new_full((20,), 30.0)), lambda u: gl.normal(u, 1.0),
    ],
)  # fmt: skip
def test_every_random_function_is_different_or_the_same(make):
    a = gl.zeros(4, 3)
    gl.manual_seed(1)
    different = gl.vmap(make, randomness="different")(a).numpy()
    assert len({row.tobytes() for row in different}) == 4
    gl.manual_seed(1)
    same = gl.vmap(make, randomness="same")(a).numpy()
    assert len({row.tobytes() for row in same}) == 1
    gl.manual_seed(1)
    np.testing.assert_array_equal(same[0], make(a[0]).numpy())
    gl.manual_seed(1)
    np.testing.assert_array_equal(different, gl.vmap(make, randomness="different")(a).numpy())


def test_randomness_of_nested_vmaps():
    f = lambda u: gl.rand(2)
    found = vmap(vmap(f, randomness="different"), randomness="different")(gl.zeros(3, 4)).numpy()
    assert len(np.unique(found)) == 24
    found = vmap(vmap(f, randomness="same"), randomness="different")(gl.zeros(3, 4)).numpy()
    assert found.shape == (3, 4, 2) and len(np.unique(found)) == 6 and (found == found[:, :1]).all()
    found = vmap(vmap(f, randomness="different"), randomness="same")(gl.zeros(3, 4)).numpy()
    assert len(np.unique(found)) == 8 and (found == found[:1]).all()


def test_the_mask_of_dropout_is_that_of_the_forward():
    g = vmap(lambda u: gl.func.vjp(lambda v: F.dropout(v, 0.5), u)[0], randomness="different")(gl.ones(4, 20))
    assert set(np.unique(g.numpy())) == {0, 2}
    x = gl.ones(4, 20).requires_grad_()
    y = vmap(lambda u: F.dropout(u, 0.5), randomness="different")(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    y, pull = gl.func.vjp(lambda v: F.dropout(v, 0.5), gl.ones(6))
    rows = vmap(lambda c: pull(c)[0], randomness="different")(gl.eye(6))
    np.testing.assert_array_equal(rows.numpy(), np.diag(y.numpy()))


# ---------------------------------------------------------------- loops, modes, traces, Functions


def test_a_row_without_a_rule_runs_one_by_one_and_warns_once():
    f = gl.vmap(lambda u: u.masked_scatter(u > 0, u * 10))
    vmap_levels._warned.discard("masked_scatter")
    with pytest.warns(UserWarning, match="masked_scatter has no rule"):
        found = f(x64())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x64())
    for i in range(4):
        u = x64(X[i])
        close(found[i], u.masked_scatter(u > 0, u * 10))


def test_detach_inside_cuts_the_graph_around():
    close(grad(lambda a: gl.vmap(lambda u: (u.detach() * u).sum())(a).sum())(x64()), X)


def test_no_grad_inside_cuts_the_graph_around():
    def f(u):
        with gl.no_grad():
            c = u * u
        return (c * u).sum()

    close(grad(lambda a: gl.vmap(f)(a).sum())(x64()), X * X)


def test_recording_is_off_where_it_was_off():
    a = x64().requires_grad_()
    with gl.no_grad():
        assert not gl.vmap(lambda u: u * 2)(a).requires_grad
    assert gl.vmap(lambda u: u * 2)(a).requires_grad
    assert not gl.vmap(lambda u: u * 2)(x64()).requires_grad


def test_the_mode_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError):
        gl.vmap(lambda u: 1 / 0)(x64())
    close(x64() + 1, X + 1)


def test_a_trace_goes_through():
    net = gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.Tanh(), gl.nn.Linear(4, 2)).double()
    p = {k: v.detach() for k, v in net.named_parameters()}
    loss = lambda p, u: (gl.func.functional_call(net, p, (u,)) ** 2).sum()

    def f(p, a):
        made = gl.vmap(grad(loss), (None, 0))(p, a)
        sums = gl.vmap(lambda u: u.new_zeros(2).index_add(0, gl.tensor([0, 1, 1]), u))(a)
        return made["0.weight"], sums, gl.func.hessian(lambda p: loss(p, a[0]))(p)

    program = trace(f, p, x64())
    other = x64(X + 1)
    got, want = program(p, other), f(p, other)
    close(got[0], want[0])
    close(got[1], want[1])
    close(got[2]["0.weight"]["2.bias"], want[2]["0.weight"]["2.bias"])


def test_a_traced_vmap_of_random_numbers_draws_anew():
    program = trace(gl.vmap(lambda u: u + gl.rand(2), randomness="different"), gl.zeros(3, 2))
    first, second = program(gl.zeros(3, 2)).numpy(), program(gl.zeros(3, 2)).numpy()
    assert len(np.unique([first, second])) == 12


def test_casts_devices_and_promotion_inside():
    found = gl.vmap(lambda u: (u.to(gl.float32) + 1).to("cpu"))(x64())
    assert found.dtype == gl.float32
    a, b = gl.ones(4, dtype=gl.float64), gl.ones(4, 3)
    assert gl.vmap(lambda s, v: s * v)(a, b).dtype == gl.float32  # a number of each sample is weak, as one number is
    assert gl.vmap(lambda n: n * 2.5)(gl.ones(4, dtype=gl.int64)).dtype == gl.float32


def test_layers_that_look_at_their_input():
    gl.manual_seed(0)
    rnn = gl.nn.LSTM(3, 5).double()
    a = gl.tensor(np.random.default_rng(2).normal(size=(4, 6, 2, 3)))
    found = gl.vmap(lambda u: rnn(u)[0])(a)
    for i in range(4):
        close(found[i], rnn(a[i])[0])
    attention = gl.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    b = gl.tensor(np.random.default_rng(3).normal(size=(3, 2, 5, 8)))
    found = gl.vmap(attention)(b)
    for i in range(3):
        close(found[i], attention(b[i]))
