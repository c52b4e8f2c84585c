"""Modules as functions of their parameters: one call with others, and several models' parameters as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.tensor.shape import stack


def _owner(module: Module, name: str) -> tuple[dict[str, Any], str] | None:
    """The table of a submodule that holds the tensor of a dotted name, and its own name there; None if there is none."""
    *path, last = name.split(".")
    for part in path:
        child = module._modules.get(part)
        if child is None:
            return None
        module = child
    for table in (module._parameters, module._buffers):
        if last in table:
            return table, last
    return (vars(module), last) if isinstance(vars(module).get(last), Differentiable) else None


def _merged(given: Any) -> dict[str, Any]:
    """One dict of one or several. Raises TypeError, ValueError."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, (tuple, list)) or not all(isinstance(d, Mapping) for d in given):
        raise ValueError(f"functional_call: parameters and buffers are a dict or a tuple of dicts, not {type(given).__name__}")
    found: dict[str, Any] = {}
    for part in given:
        twice = sorted(found.keys() & part.keys())
        if twice:
            raise ValueError(f"functional_call: {twice} is in several of the dicts")
        found.update(part)
    return found


def _tied(module: Module, given: dict[str, Any]) -> dict[str, Any]:
    """With a value for every name under which a shared tensor is known. Raises ValueError for different values of one."""
    names: dict[int, list[str]] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    names.setdefault(id(tensor), []).append(f"{prefix}.{name}" if prefix else name)
    found = dict(given)
    for group in names.values():
        values = {id(given[n]): given[n] for n in group if n in given}
        if len(group) > 1 and len(values) > 1:
            raise ValueError(f"functional_call: {group} are one tensor in the module, but several values are given; pass tie_weights=False")
        for value in values.values():
            found.update(dict.fromkeys(group, value))
    return found


@contextmanager
def _holding(module: Module, given: dict[str, Any], strict: bool) -> Iterator[None]:
    """The module with other tensors, for a while."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    for name, value in given.items():
        place = _owner(module, name)
        if place is None:
            raise RuntimeError(f"functional_call: the module has no parameter or buffer {name!r}")
        if value is not None and not isinstance(value, Differentiable):
            raise TypeError(f"functional_call: {name} is a tensor, not {type(value).__name__}")
        places[name] = place
    if strict:
        known = [n for n, _ in module.named_parameters(remove_duplicate=False)]
        known += [n for n, _ in module.named_buffers(remove_duplicate=False)]
        missing = [n for n in known if n not in given]
        if missing:
            raise RuntimeError(f"functional_call: with strict=True every parameter and buffer is given; missing: {', '.join(missing)}")
    before = {name: table[last] for name, (table, last) in places.items()}
    for name, (table, last) in places.items():
        table[last] = given[name]
    try:
        yield
    finally:
        for name, (table, last) in places.items():
            given[name] = table[last]  # a buffer that forward replaced
            table[last] = before[name]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with these parameters and buffers in place of its own, which stay as they are.

    parameter_and_buffer_dicts: tensors by dotted name (plain attributes too), or several such dicts; others stay. args: a tuple, or one
    argument. tie_weights: a tensor that the module has under several names takes the value given for one of them. strict: RuntimeError
    if a parameter or buffer is missing. Raises RuntimeError for a name that the module has not.

    >>> import gradlab as gl
    >>> layer = gl.nn.Linear(2, 1)
    >>> gl.func.functional_call(layer, {"weight": gl.ones(1, 2), "bias": gl.zeros(1)}, gl.tensor([[1.0, 2.0]]))
    tensor([[3.]])
    """
    given = _merged(parameter_and_buffer_dicts)
    if tie_weights:
        given = _tied(module, given)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _holding(module, given, strict):
        return module(*arguments, **dict(kwargs or {}))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of several models of one kind, each stacked in front: two dicts, for vmap over an ensemble.

    The stacked parameters are new leaves that require grad where the models' do. Raises RuntimeError for no models, models of different
    classes, or a mixture of training and evaluation mode.
    """
    if not models:
        raise RuntimeError("stack_module_state: at least one model")
    if any(m.training != models[0].training for m in models):
        raise RuntimeError("stack_module_state: all models are in training mode or all in evaluation mode")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: all models are of one class")
    found = []
    for tables in ([dict(m.named_parameters()) for m in models], [dict(m.named_buffers()) for m in models]):
        stacked = {}
        for name, first in tables[0].items():
            value = stack([table[name].detach() for table in tables])
            stacked[name] = value.requires_grad_() if first.requires_grad else value
        found.append(stacked)
    return found[0], found[1]


named_functions(__name__)
