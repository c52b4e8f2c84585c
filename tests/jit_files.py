"""Program files, and files that are nearly such: for test_jit_fuzz.py, and by hand for many cases:

    python tests/jit_files.py CASES [SEED [NATIVE]]

prints what became of them. NATIVE: one in so many programs that still load also runs as machine code.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import struct
import sys
import traceback
from collections import Counter
from copy import deepcopy

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.graph.ir.dims import evaluate, expression_of, symbols
from gradlab.jit.portable import KEY, LoadError
from gradlab.jit.reader import from_bytes
from gradlab.jit.writer import to_bytes
from gradlab.utils.serialization import checksum

LIMIT = 1 << 28  # bytes that a program may ask for
CLEAN = (ValueError, TypeError, IndexError, RuntimeError)
SIZES = {"batch": 3, "time": 4}


def flow(x, n):
    y = gl.cond(x.sum() > 0, lambda v: v * 3, lambda v: -v, (x,))
    last, stacked = gl.scan(lambda c, v: (c + v, c * v), x[0], y)
    return last, stacked.flip(0), gl.switch(n, [lambda v: v, lambda v: v.exp()], (y,))


def loop(x):
    return gl.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (gl.tensor(0), x))[1]


def picking(x, at):
    y = x[at]
    z = x.gather(1, at.unsqueeze(1))
    return gl.cat([y, y[:, 1:]], 1).topk(2, 1), gl.where(z > 0, z, z * 0.5), x.index_put((at,), y, accumulate=True), y.sort(1)


def shapes(x):
    y = x.reshape(2, -1).T.contiguous().view(-1, 4)[1:, ::2]
    return gl.nn.functional.pad(y, (1, 1)), y.unsqueeze(1).expand(-1, 3, -1), x.unfold(0, 2, 1), y.cumsum(0), x.std(1), x.softmax(1)


def slope(x):
    leaf = x.detach().requires_grad_()
    return gl.autograd.grad(gl.nn.functional.max_pool2d(leaf, 2).sum(), leaf)[0]


def programs():
    """Programs by name."""
    gl.manual_seed(0)
    image = gl.randn(2, 3, 8, 8)
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3))
    tokens = gl.tensor([[1, 2, 0], [4, 3, 3]])
    text = nn.Sequential(nn.Embedding(5, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), nn.Linear(8, 5))
    mlp = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
    return {
        "mlp": gl.jit.trace(mlp, (gl.randn(3, 4),), dynamic={0: {0: "batch"}}),
        "cnn": gl.jit.trace(nn.Sequential(*layers), (image,)),
        "lstm": gl.jit.trace(nn.LSTM(3, 4), (gl.randn(2, 2, 3),)),
        "text": gl.jit.trace(text, (tokens,)),
        "flow": gl.jit.trace(flow, (gl.randn(4), gl.tensor(1))),
        "loop": gl.jit.trace(loop, (gl.randn(3),)),
        "picking": gl.jit.trace(picking, (gl.randn(5, 5), gl.tensor([0, 4, 1, 2, 3]))),
        "shapes": gl.jit.trace(shapes, (gl.randn(4, 4),)),
        "random": gl.jit.trace(lambda x: x + gl.randn(3) * gl.rand(3, generator=gl.Generator()), (gl.randn(3),)),
        "slope": gl.jit.trace(slope, (image,)),
    }


def contents():
    """The files of `programs`."""
    return {name: to_bytes(p._plan, p.tensors()) for name, p in programs().items()}


# ---------------------------------------------------------------- mutations


def taken_apart(content):
    """The header, the program in it, and the bytes of the tensors."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"][checksum.KEY]  # whoever changes a file on purpose takes it away
    return header, json.loads(header["__metadata__"][KEY]), content[8 + length :]


