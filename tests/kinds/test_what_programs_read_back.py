"""What programs written for PyTorch read back: numbers, orders and objects that gradlab once answered otherwise without a word."""

import copy
import itertools
from collections import OrderedDict

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.tensor.foreach import FUNCTIONS

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("call", [
    lambda x: gl.norm(x, p=0), lambda x: gl.linalg.vector_norm(x, 0), lambda x: gl.linalg.norm(x, 0),
    lambda x: gl.dist(x, gl.zeros(4), p=0), lambda x: x.double().norm(p=0), lambda x: x.to(gl.complex64).norm(p=0),
])  # fmt: skip
def test_what_is_no_number_counts_as_one_that_is_not_zero(call):
    assert call(gl.tensor([NAN, 0.0, INF, 2.0])).item() == 3


@pytest.mark.parametrize(("given", "order", "norm"), [([3.0, 4.0], "2", 5.0), ([-3.0, 2.0], "inf", 3.0), ([NAN, 3.0], 0, 1.0)])
def test_the_common_norm_takes_orders_in_words(given, order, norm):
    x = gl.zeros(2, requires_grad=True)
    x.grad = gl.tensor(given)
    assert nn.utils.get_total_norm([x.grad], order).item() == norm
    assert nn.utils.clip_grad_norm_([x], 1.0, order, error_if_nonfinite=True).item() == norm


@pytest.mark.parametrize("spectral_norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_the_largest_singular_value_of_complex_weights(spectral_norm):
    layer = nn.Linear(3, 2, dtype=gl.complex64)
    given = layer.weight.detach().clone()
    layer = spectral_norm(layer, n_power_iterations=50)
    layer(gl.zeros(1, 3, dtype=gl.complex64))
    assert (layer.weight - given / gl.linalg.matrix_norm(given, 2)).abs().max() < 1e-4


@pytest.mark.parametrize("alpha", [0, 1, 2, True, False])
def test_multiples_of_truth_values_are_truth_values(alpha):
    pairs = list(itertools.product([True, False], repeat=2))
    a, b = (gl.tensor(column) for column in zip(*pairs, strict=True))
    expected = [x or (y and bool(alpha)) for x, y in pairs]
    for found in (gl.add(a, b, alpha=alpha), a.clone().add_(b, alpha=alpha)):
        assert found.dtype == gl.bool and found.tolist() == expected
    assert gl.add(a, 2, alpha=3).tolist() == [x + 6 for x, _ in pairs]


@pytest.mark.parametrize("factors", [{"beta": 1.5}, {"alpha": 2.0}])
def test_integers_take_no_fractions_of_themselves(factors):
    row = gl.arange(2)
    with pytest.raises(RuntimeError, match="integer"):
        gl.addr(gl.zeros(2, 2, dtype=gl.int64), row, row, **factors)


def test_an_in_place_change_through_apply_is_seen_by_the_graph():
    layer = nn.Linear(2, 1)
    product = layer.weight * layer.weight
    layer._apply(lambda x: x.add_(1.0))
    with pytest.raises(RuntimeError, match="in-place"):
        product.sum().backward()


@pytest.mark.parametrize("trained", list(itertools.product([True, False], repeat=2)))
def test_a_fused_layer_trains_what_was_trained(trained):
    layer, norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2).eval()
    layer.weight.requires_grad, layer.bias.requires_grad = trained
    fused = nn.utils.fuse_conv_bn_weights(layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    assert tuple(x.requires_grad for x in fused) == trained


def test_the_order_of_parameters_in_dictionaries():
    """By it the states of optimizers in files are counted."""
    pairs = [(name, nn.Parameter(gl.ones(1))) for name in "zca"]
    assert list(nn.ParameterDict(dict(pairs))) == ["a", "c", "z"]
    for kept in (pairs, OrderedDict(pairs), nn.ParameterDict(pairs)):
        found = nn.ParameterDict(kept)
        assert list(found) == list(found.copy()) == [name for name, _ in found.named_parameters()] == ["z", "c", "a"]
    found |= {"y": gl.ones(1), "b": gl.ones(1)}
    assert list(found) == list(nn.ParameterDict().fromkeys(found.keys())) == ["z", "c", "a", "b", "y"]


def test_extra_state_that_nobody_gave_is_missing():
    class OneSided(nn.Module):
        def set_extra_state(self, state):
            raise AssertionError

    module = OneSided()
    with pytest.raises(RuntimeError, match="missing key"):
        module.load_state_dict(module.state_dict())


def test_a_deep_copy_holds_a_shared_gradient_once():
    x = gl.zeros(2)
    x.grad = gl.ones(2)
    twin, gradient = copy.deepcopy([x, x.grad])
    assert twin.grad is gradient is not x.grad and gradient.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["add", "mul", "abs", "zero"])
def test_lists_written_in_place_are_given_back(name):
    tensors = [gl.ones(2), gl.ones(1)]
    call = FUNCTIONS[f"_foreach_{name}_"]
    assert call(tensors, *([2.0] if name in ("add", "mul") else [])) is tensors


@pytest.mark.parametrize("call", [lambda x, y: x.map_(y, lambda a, b: a), lambda x, y: x.map2_(x, y, lambda a, b, c: a)])
def test_python_functions_take_nothing_that_is_recorded(call):
    with pytest.raises(RuntimeError, match="not recorded"):
        call(gl.ones(2), gl.ones(2, requires_grad=True))


@pytest.mark.parametrize("dtype", [gl.float64, gl.int32])
def test_a_storage_of_another_type_is_refused(dtype):
    other = gl.ones(2, dtype=dtype)
    with pytest.raises(RuntimeError, match="storage"):
        gl.ones(2).set_(other.storage())
    for memory in (other.storage(), other.untyped_storage()):
        assert gl.zeros(2, dtype=dtype).set_(memory).tolist() == [1, 1]


@pytest.mark.parametrize("shapes", [((3,), ()), ((), (1,)), ((), ()), ((3,), (1,))])
@pytest.mark.parametrize("name", ["gather", "scatter", "scatter_add", "scatter_", "scatter_add_"])
def test_one_place_of_a_vector_may_be_without_dimensions(name, shapes):
    shape, own = shapes
    x = gl.full(shape, 2.0, requires_grad=not name.endswith("_"))
    index, source = gl.zeros(own, dtype=gl.int64), gl.full(own, 5.0)
    found = getattr(x, name)(0, index, *([] if name == "gather" else [source]))
    first = 2.0 if name == "gather" else 7.0 if "add" in name else 5.0
    assert found.shape == (own if name == "gather" else shape) and found.reshape(-1)[0].item() == first
    if x.requires_grad:
        found.sum().backward()
        assert x.grad.reshape(-1)[0].item() == (0.0 if name == "scatter" else 1.0)


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_"])
def test_of_no_places_the_dimensions_of_the_source_do_not_matter(name):
    empty = gl.zeros(0, 4)
    assert getattr(gl.arange(3.0), name)(0, empty.long(), empty).tolist() == [0.0, 1.0, 2.0]
