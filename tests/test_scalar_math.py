"""`kernels/scalar_math.h` on the CPU: each function against NumPy or its definition, and the vector loops it promises.

Functions of real analysis are compared with the same function in a wider type, so that the limits are true errors; the others are
compared with NumPy exactly, the sign of a zero included.
"""

import ctypes
import math
import re

import numpy as np
import pytest

from gradlab.backends.cuda.compiler import inlined

from expressions import (
    FLAGS,
    HEADER,
    Entry,
    body,
    compile_expressions,
    compiler,
    errors_in_ulps,
    is_gcc,
    loop_source,
    parameter_list,
    run,
    unit_source,
)

REAL = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGER = (*SIGNED, "uint8")
ANY = (*REAL, *INTEGER, "bool")

X, XY = ("x",), ("x", "y")


def wide(function):
    """The reference in the next wider type."""

    def reference(*arrays):
        return function(*(a.astype(np.float64 if a.dtype == np.float32 else np.longdouble) for a in arrays))

    return reference


def whole(function):
    """The reference in Python's unbounded integers (of the values and the number of bits), wrapped to the arrays' dtype."""

    def reference(*arrays):
        info = np.iinfo(arrays[-1].dtype)
        exact = np.frompyfunc(lambda *values: function(*values, info.bits), len(arrays), 1)
        wrapped = exact(*(a.astype(object) for a in arrays)) % (1 << info.bits)
        return np.where(wrapped > info.max, wrapped - (1 << info.bits), wrapped).astype(info.dtype)

    return reference


def elementwise(function):
    """A function of Python floats as a function of arrays."""
    return lambda x: np.frompyfunc(function, 1, 1)(x.astype(np.float64)).astype(np.float64)


def sigmoid(x):
    """Written for the reference: the exponential never overflows."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def integer_power(base, exponent, bits):
    """PyTorch's: negative exponents truncate, and a zero base gives zero."""
    if exponent >= 0:
        return pow(base, exponent, 1 << bits)
    return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)


def shift_left(x, count, bits):
    return x << count if 0 <= count < bits else 0


def shift_right(x, count, bits):
    return x >> (count if 0 <= count < bits else bits)


# name: reference, units in the last place. On the CPU the float functions of the first two lines are our own polynomials.
LIMITS = {
    "exp": (np.exp, 2), "log": (np.log, 2), "exp2": (np.exp2, 2), "expm1": (np.expm1, 3), "log1p": (np.log1p, 3),
    "log2": (np.log2, 3), "log10": (np.log10, 3), "tanh": (np.tanh, 4), "sin": (np.sin, 3), "cos": (np.cos, 3),
    "erf": (elementwise(math.erf), 4), "erfc": (elementwise(math.erfc), 6), "sigmoid": (sigmoid, 4),
    "sinh": (np.sinh, 4), "cosh": (np.cosh, 4), "tan": (np.tan, 4), "asin": (np.arcsin, 4), "acos": (np.arccos, 4),
    "atan": (np.arctan, 4), "asinh": (np.arcsinh, 4), "acosh": (np.arccosh, 4), "atanh": (np.arctanh, 4),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2), "sqrt": (np.sqrt, 0.51), "reciprocal": (lambda x: 1 / x, 0.51),
}  # fmt: skip
POLYNOMIALS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "erfc", "sigmoid", "sin", "cos")
LIMITS_OF_TWO = {"atan2": (np.arctan2, 4), "pow": (np.power, 2), "hypot": (np.hypot, 2)}
EXACT = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "abs": np.abs, "sign": np.sign, "square": np.square,
}  # fmt: skip
EXACT_OF_TWO = {
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "fmod": np.fmod, "remainder": np.remainder,
    "floor_divide": np.floor_divide, "true_divide": np.divide, "copysign": np.copysign,
}  # fmt: skip
TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit}
INTEGER_OF_TWO = {
    "fmod": lambda x, y, _: int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0,
    "remainder": lambda x, y, _: x % y if y else 0,
    "floor_divide": lambda x, y, _: x // y if y else 0,
    "pow": integer_power,
    "left_shift": shift_left,
    "right_shift": shift_right,
    "bitwise_and": lambda x, y, _: x & y,
    "bitwise_or": lambda x, y, _: x | y,
    "bitwise_xor": lambda x, y, _: x ^ y,
    "maximum": lambda x, y, _: max(x, y),
    "minimum": lambda x, y, _: min(x, y),
}
INTEGER_OF_ONE = {
    "abs": lambda x, _: abs(x),
    "sign": lambda x, _: (x > 0) - (x < 0),
    "square": lambda x, _: x * x,
    "bitwise_not": lambda x, _: ~x,
    "reciprocal": lambda x, _: x if abs(x) == 1 else 0,
}
BOOL_OF_TWO = {
    "maximum": np.maximum, "minimum": np.minimum, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "pow": lambda x, y: x | ~y,
}  # fmt: skip