def together(header, outline, data):
    """The inverse of `taken_apart`."""
    header["__metadata__"][KEY] = outline if isinstance(outline, str) else json.dumps(outline)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def places(tree, found):
    """Every (container, key) of a JSON tree."""
    for key in range(len(tree)) if isinstance(tree, list) else list(tree):
        found.append((tree, key))
        if isinstance(tree[key], (list, dict)):
            places(tree[key], found)
    return found


def deep(rng):
    value = 1
    for _ in range(rng.choice((10, 40, 200))):
        value = {"tuple": [value]} if rng.random() < 0.5 else [value]
    return value


def replaced(rng, old, every):
    """Something else in the place of a JSON value."""
    pick = rng.randrange(10)
    if pick == 0 and type(old) is int:
        return old + rng.choice((-1, 1, 2, 100, -100, 1 << 31, 1 << 45, -(1 << 63)))
    if pick == 1 and type(old) is str:
        return rng.choice(
            (old + "x", old[:-1], "%0", "%1", "%3", "float32", "float16", "int64", "bool", "batch", "matmul", "view", "expand", "")
        )
    if pick < 5:
        tree, key = rng.choice(every)
        return deepcopy(tree[key])
    if pick == 5:
        return deep(rng)
    if pick == 6:
        return rng.choice((0, 1, -1, 2, 7, 1 << 40, 1 << 62, 1 << 64, 10**30, -(1 << 40), 0.5, -0.0, 1e300, True, False, None, ""))
    if pick == 7:
        kinds = (
            {"float": "nan"},
            {"float": "inf"},
            {"dtype": "int32"},
            {"dtype": "complex32"},
            {"device": "cuda"},
            {"tuple": []},
            {"slice": [0, 1, 2]},
        )
        return rng.choice(
            (*kinds, {"size": "batch"}, {"size": ["pow", "batch", 9]}, {"size": ["floordiv", 1, 0]}, {"size": ["add", "batch", -3]}, [], {})
        )
    if pick == 8 and type(old) in (int, float):
        return type(old)(rng.choice((old * 2, old * 1000, -old, old / 2)))
    return rng.choice((0, 1, 2, 3, 4, 5, 8))


def edited(rng, tree):
    """Change a JSON tree in a few places."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        every = places(tree, [])
        if not every:
            return
        tree_, key = rng.choice(every)
        pick = rng.random()
        if pick < 0.1:
            del tree_[key]
        elif pick < 0.2 and isinstance(tree_, list):
            tree_.insert(key, deepcopy(tree_[rng.randrange(len(tree_))]))
        elif pick < 0.3 and isinstance(tree_, list):
            other = rng.randrange(len(tree_))
            tree_[key], tree_[other] = tree_[other], tree_[key]
        else:
            tree_[key] = replaced(rng, tree_[key], every)


def mutated(rng, content):
    """A file like `content`, but for something."""
    kind = rng.random()
    if kind < 0.15:
        raw = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        return bytes(raw)
    if kind < 0.22:
        return content[: rng.randrange(len(content))] if rng.random() < 0.8 else content + bytes(rng.randrange(100))
    if kind < 0.25:
        return struct.pack("<Q", rng.choice((0, 1, 7, 8, len(content), 1 << 31, 1 << 62, (1 << 64) - 1))) + content[8:]
    header, outline, data = taken_apart(content)
    if kind < 0.35:
        edited(rng, header)
        with contextlib.suppress(TypeError, KeyError):
            return together(header, header["__metadata__"][KEY], data)
        return json.dumps(header).encode()
    if kind < 0.37:
        text = json.dumps(outline)
        return together(
            header, rng.choice((text[:-1], text.replace("1", "NaN", 1), "[" * 100_000, "null", "9" * 5000, text.replace(":", ",", 1))), data
        )
    if kind < 0.6 and outline["calls"]:  # parameters and inputs alone, and then the results that the rules ask for
        for _ in range(rng.choice((1, 1, 2, 3))):
            call = rng.choice(outline["calls"])
            edited(rng, rng.choice((call[1], call[2], outline["inputs"])))
        return repaired(header, outline, data)
    edited(rng, outline)
    return together(header, outline, data)


RESULT = re.compile(r"call (\d+), .*: the file says .* of its result %(\d+), and the row's rule (\w+)\[([\d, ]*)\]$")


def repaired(header, outline, data):
    """The file with results that agree with the rules, so that what was changed gets further."""
    for _ in range(30):
        content = together(header, outline, data)
        try:
            from_bytes(content, max_bytes=LIMIT)
        except LoadError as error:
            found = RESULT.search(str(error))
            if found is None or int(found[1]) >= len(outline["calls"]):
                break
            for value in outline["calls"][int(found[1])][3]:
                if isinstance(value, list) and value[0] == int(found[2]):
                    value[1:] = [found[3], [int(n) for n in found[4].split(",") if n.strip()]]
        except Exception:  # this is for `attempt` to find
            break
        else:
            break
    return content


# ---------------------------------------------------------------- what becomes of them


def arguments(program, rng):
    """Tensors that fit the program's inputs; None where they would be large."""
    found = []
    for value in program._plan.graph.inputs:
        try:
            shape = [int(evaluate(expression_of(s), {n: SIZES.get(n, 2) for n in symbols(expression_of(s))})) for s in value.spec.shape]
        except (ArithmeticError, TypeError):
            return None
        if np.prod(shape, dtype=float) > 1e5 or min(shape, default=0) < 0:
            return None
        raw = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 5, shape)
        found.append(gl.from_numpy(raw.astype(value.spec.dtype)))
    return found


