"""Where several ways lead to the same result, the one that was made for a call is taken: elsewhere only time would tell."""

import numpy as np
import pytest
from native_eager import kernels, needs_compiler, used

import gradlab as gl
from gradlab import dispatch
from gradlab.autograd import recall
from gradlab.autograd.fast_elementwise import Loops
from gradlab.autograd.record import bind
from gradlab.autograd.rounding import roundings, roundings_of
from gradlab.kernel import Elementwise
from gradlab.op import Op, positional
from gradlab.ops import ROWS
from gradlab.strides import like_operands

from samples import SAMPLES

# Rows of which only the values say how many elements come out, of one input without a gradient; and the others of them.
DYNAMIC = {"nonzero", "repeated"}
GENERAL = {"unique", "bincount"}
INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift", "gcd", "lcm"}
PLAIN = {"same", "same_bool", "broadcast", "broadcast_bool", "gradient_of"}  # rules of rows whose operands may be of any shapes that join


def expected(op):
    """The call that a row of the package is to have."""
    for call, names in (("dynamic", DYNAMIC), ("_build", GENERAL), ("whole", INTEGERS), ("matrix_product", {"matmul"})):
        if op.name in names:
            return call
    if op.view:
        return "viewing"
    alone = len(op.inputs) == 1 and not op.variadic
    if op.elementwise and op.promote is not None and not op.params and op.rule.__name__ in PLAIN:
        return "unary" if alone else "binary"
    return "one_input" if alone and op.result is None else "several_inputs"


def test_each_row_has_the_call_of_its_kind():
    found = {op.name: bind(op).__qualname__.partition(".")[0] for op in ROWS.values()}
    assert found == {op.name: expected(op) for op in ROWS.values()}


# ---------------------------------------------------------------- machine code of eager rows


def loops(name):
    """Of an elementwise row's loops for any size, the keys of those that were made."""
    kept = [found for found in dispatch.remembered if isinstance(found, Loops) and found.op.name == name]
    return {key for found in kept for key, loop in found.items() if loop is not None}


@needs_compiler
@pytest.mark.parametrize("double", [False, True])
def test_large_elementwise_calls_have_a_loop_of_any_size(double):
    x = gl.ones(40, 90, dtype=gl.float64 if double else gl.float32)
    ways = {(False, False): lambda: x - x, (True, False): lambda: 2.5 - x, (False, True): lambda: x - 2.5, (False,): x.exp}
    for single, call in ways.items():
        with kernels():
            for kept in dispatch.remembered:
                if isinstance(kept, Loops):
                    kept.clear()
            call()
            assert loops("exp" if len(single) == 1 else "sub") == {(single, double)}


