"""dtype, shape, requires_grad and is_leaf of the results of every call of the catalogue: PyTorch's, for float and integer inputs, with
gradients asked of all inputs or of one alone, for inputs that are numbers, of one row, or of none. Without PyTorch what holds of all
functions: nothing widens, and only what depends on a tensor that requires grad requires it.
"""

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH, arrays_in, converted, parts
from kinds.catalogue.giving import Fixed, words

FLOATS = ["float32", "float64", "float16", "bfloat16"]
COMPLEXES = ["complex64", "complex128"]
OTHERS = ["int64", "int32", "uint8", "bool"]
SHAPES = {
    "whole": lambda a: a,
    "0-d": lambda a: a.reshape(-1)[:1].reshape(()) if a.size else a,
    "one": lambda a: a[:1] if a.ndim else a,
    "empty": lambda a: a[:0] if a.ndim else a,
}


def made(engine, value, dtype, shape=SHAPES["whole"], wanted=lambda number: False):
    """`value` with tensors in place of arrays: float ones of `dtype`, which require grad where `wanted` says so of their number."""
    numbers = iter(range(99))

    def tensor(array):
        plain = np.asarray(shape(np.asarray(array)))
        if array.dtype != np.float64:
            return engine.tensor(plain)
        found = engine.tensor(plain).to(getattr(engine, dtype))
        if isinstance(array, Fixed) or not wanted(next(numbers)) or not found.is_floating_point():
            return found
        return found.requires_grad_()

    def other(part):
        return getattr(engine, str(part).rpartition(".")[2]) if isinstance(part, gl.dtype) else part

    return converted(value, tensor, other)


