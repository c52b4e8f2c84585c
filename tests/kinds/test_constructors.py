"""Makers times sources: shape, dtype and values of what `tensor`, `Tensor` and their relatives make of numbers, sequences, arrays and other
libraries' objects; what they refuse; and whose memory they share. A table without PyTorch; with it PyTorch's answers.
"""

import array
import collections
import decimal
import enum
import fractions

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import TORCH

Pair = collections.namedtuple("Pair", "a b")
Level = enum.IntEnum("Level", "LOW HIGH")


class HasArray:
    """An object that NumPy reads by one of its protocols."""

    def __init__(self, values, protocol="__array__"):
        self.values = values
        if protocol == "__array_interface__":
            self.__array_interface__ = values.__array_interface__

    def __getattr__(self, name):
        if name == "__array__" and "__array_interface__" not in vars(self):
            return lambda dtype=None, copy=None: np.array(self.values, dtype, copy=copy)
        raise AttributeError(name)


class HasDLPack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Row:
    """A sequence that is neither a list nor a tuple."""

    def __init__(self, *values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, at):
        return self.values[at]


def objects(*values):
    return np.array([*values, None], object)[:-1]


I32, I64, F16, F32, F64 = np.int32, np.int64, np.float16, np.float32, np.float64

# A source, made with either library's functions, and the dtype that `tensor` gives it.
SOURCES = {
    "1": (lambda T: 1, "int64"), "1.5": (lambda T: 1.5, "float32"), "True": (lambda T: True, "bool"),
    "IntEnum": (lambda T: Level.HIGH, "int64"),
    "2**40": (lambda T: 2**40, "int64"), "nan": (lambda T: [float("nan"), 1e300], "float32"),
    "[]": (lambda T: [], "float32"), "[[], []]": (lambda T: [[], []], "float32"), "()": (lambda T: (), "float32"),
    "[1]": (lambda T: [1], "int64"), "[1, 2.5]": (lambda T: [1, 2.5], "float32"), "[True, 1]": (lambda T: [True, 1], "int64"),
    "[True, 1.5]": (lambda T: [True, 1.5], "float32"), "[[1, 2], [3, 4]]": (lambda T: [[1, 2], [3, 4]], "int64"),
    "[[1], [2.5]]": (lambda T: [[1], [2.5]], "float32"), "[2**70, 1.5]": (lambda T: [2**70, 1.5], "float32"),
    "namedtuple": (lambda T: Pair(1, 2), "int64"), "range": (lambda T: range(3), "int64"),
    "[range]": (lambda T: [range(3), range(3)], "int64"),
    "deque": (lambda T: collections.deque([1, 2]), "int64"), "Row": (lambda T: Row(1.0, 2.0), "float32"),
    "Row of rows": (lambda T: Row(Row(1, 2), [3, 4]), "int64"), "deep": (lambda T: [[[[[[[[1.5]]]]]]]], "float32"),
    **{f"{t.__name__}": (lambda T, t=t: t(1), name) for t, name in [
        (np.bool_, "bool"), (np.int8, "int8"), (np.uint8, "uint8"), (np.int16, "int16"), (I32, "int32"), (I64, "int64"), (F16, "float16"),
        (F32, "float32"), (F64, "float64")]},
    **{f"[{t.__name__}]": (lambda T, t=t: [t(1), t(0)], name) for t, name in [
        (np.bool_, "bool"), (np.int8, "int8"), (np.uint8, "uint8"), (np.int16, "int16"), (I32, "int32"), (I64, "int64"), (F16, "float16"),
        (F32, "float32"), (F64, "float64")]},
    "[f64, 1]": (lambda T: [F64(1), 1], "float64"), "[1.5, f64]": (lambda T: [1.5, F64(1)], "float64"),
    "[[1], [f64]]": (lambda T: [[1], [F64(2)]], "float64"), "[f32, f64]": (lambda T: [F32(1), F64(1)], "float64"),
    "[f16, 1.5]": (lambda T: [F16(1), 1.5], "float32"), "[f16, f32]": (lambda T: [F16(1), F32(1)], "float32"),
    "[f16, i32]": (lambda T: [F16(1), I32(1)], "float16"), "[f32, i64]": (lambda T: [F32(1), I64(1)], "float32"),
    "[f32, True]": (lambda T: [F32(1), True], "float32"), "[i32, i64]": (lambda T: [I32(1), I64(1)], "int64"),
    "[i32, 1]": (lambda T: [I32(1), 1], "int64"), "[i32, 1.5]": (lambda T: [I32(1), 1.5], "float32"),
    "[i32, True]": (lambda T: [I32(1), True], "int32"), "[i32, f64]": (lambda T: [I32(1), F64(1)], "float64"),
    "[u8, i8]": (lambda T: [np.uint8(1), np.int8(1)], "int16"), "[bool_, 1.5]": (lambda T: [np.bool_(1), 1.5], "float32"),
    **{f"array {d}": (lambda T, d=d: np.arange(6).reshape(2, 3).astype(d), d) for d in (
        "bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "0-d array": (lambda T: np.array(1.5), "float64"), "0-d int32": (lambda T: np.array(3, I32), "int32"),
    "transposed": (lambda T: np.arange(6.0).reshape(2, 3).T, "float64"), "empty array": (lambda T: np.zeros((0, 3)), "float64"),
    "[arrays f64]": (lambda T: [np.ones(2), np.zeros(2)], "float64"), "[arrays f32]": (lambda T: (np.ones(2, F32),), "float32"),
    "[arrays i32]": (lambda T: [np.ones(2, I32)], "int32"), "[arrays bool]": (lambda T: [np.ones(2, bool)], "bool"),
    "[array f16]": (lambda T: [np.ones(2, F16)], "float16"), "[array f64, list]": (lambda T: [np.ones(2), [1, 2]], "float64"),
    "[array i64, floats]": (lambda T: [np.ones(2, I64), [1.5, 2]], "float32"),
    "[i64, f64 arrays]": (lambda T: [np.ones(2, I64), np.ones(2)], "float64"),
    "array('d')": (lambda T: array.array("d", [1, 2]), "float32"), "array('i')": (lambda T: array.array("i", [1, 2]), "int64"),
    "[array('d')]": (lambda T: [array.array("d", [1, 2])], "float32"), "memoryview": (lambda T: memoryview(b"ab"), "int64"),
    "bytearray": (lambda T: bytearray(b"ab"), "int64"), "memoryview d": (lambda T: memoryview(array.array("d", [1.5])), "float32"),
    "tensor": (lambda T: T.ones(2, 3), "float32"), "tensor f64": (lambda T: T.ones(2, dtype=T.float64), "float64"),
    "tensor bf16": (lambda T: T.ones(2, dtype=T.bfloat16), "bfloat16"), "[tensor]": (lambda T: [T.tensor(1.5), T.tensor(2.0)], "float32"),
    "[tensor f64]": (lambda T: [T.tensor(1.5, dtype=T.float64)], "float64"),
    "[tensor i32]": (lambda T: [T.tensor(1, dtype=T.int32)], "int32"),
    "[tensor bf16]": (lambda T: [T.tensor(1.5, dtype=T.bfloat16)], "bfloat16"), "[tensor bool]": (lambda T: [T.tensor(True)], "bool"),
    "[tensor int, 1.5]": (lambda T: [T.tensor(1), 1.5], "float32"),
    "[tensor f64, 1]": (lambda T: [T.tensor(1.5, dtype=T.float64), 1], "float64"),
    "[[tensors]]": (lambda T: [[T.tensor(1.0), T.tensor(2)], [3, 4]], "float32"),
    "[tensor (1,)]": (lambda T: [T.ones(1), T.zeros(1)], "float32"),
    "[tensor f16, f32]": (lambda T: [T.tensor(1.0, dtype=T.float16), T.tensor(1.0)], "float32"),
    "DLPack": (lambda T: HasDLPack(np.arange(3.0)), "float64"),
}  # fmt: skip

# What PyTorch refuses, or, on some versions of it, cannot read: here numbers are numbers wherever they come from.
MORE = {
    "objects int": (objects(1, 2), "int64", [1, 2]), "objects": (objects(1, 2.5), "float32", [1, 2.5]),
    "objects f64": (objects(F64(1)), "float64", [1]), "0-d object": (np.array(2.5, object), "float32", 2.5),
    "objects Fraction": (objects(fractions.Fraction(1, 2), 3), "float32", [0.5, 3]),
    "Decimal": (decimal.Decimal("1.5"), "float32", 1.5), "[Fraction]": ([fractions.Fraction(1, 2)], "float32", [0.5]),
    "Fraction of one": (fractions.Fraction(2, 1), "float32", 2), "reversed": (np.arange(3.0)[::-1], "float64", [2, 1, 0]),
    "big-endian": (np.arange(3.0).astype(">f8"), "float64", [0, 1, 2]), "[0-d array]": ([np.array(1.5, F32)], "float32", [1.5]),
    "[0-d int, float]": ([np.array(1), 1.5], "float32", [1, 1.5]), "__array__": (HasArray(np.ones(2)), "float64", [1, 1]),
    "__array__ f32": (HasArray(np.ones(2, F32)), "float32", [1, 1]), "[__array__]": ([HasArray(np.ones(2))], "float64", [[1, 1]]),
    "__array_interface__": (HasArray(np.ones(2), "__array_interface__"), "float64", [1, 1]),
    "[DLPack]": ([HasDLPack(np.arange(2.0))], "float64", [[0, 1]]), "[bool_, 1]": ([np.bool_(1), 1], "int64", [1, 1]),
    "masked": (np.ma.masked_array([1.0, 2.0]), "float64", [1, 2]), "matrix-like": (Row(np.ones(2), Row(1, 2)), "float64", [[1, 1], [1, 2]]),
}  # fmt: skip

REFUSED = {
    "str": ("ab", TypeError), "[str]": (["a"], TypeError), "bytes": (b"ab", TypeError), "None": (None, TypeError),
    "[None]": ([1, None], TypeError),
    "object None": (objects(1, None), TypeError), "object str": (objects("a"), TypeError), "strings": (np.array(["a"]), TypeError),
    "struct": (np.zeros(2, [("a", "i4")]), TypeError),
    "dates": (np.array(["2020-01-01"], "M8[ns]"), TypeError), "durations": (np.array([1], "m8[s]"), TypeError),
    "[date]": ([np.datetime64("2020")], TypeError), "__array__ of dates": (HasArray(np.array(["2020"], "M8[s]")), TypeError),
    "uint16": (np.ones(2, np.uint16), TypeError), "[uint64]": ([np.uint64(1)], TypeError),
    "longdouble": (np.ones(2, np.longdouble), TypeError),
    "dict": ({"a": 1}, TypeError), "set": ({1, 2}, TypeError), "generator": ((i for i in range(3)), TypeError),
    "object()": (object(), TypeError),
    "2**63": (2**63, RuntimeError), "[2**63]": ([2**63], RuntimeError), "[2**70]": ([2**70], RuntimeError),
    "[-2**70]": ([-(2**70)], RuntimeError),
    "ragged": ([[1], [2, 3]], ValueError), "ragged deep": ([[1, 2], 3], ValueError),
    "ragged arrays": ([np.ones(2), np.ones(3)], ValueError),
    "ragged empty": ([[], [1]], ValueError), "[tensor of two]": ([gl.ones(2), gl.ones(2)], ValueError),
}  # fmt: skip

MAKERS = {
    "tensor": lambda T, data: T.tensor(data), "as_tensor": lambda T, data: T.as_tensor(data), "asarray": lambda T, data: T.asarray(data),
    "tensor float64": lambda T, data: T.tensor(data, dtype=T.float64), "tensor int64": lambda T, data: T.tensor(data, dtype=T.int64),
    "as_tensor float16": lambda T, data: T.as_tensor(data, dtype=T.float16), "asarray bool": lambda T, data: T.asarray(data, dtype=T.bool),
    "new_tensor": lambda T, data: T.ones(1, dtype=T.float64).new_tensor(data), "Tensor": lambda T, data: T.Tensor(data),
    "new_tensor int": lambda T, data: T.ones(1, dtype=T.int32).new_tensor(data),
}  # fmt: skip


def plain(tensor):
    return str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape), tensor.requires_grad, tensor.detach().double().tolist()


@pytest.mark.parametrize("source", SOURCES)
def test_the_dtype_of_a_source(source):
    make, dtype = SOURCES[source]
    assert str(gl.tensor(make(gl)).dtype) == f"gradlab.{dtype}"


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("source", SOURCES)
def test_makers_and_sources_as_pytorch(source, maker):
    make = SOURCES[source][0]
    if maker == "Tensor" and hasattr(make(gl), "__index__") and np.ndim(make(gl)) == 0:
        return  # a size
    try:
        expected = plain(MAKERS[maker](TORCH, make(TORCH)))
    except (TypeError, RuntimeError, ValueError):  # of some dtypes it refuses to make integers, for one
        expected = None
    if maker.startswith("asarray") and isinstance(make(gl), (array.array, bytearray, memoryview)):
        return  # its bytes are read as float32 there: see the test of buffers
    if expected is not None:
        assert repr(plain(MAKERS[maker](gl, make(gl)))) == repr(expected)  # as text, for NaN


@pytest.mark.parametrize("maker", ["tensor", "as_tensor", "asarray"])
@pytest.mark.parametrize("source", MORE)
def test_numbers_that_pytorch_does_not_take(source, maker):
    data, dtype, values = MORE[source]
    found = MAKERS[maker](gl, data)
    assert str(found.dtype) == f"gradlab.{dtype}" and found.tolist() == values


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("maker", ["tensor", "as_tensor", "asarray", "new_tensor", "Tensor"])
@pytest.mark.parametrize("source", REFUSED)
def test_what_is_refused(source, maker):
    data, error = REFUSED[source]
    if maker in ("new_tensor", "Tensor") and source in ("uint16", "[uint64]", "longdouble", "2**63", "[2**63]", "[2**70]", "[-2**70]"):
        return  # another dtype is asked for, which these fit into, or it is a size
    with pytest.raises(error):
        MAKERS[maker](gl, data)


# ---------------------------------------------------------------- pandas


def test_pandas():
    pd = pytest.importorskip("pandas")
    for dtype in ("float64", "float32", "int64", "int32", "bool"):
        column = pd.Series([1, 0], index=[7, 9], dtype=dtype)
        for data in (column, pd.Index(column), [column, column], pd.DataFrame({"a": column, "b": column})):
            for make in (gl.tensor, gl.as_tensor, gl.asarray):
                assert str(make(data).dtype) == f"gradlab.{dtype}", (dtype, type(data))
            assert gl.tensor(data).tolist() == np.asarray(data).tolist()
    assert gl.tensor(pd.Series([1, 2], dtype="Int64")).dtype == gl.int64
    assert gl.tensor(pd.Series([1, 2.5], dtype=object)).dtype == gl.float32
    assert gl.tensor(pd.DataFrame({"a": [1.0], "b": [2]})).tolist() == [[1.0, 2.0]]
    assert gl.tensor(pd.RangeIndex(3)).tolist() == [0, 1, 2]
    stamps = pd.to_datetime(["2020-01-01", "2021-01-01"])
    for wrong in (stamps, pd.Series(stamps), pd.Series(stamps - stamps[0]), pd.DataFrame({"t": stamps}), stamps[0], [stamps[0]],
                  pd.Series(stamps.tz_localize("UTC")), pd.Series(["a"]), pd.Series(["a", "b"], dtype="category")):  # fmt: skip
        for make in (gl.tensor, gl.as_tensor, gl.asarray, gl.Tensor):
            with pytest.raises(TypeError):
                make(wrong)


# ---------------------------------------------------------------- memory


def whose(engine, own):
    """Makers, and whether what they make of an array of dtype `own` is the array's memory."""
    return [
        (engine.tensor, False), (engine.as_tensor, True), (engine.asarray, True), (engine.from_numpy, True), (engine.from_dlpack, True),
        (lambda a: engine.as_tensor(a, dtype=own), True), (lambda a: engine.asarray(a, dtype=own, copy=False), True),
        (lambda a: engine.as_tensor(a, dtype=engine.int8), False), (lambda a: engine.asarray(a, copy=True), False),
        (lambda a: engine.as_tensor([a, a])[0], False), (lambda a: engine.ones(1).new_tensor(a), False),
        (engine.Tensor, own == engine.float32),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("engine", [gl, TORCH] if TORCH else [gl], ids=lambda e: e.__name__)
def test_whose_memory(engine):
    """`tensor` always copies; the others share what nothing has to change in, as PyTorch's do."""
    for dtype, own in ((F32, engine.float32), (F64, engine.float64), (I64, engine.int64)):
        for make, shares in whose(engine, own):
            given = np.zeros(3, dtype)
            made = make(given)
            given[0] = 7
            assert (made[0].item() == 7) == shares, (dtype, make)


def test_buffers():
    """A buffer is shared by `asarray` in its own type (PyTorch takes its bytes for float32), and copied by `tensor`."""
    buffer = array.array("d", [1.0, 2.0])
    shared, copied = gl.asarray(buffer), gl.tensor(buffer)
    buffer[0] = 7.0
    assert shared.dtype == gl.float64 and shared.tolist() == [7.0, 2.0] and copied.tolist() == [1.0, 2.0]
    raw = bytearray(8)
    view = gl.asarray(raw, dtype=gl.float32)
    view.fill_(1.0)
    assert raw == np.ones(2, F32).tobytes()
    assert gl.asarray(bytearray(b"ab")).dtype == gl.uint8
    assert gl.asarray(array.array("d", [1.0, 2.0]), dtype=gl.float32).tolist() == [1.0, 2.0]


def test_from_numpy_shares_or_refuses():
    with pytest.raises(ValueError, match="byte order"):
        gl.from_numpy(np.arange(3.0).astype(">f8"))
    for wrong in ([1.0], 1.0, gl.ones(1)):
        with pytest.raises(TypeError):
            gl.from_numpy(wrong)


# ---------------------------------------------------------------- Tensor, Parameter

SIZES = [(3,), (3, 4), (0,), (2, 0, 3), (np.int64(2), 3), (True + 1, 2)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size):
    made = gl.Tensor(*size)
    assert made.shape == tuple(map(int, size)) and made.dtype == gl.float32 and not made.requires_grad and made.is_leaf
    assert gl.Tensor(gl.tensor(2), 3).shape == (2, 3)
    weight = gl.nn.Parameter(gl.Tensor(*size))
    assert weight.requires_grad and weight.shape == made.shape
    if TORCH:
        assert tuple(TORCH.Tensor(*size).shape) == made.shape


NEITHER = [(1.5,), (True,), (None,), ("a",), (2, 1.5), (2, True), ([1], [2]), ([1], True), (2, None), (F64(2),)]


@pytest.mark.parametrize("arguments", NEITHER, ids=str)
def test_what_is_neither_a_size_nor_values(arguments):
    with pytest.raises(TypeError):
        gl.Tensor(*arguments)


FILLED = {
    "full": lambda T, x: T.full((2,), x), "full_like": lambda T, x: T.full_like(T.ones(2), x), "arange": lambda T, x: T.arange(x),
    "arange from": lambda T, x: T.arange(0, 4, x), "scalar_tensor": lambda T, x: T.scalar_tensor(x),
    "linspace": lambda T, x: T.linspace(0, x, 3),
    "where": lambda T, x: T.where(T.tensor([True, False]), x, x), "where int": lambda T, x: T.where(T.tensor([True]), T.arange(1), x),
    "clamp": lambda T, x: T.arange(3).clamp(max=x), "new_full": lambda T, x: T.arange(2).new_full((2,), x),
}  # fmt: skip


@pytest.mark.parametrize("maker", FILLED)
def test_dtypes_of_numpys_numbers(maker):
    """The same as of Python's."""
    for number in (F32(1.5), F16(1.5), F64(1.5), I32(2), I64(2), np.uint8(2)):
        found = FILLED[maker](gl, number)
        assert plain(found) == plain(FILLED[maker](gl, number.item()))
        if TORCH:
            assert plain(found) == plain(FILLED[maker](TORCH, number))
    assert gl.full((2,), np.array(3)).dtype == gl.int64


def test_the_default_dtype_is_tensors():
    before = gl.get_default_dtype()
    try:
        gl.set_default_dtype(gl.float64)
        assert all(gl.Tensor(*a).dtype == gl.float64 for a in [(), (2,), ([1],), (np.ones(2, F32),), (np.arange(2),)])
        assert gl.tensor([1.5, F32(1)]).dtype == gl.float64 and gl.tensor([F32(1)]).dtype == gl.float32
    finally:
        gl.set_default_dtype(before)


def test_tensor_of_a_tensor_is_an_alias():
    x = gl.ones(2, dtype=gl.float64, requires_grad=True)
    y = gl.Tensor(x)
    assert y is not x and y.dtype == gl.float64 and y.requires_grad and not y.is_leaf
    (y * gl.tensor([2.0, 3.0], dtype=gl.float64)).sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]
    z = gl.zeros(2)
    gl.Tensor(z).fill_(5)
    assert z.tolist() == [5.0, 5.0]
    assert gl.Tensor(gl.arange(3)).dtype == gl.int64


def test_values_of_parameters():
    assert gl.nn.Parameter([1, 2]).dtype == gl.float32 and gl.nn.Parameter(np.ones(2)).dtype == gl.float64
    assert gl.nn.Parameter(1.5).shape == () and gl.nn.Parameter().shape == (0,) and gl.nn.Buffer([1]).dtype == gl.float32
    x = gl.zeros(2)
    with gl.no_grad():
        gl.nn.Parameter(x).fill_(3)
    assert x.tolist() == [3.0, 3.0]


def test_buffers_of_what_requires_grad():
    x = gl.ones(2, requires_grad=True)
    assert gl.nn.Buffer(x * 2).requires_grad and gl.nn.Buffer(x * 2).is_leaf and not gl.nn.Buffer(gl.ones(2)).requires_grad


def test_objects_that_are_numbers():
    real, whole = type("R", (), {"__float__": lambda self: 2.5})(), type("W", (), {"__index__": lambda self: 3})()
    assert plain(gl.tensor(real)) == plain(gl.tensor(2.5)) and plain(gl.tensor([[whole]])) == plain(gl.tensor([[3]]))
    assert plain(gl.tensor([whole, real])) == plain(gl.tensor([3, 2.5])) and gl.tensor(whole, dtype=gl.float64).dtype == gl.float64


OPERATIONS = {
    "add": lambda x, y: x + y,
    "radd": lambda x, y: y + x,
    "function": gl.add,
    "mul": lambda x, y: x * y,
    "pow": lambda x, y: x**y,
    "lt": lambda x, y: x < y,
    "fill_": lambda x, y: x.fill_(y),
    "new_full": lambda x, y: x.new_full((2,), y),
    "masked_fill": lambda x, y: x.masked_fill(gl.tensor([True, False]), y),
}


@pytest.mark.parametrize("dtype", [gl.float32, gl.int64], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_arrays_as_operands(operation, dtype):
    """Arrays of foreign byte order count as their numbers, whose fraction is not lost; complex ones are never made real."""
    compute = OPERATIONS[operation]
    for kind in ("f4", "f8", "i4", "i8"):
        value = np.array(1.5).astype(kind)
        own, foreign = (compute(gl.ones(2, dtype=dtype), value.astype(order + kind)) for order in "=>")
        assert (own.dtype, own.tolist()) == (foreign.dtype, foreign.tolist())
    for value in (np.array(1j), np.complex64(1j), 1j):
        if operation in ("add", "radd", "function", "mul", "pow"):
            assert compute(gl.ones(2, dtype=dtype), value).is_complex()
            continue
        with pytest.raises((TypeError, RuntimeError), match=r"complex|not a real number"):
            compute(gl.ones(2, dtype=dtype), value)
