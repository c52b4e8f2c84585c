"""Views from outside of a trace are themselves after it: of all that it wrote, whether it ended well, failed or was refused."""

import numpy as np
import pytest

import gradlab as gl

TAKING = {
    "row": lambda x: x[1], "rows": lambda x: x[1:3], "column": lambda x: x[:, 1], "steps": lambda x: x[:, ::2], "t": lambda x: x.t(),
    "view": lambda x: x.view(2, 8), "permute": lambda x: x.permute(1, 0), "detach": lambda x: x.detach(), "data": lambda x: x.data,
    "detached row": lambda x: x[1].detach(), "row of t": lambda x: x.t()[1], "diagonal": lambda x: x.diagonal(),
    "windows": lambda x: x.unfold(1, 2, 2), "unsqueeze": lambda x: x[0].unsqueeze(0), "narrow": lambda x: x.narrow(1, 1, 2),
    "chunk": lambda x: x.chunk(2)[1], "all": lambda x: x[...],
}  # fmt: skip


class Refused(Exception):
    """What a function raises by itself."""


def raises(_):
    raise Refused


ENDINGS = {
    "a value is read": lambda t: t.sum().item(), "an error": raises, "a size depends on values": lambda t: t[t > 0],
    "a decision": lambda t: t if t.sum() > 0 else -t, "a shape does not fit": lambda t: t.add_(gl.ones(7, 7, 7)),
    "it is printed": str, "a list is changed": lambda t: CHANGED.append(t),
}  # fmt: skip
CHANGED = []


def tensors(take, quiet=False):
    """A tensor, a view of it, another view, and a view of the view."""
    base = gl.arange(16.0).reshape(4, 4).clone()
    with gl.set_grad_enabled(not quiet):
        part = take(base)
        return base, part, base.reshape(-1)[3:9], part.reshape(-1)[:2] if part.is_contiguous() else part


def writing(ts, ending):
    base, part, other, inner = ts

    def function(x):
        part.add_(x)
        other.mul_(2)
        y = inner * 2
        base[0].sub_(1)
        return ending(part), y, other.sum()

    return function


def values(*ts):
    return [t.detach().numpy().copy() for t in ts]


def kept(ts):
    return all(isinstance(t._array, np.ndarray) and np.shares_memory(t._array, ts[0]._array) for t in ts)


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setenv("GRADLAB_COMPILER", "none")


@pytest.mark.filterwarnings("ignore:.*share memory.*:UserWarning")
@pytest.mark.parametrize("quiet", [False, True], ids=["recorded", "quiet"])
@pytest.mark.parametrize("way", TAKING)
def test_what_a_trace_wrote_is_seen_through_all_views(way, quiet):
    known, ts = tensors(TAKING[way], quiet), tensors(TAKING[way], quiet)
    eager, step = writing(known, lambda t: t * 1), gl.compile(writing(ts, lambda t: t * 1))
    for _ in range(4):
        expected, found = eager(gl.ones(())), step(gl.ones(()))
        assert kept(ts)
        for e, f in zip(values(*known, *expected), values(*ts, *found), strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-6)
    assert quiet or way == "detached row" or len(step.programs) == 1  # detached outside, it does not know its base


@pytest.mark.filterwarnings("ignore:.*share memory.*:UserWarning")
@pytest.mark.parametrize("stage", ["compile", "jit.trace"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("way", TAKING)
def test_a_trace_that_fails_leaves_all_as_it_was(way, ending, stage):
    if ending in ("it is printed", "a list is changed") and (stage == "jit.trace" or way == "detached row"):
        ending = "a value is read"  # these are no failures in a trace to keep, nor in the eager run of what shares memory
    ts = tensors(TAKING[way])
    weight = gl.ones(4, 4, requires_grad=True)
    graph = (weight * ts[0]).sum()  # keeps what the trace is about to write
    before, x = values(*ts), gl.ones(())
    function = writing(ts, ENDINGS[ending])
    with pytest.raises((RuntimeError, Refused)):
        if stage == "compile":
            step = gl.compile(function)
            step._signatures.is_new("", (x,), {}, gl.autograd.mode.current())  # no eager run
            step(x)
        else:
            gl.jit.trace(function, (x,))
    CHANGED.clear()
    assert kept(ts)
    for b, n in zip(before, values(*ts), strict=True):
        np.testing.assert_array_equal(b, n)
    graph.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), before[0])
    ts[1].add_(1)
    assert values(ts[0])[0].sum() == before[0].sum() + before[1].size


