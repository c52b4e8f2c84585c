"""The lists and dicts in a node's arguments: they cannot be changed in place, since a node's users are counted when arguments are set."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        f"a node's arguments are not changed in place: assign node.args or node.kwargs, with another {type(self).__bases__[0].__name__}"
    )


class immutable_list(list[Any]):
    """A list that refuses to be changed."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that refuses to be changed."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (dict(self),)
