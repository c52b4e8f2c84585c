"""What is found out about the interpreter's own objects by looking at their words: it is found, and it is right.

Where it is not found all goes on more slowly, so nothing else would fail.
"""

import sys

import pytest

import gradlab as gl
from gradlab.graph.guards import frame_operands, machine_guards

pytestmark = pytest.mark.skipif(
    sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="another kind of Python",
)


def word(value, index):
    return machine_guards._words_of(value, index + 1)[index]


def test_a_tensors_slots():
    t = gl.ones(3).requires_grad_()
    t._meta = object()
    found = machine_guards.words()
    assert {name: word(t, i) for name, i in found.items()} == {name: id(getattr(t, name)) for name in ("_array", "_edge", "_meta")}


def test_a_functions_code_and_defaults():
    def function(a=(1, 2), *, b=3): ...

    found = machine_guards.function_words()
    names = "__code__", "__defaults__", "__kwdefaults__"
    assert {name: word(function, i) for name, i in found.items()} == {name: id(getattr(function, name)) for name in names}


def test_what_a_cell_holds():
    held = object()
    found, cell = machine_guards.cell_words(), (lambda: held).__closure__[0]
    assert {name: word(cell, i) for name, i in found.items()} == {"cell_contents": id(held)}


def test_an_objects_class_and_a_dicts_size():
    found = machine_guards.object_words()
    assert set(found) == {"class", "entries", "version"}
    for value in (gl.ones(1), 1.5, {}, "text"):
        assert word(value, found["class"]) == id(type(value))
    for size in (0, 1, 5, 6, 1000):
        assert word(dict.fromkeys(range(size)), found["entries"]) == size


def test_a_classs_version_changes_with_its_attributes_and_those_above():
    class Above:
        value = 1

    class Below(Above):
        pass

    seen = [machine_guards.version(Below)]
    for owner in (Below, Above):
        owner.value = object()
        seen.append(machine_guards.version(Below))
    assert machine_guards.version(Below) == seen[-1]
    assert len(set(seen)) == 3 and all(seen)


def watched(function, *args):
    """At each instruction of a function: what it is, its operands from the top, and the function."""
    seen = []

    def watch(frame, event, _):
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = watch, True, False
        if event == "opcode":
            operands = frame_operands.Operands(frame)
            seen.append(([operands[i] for i in range(4)], [operands.cell(i) for i in range(4)], frame_operands.function_of(frame)))
        return watch

    before, own = sys.gettrace(), sys._getframe()
    own.f_trace_opcodes = True
    sys.settrace(lambda frame, event, _: watch(frame, event, _) if frame.f_code is function.__code__ else None)
    try:
        function(*args)
    finally:
        sys.settrace(before)
        own.f_trace_opcodes = False
    return seen


def test_a_frames_operands():
    class Seen:
        def take(self, *values):
            return list(values)

    first, second, held = Seen(), object(), object()

    def function(owner, value):
        extra = value
        return owner.take(extra, [held, (value, owner.take())])

    assert frame_operands.readable()
    assert (frame_operands._layout().size >= 0) == (sys.version_info < (3, 12))
    seen = watched(function, first, second)
    assert all(f is function for _, _, f in seen)
    cell = function.__closure__[0]
    assert all(any(c is cell for c in cells) for _, cells, _ in seen[1:])
    tops = [operands for operands, _, _ in seen]
    assert any(o[0] is first for o in tops), "the owner of the attribute"
    assert any(o[0] is second and o[1] is held and o[2] is second for o in tops), "operands below the top"
    assert any(o[0] is first and o[1] is second and o[2] is held for o in tops)
    assert all(o[3] is not second for o in tops if o[0] is None), "nothing stands below none"


def test_what_is_no_operand():
    """Places below the first and above the last hold nothing; no other memory is read."""
    seen = []

    def function(value):
        operands = frame_operands.Operands(sys._getframe())
        seen.extend(operands[depth] for depth in (*range(operands._size, operands._size + 40), -1, -2, -40, 1 << 40))
        seen.extend(operands.cell(index) for index in (-1, -1000, operands._size, operands._size + 7, 1 << 40))
        return value

    function(1)
    assert seen == [None] * 49
