"""A compiled function that gives a tensor an array of another shape, dtype or layout shows what it shows eagerly, or raises.

A program writes into memory that is there. Of a tensor from outside that memory has room for what it had when the program was made.
"""

import warnings

import pytest

import gradlab as gl

SIX = (gl.arange(6.0) + 1).reshape(2, 3)


def data(make):
    """Setting a tensor's .data to what `make` makes of it."""

    def write(t):
        t.data = make(t.data)

    return write


WAYS = {
    "fewer": data(lambda t: t.sum(0) * 2),
    "more": data(lambda t: gl.cat([t, t])),
    "as many in another shape": data(lambda t: t.reshape(3, 2) + 1),
    "none": data(lambda t: gl.empty(0)),
    "a number": data(lambda t: t.sum()),
    "wider": data(lambda t: t.double() * 2),
    "narrower": data(lambda t: t.bfloat16()),
    "a view": data(lambda t: t.t()),
    "a part": data(lambda t: t[:1]),
    "another layout": data(lambda t: (t * 2).t().contiguous().t()),
    "another tensor's": data(lambda t: gl.ones(4)),
    "of one that shares it": lambda t: setattr(t.detach(), "data", gl.ones(2)),
    "t_": lambda t: t.t_(),
    "transpose_": lambda t: t.transpose_(0, 1),
    "squeeze_": lambda t: t.squeeze_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "swapaxes_": lambda t: t.swapaxes_(0, 1),
    "swapdims_": lambda t: t.swapdims_(0, 1),
    "resize_": lambda t: t.resize_(2, 2),
    "resize_as_": lambda t: t.resize_as_(gl.ones(2, 3)),
    "set_": lambda t: t.set_(gl.ones(2)),
    "as_strided_": lambda t: t.as_strided_((2,), (1,)),
}
PLACES = ("variable", "argument", "made", "buffer", "parameter", "in no_grad")


class Holder(gl.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", SIX.clone())
        self.weight = gl.nn.Parameter(SIX.clone())


def calls(compiled, way, place):
    """What six calls give and leave, the fourth and those behind it with the write; an error ends them."""
    holder, variable, switch = Holder(), SIX.clone(), [False]

    def function(x):
        t = {"variable": variable, "argument": x, "made": x * 2, "buffer": holder.kept, "parameter": holder.weight}.get(place, variable)
        if switch[0]:
            with gl.no_grad() if place == "in no_grad" else gl.enable_grad():
                WAYS[way](t)
        return t.sum() + 1, t * 2

    step, seen = gl.compile(function) if compiled else function, []
    for i in range(6):
        switch[0] = i >= 3
        x = SIX * (i + 1)
        try:
            results = step(x)
        except (RuntimeError, ValueError) as error:
            return seen, error
        seen.append([(t.dtype, t.shape, t.tolist()) for t in (*results, x, variable, holder.kept, holder.weight)])
    return seen, None


@pytest.mark.parametrize("place", PLACES)
def test_memory_that_is_exchanged_in_a_program(place):
    for way in WAYS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that such calls run eagerly
            eager, refused = calls(False, way, place)
            compiled, error = calls(True, way, place)
        if error is None:
            assert compiled == eager and refused is None, (place, way)
        elif refused is None:  # by the method's name, before anything is written
            assert "_: " in str(error) and "trace" in str(error), (place, way, error)
            assert compiled == eager[: len(compiled)], (place, way)


def test_what_cannot_be_a_program_is_said():
    state = gl.zeros(2)

    @gl.compile
    def grow(x):
        state.data = gl.cat([state, x])
        return state.sum()

    grow(gl.ones(1))
    with pytest.warns(UserWarning, match=r"sets the \.data of a tensor from outside, of shape \(3,\) .* of shape \(4,\)"):
        grow(gl.ones(1))
    assert [grow(gl.ones(1)).item() for _ in range(3)] == [3, 4, 5] and state.shape == (7,)
