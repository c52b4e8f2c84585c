"""`gl.autocast`: which dtype each operation computes in; regions, threads, switches. Gradients: test_amp_gradients.py."""

import threading

import pytest

import gradlab as gl
from gradlab import nn

F = nn.functional
LOW = gl.float16


def half(*shape):
    return gl.full(shape, 0.5, dtype=LOW)


def full(*shape):
    return gl.eye(3) if shape == (3, 3) else gl.full(shape, 0.5)


def classes():
    return gl.tensor([0, 1, 2])


# What PyTorch 2.13 gives under autocast("cuda", dtype=float16), asked operation by operation on its fake tensors.
LOWERED = {
    "matmul": lambda: full(3, 3) @ full(3, 3),
    "mm of two dtypes": lambda: gl.mm(half(3, 3), full(3, 3)),
    "mv": lambda: gl.mv(full(3, 3), full(3)),
    "bmm": lambda: gl.bmm(full(2, 3, 3), full(2, 3, 3)),
    "addmm": lambda: gl.addmm(full(3, 3), full(3, 3), full(3, 3)),
    "addmv": lambda: gl.addmv(full(3), full(3, 3), full(3)),
    "addr": lambda: gl.addr(full(3, 3), full(3), full(3)),
    "baddbmm": lambda: gl.baddbmm(full(2, 3, 3), full(2, 3, 3), full(2, 3, 3)),
    "addbmm": lambda: gl.addbmm(full(3, 3), full(2, 3, 3), full(2, 3, 3)),
    "einsum": lambda: gl.einsum("ij,jk->ik", full(3, 3), full(3, 3)),
    "multi_dot": lambda: gl.linalg.multi_dot([full(3, 3), full(3, 3), full(3, 3)]),
    "linear": lambda: F.linear(full(3, 3), full(3, 3), full(3)),
    "linear of a half input": lambda: F.linear(half(3, 3), full(3, 3)),
    "bilinear": lambda: F.bilinear(full(3, 3), full(3, 3), full(2, 3, 3)),
    "conv1d": lambda: F.conv1d(full(1, 2, 8), full(3, 2, 3), full(3)),
    "conv2d": lambda: F.conv2d(full(1, 2, 8, 8), full(3, 2, 3, 3), full(3)),
    "conv_transpose2d": lambda: F.conv_transpose2d(full(1, 2, 8, 8), full(2, 3, 3, 3), full(3)),
    "prelu": lambda: F.prelu(full(3, 3), full(1)),
    "attention": lambda: F.scaled_dot_product_attention(full(1, 2, 4, 8), full(1, 2, 4, 8), full(1, 2, 4, 8)),
    "attention of two dtypes": lambda: F.scaled_dot_product_attention(half(1, 2, 4, 8), full(1, 2, 4, 8), full(1, 2, 4, 8), full(4, 4)),
    "lstm": lambda: nn.LSTM(3, 4)(full(2, 1, 3))[0],
    "lstm of a half input": lambda: nn.LSTM(3, 4)(half(2, 1, 3))[0],
    "gru": lambda: nn.GRU(3, 4)(full(2, 1, 3))[0],
    "rnn": lambda: nn.RNN(3, 4)(full(2, 1, 3))[0],
    "rnn cell": lambda: nn.RNNCell(3, 4)(full(2, 3)),
    "lstm cell": lambda: nn.LSTMCell(3, 4)(full(2, 3))[0],
    "gru cell": lambda: nn.GRUCell(3, 4)(full(2, 3)),
    "multi-head attention": lambda: nn.MultiheadAttention(4, 2)(full(3, 1, 4), full(3, 1, 4), full(3, 1, 4))[0],
}
WIDE = {
    **{name: (lambda name=name: getattr(gl, name)(half(3, 3))) for name in (
        "exp", "log", "log2", "log10", "log1p", "expm1", "rsqrt", "reciprocal", "tan", "sinh", "cosh", "asin", "acos", "erfinv", "square",
        "sum", "prod", "norm",
    )},
    **{name: (lambda name=name: getattr(gl, name)(half(3, 3), 0)) for name in ("cumsum", "cumprod", "logsumexp", "softmax", "log_softmax")},
    "vector_norm": lambda: gl.linalg.vector_norm(half(3, 3)),
    "matrix_norm": lambda: gl.linalg.matrix_norm(half(3, 3)),
    "power": lambda: half(3) ** 2,
    "power of a number": lambda: 2.0 ** half(3),
    "pow": lambda: gl.pow(half(3), half(3)),
    "number / tensor": lambda: 1.0 / half(3),
    "softmin": lambda: F.softmin(half(3, 3), -1),
    "softplus": lambda: F.softplus(half(3)),
    "layer_norm": lambda: F.layer_norm(half(3, 3), (3,), full(3), full(3)),
    "group_norm": lambda: F.group_norm(half(2, 4, 3), 2, full(4), full(4)),
    "normalize": lambda: F.normalize(half(3, 3)),
    "cosine_similarity": lambda: F.cosine_similarity(half(3, 3), half(3, 3)),
    "pairwise_distance": lambda: F.pairwise_distance(half(3, 3), half(3, 3)),
    "cdist": lambda: gl.cdist(half(3, 3), half(3, 3)),
    "dist": lambda: gl.dist(half(3), half(3)),
    "renorm": lambda: gl.renorm(half(3, 3), 2, 0, 1.0),
    "interpolate": lambda: F.interpolate(half(1, 1, 4, 4), scale_factor=2, mode="bilinear"),
    "cross_entropy": lambda: F.cross_entropy(half(3, 3), classes()),
    "cross_entropy with weights": lambda: F.cross_entropy(half(3, 3), classes(), full(3), label_smoothing=0.1),
    "nll_loss": lambda: F.nll_loss(half(3, 3), classes()),
    "nll_loss with weights": lambda: F.nll_loss(half(3, 3), classes(), full(3)),
    **{name: (lambda name=name: getattr(F, name)(half(3, 3), half(3, 3))) for name in (
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss", "hinge_embedding_loss",
        "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss", "binary_cross_entropy",
    )},
    "l1_loss, none": lambda: F.l1_loss(half(3), half(3), reduction="none"),
    "kl_div": lambda: F.kl_div(half(3, 3), half(3, 3), reduction="batchmean"),
    "multi_margin_loss": lambda: F.multi_margin_loss(half(3, 3), classes()),
    "multilabel_margin_loss": lambda: F.multilabel_margin_loss(half(3), classes()),
    "margin_ranking_loss": lambda: F.margin_ranking_loss(half(3), half(3), half(3)),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(half(3, 3), half(3, 3), half(3)),
    "triplet_margin_loss": lambda: F.triplet_margin_loss(half(3, 3), half(3, 3), half(3, 3)),
    "dot": lambda: gl.dot(full(3), full(3)),
    "dot of two dtypes": lambda: gl.dot(half(3), full(3)),
    "tensordot": lambda: gl.tensordot(half(3, 3), full(3, 3), dims=1),
    "scatter_add": lambda: gl.scatter_add(half(3), 0, classes(), full(3)),
    "index_put": lambda: gl.index_put(half(3), (classes(),), full(3)),
    "grid_sample": lambda: F.grid_sample(half(1, 1, 4, 4), full(1, 2, 2, 2), align_corners=False),
    "add of two dtypes": lambda: half(3) + full(3),
    "cat of two dtypes": lambda: gl.cat([half(3), full(3)]),
}  # fmt: skip
KEPT = {
    **{name: (lambda name=name: getattr(F, name)(half(4, 4))) for name in ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "hardtanh")},
    "mean": lambda: half(3).mean(),
    "amax": lambda: half(3).amax(),
    "sqrt": lambda: half(3).sqrt(),
    "add": lambda: half(3) + half(3),
    "division": lambda: half(3) / 2.0,
    "dot": lambda: gl.dot(half(3), half(3)),
    "batch_norm": lambda: F.batch_norm(half(3, 3, 4), full(3), full(3), full(3), full(3), True),
    "batch_norm, eval": lambda: F.batch_norm(half(3, 3, 4), full(3), full(3), full(3), full(3), False),
    "instance_norm": lambda: F.instance_norm(half(2, 3, 4), None, None, full(3), full(3)),
    "max_pool2d": lambda: F.max_pool2d(half(1, 1, 4, 4), 2),
    "avg_pool2d": lambda: F.avg_pool2d(half(1, 1, 4, 4), 2),
    "sum with dtype": lambda: half(3).sum(dtype=LOW),
    "softmax with dtype": lambda: half(3, 3).softmax(0, dtype=LOW),
    "cumsum with dtype": lambda: half(3).cumsum(0, dtype=LOW),
}


