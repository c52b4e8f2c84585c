"""A trace knows how its tensors lie in memory: views and copies are where they are eagerly, whoever writes then.

Every call of the catalogue that moves elements, on arguments that lie in several ways; afterwards the argument or the result is written,
inside of the function or outside. Compiled and traced functions give the same values and strides, and leave the same in their arguments.
"""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, ops
from gradlab.graph.staging.program import trace
from gradlab.graph.staging.symbol_strides import VIEWS

from kinds.calls import CALLS, parts
from kinds.catalogue import shaping

DYNAMIC = {"masked_select", "Tensor.__contains__", "Tensor.__iter__", "Tensor.__reversed__", "Tensor.__getitem__-3", "repeat_interleave-1"}
# Refused in a trace: another shape for an argument, a write to windows that overlap, what lies beside an argument in memory. A trace lets a
# view of the caller's be detached.
REFUSED = {
    "as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_", "unfold", "detach_",
}  # fmt: skip

# Eagerly these may write to an expanded tensor, one value or a part in which no element lies twice; a trace refuses to (docs/compile.md).
PARTS = {
    "__getitem__", "__setitem__", "diagonal", "fill_diagonal_", "index_fill_", "masked_fill_", "select", "split", "split_with_sizes",
    "unbind", "unsafe_split_with_sizes", "vsplit",
}  # fmt: skip

# Copies that lie as what they are copies of; the results of programs lie row by row.
LIES_ROW_BY_ROW = {
    "clone", "diagonal_scatter", "flip", "fliplr", "flipud", "index_add", "index_copy", "index_fill", "index_put", "put",
    "rot90", "select_scatter", "slice_scatter", "to",
}


def moving(call):
    """Calls on a float tensor of the table of shapes, each once: as a method where there is one."""
    room, _, bare = call.name.partition(".")
    tensor = call.arguments and isinstance(call.arguments[0], np.ndarray) and call.arguments[0].dtype == np.float64
    known = call.name in shaping.CALLS or bare in shaping.CALLS or bare[:-1] in shaping.CALLS
    twice = room == "gl" and any(other.name == f"Tensor.{bare}" for other in CALLS)
    return tensor and known and not twice and not DYNAMIC & {bare, repr(call), repr(call).partition(".")[2]}


MOVING = [call for call in CALLS if moving(call)]


def contiguous(a):
    return gl.tensor(np.ascontiguousarray(a))


def transposed(a):
    return contiguous(a.T).T


def sliced(a):
    return contiguous(np.repeat(a, 2, -1))[..., ::2]


def gapped(a):
    return contiguous(np.concatenate([a, a]))[: len(a)]


def expanded(a):
    return contiguous(a[:1]).expand(a.shape)


def channels_last(a):
    return contiguous(np.moveaxis(a, 1, -1)).movedim(-1, 1)


LAYOUTS = {f.__name__: f for f in (contiguous, transposed, sliced, gapped, expanded, channels_last)}


def layouts_of(call):
    rank = call.arguments[0].ndim
    return [name for name in LAYOUTS if rank > {"contiguous": -1, "transposed": 1, "channels_last": 2}.get(name, 0)]


def values(t):
    return t.detach().numpy().copy()


def written(t, factor):
    try:
        t.mul_(factor) if t.is_floating_point() else t.add_(1)
    except RuntimeError:
        return False
    return True


def function_of(call, who):
    """The call, and a write to its argument or to its first result behind it."""

    def function(x, *args):
        result = call.function(x, *args, **options)
        found = parts(x if call.name == "Tensor.__setitem__" else result)
        if who == "source":
            x.mul_(3)
        elif who == "result" and found:
            found[0].mul_(3) if found[0].is_floating_point() else found[0].add_(1)
        return tuple(found)

    options = call.tensors()[1]
    return function


def outcome(run, call, layout, later=True):
    """What a function gives and leaves behind, and what becomes of both when one is written later."""
    args = call.tensors()[0]
    x = LAYOUTS[layout](call.arguments[0].astype(np.float32))
    try:
        found = run(x, *args[1:])
    except (RuntimeError, IndexError) as error:
        assert "TraceError" not in type(error).__name__, error
        return [type(error).__name__ == "IndexError"]
    seen = [*map(values, (x, *found))]
    if not later:
        return [True, *seen]
    seen += [() if call.name.partition(".")[2] in LIES_ROW_BY_ROW else tuple(t.stride() for t in found)]
    seen += [written(x, 5.0), *map(values, (x, *found))]
    return [*seen, *(written(t, 7.0) for t in found[:1]), *map(values, (x, *found))]


