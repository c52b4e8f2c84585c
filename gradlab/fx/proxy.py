"""Proxies: what stands for a value while a program is traced, and notes in a graph what is done with it."""

from __future__ import annotations

import dis
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from gradlab.fx.code import BINARY, UNARY
from gradlab.fx.graph import Graph
from gradlab.fx.node import Argument, Node, Target, map_aggregate
from gradlab.overrides import note
from gradlab.tensor import Tensor


class TraceError(ValueError):
    """A program does something with a proxy that depends on its value."""


class TracerBase:
    """Notes calls as nodes of `graph`. A subclass may override each of its methods."""

    graph: Graph
    record_stack_traces = False

    def create_node(
        self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument], name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """The node of a call, at the graph's place of insertion."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.record_stack_traces:
            node.stack_trace = "".join(traceback.format_stack(_user_frame()))
        return node

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node's result."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:  # fmt: skip
        """Note a call, whose arguments may hold proxies, and return what stands for its result."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node: proxies become their nodes. NotImplementedError for what a graph cannot hold."""
        return map_aggregate(a, self._one_arg)

    def _one_arg(self, a: Any) -> Argument:
        if isinstance(a, range):
            return range(*(self._one_arg(part) for part in (a.start, a.stop, a.step)))
        return a.node if isinstance(a, Proxy) else a

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a proxy: TraceError, unless a subclass knows better."""
        raise TraceError(
            f"symbolic tracing: a condition depends on the value of {obj.node}, which has none yet; compute both cases and choose with "
            f"gl.where, give the argument in concrete_args, or keep the function whole with fx.wrap"
        )

    def iter(self, obj: Any) -> Iterator[Any]:
        """The parts of a proxy where it is unpacked into a number of names: TraceError elsewhere, since their number is not known."""
        frame = sys._getframe(2)
        found = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
        if found is not None and found.opname == "UNPACK_SEQUENCE":
            return iter([obj[i] for i in range(int(found.argval))])
        raise TraceError(f"symbolic tracing: a loop goes over {obj.node}, whose length is not known; index it, or unpack it into names")

    def keys(self, obj: Proxy) -> Any:
        """What `proxy.keys()` is: a proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Notes what is done with proxies in a graph that is there already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Stands for the result of a node: operators, methods, attributes, and public functions that get it become nodes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # protocols that a proxy has not
            raise AttributeError(f"a Proxy has no {name}")
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError("symbolic tracing: len() gives a number; take x.shape[0] or x.size(0), or keep it whole with fx.wrap('len')")

    def __index__(self) -> int:
        raise TraceError(f"symbolic tracing: {self.node} is used as a number; it has none yet")

    __int__ = __float__ = __index__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TraceError(f"symbolic tracing: {self.node} is given to NumPy; it has no values yet")

    def __contains__(self, item: Any) -> bool:
        raise TraceError(f"symbolic tracing: `in` asks for the values of {self.node}; it has none yet")

    def keys(self) -> Any:
        """As `TracerBase.keys` says."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
        tracer = found[0].tracer
        name = getattr(func, "__name__", "")
        if getattr(Tensor, name, None) is func:
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


class Attribute(Proxy):
    """An attribute of a proxy: a call of it is a method's, anything else takes the attribute."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that takes the attribute, made when it is first needed."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        assert self._node is not None
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _forward(function: Any) -> Any:
    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    return method


def _backward(function: Any) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    return method


for _name in (*BINARY, *UNARY, "getitem"):  # `y += 1` is an addition: names are bound anew
    setattr(Proxy, f"__{_name.rstrip('_')}__", _forward(getattr(operator, _name)))
for _name in BINARY:
    if _name not in ("eq", "ne", "lt", "gt", "le", "ge"):
        setattr(Proxy, f"__r{_name.rstrip('_')}__", _backward(getattr(operator, _name)))
for _name in ("abs", "round"):
    setattr(Proxy, f"__{_name}__", _forward({"abs": operator.abs, "round": round}[_name]))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]  # it has an __eq__ of its own
note(Proxy)


def _user_frame() -> FrameType | None:
    """The innermost frame that is not of the tracer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("gradlab.fx", "gradlab.overrides")):
        frame = frame.f_back
    return frame
