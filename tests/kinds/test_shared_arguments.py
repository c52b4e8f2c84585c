"""Arguments and captured tensors that share memory: a compiled function does what it does eagerly, whoever writes. A traced one may refuse.

Programs take tensors for memory of their own. What is one array is followed, what shares memory in part runs eagerly where it is written.
"""

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler

pytestmark = pytest.mark.filterwarnings("ignore:.*(share memory|result of recorded operations).*:UserWarning")


def fresh():
    return gl.arange(12.0).reshape(3, 4)


def quietly(take):
    """A view that does not know its base."""
    x = fresh()
    with gl.no_grad():
        return x, take(x)


def from_numpy(take):
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    return gl.from_numpy(array), gl.from_numpy(take(array))


def of_bytes(memory):
    return tuple(gl.from_numpy(np.frombuffer(memory, np.float32)) for _ in range(2))


def two_of(first, second):
    x = gl.arange(24.0).reshape(6, 4)
    return first(x), second(x)


def with_base(take):
    x = fresh()
    return x, take(x)


SHARING = {
    "apart": lambda: (fresh(), fresh()),
    "one tensor": lambda: (fresh(),) * 2,
    "detached": lambda: with_base(lambda x: x.detach()),
    "data": lambda: with_base(lambda x: x.data),
    "view": lambda: with_base(lambda x: x.view(4, 3)),
    "transposed": lambda: with_base(lambda x: x.t()),
    "row": lambda: with_base(lambda x: x[1]),
    "column": lambda: with_base(lambda x: x[:, 1:2]),
    "nothing of it": lambda: with_base(lambda x: x[:0]),
    "element": lambda: with_base(lambda x: x[1, 2]),
    "expanded": lambda: with_base(lambda x: x[:1].expand(3, 4)),
    "view of a view": lambda: with_base(lambda x: x.t()[1:].t()),
    "base behind its view": lambda: with_base(lambda x: x[1:])[::-1],
    "quiet row": lambda: quietly(lambda x: x[1]),
    "quiet and transposed": lambda: quietly(lambda x: x.t()),
    "quiet base behind": lambda: quietly(lambda x: x[:2])[::-1],
    "NumPy's memory": lambda: from_numpy(lambda a: a),
    "NumPy's row": lambda: from_numpy(lambda a: a[1:]),
    "NumPy's steps": lambda: from_numpy(lambda a: a[::-1]),
    "halves": lambda: two_of(lambda x: x[:3], lambda x: x[3:]),
    "slices that overlap": lambda: two_of(lambda x: x[:4], lambda x: x[2:]),
    "diagonal": lambda: with_base(lambda x: x[:, :3].diagonal()), "steps": lambda: with_base(lambda x: x.view(-1)[::2]),
    "columns in turn": lambda: two_of(lambda x: x[:, ::2], lambda x: x[:, 1::2]),
    "row and column": lambda: two_of(lambda x: x[0], lambda x: x[:, 0]),
    "windows": lambda: two_of(lambda x: x.reshape(-1).unfold(0, 4, 4), lambda x: x[1]),
    "a buffer of bytes": lambda: of_bytes(bytearray(48)),
}  # fmt: skip


def read_first(a, b):
    y, z = a * 2, b * 2
    a.add_(1)
    return y.sum(), z.sum(), a * 1, b * 1


def read_late(a, b):
    b.mul_(3)
    return a.sum() + b.sum(), a * 1


def in_turn(a, b):
    a.mul_(2)
    s = b.sum()
    b.add_(s)
    return a.sum(), s


def through_views(a, b):
    first, second = a.reshape(-1), b.reshape(-1)[:1]
    first.mul_(2)
    second.add_(1)
    return first.sum(), second * 1, a * 1


def only_read(a, b):
    return (a * 2).sum() + (b * b).sum()


def given_back(a, b):
    a.mul_(2)
    return b


def views_given_back(a, b):
    b.add_(1)
    return a[..., :1], b.t()


FUNCTIONS = [read_first, read_late, in_turn, through_views, only_read, given_back, views_given_back]


def outcome(run, a, b):
    try:
        result = run(a, b)
    except RuntimeError:
        return "refused"
    return [t.numpy().copy() for t in (*(result if isinstance(result, tuple) else (result,)), a, b)]


def check(expected, found):
    if "refused" in (expected, found):
        assert expected == found
        return
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-6)


@pytest.fixture(autouse=True, params=["numpy", "native"])
def executable(request, monkeypatch):
    monkeypatch.setattr(compiler, "available", lambda known=compiler.available: request.param != "numpy" and known())


@pytest.mark.parametrize("way", SHARING)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_arguments(function, way):
    a, b = SHARING[way]()

    def separate():
        return a.detach().clone(), b.detach().clone()

    for order in ("separate first", "sharing first"):
        step = gl.compile(function)
        calls = [SHARING[way], SHARING[way], separate, separate, SHARING[way]]
        for make in calls if order == "sharing first" else [separate, separate, *calls]:
            check(outcome(function, *make()), outcome(step, *make()))


@pytest.mark.parametrize("way", SHARING)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("captured", [0, 1])
def test_an_argument_and_a_captured_tensor(function, captured, way):
    def outcomes(compiled):
        held, given = SHARING[way]()[:: -1 if captured else 1]
        apart = given.detach().clone()
        ran = (lambda x: function(x, held)) if captured else (lambda x: function(held, x))
        run = gl.compile(ran) if compiled else ran
        return [outcome(lambda x, _: run(x), x, held) for x in (apart, apart, given, given, apart)]

    for expected, found in zip(outcomes(False), outcomes(True), strict=True):
        check(expected, found)
        if expected == "refused":  # eagerly what came before the error has been done, a trace that fails does nothing
            break


