"""Idioms of graph networks: message passing by products of sparse matrices and by scattering, old constructors, functions of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.nn import functional as F

NODES, FEATURES, CLASSES = 30, 6, 3
RNG = np.random.default_rng(0)
EDGES = np.unique(RNG.integers(0, NODES, (2, 90)), axis=1)
X, LABELS = RNG.normal(size=(NODES, FEATURES)), RNG.integers(0, CLASSES, NODES)
WEIGHTS = [RNG.normal(size=s) / 2 for s in ((FEATURES, 8), (8, CLASSES))]
DEGREE = np.maximum(np.bincount(EDGES[0], minlength=NODES), 1)


def adjacency(engine):
    """Rows sum up to 1, as normalised adjacencies of old scripts do: by the old constructor."""
    values = engine.tensor(1 / DEGREE[EDGES[0]])
    make = engine.sparse.DoubleTensor
    return make(engine.tensor(EDGES), values, engine.Size([NODES, NODES]))


def by_spmm(engine, h, a):
    return engine.spmm(a, h)


def by_csr(engine, h, a):
    return a.coalesce().to_sparse_csr() @ h


def by_index_add(engine, h, a):
    i, v = a._indices(), a._values()
    return engine.zeros(NODES, h.size(1), dtype=h.dtype).index_add_(0, i[0], h[i[1]] * v.unsqueeze(1))


def by_scatter_add(engine, h, a):
    i, v = a._indices(), a._values()
    return engine.zeros_like(h).scatter_add_(0, i[0].view(-1, 1).expand(-1, h.size(1)), h[i[1]] * v[:, None])


def by_scatter_mean(engine, h, a):
    row, col = a._indices()
    return h.new_zeros(h.shape).scatter_reduce(0, row.unsqueeze(-1).expand(-1, h.shape[-1]), h[col], "mean", include_self=False)


def by_attention(engine, h, a):
    """A softmax over the edges of each node, of scores that are all alike."""
    row, _col = a._indices()
    scores = (h[row] * 0).sum(1)
    largest = engine.full((NODES,), -1e9, dtype=h.dtype).scatter_reduce(0, row, scores.detach(), "amax")
    e = (scores - largest[row]).exp()
    share = e / engine.zeros(NODES, dtype=h.dtype).scatter_add(0, row, e)[row]
    return engine.sparse.mm(engine.sparse_coo_tensor(a._indices(), share, a.shape), h)


def by_sparse_softmax(engine, h, a):
    return engine.sparse.mm(engine.sparse.softmax(a, dim=1), h)


def by_function(engine, h, a):
    class Product(engine.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            made = engine.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(made, b)
            ctx.n = shape[0]
            return engine.matmul(made, b)

        @staticmethod
        def backward(ctx, g):
            made, b = ctx.saved_tensors
            at = made._indices()[0, :] * ctx.n + made._indices()[1, :]
            return None, g.matmul(b.t()).view(-1)[at], None, made.t().matmul(g)

    return Product.apply(a._indices(), a._values(), a.size(), h)


WAYS = [by_spmm, by_csr, by_index_add, by_scatter_add, by_scatter_mean, by_attention, by_sparse_softmax, by_function]


def losses(engine, way, steps=4):
    a, x, labels = adjacency(engine), engine.tensor(X), engine.tensor(LABELS)
    weights = [engine.tensor(w, requires_grad=True) for w in WEIGHTS]
    optimizer = engine.optim.Adam(weights, lr=0.05, weight_decay=5e-4)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        h = engine.nn.functional.relu(way(engine, x @ weights[0], a))
        loss = engine.nn.functional.nll_loss(engine.nn.functional.log_softmax(way(engine, h @ weights[1], a), dim=1), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_every_way_trains_alike(way):
    np.testing.assert_allclose(losses(gl, way), losses(gl, by_spmm), rtol=1e-10)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.sparse.SparseTensor")
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_every_way_is_pytorchs(way):
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(losses(gl, way), losses(torch, way), rtol=1e-10)


class Layer(nn.Module):
    """As in many public programs: the adjacency in a buffer, dropout on its entries."""

    def __init__(self, a):
        super().__init__()
        self.register_buffer("a", a)
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        a = self.a.coalesce()
        kept = gl.sparse_coo_tensor(a.indices(), F.dropout(a.values(), 0.5, self.training), a.shape)
        return gl.sparse.mm(kept, self.linear(x))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_module_with_a_sparse_buffer(device, request):
    if device == "cuda":
        request.getfixturevalue("cuda")
    gl.manual_seed(0)
    layer = Layer(adjacency(gl)).double().to(device)
    assert layer.a.device.type == device and [name for name, _ in layer.named_buffers()] == ["a"]
    other = Layer(adjacency(gl) * 0).double().to(device)
    other.load_state_dict(layer.state_dict())
    assert other.a.to_dense().equal(layer.a.to_dense())
    x, labels = gl.tensor(X, device=device), gl.tensor(LABELS, device=device)
    optimizer = optim.SGD(layer.parameters(), lr=0.5)
    first = last = None
    for _ in range(12):
        optimizer.zero_grad()
        last = F.cross_entropy(layer(x), labels)
        last.backward()
        optimizer.step()
        first = first or last.item()
    assert last.item() < first
    layer.eval()
    other.load_state_dict(layer.state_dict())
    assert other.eval()(x).equal(layer(x))
