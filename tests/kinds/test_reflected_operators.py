"""A tensor beside an object of a class with operators of its own (a unit, a Series, a user's): that class is asked, as Python has it."""

import operator

import pytest

import gradlab as gl

TWO = {"add": "__radd__", "sub": "__rsub__", "mul": "__rmul__", "truediv": "__rtruediv__", "floordiv": "__rfloordiv__", "mod": "__rmod__",
       "pow": "__rpow__", "matmul": "__rmatmul__", "and_": "__rand__", "or_": "__ror__", "xor": "__rxor__", "lshift": "__rlshift__",
       "rshift": "__rrshift__", "lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__", "eq": "__eq__", "ne": "__ne__"}  # fmt: skip
IN_PLACE = {f"i{name.strip('_')}": reflected for name, reflected in list(TWO.items())[:13] if name != "matmul"}


class Foreign:
    """Answers every reflected operator with its name and the tensor."""


class Silent:
    """Has none."""


for _name in TWO.values():
    setattr(Foreign, _name, lambda self, other, name=_name: (name, other))


@pytest.mark.parametrize("dtype", [gl.float32, gl.int64, gl.bool])
@pytest.mark.parametrize("name, reflected", [*TWO.items(), *IN_PLACE.items()])
def test_the_other_side_is_asked(name, reflected, dtype):
    x = gl.ones(2, 2, dtype=dtype)
    found = getattr(operator, name)(x, Foreign())
    assert found[0] == reflected and found[1] is x and gl.equal(x, gl.ones(2, 2, dtype=dtype))
    if name not in ("eq", "ne"):
        with pytest.raises(TypeError, match="Silent"):
            getattr(operator, name)(x, Silent())


def test_methods_and_functions_take_none():
    """They are no operators: their argument is a tensor or a number."""
    for call in (lambda: gl.ones(2).add(Foreign()), lambda: gl.mul(gl.ones(2), Foreign()), lambda: gl.ones(2).pow_(Foreign())):
        with pytest.raises(TypeError, match="Foreign"):
            call()


def test_in_programs():
    compiled = gl.compile(lambda x, other: (x * 2 + other)[1])
    for _ in range(3):
        assert gl.equal(compiled(gl.ones(2), Foreign()), gl.full((2,), 2.0))


def test_arrays_and_sequences_are_taken_as_before():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([1.0, 2.0])
    assert list(gl.ones(2) + series) == [2.0, 3.0] and type(gl.ones(2) + series) is pandas.Series


def test_of_classes_that_answer():
    """A class with `__torch_function__` is asked after the other side's operator."""

    class Answering(gl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    for x in (gl.ones(2, 2).as_subclass(Answering), gl.ones(2, 2)):
        for name, reflected in [*TWO.items(), *IN_PLACE.items()]:
            assert getattr(operator, name)(x, Foreign())[0] == reflected, name
        assert type(x + 1) is type(x) and gl.equal(x + x, 2 * x)
        for other in (None, "text", [], object()):
            assert (x == other) is False and (x != other) is True
