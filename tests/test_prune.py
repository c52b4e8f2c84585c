"""Pruning by masks."""

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn.utils import prune


@pytest.fixture
def layer():
    found = nn.Linear(4, 3)
    found.weight.data = gl.arange(1.0, 13.0).reshape(3, 4) * gl.tensor([1.0, -1.0, 1.0, -1.0])
    return found


def test_the_least_entries_stay_zero_in_training(layer):
    assert prune.l1_unstructured(layer, "weight", amount=0.25) is layer
    assert layer.weight_mask.flatten().tolist() == [0.0] * 3 + [1.0] * 9
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight_orig"]
    optimizer = gl.optim.SGD(layer.parameters(), lr=0.1)
    layer(gl.ones(2, 4)).sum().backward()
    assert (layer.weight_orig.grad.flatten()[:3] == 0).all()
    optimizer.step()
    layer(gl.ones(2, 4))
    assert (layer.weight.flatten()[:3] == 0).all()
    assert prune.is_pruned(nn.Sequential(layer))
    prune.remove(layer, "weight")
    assert (layer.weight.flatten()[:3] == 0).all()
    assert isinstance(layer.weight, nn.Parameter)
    assert not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="not pruned"):
        prune.remove(layer, "weight")


def test_again_among_what_is_left(layer):
    prune.l1_unstructured(layer, "weight", amount=4)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    assert layer.weight_mask.flatten().tolist() == [0.0] * 8 + [1.0] * 4
    prune.ln_structured(layer, "weight", amount=1, n=2, dim=1)
    assert layer.weight_mask[2].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_channels(layer):
    prune.ln_structured(layer, "weight", amount=1, n=1, dim=0)
    assert layer.weight_mask.sum(1).tolist() == [0.0, 4.0, 4.0]
    prune.random_structured(layer, "weight", amount=0.5, dim=-1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0.0, 0.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="2 dimensions"):
        prune.ln_structured(layer, "bias", amount=1, n=2, dim=0)


def test_masks_scores_and_all_at_once(layer):
    prune.custom_from_mask(layer, "bias", gl.tensor([0, 1, 1]))
    assert layer.bias[0] == 0
    prune.l1_unstructured(layer, "weight", amount=1, importance_scores=gl.arange(12.0, 0.0, -1.0).reshape(3, 4))
    assert layer.weight_mask[2, 3] == 0
    other = nn.Linear(4, 1)
    other.weight.data = gl.full((1, 4), 0.5)
    prune.global_unstructured([(layer, "weight"), (other, "weight")], prune.L1Unstructured, amount=5)
    assert other.weight_mask.sum() == 0
    assert layer.weight_mask.sum() == 10
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured([(layer, "weight")], prune.LnStructured, amount=1, n=2)


@pytest.mark.parametrize(("amount", "error"), [(-1, ValueError), (1.5, ValueError), ("a", TypeError), (100, ValueError)])
def test_amounts(layer, amount, error):
    with pytest.raises(error):
        prune.random_unstructured(layer, "weight", amount)
    assert "weight" in dict(layer.named_parameters())
