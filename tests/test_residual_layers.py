"""Norms of a sum and embeddings with positions in one operation: launches, layers that use them, and the pass of `gl.compile` that finds
them."""

from __future__ import annotations

import numpy as np
import pytest
from test_compile_cuda import executable
from test_residual import arrays_for, near, recorded, values, wide

import gradlab as gl
from gradlab import nn
from gradlab.backends.cuda.gemm import library
from gradlab.graph.passes import PASSES
from gradlab.models.gpt import GPT, Block, GPTConfig
from gradlab.nn.functional import residual as fused
from gradlab.nn.modules.residual import add_embeddings, add_norm

F = nn.functional


# ---------------------------------------------------------------- launches


def launched(cuda, run):
    """Kernels and products of the second call."""
    if cuda.driver.name != "emulated":
        pytest.skip("the emulated driver counts")
    blas = library.blas_of(cuda.driver).library
    run()
    before = cuda.driver.launches, blas.launches
    run()
    return cuda.driver.launches - before[0] + blas.launches - before[1]


def both_ways(cuda, monkeypatch, run):
    now = launched(cuda, run)
    with monkeypatch.context() as patch:
        patch.setattr(fused, "at_hand", lambda kind: False)
        return now, launched(cuda, run)


def test_launches_of_the_functions(cuda, monkeypatch):
    x, r, w, b = (gl.tensor(a.astype(np.float32), device="cuda", requires_grad=True) for a in arrays_for("layer", (3, 8)))
    one = gl.ones(3, 8, device="cuda")

    def forward():
        return F.add_layer_norm(x, r, (8,), w, b)

    def there_and_back():
        gl.autograd.grad(forward(), (x, r, w, b), (one, one))

    assert both_ways(cuda, monkeypatch, forward) == (1, 2)
    assert both_ways(cuda, monkeypatch, there_and_back) == (3, 5)
    table, positions, at = gl.ones(7, 8, device="cuda"), gl.ones(3, 8, device="cuda"), gl.zeros(2, 3, dtype=gl.int64, device="cuda")
    assert both_ways(cuda, monkeypatch, lambda: F.embedding_add(at, table, positions)) == (1, 2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_launches_of_an_encoder_layer(cuda, monkeypatch, norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first).cuda()
    x, one = gl.ones(3, 2, 8, device="cuda", requires_grad=True), gl.ones(3, 2, 8, device="cuda")
    now, apart = both_ways(cuda, monkeypatch, lambda: layer(x).backward(one))
    assert apart - now == 2  # with the norm behind, two sums; in front, one, and on the way back the sum of the two gradients


# ---------------------------------------------------------------- layers


LAYERS = {
    "encoder": lambda first: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=first, batch_first=True),
    "decoder": lambda first: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=first, batch_first=True),
    "block": lambda first: Block(GPTConfig(n_embd=8, n_head=2)),
}


def trained(name, first, device):
    gl.manual_seed(0)
    made = LAYERS[name](first).to(device)
    x = gl.tensor(values(2, 3, 8).astype(np.float32), device=device, requires_grad=True)
    y = made(x, x * 2) if name == "decoder" else made(x)
    (y * gl.tensor(values(2, 3, 8, seed=1).astype(np.float32), device=device)).sum().backward()
    return [wide(t) for t in (y, x.grad, *(p.grad for p in made.parameters()))]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree_with_the_cpu_and_with_themselves_apart(cuda, monkeypatch, name, first):
    got = trained(name, first, "cuda")
    wants = [trained(name, first, "cpu")]
    monkeypatch.setattr(fused, "at_hand", lambda kind: False)
    wants.append(trained(name, first, "cuda"))
    for want in wants:
        for a, b in zip(got, want, strict=True):
            near(a, b, "float32")


