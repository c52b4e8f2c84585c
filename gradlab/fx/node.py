"""Nodes: the calls of a graph, each with its arguments and, kept up to date, the nodes that use its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradlab.fx.immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from gradlab.fx.graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")
Target = Callable[..., Any] | str
Argument = Any  # a Node, a plain value, or tuples, lists, dicts and slices of them
_impure: set[Any] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Keep calls of this function in a graph, although nobody uses their result. Returns it, as a decorator."""
    _impure.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Argument:
    """The same nesting of tuples, lists, dicts and slices, with `fn` of everything in it."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(part, fn) for part in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Argument:
    """The same nesting, with `fn` of every Node in it."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def type_name(value: Any) -> str:
    """A function or class as a graph's text shows it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if name is None:
        return repr(value)
    return name if module in (None, "builtins") else f"{module}.{name}" if not module.startswith("gradlab") else f"gradlab.{name}"


class Node:
    """One line of a graph.

    op: "placeholder" (a parameter of forward; args hold its default), "get_attr" (an attribute of the module; target is its dotted name),
    "call_function", "call_module", "call_method" (of args[0]), or "output" (args[0] is returned).
    users: the nodes that use this one, as the keys of a dict. meta: whatever passes want to note. `node.args = …` updates users.
    """

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:  # fmt: skip
        if op not in OPS:
            raise ValueError(f"Node: op is one of {', '.join(OPS)}, not {op!r}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node: the target of a call_function is a function, not {target!r}")
        elif not isinstance(target, str):
            raise ValueError(f"Node: the target of a {op} is a name, not {target!r}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._prev = self._next = self
        self._erased = False
        self._set(args, kwargs)

    # ------------------------------------------------------------ arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """What it is called with; for a method its tensor is the first."""
        return self._args

    @args.setter
    def args(self, value: tuple[Argument, ...]) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """What it is called with by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._set(self._args, value)

    def _set(self, args: Any, kwargs: Any) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        found: dict[Node, None] = {}
        self._input_nodes = found

        def use(node: Node) -> Node:
            found[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg(tuple(args), use), map_arg(dict(kwargs), use)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Set one of `args`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put one more before that place of `args`."""
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set one of `kwargs`."""
        self.kwargs = {**self.kwargs, key: arg}

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, each once."""
        return list(self._input_nodes)

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node wherever one is used in the arguments."""
        exchange: Callable[[Node], Node] = lambda n: new_input if n is old_input else n
        self._set(map_arg(self.args, exchange), map_arg(self.kwargs, exchange))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Let all users (those for which `delete_user_cb` is true) use another node instead; returns those that were changed."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # ------------------------------------------------------------ its place

    @property
    def next(self) -> Node:
        """The node after it."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before it."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` of the same graph to the place before this node."""
        if x.graph is not self.graph:
            raise ValueError(f"prepend: {x} is of another graph")
        if x is self:
            return
        x._remove()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move `x` of the same graph to the place after this node."""
        self._next.prepend(x)

    def _remove(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # ------------------------------------------------------------ facts

    @property
    def stack_trace(self) -> str | None:
        """Where in the program it was recorded, if the tracer notes that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it stays though nobody uses its result: the ends of the graph, what writes in place, and what is marked so."""
        if self.op in ("placeholder", "output"):
            return True
        name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
        if self.op == "call_function":
            return self.target in _impure or (name.endswith("_") and not name.startswith("_")) or "out" in self.kwargs
        if self.op == "call_method":
            return name.endswith("_") and not name.endswith("__")
        owner = self.graph.owning_module
        return self.op == "call_module" and owner is not None and getattr(owner.get_submodule(name), "inplace", False) is True

    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None) -> str:
        """The node as a line of text."""
        if self.op == "placeholder":
            default = f"(default={self.args[0]!r})" if self.args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {_shown(self.args[0])}"
        target = self.target if isinstance(self.target, str) else type_name(self.target)
        head = f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
        return head if self.op == "get_attr" else f"{head}(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        """Whether it comes before another one of its graph."""
        order = {node: place for place, node in enumerate(self.graph.nodes)}
        return order[self] < order[other]


def _shown(value: Argument) -> str:
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(part)}' for key, part in value.items())}}}"
    return str(value)
