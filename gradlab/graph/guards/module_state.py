"""Modules and optimizers that a trace meets: what it has changed of them, and the conditions under which they are as they were."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from gradlab.graph.guards.freeze import freeze
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.machine_guards import Found
from gradlab.graph.guards.sources import GONE
from gradlab.nn.module import Module
from gradlab.optim.optimizer import Optimizer

TABLES = ("_parameters", "_buffers", "_modules")
ZERO_GRAD = Optimizer.zero_grad.__code__  # it looks at the parameters alone
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# What modules have besides, that no code of a user's reads.
_OWN = frozenset((
    *TABLES, *HOOKS, "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    "_non_persistent_buffers_set", "_hooked", "_name", "_compiled_call", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
))  # fmt: skip

Plain = dict[str, tuple[Any, Any]]  # attributes: value, picture
Tables = dict[str, dict[str, Any]]


def attributes_of(module: Module, held: Set[tuple[int, Any]]) -> dict[str, Any]:
    """A module's attributes, apart from its tables and, where the class is one of the library's, private ones. held: left out."""
    known, ours = module.__dict__, type(module).__module__.startswith("gradlab.")
    number = id(known)
    return {k: v for k, v in known.items() if k not in _OWN and not (ours and k.startswith("_")) and (number, k) not in held}


def changes_of(module: Module, plain: Plain, tables: Tables, held: Set[tuple[int, Any]]) -> Iterator[tuple[str, Any, Any]]:
    """What of a module is not as it was: name, value before, value now (GONE for none). held: places that may change."""
    known = module.__dict__
    for key, (value, picture) in plain.items():
        if key not in known or freeze(known[key], without=held) != picture:
            yield key, value, known.get(key, GONE)
    for key, value in attributes_of(module, held).items():
        if key not in plain:
            yield key, GONE, value
    for table, entries in tables.items():
        now = known[table]
        for key in dict.fromkeys((*entries, *now)):
            if now.get(key, GONE) is not entries.get(key, GONE) and (id(now), key) not in held:
                yield key, entries.get(key, GONE), now.get(key, GONE)


def restore(module: Module, plain: Plain, tables: Tables, held: Set[tuple[int, Any]]) -> None:
    """Let a module be as it was."""
    known = module.__dict__
    for key, (value, picture) in plain.items():
        if key not in known or freeze(known[key], without=held) != picture:
            known[key] = value
    for key in attributes_of(module, held).keys() - plain.keys():
        del known[key]
    for table, entries in tables.items():
        now = known[table]
        if now.keys() != entries.keys() or any(now[k] is not v for k, v in entries.items()):
            before = {k: now[k] if (id(now), k) in held else v for k, v in entries.items()}
            now.clear()
            now.update(before)


def guard_module(
    guards: Guards, module: Module, plain: dict[str, Any], tables: Tables, held: Set[tuple[int, Any]], read: Set[Any] | None
) -> None:
    """Conditions for a module as it was. read: the attributes that code has read by name, if that is known of all of it."""
    name, own = type(module).__name__, guards.name(module.__dict__)
    title = f"{name} {module._name!r}" if module._name else name
    for key, value in plain.items():
        hides = hasattr(Module, key)  # what the library calls
        if read is None or key in read or "__dict__" in read or key == "training" or hides:
            guards.equal(f"{own}[{key!r}]", value, f"{title}: {key}", held)
    guards.equal(f"{own}['_hooked']", module.__dict__["_hooked"], f"{title}: hooks")
    for table, entries in tables.items():
        if table in HOOKS and not module.__dict__["_hooked"]:
            continue
        place = f"{own}[{table!r}]"
        guards.size(place, len(entries), f"{title}: {table[1:]}")
        number = id(module.__dict__[table])
        for key, value in entries.items():
            if (number, key) in held:
                continue
            guards.same(f"{place}[{key!r}]", value, f"{title}: {key}")


def guard_optimizer(
    guards: Guards, optimizer: Optimizer, state: dict[Any, Any] | None, groups: list[dict[str, Any]], live: dict[int, set[str]]
) -> None:
    """Conditions for an optimizer as it was. state: None where nobody looked at it."""
    name, own = type(optimizer).__name__, guards.name(optimizer)
    guards.size(f"{own}.param_groups", len(groups), f"{name}: the number of groups")
    guards.table(optimizer._pre_hooks, f"{name}: hooks before a step")
    guards.table(optimizer._post_hooks, f"{name}: hooks after a step")
    for i, before in enumerate(groups):
        guards.same(f"{own}.param_groups[{i}]", optimizer.param_groups[i], f"{name}: group {i}")
        group = guards.name(optimizer.param_groups[i])
        read = live.get(id(optimizer.param_groups[i]))
        for key, value in before.items():
            if key == "params":
                ids = guards.name([*map(id, value)])
                guards.names["map"], guards.names["id"] = map, id
                place = f"{group}['params']"
                test = f"[*map(id, {place})] == {ids}"
                guards.test(test, f"{name}: the parameters of group {i}")
                each = (Found(f"{place}[{k}]", p) for k, p in enumerate(value))
                guards.mostly(test, Found(place, value, len(value)), *each)
            elif read is not None and (key in read or key in optimizer.unread):
                if key in optimizer.decisive:
                    guards.test(f"({group}[{key!r}] != 0) is {value != 0}", f"{name}: whether {key} is 0", f"{group}[{key!r}]", value)
            else:
                guards.equal(f"{group}[{key!r}]", value, f"{name}: {key}")
    if state is None:  # nobody looked at it
        return
    guards.same(f"{own}.state", optimizer.state, f"{name}: state")
    table = guards.name(optimizer.state)
    for p, entries in state.items():
        if isinstance(entries, dict):
            place = f"{table}[{guards.name(p)}]"
            for key, value in entries.items():
                guards.equal(f"{place}[{key!r}]", value, f"{name}: {key}")


def restore_state(optimizer: Optimizer, state: dict[Any, Any]) -> bool:
    """Put the tables of an optimizer back; True if they had changed."""
    changed = False
    for p in list(optimizer.state):
        if p not in state:
            changed = changed or bool(optimizer.state[p])
            del optimizer.state[p]
    for p, entries in state.items():
        now = optimizer.state[p]
        if isinstance(entries, dict) and (now.keys() != entries.keys() or any(now[k] is not v for k, v in entries.items())):
            changed = True
            now.clear()
            now.update(entries)
    return changed


def reset_optimizer(optimizer: Optimizer, state: dict[Any, dict[str, Any]], groups: list[dict[str, Any]]) -> list[str]:
    """Let an optimizer be as it was; what of it was not."""
    found = [f"the state of {type(optimizer).__name__}"] if restore_state(optimizer, state) else []
    for group, before in zip(optimizer.param_groups, groups):
        for key, value in before.items():
            if key != "params" and freeze(group.get(key)) != freeze(value):
                found.append(f"{type(optimizer).__name__}'s {key}")
                group[key] = value
    return found