def test_a_norm_with_hooks_or_of_another_class_is_called(cuda):
    x = gl.ones(2, 4, device="cuda")
    calls = []

    class Mine(nn.LayerNorm):
        def forward(self, input):
            calls.append("mine")
            return super().forward(input)

    norm = nn.LayerNorm(4).cuda()
    assert "Residual" in recorded(add_norm(norm, x, x)[0])
    norm.register_forward_hook(lambda *_: calls.append("hook"))
    add_norm(norm, x, x)
    add_norm(Mine(4).cuda(), x, x)
    assert calls == ["hook", "mine"]
    assert "Residual" in recorded(add_norm(nn.RMSNorm(4).cuda(), x, x)[0])
    near(wide(add_norm(nn.Identity(), x, x)[0]), wide(x) * 2, "float32")


def test_an_operation_is_recorded_as_made_in_the_norm():
    block = Block(GPTConfig(n_embd=8, n_head=2))
    (node,) = (n for n, _ in block(gl.ones(1, 3, 8)).grad_fn.next_functions if "Residual" in type(n).__name__)
    assert [(scope.module, scope.name) for scope in node.scope.path()][1:] == [("LayerNorm", "ln2")]


def test_embeddings_with_hooks_or_options_are_called():
    tokens, places, at, calls = nn.Embedding(5, 4), nn.Embedding(6, 4), gl.tensor([[1, 2, 0]]), []
    want = wide(tokens(at) + places(gl.arange(3)))
    for given in (tokens, nn.Embedding.from_pretrained(tokens.weight, max_norm=1e9)):
        found = add_embeddings(given, at, places, gl.arange(3))
        assert ("EmbeddingAdd" in recorded(found)) == (given is tokens)
        np.testing.assert_array_equal(wide(found), want)
    places.register_forward_hook(lambda *_: calls.append("hook"))
    np.testing.assert_array_equal(wide(add_embeddings(tokens, at, places, gl.arange(3))), want)
    assert calls == ["hook"]


def test_gpt_trains_as_it_did(monkeypatch):
    """On the CPU to the last bit."""

    def losses():
        gl.manual_seed(0)
        model = GPT(GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8))
        optimizer = gl.optim.AdamW(model.parameters(), lr=0.01)
        tokens, found = gl.randint(0, 11, (3, 7)), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    now = losses()
    monkeypatch.setattr(fused, "at_hand", lambda kind: False)
    np.testing.assert_allclose(now, losses(), rtol=1e-6)


# ---------------------------------------------------------------- gl.compile


class Stack(nn.Module):
    """Two blocks with the norm in front: sums that go on, and one that goes to a norm alone."""

    def __init__(self, kind):
        super().__init__()
        self.norms = nn.ModuleList([kind(16) for _ in range(5)])
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x):
        for norm, linear in zip(self.norms, self.layers, strict=False):
            x = x + linear(norm(x))
        return self.norms[4](x)


def steps(kind, wrap, device="cuda"):
    gl.manual_seed(2)
    model = Stack(kind).to(device)
    optimizer = gl.optim.SGD(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    data = [[gl.tensor(values(6, 16, seed=s + i).astype(np.float32), device=device) for i in (0, 1)] for s in range(0, 8, 2)]
    return [float(run(x, y)) for x, y in data], [wide(p) for p in model.parameters()], run


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_compiled_steps_have_one_kernel_for_each_sum_and_norm(cuda, monkeypatch, kind):
    monkeypatch.setenv("GRADLAB_MEGA", "0")
    want = steps(kind, lambda f: f, "cpu")
    got = steps(kind, gl.compile)
    plain = steps(kind, lambda f: gl.compile(f, passes={"fuse_residual_norm": False}))
    for found in (got, plain):
        np.testing.assert_allclose(found[0], want[0], rtol=3e-5)
        for a, b in zip(found[1], want[1], strict=True):
            near(a, b, "float32")
    names = [n for s in executable(got[2]).report for n in s.kernels]
    row = "layer_norm" if kind is nn.LayerNorm else "rms_norm"
    assert names.count(f"{row}_residual") == 4  # all sums; the first norm is of the argument
    assert names.count(f"{row}_residual_backward") == 3  # but the last sum, which goes to its norm alone, and the first norm, of no sum
    assert executable(plain[2]).launches - executable(got[2]).launches == 4 + 3


def fused_rows(function, *example):
    """The graph of a function of tensors on the GPU after the pass."""
    graph = gl.graph.trace(function, *example).graph
    return PASSES["fuse_residual_norm"](graph)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, r: F.layer_norm(x + r, (8,)), 1),
        (lambda x, r: F.rms_norm(x + r, (8,)), 1),
        (lambda x, r: F.layer_norm(x + r.exp(), (8,)), 0),  # a loop adds what it makes
        (lambda x, r: F.layer_norm(x + r[0], (8,)), 0),  # broadcast
        (lambda x, r: F.layer_norm(x + 1, (8,)), 0),
        (lambda x, r: F.layer_norm(x + (r @ r.t() @ x).view(4, 8), (8,)), 1),
        (lambda x, r: F.layer_norm(x + r.view(8, 4).t(), (8,)), 0),  # not as the kernel reads it
        (lambda x, r: F.layer_norm(x + r, (8,), (x + r).sum(0)), 0),  # the weight is made of the sum
    ],
)
def test_what_the_pass_leaves_alone(cuda, monkeypatch, function, expected):
    monkeypatch.setenv("GRADLAB_MEGA", "0")
    x, r = gl.ones(4, 8, device="cuda"), gl.ones(4, 8, device="cuda")
    assert sum("residual" in c.op.name for c in fused_rows(function, x, r).calls) == expected