def check(call, expected, got, layout):
    if layout == "expanded" and call.name.partition(".")[2] in PARTS and got == [False]:
        return
    if call.name.partition(".")[2] in REFUSED and 1 in (len(expected), len(got)):
        return
    assert len(expected) == len(got), (expected, got)
    for e, g in zip(expected, got, strict=True):
        np.testing.assert_array_equal(g, e) if isinstance(e, np.ndarray) else (e == g) or pytest.fail(f"{g} for {e}")


@pytest.fixture
def without_compiler(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILER", "none")


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("call", MOVING, ids=repr)
def test_compiled_functions_copy_where_eager_ones_do(call):
    for who in ("nobody", "source", "result"):
        step = gl.compile(function_of(call, who))
        for layout in layouts_of(call):
            expected = outcome(function_of(call, who), call, layout)
            for _ in range(2):
                check(call, expected, outcome(step, call, layout), layout)


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("call", MOVING, ids=repr)
def test_traced_functions_copy_where_eager_ones_do(call):
    """Traced with one layout, called with each: the same as eagerly, or refused."""
    for who in ("source", "result"):
        function = function_of(call, who)
        eager = {layout: outcome(function, call, layout, later=False) for layout in layouts_of(call)}
        for example, known in eager.items():
            args = call.tensors()[0]
            x = LAYOUTS[example](call.arguments[0].astype(np.float32))
            try:
                program = gl.jit.trace(lambda x, function=function, args=args: function(x, *args[1:]), (x,), check_trace=False)
            except (RuntimeError, IndexError):
                name = call.name.partition(".")[2]
                assert len(known) == 1 or name in REFUSED or (example == "expanded" and name in PARTS)
                continue
            for layout, expected in eager.items():
                got = outcome(lambda x, *_, program=program: program(x), call, layout, later=False)
                if layout == example or len(got) > 1:
                    check(call, expected, got, layout)


# ---------------------------------------------------------------- what training steps do


def test_what_was_copied_before_an_optimizer_steps_is_what_it_was():
    layer = nn.Linear(3, 2)
    optimizer = gl.optim.SGD(layer.parameters(), lr=0.5)

    @gl.compile
    def step(x):
        old, seen = layer.weight.detach().t().contiguous(), layer.weight.detach()
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()
        return old, seen.t().reshape(-1), layer.weight.detach().T.flatten()

    for _ in range(3):
        before = layer.weight.detach().numpy().copy()
        old, late, new = step(gl.ones(2, 3))
        np.testing.assert_array_equal(old.numpy(), before.T)
        np.testing.assert_array_equal(new.numpy(), layer.weight.detach().numpy().T.ravel())
        np.testing.assert_array_equal(late.numpy(), new.numpy())


def test_a_copy_of_the_weight_is_not_tied_to_it():
    weight = nn.Parameter(gl.arange(6.0).reshape(2, 3))
    step = gl.compile(lambda: (weight.t().contiguous(), weight.t()))
    for _ in range(3):
        copied, view = step()
        with gl.no_grad():
            weight.add_(1)
        assert (copied + 1).tolist() == view.tolist() == weight.t().tolist()


def test_gradients_go_through_what_was_copied():
    def loss(v):
        w = v.t().contiguous()
        u = v * 1.0
        kept = u.t().reshape(-1)
        u.mul_(3.0)
        return (w * w).sum() + (kept * kept).sum()

    step = gl.compile(loss)
    for _ in range(3):
        v = gl.arange(6.0).reshape(2, 3).requires_grad_()
        step(v).backward()
        np.testing.assert_array_equal(v.grad.numpy(), 4 * v.detach().numpy())


def test_a_program_is_for_arguments_that_lie_as_those_of_its_trace():
    def write(x):
        x.reshape(-1)[0] = 9.0
        return x.sum()

    step = gl.compile(write)
    for turned in (False, False, True, True, False, True):
        x = gl.zeros(2, 3).t() if turned else gl.zeros(3, 2)
        step(x)
        assert x[0, 0].item() == (0.0 if turned else 9.0)
    assert len(step.programs) == 2


def test_programs_that_do_not_depend_on_layouts_take_all():
    step = gl.compile(lambda x: (x * 2).sum())
    for x in (gl.ones(3, 2), gl.ones(3, 2), gl.ones(2, 3).t(), gl.ones(3, 4)[:, ::2]):
        assert step(x).item() == 12.0
    assert len(step.programs) == 1


def test_layouts_of_long_chains_are_found_without_depth():
    def long(x):
        for _ in range(1500):
            x = x * 1.0
        return x.is_contiguous(), x.stride(), x.t().stride()

    found = []
    trace(lambda x: (found.append(long(x)), x)[1], gl.ones(2, 3).t())
    assert found == [(False, (1, 3), (3, 1))]


def test_layouts_can_be_read_in_a_trace():
    def look(x):
        y = x * 2
        facts = x.is_contiguous(), x.stride(), y.t().stride(), y.t().is_contiguous(), x[:, ::2].stride(), x.t().reshape(-1).is_contiguous()
        return y if x.is_contiguous() else -y, facts

    step = gl.compile(look)
    for x in (gl.ones(2, 4), gl.ones(2, 4), gl.ones(4, 2).t(), gl.ones(4, 2).t()):
        (y, facts), (expected, known) = step(x), look(x)
        assert y.tolist() == expected.tolist() and facts == known


def test_what_cannot_be_written_is_refused_in_every_call():
    step = gl.compile(lambda x: x.mul_(2))
    for _ in range(3):
        step(gl.ones(3, 3))
        with pytest.raises(RuntimeError, match="cannot be written"):
            step(gl.ones(3, 1).expand(3, 3))
    program = gl.jit.trace(lambda x: x.mul_(2), (gl.ones(3, 3),))
    with pytest.raises(RuntimeError, match="cannot be written"):
        program(gl.ones(3, 1).expand(3, 3))


def test_a_view_that_no_strides_give_is_refused_as_eagerly():
    step = gl.compile(lambda x: x.view(-1))
    for _ in range(2):
        step(gl.ones(2, 3))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="view"):
            step(gl.ones(3, 2).t())


