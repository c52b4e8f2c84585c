"""Wrong arguments that scripts pass: the error is of the kind that PyTorch raises, and names the operation."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F
from gradlab.utils import data

x = gl.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: gl.add(x, None), "add: .* not None"),
        (lambda: x * None, "unsupported operand|not None"),
        (lambda: gl.ones("3"), "an integer, not str"),
        (lambda: gl.zeros(2.5), "an integer, not float"),
        (lambda: x.reshape(None), "an integer, not NoneType"),
        (lambda: x.sum(1.5), "dim is an integer"),
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


SEVERAL = np.array([1, None], object)  # has no truth value, and cannot be compared


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sign", lambda: gl.sign((1, 2))),
        ("square", lambda: gl.square(gl.Tensor)),
        ("matmul", lambda: x.T @ gl.Tensor),
        ("gelu", lambda: F.gelu(x, SEVERAL)),
        ("is_nonzero", lambda: x.is_nonzero()),
        ("__deepcopy__", lambda: x.__deepcopy__([])),
        ("fake_quantize_per_tensor_affine", lambda: gl.fake_quantize_per_tensor_affine([1], 1, 0, 0, 1)),
        ("fake_quantize_per_channel_affine", lambda: gl.fake_quantize_per_channel_affine(x, x[0], x[0], 1, [1], 2)),
        ("set_num_threads", lambda: gl.set_num_threads(x)),
        ("set_num_interop_threads", lambda: gl.set_num_interop_threads("a")),
        ("set_printoptions", lambda: gl.set_printoptions(profile=())),
        ("set_default_device", lambda: gl.set_default_device(-(10**30))),
        ("use_deterministic_algorithms", lambda: gl.use_deterministic_algorithms(True, warn_only=x)),
        ("set_deterministic_debug_mode", lambda: gl.set_deterministic_debug_mode(SEVERAL)),
        ("set_grad_enabled", lambda: gl.set_grad_enabled(SEVERAL)),
        ("set_autocast_enabled", lambda: gl.set_autocast_enabled("cpu", x)),
        ("device", lambda: gl.device("cpu", index=x)),
        ("Generator", lambda: gl.Generator(-(10**30))),
        ("Size", lambda: gl.Size([x])),
        ("Size", lambda: gl.Size(gl.tensor(0.5))),
        ("compile", lambda: gl.compile(gl.sin, explain=SEVERAL)),
        ("compile", lambda: gl.compile(gl.sin, mode=SEVERAL)),
        ("scan", lambda: gl.scan(lambda c, x: (c, x), gl.zeros(()), x, dim=())),
        ("scan", lambda: gl.scan(lambda c, x: (c, x), gl.zeros(()), x, reverse=x)),
        ("sparse_coo_tensor", lambda: gl.sparse_coo_tensor([[0], [0]], [1.0], object())),
        ("sparse_coo_tensor", lambda: gl.sparse_coo_tensor([[0], [0]], [1.0], (1, 1), device="a")),
        ("sparse_csr_tensor", lambda: gl.sparse_csr_tensor([0, 1], [0], [1.0], [])),
        ("add", lambda: gl.eye(3).to_sparse() + gl.ones(3, 4)),
        ("div", lambda: gl.eye(3).to_sparse() / gl.ones(3, 3)),
        ("zeros", lambda: gl.zeros(3, out=gl.eye(3).to_sparse())),
        ("Muon.add_param_group", lambda: gl.optim.Muon([gl.ones(3, 3, requires_grad=True)]).add_param_group(None)),
        ("DataLoader", lambda: data.DataLoader([1, 2], collate_fn=b"a")),
        ("random_split", lambda: data.random_split(7, [1])),
        ("random_split", lambda: data.random_split([1, 2], x)),
    ],
)
def test_what_refuses_says_who_it_is(name, call):
    with pytest.raises((TypeError, ValueError, RuntimeError, IndexError), match=rf"^{name}(\(\))?: "):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda n: nn.LSTM(2, 3, n),
        lambda n: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), n),
        lambda n: nn.Transformer(4, 2, 1, n),
        lambda n: gl.mvlgamma(gl.ones(2), n),
        lambda n: gl.special.multigammaln(gl.ones(2), n),
        lambda n: gl.optim.lr_scheduler.SequentialLR(
            (o := gl.optim.SGD([gl.ones(1)], 0.1)), [gl.optim.lr_scheduler.ConstantLR(o) for _ in range(2)], [2], last_epoch=n
        ),
    ],
)
@pytest.mark.parametrize("number", [1 << 31, (1 << 63) - 1, 10**30])
def test_loops_of_a_wrong_number_are_refused(call, number):
    with pytest.raises(RuntimeError, match="more than can be made"):
        call(number)


def test_what_is_refused_has_written_nothing():
    weight = gl.full((3, 4), 5.0)
    mean, sparse = gl.zeros(4), gl.eye(3).to_sparse()
    for call in (
        lambda: nn.init.orthogonal_(weight, gain={}),
        lambda: nn.init.trunc_normal_(weight.to(gl.complex64)),
        lambda: gl.native_batch_norm(weight, None, None, mean, gl.zeros(4), True, 0.1, 1e-5, out="a"),
        lambda: gl.zeros(3, out=sparse),
    ):
        with pytest.raises((TypeError, RuntimeError)):
            call()
    assert (weight == 5).all() and (mean == 0).all()
    np.testing.assert_array_equal(sparse.to_dense().numpy(), np.eye(3))


def test_a_batch_of_any_size_is_what_there_is():
    assert list(data.BatchSampler(data.SequentialSampler([1, 2]), 10**30, False)) == [[0, 1]]
    stream = data.ChainDataset([])
    assert next(iter(data.DataLoader([1, 2], 10**30))).tolist() == [1, 2] and list(data.DataLoader(stream, 10**30)) == []
