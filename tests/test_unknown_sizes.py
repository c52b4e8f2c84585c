"""Unknown sizes: arithmetic on them, and graphs made with them that are run with several sizes, compared with eager."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import nn
from gradlab.graph import trace
from gradlab.graph.ir.dims import Dim, Ratio, evaluate, hint, is_unknown, known_sizes, symbols, unknown
from gradlab.graph.ir.specialize import specialize, unknowns
from gradlab.graph.staging.symbol import TraceError
from gradlab.models.gpt import GPT, GPTConfig

N = unknown("n")
M = unknown("m")


# ---------------------------------------------------------------- numbers


def test_arithmetic_keeps_the_expression():
    for size in (1, 2, 3, 7, 64):
        sizes = {"n": size, "m": 5}
        for found, want in [
            (N + 1, size + 1), (1 + N, 1 + size), (N - 3, size - 3), (3 - N, 3 - size), (N * 4, size * 4), (4 * N, 4 * size),
            (N // 2, size // 2), (100 // N, 100 // size), (N % 3, size % 3), (-N, -size), (-(-N // 4) * 4, -(-size // 4) * 4),
            (N / 3, size / 3), (1 / N, 1 / size), (N**2, size**2), (N**0.5, size**0.5), (N * 0.5, 0.5 * size), (N * M, size * 5),
            ((N * M + N) // N, 6), (math.ceil(N / 3), math.ceil(size / 3)),
            (math.floor(N / 3), size // 3), (2 / N * 3.0 - 1, 2.0 / size * 3 - 1),
            (math.prod((N, 3, 2)), size * 6), (sum([N, 3, N]), size * 2 + 3), (N * np.int64(2), size * 2),
            ((N + 2 * 1 - 3) // 2 + 1, (size + 2 - 3) // 2 + 1),
        ]:  # fmt: skip
            assert evaluate(getattr(found, "expr", found), sizes) == want


def test_equal_sizes_have_equal_expressions_and_what_cancels_is_an_int():
    assert (N + 1).expr == (1 + N).expr and (N * M).expr == (M * N).expr and (N * 2 + N).expr == (N * 3).expr
    assert N - N == 0 and type(N - N) is int
    assert type(N * 6 // N) is int and (N * 784 // 784).expr == "n" and type((N * 4) % 2) is int
    assert (N * M // M).expr == "n" and (N + M - M).expr == "n"
    assert type(N // N) is int and N // N == 1


def test_comparisons_see_the_hint():
    assert N > 1000 and N != 1 and N != M and hint(N) == N and type(hint(N)) is int and bool(N) and max(N, 1) is N and min(N, 3) == 3
    assert unknown("t", 16) < 17 and unknown("n") == N and hash(N) == hash(hint(N))


def test_hints_are_primes_apart():
    """By which numbers that lost their expression are found."""
    numbers = sorted(hint(unknown(f"one of many {i}")) for i in range(40))
    assert all(n % d for n in numbers for d in range(2, math.isqrt(n) + 1)) and min(np.diff(numbers)) > 100


def test_how_they_look():
    assert str(N) == "n" and repr(N * 4 + 1) == "n*4 + 1" and f"{(N, 784)}" == "(n, 784)" and f"{N // 2}" == "n//2" and f"{N:>3}" == "  n"
    assert str(1 / N) == "1/n" and f"{N:d}" == str(hint(N))


def test_they_are_plain_data_that_can_be_copied():
    for x in (N * 3 + M, 1 / N):
        for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert type(twin) is type(x) and twin == x and twin.expr == x.expr
        assert evaluate(json.loads(json.dumps(x.expr)), {"n": 2, "m": 3}) == evaluate(x.expr, {"n": 2, "m": 3})
    assert sorted(symbols((N * M + 1).expr)) == ["m", "n"]
    assert isinstance(N + 1, Dim) and isinstance(1 / N, Ratio) and is_unknown((N, 3)) and not is_unknown((3,))


def test_wrong_names_and_hints():
    with pytest.raises(TypeError, match="named by a string"):
        unknown(3)
    with pytest.raises(ValueError, match="at least 1"):
        unknown("x", 0)


def test_sizes_are_read_off_actual_shapes():
    sizes = {}
    assert known_sizes((N, 3, M), (5, 3, 2), sizes) and sizes == {"n": 5, "m": 2}
    assert not known_sizes((N, 3), (6, 3), sizes) and not known_sizes((N,), (5, 3), {}) and not known_sizes((N, 3), (5, 4), {})


# ---------------------------------------------------------------- graphs


def compared(function, make, sizes=(1, 2, 7), dynamic=None, tolerance=1e-5):
    """The function traced with unknown sizes gives at each size what it gives eagerly."""
    program = trace(function, *make(4), dynamic=dynamic or {0: {0: "?0"}})
    assert set(unknowns(program.graph))
    for n in sizes:
        args = make(n)
        gl.manual_seed(3)
        want = function(*args)
        gl.manual_seed(3)
        got = program(*args)
        for a, b in zip(want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,), strict=True):
            np.testing.assert_allclose(b.numpy(), a.detach().numpy(), rtol=tolerance, atol=tolerance)
    return program


@pytest.fixture(autouse=True)
def _seed():
    gl.manual_seed(0)


def mlp():
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def test_mlp():
    program = compared(mlp(), lambda n: (gl.randn(n, 20),))
    assert program.graph.outputs[0].spec.shape[0].expr == "?0"


def test_cnn():
    compared(cnn().eval(), lambda n: (gl.randn(n, 3, 12, 12),))


def test_image_sizes():
    weight = gl.randn(8, 3, 3, 3)
    function = lambda x: F.max_pool2d(F.conv2d(x, weight, stride=2, padding=1), 2).mean((2, 3))
    compared(function, lambda n: (gl.randn(2, 3, 8 + n, 9 + n),), dynamic={0: {2: "h", 3: "w"}})
    compared(lambda x: F.adaptive_avg_pool2d(x, 1), lambda n: (gl.randn(n, 3, 8, 9),))
    compared(lambda x: F.interpolate(x, scale_factor=2), lambda n: (gl.randn(1, 3, n, 5),), dynamic={0: {2: "h"}})


def test_views():
    compared(lambda x: x.view(x.size(0), -1).reshape(-1, 4), lambda n: (gl.randn(n, 3, 8, 8),))
    compared(lambda x: x.flatten(0, 1).mean(0), lambda n: (gl.randn(n, 3, 8),))
    compared(lambda x: x[1:, :-1].sum(), lambda n: (gl.randn(n + 1, 3),))
    compared(lambda x: gl.cat([x, x * 2])[x.shape[0] :], lambda n: (gl.randn(n, 3),))
    compared(lambda x: gl.arange(x.shape[0]) * x.sum(1), lambda n: (gl.randn(n, 3),))
    compared(lambda x: gl.tril(x @ x.mT) / x.shape[0] + 1 / x.numel(), lambda n: (gl.randn(n, 3),))
    compared(lambda x: gl.cat(x.chunk(2, 1)[::-1], 1), lambda n: (gl.randn(n, 6),))
    compared(lambda x: x.var(0) + x.std(), lambda n: (gl.randn(n + 1, 6),))
    compared(lambda x: x.repeat(2, 1).expand(3, -1, -1).permute(1, 0, 2), lambda n: (gl.randn(n, 6),))
    compared(lambda x: gl.einsum("bi,bj->bij", x, x), lambda n: (gl.randn(n, 6),))
    compared(lambda x: x * 2 + x.new_zeros(x.shape) + gl.ones_like(x), lambda n: (gl.randn(n, 6),))


def test_two_sizes_and_broadcasting():
    compared(lambda a, b: a[:, None] * b, lambda n: (gl.randn(n, 3), gl.randn(2 * n + 1, 3)), dynamic={0: {0: "a"}, 1: {0: "b"}})


def test_recurrent_layers():
    lstm, gru = nn.LSTM(6, 8, num_layers=2, batch_first=True), nn.GRU(6, 8, bidirectional=True)
    compared(lambda x: lstm(x)[0], lambda n: (gl.randn(n, 5, 6),))
    compared(lambda x: gru(x)[0], lambda n: (gl.randn(5, n, 6),), dynamic={0: {1: "b"}})


def test_transformer_layer_in_batch_and_time():
    layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, dropout=0.2)
    compared(layer, lambda n: (gl.randn(n, 5, 6),))
    compared(layer, lambda n: (gl.randn(2, n, 6),), dynamic={0: {1: "time"}})


CONFIG = GPTConfig(vocab_size=11, block_size=16, n_layer=2, n_head=2, n_embd=8, dropout=0.1)


def test_gpt_in_batch_and_time():
    model = GPT(CONFIG)
    tokens = lambda n: (gl.randint(0, 11, (n, 2 * n)),)
    compared(model, tokens, dynamic={0: {0: "batch", 1: unknown("time", 12)}})


def test_control_flow():
    def scanned(x):
        return gl.scan(lambda c, v: (c * 0.5 + v, c * 2), gl.zeros(3), x)

    compared(lambda x: scanned(x)[0], lambda n: (gl.randn(n, 3),), dynamic={0: {0: "time"}})
    compared(lambda x: scanned(x)[1], lambda n: (gl.randn(n, 3),), dynamic={0: {0: "time"}})
    compared(
        lambda x: gl.scan(lambda c, v: (c + v, c.mean() + v), x[0] * 0, x)[1], lambda n: (gl.randn(4, n),), dynamic={0: {1: "b"}}
    )
    branches = lambda x: gl.cond(x.sum() > 0, lambda y: y * y.shape[0], lambda y: y - y.mean(), (x,))
    compared(branches, lambda n: (gl.randn(n, 3),))
    loop = lambda x: gl.while_loop(lambda y: y.abs().max() > 0.1, lambda y: (y / 2,), (x,))[0]
    compared(loop, lambda n: (gl.randn(n, 3),))


# ---------------------------------------------------------------- training steps


def trained(build, loss, make, optimizer=gl.optim.Adam, dynamic=None, sizes=(5, 1, 3), tolerance=2e-5):
    """Steps by a program with unknown sizes leave the losses and parameters of eager steps."""

    def prepared():
        gl.manual_seed(1)
        model = build()
        chosen = optimizer(model.parameters(), lr=0.05)

        def step(*batch):
            chosen.zero_grad()
            value = loss(model, *batch)
            value.backward()
            chosen.step()
            return value.detach()

        gl.manual_seed(2)
        step(*make(4))  # makes the optimizer's state
        return model, step

    def run(step):
        gl.manual_seed(5)
        return [step(*batch).item() for batch in batches]

    gl.manual_seed(7)
    batches = [make(n) for n in sizes]
    model, step = prepared()
    twin, other = prepared()
    program = trace(other, *make(4), dynamic=dynamic or {0: {0: "?0"}, 1: {0: "?0"}})
    np.testing.assert_allclose(run(program), run(step), rtol=tolerance)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-3, atol=1e-4)


def classified(model, x, y):
    return F.cross_entropy(model(x), y)


def test_train_mlp():
    trained(mlp, classified, lambda n: (gl.randn(n, 20), gl.randint(0, 5, (n,))))
    squares = lambda m, x, y: F.mse_loss(m(x), F.one_hot(y, 5).float())
    trained(mlp, squares, lambda n: (gl.randn(n, 20), gl.randint(0, 5, (n,))), gl.optim.SGD)


def test_train_cnn_with_batch_norm():
    trained(cnn, classified, lambda n: (gl.randn(n, 3, 12, 12), gl.randint(0, 5, (n,))), sizes=(5, 2, 3), tolerance=1e-4)


def test_train_lstm():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 5)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    trained(Last, classified, lambda n: (gl.randn(n, 4, 6), gl.randint(0, 5, (n,))))


def test_train_gpt():
    def loss(model, tokens, targets):
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    make = lambda n: (gl.randint(0, 11, (n, n + 2)), gl.randint(0, 11, (n, n + 2)))
    dynamic = {i: {0: "batch", 1: unknown("time", 12)} for i in (0, 1)}
    trained(lambda: GPT(CONFIG), loss, make, dynamic=dynamic, tolerance=1e-4)


# ---------------------------------------------------------------- what is refused


def test_a_size_that_lost_its_expression_is_found_and_its_line_named():
    for function in (
        lambda x: x.sum() / int(x.shape[0]), lambda x: x.sum() * float(x.shape[0] - 1), lambda x: x.sum() * math.sqrt(x.shape[0]),
        lambda x: x.reshape(int(x.shape[0]) * 3), lambda x: x + len(x), lambda x: x.sum() / np.prod(x.shape),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=r"of a size that is not known while the graph is made \(\?0"):
            trace(function, gl.ones(4, 3), dynamic={0: {0: "?0"}})
    for function in (
        lambda x: x.sum() * (1.0 / (x.shape[0] - 1)), lambda x: x.sum() / (len(range(x.shape[0])) - 1),
        lambda x: x.sum() * (1.0 / x.shape[0]), lambda x: x.sum() * (0.37 * x.shape[0]),
        lambda x: x + gl.ones(len(range(x.shape[0])), 3), lambda x: x[: len(range(x.shape[0]))] + 1,
    ):  # fmt: skip
        program = trace(function, gl.ones(4, 3), dynamic={0: {0: "?0"}})
        with pytest.raises(TraceError, match=r"not tracked; take it from x.shape(.|\n)*test_unknown_sizes.py"):
            program(gl.ones(5, 3))


def test_assumptions_that_do_not_hold_are_found():
    program = trace(lambda x: x[:8] * 2, gl.ones(9, 3), dynamic={0: {0: "?0"}})
    assert program(gl.ones(10, 3)).shape == (8, 3)
    with pytest.raises(TraceError, match="slice"):
        program(gl.ones(5, 3))


def test_the_number_of_parts_must_be_known():
    for function in (lambda x: x.unbind(0)[0], lambda x: next(iter(x)), lambda x: x.split(2)[0]):
        with pytest.raises(RuntimeError, match="unknown while the graph is made"):
            trace(function, gl.ones(4, 3), dynamic={0: {0: "?0"}})


def test_shapes_that_do_not_fit():
    program = trace(lambda x, y: x + y, gl.ones(4, 3), gl.ones(4, 3), dynamic={0: {0: "?0"}, 1: {0: "?0"}})
    with pytest.raises(ValueError, match=r"argument 1 has shape \(6, 3\).*\(\?0, 3\)"):
        program(gl.ones(5, 3), gl.ones(6, 3))
    with pytest.raises(ValueError, match="no value for"):
        specialize(program.graph, {})
    with pytest.raises(ValueError, match=r"shapes \(\?0, 3\) and \(b, 3\)"):
        trace(lambda x, y: x + y, gl.ones(4, 3), gl.ones(4, 3), dynamic={0: {0: "?0"}, 1: {0: "b"}})


def test_rules_that_refuse_the_actual_sizes_name_the_line():
    program = trace(lambda x: F.conv2d(x, gl.ones(1, 1, 3, 3)), gl.ones(1, 1, 5, 5), dynamic={0: {2: "h"}})
    with pytest.raises(ValueError, match=r"conv(.|\n)*at: test_unknown_sizes.py"):
        program(gl.ones(1, 1, 2, 5))


def test_a_graph_without_unknown_sizes_comes_back():
    graph = trace(lambda x: x + 1, gl.ones(3)).graph
    assert specialize(graph, {}) is graph


def test_a_graph_prints_with_its_unknown_sizes():
    program = trace(lambda x: x.reshape(-1) / x.shape[0], gl.ones(3, 4), dynamic={0: {0: "?0"}})
    text = str(program.graph)
    assert "float32[?0, 4]" in text and "float32[?0*4]" in text
    assert "?0" in program.graph.svg()
