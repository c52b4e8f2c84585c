"""Random programs: compiled they give what they give eagerly, with what they write, what shares memory, and their gradients.

A program is a list of instructions over a growing list of tensors, drawn from a seed while it runs eagerly; an instruction that eager mode
refuses is left out. `--full` runs many more seeds. To look at one: `python tests/test_compile_fuzz.py SEED`.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

import gradlab as gl
from gradlab.graph.native import build

F = gl.nn.functional
CALLS = 4
DTYPES = (gl.float32, gl.float32, gl.float64, gl.bfloat16, gl.float16)
SMOOTH = {
    "tanh": gl.tanh, "sigmoid": gl.sigmoid, "gelu": F.gelu, "silu": F.silu, "softplus": F.softplus, "sin": gl.sin, "neg": gl.neg,
    "exp": lambda x: x.clamp(-2, 2).exp(), "log": lambda x: (x.abs() + 0.5).log(), "sqrt": lambda x: (x.square() + 0.1).sqrt(),
    "erf": gl.erf, "clone": gl.clone, "reciprocal": lambda x: (x.square() + 0.7).reciprocal(), "half_square": lambda x: x * x * 0.5,
}  # fmt: skip
SHARP = {"relu": gl.relu, "abs": gl.abs, "sign": gl.sign, "floor": gl.floor, "clamp": lambda x: x.clamp(-0.6, 0.7), "leaky": F.leaky_relu}
BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / (b * b + 0.8),
    "maximum": gl.maximum, "where": lambda a, b: gl.where(a > b, a, b * 0.5), "lerp": lambda a, b: a + 0.25 * (b - a),
}  # fmt: skip
NUMBERS = {"times": lambda x, n: x * n, "plus": lambda x, n: x + n, "from": lambda x, n: n - x, "power": lambda x, n: (x.abs() + 0.2) ** n}
REDUCE = {
    "sum": lambda x, d, k: x.sum(d, k) * 0.3, "mean": lambda x, d, k: x.mean(d, k), "amax": lambda x, d, k: x.amax(d, k),
    "var": lambda x, d, k: x.var(d, correction=0, keepdim=k), "logsumexp": lambda x, d, k: x.logsumexp(d, k),
    "norm": lambda x, d, k: (x.square().sum(d, k) + 0.1).sqrt(),
}  # fmt: skip
ALONG = {
    "softmax": gl.softmax, "log_softmax": gl.log_softmax, "cumsum": lambda x, d: x.cumsum(d) * 0.4, "flip": lambda x, d: x.flip((d,)),
    "roll": lambda x, d: x.roll(1, d), "sorted": lambda x, d: x.sort(d).values, "layer_norm": lambda x, d: F.layer_norm(x, x.shape[-1:]),
    "pick": lambda x, d: x.index_select(d, gl.tensor([0, x.shape[d] - 1, 0])), "pad": lambda x, d: F.pad(x, (1, 0)),
    "doubled": lambda x, d: gl.cat([x, x * 0.5], d), "embedded": lambda x, d: F.embedding(gl.tensor([[0, 1], [1, 0]]), x.flatten(0, -2)),
}  # fmt: skip
VIEWS = {
    "t": lambda x, d: x.transpose(0, -1), "flat": lambda x, d: x.reshape(-1), "first": lambda x, d: x.select(d, 0),
    "every": lambda x, d: x[::2], "narrow": lambda x, d: x.narrow(d, x.shape[d] // 2, x.shape[d] - x.shape[d] // 2),
    "unsqueeze": lambda x, d: x.unsqueeze(d), "half": lambda x, d: x.chunk(2, d)[-1], "detach": lambda x, d: x.detach(),
    "diagonal": lambda x, d: x.diagonal(0, 0, -1), "wide": lambda x, d: x.unsqueeze(0).expand(2, *x.shape),
}  # fmt: skip
IN_PLACE = {
    "add_": lambda x, y: x.add_(y * 0.5), "mul_": lambda x, y: x.mul_(0.7), "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x, y: x.zero_(), "tanh_": lambda x, y: x.tanh_(),
    "clamp_": lambda x, y: x.clamp_(-0.5, 0.5), "fill": lambda x, y: x.__setitem__(0, 0.25),
    "set": lambda x, y: x.__setitem__((..., 0), y.mean()), "masked_fill_": lambda x, y: x.masked_fill_(y > 0.3, -0.2),
    "relu_": lambda x, y: F.relu(x, inplace=True),
}  # fmt: skip


def _apply(env, instruction):
    """What one instruction makes; None where it only writes."""
    kind, name, at, extra = instruction
    given = [env[i] for i in at]
    if kind in ("smooth", "sharp"):
        return (SMOOTH if kind == "smooth" else SHARP)[name](given[0])
    if kind == "binary":
        return BINARY[name](*given)
    if kind == "number":
        return NUMBERS[name](given[0], extra)
    if kind == "reduce":
        return REDUCE[name](given[0], *extra)
    if kind in ("along", "view"):
        return (ALONG if kind == "along" else VIEWS)[name](given[0], extra)
    if kind == "write":
        IN_PLACE[name](given[0], given[1])
        return None
    if kind == "quiet":
        with gl.no_grad():
            IN_PLACE[name](given[0], given[1])
        return None
    if kind == "product":
        return (given[0] @ given[1]) * 0.4
    if kind == "cast":
        return given[0].to(extra)
    if kind == "random":
        return F.dropout(given[0], 0.3) if name == "dropout" else given[0] + 0.1 * gl.randn_like(given[0])
    first, second = (lambda x, f=SMOOTH[n]: f(x) * 0.6 for n in extra)
    if kind == "cond":
        return gl.cond(given[0].sum() > 0.05, first, second, (given[0],))
    if kind == "switch":
        return gl.switch((given[0].mean() * 4).floor().to(gl.int64).abs(), [first, second], (given[0],))
    if kind == "while":
        with gl.no_grad():
            start = gl.zeros((), dtype=gl.int64)
            return gl.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, first(x)), (start, given[0]))[1]
    carry, ys = gl.scan(lambda h, x: (second(h + x), first(h) * x), given[0].new_zeros(given[0].shape[1:]), given[0])
    return carry if name == "carry" else ys


def _drawn(r, env, sharp, dtypes):
    """A random instruction."""
    pick = lambda: r.randrange(len(env))
    i = pick()
    dims = max(env[i].ndim, 1)
    kind = r.choice(
        ["smooth"] * 4 + ["binary"] * 5 + ["number"] * 2 + ["reduce"] * 2 + ["along"] * 2 + ["view"] * 4 + ["write"] * 3 + ["quiet"] * 2
        + ["product"] * 2 + ["random", "cond", "switch", "while", "scan", "cast"] + ["sharp"] * (2 * sharp)
    )  # fmt: skip
    if kind in ("smooth", "sharp"):
        return kind, r.choice(list(SMOOTH if kind == "smooth" else SHARP)), (i,), None
    if kind == "number":
        return kind, r.choice(list(NUMBERS)), (i,), r.choice([0, 1, 2, 0.5, -1, 1.5])
    if kind == "reduce":
        return kind, r.choice(list(REDUCE)), (i,), (r.randrange(dims), r.random() < 0.5)
    if kind in ("along", "view"):
        return kind, r.choice(list(ALONG if kind == "along" else VIEWS)), (i,), r.randrange(dims)
    if kind in ("write", "quiet", "binary"):
        return kind, r.choice(list(BINARY if kind == "binary" else IN_PLACE)), (i, pick()), None
    if kind == "product":
        return kind, "", (i, pick()), None
    if kind == "cast":
        return kind, "", (i,), r.choice(dtypes)
    return kind, r.choice(["dropout", "noise", "carry", "ys"]), (i,), (r.choice(list(SMOOTH)), r.choice(list(SMOOTH)))


class Case:
    """A program of a seed: its instructions, which tensors it returns, and how it is differentiated."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.seed = seed
        self.dtype = DTYPES[seed % len(DTYPES)]
        self.form = r.choice(["forward", "forward", "forward", "step", "grad", "twice"])
        self.loose = self.dtype not in (gl.float32, gl.float64)
        self.n, self.m = r.choice([(3, 4), (4, 4), (2, 5), (1, 3), (7, 8)])
        self.wants = r.random() < 0.5
        dtypes = (gl.float32, gl.float64) if not self.loose else (self.dtype, gl.float32)
        sharp = self.dtype is gl.float64
        env = self.start(*self.inputs(0))
        self.program = []
        for _ in range(r.randrange(3, 16)):
            instruction = _drawn(r, env, sharp, dtypes)
            try:
                made = _apply(env, instruction)
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue  # what the instruction wrote before it was refused is of no interest: inputs are made anew
            if made is not None and (made.numel() > 400 or made.numel() == 0):
                continue
            self.program.append(instruction)
            if made is not None:
                env.append(made)
        known = list(range(len(env)))
        self.returned = [r.choice(known[4:] or known), *r.choices(known, k=r.randrange(0, 4))]
        self.passes = r.choice([None, None, None, {"common_subexpressions": False, "rewrite": False, "drop_clones": False}])

    def state(self):
        """What the program uses besides its arguments."""
        gl.manual_seed(self.seed)
        w = (gl.randn(self.m, self.m) * 0.5).to(self.dtype).requires_grad_()
        return w, gl.randn(self.n, self.m).to(self.dtype)

    def inputs(self, call):
        """Arguments of a call, and the state."""
        gl.manual_seed(1000 * self.seed + call)
        x, v = gl.randn(self.n, self.m).to(self.dtype), gl.randn(self.m).to(self.dtype)
        return [x.requires_grad_(self.wants), v], list(self.state())

    @staticmethod
    def start(arguments, state):
        return [*arguments, *state]

    def total(self, tensors):
        parts = [t.double().mean() * (1 + i) for i, t in enumerate(tensors) if t.requires_grad and t.dtype.is_floating_point]
        return sum(parts[1:], parts[0]) if parts else None

    def run(self, wrap):
        """Everything that can be seen of several calls."""
        w, b = self.state()

        def function(x, v):
            env = [x, v, w, b]
            for instruction in self.program:
                made = _apply(env, instruction)
                if made is not None:
                    env.append(made)
            found = [env[i] for i in self.returned]
            if self.form == "step":
                total = self.total(found)
                if total is not None:
                    w.grad = None
                    total.backward()
                    with gl.no_grad():
                        w.sub_(w.grad * 0.1) if w.grad is not None else w.mul_(0.99)
                return [t.detach() for t in found]
            if self.form == "grad":
                total = self.total(found)
                targets = [t for t in (x, w) if t.requires_grad]
                if total is not None:
                    grads = gl.autograd.grad(total, targets, create_graph=True, allow_unused=True)
                    found += [g for g in grads if g is not None]
            return found

        call = wrap(function)
        seen, held = [], []
        for i in range(CALLS):
            (x, v), _ = self.inputs(i)
            gl.manual_seed(50 * self.seed + i)
            results = call(x, v)
            seen += [(f"call {i} result {j}", _copy(t)) for j, t in enumerate(results)]
            seen += [(f"call {i} result {j} requires grad", np.array(t.requires_grad)) for j, t in enumerate(results)]
            self.differentiate(i, results, [t for t in (x, w) if t.requires_grad and t.is_leaf], seen)
            w.grad = None
            for j, t in enumerate(results):  # what shares memory with what
                try:
                    t.detach().add_(0.25)
                except RuntimeError:
                    continue
                everything = [*results, x, v, w, b]
                seen += [(f"call {i} after writing result {j}: tensor {k}", _copy(u)) for k, u in enumerate(everything)]
                with gl.no_grad():
                    t.detach().sub_(0.25)
            held.append([t.detach() for t in results if all(t is not u for u in (x, v, w, b))])
        seen += [(f"held of call {i}: {j}", _copy(t)) for i, ts in enumerate(held) for j, t in enumerate(ts)]
        return seen

    def differentiate(self, i, results, targets, seen):
        total = None if self.form == "step" else self.total(results)
        if total is None or not targets:
            return
        grads = gl.autograd.grad(total, targets, create_graph=self.form == "twice", allow_unused=True)
        seen += [(f"call {i} gradient {j}", _copy(g)) for j, g in enumerate(grads) if g is not None]
        if self.form == "twice":
            again = self.total([g.square() for g in grads if g is not None])
            if again is not None:
                more = gl.autograd.grad(again, targets, allow_unused=True)
                seen += [(f"call {i} second gradient {j}", _copy(g)) for j, g in enumerate(more) if g is not None]