def runs(program, rng, native):
    """Run a program that was loaded, as often as machine code takes to be tried."""
    given = arguments(program, rng)
    if given is None or any(c.op.name == "while_loop" for c in program.graph.calls):
        return "loaded, not run"
    waiting = iter(given)
    args = program._plan.arguments

    def built(s):
        if s == "tensor":
            return next(waiting)
        ((kind, content),) = s.items()
        if kind == "dict":
            return {k: built(p) for k, p in zip(*content, strict=True)}
        if kind in ("list", "tuple"):
            return [built(p) for p in content] if kind == "list" else tuple(built(p) for p in content)
        raise ValueError("not built here")

    try:
        parts = built(args)
        for _ in range(2 if native else 1):  # the first call runs row by row
            with gl.no_grad():
                program(*parts)
    except CLEAN as error:
        return f"run: {type(error).__name__}"
    return "ran as machine code" if native and not program._plan.careful else "ran"


class Hang(BaseException):
    """A case took too long."""


def attempt(content, rng, native=False):
    """What became of one file: text. Raises what is no clean error."""
    try:
        program = from_bytes(content, max_bytes=LIMIT)
    except LoadError:
        return "refused"
    return runs(program, rng, native)


def fuzz(cases, seed=0, every=0):
    """Many cases; what became of them, and the first that went wrong."""
    files = list(contents().values())
    rng = random.Random(seed)
    outcomes = Counter()
    wrong = []

    def late(*_):
        raise Hang

    signal.signal(signal.SIGALRM, late)
    for i in range(cases):
        try:
            content = mutated(rng, rng.choice(files))
        except RecursionError:  # the maker's, not the reader's
            continue
        signal.alarm(20)
        try:
            outcomes[attempt(content, rng, bool(every) and i % every == 0)] += 1
        except (Exception, Hang) as error:
            outcomes[f"WRONG: {type(error).__name__}"] += 1
            if len(wrong) < 5:
                wrong.append((i, traceback.format_exc(limit=-6)))
        finally:
            signal.alarm(0)
    return outcomes, wrong


def main(cases, seed=0, every=0):
    outcomes, wrong = fuzz(cases, seed, every)
    for i, text in wrong:
        print(f"case {i} of seed {seed}:\n{text}")
    print(json.dumps(dict(outcomes.most_common())))
    return 1 if wrong else 0


if __name__ == "__main__":
    import resource

    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    sys.exit(main(*map(int, sys.argv[1:])))
