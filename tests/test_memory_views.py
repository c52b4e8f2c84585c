"""`as_strided` and `view(dtype)`: one memory seen in other steps or as other bits, with gradients, in place, in programs, on the GPU."""

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import TORCH


def flat(t):
    return t.detach().numpy().reshape(-1).tolist()


def line(engine, n):
    return engine.arange(n, dtype=engine.float64)


# What a program leaves, as lists; the same in both libraries.
def overlapping_windows(T):
    x = line(T, 12).requires_grad_(True)
    y = x.view(3, 4).as_strided((3, 2), (2, 1), 1)
    (y * y).sum().backward()
    return y.stride(), y.storage_offset(), flat(y), flat(x.grad)


def second_order(T):
    x = line(T, 5).requires_grad_(True)
    (g,) = T.autograd.grad((x.as_strided((3, 3), (1, 1)) ** 3).sum(), x, create_graph=True)
    (again,) = T.autograd.grad((g * g).sum(), x)
    return flat(g), flat(again)


def expanded_input(T):
    x = T.ones(1, dtype=T.float64, requires_grad=True)
    x.expand(3).as_strided((3,), (0,)).sum().backward()
    return flat(x.grad)


def in_place(T):
    x = line(T, 5).requires_grad_(True)
    h = x * 2
    y = h.as_strided((3,), (2,))
    y.mul_(x[:3])
    h.sum().backward()
    return flat(h), flat(x.grad)


def beside_a_slice(T):
    x = line(T, 6).requires_grad_(True)
    h = x * 1
    part = h[2:4]
    part.as_strided((4,), (1,), 0).mul_(2)
    h.sum().backward()
    return flat(h), flat(part), flat(x.grad)


def of_what_lies_otherwise(T):
    z = line(T, 8).view(2, 4).t()[1:3]
    return z.storage_offset(), flat(z.as_strided((2, 3), (1, 2))), flat(z.as_strided((8,), (1,), 0)), flat(z.as_strided((0,), (9,), 3))


def both_sides_see_writes(T):
    x = line(T, 5)
    y = x.as_strided((3,), (2,))
    y.add_(10)
    x.mul_(2)
    return flat(x), flat(y)


def steps_of_its_own(T):
    x = line(T, 6)
    x.as_strided_((2, 2), (1, 2))
    return flat(x), x.stride()


def scattered(T):
    one, zeros = T.ones(2, 2), T.zeros(3, 3)
    return flat(T.as_strided_scatter(zeros, one, (2, 2), (1, 2))), flat(T.as_strided_scatter(zeros.t(), one, (2, 2), (1, 3)))


def of_numpys_memory(T):
    a = np.arange(10.0)
    t = T.from_numpy(a[2:])
    seen = t.storage_offset(), t[1:].storage_offset(), flat(t[1:].as_strided((8,), (1,), 0))
    t.mul_(2)
    return *seen, a.tolist()


def bits_of_everything(T):
    seen = []
    for name in ("int32", "int64", "float64", "float16", "uint8", "bool", "float32", "bfloat16"):
        for t in (T.ones(4), T.ones(()), T.ones(3), T.ones(2, 4).t(), T.ones(8)[1:5], T.ones(3, 3)[:, :2], T.arange(4)):
            try:
                found = t.view(getattr(T, name))
                values = flat(found.view(T.uint8) if found.ndim else found)
                seen.append((tuple(found.shape), found.stride(), found.storage_offset(), values))
            except RuntimeError:
                seen.append("RuntimeError")
    return seen


def bits_are_shared(T):
    x = T.ones(4, requires_grad=True)
    y = (x * 1).view(T.int32)
    z = T.ones(2)
    z.view(T.int32)[0] = 0
    return y.requires_grad, flat(z)


def refusals(T):
    seen = []
    for given in (((3, 3), (1, 1)), ((3,), (1, 1)), ((3,), (-1,)), ((3,), (1,), -1), ((-2,), (1,)), ((2,), (1,), 3)):
        with pytest.raises(RuntimeError) as caught:
            T.ones(4).as_strided(*given)
        seen.append(isinstance(caught.value, RuntimeError))
    return seen


