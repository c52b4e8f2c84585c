"""Sparse gradients of embeddings: how they add up, are clipped and cleared, and which optimizers take them."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.nn import functional as F

AT = [[1, 1, 2], [4, 3, 1]]


def table(device="cpu", dtype=gl.float64):
    return gl.tensor(np.random.default_rng(0).normal(size=(6, 3)), device=device, dtype=dtype)


def modules(device="cpu", **options):
    """The same embedding with sparse and with dense gradients."""
    return [nn.Embedding(6, 3, sparse=s, _weight=table(device), **options) for s in (True, False)]


def losses(module, steps, optimizer=None, at=AT):
    found = []
    for k in range(steps):
        if optimizer is not None:
            optimizer.zero_grad()
        places = gl.tensor(at, device=module.weight.device) if k % 2 == 0 else gl.tensor([[2, 2]], device=module.weight.device)
        loss = module(places).square().sum() + module(places[:1]).sum()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        found.append(float(loss))
    return found


def test_the_gradient_has_a_row_for_each_place():
    weight = table().requires_grad_()
    F.embedding(gl.tensor(AT), weight, sparse=True).sum().backward()
    grad = weight.grad
    assert grad.is_sparse and (grad.sparse_dim(), grad.dense_dim(), grad._nnz()) == (1, 1, 6) and not grad.is_coalesced()
    assert grad._indices().tolist() == [[1, 1, 2, 4, 3, 1]] and grad.coalesce().indices().tolist() == [[1, 2, 3, 4]]
    F.embedding(gl.tensor([0]), weight, sparse=True).sum().backward()
    assert weight.grad.to_dense()[:, 0].tolist() == [1, 3, 1, 1, 1, 0]
    weight.grad = None
    (F.embedding(gl.tensor(AT), weight, padding_idx=-5, sparse=True)).sum().backward()
    assert weight.grad._indices().tolist() == [[2, 4, 3]]
    weight.grad = None
    dense = table().requires_grad_()
    for w, sparse in ((weight, True), (dense, False)):  # each place's gradient, divided by how often it was asked for
        F.embedding(gl.tensor(AT), w, sparse=sparse, scale_grad_by_freq=True).square().sum().backward()
    assert weight.grad.is_sparse and gl.allclose(weight.grad.to_dense(), dense.grad)
    assert not gl.allclose(dense.grad[1], 2 * dense[1] * 3)  # three times, divided by three


@pytest.mark.parametrize("first", [True, False])
def test_dense_and_sparse_gradients_add_up(first):
    weight = table().requires_grad_()
    for sparse in (first, not first):
        F.embedding(gl.tensor([1, 1]), weight, sparse=sparse).sum().backward()
    assert weight.grad.layout is gl.strided and weight.grad[:, 0].tolist() == [0, 4, 0, 0, 0, 0]
    weight.grad = None
    (F.embedding(gl.tensor([1]), weight, sparse=first).sum() + F.embedding(gl.tensor([1]), weight, sparse=not first).sum()).backward()
    assert weight.grad[:, 0].tolist() == [0, 2, 0, 0, 0, 0]
    doubled = weight.detach().requires_grad_()
    F.embedding(gl.tensor([1]), doubled * 2, sparse=True).sum().backward()
    assert doubled.grad.to_dense()[:, 0].tolist() == [0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [gl.float16, gl.bfloat16])
def test_half_tables(dtype):
    weight = table(dtype=dtype).requires_grad_()
    (F.embedding(gl.tensor(AT), weight, sparse=True).sum() + F.embedding(gl.tensor([1]), weight, sparse=True).sum()).backward()
    assert weight.grad.is_sparse and weight.grad.dtype == dtype and weight.grad.to_dense()[1].tolist() == [4, 4, 4]


def test_clipping_and_clearing():
    for clip in (
        lambda p: nn.utils.clip_grad_norm_(p, 0.5), lambda p: nn.utils.clip_grad_value_(p, 0.2),
        lambda p: nn.utils.clip_grad_norm_(p, 1, float("inf")),
        lambda p: nn.utils.get_total_norm([x.grad for x in p]),
    ):  # fmt: skip
        found = []
        for module in modules():
            losses(module, 1)
            norm = clip(list(module.parameters()))
            found.append((module.weight.grad.to_dense().numpy(), 0 if norm is None else norm.item()))
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
        assert found[0][1] == pytest.approx(found[1][1])
    sparse = modules()[0]
    losses(sparse, 1)
    sparse.zero_grad(set_to_none=False)
    assert sparse.weight.grad.is_sparse and sparse.weight.grad._nnz() == 0
    optim.SGD(sparse.parameters(), lr=1).step()
    assert sparse.weight.equal(table())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "make", [lambda p: optim.SGD(p, lr=0.1), lambda p: optim.SGD(p, lr=gl.tensor(0.1), maximize=True),
             lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5)],
)  # fmt: skip
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_steps_are_those_with_dense_gradients(make, padding_idx, device, request):
    if device == "cuda":
        request.getfixturevalue("cuda")
    found = [
        (losses(module, 4, make(module.parameters())), module.weight.detach().cpu().numpy())
        for module in modules(device, padding_idx=padding_idx)
    ]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)


def test_gradients_are_sparse_in_every_eager_mode():
    hooks = gl.autograd.graph.saved_tensors_hooks
    for mode in (lambda: gl.autocast("cpu", gl.bfloat16), gl.autograd.detect_anomaly, lambda: hooks(id_of, id_of)):
        weight = table().float().requires_grad_()
        with mode():
            loss = F.embedding(gl.tensor(AT), weight, sparse=True).sum()
        loss.backward()
        assert weight.grad.is_sparse and weight.grad.dtype == gl.float32


def id_of(x):
    return x


def test_bags():
    for mode in ("sum", "mean", "max"):
        found = []
        for sparse in (True, False):
            bag = nn.EmbeddingBag(6, 3, mode=mode, sparse=sparse, _weight=table())
            bag(gl.tensor(AT)).square().sum().backward()
            assert bag.weight.grad.is_sparse is sparse
            found.append(bag.weight.grad.to_dense().numpy())
        np.testing.assert_allclose(*found, rtol=1e-12)


def test_momentum_and_sparse_adam_by_their_formulas():
    module = nn.Embedding(6, 3, sparse=True, _weight=table())
    optimizer = optim.SparseAdam(module.parameters(), lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    p, m, v = table().numpy(), np.zeros((6, 3)), np.zeros((6, 3))
    for step, at in enumerate(([1, 1, 2], [2], [3, 1]), 1):
        optimizer.zero_grad()
        module(gl.tensor(at)).square().sum().backward()
        optimizer.step()
        g = np.zeros((6, 3))
        np.add.at(g, at, 2 * p[at])
        rows = sorted(set(at))
        m[rows] += 0.2 * (g[rows] - m[rows])
        v[rows] += 0.1 * (g[rows] ** 2 - v[rows])
        p[rows] -= 0.1 * np.sqrt(1 - 0.9**step) / (1 - 0.8**step) * m[rows] / (np.sqrt(v[rows]) + 1e-3)
        np.testing.assert_allclose(module.weight.detach().numpy(), p, rtol=1e-12)
    kept = copy.deepcopy(optimizer.state_dict())
    other = optim.SparseAdam(module.parameters(), lr=0.1)
    other.load_state_dict(kept)
    assert other.state[module.weight]["exp_avg"].allclose(gl.tensor(m)) and other.param_groups[0]["eps"] == 1e-3
    found = []
    for sparse in modules():
        optimizer = optim.SGD(sparse.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        found.append((losses(sparse, 5, optimizer), sparse.weight.detach().numpy()))
        assert copy.deepcopy(optimizer.state_dict())["state"][0]["momentum_buffer"].shape == (6, 3)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10)


TAKE_THEM = {"SGD", "Adagrad", "SparseAdam", "LBFGS"}
OPTIMIZERS = [n for n, c in vars(optim).items() if inspect.isclass(c) and issubclass(c, optim.Optimizer) and c is not optim.Optimizer]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_them_or_says_that_it_does_not(name):
    module = modules()[0]
    losses(module, 1)
    optimizer = getattr(optim, name)(module.parameters(), lr=0.1)
    if name in TAKE_THEM:
        optimizer.step(lambda: 1.0)
        assert not module.weight.equal(table()) and module.weight[[0, 5]].equal(table()[[0, 5]])
        return
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert module.weight.equal(table())


def test_refusals():
    module = modules()[1]
    losses(module, 1)
    with pytest.raises(RuntimeError, match="dense gradients"):
        optim.SparseAdam(module.parameters()).step()
    for wrong in ({"lr": 0}, {"eps": 0}, {"betas": (1, 0)}):
        with pytest.raises(ValueError):
            optim.SparseAdam(module.parameters(), **wrong)
    sparse = modules()[0]
    losses(sparse, 1)
    for optimizer in (optim.SGD(sparse.parameters(), weight_decay=0.1), optim.Adagrad(sparse.parameters(), weight_decay=0.1)):
        with pytest.raises(RuntimeError, match="weight_decay"):
            optimizer.step()


def test_compiled_steps_have_dense_gradients_and_the_same_numbers():
    found = []
    for module in modules():
        optimizer = optim.SGD(module.parameters(), lr=0.1)

        @gl.compile
        def step(at, module=module, optimizer=optimizer):
            optimizer.zero_grad()
            loss = module(at).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        found.append([float(step(gl.tensor(AT))) for _ in range(4)])
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("padding_idx", [None, 1])
@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"lr": 0.01}), ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}),
     ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}), ("SparseAdam", {"lr": 0.1}),
     ("SparseAdam", {"lr": 0.1, "eps": 0.1, "maximize": True})],
)  # fmt: skip
def test_steps_are_pytorchs(name, options, padding_idx):
    torch = pytest.importorskip("torch")
    found = []
    for engine in (gl, torch):
        module = engine.nn.Embedding(6, 3, sparse=True, padding_idx=padding_idx, _weight=engine.tensor(table().numpy()))
        optimizer = getattr(engine.optim, name)(module.parameters(), **options)
        for at in ([[1, 1, 2]], [[4, 3]], [[1, 0]]):
            optimizer.zero_grad()
            module(engine.tensor(at)).square().sum().backward()
            optimizer.step()
        found.append((module.weight.detach().numpy(), module.weight.grad.to_dense().numpy()))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
