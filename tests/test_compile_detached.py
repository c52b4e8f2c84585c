"""Tensors that share memory outside a graph (`detach()`, views under `no_grad`), written in a compiled step: as eagerly."""

from __future__ import annotations

import itertools

import pytest

import gradlab as gl

WAYS = {
    "view": lambda b: b.view(3, 2),
    "view.detach": lambda b: b.view(3, 2).detach(),
    "detach": lambda b: b.detach(),
    "detach.view": lambda b: b.detach().view(3, 2),
    "of a new tensor": lambda b: (b * 2).view(3, 2).detach(),
    "of selected rows": lambda b: b.index_select(0, gl.tensor([1, 0])).view(3, 2).detach(),
    "part": lambda b: b.chunk(2)[0],
    "part.detach": lambda b: b.chunk(2)[1].detach(),
}
WRITES = {
    "of what has a gradient": lambda q, w, b: q.add_(w),
    "of a number": lambda q, w, b: q.mul_(3),
    "twice": lambda q, w, b: q.add_(w).mul_(w),
    "and then what it is of": lambda q, w, b: (q.add_(w), b.detach().mul_(2)),
    "of the same": lambda q, w, b: q.copy_(q * w),
}


def step(source, way, write, recorded):
    def run(x, r):
        y = r * 1
        b = {"argument": x, "leaf": r, "computed": y}[source]
        with gl.set_grad_enabled(recorded):
            q = WAYS[way](b)
        w = gl.linspace(1, 2, q.numel()).reshape(q.shape).requires_grad_()
        WRITES[write](q, w, b)
        found = [q * 1, b.detach() * 1, gl.tensor(q.requires_grad)]
        return [*found, *gl.autograd.grad((q * q).sum(), w)] if q.requires_grad and q.grad_fn is not None else found

    return run


@pytest.mark.parametrize("way", WAYS)
def test_a_write_gives_it_a_graph_of_its_own(way):
    for source, write, recorded in itertools.product(("argument", "leaf", "computed"), WRITES, (False, True)):
        function = step(source, way, write, recorded)
        compiled, found = gl.compile(function), []
        for run in (function, compiled, compiled, compiled):
            x, r = gl.arange(6.0).reshape(2, 3), gl.arange(6.0).reshape(2, 3).requires_grad_()
            try:
                found.append([t.tolist() for t in (*run(x, r), x, r)])
            except RuntimeError:
                found.append("refused")
        assert found.count(found[0]) == 4 or (way == "detach.view" and recorded), f"{source}, {write}, recorded: {recorded}"
