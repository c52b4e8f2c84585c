"""A view whose base was written after it was taken, given to every public function: values and gradients are those of the new contents.

A path of calls that looks only at the array sees the values; the graph behind them, and the base in another shape, only one that asks.
"""

import re

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, parts

LEFT_OUT = {"in_place", "random", "making", "plain", "integer"}
LIKE = re.compile(r"_like$|\.new|isreal")  # they ask for a shape and a dtype
OTHERS = {"Tensor.__deepcopy__", "Tensor.data"}  # of leaves alone; the memory and nothing of its history
TRIED = [call for call in CALLS if not LEFT_OUT & call.marks and call.name not in OTHERS and not LIKE.search(call.name)]
PARTS = 6
in_parts = pytest.mark.parametrize("part", range(PARTS))


def first_float(args):
    """Where the first tensor of floating point stands among positional arguments."""
    return next((i for i, a in enumerate(args) if isinstance(a, gl.Tensor) and a.is_floating_point()), None)


def gradient(result, leaf):
    """Of the sum of all that has a graph; None without one."""
    found = [t for t in parts(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    if not found:
        return None
    total = sum((gl.view_as_real(t) if t.is_complex() else t).sum() for t in found)
    return gl.autograd.grad(total, leaf, allow_unused=True)[0]


def numbers(result):
    return [t.detach().resolve_conj().numpy() for t in parts(result)]


@in_parts
def test_values_and_gradients_are_those_of_the_new_contents(part):
    tried, wrong = 0, []
    for call in TRIED[part::PARTS]:
        args, options = call.tensors(gl.float64)
        at = first_float(args)
        if at is None or args[at].layout is not gl.strided:
            continue
        results = []
        for stale in (True, False):
            leaf = args[at].detach().clone().requires_grad_()
            base = gl.stack([leaf])
            view = base[0] if stale else None
            base.mul_(0.75)
            given = [*args]
            given[at] = view if stale else base[0]
            try:
                result = call.function(*given, **options)
                slope = gradient(result, leaf)
            except NotImplementedError:  # a slope that is not offered
                break
            results.append([*numbers(result), *([] if slope is None else [slope.numpy()])])
        if len(results) == 2:
            tried += 1
            same = [a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in zip(*results, strict=True)]
            wrong += [] if all(same) else [repr(call)]
    assert tried > 50
    assert wrong == []


@in_parts
def test_a_base_of_another_shape_is_noticed(part):
    wrong = []
    for call in TRIED[part::PARTS]:
        args, options = call.tensors(gl.float64)
        at = first_float(args)
        if at is None or args[at].layout is not gl.strided:
            continue
        base = gl.stack([args[at]]).detach().requires_grad_()
        given = [*args]
        given[at] = base[0]
        with gl.no_grad():
            base.unsqueeze_(0)
        try:
            with gl.no_grad():
                result = parts(call.function(*given, **options))
        except RuntimeError as error:
            wrong += [] if "take the view again" in str(error) else [repr(call)]
        else:
            wrong += [repr(call)] if result and all(t is not given[at] for t in result) else []
    assert wrong == []
