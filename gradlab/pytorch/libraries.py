"""`torch.library.Library`: operations that a program defines by a schema and gives implementations by kinds of dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradlab import library
from gradlab.autograd.mode import current
from gradlab.tensor import Tensor

_made: dict[str, Operation] = {}


class Operation:
    """`torch.ops.namespace.name`: calls the implementation for its tensors' device, or that for all. Gradients go through what it calls."""

    def __init__(self, name: str, schema: str) -> None:
        self.__name__, self.schema = name.partition("::")[2], schema
        self._name = name
        self._by_kind: dict[str, Callable[..., Any]] = {}
        self.default = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        device = next((x.device.type for x in tensors), "cpu").upper()
        kinds = [device, "CompositeExplicitAutograd", "CompositeImplicitAutograd", ""]
        if current().recording and any(x.requires_grad for x in tensors):
            kinds = [f"Autograd{device}", "Autograd", *kinds]
        found = next((self._by_kind[kind] for kind in kinds if kind in self._by_kind), None)
        if found is None:
            raise NotImplementedError(f"{self._name} has no implementation for {device} tensors; it has them for {list(self._by_kind)}")
        return found(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<torch.ops.{self._name.replace('::', '.')}>"


def made(name: str) -> Operation | None:
    """The operation of that name, "namespace::name", if a Library has defined it."""
    return _made.get(name)


class Library:
    """A namespace of operations: `define` a schema, then `impl` a function for it.

    ns: the namespace; kind: "DEF", "FRAGMENT" or "IMPL"; dispatch_key: what `impl` is for unless it says so itself.

    >>> from gradlab.pytorch.libraries import Library, made
    >>> library = Library("docs_library", "DEF")
    >>> library.define("twice(Tensor x) -> Tensor")
    'twice'
    >>> library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
    >>> made("docs_library::twice")(gl.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f'Library: kind is "DEF", "FRAGMENT" or "IMPL", not {kind!r}')
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Make an operation of a schema such as "name(Tensor x) -> Tensor"; its name."""
        name = schema.partition("(")[0].strip().partition(".")[0]
        _made.setdefault(f"{self.ns}::{name}", Operation(f"{self.ns}::{name}", schema))
        return name

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Give an operation a function, also one of `custom_op`. RuntimeError for one that nobody has defined."""
        name = f"{self.ns}::{getattr(op_name, '__name__', str(op_name)).rpartition('::')[2].partition('.')[0]}"
        kind, known = dispatch_key or self.dispatch_key, made(name)
        if known is not None:
            known._by_kind[kind] = fn
            return
        try:
            custom: Any = library.get(name)
        except KeyError:
            raise RuntimeError(f"Library.impl: {name} was not defined; define its schema before") from None
        if (device := kind.removeprefix("Autograd").lower()) in ("cpu", "cuda"):
            custom.register_kernel(device, fn)

    def _register_fake(self, op_name: str, fn: Any, *_: Any, **__: Any) -> None:
        """Nothing: shapes are found by running."""

    def _destroy(self) -> None:
        """Nothing: operations stay."""
