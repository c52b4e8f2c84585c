"""On half types every public function computes in float32 and rounds once, and so do its gradients, whatever rows it is made of."""

import inspect
import re

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.autograd.rounding import roundings_of
from gradlab.nn import functional as F
from gradlab.spec import spec_of

from kinds.calls import parts
from kinds.halves import HALVES, OWN, SIZES, Roundings, apart, ulps
from samples import SAMPLES

HALF = gl.float16
PICKED = "picks elements, along one dimension after the other"
RUNNING = "keeps its running statistics in half types, too"
LAYERS = "is made of layers, each of which has a result of its own"
# Functions whose rows round more than once for each result.
SEVERAL = {"F.interpolate": PICKED, "F.upsample": PICKED, "F.upsample_nearest": PICKED, "F.pad": PICKED,
           "F.multi_head_attention_forward": LAYERS, "F.batch_norm": RUNNING, "native_batch_norm": RUNNING,
           "logical": "converts truth values"}  # fmt: skip
# Bounds above one unit in the last place of each element. Of "largest": in units of the largest element, since others cancel.
KEPT = "the gradient is computed from the result, which is kept rounded"
BEYOND = "the result is beyond float16"
BOUNDS = {  # name: (units, of_largest, sizes that are left out, why)
    "F.add_layer_norm": (2, False, "top", BEYOND), "F.add_rms_norm": (2, False, "top", BEYOND),
    "bincount": (1, False, "top", "adds up in float64, where float32 overflows"),
    "F.multi_head_attention_forward": (2, True, "1e-4 3e2 top", LAYERS),
}  # fmt: skip
REFUSED = re.compile("need(s)? float32 or float64|DLPack only supports")


def named(call, names):
    """The entry of a table for a call: by its name, with or without the room, and without the underscore of one in place."""
    bare = call.name.partition(".")[2]
    return next((names[key] for key in (call.name, bare, bare.rstrip("_"), bare.partition("_")[0]) if key in names), None)


@pytest.mark.parametrize("call", [call for call in OWN if "random" not in call.marks], ids=repr)
def test_results_and_gradients_are_those_of_float32_rounded(call):
    units, of_largest, without, _ = named(call, BOUNDS) or (1, False, "", "")
    for dtype in HALVES:
        for size in SIZES:
            if size in without.split():
                continue
            try:
                result, gradient = apart(call, size, dtype, of_largest)
            except (RuntimeError, BufferError) as error:
                if REFUSED.search(str(error)) is None:
                    raise
                continue
            assert result <= units and gradient <= units, (dtype, size, result, gradient)


@pytest.mark.parametrize("call", OWN, ids=repr)
def test_each_result_is_rounded_once(call):
    args, options = call.tensors(HALF)
    with Roundings() as rounded:
        try:
            found = parts(call.on(args, options))
        except RuntimeError as error:
            assert REFUSED.search(str(error))
            return
    assert len(rounded.names) <= max(1, sum(t.dtype == HALF for t in found)) or named(call, SEVERAL), rounded.names


def values_of(row, sample):
    """What formulas of a row may ask for by name, where its inputs are half tensors."""
    arrays = [x.astype(np.float16) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x for x in sample.inputs]
    inputs = [gl.tensor(x) if isinstance(x, np.ndarray) else x for x in arrays]
    with gl.no_grad():
        made = bind(row)(*inputs, **sample.params)
    outputs = dict(zip(row.outputs, made if isinstance(made, tuple) else (made,)))
    named = {row.inputs[-1]: tuple(inputs)} if row.variadic else dict(zip(row.inputs, inputs))
    specs = {f"{n}_spec": tuple(spec_of(t._array) for t in x) if type(x) is tuple else spec_of(x._array) for n, x in named.items()
             if isinstance(x, (gl.Tensor, tuple))}  # fmt: skip
    gradients = {f"g_{name}": gl.ones_like(t) for name, t in outputs.items()}
    return named | outputs | specs | sample.params | gradients | {"g": next(iter(gradients.values()))}


