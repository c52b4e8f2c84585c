"""Dimensions, sizes, counts and indices are integers, in every public function: what else stands in their place is refused by name.

An integer parameter is one of those annotated so, or given an integer by a sample call, apart from those that take any number
(`ANY_NUMBER`). Refused is what PyTorch refuses: a truth value, a float (also a whole one), a text, None where there has to be a number.
Of several sizes PyTorch's C++ looks at the first only, and its functions written in Python take what computes; that is not followed.
"""

import contextlib
import inspect

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

from kinds.calls import CALLS, TORCH

WRONG = {"True": True, "False": False, "1.5": 1.5, "1.0": 1.0, "'1'": "1", "float64": np.float64(1), "object": object()}
# Of these functions, or of all, parameters that take other numbers, or texts, as well.
ANY_NUMBER = {
    "alpha", "beta", "value", "fill_value", "other", "exponent", "p", "ord", "data", "margin", "min", "max", "threshold", "spacing", "dx",
    "scale_factor", "tau", "element", "index", "input", "arange.start", "arange.end", "arange.step", "embedding_bag.norm_type",
    "tensordot.dims", "_stacklevel", "maxnorm", "correction", "float_power_.args", "renorm_.args",
    "__iand__.args", "__ior__.args", "__ixor__.args", "bitwise_and_.args", "bitwise_or_.args", "bitwise_xor_.args",
}  # fmt: skip
UNBIASED = {"std", "std_mean", "var", "var_mean"}  # a truth value in the place of `dim` is `unbiased` there
OTHER_NAMES = {  # what a function calls itself, and what a parameter is called, where they have several names
    "moveaxis": "movedim", "subtract": "sub", "swapdims": "transpose", "swapdims_": "transpose_", "concat": "cat", "concatenate": "cat",
    "trapz": "trapezoid", "multigammaln": "mvlgamma", "native_layer_norm": "layer_norm", "view_copy": "dtype", "view": "dtype",
    "add_layer_norm": "layer_norm", "add_rms_norm": "rms_norm", "conv_activation": "conv2d", "norm_except_dim": "norm",
    "slice_copy": "index",
    "fractional_max_pool2d_with_indices": "fractional_max_pool2d", "fractional_max_pool3d_with_indices": "fractional_max_pool3d",
}  # fmt: skip


def free(call, parameter):
    bare = call.name.rpartition(".")[2]
    return bool({parameter, f"{bare}.{parameter}"} & ANY_NUMBER) or ("polynomial" in bare and parameter == "n")


def whole(value):
    return type(value) is int


def several(value):
    return isinstance(value, (tuple, list)) and bool(value) and all(map(whole, value))


def places():
    """(call, parameter, where it is given, which of several or None) of each public function's integer parameters, once."""
    seen = set()
    for call in CALLS:
        if call.function.__name__ == "<lambda>":
            continue
        with contextlib.suppress(TypeError, ValueError):
            for place, p in enumerate(inspect.signature(call.function).parameters.values()):
                kind, said = p.kind, str(p.annotation)
                if kind is p.VAR_KEYWORD:
                    continue
                for at in range(place, len(call.arguments)) if kind is p.VAR_POSITIONAL else [place]:
                    positional = at < len(call.arguments) and kind is not p.KEYWORD_ONLY
                    given = call.arguments[at] if positional else call.options.get(p.name)
                    parts = range(len(given)) if several(given) else [None]
                    if whole(given) or several(given) or said in ("int", "int | None"):
                        for part in parts:
                            if (key := (call.name, p.name, part)) not in seen and not free(call, p.name):
                                seen.add(key)
                                yield call, p.name, at if positional else p.name, part


PLACES = list(places())


def put(value, where, part, tensors):
    args, options = tensors

    def within(old):
        return value if part is None else type(old)(value if i == part else v for i, v in enumerate(old))

    if isinstance(where, int):
        return (*args[:where], within(args[where]), *args[where + 1 :]), options
    return args, {**options, where: within(options.get(where))}


def test_there_are_integers():
    assert len(PLACES) > 700
    assert len({call.name for call, *_ in PLACES}) > 350


@pytest.mark.parametrize("word", WRONG)
def test_what_is_no_integer_is_refused_by_name(word):
    wrong = []
    for call, name, where, part in PLACES:
        bare = call.name.rpartition(".")[2]
        if bare in UNBIASED and name == "dim" and isinstance(WRONG[word], bool):
            continue
        args, options = put(WRONG[word], where, part, call.tensors())
        try:
            call.function(*args, **options)
            wrong.append((call.name, name, part, "answers"))
        except (TypeError, RuntimeError, ValueError, IndexError) as error:
            text = str(error)
            if not any(known.strip("_") in text for known in (bare, bare.rstrip("_"), OTHER_NAMES.get(bare, bare))):
                wrong.append((call.name, name, part, text))
    assert not wrong, wrong


