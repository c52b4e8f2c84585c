"""In-place calls without a graph write straight into memory: the functions' own bits, and all that a write has to say is said."""

import pytest

import gradlab as gl
from gradlab.tensor.in_place_methods import update

SHORT = {
    "add_": (1.5, "other", ("other", {"alpha": -0.3}), 2),
    "sub_": (1.5, "other", ("other", {"alpha": 3})),
    "mul_": (0.9, "other", 3),
    "div_": (0.7, "other"),
    "addcmul_": (("other", "third"), ("other", "third", {"value": -0.1})),
    "addcdiv_": (("other", "third"), ("other", "third", {"value": 1e-3})),
    "lerp_": (("other", 0.1), ("other", 0.9), ("other", 1.0)),
    "copy_": ("other",),
    "fill_": (2.5, 3),
    "zero_": ((),),
    "sqrt_": ((),),
    "clamp_": ((-0.5, 0.5),),
}


def arguments(given, named):
    given = given if isinstance(given, tuple) else (given,)
    options = given[-1] if given and isinstance(given[-1], dict) else {}
    return [named.get(a, a) if isinstance(a, str) else a for a in given if not isinstance(a, dict)], options


def out_of_place(name, x, args, options):
    if name in ("copy_", "fill_", "zero_"):
        return gl.zeros_like(x) + (args[0] if args else 0)
    return getattr(x, name[:-1])(*args, **options)


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64, gl.bfloat16, gl.int64])
@pytest.mark.parametrize("size", [(0,), (7,), (3, 4), (20000,)])
def test_short_ways_give_the_bits_of_the_functions(size, dtype):
    for name, ways in SHORT.items():
        for given in ways:
            for recording in (False, True):
                x, other, third = (gl.randn(size).mul(3).abs().add(1).to(dtype) for _ in range(3))
                args, options = arguments(given, {"other": other, "third": third})
                with gl.set_grad_enabled(recording):
                    try:
                        wanted = out_of_place(name, x, args, options)
                    except RuntimeError:
                        continue  # no function of integers
                    if wanted.dtype != dtype:
                        continue
                    count, array = x._version, x._array
                    assert getattr(x, name)(*args, **options) is x
                    assert x._array is array and x._version == count + 1
                    assert x.equal(wanted), (name, given, dtype)


@pytest.mark.parametrize("name", SHORT)
def test_short_ways_reach_views_and_graphs_notice(name):
    base, end, third = gl.rand(4, 6), gl.rand(4, 3), gl.rand(4, 3) + 1
    view, row = base[:, 1:4], base[2]
    args, options = arguments(SHORT[name][0], {"other": end, "third": third})
    wanted = out_of_place(name, view.clone(), args, options)
    with gl.no_grad():
        getattr(view, name)(*args, **options)
    assert view.equal(wanted) and base[:, 1:4].equal(wanted) and row[1:4].equal(wanted[2])
    weight = gl.rand(3, requires_grad=True)
    x, end, third = gl.rand(3), gl.rand(3), gl.rand(3) + 1
    loss = (weight * x).sum()
    args, options = arguments(SHORT[name][0], {"other": end, "third": third})
    getattr(x, name)(*args, **options)
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        loss.backward()


@pytest.mark.parametrize("name", SHORT)
def test_short_ways_record_what_has_a_graph_and_refuse_what_may_not_be_written(name):
    end, third = gl.rand(3), gl.rand(3) + 1
    args, options = arguments(SHORT[name][0], {"other": end, "third": third})
    start = gl.rand(3, requires_grad=True)
    x = start * 1
    getattr(x, name)(*args, **options)
    x.sum().backward()
    again = start.detach().requires_grad_()
    out_of_place(name, again * 1, args, options).sum().backward() if name not in ("copy_", "fill_", "zero_") else None
    assert start.grad.equal(again.grad if again.grad is not None else gl.zeros(3))
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(start, name)(*args, **options)
    with gl.inference_mode():
        closed = gl.ones(3)
    with gl.no_grad(), pytest.raises(RuntimeError, match="inference"):
        getattr(closed, name)(*args, **options)
    wide = gl.rand(1).expand(3)
    if name in ("fill_", "zero_"):  # one value for elements that are one
        assert getattr(wide, name)(*args, **options).tolist() == [args[0] if args else 0] * 3
    else:
        with gl.no_grad(), pytest.raises(RuntimeError, match="in place"):
            getattr(wide, name)(*args, **options)


PLACES, ALL = [0, 1, 2], [True] * 3
WITH_A_GRAPH = {
    "add_": lambda w, x: x.add_(w, alpha=2),
    "mul_": lambda w, x: x.mul_(w),
    "addcmul_": lambda w, x: x.addcmul_(w, x.clone(), value=2),
    "lerp_": lambda w, x: x.lerp_(x * 2, w),
    "clamp_": lambda w, x: x.add_(9).clamp_(max=w),
    "copy_": lambda w, x: x.copy_(w),
    "fill_": lambda w, x: x.fill_(w.sum()),
    "masked_fill_": lambda w, x: x.masked_fill_(gl.tensor(ALL), w.sum()),
    "masked_scatter_": lambda w, x: x.masked_scatter_(gl.tensor(ALL), w),
    "index_put_": lambda w, x: x.index_put_((gl.tensor(PLACES),), w),
    "index_add_": lambda w, x: x.index_add_(0, gl.tensor(PLACES), w),
    "scatter_": lambda w, x: x.scatter_(0, gl.tensor(PLACES), w),
    "put_": lambda w, x: x.put_(gl.tensor(PLACES), w),
    "addmv_": lambda w, x: x.addmv_(gl.eye(3, dtype=gl.float64), w),
    "captured by the function": lambda w, x: update("mine_", x, lambda old: old * w),
}


@pytest.mark.parametrize("name", WITH_A_GRAPH)
def test_what_brings_a_graph_gets_its_gradient(name):
    """Of a tensor without a graph that is written with one: central differences say what arrives."""
    call, start, step = WITH_A_GRAPH[name], gl.rand(3, dtype=gl.float64), 1e-6
    kept = start * 0.5 + 0.1

    def value(w):
        return (call(w, kept.clone()) * gl.tensor([1.0, 2.0, 3.0], dtype=gl.float64)).sum()

    w = start.clone().requires_grad_()
    value(w).backward()
    for i in range(3):
        one = gl.eye(3, dtype=gl.float64)[i] * step
        assert w.grad[i].item() == pytest.approx((value(start + one) - value(start - one)).item() / (2 * step), abs=1e-6)


@pytest.mark.parametrize("made", ["reshape", "t", "expand", "select", "detach", "no_grad"])
def test_a_view_of_a_leaf_that_is_a_view_itself_is_not_written(made):
    base = gl.arange(6.0).reshape(2, 3)
    with gl.set_grad_enabled(made != "no_grad"):
        made_of = {"reshape": base, "t": base.t(), "expand": base[:1].expand(1, 3), "select": base[0], "detach": base.detach()}
        leaf = made_of.get(made, base.view(6))
    leaf.requires_grad_()
    writes = [lambda v: v.mul_(2), lambda v: v.copy_(gl.ones_like(v)), lambda v: v.__setitem__(0, 1.0), lambda v: v[0].zero_()]
    for write in (*writes, lambda v: v.add_(v)):
        with pytest.raises(RuntimeError, match=r"leaf tensor that requires grad|view that was made under no_grad"):
            write(leaf.view_as(leaf))
    assert leaf.is_leaf and base.equal(gl.arange(6.0).reshape(2, 3))