@pytest.mark.filterwarnings("ignore:.*share memory.*:UserWarning")
@pytest.mark.parametrize("way", ["tensors", "rows", "rows of a quiet base", "overlapping steps", "rows and the whole"])
def test_states_swapped_through_a_temporary(way):
    def made():
        whole = gl.arange(8.0).reshape(2, 4).clone()
        if way == "tensors":
            return whole, whole[0].clone(), whole[1].clone()
        with gl.set_grad_enabled("quiet" not in way):
            return (whole, whole[:, ::2], whole[:, 1::2]) if "steps" in way else (whole, whole[0], whole[1])

    def swap(whole, a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        if "whole" in way:
            whole.mul_(2)
        return a - b, whole * 1

    known, held = made(), made()
    step = gl.compile(lambda: swap(*held))
    for _ in range(5):
        expected, found = swap(*known), step()
        for e, f in zip(values(*known, *expected), values(*held, *found), strict=True):
            np.testing.assert_array_equal(f, e)
    assert "quiet" in way or len(step.programs) == 1


def test_views_of_a_buffer_read_and_written_in_a_training_step():
    """A cache and a view of it: what a step writes to one is read through the other, in the same program."""
    cache = gl.zeros(4, 2)
    newest = cache[3]

    def step(x):
        cache.copy_(cache.roll(-1, 0))
        newest.copy_(x)
        return cache.sum(0), newest * 2

    compiled = gl.compile(step)
    for i in range(1, 6):
        total, double = compiled(gl.full((2,), float(i)))
        assert double.tolist() == [2.0 * i] * 2 and total.tolist() == [float(sum(range(max(i - 3, 1), i + 1)))] * 2
        assert newest.tolist() == cache[3].tolist() == [float(i)] * 2
    assert len(compiled.programs) == 1


@pytest.mark.parametrize("turn", ["t_", "unsqueeze_", "squeeze_"])
@pytest.mark.parametrize("way", ["whole", "turned before", "row"])
def test_no_trace_gives_what_is_outside_another_shape(way, turn):
    whole = gl.arange(12.0).reshape(3, 4)
    held = whole[:2] if way == "row" else whole
    if way == "turned before":
        held.reshape(-1)  # a view may be about
        held.t_()
    step = gl.compile(lambda: (held + 1, getattr(held, turn)(*(() if turn == "t_" else (0,))))[0])
    step()
    shape = held.shape
    with pytest.raises(RuntimeError, match="outside a trace"):
        step()
    assert held.shape == shape and isinstance(held._array, np.ndarray)


@pytest.mark.filterwarnings("ignore::gradlab.advice.StaleGradientWarning")
@pytest.mark.parametrize("begin", ["nothing", "zero_", "zero_grad"])
@pytest.mark.parametrize("held", ["itself", "a view", "a view of a flat buffer"])
def test_a_gradient_that_somebody_holds_is_added_to(held, begin):
    """`.grad` of before the call is written in place, as eagerly: whoever holds it, inside of the function or out, sees the sum."""

    def run(wrap):
        p = gl.ones(3, requires_grad=True)
        flat = gl.arange(4.0)
        p.grad = flat[1:] if held == "a view of a flat buffer" else gl.ones(3)
        seen = {"itself": p.grad, "a view": p.grad[1:], "a view of a flat buffer": flat}[held]
        optimizer = gl.optim.SGD([p], lr=0.1)

        def step(x):
            if begin == "zero_":
                p.grad.zero_()
            elif begin == "zero_grad":
                optimizer.zero_grad(set_to_none=False)
            (p * x).sum().backward()
            (p * p).sum().backward()
            optimizer.step()
            return seen * 1, p.grad * 1

        call, results, own = wrap(step), [], p.grad
        for i in range(4):
            results += [*call(gl.full((3,), 2.0 + i)), seen.clone(), p.grad.clone(), p.detach().clone()]
            assert p.grad is own
        return results

    for eager, compiled in zip(run(lambda f: f), run(gl.compile), strict=True):
        assert eager.allclose(compiled)


@pytest.mark.filterwarnings("ignore:.*graph beyond the call.*:UserWarning")
@pytest.mark.parametrize("result", [lambda held: held, lambda held: held[1:], lambda held: held * 1], ids=["itself", "a view", "a value"])
@pytest.mark.parametrize("detached", [False, True])
def test_what_is_written_with_a_graph(result, detached):
    """A tensor from outside into which a function writes what requires grad: it has a graph then, as eagerly, and no gradient is lost."""
    found = []
    for compiled in (False, True):
        held = gl.zeros(3)

        def function(x, held=held):
            held[1:] = (x * x).detach() if detached else x * x
            return result(held)

        run = gl.compile(function) if compiled else function
        for _ in range(4):
            x = gl.tensor([2.0, 3.0], requires_grad=True)
            y = run(x)
            found.append((y.tolist(), held.requires_grad, y.requires_grad))
            if not detached:
                found.append(gl.autograd.grad(y.sum(), x)[0].tolist())
    assert found[: len(found) // 2] == found[len(found) // 2 :]
