"""NumPy's numbers stand wherever a number may: as every number of every public function's sample call, of modules, optimizers and
distributions. The result is that of Python's number of the same value."""

import inspect
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, optim

from kinds.calls import CALLS, parts

OF_INTEGERS, OF_FLOATS = (np.int64, np.int32, np.uint8), (np.float64, np.float32)
# What asks NumPy's numbers for their own type, as PyTorch does, and 0.3 with more digits than float32 has.
OWN_TYPE = {"gl.tensor", "gl.as_tensor", "gl.asarray", "Tensor.new_tensor"}


def variants(value):
    """A value with NumPy's numbers in place of Python's, and with what those are worth."""
    kinds = OF_INTEGERS if type(value) is int else OF_FLOATS if type(value) is float else ()
    for kind in kinds:
        if kind is not np.uint8 or 0 <= value < 256:
            yield kind.__name__, kind(value), kind(value).item()
    if type(value) in (tuple, list) and value and {type(x) for x in value} <= {int, float}:
        for kind in OF_INTEGERS[:2] if {type(x) for x in value} == {int} else OF_FLOATS:
            yield kind.__name__, type(value)(kind(x) for x in value), type(value)(kind(x).item() for x in value)


def cases():
    for call in CALLS:
        if call.name in OWN_TYPE:
            continue
        for key, value in [*enumerate(call.arguments), *call.options.items()]:
            for kind, given, plain in variants(value):
                yield pytest.param(call, key, given, plain, id=f"{call}-{key}-{kind}")


def run(call, key, value):
    gl.manual_seed(0)
    args, options = call.tensors()
    if isinstance(key, int):
        args = (*args[:key], value, *args[key + 1 :])
    return call.on(args, options if isinstance(key, int) else {**options, key: value})


def alike(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, (bool, int, float, str)):
        assert found == expected
    for a, b in zip(parts(found), parts(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.dtype == gl.bfloat16 or np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=a.is_floating_point())


@pytest.mark.parametrize(("call", "key", "given", "plain"), list(cases()))
def test_in_every_function(call, key, given, plain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alike(run(call, key, given), run(call, key, plain))


N, S = np.int64, np.float32
MODULES = {
    "Linear": (N(3), N(2)), "Bilinear": (N(3), N(2), N(4)), "Conv1d": (N(3), N(2), N(3)), "Conv2d": (N(3), N(2), N(3)),
    "Conv3d": (N(3), N(2), N(3)),
    "ConvTranspose2d": (N(3), N(2), N(3)), "LayerNorm": (N(3),), "RMSNorm": (N(3),), "BatchNorm1d": (N(3), S(1e-5), S(0.1)),
    "GroupNorm": (N(1), N(3)), "InstanceNorm2d": (N(3),), "Embedding": (N(3), N(2)), "EmbeddingBag": (N(3), N(2)),
    "LSTM": (N(3), N(2), N(1)),
    "GRU": (N(3), N(2)), "RNN": (N(3), N(2)), "LSTMCell": (N(3), N(2)), "MultiheadAttention": (N(4), N(2)),
    "TransformerEncoderLayer": (N(4), N(2), N(8)),
    "Dropout": (S(0.5),), "LeakyReLU": (S(0.5),), "ELU": (S(0.5),), "Hardtanh": (S(-1), S(1)), "Softmax": (N(1),),
    "Threshold": (S(0.5), S(0)),
    "MaxPool2d": (N(2),), "AvgPool2d": (N(2),), "AdaptiveAvgPool2d": (N(2),), "ZeroPad2d": (N(1),), "ConstantPad1d": (N(1), S(0.5)),
    "Upsample": (N(4),), "PixelShuffle": (N(2),), "Unflatten": (N(1), (N(2), N(2))), "Flatten": (N(1),), "Unfold": (N(2),),
    "PReLU": (N(1), S(0.5)),
}  # fmt: skip


def plain(value):
    return tuple(map(plain, value)) if isinstance(value, tuple) else value.item()


@pytest.mark.parametrize("name", MODULES)
def test_in_modules(name):
    made = []
    for arguments in (MODULES[name], plain(MODULES[name])):
        gl.manual_seed(0)
        made.append(getattr(nn, name)(*arguments))
    found, expected = made
    assert repr(found) == repr(expected)
    for a, b in zip(found.state_dict().values(), expected.state_dict().values(), strict=True):
        assert gl.equal(a, b)


OTHERS = (optim.Optimizer, optim.SparseAdam)  # the base, and one that takes sparse gradients alone


def optimizers():
    kinds = (getattr(optim, name) for name in dir(optim))
    return [kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, optim.Optimizer) and kind not in OTHERS]


@pytest.mark.parametrize("kind", optimizers())
def test_in_optimizers(kind):
    after = []
    for rate in (S(0.25), 0.25):
        weight = gl.ones(2, 2, requires_grad=True)
        optimizer = kind([weight], lr=rate)
        for _ in range(2):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step((lambda w=weight: (w * w).sum()) if kind is optim.LBFGS else None)
        after.append(weight.tolist())
    assert after[0] == after[1]


def test_in_distributions():
    for made, same in ((gl.distributions.Normal(S(0.5), S(2)), gl.distributions.Normal(0.5, 2.0)),
                       (gl.distributions.Binomial(N(3), S(0.5)), gl.distributions.Binomial(3, 0.5))):  # fmt: skip
        assert made.log_prob(gl.tensor(1.0)) == same.log_prob(gl.tensor(1.0))


@pytest.mark.parametrize("way", ["compiled", "traced"])
def test_in_programs(way):
    def f(x):
        return x.clamp(S(-0.5), S(0.5)) + x.new_full((2,), S(2)) * N(3) + x.masked_fill(x > 0, S(0.25))

    x = gl.tensor([-1.0, 0.25])
    program = gl.compile(f) if way == "compiled" else gl.jit.trace(f, (x,))
    for _ in range(2):
        assert gl.equal(program(x), f(x))
