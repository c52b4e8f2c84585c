"""Each elementwise row's expression, compiled as C++, against the row's own NumPy function.

What the GPU and the static graph compile and what the CPU runs must be one operation, on the values where they would part: NaN,
infinities, both zeros, subnormals, the smallest integers. Only rows are named here, and only where they need something special.
"""

import re
import warnings

import ml_dtypes
import numpy as np
import pytest

from gradlab import ops
from gradlab.kernel import Elementwise
from gradlab.op import Op
from gradlab.ops import ROWS
from gradlab.spec import Spec

from expressions import C_TYPES, FLOATING, HALF, Entry, compile_expressions, computed, errors_in_ulps, named_dtype

DTYPES = (*FLOATING, *(name for name in C_TYPES if name not in FLOATING))

# Inputs of these names are truth values whatever the others are.
CONDITIONS = {"condition", "mask"}

# Values of a row's parameters; one test for each. Numbers reach the expression as constants of type T, others only the rule.
PARAMETERS = {
    "pow": [{"exponent": e} for e in (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.7, 3.0)],
    "clamp": [{"lo": -1.0, "hi": 2.0}, {"lo": 3.0, "hi": -3.0}],
    "cast": [{"dtype": named_dtype(name)} for name in ("bool", "int8", "int32", "float16", "bfloat16", "float32", "float64")],
    "softplus": [{"beta": 1.0, "threshold": 20.0}, {"beta": 2.5, "threshold": 2.0}],
    "elu": [{"alpha": 1.0, "scale": 1.0, "slope": 1.0}, {"alpha": 1.67, "scale": 1.05, "slope": 0.5}],
    "softplus_backward": [{"beta": 1.0, "threshold": 20.0}, {"beta": 2.5, "threshold": 2.0}],
    "elu_backward": [{"alpha": 1.0, "scale": 1.0, "slope": 1.0}, {"alpha": 1.67, "scale": 1.05, "slope": 0.5}],
    **{key: [{"slope": 0.01}, {"slope": 2.0}] for key in ("leaky_relu", "leaky_relu_backward")},
    "clamp_backward": [{"lo": -1.0, "hi": 2.0}, {"lo": 3.0, "hi": -3.0}],
    "hardtanh_backward": [{"lo": -1.0, "hi": 1.0}],
    "hardtanh": [{"lo": -1.0, "hi": 1.0}, {"lo": 0.0, "hi": 6.0}],
    "running": [{"keep": 0.875, "take": 0.25}],
    "about_mean": [{"n": 8, "divisor": 7.0}],
    "polygamma": [{"n": 1}, {"n": 2}, {"n": 5}],
    "orthogonal_polynomial": [
        {"kind": kind, "derivative": d} for kind, d in ((0, 0), (1, 0), (6, 0), (7, 2), (8, 0), (9, 1), (10, 0), (11, 2))
    ],
}

# Both sides have errors of their own: NumPy's functions up to 2 ulp, the header's up to 4.
ULPS = 6
MORE_ULPS = dict.fromkeys(("i0", "i0e", "i1", "i1e"), 16)  # sums of up to 46 terms
ULPS_OF_HALF = 1  # both sides compute in float32; only the last rounding can fall on the other side

# Rows whose NumPy side is only good to an absolute error, in ulps of a number of this size.
SIZES: dict[str, float] = {"sigmoid": 1.0, "logaddexp": 1.0, "logaddexp2": 1.0, "lerp": 64.0}
# float32 erf is good to 4e-7, tanh's and the sigmoid's forms cancel far below 0; derivatives are of gradients up to 10.
SIZES |= {"gelu": 4.0, "gelu_backward": 64.0, "gelu_tanh": 8.0, "gelu_tanh_backward": 64.0, "silu": 1.0, "silu_backward": 16.0}
SIZES |= {"tanh_backward": 8.0, "bce": 128.0, "bce_logits": 32.0, "running": 16.0, "about_mean": 128.0, "mish": 1.0, "mish_backward": 32.0}
# Sums that cancel: near zeros of the gamma functions, between their poles.
SIZES |= {"lgamma": 8.0, "digamma": 8.0, "polygamma": 128.0}
# Waves, of which both sides round the phase, and the logarithm beside a sum about its zeros.
SIZES |= {"orthogonal_polynomial": 4096.0, "airy_ai": 64.0, "airy_ai_prime": 512.0, "bessel_y0": 8.0, "bessel_y1": 8.0}
# Shares of 1: where they are tiny, an exponent of hundreds magnifies its rounding.
SIZES |= {"igamma": 1.0, "igammac": 1.0}