CALLS = {
    "one input": ("sum", lambda x: x.sum(1)), "parameters of another type": ("softmax", lambda x: x.softmax(-1)),
    "not row by row": ("amax", lambda x: x.t().amax(1)),
    "several inputs": ("layer_norm", lambda x: gl.nn.functional.layer_norm(x, (90,), x[0])),
    "products": ("matmul", lambda x: x @ x.t()), "not row by row, by elements": ("exp", lambda x: x[:, ::2].exp()),
    "broadcast": ("add", lambda x: x + x[:1]), "gradients": ("softmax_backward", lambda x: x.requires_grad_().softmax(-1).sum().backward()),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("call", CALLS)
def test_large_calls_ask_for_a_kernel(call):
    name, function = CALLS[call]
    with kernels():
        for kept in dispatch.remembered:
            kept.clear()
        assert name not in used()
        function(gl.ones(40, 90))
        assert name in used()


@needs_compiler
@pytest.mark.parametrize("call", [*(c for c in CALLS if c != "broadcast"), "elements"])  # its loops pay early
def test_small_calls_do_not(call):
    function = CALLS[call][1] if call in CALLS else lambda x: (x - 1, 1 - x, x - x, x.exp())
    with kernels(least=100_000):
        for kept in dispatch.remembered:
            kept.clear()
        function(gl.ones(40, 90))
        assert not used()


# ---------------------------------------------------------------- what is kept for the next call like one


def test_later_calls_are_like_the_first():
    """Of every row: types, values and layout, of operands that lie row by row and of such that do not."""
    for name, op in ROWS.items():
        if "random" in name or "dropout" in name or op.together or name not in SAMPLES:
            continue
        sample = SAMPLES[name][0]
        for order in "C" if op.view else "CF":
            given = [x.astype(np.float32) if getattr(x, "dtype", None) == np.float64 else x for x in sample.inputs]
            inputs = [gl.from_numpy(x.copy(order=order)) if isinstance(x, np.ndarray) else x for x in given]
            made = []
            for _ in range(3):
                found = bind(op)(*inputs, **sample.params)
                parts = found if isinstance(found, tuple) else (found,)
                made.append([(p.dtype, p.shape, p.stride(), p.numpy().tobytes()) for p in parts])
            assert made[0] == made[1] == made[2], (name, order)


def test_what_is_kept_is_bounded():
    x, cond = gl.rand(600), gl.rand(600) > 0.5
    for n in range(1, 600):
        x[:n].sum()
        gl.nn.functional.dropout(x[:3], 0.5)
        gl.where(cond[:n], x[:n], 0.0)
    own = [kept for kept in dispatch.remembered if kept is not recall.known]
    assert max(map(len, own)) <= recall.KEPT_SHAPES + 1 and len(recall.known) <= recall.KEPT
    assert not any(key[0].varying for key in recall.known)


def test_the_bound_of_the_general_path(monkeypatch):
    monkeypatch.setattr(recall, "KEPT", 8)
    recall.known.clear()
    x = gl.rand(50)
    for n in range(1, 50):
        gl.where(x[:n] > 0.5, x[:n], 0.0)
        assert len(recall.known) <= 8


def test_arrays_of_another_byte_order_become_tensors_of_ours():
    for dtype in (">f4", "<f4", ">f8", ">i4", ">i8", ">u2"):
        array = np.arange(6).astype(dtype)
        for name, params in (("view", {"shape": (2, 3)}), ("t", {}), ("exp", {}), ("sum", {"dim": (0,), "keepdim": False})):
            found, want = (bind(ROWS[name])(a, **params) for a in (array, array.astype(dtype[1:])))
            assert found._array.dtype.isnative and np.array_equal(found.numpy(), want.numpy())


# ---------------------------------------------------------------- what is read from the code of rules and formulas


def test_parameters_of_a_function():
    assert positional(lambda a, b=None, c=3: 0) == (("a", "b", "c"), False, frozenset({"b"}))
    assert positional(lambda a, *rest, named=None: 0) == (("a", "rest"), True, frozenset())
    assert positional(lambda: 0) == ((), False, frozenset())


def count(x):
    return x


def row_of(name):
    return ROWS[name]


add, number = ROWS["add"], 3
FORMULAS = [
    (0, lambda g: g), (1, lambda g, x: g * x), (2, lambda g, x: g * x + g), (0, lambda g, x_spec: g.reshape(x_spec.shape)),
    (1, lambda g: g.exp()), (2, lambda g, x: (g - x).exp()), (1, lambda g: add(g, g)), (2, lambda g: row_of(g)), (0, lambda g: count(g)),
    (0, lambda g: number), (2, lambda g: [0 for _ in g]), (1, lambda g: g.sum), (0, lambda g: g.mT.flip(0).where(g, g)),
    (1, lambda g: -g * g),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(FORMULAS)))
def test_how_often_a_formula_rounds(at):
    """`count` is one of the names that round nothing; `-g` changes a sign."""
    steps, formula = FORMULAS[at]
    assert roundings(formula) == steps


def test_a_row_without_a_gradient_rounds_none():
    assert {roundings_of(op) for op in ROWS.values() if not op.steps} == {0}
    assert max(map(roundings_of, ROWS.values())) > 1


def test_what_counts_as_elementwise():
    """One output, computed element by element by an expression."""
    def cpu(x, *outs): ...

    one, two, none = (Op("row", lambda x: x, cpu=cpu, cuda=cuda, outputs=outputs) for cuda, outputs in (
        (Elementwise("x"), ("y",)), (Elementwise("x"), ("y", "z")), (None, ("y",))))  # fmt: skip
    assert (one.elementwise, two.elementwise, none.elementwise) == (True, False, False)
    assert one.lies is like_operands and none.lies is None
    assert Op("row", lambda x: x, cpu=cpu, cuda=Elementwise("x"), lies=False).lies is None