@pytest.mark.parametrize("name", LOWERED)
def test_lowered(name):
    with gl.autocast("cpu", dtype=LOW):
        assert LOWERED[name]().dtype == LOW


@pytest.mark.parametrize("name", WIDE)
def test_in_float32(name):
    with gl.autocast("cpu", dtype=LOW):
        assert WIDE[name]().dtype == gl.float32


@pytest.mark.parametrize("name", KEPT)
def test_in_what_they_are_given(name):
    with gl.autocast("cpu", dtype=LOW):
        assert KEPT[name]().dtype == LOW


def test_float64_and_integers_are_left_alone():
    x = gl.ones(2, 2, dtype=gl.float64)
    with gl.autocast("cpu"):
        assert (x @ x).dtype == gl.float64
        assert x.exp().dtype == gl.float64
        assert gl.tensor([1, 2]).sum().dtype == gl.int64


def test_functions_outside_of_autocast_are_as_strict_as_before():
    with pytest.raises(RuntimeError, match="one dtype"):
        gl.dot(half(3), full(3))
    with pytest.raises(RuntimeError, match="convert one"):
        gl.index_put(half(3), (classes(),), full(3))
    assert gl.cdist(half(2, 3), half(2, 3)).dtype == LOW
    assert F.l1_loss(half(3), half(3)).dtype == LOW


