"""`gradcheck` and `gradgradcheck`: what is right passes, what is wrong is reported with its worst entry."""

import re

import numpy as np
import pytest

import gradlab as gl
from gradlab.autograd import Function, gradcheck, gradgradcheck
from gradlab.autograd.gradcheck import GradcheckError

both = pytest.mark.parametrize("fast_mode", [False, True])


def leaf(shape, seed=0, dtype=gl.float64):
    return gl.tensor(np.random.default_rng(seed).normal(size=shape), dtype=dtype, requires_grad=True)


class WrongSquare(Function):
    """One entry of its gradient is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        wrong = gl.ones_like(x)
        wrong[1, 2] = 1.5
        return 2 * x * g * wrong


@both
def test_right_gradients_pass(fast_mode):
    x, w, b = leaf((3, 4)), leaf((4, 2), 1), leaf(2, 2)

    def net(x, w, b, scale):
        y = (x @ w + b).tanh() * scale
        return y, y.sum(0), y.argmax()

    assert gradcheck(net, (x, w, b, 2.0), fast_mode=fast_mode, check_grad_dtypes=True, check_batched_grad=True)
    assert gradgradcheck(net, (x, w, b, 2.0), fast_mode=fast_mode)
    assert x.grad is None


@both
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1), lambda x: x.var(1), lambda x: x.sort(1).values, lambda x: x[:, ::2].T.cumsum(0),
        lambda x: x.exp().logsumexp((0, 1)), lambda x: gl.nn.functional.layer_norm(x, (4,)), lambda x: (x * 3, x.sin()), lambda x: x[:0],
    ],
)  # fmt: skip
def test_functions_of_one_input(function, fast_mode):
    assert gradcheck(function, leaf((3, 4)), fast_mode=fast_mode)
    assert gradgradcheck(function, leaf((3, 4)), fast_mode=fast_mode)


@both
def test_the_worst_entry_is_reported(fast_mode):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(WrongSquare.apply, leaf((3, 4)), fast_mode=fast_mode)
    x = leaf((3, 4))[1, 2].item()
    text = str(caught.value)
    assert "Jacobian mismatch for output 0 with respect to input 0" in text
    assert "d output[1, 2] / d input[1, 2]" in text and "1 of 144 entries" in text
    analytical, numerical = (float(v) for v in re.search(r"analytical (\S+), numerical (\S+),", text).groups())
    assert analytical == pytest.approx(3 * x) and numerical == pytest.approx(2 * x)
    assert re.search(r"\S+ times the tolerance", text)
    assert gradcheck(WrongSquare.apply, leaf((3, 4)), raise_exception=False, fast_mode=fast_mode) is False
    with pytest.raises(GradcheckError, match="numerical:\n"):
        gradcheck(lambda x: WrongSquare.apply(x).sum(1), leaf((3, 4)), fast_mode=fast_mode)


@both
def test_a_wrong_second_derivative(fast_mode):
    class Cut(Function):
        """The first derivative is right; its own depends on x, which detach hides."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x.detach() ** 2 * g

    assert gradcheck(Cut.apply, leaf(3), fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradgradcheck(Cut.apply, leaf(3), fast_mode=fast_mode)


@both
def test_a_detached_output_is_a_wrong_gradient(fast_mode):
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, leaf(3), fast_mode=fast_mode)


@both
def test_nondeterminism(fast_mode):
    with pytest.raises(GradcheckError, match="not deterministic"):
        gradcheck(lambda x: x * gl.rand(3), leaf(3), fast_mode=fast_mode)

    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + gl.rand(3, dtype=gl.float64) * 1e-7

    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(Noisy.apply, leaf(3), fast_mode=fast_mode, check_undefined_grad=False)
    assert gradcheck(Noisy.apply, leaf(3), fast_mode=fast_mode, nondet_tol=1e-6, check_undefined_grad=False)


def test_undefined_gradients():
    class Careless(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 3

    with pytest.raises(TypeError):
        gradcheck(Careless.apply, leaf(3))
    assert gradcheck(lambda x: sum(Careless.apply(x)), leaf(3))

    class Constant(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return gl.full_like(g, 2.0) * (g != 0) + (g == 0).double()

    with pytest.raises(GradcheckError, match="zero"):
        gradcheck(Constant.apply, leaf(1))


def test_a_backward_that_vmap_cannot_run():
    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (2.0 if float(g.sum()) < 1e9 else 3.0)

    assert gradcheck(Looks.apply, leaf(3))
    with pytest.raises(GradcheckError, match="backward under vmap"):
        gradcheck(Looks.apply, leaf(3), check_batched_grad=True)


def test_what_cannot_be_checked():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(gl.sin, gl.ones(3))
    with pytest.warns(UserWarning, match="not a double precision"):
        assert gradcheck(lambda x: x * 2, leaf(3, dtype=gl.float32), eps=1e-2, atol=1e-3)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda x: x.sum(), gl.ones(1, dtype=gl.float64).expand(3).requires_grad_())
    with pytest.raises(NotImplementedError, match="gradgradcheck"):
        gradcheck(gl.sin, leaf(3), check_forward_ad=True)


def test_grad_outputs_may_be_given_and_no_grad_does_not_matter():
    with gl.no_grad():
        assert gradgradcheck(lambda x: x**3, leaf(3), leaf(3, 1))
        assert gradcheck(gl.sin, leaf(3))


@both
def test_a_function_that_knows_its_inputs_by_another_name(fast_mode):
    net = gl.nn.Linear(3, 2, dtype=gl.float64)
    x = leaf((4, 3))
    parameters = tuple(net.parameters())
    before = [p.tolist() for p in parameters]
    assert gradcheck(lambda *_: net(x).tanh(), parameters, fast_mode=fast_mode)
    assert gradgradcheck(lambda *_: net(x).tanh(), (*parameters, x), fast_mode=fast_mode)
    assert [p.tolist() for p in parameters] == before


def test_graphs_from_before_still_know_their_values():
    x = leaf(3)
    y = (x * x).sum()
    version = x._version
    assert gradcheck(gl.sin, x)
    y.backward()
    assert gl.equal(x.grad, 2 * x) and x._version == version


def test_inputs_that_cannot_be_written():
    values = np.ones(3)
    values.flags.writeable = False
    assert gradcheck(gl.sin, gl.from_numpy(values).requires_grad_())
