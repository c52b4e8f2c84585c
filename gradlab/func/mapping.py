"""`vmap`: a function of one sample, run on a whole batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enter, leave
from gradlab.autograd.record import bind, refresh, wrap
from gradlab.batched import Batched
from gradlab.func.tree import flatten, spread, unflatten
from gradlab.func.vmap_levels import Level
from gradlab.layout import strided
from gradlab.named_errors import named_functions
from gradlab.ops.movement import cat
from gradlab.spec import normalize_dim

_cat = bind(cat)
RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """The function that maps `func` over a dimension of its arguments, with every operation running on the whole batch at once.

    in_dims: which dimension of each argument counts the samples: a number, None for an argument that is the same for every sample, or a
    tuple of these, nested like the arguments. Keyword arguments are the same for every sample.
    out_dims: where the samples' dimension comes in each result; None for a result that is the same for every sample.
    randomness: "error" (random operations raise RuntimeError), "different" or "same" numbers in every sample.
    chunk_size: at most so many samples at a time, to save memory.

    `func` takes and returns tensors (nested in tuples, lists, dicts) of one sample. It may not look at values (`if`, `.item()`). It may
    itself use grad, jacrev, vmap …, and may be differentiated. Raises ValueError where arguments and dimensions do not fit.

    >>> import gradlab as gl
    >>> dot = lambda a, b: (a * b).sum()
    >>> gl.vmap(dot)(gl.ones(3, 5), gl.ones(3, 5))
    tensor([5., 5., 5.])
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"vmap: randomness is one of {', '.join(RANDOMNESS)}, not {randomness!r}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size is None or positive, not {chunk_size}")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call = Call(func, in_dims, out_dims, randomness, args, kwargs)
        if chunk_size is None or call.size <= chunk_size:
            return call.run(0, call.size)
        parts = [call.run(start, min(start + chunk_size, call.size)) for start in range(0, call.size, chunk_size)]
        return call.joined(parts)

    return wrapped


class Call:
    """One call of a vmapped function: its arguments, taken apart and checked."""

    def __init__(
        self, func: Callable[..., Any], in_dims: Any, out_dims: Any, randomness: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.name = f"vmap({getattr(func, '__name__', type(func).__name__)})"
        self.func, self.out_dims, self.randomness = func, out_dims, randomness
        if not isinstance(in_dims, (int, tuple, list)):
            raise ValueError(f"{self.name}: in_dims is a number or a tuple, nested like the arguments, not {type(in_dims).__name__}")
        if not args:
            raise ValueError(f"{self.name}: no positional arguments; there is nothing to map over")
        self.leaves, self.structure = flatten(args)
        self.dims = spread(in_dims if isinstance(in_dims, int) else tuple(in_dims), self.structure, f"{self.name}: in_dims")
        self.kwargs = kwargs
        self.size = self._checked()

    def _checked(self) -> int:
        sizes: dict[int, int] = {}
        for i, (x, dim) in enumerate(zip(self.leaves, self.dims, strict=True)):
            if dim is None:
                continue
            if not isinstance(dim, int) or isinstance(dim, bool):
                raise ValueError(f"{self.name}: in_dims holds numbers and None, not {dim!r}")
            if not isinstance(x, Differentiable):
                raise ValueError(
                    f"{self.name}: argument {i} is a {type(x).__name__}, which has no dimension {dim} to map over; use None in in_dims"
                )
            if getattr(x, "layout", strided) is not strided:
                raise NotImplementedError(f"{self.name}: argument {i} is sparse, and is not mapped over: x.to_dense() is, or use a loop")
            rank = len(x._array.shape)
            if not -rank <= dim < rank:
                raise ValueError(f"{self.name}: argument {i} of shape {x._array.shape} has no dimension {dim} to map over")
            self.dims[i] = dim % rank
            sizes[i] = x._array.shape[dim]
        if not sizes:
            raise ValueError(f"{self.name}: no argument is mapped over; give at least one a dimension in in_dims")
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"argument {i} has {size}" for i, size in sizes.items())
            raise ValueError(f"{self.name}: the mapped dimensions have different sizes: {listed}")
        return next(iter(sizes.values()))

    def run(self, start: int, stop: int) -> Any:
        """The samples from `start` up to `stop`."""
        mode = current()
        level = Level(stop - start, self.randomness)
        inside, written = [], []
        for x, dim in zip(self.leaves, self.dims, strict=True):
            if dim is None:
                inside.append(x)
                continue
            if x._meta is not None:
                refresh(x)
            part: Any = x if stop - start == self.size else x.narrow(dim, start, stop - start)
            batched = Batched(part.movedim(dim, 0) if dim else part, level, True)
            inside.append(wrap(batched))
            written.append((inside[-1], batched, part, dim))
        token = enter(mode.replace(vmap=level))
        try:
            result = self.func(*unflatten(self.structure, inside), **self.kwargs)
            for inner, _, _, _ in written:  # bring views up to date
                inner.requires_grad  # noqa: B018
        finally:
            leave(token)
        try:
            for inner, batched, part, dim in written:
                if inner._array is not batched:  # the function changed its argument in place
                    part.copy_(self._outside(inner, level, dim))
            leaves, self.result = flatten(result)
            self.placed = spread(self.out_dims, self.result, f"{self.name}: out_dims")
            return unflatten(self.result, [self._outside(y, level, dim) for y, dim in zip(leaves, self.placed, strict=True)])
        finally:
            level.open = False

    def _outside(self, y: Any, level: Level, dim: Any) -> Any:
        """A result with the samples as dimension `dim`."""
        if not isinstance(y, Differentiable):
            kind = type(y).__name__
            raise ValueError(f"{self.name}: the function returns tensors (nested in tuples, lists, dicts), but there is a {kind}")
        array = y._array
        mine = type(array) is Batched and array.level is level
        value: Any = array.value if mine else y
        if type(value._array) is Batched and value._array.level.depth >= level.depth:
            raise RuntimeError("vmap: a tensor of another vmap was returned from this one")
        if dim is None:
            if mine and array.mapped:
                raise ValueError(f"{self.name}: out_dims is None for a result that differs from sample to sample; give it a dimension")
            return value
        if not isinstance(dim, int):
            raise ValueError(f"{self.name}: out_dims holds numbers and None, not {dim!r}")
        if not (mine and array.mapped):
            value = value.expand((level.size, *value._array.shape))
        place = normalize_dim(dim, len(value._array.shape))
        return value.movedim(0, place) if place else value

    def joined(self, parts: list[Any]) -> Any:
        """The results of several chunks as one."""
        columns = list(zip(*[flatten(part)[0] for part in parts], strict=True))
        found = []
        for column, dim in zip(columns, self.placed, strict=True):
            first: Any = column[0]
            found.append(first if dim is None else _cat(*column, dim=normalize_dim(dim, len(first._array.shape))))
        return unflatten(self.result, found)


named_functions(__name__)
