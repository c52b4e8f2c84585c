"""Messages of a program that are joined: which ones, and that values and the order of what reads them stay as they were.

Other processes are answered for by a carrier that computes; that all ranks agree is `test_distributed.py`'s.
"""

import random

import numpy as np
import pytest
from test_passes import passed, rows

import gradlab as gl
from gradlab.graph.passes.join_messages import ALL, EACH
from gradlab.ops import collective


class Carrier:
    """Of two processes, the other having the same values."""

    size, rank = 2, 0

    def all_reduce(self, x, y, op):
        y[...] = x * 2 if op == "sum" else x

    def broadcast(self, x, y, root):
        y[...] = x


class Alone(Carrier):
    size = 1


BY, OTHER = Carrier(), Carrier()


def sent(x, by=BY, op="sum"):
    return collective.all_reduce(x, by=by, op=op)


def messages(function, *example):
    """How many there are before and after."""
    return tuple(rows(graph).count("all_reduce") for graph in passed("join_messages", function, *example))


X, Y = gl.arange(6.0).reshape(2, 3), gl.arange(4.0)
LONG = gl.ones(EACH // 4)


def two_twice(x, y):
    a, b = sent(x), sent(y)
    return sent(a + 1), sent(b + 1)


def two_of_one(x):
    a = sent(x)
    return sent(a + 1), sent(a * 2)


CASES = {
    "two": (lambda x, y: (sent(x), sent(y)), (X, Y), (2, 1)),
    "one": (lambda x: sent(x), (X,), (1, 1)),
    "work between": (lambda x, y: (sent(x), sent(y * 3) + 1), (X, Y), (2, 1)),
    "one reads the other": (lambda x: sent(sent(x)), (X,), (2, 2)),
    "one reads what reads the other": (lambda x: sent(sent(x) + 1), (X,), (2, 2)),
    "one reads what reads what reads the other": (lambda x: sent((sent(x) + 1) * 2), (X,), (2, 2)),
    "two, and two that read them": (two_twice, (X, Y), (4, 2)),
    "two that read one": (two_of_one, (X,), (3, 2)),
    "another collective between": (
        lambda x, y: (sent(x), collective.broadcast(y, by=BY, root=0), sent(y)), (X, Y), (2, 2),
    ),
    "another carrier": (lambda x, y: (sent(x), sent(y, by=OTHER)), (X, Y), (2, 2)),
    "another operation": (lambda x, y: (sent(x), sent(y, op="max")), (X, Y), (2, 2)),
    "another dtype": (lambda x, y: (sent(x), sent(y.double())), (X, Y), (2, 2)),
    "of one process": (lambda x, y: (sent(x, by=Alone()), sent(y, by=Alone())), (X, Y), (2, 2)),
    "as long as they may be": (lambda x, y: (sent(x), sent(x + 1), sent(y)), (LONG, Y), (3, 1)),
    "one too long": (lambda x, y: (sent(x), sent(y)), (gl.ones(EACH // 4 + 1), Y), (2, 2)),
    "nothing in one": (lambda x, y: (sent(x[:0]), sent(y)), (X, Y), (2, 2)),
    "as many as they may be": (lambda x: [sent(x + i) for i in range(ALL // EACH)], (LONG,), (ALL // EACH, 1)),
    "one too many": (lambda x: [sent(x + i) for i in range(ALL // EACH + 1)], (LONG,), (ALL // EACH + 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_which_are_joined(name):
    function, example, counts = CASES[name]
    assert messages(function, *example) == counts


def test_programs_by_chance_keep_their_values():
    """Messages, sums and products of whatever is there, in any order: `passed` compares every bit, and the order must do."""
    joined = 0
    for seed in range(60):

        def program(x, y, seed=seed):
            draw, known = random.Random(seed), [x, y]
            for _ in range(14):
                a = draw.choice(known)
                same = [t for t in known if t.shape == a.shape]
                known.append(draw.choice((sent, sent, lambda t, s=same: t + draw.choice(s), lambda t: t * 0.5))(a))
            return known[2:]

        before, after = messages(program, X, Y)
        joined += before - after
    assert joined > 60


def test_a_joined_message_has_the_parts_in_order():
    _, after = passed("join_messages", lambda x, y: (sent(x), sent(y)), X, Y)
    (message,) = (c for c in after.calls if c.op is collective.all_reduce)
    assert message.inputs[0].spec.shape == (10,)
    assert message.params == {"by": BY, "op": "sum"}
    assert np.dtype(np.float32) == message.outputs[0].spec.dtype
