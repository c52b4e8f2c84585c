"""`custom_op(…, mutates_args=…)`: operations written with tensor functions, as PyTorch's programs make them."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.library import custom_op, get, register_autograd, register_fake, register_kernel


def scaled_product(name: str, **options):
    @custom_op(name, mutates_args=(), **options)
    def product(x: gl.Tensor, y: gl.Tensor, scale: float = 2.0, *, shift: float = 0.0) -> gl.Tensor:
        """Said of it."""
        return x * y * scale + shift

    return product


def keep(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.scale, ctx.shift = inputs[2], keyword_only_inputs["shift"]


def backward(ctx, g):
    x, y = ctx.saved_tensors
    return g * y * ctx.scale, g * x * ctx.scale, None


def test_values_and_gradients():
    product = scaled_product("of_tensors::product", schema="(Tensor x, Tensor y, float scale=2.0, *, float shift=0.0) -> Tensor")
    x, y = gl.tensor([1.0, 2.0], requires_grad=True), gl.tensor([3.0, 4.0], requires_grad=True)
    assert product(x, y).tolist() == [6, 16] and product(x, y=y, scale=1.0, shift=0.5).tolist() == [3.5, 8.5]
    assert product.__doc__ == "Said of it." and get("of_tensors::product") is product is copy.deepcopy(product)
    with pytest.raises(RuntimeError, match="has no gradient; give it one by"):
        product(x, y).sum().backward()
    register_autograd("of_tensors::product", backward, setup_context=keep)
    product(x, y, 3.0, shift=1.0).sum().backward()
    assert x.grad.tolist() == [9, 12] and y.grad.tolist() == [3, 6]
    assert gl.autograd.gradcheck(product, (x.detach().double().requires_grad_(), y.detach().double().requires_grad_()))


def test_two_outputs_compiled_and_traced():
    @custom_op("of_tensors::both", mutates_args=())
    def both(x: gl.Tensor) -> tuple[gl.Tensor, gl.Tensor]:
        return x + 1, x * 3

    register_autograd(both, lambda ctx, g, h: g + 3 * h)
    x = gl.ones(2, requires_grad=True)
    a, b = gl.compile(both)(x)
    (a + 2 * b).sum().backward()
    assert (a.tolist(), b.tolist(), x.grad.tolist()) == ([2, 2], [3, 3], [7, 7])
    assert gl.jit.trace(lambda x: both(x)[1], gl.ones(2))(gl.ones(2)).tolist() == [3, 3]


def test_operations_that_write():
    @custom_op("of_tensors::add_one", mutates_args={"x"})
    def add_one(x: gl.Tensor) -> None:
        x.add_(1)

    x = gl.zeros(2)
    assert add_one(x) is None
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="writes to x, so it has no gradient"):
        register_autograd(add_one, backward)


def test_kernels_of_a_device():
    product = scaled_product("of_tensors::by_device")

    @register_kernel("of_tensors::by_device", "cpu")
    def other(x, y, scale, *, shift):
        return x - y

    @register_fake(product)
    def fake(x, y, scale, *, shift):
        raise AssertionError("not needed")

    @product.register_kernel(["cuda"])
    def never(x, y, scale, *, shift):
        raise AssertionError("nothing is on a GPU")

    assert product(gl.tensor(3.0), gl.tensor(1.0)).item() == 2


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: custom_op("of_tensors::f", lambda x: x, mutates_args="z"), ValueError, r"mutates_args names z; the function takes \(x\)"),
        (lambda: register_fake("of_tensors::unknown", lambda x: x), KeyError, "no operation"),
        (lambda: register_autograd(custom_op("of_tensors::g", lambda x: x), backward), TypeError, "made with mutates_args="),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def numpy_sorted(name: str, fake=lambda x, times: x.new_empty(times, *x.shape)):
    """The rows sorted by NumPy, `times` times."""

    @custom_op(name, mutates_args=())
    def operation(x: gl.Tensor, times: int) -> gl.Tensor:
        return gl.tensor(np.stack([np.sort(x.numpy(force=True))] * times), device=x.device)

    def back(ctx, g):
        (order,) = ctx.saved_tensors
        return gl.zeros_like(g[0]).scatter(-1, order, g.sum(0)), None

    if fake is not None:
        register_fake(operation, fake)
    register_autograd(operation, back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0].argsort()))
    return operation


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_trace_calls_what_it_cannot_look_into(where, request):
    if where == "cuda":
        request.getfixturevalue("cuda")
    operation = numpy_sorted(f"of_tensors::sorted_{where}")
    w = gl.tensor([[1.0, 2.0, 3.0]], device=where, requires_grad=True)

    def step(x):
        loss = (operation(x * w, 2) * gl.arange(3.0, device=where)).sum()
        return loss, *gl.autograd.grad(loss, w)

    compiled = gl.compile(step)
    for seed in range(4):
        x = gl.tensor(np.random.default_rng(seed).normal(size=(4, 3)), dtype=gl.float32, device=where)
        for got, want in zip(compiled(x), step(x), strict=True):
            assert got.shape == want.shape and gl.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_trace_calls_what_writes(where, request):
    if where == "cuda":
        request.getfixturevalue("cuda")

    @custom_op(f"of_tensors::sine_{where}", mutates_args={"out"})
    def sine(x: gl.Tensor, out: gl.Tensor) -> None:
        out.copy_(gl.tensor(np.sin(x.numpy(force=True))))

    def step(x, buffer):
        sine(x, buffer[0])
        y = buffer * 2
        sine(y, buffer)
        return y, buffer.sum()

    compiled = gl.compile(step)
    for seed in range(3):
        x = gl.tensor(np.random.default_rng(seed).normal(size=3), dtype=gl.float32, device=where)
        mine, theirs = gl.ones(2, 3, device=where), gl.ones(2, 3, device=where)
        for got, want in zip((*compiled(x, mine), mine), (*step(x, theirs), theirs), strict=True):
            assert gl.allclose(got, want)


def test_a_rule_for_vmap():
    operation = numpy_sorted("of_tensors::sorted_mapped")
    with pytest.raises(RuntimeError, match="vmap: a value was read"):
        gl.vmap(lambda x: operation(x, 2))(gl.ones(4, 3))

    @gl.library.register_vmap("of_tensors::sorted_mapped")
    def mapped(info, in_dims, x, times):
        assert info.batch_size == 4 and in_dims == (0, None)
        return operation(x.movedim(in_dims[0], 0), times), 1

    x = gl.tensor(np.random.default_rng(0).normal(size=(4, 3)))
    assert gl.vmap(lambda x: operation(x, 2))(x).equal(gl.stack([operation(row, 2) for row in x]))


def doubled(out, x):
    for target in out if isinstance(out, list) else [out]:
        target.copy_(gl.tensor(2 * x.numpy()))


@custom_op("of_tensors::doubled", mutates_args={"out"})
def double(out: gl.Tensor, x: gl.Tensor) -> None:
    doubled(out, x)


@custom_op("of_tensors::doubled_in_list", mutates_args={"outs"})
def double_into(outs: list, x: gl.Tensor) -> None:
    doubled(outs, x)


@pytest.mark.parametrize(
    ("write", "shares"),
    [
        (lambda y, z: double(y, y), False), (lambda y, z: double(x=y, out=y), False), (lambda y, z: double(z, y), False),
        (lambda y, z: double_into([z, y], y), False), (lambda y, z: double_into([z, z], y), False),
        (lambda y, z: double_into([z[:2], z[2:]], y[:2]), True), (lambda y, z: double(y.view(2, 2), y.view(2, 2)), True),
        (lambda y, z: double(y[:2], y[1:3]), True), (lambda y, z: double(y.detach(), y), True), (lambda y, z: double(y, y.detach()), True),
    ],
)  # fmt: skip
def test_arguments_that_are_one_tensor_or_share_memory(write, shares):
    def step(x):
        y, z = x + 1, x * 3
        write(y, z)
        return y * 1, z * 1

    want, refused = [t.tolist() for t in step(gl.arange(4.0))], gl.compile(step)
    compiled = gl.compile(step, fullgraph=False) if shares else refused
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if shares else "error")
        for _ in range(3):
            assert [t.tolist() for t in compiled(gl.arange(4.0))] == want
    if shares:
        refused(gl.arange(4.0))
        with pytest.raises(gl.graph.TraceError, match="shares memory with another of its arguments"):
            refused(gl.arange(4.0))


def test_the_fake_form_answers_for_the_meta_device():
    operation = numpy_sorted("of_tensors::sorted_meta")
    found = operation(gl.empty(4, 3, device="meta"), 5)
    assert found.shape == (5, 4, 3) and found.is_meta


def test_what_a_call_in_a_trace_refuses(tmp_path):
    wrong = numpy_sorted("of_tensors::sorted_wrong", lambda x, times: x.new_empty(x.shape))
    compiled = gl.compile(lambda x: wrong(x + 1, 2))  # the first call runs as it is
    with pytest.raises(ValueError, match=r"sorted_wrong: it returned float32\[2, 3\], but register_fake's function float32\[3\]"):
        _ = [compiled(gl.ones(3)) for _ in range(2)]
    unknown = numpy_sorted("of_tensors::sorted_unknown", None)
    compiled = gl.compile(lambda x: unknown(x + 1, 2))
    with pytest.raises(gl.graph.TraceError, match="read while tracing"):
        _ = [compiled(gl.ones(3)) for _ in range(2)]
    operation = numpy_sorted("of_tensors::sorted_saved")
    program = gl.jit.trace(lambda x: operation(x, 2), gl.ones(3))
    assert program(gl.tensor([3.0, 1.0, 2.0])).tolist() == [[1, 2, 3]] * 2
    x = gl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"sorted_saved: it runs Python code, through which a program of jit.trace has no gradient"):
        program(x).sum().backward()
    saved = tmp_path / "program"
    for save in (program.save, lambda path: gl.onnx.export(program, (gl.ones(3),), path), lambda path: gl.deploy.build(program, path)):
        with pytest.raises((TypeError, gl.onnx.UnsupportedError, gl.deploy.Refused), match="of_tensors__sorted_saved: "):
            save(saved)
    assert not list(tmp_path.iterdir())