def _copy(t):
    return np.array(t.detach().double().numpy())


def differs(seed):
    """What differs between the eager and the compiled program of a seed; "" if nothing does, None if eager mode refuses the program."""
    case = Case(seed)
    try:
        eager = case.run(lambda f: f)
    except (RuntimeError, ValueError):
        return None
    try:
        compiled = dict(case.run(lambda f: gl.compile(f, passes=case.passes)))
    except NotImplementedError as error:
        if "writes it in place" in str(error):  # gradients of gradients through a program that does: refused, and documented
            return None
        raise
    choice = any(kind in ("cond", "switch", "scan") for kind, *_ in case.program)
    tolerance = 0.1 if case.loose else 1e-3 if case.dtype is gl.float32 else 1e-7
    for name, a in eager:
        if name not in compiled:
            return f"{name} is missing"
        b = compiled[name]
        if choice and name.endswith("requires grad"):  # eagerly it depends on the branch that is taken, and a gradient may be constant
            continue
        if a.shape != b.shape or not np.allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(a).max(initial=0)), equal_nan=True):
            return f"{name}: {a.ravel()[:4]} eagerly, {b.ravel()[:4]} compiled"
    for name in set(compiled).difference(n for n, _ in eager):
        # Eager mode refuses to write what is expanded, where the program may return a copy; the gradient of a branch not taken is zero.
        if "writing" not in name and compiled[name].any():
            return f"{name} is there, and not eagerly"
    return ""