def test_traced_programs_refuse_layouts_that_decide_otherwise(tmp_path):
    def write(x):
        x.reshape(-1).mul_(3.0)
        return x.sum()

    program = gl.jit.trace(write, (gl.ones(2, 3),))
    program.save(tmp_path / "program")
    for run in (program, gl.jit.load(tmp_path / "program")):
        x, turned = gl.ones(2, 3), gl.ones(3, 2).t()
        assert run(x).item() == 18.0 and x[0, 0].item() == 3.0
        with pytest.raises(RuntimeError, match="contiguous"):
            run(turned)
        assert turned.sum().item() == 6.0
    turned = gl.jit.trace(write, (gl.ones(3, 2).t(),))
    x = gl.ones(3, 2).t()
    assert turned(x).item() == 6.0 and x.sum().item() == 6.0
    with pytest.raises(RuntimeError, match="stride"):
        turned(gl.ones(2, 3))
    flat = gl.jit.trace(lambda x: (x * 2).reshape(-1) + x.reshape(-1), (gl.ones(2, 3),))
    assert flat(gl.ones(3, 2).t()).tolist() == [3.0] * 6


@pytest.mark.parametrize("row", [row for row in ops.ROWS.values() if row.view], ids=lambda row: row.name)
def test_strides_of_every_view_row(row):
    """What a trace says of a view's strides is what the row gives."""
    samples = {
        "view": {"shape": (2, 12)}, "permute": {"dims": (2, 0, 1)}, "transpose": {"dim0": 0, "dim1": 2}, "expand": {"shape": (5, 2, 3, 4)},
        "squeeze": {"dims": ()}, "unsqueeze": {"dim": 1}, "slice": {"index": (1, (0, 3, 2), None, (1, None, 1))},
        "diagonal": {"offset": 1, "dim1": 0, "dim2": 2}, "unfold": {"dim": 1, "size": 2, "step": 1},
        "as_strided": {"shape": (3, 2), "steps": (4, 1), "first": 2}, "bits": {"dtype": np.dtype(np.int32)},
    }  # fmt: skip
    params = samples.get(row.name, {})
    assert row in VIEWS
    pairs = (2,) if row.name == "view_as_complex" else ()
    numbers = gl.complex64 if row.name in {"real", "imag", "view_as_real"} else gl.float32
    base, longer, wider, turned = (gl.zeros(*s, *pairs, dtype=numbers) for s in ((2, 3, 4), (4, 3, 4), (2, 3, 8), (2, 4, 3)))
    for x in (base, longer[::2], wider[:, :, ::2], turned.transpose(1, 2)):
        if row.name == "view" and not x[0].is_contiguous():
            continue
        found = []
        trace(lambda x, found=found: (found.append(row.call(x, **params).stride()), x)[1], x)
        assert found == [row.call(x, **params).stride()]