@pytest.mark.parametrize("row", [r for r in ops.ROWS.values() if r.steps and not r.dynamic and SAMPLES.get(r.name)], ids=repr)
def test_formulas_that_round_more_than_once_are_known(row):
    """Whether a formula rounds never, once or more often is read from its code; here it runs on half types as it stands."""
    for sample in SAMPLES[row.name]:
        values = values_of(row, sample) if "float16" in sample.dtypes else {}
        for step in row.steps if values else ():
            with gl.no_grad(), Roundings() as rounded:
                found = step.formula(**{name: values[name] for name in inspect.signature(step.formula).parameters})
            results = sum(x is not None for x in found) if isinstance(found, (tuple, list)) else 1
            assert min(len(rounded.names), 2 * results) <= roundings_of(row) * results, rounded.names


@pytest.mark.parametrize("dtype", HALVES, ids=repr)
@pytest.mark.parametrize("row", [row for row in ops.ROWS.values() if row.sharp and not row.params], ids=repr)
def test_gradients_do_not_know_that_the_result_was_rounded(row, dtype):
    """Of rows that compute them from their result: also where that is near 1, far from it, or in the lowest range of the type."""
    x = gl.tensor([-12.0, -9.0, -5.0, -2.5, -0.9, -0.1, 0.1, 0.6, 0.9, 1.4, 3.0, 7.0, 9.0, 300.0], dtype=dtype)
    found = []
    for kind in (dtype, gl.float32):
        leaves = [t.to(kind).requires_grad_() for t in (x, gl.linspace(0.1, 2, 14, dtype=dtype))[: len(row.inputs)]]
        seeds = gl.tensor([0.5, 3.0] * 7, dtype=kind)
        grads = gl.autograd.grad(row.call(*leaves), leaves, seeds, allow_unused=True)  # of zeta's exponent there is none
        found.append([g for g in grads if g is not None])
    assert found[0]
    for half, wide in zip(*found, strict=True):
        assert ulps(half, wide) <= 1


def test_products_of_three_whose_pairs_overflow():
    x, y, z = halves(300.0, -200.0), halves(300.0, -400.0), halves(1e-3, 2e-3)
    wide = gl.einsum("i,i,i->", x.float(), y.float(), z.float())
    assert gl.einsum("i,i,i->", x, y, z).equal(wide.half())


def halves(*values):
    return gl.tensor(values, dtype=HALF)


def test_variance_of_what_overflows_when_squared():
    assert gl.tensor([40.0, -40.0] * 32, dtype=HALF).var().item() == 1625
    ones = gl.tensor([-1.0, 1.0] * 40_000, dtype=HALF)  # more elements than float16 can count
    assert ones.var().item() == ones.std().item() == 1


@pytest.mark.parametrize("vector", [(300.0, 400.0), (3e-5, 4e-5), (30_000.0, 40_000.0)])
def test_vectors_of_any_length(vector):
    x = halves(vector).requires_grad_()
    y = F.normalize(x)
    np.testing.assert_allclose(y.detach().float().numpy(), [[0.6, 0.8]], rtol=5e-3)
    y[0, 0].backward()
    wide = x.detach().float().requires_grad_()
    F.normalize(wide)[0, 0].backward()
    np.testing.assert_array_equal(x.grad.numpy(), wide.grad.half().numpy())
    assert F.cosine_similarity(x, x).item() == 1


def test_distances_whose_squares_overflow():
    a, b = halves((300.0, 400.0)), halves((0.0, 0.0))
    assert F.pairwise_distance(a, b).item() == gl.dist(a, b).item() == gl.cdist(a, b).item() == 500


def test_a_clipped_gradient_keeps_its_direction():
    p = gl.nn.Parameter(gl.ones(2, dtype=HALF))
    p.grad = halves(600.0, 800.0)
    assert gl.nn.utils.clip_grad_norm_([p], 10.0).item() == 1000
    np.testing.assert_allclose(p.grad.float().numpy(), [6, 8], rtol=1e-2)


def test_a_maximum_reached_more_often_than_half_can_count():
    x = gl.zeros(70_000, dtype=HALF, requires_grad=True)
    x.amax().backward(gl.tensor(1000.0, dtype=HALF))
    assert (x.grad == gl.tensor(1000 / 70_000).half()).all()


def test_many_small_gradients_beside_a_large_one():
    x = halves(1.0).requires_grad_()
    (gl.stack([x * k for k in (2048.0, *[0.5] * 8)])).sum().backward()
    assert x.grad.item() == 2052