def within(*xs):
    """Where squares and products do not overflow on one side alone; NaN stays."""
    return tuple(np.clip(x, x.dtype.type(-10), x.dtype.type(10)) for x in xs)


# Arguments brought into the domain where the result is defined on both sides.
DOMAINS = {
    **dict.fromkeys(
        ("gelu", "gelu_backward", "gelu_tanh", "gelu_tanh_backward", "silu", "silu_backward", "mish_backward", "bce_logits"), within
    ),
    # Results of tanh; NumPy's side computes 1 - r·r, good to an absolute error.
    "tanh_backward": lambda dy, result: (within(dy)[0], np.clip(result, result.dtype.type(-1), result.dtype.type(1))),
    "running": lambda average, value, keep, take: within(average, value),
    "about_mean": lambda squares, rest, n, divisor: within(squares, rest),
    "softplus_backward": lambda dy, x, beta, threshold: within(dy, x),
    "bce": lambda x, target: (np.clip(np.nan_to_num(x.astype(np.float64)), 0, 1).astype(x.dtype), *within(target)),
    # NumPy raises for negative exponents of integers.
    "pow_tensor": lambda a, b: (a, b) if a.dtype.kind not in "iu" else (a, b & 15),
    # A fused multiply-add may keep from overflow what NumPy's separate steps overflow.
    "lerp": lambda a, b, weight: tuple(np.clip(x, x.dtype.type(-4), x.dtype.type(4)) for x in (a, b, weight)),
    # Recurrences double their rounding from step to step.
    "orthogonal_polynomial": lambda x, n, kind, derivative: (
        np.clip(np.nan_to_num(x.astype(np.float64)), -1, 1).astype(x.dtype),
        np.clip(np.nan_to_num(n.astype(np.float64)), -2, 6).astype(n.dtype),
    ),
    # Further left the phase itself, some |x|^1.5, has no digits left to compare.
    **dict.fromkeys(("airy_ai", "airy_ai_prime"), lambda x: (np.where(x.astype(np.float64) < -30, x.dtype.type(-30), x),)),
    # Left of 0 the higher derivatives add powers of a distance that both sides round in their own way.
    "polygamma": lambda x, n: (x if n < 5 else np.abs(x),),
    # From floating point to integers only what fits.
    "cast": lambda x, dtype: (x if x.dtype.kind not in "fV" or dtype.kind not in "iu" else np.clip(np.nan_to_num(x), -99, 99),),
}


def settings(row):
    """The parameter values to test a row with."""
    if not row.params:
        return [{}]
    if row.name not in PARAMETERS:
        pytest.fail(f"row {row.name} has parameters: give values for {row.params} in PARAMETERS")
    return PARAMETERS[row.name]


def numbers(row, params):
    """The parameters that the expression names."""
    return [p for p in row.params if re.search(rf"\b{p}\b", row.cuda.expression) and isinstance(params[p], int | float)]


def reference(row, params, arrays, output):
    """The row's NumPy function, with half types computed in float32 as the CPU backend does."""
    inputs = [a.astype(np.float32) if a.dtype in HALF.values() else a for a in arrays]
    out = np.empty(inputs[0].shape, computed(output))
    with np.errstate(all="ignore"):
        row.cpu(*inputs, out, **params)
        return out.astype(named_dtype(output))


def input_types(row, dtype):
    return {name: "bool" if name in CONDITIONS else dtype for name in row.inputs}


def output_of(row, params, dtype):
    """The name of the result's dtype, or None where the row does not take `dtype`: by its rule, or by NumPy."""
    if row.promote == "float" and dtype not in FLOATING:
        return None
    types = input_types(row, dtype)
    try:
        output = row.infer(*(Spec((1,), named_dtype(types[name])) for name in row.inputs), **params).dtype.name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are the test's to report, not the collection's
            reference(row, params, [np.ones(1, named_dtype(types[name])) for name in row.inputs], output)
    except (TypeError, OverflowError):  # the latter: a parameter that the dtype cannot hold
        return None
    return output


