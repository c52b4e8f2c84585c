"""The generator and the functions over it: streams, moments, arguments. The rows' bits are checked in test_ops."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from gradlab.ops import random_cpu


@pytest.fixture(autouse=True)
def seeded():
    with gl.random.fork_rng():
        gl.manual_seed(7)
        yield


def numpys(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def test_uniforms_are_numpys():
    np.testing.assert_array_equal(gl.rand(1001, dtype=gl.float64).numpy(), numpys(7).random(1001))
    gl.manual_seed(7)
    np.testing.assert_array_equal(gl.rand(77, 13).numpy(), numpys(7).random((77, 13), dtype=np.float32))


def test_seed_decides_everything():
    first = [gl.rand(3), gl.randn(3), gl.randint(9, (4,)), gl.randperm(6), gl.bernoulli(gl.full((4,), 0.5))]
    gl.manual_seed(7)
    again = [gl.rand(3), gl.randn(3), gl.randint(9, (4,)), gl.randperm(6), gl.bernoulli(gl.full((4,), 0.5))]
    for a, b in zip(first, again, strict=True):
        assert gl.Tensor.tolist(a) == b.tolist()
    assert gl.rand(3).tolist() != first[0].tolist()


def test_state_is_kept_and_restored():
    gl.rand(5)
    state = gl.get_rng_state()
    assert (state.dtype, state.shape) == (gl.uint8, (16,))
    want = gl.randn(4).tolist()
    gl.set_rng_state(state)
    assert gl.randn(4).tolist() == want
    with pytest.raises(RuntimeError, match="16 bytes"):
        gl.set_rng_state(gl.zeros(3))


def test_generators_are_apart():
    g = gl.Generator().manual_seed(11)
    assert g.initial_seed() == 11
    a = gl.rand(4, generator=g)
    twin = g.clone_state()
    assert gl.rand(4, generator=g).tolist() == gl.rand(4, generator=twin).tolist()
    assert gl.rand(4, generator=g.manual_seed(11)).tolist() == a.tolist()
    before = gl.get_rng_state().tolist()
    gl.empty(3).normal_(generator=g)
    assert gl.get_rng_state().tolist() == before
    assert g.seed() == g.initial_seed() != 11
    with pytest.raises(TypeError, match="generator"):
        gl.rand(3, generator=5)
    with pytest.raises(RuntimeError, match="64 bits"):
        gl.manual_seed(2**64)
    assert gl.Generator().manual_seed(-1).initial_seed() == 2**64 - 1


def test_fork_restores():
    with gl.random.fork_rng():
        inside = gl.rand(3).tolist()
    assert gl.rand(3).tolist() == inside


N = 40_000


@pytest.mark.parametrize(
    ("make", "mean", "variance"),
    [
        (lambda: gl.rand(N), 0.5, 1 / 12),
        (lambda: gl.randn(N), 0, 1),
        (lambda: gl.randn(N, dtype=gl.bfloat16).float(), 0, 1),
        (lambda: gl.rand(N, dtype=gl.float16).float(), 0.5, 1 / 12),
        (lambda: gl.randint(-3, 4, (N,)).float(), 0, 4),
        (lambda: gl.empty(N).uniform_(-1, 3), 1, 16 / 12),
        (lambda: gl.empty(N).normal_(2, 3), 2, 9),
        (lambda: gl.empty(N).exponential_(2), 0.5, 0.25),
        (lambda: gl.empty(N).log_normal_(0, 0.5), np.exp(0.125), (np.exp(0.25) - 1) * np.exp(0.25)),
        (lambda: gl.empty(N).geometric_(0.25), 4, 12),
        (lambda: gl.empty(N).cauchy_(1, 2).clamp(-1, 3), 1, 2.5465),
        (lambda: gl.empty(N).bernoulli_(0.3), 0.3, 0.21),
        (lambda: gl.empty(N, dtype=gl.int64).bernoulli_(gl.tensor(0.3)).float(), 0.3, 0.21),
        (lambda: gl.bernoulli(gl.full((N,), 0.8)), 0.8, 0.16),
        (lambda: gl.empty(N).random_(2, 5), 3, 2 / 3),
        (lambda: gl.empty(N, dtype=gl.int8).random_().float(), 63.5, 128**2 / 12),
        (lambda: gl.poisson(gl.full((N,), 4.0)), 4, 4),
        (lambda: gl.poisson(gl.full((N,), 400.0)), 400, 400),
        (lambda: gl.normal(gl.full((N,), 3.0), gl.full((N,), 2.0)), 3, 4),
        (lambda: gl.normal(3.0, 2.0, (N,)), 3, 4),
        (lambda: gl.normal(gl.full((N,), 3.0)), 3, 1),
        (lambda: gl.multinomial(gl.tensor([1.0, 2.0, 1.0]), N, True).float(), 1, 0.5),
    ],
)
def test_moments(make, mean, variance):
    found = make().double()
    assert found.mean().item() == pytest.approx(mean, abs=5 * (variance / N) ** 0.5)
    assert found.var().item() == pytest.approx(variance, rel=0.1)


def test_uniform_stays_below_its_end():
    for dtype in (gl.float16, gl.bfloat16, gl.float32):
        made = gl.empty(100_000, dtype=dtype).uniform_(0.9, 1).float()
        assert 0.89 < made.min().item() <= made.max().item() < 1


def test_shapes_and_dtypes():
    assert gl.rand(2, 3).shape == gl.rand((2, 3)).shape == (2, 3)
    assert gl.randn(()).shape == ()
    assert gl.randint(5, (0, 2)).shape == (0, 2)
    assert gl.randint(5, (2,)).dtype == gl.int64
    assert gl.randint(1, 5, (2,), dtype=gl.float32).dtype == gl.float32
    assert gl.randn(3, requires_grad=True).requires_grad
    x = gl.zeros(2, 3, dtype=gl.float64)
    for like in (gl.rand_like(x), gl.randn_like(x), gl.randint_like(x, 4), gl.randint_like(x, 2, 4)):
        assert (like.shape, like.dtype) == ((2, 3), gl.float64)
    assert gl.randn_like(x, dtype=gl.float16).dtype == gl.float16
    assert sorted(gl.randperm(50).tolist()) == list(range(50))
    assert gl.randperm(5, dtype=gl.int32).dtype == gl.int32


def test_multinomial_without_replacement_repeats_nothing():
    drawn = gl.multinomial(gl.tensor([[0.0, 1.0, 1.0, 3.0]] * 50), 3)
    assert all(sorted(row) == [1, 2, 3] for row in drawn.tolist())


def test_a_view_is_filled_in_place():
    x = gl.zeros(4, 6)
    x[:, ::2].uniform_(1, 2)
    assert (x[:, ::2] >= 1).all()
    assert (x[:, 1::2] == 0).all()


def test_what_is_drawn_has_a_gradient_of_zero():
    """As in PyTorch: of the probabilities, rates, means and deviations that numbers were drawn with."""
    both, filled = (lambda p: gl.normal(p, p[:1])), (lambda p: gl.zeros(3).bernoulli_(p))
    for draw in (gl.bernoulli, gl.poisson, gl.normal, lambda p: gl.normal(0.0, p), both, filled):
        p = gl.full((3,), 0.5, requires_grad=True)
        drawn = draw(p)
        assert drawn.requires_grad
        (drawn * p).sum().backward()
        assert p.grad.tolist() == drawn.tolist()


def test_filling_cuts_the_graph():
    x = gl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x.normal_()
    with gl.no_grad():
        x.normal_()
    y = x * 2
    y.uniform_()
    (x + y).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


WRONG = {
    "rand of integers": (lambda: gl.rand(3, dtype=gl.int64), RuntimeError),
    "negative size": (lambda: gl.randn(-1), RuntimeError),
    "empty range": (lambda: gl.randint(5, 5, (2,)), RuntimeError),
    "does not fit": (lambda: gl.randint(0, 300, (2,), dtype=gl.uint8), RuntimeError),
    "no size": (lambda: gl.randint(5), TypeError),
    "randperm": (lambda: gl.randperm(-1), RuntimeError),
    "uniform_ of integers": (lambda: gl.zeros(2, dtype=gl.int64).uniform_(), RuntimeError),
    "uniform_ bounds": (lambda: gl.zeros(2).uniform_(2, 1), RuntimeError),
    "normal_ std": (lambda: gl.zeros(2).normal_(0, -1), RuntimeError),
    "exponential_": (lambda: gl.zeros(2).exponential_(0), RuntimeError),
    "bernoulli_": (lambda: gl.zeros(2).bernoulli_(1.5), RuntimeError),
    "bernoulli NaN": (lambda: gl.bernoulli(gl.tensor([float("nan")])), RuntimeError),
    "bernoulli of integers": (lambda: gl.bernoulli(gl.tensor([1])), RuntimeError),
    "poisson": (lambda: gl.poisson(gl.tensor([-1.0])), RuntimeError),
    "multinomial too many": (lambda: gl.multinomial(gl.tensor([1.0, 2.0]), 3), RuntimeError),
    "multinomial zeros": (lambda: gl.multinomial(gl.tensor([1.0, 0.0, 0.0]), 2), RuntimeError),
    "multinomial negative": (lambda: gl.multinomial(gl.tensor([1.0, -1.0]), 1), RuntimeError),
    "normal std": (lambda: gl.normal(0.0, -1.0, (2,)), RuntimeError),
    "normal std tensor": (lambda: gl.normal(0.0, gl.tensor([-1.0])), RuntimeError),
    "normal size": (lambda: gl.normal(0.0, 1.0), TypeError),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, error = WRONG[case]
    with pytest.raises(error):
        call()


# ---------------------------------------------------------------- dropout


def test_dropout_scale_and_gradient():
    x = gl.ones(N, requires_grad=True)
    y = dropout(x, 0.25)
    kept = (y != 0).double().mean().item()
    assert kept == pytest.approx(0.75, abs=0.01)
    assert y.max().item() == pytest.approx(1 / 0.75)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_dropout_exact_cases():
    x = gl.tensor([1.0, float("nan"), 3.0], requires_grad=True)
    assert dropout(x, 0.0) is x
    assert dropout(x, 0.5, training=False) is x
    y = dropout(x, 1.0)
    assert y.tolist() == [0, 0, 0]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_dropout_in_place():
    x = gl.ones(100)
    assert dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize(
    ("function", "shape"),
    [(dropout1d, (8, 16, 5)), (dropout1d, (64, 5)), (dropout2d, (8, 16, 3, 2)), (dropout3d, (8, 16, 2, 2, 2)), (dropout3d, (64, 2, 2, 2))],
)
def test_whole_channels(function, shape):
    y = function(gl.ones(shape), 0.5).numpy()
    inner = y.reshape(*shape[:2], -1) if shape[0] == 8 else y.reshape(shape[0], -1)
    assert ((inner == 0).all(-1) | (inner == 2).all(-1)).all()
    assert 0 < (y == 0).mean() < 1


@pytest.mark.parametrize("function", [alpha_dropout, feature_alpha_dropout])
def test_alpha_dropout_keeps_the_moments(function):
    y = function(gl.randn(400, 100), 0.3, training=True).double()
    assert y.mean().item() == pytest.approx(0, abs=0.03)
    assert y.var().item() == pytest.approx(1, abs=0.03)
    x = gl.randn(4, 5)
    assert function(x) is x
    assert function(x, 1.0, True).tolist() == [[0.0] * 5] * 4


def test_dropout_arguments():
    for function in (dropout, dropout1d, dropout2d, dropout3d, alpha_dropout, feature_alpha_dropout):
        with pytest.raises(ValueError, match="between 0 and 1"):
            function(gl.ones(2, 3, 1, 1) if function is dropout3d else gl.ones(2, 3), 1.5)
    with pytest.raises(RuntimeError):
        dropout1d(gl.ones(3))
    with pytest.raises(RuntimeError):
        dropout(gl.ones(3).long())


def test_numpy_random_is_imported_late():
    code = "import gradlab, sys; assert 'numpy.random' not in sys.modules; gradlab.rand(2); assert 'numpy.random' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_normal_numbers_are_box_and_mullers_to_the_last_bit():
    """As `ops/random.py` says them, from the words of the stream, in extended precision; at the ends of blocks, too."""
    for size in (1, 2, 7, 8191, 8192, 8193, 40001):
        gl.manual_seed(size)
        found = gl.randn(size, dtype=gl.float64).numpy()
        u = np.random.Generator(np.random.Philox(key=size)).random((size + 1) // 2 * 2).astype(np.longdouble).reshape(-1, 2)
        angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * u[:, 1]
        radius = np.sqrt(-2 * np.log(1 - u[:, 0]))
        want = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:size]
        np.testing.assert_allclose(found, want.astype(np.float64), rtol=0, atol=4e-15)
        gl.manual_seed(size)
        np.testing.assert_array_equal(gl.randn(size).numpy(), found.astype(np.float32))


DRAWS = {
    "rand": lambda x: gl.rand(x.shape), "randn": lambda x: gl.randn(x.shape),
    "rand of doubles": lambda x: gl.rand(x.shape, dtype=gl.float64),
    "randn of halves": lambda x: gl.randn(x.shape, dtype=gl.float16), "randint": lambda x: gl.randint(0, 9, x.shape),
    "randperm": lambda x: gl.randperm(len(x)), "normal_": lambda x: x.normal_(), "uniform_": lambda x: x.uniform_(-1, 2),
    "bernoulli": gl.bernoulli, "bernoulli_": lambda x: x.bernoulli_(0.5), "dropout": gl.nn.functional.dropout,
    "exponential_": lambda x: x.exponential_(), "normal": lambda x: gl.normal(x, 1.0), "poisson": gl.poisson,
    "multinomial": lambda x: gl.multinomial(gl.ones(x.shape), 3, replacement=True),
    "multinomial, each once": lambda x: gl.multinomial(gl.ones(x.shape), 1), "log_normal_": lambda x: x.log_normal_(),
    "geometric_": lambda x: x.geometric_(0.5), "cauchy_": lambda x: x.cauchy_(),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 16, 17, 100])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_that_follow_each_other_read_ahead(name, size, monkeypatch):
    """A draw is counted for as many words as it takes from those that were read: of one more or less the next would not follow it."""
    begun = []
    monkeypatch.setattr(random_cpu, "stream", lambda *given, stream=random_cpu.stream: begun.append(given) or stream(*given))
    for _ in range(30):
        DRAWS[name](gl.full((size,), 0.5))
    assert len(begun) <= 4
