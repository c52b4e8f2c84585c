"""What one operation costs, counted instead of timed: calls that the interpreter makes, and memory blocks that stay.

Seconds depend on the machine; these numbers do not. They were counted with Python 3.11; later versions make no more. A change that
raises one of them needs a measurement that pays for it (bench/cost.py); a change that lowers one lowers the number here.
"""

import gc
import sys
from collections import Counter

import pytest

import gradlab as gl
from gradlab import spec
from gradlab.overrides import overridable

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Public functions as they are before a class answers for them (`__torch_function__`), which a test of this process may have made."""
    for module, table in overridable.places().items():
        for name, function in table.items():
            if vars(module).get(name) is function:
                monkeypatch.setitem(vars(module), name, function.plain)
    monkeypatch.setattr(spec, "_unknown", False)  # what a test with unknown sizes has left: shapes are not kept from then on
    yield
    for cache in spec.caches:
        cache.clear()


# As they are while no class has a `__torch_function__` (gradlab.overrides), which another test may have defined.
linear, where = (getattr(function, "plain", function) for function in (gl.nn.functional.linear, gl.where))
STEPS = {
    "mul": lambda y, w: y * w,
    "mul by a number": lambda y, w: y * 0.5,
    "add": lambda y, w: y + w,
    "tanh": lambda y, w: y.tanh(),
    "matmul": lambda y, w: y @ w,
    "linear": lambda y, w: linear(y, w),
    "where": lambda y, w: where(MASK, y, w),
    "softmax": lambda y, w: y.softmax(-1),
    "reshape": lambda y, w: y.reshape(4, 4),
}
MASK = gl.eye(4) > 0

# For one operation: calls of Python functions and calls of built-in functions, in a forward without graph, in one with graph, in backward.
# One of the built-in calls enters the context in which NumPy is quiet (gradlab/quiet.py): 30 ns.
CALLS = {
    "mul": ((2, 3), (3, 5), (9, 14)),
    "mul by a number": ((4, 5), (5, 7), (6, 7)),
    "add": ((2, 3), (3, 5), (7, 7)),
    "tanh": ((2, 3), (2, 5), (5, 8)),
    "matmul": ((2, 8), (3, 10), (15, 34)),
    "linear": ((3, 13), (5, 21), (18, 24)),
    "where": ((6, 13), (9, 21), (54, 73)),
    "softmax": ((5, 12), (6, 14), (10, 26)),
    "reshape": ((8, 6), (9, 9), (13, 9)),
}

# For one operation: blocks of memory that its result keeps alive, without graph and with it.
BLOCKS = {  # a view has a Meta
    "mul": (3, 7), "mul by a number": (3, 7), "add": (3, 6), "tanh": (3, 7), "matmul": (3, 7),
    "linear": (3, 8), "where": (3, 8), "softmax": (3, 9), "reshape": (6, 17),
}  # fmt: skip


def operands():
    y = gl.full((4, 4), 0.5)
    w = gl.full((4, 4), 0.25).requires_grad_()
    return (y * w).detach().requires_grad_(), w


def chain(step, y, w, length):
    for _ in range(length):
        y = step(y, w)
    return y


def counted(work):
    """Calls of Python and of built-in functions that `work()` makes."""
    events = Counter()
    gc.disable()  # a collection may call others' functions
    sys.setprofile(lambda frame, event, argument: events.update((event,)))
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return events["call"], events["c_call"]


def calls_of_one(prepare, length=50):
    """By the difference between a long and a short run, so that what happens once does not count. `prepare(n)` gives the work."""
    prepare(length)()  # what is built on first use
    short, long = counted(prepare(length)), counted(prepare(2 * length))
    return tuple((b - a) / length for a, b in zip(short, long, strict=True))


def forward(step, recording):
    y, w = operands()

    def prepare(length):
        def work():
            with gl.set_grad_enabled(recording):
                chain(step, y, w, length)

        return work

    return prepare


def backward(step):
    def prepare(length):
        y, w = operands()
        out = chain(step, y, w, length)
        gradient = gl.ones(out.shape)
        return lambda: out.backward(gradient)

    return prepare


@pytest.mark.parametrize("name", STEPS)
def test_calls(name):
    step = STEPS[name]
    found = [calls_of_one(prepare) for prepare in (forward(step, False), forward(step, True), backward(step))]
    own = (1, 0)  # the lambda in STEPS
    found[:2] = [(python - own[0], builtin) for python, builtin in found[:2]]
    for kind, (python, builtin), limit in zip(("without graph", "with graph", "backward"), found, CALLS[name], strict=True):
        message = f"{name} {kind}: {python:g} calls, {builtin:g} built-in calls; {limit} allowed"
        assert python <= limit[0] + 0.5 and builtin <= limit[1] + 0.5, message


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_blocks(name, recording):
    step, length = STEPS[name], 200
    y, w = operands()
    gc.collect()
    gc.disable()
    try:
        with gl.set_grad_enabled(recording):
            kept = [None] * length
            kept[0] = chain(step, y, w, 3)  # what is built on first use
            before = sys.getallocatedblocks()
            for i in range(length):
                kept[i] = step(kept[i - 1] if i else y, w)
            after = sys.getallocatedblocks()
    finally:
        gc.enable()
    found = (after - before) / length
    assert found <= BLOCKS[name][recording] + 0.5, f"{name}: {found:g} blocks for each operation, {BLOCKS[name][recording]} allowed"
