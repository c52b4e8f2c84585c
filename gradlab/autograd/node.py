"""The graph: a Node for each recorded operation, Edges between them, AccumulateGrad at the leaves."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from gradlab import call_site
from gradlab.autograd.base import LEAF, Differentiable, Version, meta_of
from gradlab.autograd.hooks import Adding, Hooks, RemovableHandle, add_hook, hooks_of, replaced
from gradlab.op import Op

next_sequence = itertools.count(1).__next__


class Edge(NamedTuple):
    """Points to output number `index` of the operation `node`."""

    node: Any
    index: int  # type: ignore[assignment]


class _Spent(tuple[Any, ...]):
    __slots__ = ()


SPENT = _Spent()  # what a node that keeps nothing has kept, when backward has run through it


class Node:
    """One recorded operation. Call it with the gradient of its output (of each output) for its inputs' gradients.

    `edges` holds for each input None, a leaf Tensor, a Node (single output) or an Edge; `next_functions` shows them as Edges.
    """

    __slots__ = (
        "__weakref__", "code", "edges", "hooks", "lasti", "output_specs", "params", "saved", "scope", "seq", "specs", "versions",
    )  # fmt: skip
    op: Op
    tensor_class: type  # what outputs and gradients are made of; set by record.adopt
    plans: dict[int, Any]  # what to keep, by which inputs need a gradient (a bit each); see formulas.plan_of
    targets: frozenset[int]  # positions of the inputs that have a gradient formula
    packing: type[Node] | None = None  # the class for nodes recorded under saved_tensors_hooks; see formulas.packing
    narrow: type[Node] | None = None  # the class for nodes of half types; see formulas.narrow
    conjugate: type[Node] | None = None  # the class for nodes of complex results; see formulas.conjugate
    count = 1  # number of outputs
    index = 0
    edges: tuple[Any, ...]
    saved: tuple[Any, ...] | None  # what backward needs: inputs as Tensors, outputs as raw arrays; None once it was freed
    seq: int
    hooks: Hooks | None
    params: dict[str, Any]
    specs: Any
    output_specs: tuple[Any, ...]
    versions: dict[int, Version] | None  # of kept outputs that somebody else can write
    scope: Any  # with `code` and `lasti`, the place of the call: see position.py
    code: Any
    lasti: int

    @property
    def node(self) -> Node:
        return self

    def name(self) -> str:
        """The name of the operation's backward, such as MulBackward0."""
        return type(self).__name__

    def back(self, g: Any) -> Any:
        """The inputs' gradients from the output's gradient `g` (a list for several outputs); None where there is none."""
        raise NotImplementedError

    def watch(self, index: int, version: Version) -> None:
        """Output `index` may be written in place from now on; remember its version if backward keeps that output."""
        if self.op.kept_outputs and self.op.outputs[index] in self.op.kept_outputs:
            known = getattr(self, "versions", None)
            self.versions = {**(known or {}), index: version}

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """The Edges to what made the inputs; AccumulateGrad for a leaf, (None, 0) where no gradient flows."""
        return tuple(public_edge(e) for e in self.edges)

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for the user's own notes on this node."""
        return _metadata.setdefault(self, {})

    @property
    def forward_position(self) -> call_site.Position | None:
        """The line of the user's code that called the operation."""
        return call_site.locate(self.code, self.lasti, self.scope)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)`, two tuples, after this node ran in a backward; a tuple it returns replaces the first."""
        return add_hook(hooks_of(self).after, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)`, a tuple, before this node runs in a backward; a tuple it returns replaces grad_outputs."""
        return add_hook(hooks_of(self).before, fn)

    def __call__(self, *gradients: Any) -> Any:
        if len(gradients) != self.count:
            raise TypeError(f"{self.name()} takes {self.count} gradient(s), one for each output, got {len(gradients)}")
        for gradient in gradients:
            if not (isinstance(gradient, Differentiable) or (gradient is None and self.count > 1)):
                raise TypeError(f"{self.name()}: a gradient is a tensor, not {type(gradient).__name__}")
        found = tuple(self.back(gradients[0] if self.count == 1 else list(gradients)))
        return found[0] if len(found) == 1 else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return import_module("gradlab.autograd.saved_names").saved(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        op = getattr(type(self), "op", None)
        return [*super().__dir__(), *([] if op is None else import_module("gradlab.autograd.saved_names").names(op))]

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


_metadata: weakref.WeakKeyDictionary[Node, dict[str, Any]] = weakref.WeakKeyDictionary()


class AccumulateGrad:
    """The end of a path: adds what arrives to `variable.grad`."""

    __slots__ = ("__weakref__", "variable")
    next_functions: tuple[Edge, ...] = ()
    index = 0

    def __init__(self, variable: Differentiable) -> None:
        self.variable = variable

    @property
    def node(self) -> AccumulateGrad:
        return self

    def name(self) -> str:
        return "AccumulateGrad"

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)`, a tuple of one, before a gradient is added, after the variable's own hooks; a tuple it returns replaces
        it. Not by `autograd.grad`, which adds nothing."""
        return self._before(fn, False)

    def _before(self, fn: Callable[..., Any], last: bool) -> RemovableHandle:
        def on_gradient(gradient: Any) -> Any:
            changed = fn((gradient,))
            return None if changed is None else replaced(changed, (gradient,), "pre-hook of AccumulateGrad")[0]

        meta = meta_of(self.variable)
        meta.hooks = {} if meta.hooks is None else meta.hooks
        if not callable(fn):
            raise TypeError(f"a hook is a function, not {type(fn).__name__}")
        return add_hook(meta.hooks, Adding(on_gradient, last))

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after a gradient was added: the first is empty, the second holds what was added."""
        arrived: list[Any] = []
        seen = self._before(lambda gradients: arrived.append(gradients[0]), True)

        def after(_: Any) -> None:
            fn((), (arrived.pop(),))
            arrived.clear()

        meta = meta_of(self.variable)
        meta.post_hooks = {} if meta.post_hooks is None else meta.post_hooks
        handle = add_hook(meta.post_hooks, Adding(after, True))
        handle.others = (seen,)
        return handle

    def __call__(self, gradient: Any) -> None:
        variable = self.variable
        if not isinstance(gradient, Differentiable) or gradient._array.shape != variable._array.shape:
            got = getattr(gradient, "shape", type(gradient).__name__)
            raise RuntimeError(f"AccumulateGrad: got {got}, but the variable has shape {variable._array.shape}")
        old = variable._grad
        variable._grad = gradient.detach().clone() if old is None else old + gradient  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def accumulator(leaf: Differentiable) -> AccumulateGrad:
    """The leaf's AccumulateGrad: the same object for as long as somebody holds it."""
    meta = meta_of(leaf)
    known = meta.accumulate() if meta.accumulate is not None else None
    if known is None:
        known = AccumulateGrad(leaf)
        meta.accumulate = weakref.ref(known)
    return known


def public_edge(edge: Any) -> Edge:
    """An entry of `Node.edges` as the user sees it."""
    if edge is None:
        return Edge(None, 0)
    if isinstance(edge, Differentiable):
        return Edge(accumulator(edge), 0)
    return Edge(edge.node, edge.index)


def edge_to(tensor: Differentiable) -> Any:
    """What a node that uses `tensor` keeps of it: None, the leaf itself, or its edge."""
    edge = tensor._edge
    return tensor if edge is LEAF else edge


def node_class(op: Op) -> type[Node]:
    """The Node subclass of a row, named as PyTorch names it: `mul` gives MulBackward0, `log_softmax` LogSoftmaxBackward0."""
    title = "".join(part[:1].upper() + part[1:] for part in op.name.split("_"))
    return type(f"{title}Backward0", (Node,), {"__slots__": (), "op": op, "count": len(op.outputs)})