def properties(engine, call, *how):
    """Of each tensor in the result its dtype, shape, requires_grad and is_leaf; the error's text where there is one."""
    try:
        args, options = made(engine, (call.arguments, call.options), *how)
        results = parts(call.on(args, options, None if engine is gl else call.reference))
    except (TypeError, ValueError, RuntimeError, IndexError, BufferError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return [(str(r.dtype).rpartition(".")[2], tuple(r.shape), r.requires_grad, r.is_leaf) for r in results]


# ---------------------------------------------------------------- without PyTorch

# The dtype of a float result is not the input's: float64 by name, or another was asked for.
OWN_DTYPE = set(words("""
    gl.float_power Tensor.float_power gl.bincount Tensor.bincount Tensor.to Tensor.type Tensor.type_as Tensor.double Tensor.float
    Tensor.half Tensor.bfloat16 Tensor.long Tensor.int Tensor.short Tensor.char Tensor.byte
"""))
# Fourier transforms of half types are computed, and given, in float32; PyTorch refuses them on the CPU.
AT_LEAST_SINGLE = {call.name for call in CALLS if call.name.startswith("fft.") and not call.name.endswith("shift")}
AT_LEAST_SINGLE |= {"gl.stft", "Tensor.stft"}
SPECTRA = AT_LEAST_SINGLE  # these may be complex where the input is not
# Of integers: places, counts and sums are int64, whatever is summed.
WIDENED = set(words("""
    argmax argmin argsort bucketize searchsorted count_nonzero cummax cummin kthvalue max min median nanmedian nonzero sort topk unique
    unique_consecutive adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d max_pool2d max_pool3d
    fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
    cumprod cumsum nansum prod sum sum_to_size trace vecdot l1_loss vander long
"""))
COMPUTED = [call for call in CALLS if not call.marks & {"making", "integer"}]


@pytest.mark.parametrize("call", COMPUTED, ids=repr)
def test_what_floats_become(call):
    """A result is of the input's dtype, and requires grad only where an input does."""
    for dtype, grad in [("float32", False), ("float64", True), ("float16", True), ("bfloat16", False)]:
        found = properties(gl, call, dtype, SHAPES["whole"], lambda number, grad=grad: grad)
        if isinstance(found, str):  # a refusal; test_calls.py sees to it that float32 is taken
            assert dtype in ("float16", "bfloat16") or (grad and "plain" in call.marks), found
            continue
        for kind, _, requires, leaf in found:
            single = "float32" if call.name in AT_LEAST_SINGLE and dtype in ("float16", "bfloat16") else dtype
            spectrum = call.name in SPECTRA and kind == {"float32": "complex64", "float64": "complex128"}[single]
            assert kind == single or kind not in (*FLOATS, *COMPLEXES) or spectrum or call.name in OWN_DTYPE
            assert not requires or (grad and kind in (*FLOATS, *COMPLEXES)) or call.name == "Tensor.requires_grad_"
            assert requires or leaf


@pytest.mark.parametrize("call", COMPUTED, ids=repr)
def test_what_integers_become(call):
    """A result is of the input's dtype, or of the default floating point type, but for `WIDENED`."""
    for dtype in ("int8", "int16", "int32"):
        found = properties(gl, call, dtype)
        for kind, *_ in [] if isinstance(found, str) else found:
            widened = kind == "int64" and call.name.rpartition(".")[2] in WIDENED
            spectrum = kind == "complex64" and call.name in SPECTRA
            assert widened or spectrum or kind in (dtype, "float32", "bool") or call.name in OWN_DTYPE, (dtype, kind)


def swapped(call, of_float, of_int):
    """The call's arguments with other numbers in place of Python's."""

    def other(part):
        return of_float(part) if type(part) is float else of_int(part) if type(part) is int else part

    return converted(call.arguments, lambda a: a, other), converted(call.options, lambda a: a, other)


def numbered(call):
    found = []
    converted((call.arguments, call.options), lambda a: None, lambda part: found.append(type(part)))
    return bool({int, float} & set(found))


@pytest.mark.parametrize("call", [c for c in CALLS if numbered(c)], ids=repr)
def test_numpys_numbers_are_numbers(call):
    """As arguments they are Python's: the same results of the same dtype. (To `tensor` they are data: test_constructors.py.)"""
    if call.name in ("gl.tensor", "gl.as_tensor", "gl.asarray"):
        return
    for of_float, of_int in ((np.float32, np.int64), (np.float64, np.int32)):
        found = []
        rounded = swapped(call, lambda x, of_float=of_float: float(of_float(x)), int)
        for given in (rounded, swapped(call, of_float, of_int)):
            args, options = made(gl, given, "float32")
            gl.manual_seed(0)
            result = call.on(args, options)
            found.append([(str(r.dtype), r.tolist()) for r in parts(result)] or result)
        assert repr(found[0]) == repr(found[1]) or found[0] == found[1]


# ---------------------------------------------------------------- with PyTorch

# Bessel's functions and their like, and orthogonal polynomials.
SERIES = [c.name for c in CALLS if c.name.startswith("special.") and any(w in c.name for w in ("bessel", "polynomial", "airy"))]
# Where both have a reason. Keys: a name, or one of its calls ("any-2").
OTHERWISE = {
    "PyTorch's has no gradient; here there is one": [*words("gl.vander linalg.vander"), *SERIES],
    "what is drawn or compared does not depend on it": words("""
        bernoulli-1 Tensor.eq_ Tensor.ne_ Tensor.not_equal_ Tensor.lt_ Tensor.less_ Tensor.le_ Tensor.less_equal_ Tensor.gt_ Tensor.greater_
        Tensor.ge_ Tensor.greater_equal_ linalg.lstsq gl.histogram Tensor.histogram gl.histogramdd
    """),
    "margins are no whole numbers; PyTorch's native function cuts them to the input's integers": ["gl.hinge_embedding_loss"],
    "a map of integers is refused, whose points would be corners alone": ["gl.affine_grid_generator"],
    "refused: a tensor that requires grad keeps its memory": ["Tensor.set_"],
    "linalg takes float32 and float64": words("matrix_exp gl.lu_unpack"),
    "factors without a gradient refuse at once, PyTorch's in backward()": words("linalg.ldl_factor linalg.ldl_factor_ex"),
    "a copy without a gradient is a leaf": ["gl.detach_copy"],
    "NumPy's DLPack has no bfloat16": words("gl.from_dlpack Tensor.__dlpack__"),
    "any, all of uint8 are bool: docs/differences.md": ["any-2"],
    "uint8 images are not resized by weighted means": words("F.interpolate-1 F.upsample_bilinear"),
    "igamma's first argument has no derivative, said at once": words("""
        igamma igammac Tensor.igamma_ Tensor.igammac_ special.gammainc special.gammaincc
    """),
}
# The same, of inputs cut to fewer elements.
CUT = {
    "refused: shapes and places that do not fit": words("""
        cov-1 cholesky linalg.cond take_along_dim Tensor.addbmm_ gl.native_batch_norm geqrf ormqr F.linear_cross_entropy-1 F.grouped_mm
    """),
    "what was kept is told by bool, also of nothing": ["gl.native_dropout"],
    "an input without elements is not handed back itself": words("""
        F.alpha_dropout-1 F.dropout F.dropout1d F.dropout2d F.dropout3d F.feature_alpha_dropout-1 pixel_unshuffle
    """),
    "weights make sums, also of nothing": ["bincount-1"],
}
# The same, where one input alone requires grad.
ALONE = {"the groups' statistics depend on no weight": ["gl.native_group_norm"]}


def otherwise(call, tables):
    bare = call.name.rpartition(".")[2]
    keys = {call.name, bare, f"{call.name}-{call.number}", f"{bare}-{call.number}"}
    return any(keys & set(names) for table in tables for names in table.values())


def compared(call, tables, *how):
    if otherwise(call, tables):
        return
    expected = properties(TORCH, call, *how)
    if not isinstance(expected, str):  # what PyTorch refuses may be right here
        assert properties(gl, call, *how) == expected, how


KNOWN = [call for call in CALLS if call.reference is not None]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", KNOWN, ids=repr)
def test_as_pytorch(call):
    for dtype in FLOATS + OTHERS:
        compared(call, [OTHERWISE], dtype)
        if dtype in FLOATS:
            compared(call, [OTHERWISE], dtype, SHAPES["whole"], lambda number: True)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", KNOWN, ids=repr)
def test_one_input_alone_requires_grad(call):
    floats = [a for a in (*arrays_in(call.arguments), *arrays_in(call.options)) if a.dtype == np.float64 and not isinstance(a, Fixed)]
    for only in range(len(floats)):
        compared(call, [OTHERWISE, ALONE], "float32", SHAPES["whole"], lambda number, only=only: number == only)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", ["0-d", "one", "empty"])
@pytest.mark.parametrize("call", KNOWN, ids=repr)
def test_few_elements(call, shape):
    for grad in (False, True):
        compared(call, [OTHERWISE, CUT], "float32", SHAPES[shape], lambda number, grad=grad: grad)
