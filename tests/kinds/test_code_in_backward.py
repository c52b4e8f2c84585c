"""Code of the user's that runs in a backward is code like any other: its views are views, and what it records is recorded.

While gradients are walked nobody tracks views, which formulas do not need. Each way into the user's code has to end that.
"""

import warnings

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.autograd import Function, graph
from gradlab.autograd.function import once_differentiable
from gradlab.autograd.mode import current
from gradlab.utils.checkpoint import checkpoint


def leaf():
    return gl.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def used(x):
    return (x * x).sin().sum()


def hook_of_a_leaf(code):
    x = leaf()
    x.register_hook(code)
    used(x).backward()


def hook_of_a_result(code):
    x = leaf() * 2
    x.register_hook(code)
    used(x).backward()


def hook_of_a_gradient_that_is_asked_for(code):
    x = leaf()
    x.register_hook(code)
    gl.autograd.grad(used(x), x)


def hook_after_accumulation(code):
    x = leaf()
    x.register_post_accumulate_grad_hook(code)
    used(x).backward()


def hook_of_a_node(code):
    x = leaf() * 2
    x.grad_fn.register_hook(lambda after, before: code())
    used(x).backward()


def hook_before_a_node(code):
    x = leaf() * 2
    x.grad_fn.register_prehook(lambda gradients: code())
    used(x).backward()


def hook_of_an_accumulator(code):
    x = leaf()
    graph.get_gradient_edge(x).node.register_hook(lambda after, before: code())
    used(x).backward()


def hook_of_several(code):
    x, y = leaf(), leaf()
    graph.register_multi_grad_hook((x, y), code)
    used(x * y).backward()


def hook_of_the_first_of_several(code):
    x, y = leaf(), leaf()
    graph.register_multi_grad_hook((x, y), code, mode="any")
    used(x * y).backward()


def unpacking(code):
    x = leaf()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: code() or t):
        y = used(x)
    y.backward()


def unpacking_twice(code):
    """While the backward is itself recorded, what its formulas keep is packed, too."""
    x = leaf()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: code() or t):
        (g,) = gl.autograd.grad(used(x), x, create_graph=True)
        g.sum().backward()


def packing_in_a_backward(code):
    x = leaf()
    gl.autograd.grad(used(x), x, create_graph=True)
    z = used(x)
    with graph.saved_tensors_hooks(lambda t: code() or t, lambda t: t):
        gl.autograd.grad(z, x, create_graph=True)


class Coded(Function):
    @staticmethod
    def forward(ctx, x, code):
        ctx.code = code
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.code()
        return g * 2, None


def backward_of_a_function(code):
    used(Coded.apply(leaf(), code)).backward()


def backward_of_a_function_for_once(code):
    class Once(Coded):
        backward = staticmethod(once_differentiable(Coded.backward))

    used(Once.apply(leaf(), code)).backward()


def backward_of_an_operation_of_ones_own(code):
    @gl.library.custom_op("tests::twice_in_backward", mutates_args=())
    def twice(x: gl.Tensor) -> gl.Tensor:
        return x * 2

    twice.register_autograd(lambda ctx, g: code() or g * 2)
    used(twice(leaf())).backward()


def hook_of_all_modules(code):
    handles = [
        nn.modules.module.register_module_full_backward_hook(lambda m, inputs, outputs: code()),
        nn.modules.module.register_module_full_backward_pre_hook(lambda m, outputs: code()),
    ]
    try:
        used(nn.Linear(2, 2)(leaf())).backward()
    finally:
        for handle in handles:
            handle.remove()


def hook_of_a_module(code):
    module = nn.Linear(2, 2)
    module.register_full_backward_hook(lambda m, inputs, outputs: code())
    used(module(leaf())).backward()


def hook_before_a_module(code):
    module = nn.Linear(2, 2)
    module.register_full_backward_pre_hook(lambda m, outputs: code())
    used(module(leaf())).backward()