UNARY = [
    *(Entry(name, X, f"{name}(x)", REAL, wide(f), ulps) for name, (f, ulps) in LIMITS.items()),
    *(Entry(name, X, f"{name}(x)", REAL, f) for name, f in EXACT.items()),
    *(Entry(name, X, f"{name}(x)", (*REAL, *INTEGER), f, output="bool") for name, f in TESTS.items() if name != "signbit"),
    Entry("signbit", X, "signbit(x)", REAL, np.signbit, output="bool"),
    Entry("literal", X, "T(0.5) * tanh(x)", REAL, wide(lambda x: np.tanh(x) / 2), 4),
]
WHOLE = [
    *(Entry(f"whole_{name}", X, f"{name}(x)", INTEGER, lambda x: x) for name in ("floor", "ceil", "trunc", "round")),
    *(Entry(f"whole_{name}", X, f"{name}(x)", INTEGER, whole(f)) for name, f in INTEGER_OF_ONE.items()),
    *(Entry(f"whole_{name}", XY, f"{name}(x, y)", INTEGER, whole(f)) for name, f in INTEGER_OF_TWO.items()),
    *(Entry(f"whole_{name}", XY, f"x {op} y", INTEGER, f) for name, op, f in (("add", "+", np.add), ("mul", "*", np.multiply))),
    Entry("ratio", XY, "true_divide(x, y)", INTEGER, lambda x, y: np.float32(x) / np.float32(y), output="float32"),
    Entry("whole_clamp", ("x", "y", "z"), "clamp(x, y, z)", INTEGER, lambda x, y, z: np.minimum(np.maximum(x, y), z)),
]
BINARY = [
    *(Entry(name, XY, f"{name}(x, y)", REAL, wide(f), ulps) for name, (f, ulps) in LIMITS_OF_TWO.items()),
    *(Entry(name, XY, f"{name}(x, y)", REAL, f) for name, f in EXACT_OF_TWO.items()),
]
CHOICES = [
    Entry("where", ("c", "x", "y"), "where(c, x, y)", ANY, np.where, types={"c": "bool"}),
    Entry("clamp", ("x", "y", "z"), "clamp(x, y, z)", REAL, lambda x, y, z: np.minimum(np.maximum(x, y), z)),
]
TRUTHS = [
    *(Entry(f"truth_{name}", XY, f"{name}(x, y)", ("bool",), f) for name, f in BOOL_OF_TWO.items()),
    Entry("truth_not", X, "bitwise_not(x)", ("bool",), np.logical_not),
]
SUMS = [
    Entry("logaddexp", XY, "logaddexp(x, y)", REAL, wide(np.logaddexp)),
    Entry("lerp", ("x", "y", "w"), "lerp(x, y, w)", REAL, wide(lambda x, y, w: x + w * (y - x))),
]
CASTS = [
    *(Entry(f"to_{t}", X, f"cast<{c}>(x)", (*REAL, "int64"), lambda x, t=t: x.astype(t), output=t)
      for t, c in (("int8", "signed char"), ("int32", "int"), ("uint8", "unsigned char"), ("bool", "bool"))),
    Entry("to_float32", X, "cast<float>(x)", ("int64", "float64", "bool"), lambda x: x.astype(np.float32), output="float32"),
]  # fmt: skip

COMPILED = compile_expressions([*UNARY, *BINARY, *WHOLE, *CHOICES, *TRUTHS, *SUMS, *CASTS])

# np.maximum and its like may give either zero of a pair; the sign of np.sign(-0.0) is not a promise.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "clamp", "sign"}


def cases(entries):
    """One test for each entry and dtype."""
    return pytest.mark.parametrize(("entry", "dtype"), [pytest.param(e, d, id=f"{e.name}-{d}") for e in entries for d in e.dtypes])