# ---------------------------------------------------------------- regions


def test_default_dtypes_are_pytorchs():
    assert gl.get_autocast_dtype("cpu") == gl.bfloat16
    assert gl.get_autocast_dtype("cuda") == gl.float16
    with gl.autocast("cpu"):
        assert (full(2, 2) @ full(2, 2)).dtype == gl.bfloat16


def test_regions_nest_and_restore():
    x = gl.ones(2, 2)
    with gl.autocast("cpu"):
        with gl.autocast("cpu", enabled=False):
            assert (x @ x).dtype == gl.float32 and not gl.is_autocast_enabled("cpu")
            with gl.autocast("cpu", dtype=LOW):
                assert (x @ x).dtype == LOW and gl.get_autocast_dtype("cpu") == LOW
            assert (x @ x).dtype == gl.float32
        assert (x @ x).dtype == gl.bfloat16
        with pytest.raises(KeyError), gl.autocast("cpu", enabled=False):
            raise KeyError
        assert gl.is_autocast_enabled("cpu") and not gl.is_autocast_enabled("cuda") and not gl.is_autocast_enabled()
    assert not gl.is_autocast_enabled("cpu") and gl.get_autocast_dtype("cpu") == gl.bfloat16 and (x @ x).dtype == gl.float32


def test_as_a_decorator_also_of_generators_and_recursive_functions():
    @gl.autocast("cpu")
    def product(x, depth=0):
        return product(x, depth - 1) if depth else x @ x

    @gl.autocast("cpu")
    def several(x):
        yield x @ x
        yield x @ x

    x = gl.ones(2, 2)
    assert product(x, 3).dtype == gl.bfloat16
    for y in several(x):
        assert y.dtype == gl.bfloat16 and (x @ x).dtype == gl.float32
    assert not gl.is_autocast_enabled("cpu")


def test_one_object_can_be_used_again_and_within_itself():
    region, x = gl.autocast("cpu"), gl.ones(2, 2)
    with region, region:
        assert (x @ x).dtype == gl.bfloat16
    with region:
        assert (x @ x).dtype == gl.bfloat16
    assert (x @ x).dtype == gl.float32


def test_what_else_is_switched_within_stays():
    with gl.autocast("cpu"):
        gl.set_grad_enabled(False)
    try:
        assert not gl.is_grad_enabled() and not gl.is_autocast_enabled("cpu")
    finally:
        gl.set_grad_enabled(True)


def test_a_thread_has_a_mode_of_its_own():
    found = []
    with gl.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((gl.ones(2, 2) @ gl.ones(2, 2)).dtype))
        thread.start()
        thread.join()
    assert found == [gl.float32]


def test_switches():
    x = gl.ones(2, 2)
    gl.set_autocast_dtype("cpu", LOW)
    gl.set_autocast_enabled("cpu", True)
    try:
        assert gl.is_autocast_enabled("cpu") and (x @ x).dtype == LOW
        with gl.autocast("cpu", dtype=gl.bfloat16):
            assert (x @ x).dtype == gl.bfloat16
        assert (x @ x).dtype == LOW
    finally:
        gl.set_autocast_enabled("cpu", False)
        assert gl.get_autocast_dtype("cpu") == LOW
        gl.set_autocast_dtype("cpu", gl.bfloat16)
    assert gl.get_autocast_dtype("cpu") == gl.bfloat16 and (x @ x).dtype == gl.float32
    gl.set_autocast_cache_enabled(False)
    assert not gl.is_autocast_cache_enabled()
    gl.set_autocast_cache_enabled(True)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="device_type"):
        gl.autocast(1)
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'xla'"):
        gl.autocast("xla")
    with pytest.warns(UserWarning, match="no dtype to lower to"):
        region = gl.autocast("cpu", dtype=gl.float64)
    with region:
        assert not gl.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match="no dtype to lower to"):
        gl.set_autocast_dtype("cpu", gl.float32)
    with pytest.raises(TypeError):
        gl.autocast("cpu", dtype="no dtype")
    assert gl.amp.is_autocast_available("cuda") and not gl.amp.is_autocast_available("xla")
    with pytest.raises(ValueError):
        gl.amp.is_autocast_available(1)


def test_without_a_gpu_autocast_for_one_stays_off():
    if gl.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        region = gl.autocast("cuda")
    with region:
        assert not gl.is_autocast_enabled("cuda")


def test_autocast_of_the_gpu_does_not_touch_the_cpu():
    gl.set_autocast_enabled("cuda", True)
    try:
        assert gl.is_autocast_enabled() and (full(2, 2) @ full(2, 2)).dtype == gl.float32
    finally:
        gl.set_autocast_enabled("cuda", False)
