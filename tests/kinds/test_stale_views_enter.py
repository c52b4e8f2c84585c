"""A view whose base has got a gradient since it was made, given to what calls code of users: it is brought up to date at the door.

`test_stale_views.py` does this for each public function; here are custom functions, hooks, contexts and functions of functions.
"""

import copy
import pickle
import warnings

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.utils.checkpoint import checkpoint


class Squares(gl.autograd.Function):
    """The older form."""

    @staticmethod
    def forward(ctx, x):
        assert ctx.needs_input_grad == (True,)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


class SquaresApart(gl.autograd.Function):
    """With its context apart."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


class SquaresOfMany(gl.autograd.Function):
    """The view is not the first argument, and stands beside what needs no gradient."""

    @staticmethod
    def forward(ctx, number, plain, x):
        assert ctx.needs_input_grad == (False, False, True)
        ctx.save_for_backward(x)
        return number * plain + x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return None, None, 2 * g * x


class Squaring(nn.Module):
    def forward(self, x):
        return x * x


def with_hooks(kind):
    def call(x):
        made = Squaring()
        if kind == "before":
            made.register_forward_pre_hook(lambda module, given: (given[0] * 1,))
        elif kind == "after":
            made.register_forward_hook(lambda module, given, found: found + 0 * given[0])
        else:
            made.register_full_backward_hook(lambda module, before, after: None)
        return made(x)

    return call


def through_a_hook(x):
    x.register_hook(lambda g: g * 1)
    return x * x


def kept_gradient(x):
    x.retain_grad()
    return x * x


def from_inside(x):
    (g,) = gl.autograd.grad((x * x).sum(), x, create_graph=True)
    return g * x / 2


def saved_by_hooks(x):
    with gl.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return x * x


def by_products(x):
    _, back = gl.func.vjp(lambda t: t * t, x)
    return back(gl.ones_like(x))[0] * x / 2


def compiled(x):
    run = gl.compile(lambda t: t * t)
    for _ in range(2):
        run(gl.ones(2, requires_grad=True))
    return run(x)


def in_a_program(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gl.jit.trace(lambda t: t * t, (gl.ones(2),))(x)


WAYS = {
    "function": Squares.apply,
    "function, apart": SquaresApart.apply,
    "function of many": lambda x: SquaresOfMany.apply(0.0, gl.ones(2), x),
    "checkpoint": lambda x: checkpoint(lambda t: t * t, x, use_reentrant=False),
    "checkpoint, reentrant": lambda x: checkpoint(lambda t: t * t, x, use_reentrant=True),
    "vmap": lambda x: gl.vmap(lambda t: t * t)(x),
    "vmap of a function": lambda x: gl.vmap(SquaresApart.apply)(x),
    "module": Squaring(),
    "hook before": with_hooks("before"),
    "hook after": with_hooks("after"),
    "hook of gradients": with_hooks("backward"),
    "hook of the tensor": through_a_hook,
    "kept gradient": kept_gradient,
    "gradient inside": from_inside,
    "saved by hooks": saved_by_hooks,
    "vjp": by_products,
    "compile": compiled,
    "jit": in_a_program,
    "cond": lambda x: gl.cond(gl.tensor(True), lambda t: t * t, lambda t: t, (x,)),
    "in a list": lambda x: gl.stack([t * t for t in x]),
    "named": lambda x: gl.func.functional_call(Squaring(), {}, (x,)),
    "parallel": lambda x: nn.Sequential(Squaring(), nn.Identity())(x),
    "moved": lambda x: x.to(gl.float64).to(gl.float32) ** 2,
    "autocast": lambda x: gl.amp.custom_fwd(lambda t: t * t, device_type="cpu")(x),
}


def gradient(way, stale):
    w = gl.tensor([2.0, 3.0, 5.0], requires_grad=True)
    base = gl.ones(3)
    part = base[1:]
    base.mul_(w)
    result = way(part if stale else base[1:])
    result.sum().backward()
    return result.tolist(), w.grad.tolist()


@pytest.mark.parametrize("name", WAYS)
def test_gradients_reach_the_base(name):
    assert gradient(WAYS[name], True) == gradient(WAYS[name], False) == ([9.0, 25.0], [0.0, 6.0, 10.0])


def pickled(t):
    return pickle.loads(pickle.dumps(t.detach()))


@pytest.mark.parametrize("kept", [copy.copy, pickled, lambda t: t.detach().numpy(), gl.Tensor.tolist])
def test_values_are_the_new_ones(kept):
    base = gl.ones(3)
    part = base[1:]
    base.mul_(gl.tensor([2.0, 3.0, 5.0]))
    found = kept(part)
    assert (found if isinstance(found, list) else found.tolist()) == [3.0, 5.0]