def largest_error(entry, dtype, *arrays):
    """The largest error over broadcastable arrays, in units of the last place, and a sentence that shows it."""
    got = COMPILED[entry.name, dtype](*arrays)
    with np.errstate(all="ignore"):
        want = np.broadcast_to(entry.reference(*arrays), got.shape)
    errors = errors_in_ulps(got, want)
    if got.dtype.kind == "f" and entry.name not in EITHER_ZERO:
        errors = np.where((got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want)), np.inf, errors)
    worst = np.unravel_index(np.argmax(errors), errors.shape)
    values = ", ".join(str(np.broadcast_to(a, got.shape)[worst]) for a in arrays)
    return errors[worst], f"{entry.expression} at ({values}) is {got[worst]}, not {want[worst]}"


def check(entry, dtype, *arrays):
    error, message = largest_error(entry, dtype, *arrays)
    assert error <= entry.ulps, f"{message}: {error:.2f} ulp"


def float_grid(dtype):
    """Values where floating point functions go wrong: the ends of the ranges and of the branches, of both signs."""
    info = np.finfo(dtype)
    sizes = [0.0, info.smallest_subnormal, info.tiny / 3, info.tiny, info.eps / 2, info.eps, 1e-5, 0.3, 0.5, 1 - info.epsneg]
    sizes += [1.0, 1 + info.eps, 1.5, 2.0, 2.5, 3.0, math.pi, 10.0, 17.3, 87.3, 88.72284, 88.8, 103.97, 104.1, 150.0, 709.78]
    sizes += [745.2, 1e4, 2.0**24 + 2, 1e10, 1e30, info.max, np.inf, np.nan]
    positive = np.array(sizes, dtype)
    return np.concatenate([positive, -positive])


def float_sweep(dtype, count=60_000):
    """All magnitudes (every so many bit patterns, from the first to the last), and a dense sample of the usual ones."""
    random = np.random.default_rng(7)
    bits = {"float32": np.uint32, "float64": np.uint64}[dtype]
    patterns = np.linspace(0, float(np.iinfo(bits).max), count, dtype=np.float64, endpoint=False).astype(bits)
    patterns ^= random.integers(0, 1 << 16, count, dtype=bits)
    usual = random.standard_normal(count) * 2.0 ** random.integers(-6, 7, count)
    return np.concatenate([patterns.view(dtype), usual.astype(dtype)])


def integer_grid(dtype):
    """The ends of the range, shift counts around the width, and small numbers."""
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max - 1, info.max, -100, 100, *range(-9, 10), 15, 16, 31, 32, 63, 64, 65}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), dtype)


def integer_sweep(dtype, count=2000):
    info = np.iinfo(dtype)
    return np.random.default_rng(8).integers(info.min, info.max, count, dtype, endpoint=True)


@cases(UNARY)
def test_one_argument(entry, dtype):
    values = [float_grid(dtype), float_sweep(dtype)] if dtype in REAL else [integer_grid(dtype)]
    check(entry, dtype, np.concatenate(values))


@cases(BINARY)
def test_two_arguments(entry, dtype):
    grid, swept = float_grid(dtype), float_sweep(dtype, 20_000)
    check(entry, dtype, grid[:, None], grid)
    check(entry, dtype, swept, np.random.default_rng(9).permutation(swept))
    check(entry, dtype, np.round(swept[20_000:]), np.round(swept[:19_999:-1]))


@cases(WHOLE)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_integers(entry, dtype):
    grid, swept = integer_grid(dtype), integer_sweep(dtype)
    if len(entry.inputs) == 1:
        check(entry, dtype, np.concatenate([grid, swept]))
    elif len(entry.inputs) == 2:
        check(entry, dtype, grid[:, None], grid)
        check(entry, dtype, swept, swept[::-1])
    else:
        check(entry, dtype, grid[:, None, None], grid[:, None], grid)


@cases(CHOICES)
def test_choices(entry, dtype):
    if dtype == "bool":
        grid = np.array([False, True])
    else:
        grid = float_grid(dtype) if dtype in REAL else integer_grid(dtype)
    first = np.array([False, True]) if entry.types else grid
    check(entry, dtype, first[:, None, None], grid[:, None], grid)


@cases(TRUTHS)
def test_truths(entry, dtype):
    both = np.array([False, True])
    check(entry, dtype, *((both[:, None], both) if len(entry.inputs) == 2 else (both,)))


@cases(CASTS)
def test_casts(entry, dtype):
    """Floats whose truncation fits; integers wrap; NaN is true."""
    if dtype in REAL:
        values = np.array([0.0, -0.0, 0.5, -0.5, 1.9, 2.5, 100.99, 127.0], dtype)
        if entry.output != "uint8":
            values = np.concatenate([values, -values])
        if entry.output == "bool":
            values = np.concatenate([values, float_grid(dtype)])
    else:
        values = integer_grid(dtype) if dtype != "bool" else np.array([False, True])
    check(entry, dtype, values)