def test_the_parameter_is_named():
    """Of the integers that are annotated so, by the parameter's name."""
    wrong = []
    for call, name, where, part in PLACES:
        said = str(inspect.signature(call.function).parameters[name].annotation)
        if said in ("int", "int | None"):
            args, options = put(1.5, where, part, call.tensors())
            try:
                call.function(*args, **options)
            except Exception as error:
                if name not in str(error):
                    wrong.append((call.name, name, part, str(error)))
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.sum(True), "sum: dim is an integer, not bool: True"),
        (lambda x: x.transpose(True, 0), "transpose: dim0 is an integer, not bool: True"),
        (lambda x: x.flip(True), r"flip: order is an integer, not bool: True"),
        (lambda x: x.permute(0, True), r"permute: order\[1\] is an integer, not bool: True"),
        (lambda x: x.sum((0, True)), "sum: dim is an integer, not bool: True"),
        (lambda x: gl.diff(x, True), "diff: n is an integer, not bool: True"),
        (lambda x: gl.matrix_power(x @ x.T, True), "matrix_power: n is an integer, not bool: True"),
        (lambda x: gl.linspace(0, 1, True), "linspace: steps is an integer, not bool: True"),
        (lambda x: gl.randint(True, (2,)), "randint: "),
        (lambda x: x.narrow(0, 0, True), "narrow: length is an integer, not bool: True"),
        (lambda x: x.narrow(0, 0, None), "narrow: expected an integer, not None"),
        (lambda x: F.cross_entropy(x, gl.zeros(3, dtype=gl.int64), ignore_index="1"), "cross_entropy: ignore_index is an integer, not str"),
        (lambda x: gl.softmax(x.half(), 1.5), "softmax: dim is an integer, not float: 1.5"),
    ],
)
def test_what_is_said(call, text):
    with pytest.raises(TypeError, match=text) as found:
        call(gl.ones(3, 4))
    assert type(found.value) is TypeError


def test_integers_of_others():
    """NumPy's integers are taken wherever integers are."""
    wrong = []
    for call, name, where, part in PLACES:
        args, options = call.tensors()
        given = args[where] if isinstance(where, int) else options.get(where)
        given = given if part is None else given[part]
        if whole(given):
            args, options = put(np.int64(given), where, part, (args, options))
            try:
                call.function(*args, **options)
            except Exception as error:
                wrong.append((call.name, name, part, repr(error)))
    assert not wrong, wrong
    x = gl.ones(3, 4)
    for dim in (gl.tensor(1), np.array(1)):
        assert x.sum(dim).shape == x.softmax(dim).sum(1).shape == x.unsqueeze(dim).select(2, 0).select(1, 0).shape == (3,)


@pytest.mark.parametrize("dtype", [gl.tensor(1.0), np.float32(1), 1, 1.5, np.ones(1), ("float32",), {}, True], ids=repr)
def test_no_dtype(dtype):
    x = gl.ones(3, 4)
    calls = (gl.sum, x), (gl.zeros, 2), (gl.linspace, 0, 1, 3), (gl.tensor, 1), (gl.softmax, x, 1), (gl.prod, x), (gl.norm, x)
    for function, *args in calls:
        with pytest.raises(TypeError):
            function(*args, dtype=dtype)


@pytest.mark.torch
@pytest.mark.parametrize("word", [*WRONG, "None"])
def test_pytorch_refuses_no_more(word):
    """What PyTorch refuses in the place of an integer is refused, also by functions that are free to take other numbers."""
    value, wrong = {**WRONG, "None": None}[word], []
    for call, name, where, part in PLACES:
        if call.reference is None:
            continue
        parameter = inspect.signature(call.function).parameters[name]
        if value is None and (parameter.default is None or call.name in ("Tensor.random_", "gl.randint")):
            continue  # None is what was not given
        try:
            args, options = put(value, where, part, call.reference_tensors(TORCH.float32))
            call.reference(*args, **options)
        except Exception:
            args, options = put(value, where, part, call.tensors())
            with contextlib.suppress(Exception):
                call.function(*args, **options)
                wrong.append((call.name, name, part))
    assert not wrong, wrong
