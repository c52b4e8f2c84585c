"""In-place operations and views.

A view remembers its base and the view rows that lead to it. An in-place call runs the functional row into the same memory and rebinds the
tensor; through a view it also gives the base a new edge by the inverse rows. Other views of that base derive their edge anew when next used.
In a trace, where there is no memory, the same steps make new values, so a trace stays pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.autograd import errors, position
from gradlab.autograd.base import LEAF, Differentiable, Meta, Version, meta_of, version_of
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.node import next_sequence
from gradlab.op import Op


def mark_view(view: Differentiable, source: Differentiable, op: Op, params: dict[str, Any], mode: Mode) -> None:
    """Note that `view` was made from `source` by a view row."""
    meta = view._meta = Meta()
    version = meta.version = version_of(source)
    meta.seen = version.written
    known = source._meta
    assert known is not None
    if mode.recording or mode.tracer is not None:
        if known.base is not None:
            meta.base, meta.chain = known.base, (*known.chain, (op, params))
        else:
            meta.base, meta.chain = source, ((op, params),)
    meta.quiet = (not mode.recording) or known.quiet


def derive(view: Differentiable) -> None:
    """The base was written since: take the view of it again."""
    meta = view._meta
    assert meta is not None and meta.version is not None
    meta.seen = meta.version.written
    found = meta.base
    token = enter(current().replace(recording=not meta.quiet))
    try:
        for op, params in meta.chain:
            assert op.call is not None  # the view was made by it
            found = op.call(found, **params)
    finally:
        leave(token)
    view._array, view._edge = found._array, found._edge


def alias(tensor: Differentiable) -> Any:
    """Another tensor object with the same array, edge and version; what a node may keep of a tensor that is about to be rebound."""
    twin = object.__new__(type(tensor))
    twin._array, twin._edge, twin._meta = tensor._array, tensor._edge, None
    if tensor._meta is not None and tensor._meta.version is not None:
        twin._meta = Meta()
        twin._meta.version = tensor._meta.version
    return twin


def check(name: str, tensor: Differentiable, mode: Mode) -> None:
    """Refuse an in-place operation that PyTorch refuses."""
    if not mode.recording:
        return
    meta = tensor._meta
    if tensor._edge is LEAF:
        raise errors.leaf_in_place(name)
    if meta is not None and meta.base is not None and meta.base._edge is LEAF:
        raise errors.leaf_in_place(f"{name}: a view of")
    if meta is not None and meta.inference:
        raise RuntimeError(f"{name}: an inference tensor cannot be changed in place outside inference_mode; clone() it first")


def written(version: Version, sequence: int) -> None:
    """Note the time and the place of a write."""
    version.written = sequence
    version.code, version.lasti = position.caller()
    version.scope = current().scope


def write(name: str, target: Differentiable, result: Differentiable) -> Any:
    """Make `target` hold `result` (of `target`'s shape and dtype), in the same memory, with the graph going through `result`."""
    mode = current()
    array, new = target._array, result._array
    if isinstance(array, np.ndarray) and isinstance(new, np.ndarray):
        if new is not array:
            np.copyto(array, new)
        new = array
    elif mode.tracer is not None:
        pass  # no memory yet: the tensor is rebound to the new value
    else:
        array[...] = new
        new = array
    return rebind(name, target, new, result._edge, mode)


def rebind(name: str, target: Differentiable, array: Any, edge: Any, mode: Mode) -> Any:
    """Give `target` its new array and edge, and its base, if it is a view, what follows from it."""
    version = version_of(target)
    meta = meta_of(target)
    staged = mode.tracer is not None
    written(version, next_sequence() if edge is None or edge is LEAF else edge.node.seq)
    if edge is not None and edge is not LEAF and edge is not target._edge:
        edge.node.watch(edge.index, version)
    if meta.base is not None and (staged or edge is not None or meta.base._edge is not None):
        value = alias(target)
        value._array, value._edge = array, edge
        _write_base(meta, value, staged, mode)
        derive(target)
    else:
        if meta.quiet and edge is not None:
            raise RuntimeError(
                f"{name}: this tensor is a view made under no_grad(), and writing it in place would lose the gradient; "
                f"make the view where recording is on"
            )
        if staged:
            mode.tracer.write(target, array)
        else:
            target._array = array
        if mode.recording or edge is not None:
            target._edge = edge
    return target


def _write_base(meta: Meta, value: Any, staged: bool, mode: Mode) -> None:
    base = meta.base
    sources = [alias(base)]
    for op, params in meta.chain[:-1]:
        assert op.call is not None
        sources.append(op.call(sources[-1], **params))
    for (op, params), source in zip(reversed(meta.chain), reversed(sources), strict=True):
        assert op.inverse is not None
        value = op.inverse(source, value, **params)
    if staged:
        mode.tracer.write(base, value._array)
    if mode.recording:
        base._edge = value._edge