def checkpointed(code):
    def part(x):
        code()
        return used(x)

    checkpoint(part, leaf(), use_reentrant=False).backward()


def checkpointed_from_within(code):
    def part(x):
        code()
        return used(x)

    checkpoint(part, leaf(), use_reentrant=True).backward()


WAYS = [
    hook_of_a_leaf, hook_of_a_result, hook_of_a_gradient_that_is_asked_for, hook_after_accumulation, hook_of_a_node, hook_before_a_node,
    hook_of_an_accumulator, hook_of_several, hook_of_the_first_of_several, unpacking, unpacking_twice, packing_in_a_backward,
    backward_of_a_function, backward_of_a_function_for_once, backward_of_an_operation_of_ones_own, hook_of_all_modules, hook_of_a_module,
    hook_before_a_module, checkpointed, checkpointed_from_within,
]  # fmt: skip


def views_are_views():
    base = gl.zeros(3, 2)
    row, again = base[1], base.t()
    row.add_(1)
    assert base._version == row._version == again._version == 1
    assert again.tolist() == [[0, 1, 0], [0, 1, 0]] and not current().walking


def what_is_recorded_through_views():
    with gl.enable_grad():
        w = leaf()
        base = w * 1
        base[0].mul_(3)
        base.t()[1].mul_(5)
        gradient = gl.autograd.grad(base.sum(), w)[0]
    assert gradient.tolist() == [[3, 15], [1, 5]]


def a_backward_of_its_own():
    with gl.enable_grad():
        w = leaf()
        used(w).backward()
        second = gl.autograd.grad((w * w).sin().sum(), w, create_graph=True)[0]
    assert gl.equal(w.grad, second) and second.requires_grad


@pytest.mark.parametrize("what", [views_are_views, what_is_recorded_through_views, a_backward_of_its_own], ids=lambda f: f.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_code_in_a_backward(way, what):
    ran = []

    def code(*_):
        what()
        ran.append(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        way(code)
    assert ran and not current().walking and gl.is_grad_enabled()


def of_accumulator(code):
    x = leaf()
    graph.get_gradient_edge(x).node.register_prehook(lambda gradients: code())
    used(x).backward()


REPLACING = [
    hook_of_a_leaf, hook_of_a_result, hook_of_a_gradient_that_is_asked_for, hook_of_a_node, hook_before_a_node, of_accumulator,
    hook_of_all_modules, hook_of_a_module, hook_before_a_module,
]  # fmt: skip
WRONG = {
    "narrower": lambda: gl.ones(1, 2), "broadcast": lambda: gl.ones(1, 1), "larger": lambda: gl.ones(3, 2, 2),
    "single": lambda: gl.tensor(1.0),
    "double": lambda: gl.ones(2, 2, dtype=gl.float64), "integers": lambda: gl.ones(2, 2, dtype=gl.int64), "number": lambda: 3.0,
    "array": lambda: gl.ones(2, 2).numpy(), "elsewhere": lambda: gl.ones(2, 2, device="meta"), "two": lambda: (gl.ones(2, 2),) * 5,
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("way", REPLACING, ids=lambda f: f.__name__)
def test_a_gradient_that_a_hook_returns_is_like_the_one_it_was_given(way, wrong):
    """Kernels read what the operation promises: of another shape they would read beyond the memory."""
    with pytest.raises((RuntimeError, TypeError), match=r"hook.*returned"):
        way(lambda *_: WRONG[wrong]())


def test_a_hook_may_leave_no_gradient():
    for hooked in ("register_prehook", "register_hook"):
        x, y = leaf(), leaf()
        z = x * y
        getattr(z.grad_fn, hooked)(lambda *gradients: tuple([None] * len(gradients[0])))
        (z + y).sum().backward()
        assert x.grad is None and y.grad.tolist() == [[1, 1], [1, 1]]