@pytest.mark.parametrize("way", SHARING)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_two_captured_tensors(function, way):
    def outcomes(compiled):
        a, b = SHARING[way]()
        run = gl.compile(lambda: function(a, b)) if compiled else lambda: function(a, b)
        return [outcome(lambda *_: run(), a, b) for _ in range(4)]

    for expected, found in zip(outcomes(False), outcomes(True), strict=True):
        check(expected, found)
        if expected == "refused":  # eagerly what came before the error has been done, a trace that fails does nothing
            break


@pytest.mark.parametrize("way", SHARING)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_traced_programs(function, way):
    """A trace cannot run the function again: it is right, or refuses."""
    a, b = SHARING[way]()
    try:
        program = gl.jit.trace(function, (a.detach().clone(), b.detach().clone()), check_trace=False)
    except RuntimeError:
        assert outcome(function, a.detach().clone(), b.detach().clone()) == "refused"
        return
    for _ in range(2):
        found = outcome(program, *SHARING[way]())
        if found != "refused" or way in ("apart", "halves") or function is only_read:
            check(outcome(function, *SHARING[way]()), found)


def test_a_parameter_and_an_argument_that_views_it():
    layer = nn.Linear(3, 2)
    optimizer = gl.optim.SGD(layer.parameters(), lr=0.5)

    def step(x, w):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()
        return w.sum()

    compiled = gl.compile(step)
    x, apart = gl.ones(4, 3), gl.zeros(2, 3)
    for w in (apart, apart, layer.weight.detach(), layer.weight.data[0], apart, layer.weight.detach()[:, 1:]):
        before = w.sum().item()
        found = compiled(x, w).item()
        assert found == pytest.approx(w.sum().item())
        assert w is apart or found != before


def test_programs_stay_where_memory_is_apart():
    """Two parts of one buffer, and batches of one array, are as good as tensors of their own."""
    total = gl.zeros(4)

    def add(state, x):
        state.add_(x.sum(0))
        total.add_(x.sum(0))
        return total * 1

    step = gl.compile(add)
    state, data = gl.zeros(2, 4), gl.ones(12, 4)
    for i in range(4):
        step(state[0], data[3 * i : 3 * i + 3])
    assert len(step.programs) == 1 and total.tolist() == [12.0] * 4 and state.tolist() == [[12.0] * 4, [0.0] * 4]


def test_what_cannot_be_followed_is_said_once():
    def write(a, b):
        a.add_(1)
        return b.sum()

    step = gl.compile(write)
    with pytest.warns(UserWarning, match="share memory.*run eagerly") as found:
        for _ in range(4):
            x = gl.zeros(4)
            assert step(x[:3], x[1:]).item() == 2.0
    assert len(found) == 1


# ---------------------------------------------------------------- arguments that are results of recorded operations


def doubled(x):
    x.mul_(2)
    return (x * x).sum()


def part_set(x):
    x[1] = 5.0
    return (x * x).sum()


def through_a_view(x):
    x.view(-1)[:2].add_(1.0)
    return (x * x).sum()


def returned(x):
    x.mul_(2)
    return x


def quietly_doubled(x):
    with gl.no_grad():
        x.mul_(2)
    return (x * x).sum()


WAYS_OF = ("compiled", "traced", "traced for a result")
WRITTEN = [(writer, way) for writer in (doubled, part_set, through_a_view, returned) for way in WAYS_OF]


@pytest.mark.parametrize(("writer", "way"), [*WRITTEN, (quietly_doubled, "compiled")])
def test_an_argument_with_a_graph_is_written(writer, way):
    w = gl.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def outcome(function):
        y = w * 3.0
        result = function(y)
        found = gl.autograd.grad(result.sum() + y.sum(), w)[0]
        return [result.tolist(), y.tolist(), found.tolist()]

    example = w.detach() if way == "traced" else w * 1.0
    run = gl.compile(writer) if way == "compiled" else gl.jit.trace(writer, (example,))
    expected = outcome(writer)
    for _ in range(3):
        assert outcome(run) == expected


def test_a_trace_warns_of_what_is_written_under_no_grad():
    with pytest.warns(UserWarning, match="under no_grad"):
        gl.jit.trace(quietly_doubled, (gl.ones(3),))


def test_a_leaf_that_is_written_is_refused():
    w = gl.ones(3, requires_grad=True)
    for run in (doubled, *[gl.compile(doubled)] * 2, gl.jit.trace(doubled, (gl.ones(3),))):
        with pytest.raises(RuntimeError, match="leaf"):
            run(w)


def test_a_parameter_reaches_what_is_written():
    scale = nn.Parameter(gl.full((3,), 2.0))

    class Scaling(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = scale

        def forward(self, x):
            x.mul_(self.scale)
            return x.sum()

    for run in (Scaling(), *[gl.jit.trace(Scaling(), (gl.ones(3),))] * 3, *[gl.compile(Scaling())] * 3):
        x = gl.ones(3)
        result = run(x)
        (found,) = gl.autograd.grad(result + x.sum(), list(run.parameters()) if hasattr(run, "parameters") else [scale])
        assert found.tolist() == [2.0, 2.0, 2.0]