def test_compiled_embeddings_are_one_kernel(cuda, monkeypatch):
    monkeypatch.setenv("GRADLAB_MEGA", "0")
    table, positions = (gl.tensor(values(*s).astype(np.float32), device="cuda", requires_grad=True) for s in ((7, 8), (6, 8)))
    at = gl.tensor([[1, 2, 0], [6, 6, 2]], device="cuda")

    def step(at):
        table.grad = positions.grad = None
        y = F.embedding_add(at, table, positions)
        (y * y).sum().backward()
        return y

    want = [wide(step(at)), wide(table.grad), wide(positions.grad)]
    for passes, number in (({}, 1), ({"fuse_embedding": False}, 0)):
        run = gl.compile(step, passes=passes)
        for _ in range(3):
            y = run(at)
        for got, expected in zip([wide(y), wide(table.grad), wide(positions.grad)], want, strict=True):
            near(got, expected, "float32")
        assert [n for s in executable(run).report for n in s.kernels].count("embedding_add") == number


def used_twice(t, p, at):
    y = F.embedding(at, t)
    return (y + p) @ y.mT


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t, p, at: F.embedding(at, t) + p, 1),
        (lambda t, p, at: p.unsqueeze(0) + F.embedding(at, t), 1),
        (lambda t, p, at: gl.cat([p, p])[:3][None] + F.embedding(at, t), 1),
        (lambda t, p, at: F.embedding(at, t) + p.exp(), 0),  # a loop adds what it makes
        (lambda t, p, at: F.embedding(at, t) + p[0], 0),
        (lambda t, p, at: F.embedding(at, t) * 2 + p, 0),
        (used_twice, 0),
    ],
)
def test_which_embeddings_the_pass_joins(cuda, function, expected):
    given = gl.ones(7, 8, device="cuda"), gl.ones(3, 8, device="cuda"), gl.zeros(2, 3, dtype=gl.int64, device="cuda")
    graph = PASSES["fuse_embedding"](gl.graph.trace(function, *given).graph)
    assert sum(c.op.name == "embedding_add" for c in graph.calls) == expected


def test_on_the_cpu_and_in_mega_kernels_nothing_changes(cuda):
    x = gl.ones(4, 8)
    assert not any("residual" in c.op.name for c in fused_rows(lambda a: F.layer_norm(a + a, (8,)), x).calls)
    assert not any("residual" in c.op.name for c in fused_rows(lambda a: F.layer_norm(a + a, (8,)), x.cuda()).calls)
    large = gl.ones(4000, 8, device="cuda")
    assert any("residual" in c.op.name for c in fused_rows(lambda a: F.layer_norm(a + a, (8,)), large).calls)
