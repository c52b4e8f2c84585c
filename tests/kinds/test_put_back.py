"""What a trace has changed of modules, optimizers and places is found, said and put back: each change that there can be, alone."""

import copy
from collections import OrderedDict, defaultdict
from types import SimpleNamespace

import pytest

import gradlab as gl
from gradlab import nn, optim
from gradlab.graph.guards import module_state, sources

OPTIMIZERS = {
    "Adadelta": optim.Adadelta, "Adagrad": optim.Adagrad, "Adam": optim.Adam, "AdamW": optim.AdamW, "Adamax": optim.Adamax,
    "NAdam": optim.NAdam, "RAdam": optim.RAdam, "RMSprop": optim.RMSprop, "Rprop": optim.Rprop, "Adafactor": optim.Adafactor,
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
}  # fmt: skip
TO_STATE = {
    "an entry is another": lambda entries, key: entries.__setitem__(key, object()),
    "an entry is gone": lambda entries, key: entries.pop(key),
    "an entry more": lambda entries, key: entries.__setitem__("more", 1),
    "all entries are gone": lambda entries, key: entries.clear(),
}


def stepped(kind):
    weights = [nn.Parameter(gl.ones(2, 3)), nn.Parameter(gl.ones(3))]
    optimizer = OPTIMIZERS[kind](weights)
    sum((w * w).sum() for w in weights).backward()
    optimizer.step()
    return optimizer, weights


def kept(optimizer):
    return {p: dict(entries) for p, entries in optimizer.state.items()}, [dict(g) for g in optimizer.param_groups]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizers_state(kind):
    for word, change in {**TO_STATE, "nothing": None, "a parameter is gone": None, "a parameter more": None}.items():
        optimizer, weights = stepped(kind)
        state, groups = kept(optimizer)
        tables = dict(optimizer.state)
        if word == "a parameter is gone":
            del optimizer.state[weights[1]]
        elif word == "a parameter more":
            optimizer.state[nn.Parameter(gl.ones(1))] = {"step": 1}
        elif change is not None:
            change(optimizer.state[weights[1]], next(iter(state[weights[1]])))
        said = module_state.reset_optimizer(optimizer, state, groups)
        assert said == ([f"the state of {type(optimizer).__name__}"] if word != "nothing" else []), word
        found, _ = kept(optimizer)
        assert found.keys() == state.keys(), word
        for p, entries in state.items():
            assert list(found[p]) == list(entries)
            assert all(found[p][k] is v for k, v in entries.items())
            assert word == "a parameter is gone" or optimizer.state[p] is tables[p]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizers_settings(kind):
    optimizer, _ = stepped(kind)
    state, groups = kept(optimizer)
    for key in groups[0]:
        if key == "params":
            continue
        optimizer.param_groups[0][key] = "another"
        assert module_state.reset_optimizer(optimizer, state, groups) == [f"{type(optimizer).__name__}'s {key}"]
        assert kept(optimizer)[1] == groups


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.w, self.count = nn.Linear(2, 2), nn.Parameter(gl.ones(2)), 3
        self.register_buffer("seen", gl.zeros(1))
        self.lines = [1, 2]


TO_MODULE = {
    "count": lambda m: setattr(m, "count", 4),
    "lines": lambda m: m.lines.append(3),
    "new": lambda m: setattr(m, "new", 1),
    "training": lambda m: m.train(False),
    "w": lambda m: setattr(m, "w", nn.Parameter(gl.zeros(2))),
    "seen": lambda m: setattr(m, "seen", gl.ones(1)),
    "inner": lambda m: setattr(m, "inner", nn.Identity()),
    "bias": lambda m: m.register_parameter("bias", None),
    "lost": lambda m: delattr(m, "count"),
    "lost w": lambda m: delattr(m, "w"),
    "lost seen": lambda m: delattr(m, "seen"),
    "hook": lambda m: m.register_forward_hook(print),
    "hook before": lambda m: m.register_forward_pre_hook(print),
}


@pytest.mark.parametrize("change", TO_MODULE)
def test_a_modules_state(change):
    made = Net()
    made.register_full_backward_hook(lambda *_: None)
    known = made.__dict__
    plain = {k: (copy.copy(v), module_state.freeze(v)) for k, v in module_state.attributes_of(made, frozenset()).items()}
    tables = {t: dict(known[t]) for t in (*module_state.TABLES, *module_state.HOOKS)}
    assert list(module_state.changes_of(made, plain, tables, frozenset())) == []
    TO_MODULE[change](made)
    found = [key for key, _, _ in module_state.changes_of(made, plain, tables, frozenset())]
    assert len(found) == 1
    assert found[0] == {"lost": "count", "lost w": "w", "lost seen": "seen"}.get(change, change) or "hook" in change
    module_state.restore(made, plain, tables, frozenset())
    assert list(module_state.changes_of(made, plain, tables, frozenset())) == []
    assert made.count == 3
    assert made.lines == [1, 2]
    for table, entries in tables.items():
        assert known[table].keys() == entries.keys()
        assert all(known[table][k] is v for k, v in entries.items())


def test_a_modules_place_that_may_change_stays():
    made = Net()
    known = made.__dict__
    tables = {t: dict(known[t]) for t in module_state.TABLES}
    held = frozenset({(id(known["_buffers"]), "seen"), (id(known), "count")})
    now = made.seen = gl.ones(1)
    made.w = nn.Parameter(gl.zeros(2))
    made.count = 9
    plain = {"lines": ([1, 2], module_state.freeze([1, 2]))}
    assert "seen" not in [key for key, _, _ in module_state.changes_of(made, plain, tables, held)]
    module_state.restore(made, {}, {"_buffers": tables["_buffers"] | {"more": None}}, held)
    assert made._buffers["seen"] is now
    assert made.count == 9


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda e: defaultdict(int, e), list, "object", "cell"])
def test_a_place(kind):
    """A step reads what a place holds, GONE for nothing, and it is put back."""
    if kind == "object":
        root, path, write, lose = SimpleNamespace(k=2), ("k",), lambda: setattr(root, "k", 5), lambda: delattr(root, "k")
    elif kind == "cell":
        number = 2
        root = (lambda: number).__closure__[0]
        path, write, lose = (sources.CELL,), lambda: setattr(root, sources.CELL, 5), lambda: delattr(root, sources.CELL)
    else:
        key = 0 if kind is list else "k"
        root = kind([2]) if kind is list else kind({"k": 2})
        path, write, lose = (sources.Item(key),), lambda: root.__setitem__(key, 5), lambda: root.__delitem__(key)
    held = {"outer": root}
    whole = (sources.Item("outer"), *path)
    assert sources.resolve(root, path) == sources.resolve(held, whole) == 2
    write()
    assert sources.resolve(root, path) == 5
    sources.put_back(held, whole, 2)
    assert sources.resolve(root, path) == 2
    lose()
    assert sources.resolve(root, path) is sources.resolve(held, whole) is sources.GONE
    if kind is not list:
        write()
        sources.put_back(held, whole, sources.GONE)
        assert sources.resolve(root, path) is sources.GONE
    if isinstance(root, defaultdict):
        assert not root, "looking makes no entries"