def test_norms_in_half_with_weights_in_float32():
    x, weights = gl.randn(2, 4, 3).half(), (gl.ones(4), gl.zeros(4))
    assert F.group_norm(x, 2, *weights).dtype == F.batch_norm(x, *weights, *weights).dtype == HALF
    assert F.instance_norm(x, None, None, *weights).dtype == HALF
    assert F.layer_norm(x.mT, (4,), *weights).dtype == F.rms_norm(x.mT, (4,), weights[0]).dtype == HALF


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_statistics_of_native_norms_have_the_type_of_the_parameters(dtype):
    x, one, zero = gl.randn(2, 4, 6).to(dtype), gl.ones(4), gl.zeros(4)
    for kind, weight, bias in ((dtype, None, None), (dtype, one.to(dtype), zero.to(dtype)), (gl.float32, one, zero)):
        for y, *statistics in (
            gl.native_batch_norm(x, weight, bias, zero.to(kind), one.to(kind), True, 0.1, 1e-5),
            gl.native_batch_norm(x, weight, bias, zero.to(kind), one.to(kind), False, 0.1, 1e-5),
            gl.native_group_norm(x, weight, bias, 2, 4, 6, 2, 1e-5),
            gl.native_layer_norm(x.mT, (4,), weight, bias, 1e-5),
        ):
            assert (y.dtype, *(s.dtype for s in statistics)) == (dtype, kind, kind)


def test_transforms_of_pieces_in_half_are_those_of_float32():
    x, window = gl.randn(16).half(), gl.hann_window(8).half()
    spectra = gl.stft(x, 8, window=window, return_complex=True)
    assert spectra.equal(gl.stft(x.float(), 8, window=window.float(), return_complex=True))
    back = gl.istft(spectra, 8, window=window, length=16)
    assert back.equal(gl.istft(spectra, 8, window=window.float(), length=16))  # and squares of the window are not rounded
    np.testing.assert_allclose(back.numpy(), x.float().numpy(), atol=1e-5)


def test_logits_of_linear_cross_entropy_are_not_rounded_before_a_bias_in_float32():
    x, weights, bias, target = gl.randn(3, 4).half(), gl.randn(2, 4).half(), gl.randn(2), gl.tensor([0, 1, 1])
    found = F.linear_cross_entropy(x, weights, target, linear_bias=bias)
    assert found.equal(F.linear_cross_entropy(x.float(), weights.float(), target, linear_bias=bias))
    with pytest.raises(RuntimeError, match="weight has the input's dtype"):
        F.linear_cross_entropy(x, weights, target, weight=bias)


@pytest.mark.parametrize("loss", [F.hinge_embedding_loss, F.soft_margin_loss, F.huber_loss])
def test_losses_have_the_type_of_what_is_learned(loss):
    assert loss(gl.randn(3).half(), gl.ones(3)).dtype == HALF


SECOND = {
    "exp": gl.exp, "sqrt": gl.sqrt, "tanh": gl.tanh, "gelu": F.gelu, "mish": F.mish, "softmax": lambda x: F.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)), "rms_norm": lambda x: F.rms_norm(x, (8,)), "std": lambda x: x.std(-1),
    "normalize": lambda x: F.normalize(x, dim=-1), "cross_entropy": lambda x: F.cross_entropy(x, gl.arange(4), reduction="none"),
    "product": lambda x: x @ x.t(), "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None] * 0.5, x[None]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
@pytest.mark.parametrize("name", SECOND)
def test_gradients_of_gradients_are_within_an_ulp_of_the_largest(name, dtype):
    r = np.random.default_rng(0)
    x, first, second = (gl.tensor(r.uniform(low, high, (4, 8)), dtype=dtype) for low, high in ((0.1, 2), (-1, 1), (-1, 1)))

    def twice(change):
        leaf = change(x).clone().requires_grad_()
        y = SECOND[name](leaf)
        (g,) = gl.autograd.grad(y, leaf, change(first).flatten()[: y.numel()].reshape(y.shape), create_graph=True)
        return gl.autograd.grad(g, leaf, change(second))[0].double().numpy()

    half, wide = twice(lambda t: t), twice(lambda t: t.float())
    ulp = 2.0 ** np.floor(np.log2(abs(wide).max())) * gl.finfo(dtype).eps
    assert abs(half - wide).max() <= 1.5 * ulp  # half of one is the rounding of what is compared