def collect():
    """(id, row, parameters, dtype, entry) of each test. An entry has one dtype, since the output's may depend on it."""
    found = []
    for row in ROWS.values():
        if not isinstance(row.cuda, Elementwise) or not row.inputs or row in vars(ops.complex).values():
            continue
        for number, params in enumerate(settings(row)):
            for dtype in DTYPES:
                output = output_of(row, params, dtype)
                if output is None or output.startswith("complex"):  # test_cuda_complex.py
                    continue
                name = f"{row.name}_{number}_to_{computed(output)}"
                inputs = (*row.inputs, *numbers(row, params))
                types = dict.fromkeys(CONDITIONS & set(row.inputs), "bool")
                entry = Entry(name, inputs, row.cuda.expression, (dtype,), row.cpu, types=types, output=output)
                found.append(pytest.param(row, params, entry, id=f"{row.name}-{number}-{dtype}"))
    return found


CASES = collect()
COMPILED = compile_expressions(case.values[2] for case in CASES)


def pool(name):
    """Special values of a dtype, and random ones of usual and of all sizes."""
    random = np.random.default_rng(11)
    dtype = named_dtype(name)
    if name == "bool":
        return np.array([False, True])
    if name not in FLOATING:
        info = np.iinfo(dtype)
        special = [v for v in (info.min, info.min + 1, info.max - 1, info.max, *range(-9, 10), 63, 64) if info.min <= v <= info.max]
        return np.concatenate([np.array(special, dtype), random.integers(info.min, info.max, 200, dtype, endpoint=True)])
    info = ml_dtypes.finfo(dtype)
    special = [0, float(info.smallest_subnormal), float(info.tiny), float(info.eps), 0.5, 1, 1.5, 2, 2.5, 88.8, float(info.max)]
    special += [np.inf, np.nan]
    usual = random.standard_normal(1000) * 2.0 ** random.integers(-4, 5, 1000)
    return np.concatenate([special, np.negative(special), usual]).astype(dtype)


def arguments(row, params, dtype):
    """Arrays of the row's inputs: every value of the pool, or random tuples of them, the special ones more often."""
    pools = [pool(name) for name in input_types(row, dtype).values()]
    if len(pools) > 1:
        random = np.random.default_rng(12)
        chosen = [np.where(random.random(6000) < 0.5, random.integers(0, 26, 6000), random.integers(0, 1026, 6000)) for _ in pools]
        pools = [p[c % len(p)] for p, c in zip(pools, chosen)]
    adjust = DOMAINS.get(row.name)
    return adjust(*pools, **params) if adjust else pools


@pytest.mark.parametrize(("row", "params", "entry"), CASES)
def test_expression(row, params, entry):
    (dtype,) = entry.dtypes
    arrays = arguments(row, params, dtype)
    with np.errstate(all="ignore"):
        constants = [np.asarray(params[p]).astype(computed(dtype)) for p in numbers(row, params)]
    got = COMPILED[entry.name, dtype](*arrays, *constants)
    want = reference(row, params, arrays, entry.output)
    errors = errors_in_ulps(got, want)
    if row.name in SIZES:
        with np.errstate(invalid="ignore"):
            gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
        absolute = gap / (SIZES[row.name] * float(ml_dtypes.finfo(got.dtype).eps))
        errors = np.where(np.isfinite(gap), np.minimum(absolute, errors), errors)
    worst = np.argmax(errors)
    limit = ULPS_OF_HALF if entry.output in HALF else MORE_ULPS.get(row.name, ULPS)
    assert errors[worst] <= limit, (
        f"{row.name}: {entry.expression} of {[str(a[worst]) for a in arrays]} {params or ''} in {dtype} is {got[worst]}, "
        f"but NumPy's side gives {want[worst]}: {errors[worst]:.1f} ulp"
    )


def test_all_rows_are_here():
    """A row that is elementwise is tested for one dtype at least."""
    tested = {case.values[0].name for case in CASES}
    assert tested == {row.name for row in ROWS.values() if isinstance(row.cuda, Elementwise) and row.inputs} - {
        row.name
        for row in vars(ops.complex).values()
        if isinstance(row, Op)  # test_cuda_complex.py
    }
