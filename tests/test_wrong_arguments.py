"""Wrong arguments that scripts pass: the error is of the kind that PyTorch raises, and names the operation."""

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

x = gl.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: gl.add(x, None), "add: .* not None"),
        (lambda: x * None, "unsupported operand|not None"),
        (lambda: gl.ones("3"), "integers, not str"),
        (lambda: gl.zeros(2.5), "integers, not float"),
        (lambda: x.reshape(None), "integers, not NoneType"),
        (lambda: x.sum(1.5), "a dimension is an integer"),
        (lambda: x.sum(0, 1), r"keepdim is True or False.*dim=\(0, 1\)"),
        (lambda: x.mean(0, 1), "keepdim"),
        (lambda: x.max(0, 1), "keepdim"),
        (lambda: x.std(0, 1), "unbiased is True or False"),
        (lambda: x.var(0, 1), "unbiased is True or False"),
        (lambda: x.any(0, 1), "keepdim"),
        (lambda: x.argmax(0, 1), "keepdim"),
        (lambda: x.median(0, 1), "keepdim"),
        (lambda: x.logsumexp(0, 1), "keepdim"),
        (lambda: x.unique(1), "by name"),
        (lambda: x.unique_consecutive(1), "by name"),
        (lambda: x.topk(1.0), "k is an integer"),
        (lambda: x.mm(3), "mm: takes tensors"),
        (lambda: x.lerp(2, 0.5), "lerp: takes tensors"),
        (lambda: x.kron(2), "kron: takes tensors"),
        (lambda: x.expand_as(None), "expand_as: takes tensors"),
        (lambda: x.type_as(3), "type_as: takes tensors"),
        (lambda: gl.cross(x, None), "cross: takes tensors"),
        (lambda: gl.addcmul(x, 1, 2), "addcmul: takes tensors"),
        (lambda: F.cross_entropy(None, gl.tensor([0])), "cross_entropy: .* not NoneType"),
        (lambda: F.cross_entropy(x, [0, 1]), "cross_entropy: .* list"),
        (lambda: nn.Dropout(0.5)(None), "dropout: input is a tensor"),
        (lambda: nn.LayerNorm(3)(None), "layer_norm: input is a tensor"),
        (lambda: nn.BatchNorm1d(3)(None), "BatchNorm1d: input is a tensor"),
        (lambda: nn.LSTM(3, 3)(None), "LSTM: input is a tensor"),
        (lambda: (x > 0).relu(), "relu: is not defined for bool"),
        (lambda: (x > 0) % (x > 0), "is not defined for bool"),
    ],
)
def test_type_errors(call, text):
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize("call", [lambda: gl.full((2,), 300, dtype=gl.uint8), lambda: gl.zeros(2, dtype=gl.int8).fill_(-129)])
def test_numbers_that_do_not_fit(call):
    with pytest.raises(RuntimeError, match="does not fit"):
        call()


def test_requires_grad_is_a_bool():
    with pytest.raises(RuntimeError, match="True or False"):
        gl.ones(2).requires_grad = 3


def test_what_is_taken():
    y = gl.ones(1, 2, 1)
    assert y.squeeze(0, 2).shape == (2,)
    assert x.var(0, True, True).shape == x.std(0, True, True).shape == (1, 3)
    assert y.clone().squeeze_(0, 2).shape == (2,)
    assert gl.tensor([[1, 0], [1, 1]]).count_nonzero(0, 1) == 3
    assert [part.shape for part in gl.zeros(0, 3).chunk(2)] == [(0, 3), (0, 3)]
    for dtype in (gl.float16, gl.bfloat16, gl.float64):
        assert gl.ldexp(gl.tensor([1.0, 3.0], dtype=dtype), gl.tensor([2, 3])).dtype == dtype
    assert gl.ldexp(gl.tensor([1]), gl.tensor([2])).dtype == gl.float32