@pytest.mark.parametrize("dtype", REAL)
def test_logaddexp(dtype):
    """The sum may cancel, so the error is measured against the larger argument."""
    grid, swept = float_grid(dtype), float_sweep(dtype, 20_000)
    for x, y in ((grid[:, None], grid), (swept, swept[::-1])):
        got = COMPILED["logaddexp", dtype](x, y)
        with np.errstate(all="ignore"):
            want = SUMS[0].reference(x, y)
            finite = np.isfinite(want)
            close = np.abs(got - want) <= 4 * np.finfo(dtype).eps * (np.maximum(np.abs(x), np.abs(y)) + 1)
            same = (got == want.astype(dtype)) | (np.isnan(got) & np.isnan(want))
        assert np.all(np.where(finite, close, same) | same)


@pytest.mark.parametrize("dtype", REAL)
def test_lerp(dtype):
    x, y = (np.random.default_rng(i).standard_normal((500, 1)).astype(dtype) for i in (1, 2))
    w = np.linspace(-1, 2, 100).astype(dtype)
    got, want = COMPILED["lerp", dtype](x, y, w), SUMS[1].reference(x, y, w)
    assert np.all(np.abs(got - want) <= 4 * np.finfo(dtype).eps * (np.abs(x) + np.abs(y)) * (1 + np.abs(w)))
    ends = np.array([0, 1], dtype)
    np.testing.assert_array_equal(COMPILED["lerp", dtype](x, y, ends), np.concatenate([x, y], axis=1))


def test_the_header_has_no_warnings(tmp_path):
    source = tmp_path / "plain.cpp"
    source.write_text(unit_source(loop_source(e, "float32") for e in (*UNARY, *BINARY)), encoding="utf-8")
    run([compiler(), *FLAGS, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)])


def test_loops_vectorise(tmp_path):
    """gcc names the line of each loop that it turned into vector instructions; each loop has a line of its own here."""
    if not is_gcc() or "-march=native" not in FLAGS:
        pytest.skip("only gcc on x86 tells")
    loops = {name: f"{name}(x)" for name in POLYNOMIALS}
    loops |= {"gelu": "x * (T(0.5) * erfc(x * T(-0.70710678118654752)))", "where": "where(isnan(x), T(0), exp(x))"}
    loops |= {"clamp": "clamp(x, T(-1), T(1))", "softplus": "logaddexp(x, T(0))"}
    lines = [loop_source(Entry(name, X, text, ("float32",), np.exp), "float32") for name, text in loops.items()]
    source = tmp_path / "loops.cpp"
    source.write_text(unit_source(lines), encoding="utf-8")
    report = run([compiler(), *FLAGS, "-fopt-info-vec-optimized", "-c", str(source), "-o", str(tmp_path / "loops.o")])
    found = {int(line) for line in re.findall(r"loops\.cpp:(\d+):\d+: optimized: loop vectorized", report.stderr)}
    first = unit_source(["@"]).splitlines().index("@") + 1
    assert [name for i, name in enumerate(loops) if first + i not in found] == []


def nvrtc():
    """The compiler that CuPy uses, where its wheel or the toolkit is installed; it needs no GPU."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("NVRTC is not installed")


def nvrtc_log(library, source, architecture):
    """Compile for an architecture as CuPy does; the return code and what the compiler said."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"all.cu", 0, None, None)
    options = [b"--std=c++17", b"-ftz=true", f"-arch={architecture}".encode()]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code, log.value.decode()


def kernel_source(entry, dtype):
    """A CUDA kernel that runs the expression over arrays."""
    return (
        f'extern "C" __global__ void {entry.name}_{dtype}(long long n, {parameter_list(entry, dtype)}) '
        f"{{ const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) {{ {body(entry, dtype)} }} }}"
    )


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("count", [1, None], ids=["one function", "all functions"])
def test_the_header_compiles_for_the_gpu(architecture, count):
    """Without a warning, also where a kernel leaves most of the header unused."""
    kernels = [
        kernel_source(e, d)
        for e in (*UNARY, *BINARY, *WHOLE, *CHOICES, *TRUTHS, *SUMS, *CASTS)
        for d in e.dtypes
        if d in {"float32", "float64", "int8", "int64", "bool"}
    ]
    source = "\n".join([inlined(HEADER.read_text(encoding="utf-8")), "namespace gradlab {", *kernels[:count], "}", ""])
    assert nvrtc_log(nvrtc(), source, architecture) == (0, "")