def check(seeds):
    compared = 0
    for seed in seeds:
        found = differs(seed)
        compared += found is not None
        assert not found, f"seed {seed}: {found}"
    assert compared >= len(seeds) // 2


@pytest.fixture
def in_numpy(monkeypatch):
    """Nothing is compiled to machine code, which takes most of the time."""
    monkeypatch.setattr(build, "available", lambda: False)


@pytest.mark.parametrize("shard", range(4))
def test_random_programs_in_numpy(in_numpy, shard):
    check(range(100 + 20 * shard, 120 + 20 * shard))


@pytest.mark.parametrize("shard", range(2))
def test_random_programs_as_machine_code(shard):
    check(range(3 * shard, 3 + 3 * shard))


@pytest.mark.whole
@pytest.mark.parametrize("shard", range(40))
def test_many_random_programs_in_numpy(in_numpy, shard):
    check(range(1000 + 100 * shard, 1100 + 100 * shard))


@pytest.mark.whole
@pytest.mark.parametrize("shard", range(40))
def test_many_random_programs_as_machine_code(shard):
    check(range(10000 + 10 * shard, 10010 + 10 * shard))


if __name__ == "__main__":
    case = Case(int(sys.argv[1]))
    print(case.form, case.dtype, (case.n, case.m), "returns", case.returned, "passes", case.passes, "x requires grad", case.wants)
    for number, instruction in enumerate(case.program):
        print(number, instruction)
    print(differs(int(sys.argv[1])))
