"""In-place operations and views.

A view remembers its base and the view rows that lead to it. An in-place call runs the functional row, copies its result into the tensor's
memory and rebinds the tensor; through a view it also gives the base a new edge by the inverse rows. Other views of that base derive their
edge anew when next used. In a trace, where there is no memory, the same steps make new values, so a trace stays pure.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from sys import _getframe as getframe, getrefcount
from types import FrameType
from typing import Any

import numpy as np

from gradlab import call_site, dispatch
from gradlab.autograd import errors
from gradlab.autograd.base import LEAF, Differentiable, Meta, Version, meta_of, version_of
from gradlab.autograd.hooks import hooks_of
from gradlab.autograd.mode import Mode, current, enter, leave
from gradlab.autograd.node import next_sequence
from gradlab.batched import Batched
from gradlab.call_site import inside
from gradlab.dtype import INT64
from gradlab.op import Op
from gradlab.strides import is_writable


def mark_view(view: Differentiable, source: Differentiable, op: Op, params: dict[str, Any], mode: Mode) -> None:
    """Note that `view` was made from `source` by a view row."""
    known = source._meta
    version = None if known is None else known.version
    if version is None:
        version = version_of(source)
        known = source._meta
    assert known is not None
    meta = view._meta = Meta()
    meta.version = version
    meta.seen = version.written
    meta.inference = known.inference
    if mode.recording or mode.tracer is not None or mode.vmap is not None:
        base = known.base
        meta.base = source if base is None else base if base._meta.base is None else base_of(known)
        meta.chain = (*known.chain, (op, params))
    # Otherwise the base is not kept: it would keep its graph alive for a view that is outside it.
    if not mode.recording or known.quiet:
        meta.quiet = True
        meta.shut = known.shut or source._edge is not None


def mark_detached(twin: Differentiable, source: Differentiable, mode: Mode) -> None:
    """Note that `twin` has the memory of `source`, outside its graph. Under vmap it has the values, outside the graphs around as well."""
    if type(source._array) is Batched:
        twin._array = source._array.detached()
        return
    meta = twin._meta = Meta()
    meta.version = version_of(source)
    meta.seen = meta.version.written
    meta.inference = meta_of(source).inference
    if mode.tracer is not None:  # without memory, a write to one has to be told to the other: a view of it, by no row
        known = meta_of(source)
        mode.tracer.detached(source)
        twin._array = source._array
        meta.base, meta.chain, meta.quiet = source if known.base is None else base_of(known), known.chain, True
        meta.apart = True


def base_of(meta: Meta) -> Any:
    """The base of a view. A base that got another shape since (see `turn`) has become a view itself, of what it was; one that got other
    memory (see `leave_memory`) has left what it was."""
    base = meta.base
    known = None if base is None else base._meta
    if known is not None:
        if known.base is not None:
            base = meta.base = known.base
        elif known.before is not None and known.version is not meta.version and (was := known.before.get(meta.version)) is not None:
            base = meta.base = was
            meta_of(was).version = meta.version
    return base


def leave_memory(tensor: Differentiable) -> Any:
    """A tensor will be given other memory: note for its views what it is until then. Returns all such notes, for its Meta."""
    meta = meta_of(tensor)
    if meta.version is not None and (meta.base is None or meta.hidden):
        if meta.before is None:
            meta.before = weakref.WeakKeyDictionary()
        if meta.hidden:
            was = meta.base
        else:
            was = alias(tensor)
            was._meta = None  # until a view asks: a version that nobody has any more ends the note
        meta.before[meta.version] = was
    return meta.before


def moved(tensor: Differentiable, array: Any) -> None:
    """Give a tensor other memory, that of `array`. It is no view any more, what had the old memory does not see its writes, and a graph
    that kept it cannot use it: for that graph it was written."""
    leave_memory(tensor)
    tensor._array, meta = array, meta_of(tensor)
    count = 0 if meta.version is None else meta.version.count
    meta.base, meta.chain, meta.quiet, meta.apart, meta.shut, meta.hidden = None, (), False, False, False, False
    meta.version = Version()
    meta.version.count = count
    written(meta.version)


def derive(view: Differentiable) -> None:
    """The base was written since: take the view of it again."""
    meta = view._meta
    assert meta is not None and meta.version is not None
    base, found = meta.base, base_of(meta)
    if found._edge is LEAF and found is not base and not meta.quiet and base._edge is LEAF:  # its graph is that leaf's, in other memory now
        meta.base, meta.seen = base, meta.version.written
        return
    if found._meta is not None and found._meta.turned > meta.seen:
        raise RuntimeError(
            f"a view of shape {view._array.shape} was used after the leaf that it is a view of got another shape (t_, squeeze_, ...); take "
            f"the view again"
        )
    mode = current()
    if mode.tracer is not None:
        mode.tracer.deriving(view)
    meta.seen = meta.version.written
    token = enter(mode.replace(recording=not meta.quiet))
    try:
        for op, params in meta.chain:
            assert op.call is not None  # the view was made by it
            found = op.call(found, **params)
    finally:
        leave(token)
    view._array = found._array
    if not (meta.apart or (view._edge is LEAF and found._edge is None)):  # a view that was itself made a leaf stays one
        move_retained(view, None if meta.quiet else found._edge)
        view._edge = None if meta.quiet else found._edge


def alias(tensor: Differentiable) -> Any:
    """Another tensor object with the same array, edge and version; what a node may keep of a tensor that is about to be rebound."""
    twin = object.__new__(type(tensor))
    twin._array, twin._edge, twin._meta = tensor._array, tensor._edge, None
    if tensor._meta is not None and tensor._meta.version is not None:
        twin._meta = Meta()
        twin._meta.version = tensor._meta.version
    return twin


def part_from(twin: Any) -> None:
    """Give an alias that some node keeps (it is held elsewhere) its own copy of the values, which are about to be overwritten."""
    if getrefcount(twin) > _HELD_HERE:
        backend = dispatch.backend_of(twin._array)
        if not backend.staged:
            twin._array, twin._meta = backend.copy(twin._array), None
        else:  # values of a trace, and those under vmap, are never overwritten
            twin._meta = None


def _count_of_an_argument(value: object) -> int:
    return getrefcount(value)


def _count_of_a_local() -> int:
    value = object()
    return _count_of_an_argument(value)


_alone = Meta()
_alone.version = Version()
_HELD_BY_AN_ATTRIBUTE = getrefcount(_alone.version)  # of an object that only an attribute holds
_HELD_HERE = _count_of_a_local()  # of an object that only a caller's variable holds; how Python counts depends on its version


def check(name: str, target: Differentiable, mode: Mode, memory: bool = True) -> None:
    """Refuse an in-place operation that PyTorch refuses, and one whose gradient would be wrong. memory: whether it is written to."""
    meta, array = target._meta, target._array
    if memory and (mode.tracer is None or isinstance(array, np.ndarray)) and not is_writable(array):
        raise errors.not_writable(name, array.shape)
    if mode.tracer is not None:
        mode.tracer.note((target,))
    if meta is not None and meta.inference and not mode.inference:
        raise RuntimeError(f"{name}: an inference tensor cannot be changed in place outside inference_mode; clone() it first")
    if not mode.recording:
        return
    if target._edge is LEAF:
        raise _of_leaf(name, "a leaf tensor", target, mode)
    if meta is None:
        return
    base = base_of(meta)
    if base is not None and not meta.quiet and (base._edge is LEAF or (base._edge is None and target._edge is not None)):
        # without an edge of the base the leaf is a view of it, and the target a view of that
        raise _of_leaf(name, "a view of a leaf tensor", base, mode)
    if meta.shut or (base is not None and base._meta.shut):
        raise errors.quiet_view(name)


def _of_leaf(name: str, what: str, leaf: Differentiable, mode: Mode) -> Exception:
    known: Exception | None = None if mode.tracer is None else mode.tracer.refusal(leaf)
    return known or errors.leaf_in_place(name, what)


def written(version: Version) -> None:
    """Note the time and the place of a write."""
    mode = current()
    if mode.tracer is not None:
        mode.tracer.writing(version)
    version.written = next_sequence()
    version.count += 1
    frame: FrameType | None = getframe(1)
    while frame is not None:  # call_site.user_frame, written out because every in-place call comes through here
        code = frame.f_code
        if not inside[code.co_filename]:
            version.place = code, frame.f_lasti, mode.scope
            return
        frame = frame.f_back
    version.place = None, 0, mode.scope


def note(versions: Iterable[Version]) -> None:
    """Note the time of writes to several pieces of memory, as fast as it goes. Who knows where they came from says so before."""
    now = next_sequence()
    for version in versions:
        version.written = version.count = now


def note_places(lines: Iterable[tuple[Version, Any]]) -> None:
    """The same, and where the writes stand."""
    now = next_sequence()
    for version, place in lines:
        version.written = version.count = now
        version.place = place


def note_writes(tensors: Iterable[Differentiable]) -> None:
    """Note the time and the place of writes to several tensors: a graph made before can no longer use their old values."""
    mode = current()
    now, place = next_sequence(), (*call_site.caller(), mode.scope)
    for tensor in tensors:
        meta = tensor._meta
        version = version_of(tensor) if meta is None or meta.version is None else meta.version
        if mode.tracer is not None:
            mode.tracer.writing(version)
        version.written = now
        version.place = place
        version.count += 1


def write(name: str, target: Differentiable, result: Differentiable) -> Any:
    """Make `target` hold `result` (of `target`'s shape and dtype), in the same memory, with the graph going through `result`."""
    mode = current()
    array, new = target._array, result._array
    if mode.recording and result._edge is not None and target._meta is not None and target._meta.quiet and not target._meta.apart:
        raise errors.quiet_view(name)
    if isinstance(array, np.ndarray) and isinstance(new, np.ndarray):
        if new is not array:
            np.copyto(array, new)
        new = array
    elif type(array) is Batched or type(new) is Batched:
        new = _fitting(name, array, result)
    elif mode.tracer is not None:
        pass  # no memory yet: the tensor is rebound to the new value
    else:
        dispatch.backend_of(array).assign(array, new)
        new = array
    return rebind(target, new, result._edge, mode)


def _fitting(name: str, array: Any, result: Differentiable) -> Batched:
    """What a tensor under vmap holds after a write. Raises RuntimeError where each sample would write into one shared tensor."""
    new: Any = result._array
    if type(array) is not Batched or (type(new) is Batched and new.level.depth > array.level.depth):
        raise RuntimeError(
            f"vmap: {name} writes a value of each sample (shape {new.shape}) into a tensor that all samples share; make that tensor inside "
            f"the function from one of the sample's (x.new_zeros(...), gl.zeros_like(x)), or use the out-of-place form"
        )
    return new if type(new) is Batched and new.level is array.level else array.lifted(result)


def rebind(target: Differentiable, array: Any, edge: Any, mode: Mode) -> Any:
    """Give `target` its new array and edge, and its base, if it is a view, what follows from it."""
    version = version_of(target)
    meta = meta_of(target)
    staged = mode.tracer is not None or type(array) is Batched
    written(version)
    base = base_of(meta)
    if base is not None and (staged or (mode.recording and (edge is not None or base._edge is not None))):
        value = alias(target)
        value._array, value._edge = array, edge
        _write_base(meta, value, staged, mode)
        derive(target)
        if meta.apart and mode.recording:
            move_retained(target, edge)
            target._edge = edge
        return target
    if staged and type(array) is not Batched:
        mode.tracer.write(target, array)
    else:
        target._array = array
    if mode.recording:
        move_retained(target, edge)
        target._edge = edge
    return target


def _write_base(meta: Meta, value: Any, staged: bool, mode: Mode) -> None:
    base = base_of(meta)
    sources = [alias(base)]
    for op, params in meta.chain[:-1]:
        assert op.call is not None
        sources.append(op.call(sources[-1], **params))
    first = next((i for i, (link, source) in enumerate(zip(meta.chain, sources)) if _repeats(*link, source)), len(sources))
    if first < len(sources):
        value = _put_back(sources[first], value, meta.chain[first:])
    for (op, params), source in zip(reversed(meta.chain[:first]), reversed(sources[:first])):
        assert op.inverse is not None
        value = op.inverse(source, value, **params)
    if type(value._array) is Batched:
        base._array = value._array
    elif staged:
        mode.tracer.write(base, value._array)
    if mode.recording and not meta.quiet:
        move_retained(base, value._edge)
        base._edge = value._edge


def _repeats(op: Op, params: dict[str, Any], source: Any) -> bool:
    return op.name == "expand" and math.prod(params["shape"]) > math.prod(source._array.shape)


def _put_back(source: Any, value: Any, chain: Sequence[tuple[Op, dict[str, Any]]]) -> Any:
    """What `source` is after `value` was written to a part of what it was expanded to: which of the copies of an element were written is
    known of the whole chain only, so the elements' numbers go through it."""
    places = source.new_ones(source.shape, dtype=INT64).reshape(-1).cumsum(0).sub(1).reshape(source.shape)
    for op, params in chain:
        places = op.call(places, **params)  # type: ignore[misc]
    if math.prod(places.shape) > math.prod(source.shape) or math.prod(places.shape) != math.prod(value.shape):
        raise errors.not_writable("writing in place", value.shape)
    return source.reshape(-1).scatter(0, places.reshape(-1), value.reshape(-1)).reshape(source.shape)


def turn(name: str, target: Differentiable, op: Op, params: dict[str, Any]) -> Any:
    """Make `target` what a view row makes of it, in the same memory: `t_`, `squeeze_` and their like.

    The callers have looked at the parameters.
    Views of it stay what they were. If there may be any, the target becomes a view of what it was, so writes go on reaching all of them.
    """
    mode = current()
    check(name, target, mode, memory=False)
    array, edge, meta = target._array, target._edge, meta_of(target)
    if mode.tracer is not None and type(array) is not Batched and mode.tracer.outside(target):
        raise RuntimeError(f"{name}: a tensor from outside a trace cannot get another shape inside it; use the out-of-place form")
    shared = meta.base is None and meta.version is not None and getrefcount(meta.version) > _HELD_BY_AN_ATTRIBUTE
    version = version_of(target)
    in_graph = edge is not None and edge is not LEAF and not meta.quiet
    if type(array) is np.ndarray and not in_graph and not mode.special:
        made, result = op.cpu(array, **params), None
    else:  # A computed tensor stays in its graph whatever the mode: its gradient has to be turned back.
        token = enter(mode.replace(recording=in_graph))
        try:
            result = op.call(alias(target), **params)  # type: ignore[misc]
        finally:
            leave(token)
        made = result._array
    if meta.base is not None:
        meta.chain = (*meta.chain, (op, params))
    elif shared and edge is not LEAF:
        before: Any = alias(target)
        before._meta.inference, before._meta.shut = meta.inference, meta.shut
        meta.base, meta.chain, meta.hidden = before, ((op, params),), True
    written(version)
    meta.seen = version.written
    if edge is LEAF:
        meta.turned = version.written
    target._array = made
    if edge is not LEAF:
        now = None if result is None else result._edge
        move_retained(target, now)
        target._edge = now
    return target


def move_retained(tensor: Differentiable, edge: Any) -> None:
    """A tensor that retains its gradient retains that of its newest value: move the note from its node to the new one."""
    meta, old = tensor._meta, tensor._edge
    if meta is None or not meta.retains or old is None or old is LEAF or edge is None:
        return
    if old.node.hooks is not None:
        old.node.hooks.retained.pop(old.index, None)
    retain(tensor, edge)


def retain(tensor: Differentiable, edge: Any) -> None:
    """Let the walk leave the gradient that arrives at `edge` in `tensor.grad`."""
    hooks_of(edge.node).retained[edge.index] = weakref.ref(tensor)
