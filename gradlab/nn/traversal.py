"""A module's tree: iterating over it, and finding things in it by dotted names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gradlab.nn.parameter import Parameter
from gradlab.tensor import Tensor

if TYPE_CHECKING:
    from gradlab.nn.module import Module


class Traversal:
    """The part of Module that walks the tree. The tables are made by Module."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    if TYPE_CHECKING:  # `get_type_hints` finds no name Module when it reads this
        _modules: dict[str, Module | None]

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their dotted names, parents first; each module once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self  # type: ignore[misc]
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names; each module once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children."""
        return (child for _, child in self.named_children())

    def _named_members(
        self, get_members_fn: Callable[[Module], Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        owners: Any = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, owner in owners:
            for name, value in get_members_fn(owner):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names; each parameter once."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, for an optimizer."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names; each buffer once."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """Call `fn` on every module below this one, then on this one; for initialisation. Returns this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self

    # ------------------------------------------------------------ by name

    def get_submodule(self, target: str) -> Module:
        """The module of that dotted name. AttributeError where there is none."""
        found: Any = self
        for part in target.split(".") if target else ():
            child = getattr(found, part, None)
            if not isinstance(child, Traversal):
                known = ", ".join(found._modules) or "none"
                raise AttributeError(f"{type(found).__name__} has no submodule {part!r} (of {target!r}); its submodules: {known}")
            found = child
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at that dotted name, in place of the one there (AttributeError if strict and there is none)."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("set_submodule: the name is empty")
        parent = self.get_submodule(path)
        if not isinstance(module, Traversal):
            raise ValueError(f"set_submodule: expected a Module, not {type(module).__name__}")
        if strict:
            parent.get_submodule(name)
        parent.add_module(name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of that dotted name. AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if owner._parameters.get(name) is None:
            known = ", ".join(owner._parameters) or "none"
            raise AttributeError(f"{type(owner).__name__} has no parameter {name!r}; its parameters: {known}")
        return owner._parameters[name]  # type: ignore[return-value]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of that dotted name. AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if owner._buffers.get(name) is None:
            known = ", ".join(owner._buffers) or "none"
            raise AttributeError(f"{type(owner).__name__} has no buffer {name!r}; its buffers: {known}")
        return owner._buffers[name]  # type: ignore[return-value]