PROGRAMS = {
    f.__name__: f
    for f in (overlapping_windows, second_order, expanded_input, in_place, beside_a_slice, of_what_lies_otherwise, both_sides_see_writes,
              steps_of_its_own, scattered, of_numpys_memory, bits_of_everything, bits_are_shared, refusals)
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_pytorch(name):
    assert PROGRAMS[name](gl) == PROGRAMS[name](TORCH)


def test_values_gradients_and_writes():
    assert overlapping_windows(gl)[2:] == ([1, 2, 3, 4, 5, 6], [0, 2, 4, 6, 8, 10, 12, 0, 0, 0, 0, 0])
    assert beside_a_slice(gl) == ([0, 2, 4, 6, 4, 5], [4, 6], [2, 2, 2, 2, 1, 1])
    assert in_place(gl) == ([0, 2, 4, 6, 16], [0, 4 + 2, 2 + 8, 2, 4])
    assert of_numpys_memory(gl)[:2] == (0, 1) and expanded_input(gl) == [3]
    assert all(refusals(gl))


def test_nothing_outside_of_the_memory_is_read():
    x = gl.ones(4)
    for tensor in (x, x[1:], x.view(2, 2).t(), x[:1].expand(3)):
        with pytest.raises(RuntimeError, match="as_strided"):
            tensor.as_strided((6,), (1,))
    with pytest.raises(RuntimeError, match="reach beyond"):
        x[1:].as_strided_((4,), (1,), 0)


FUNCTIONS = {
    "read": lambda x: (x.as_strided((3, 2), (2, 1)) ** 2).sum(0),
    "part": lambda x: x[1:].as_strided((2, 2), (1, 1), 5) * 2,
    "turned": lambda x: (x.t() * 1).as_strided((4, 3), (3, 1)),
    "bits": lambda x: x.view(gl.int32) + 1,
    "facts": lambda x: x * x[1:].storage_offset() + (x * 2)[:, 1:].storage_offset(),
}  # fmt: skip


def written(x):
    h = x * 1
    h.as_strided((3,), (2,)).mul_(10)
    return h


FUNCTIONS["written"] = written


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("compiler", ["", "none"])
def test_compiled_and_traced(name, compiler, monkeypatch, tmp_path):
    if compiler:
        monkeypatch.setenv("GRADLAB_COMPILER", compiler)
    function, x = FUNCTIONS[name], gl.arange(12.0).view(3, 4)
    step = gl.compile(function)
    for _ in range(3):
        np.testing.assert_array_equal(step(x + 1).numpy(), function(x + 1).numpy())
    if name in ("part", "facts"):
        with pytest.raises(RuntimeError, match="begins in its memory"):
            gl.jit.trace(function, (x,))
        return
    program = gl.jit.trace(function, (x,))
    program.save(tmp_path / "p")
    for run in (program, gl.jit.load(tmp_path / "p")):
        np.testing.assert_array_equal(run(x + 1).numpy(), function(x + 1).numpy())


def test_a_program_is_for_arguments_that_begin_where_those_of_its_trace_do():
    step = gl.compile(lambda x: x.as_strided((2,), (1,), 5))
    whole = gl.arange(20.0)
    for x in (whole[:8], whole[4:12], whole[:8], whole[2:10]):
        assert step(x).tolist() == x.as_strided((2,), (1,), 5).tolist() == [5.0, 6.0]
    assert len(step.programs) == 3


def test_an_address_in_a_trace_is_refused():
    with pytest.raises(RuntimeError, match="no memory yet"):
        gl.jit.trace(lambda x: x * (x * 2).data_ptr(), (gl.ones(2),))


def changed_row(x):
    x.add_(1)
    return x[0], x.t()


def part_changed(x):
    part = x[0]
    part.mul_(3)
    return part, x


@pytest.mark.parametrize("function", [changed_row, part_changed])
def test_programs_return_views_of_what_they_write(function):
    program, step = gl.jit.trace(function, (gl.ones(2, 3),)), gl.compile(function)
    found = []
    for run in (function, program, step, step, step):
        x = gl.ones(2, 3)
        results = run(x)
        results[0].mul_(10)
        found.append([x.tolist(), *(t.tolist() for t in results)])
    assert found[0][0][0] == [20.0 if function is changed_row else 30.0] * 3 and all(f == found[0] for f in found)


def test_each_sample_of_a_batch():
    x = gl.arange(12.0).view(3, 4)
    found = gl.vmap(lambda r: r.as_strided((3, 2), (1, 1)))(x)
    assert found.tolist() == [[[r + i + j for j in range(2)] for i in range(3)] for r in (0, 4, 8)]
    g = gl.func.grad(lambda x: gl.vmap(lambda r: (r.as_strided((3, 2), (1, 1)) ** 2).sum())(x).sum())(x)
    assert g[0].tolist() == [0.0, 4.0, 8.0, 6.0]
    assert gl.vmap(lambda r: r.view(gl.int32))(x).tolist() == x.view(gl.int32).tolist()


def test_on_the_gpu(cuda):
    x = gl.arange(12.0, device="cuda").view(3, 4).requires_grad_()
    (x.as_strided((3, 2), (2, 1), 1) ** 2).sum().backward()
    assert x.grad.tolist() == [[0, 2, 8 / 2, 12 / 2], [8, 10, 12, 0], [0, 0, 0, 0]]
    y = gl.arange(8.0, device="cuda")
    y[2:4].as_strided((4,), (1,), 0).mul_(2)
    assert y.tolist() == [0, 2, 4, 6, 4, 5, 6, 7] and y[3:].storage_offset() == 3 and y[1:].data_ptr() == y.data_ptr() + 4
    assert y.view(gl.int32).cpu().tolist() == y.cpu().view(gl.int32).tolist()
    with pytest.raises(RuntimeError, match="as_strided"):
        y.as_strided((9,), (1,))


@pytest.mark.parametrize(("old", "new"), [((4, 3), (4, 4)), ((2, 5), (5, 5)), ((16,), (4, 4)), ((2, 3), (3,)), ((2,), (1,)), ((3,), (0,))])
def test_what_does_not_expand_is_refused(old, new):
    for x in (gl.ones(old), gl.ones(old, requires_grad=True)):
        with pytest.raises(RuntimeError, match="expand"):
            x.expand(new)
