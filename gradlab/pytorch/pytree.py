"""`torch.utils._pytree`: nested tuples, lists, dicts and classes of one's own, taken apart into leaves and put together again.

Which classes are nodes and in what order their leaves come is PyTorch's: None is a leaf, a dict's leaves come in its order.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradlab.tensor.size import Size

PyTree = Any
Context = Any
IsLeaf = Callable[[Any], bool] | None


class NodeDef(NamedTuple):
    """How a class is taken apart (leaves' parents and a context) and put together, and with the keys that lead to its parts."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


class SequenceKey(NamedTuple):
    """A part by its number."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The part."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """A part by its key."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The part."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """A part by its attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The part."""
        return getattr(obj, self.name)


KeyEntry = SequenceKey | MappingKey | GetAttrKey
KeyPath = tuple[Any, ...]


@dataclass(frozen=True)
class TreeSpec:
    """The structure around leaves: a class (None for a leaf), what its kind needs to be put together, and the structures of its parts."""

    type: Any
    context: Any = None
    children_specs: list[TreeSpec] = field(default_factory=list)

    def is_leaf(self) -> bool:
        """Whether it is one leaf."""
        return self.type is None

    @property
    def num_leaves(self) -> int:
        """How many leaves there are in it."""
        return 1 if self.is_leaf() else sum(part.num_leaves for part in self.children_specs)

    @property
    def num_children(self) -> int:
        """How many parts it has."""
        return len(self.children_specs)

    num_nodes = property(lambda self: 1 + sum(part.num_nodes for part in self.children_specs))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a tree that stand where this has leaves. ValueError if it does not nest alike."""
        if self.is_leaf():
            return [tree]
        if _node_type(tree) is not self.type:
            raise ValueError(f"flatten_up_to: expected a {self.type.__name__}, got {type(tree).__name__}")
        parts, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if isinstance(tree, dict) and set(context_keys(context)) == set(context_keys(self.context)):
            parts = [tree[key] for key in context_keys(self.context)]
        elif len(parts) != len(self.children_specs) or context != self.context:
            raise ValueError(f"flatten_up_to: {tree!r} has other parts than {self}")
        return [found for spec, part in zip(self.children_specs, parts, strict=True) for found in spec.flatten_up_to(part)]

    def __repr__(self) -> str:
        return "*" if self.is_leaf() else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The structure of one leaf."""

    def __init__(self) -> None:
        super().__init__(None)


def context_keys(context: Any) -> list[Any]:
    """A dict's keys: what is kept of it, in a defaultdict's case beside the function that makes values."""
    return context[1] if isinstance(context, list) and len(context) == 2 and callable(context[0]) else context


def _keyed(value: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(value.values()), list(value)


SUPPORTED_NODES: dict[type, NodeDef] = {}


def register_pytree_node(cls: Any, flatten_fn: Any, unflatten_fn: Any, *, flatten_with_keys_fn: Any = None, **_: Any) -> None:
    """Let a class be a node. flatten_fn(x) gives its parts and a context, unflatten_fn(parts, context) makes one. ValueError if it is."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"register_pytree_node: {cls} is registered already")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node

register_pytree_node(tuple, lambda x: (list(x), None), lambda parts, _: tuple(parts))
register_pytree_node(list, lambda x: (list(x), None), lambda parts, _: list(parts))
register_pytree_node(dict, _keyed, lambda parts, keys: dict(zip(keys, parts, strict=True)))
register_pytree_node(OrderedDict, _keyed, lambda parts, keys: OrderedDict(zip(keys, parts, strict=True)))
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda parts, context: defaultdict(context[0], zip(context[1], parts, strict=True)),
)
register_pytree_node(deque, lambda x: (list(x), x.maxlen), lambda parts, size: deque(parts, maxlen=size))
register_pytree_node(Size, lambda x: (list(x), None), lambda parts, _: tuple(parts))
register_pytree_node(namedtuple, lambda x: (list(x), type(x)), lambda parts, kind: kind(*parts))


def is_namedtuple(obj: Any) -> bool:
    """Whether it is, or makes, named tuples."""
    kind = obj if isinstance(obj, type) else type(obj)
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


is_namedtuple_class = is_namedtuple_instance = is_namedtuple


def _node_type(tree: Any) -> Any:
    return namedtuple if type(tree) not in SUPPORTED_NODES and is_namedtuple(tree) and not isinstance(tree, type) else type(tree)


_get_node_type = _node_type


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is not taken apart."""
    return (is_leaf is not None and is_leaf(tree)) or _node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure around them. is_leaf: what else is a leaf."""
    if tree_is_leaf(tree, is_leaf):
        return [tree], LeafSpec()
    kind = _node_type(tree)
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    found = [tree_flatten(part, is_leaf) for part in parts]
    return [leaf for leaves, _ in found for leaf in leaves], TreeSpec(kind, context, [spec for _, spec in found])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The inverse of `tree_flatten`. ValueError for too few leaves or too many."""
    waiting = list(leaves)
    if len(waiting) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: {len(waiting)} leaves for a structure with {treespec.num_leaves}")
    return _built(treespec, iter(waiting))


def _built(spec: TreeSpec, leaves: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(leaves)
    return SUPPORTED_NODES[spec.type].unflatten_fn([_built(part, leaves) for part in spec.children_specs], spec.context)


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves, one after the other."""
    yield from tree_leaves(tree, is_leaf)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure around the leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """The same nesting with func of each leaf, and of what stands at its place in the other trees."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(func(*row) for row in zip(leaves, *[spec.flatten_up_to(rest) for rest in rests], strict=True))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call func on each leaf, as `tree_map` does; the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kinds: Any, func: Any) -> Callable[[Any], Any]:
    fits = kinds if callable(kinds) and not isinstance(kinds, type) else lambda leaf: isinstance(leaf, kinds)
    return lambda leaf: func(leaf) if fits(leaf) else leaf


def tree_map_only(kinds: Any, func: Any, tree: Any = None, is_leaf: IsLeaf = None) -> Any:
    """`tree_map` with func of those leaves alone that are of a class, of one of several, or for which a function is true."""
    return tree_map(_only(kinds, func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds: Any, func: Any, tree: Any = None, is_leaf: IsLeaf = None) -> Any:
    """Call func on those leaves alone; the tree itself."""
    return tree_map_(_only(kinds, func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is true of some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is true of all leaves of a class."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is true of some leaf of a class."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kinds))


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves, each with the keys that lead to it, and the structure."""
    spec = tree_structure(tree, is_leaf)
    return list(_with_paths((), tree, is_leaf)), spec


def _with_paths(path: KeyPath, tree: Any, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_node_type(tree)]
    if node.flatten_with_keys_fn is not None:
        parts: list[tuple[Any, Any]] = list(node.flatten_with_keys_fn(tree)[0])
    elif isinstance(tree, dict):
        parts = [(MappingKey(key), value) for key, value in tree.items()]
    elif node.type is namedtuple:
        parts = [(GetAttrKey(name), getattr(tree, name)) for name in tree._fields]
    else:
        parts = [(SequenceKey(index), part) for index, part in enumerate(node.flatten_fn(tree)[0])]
    for key, part in parts:
        yield from _with_paths((*path, key), part, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves, each with the keys that lead to it."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """`tree_map` with a function that is given the keys that lead to a leaf, too."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(func(*pair, *row) for pair, *row in zip(pairs, *others, strict=True))


def keystr(kp: KeyPath) -> str:
    """The keys as one would write them behind the tree's name."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What the keys lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """For each leaf of the structure the leaf of `tree` that stands at or above it; None if they do not nest alike."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _node_type(tree) is not treespec.type:
        return None
    parts, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(parts) != len(treespec.children_specs) or context != treespec.context:
        return None
    found: list[Any] = []
    for part, spec in zip(parts, treespec.children_specs, strict=True):
        below = _broadcast_to_and_flatten(part, spec, is_leaf)
        if below is None:
            return None
        found += below
    return found


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """The values and the keys of a dict, in its order."""
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[KeyEntry, Any]], list[Any]]:
    """The values, each with its place, and the keys."""
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    """The dict of such values and keys."""
    return dict(zip(context, values, strict=True))
