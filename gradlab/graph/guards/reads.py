"""What a traced call reads besides its arguments: modules, optimizers, and the globals, closures and attributes that user functions name.

A profile hook sees every Python function that starts while the trace runs. Of a user's function the code says which names it loads (what
they do not tell, `bytecode.py` does); of a method its `self` is known. Each thing is pictured before the function's body runs, so that
what the trace itself changes is found after it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.graph.guards.attribute_lookup import giver, is_computed
from gradlab.graph.guards.bytecode import Following
from gradlab.graph.guards.contents import MUTABLE, alike, attributes, copied, items, length, members, refill
from gradlab.graph.guards.freeze import Same, freeze, is_plain
from gradlab.graph.guards.guards import Guards
from gradlab.graph.guards.module_state import (
    HOOKS,
    TABLES,
    ZERO_GRAD,
    attributes_of,
    changes_of,
    guard_module,
    guard_optimizer,
    reset_optimizer,
    restore,
)
from gradlab.graph.guards.rebinding import Held, can_be_bound, is_filled, looks_at, of_module, place_at
from gradlab.graph.guards.sources import (
    CELL,
    GONE,
    Item,
    closures_of,
    expression,
    instructions_of,
    is_instance,
    is_opaque,
    owns,
    put_back,
    resolve,
    step,
    steps,
)  # fmt: skip
from gradlab.graph.guards.unrepeatable import CLOCKS, Iterators, Young, reads_clock
from gradlab.graph.guards.user_code import IGNORED, IMPORTS, METHOD, STEPS, USER, is_library_file, kind_of
from gradlab.graph.staging.symbol import foreign
from gradlab.nn.hooks import everywhere
from gradlab.nn.module import Module
from gradlab.optim.lr_scheduler import LRScheduler
from gradlab.optim.optimizer import Optimizer

_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr", "vars", "dir"))  # built-in functions that take attributes by name
_MANY_FUNCTIONS = 1000  # entries of a container that are looked at for functions


class Reads:
    """Set as the profile function for the time of a trace: `with Reads(function) as reads: ...`, then `reads.guard(guards)`."""

    def __init__(self, function: Callable[..., Any], held: Sequence[Held] = ()) -> None:
        self._bound: dict[Any, Held] = {}  # places that `changed` found to hold other tensors
        self._culprits: list[str] = []  # what else it found
        self._held = {p.number for p in held}
        self.modules: dict[int, tuple[Module, dict[str, Any], dict[str, dict[str, Any]]]] = {}
        self.optimizers: dict[int, tuple[Optimizer, dict[Any, dict[str, Any]], list[dict[str, Any]]]] = {}
        self.cleared: dict[int, tuple[Optimizer, list[dict[str, Any]]]] = {}  # of which only zero_grad() ran
        self.looked: set[int] = set()  # optimizers whose groups the user's code reads
        self.chains: dict[tuple[Any, ...], tuple[Any, str, Any, Any]] = {}  # (root, path, whole) -> root, path text, value, picture
        self.why, self.filled = "", True  # what was met that cannot be in a program; whether `changed` found nothing but filled caches
        self._iterators = Iterators()
        self._names: dict[int, set[Any]] = {}  # of a module, by its id, what followed code takes by name
        self._contents: dict[int, tuple[Any, Any, Any]] = {}  # containers that were read, shallow copies, and whose attributes they are
        self._kinds: dict[CodeType, int] = {}  # what a call of some code may tell
        self._selves, self._kept = set[int](), list[Any]()  # what was met, by id, and kept alive
        self._functions: dict[CodeType, list[FunctionType]] = {}  # functions from before the trace; closures may share their code
        self._users, self._made = set[CodeType](), set[CodeType]()  # code of the user's functions; of what those that ran define
        self._placed: dict[tuple[int, Any], bool] = {}  # places that were noted; whether with all that is in them
        self._before: Any = None
        self._importing: FrameType | None = None  # the frame that imports a module, if one does
        self.following = Following(self, function)
        self._note_function(function)
        gc.collect(0)  # what is young from here on is made in the trace, as the collector rests meanwhile
        self.young = Young(self)

    # ------------------------------------------------------------ the hook

    def __enter__(self) -> Reads:
        self._before = sys.getprofile()
        self.following.start()
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before if callable(self._before) else None)
        if not callable(self._before or id):  # cProfile's object (until Python 3.11), which sets itself alone
            self._before.enable()
        self.following.stop()
        self._iterators.clear()

    def _hook(self, frame: FrameType, event: str, called: Any) -> None:
        if self._importing is not None and (event != "return" or frame is not self._importing):
            return
        if event != "call":
            if event == "return":
                self._importing = None
                if frame is self.following.until:
                    self.following.turn_back()
            elif event == "c_call" and called in CLOCKS and frame.f_code in self._users:
                self.why = self.why or reads_clock(called)
            return
        code = frame.f_code
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = kind_of(frame)
        if kind <= IGNORED:
            if self.following.on:
                self.following.called(frame, False)
            self._importing = frame if kind == IMPORTS else None
            return
        if kind >= STEPS:
            self.why = self.why or self._iterators.moved(frame)
            kind -= STEPS
        if kind == METHOD:
            owner: Any = frame.f_locals.get("self")
            if code is ZERO_GRAD:
                self.cleared.setdefault(id(owner), (owner, [{"params": list(group["params"])} for group in owner.param_groups]))
            elif owner is not None:
                if id(owner) not in self._selves:
                    self._meet(owner)
                self.following.method(frame, owner)
        if kind == USER or self.following.on:
            self.following.called(frame, kind == USER)
        if kind != USER or (code in self._users and not code.co_argcount):
            return
        given, names = frame.f_locals, code.co_varnames
        owners = {n: given[n] for n in names[: code.co_argcount + code.co_kwonlyargcount] if n in given and owns(given[n])}
        new = {n: v for n, v in owners.items() if id(v) not in self._selves}
        if not ((first := code not in self._users) or new):
            return
        for owner in new.values():
            if not isinstance(owner, Optimizer):  # of which only some methods look at everything
                self._meet(owner)
        self._users.add(code)
        self._made.update(c for c in code.co_consts if isinstance(c, CodeType))
        self._read_code(code, frame.f_globals, owners if first else new, first)

    def _meet(self, owner: Any) -> None:
        """An object whose method runs, or whose attributes are read."""
        self._selves.add(id(owner))
        self._kept.append(owner)
        if isinstance(owner, LRScheduler):
            self._note(owner, ("__dict__",), type(owner).__name__, owner.__dict__)
            owner = owner.__dict__.get("optimizer")  # whose settings it changes
        if isinstance(owner, Module) and "_hooked" in owner.__dict__:  # else it is only being made
            self._picture_module(owner)
        elif isinstance(owner, Optimizer):
            self._picture_optimizer(owner)

    def _picture_module(self, module: Module) -> None:
        known = module.__dict__
        tables = {name: dict(known[name]) for name in (*TABLES, *HOOKS) if name in known}
        plain = attributes_of(module, self._held)
        self.modules[id(module)] = (module, {k: (v, self._picture(v, True)) for k, v in plain.items()}, tables)
        for value in plain.values():
            self._note_function(value)
            if is_instance(value) and not isinstance(value, Module):
                self._contents.setdefault(id(value.__dict__), (value.__dict__, value.__dict__.copy(), value))
        if known["_hooked"]:
            for table in HOOKS:
                for hook in known[table].values():
                    self._note_function(hook)

    def _picture_optimizer(self, optimizer: Optimizer) -> None:
        state = {p: dict(s) if isinstance(s, dict) else s for p, s in optimizer.state.items()}
        self.optimizers.setdefault(id(optimizer), (optimizer, state, [dict(g) for g in optimizer.param_groups]))

    def _note_function(self, value: Any) -> None:
        while isinstance(value, MethodType):
            value = value.__func__
        if isinstance(value, (list, tuple, dict)) and length(value) <= _MANY_FUNCTIONS:
            for inner in members(value):
                if isinstance(inner, (FunctionType, MethodType)):
                    self._note_function(inner)
        elif isinstance(value, FunctionType):
            known = self._functions.setdefault(value.__code__, [])
            if all(value is not f for f in known):
                known.append(value)
                for cell in value.__closure__ or ():
                    self._note_function(step(cell, CELL))

    # ------------------------------------------------------------ names in code

    def _read_code(self, code: CodeType, known: dict[str, Any], owners: dict[str, Any], first: bool) -> None:
        """Picture what the names in a user's function stand for at its start."""
        instructions = instructions_of(code)
        closures = closures_of(code, self._functions.get(code), code in self._made) if code.co_freevars and first else []
        by_name = not self.following.readable and not _BY_NAME.isdisjoint(code.co_names)
        for at, x in enumerate(instructions):
            kind, name = x.opname, x.argval
            if "FAST" in kind and type(name) is tuple:  # two in one, since Python 3.13
                name = name[-1]
            if kind == "LOAD_GLOBAL" and first:
                if name in known:
                    self._follow(known, (Item(name),), name, instructions, at, by_name)
            elif kind == "STORE_GLOBAL" and first:
                self._note(known, (Item(name),), name, known.get(name, GONE))
            elif kind in ("LOAD_DEREF", "STORE_DEREF") and name in code.co_freevars:
                for cells in closures:
                    if kind == "LOAD_DEREF":
                        self._follow(cells[name], (CELL,), name, instructions, at, by_name)
                    else:
                        self._note(cells[name], (CELL,), name, resolve(cells[name], (CELL,)))
            elif kind.startswith("LOAD_FAST") and name in owners:
                owner = owners[name]
                title = owner.__qualname__ if isinstance(owner, type) else type(owner).__name__
                self._follow(owner, (), title, instructions, at, by_name)

    def _follow(self, root: Any, path: tuple[Any, ...], label: str, instructions: list[Any], at: int, by_name: bool) -> None:
        """Note a root and what the code takes of it: attributes, and entries by constant keys. by_name: perhaps also by `getattr`."""
        value = resolve(root, path)
        if value is GONE:
            return
        taken = steps(instructions, at + 1)
        # An object of which an attribute is taken is told by itself, and the attribute on its own; a function that gets it does the same.
        whole = not taken and (by_name or not is_opaque(value))
        self._note(root, path, label, value, whole or not is_instance(value))
        if len(path) == 1:
            self._place(root, path[0], value, whole)
        if whole and not path and is_instance(value):
            self._note(root, ("__dict__",), label, value.__dict__)
        for number, (by, stored) in enumerate(taken):
            if isinstance(value, Differentiable):
                break
            of_module = isinstance(value, Module)
            if of_module or isinstance(value, Optimizer):
                self.meet(value, by)
                if not of_module:
                    break
            if isinstance(value, ModuleType) and is_library_file(value.__dict__.get("__file__") or ""):
                if value is os and by in ("environ", "getenv"):
                    self._note(os, ("environ",), "os.environ", os.environ)
                self._note_function(step(value, by))
                break
            owned = of_module and (by in value.__dict__ or any(by in value.__dict__.get(table, ()) for table in TABLES))
            if not (owned or stored) and type(by) is str and is_computed(value, by):
                break
            owner, value = value, step(value, by)
            if value is GONE and not stored:
                break
            path, label = (*path, by), f"{label}[{by.key!r}]" if type(by) is Item else f"{label}.{by}"
            if isinstance(value, MethodType):
                self._note_function(value)
                break
            if isinstance(value, FunctionType) and step(owner, by) is not value:
                break  # so is what `singledispatchmethod` gives
            if isinstance(value, BuiltinMethodType) and not isinstance(value.__self__, ModuleType):
                break  # made anew at each access, as `append` of a list
            if not (owned or (of_module and stored)):  # a module's own attributes are guarded with the module
                self._note(root, path, label, value, stored or number + 1 == len(taken) or not is_instance(value))
                self._place(owner, by, value, stored or number + 1 == len(taken))
            if stored:
                break

    def _place(self, owner: Any, by: Any, value: Any, whole: bool) -> None:
        self._placed[id(owner), by] = self._placed.get((id(owner), by)) or whole or not isinstance(value, (*MUTABLE, tuple))

    def follow(self, owner: Any, by: Any, label: str, code: CodeType | None, at: int) -> None:
        """What an instruction takes of an object, and the next ones of that; without code, all that lies there."""
        if not self._placed.get((id(owner), by), False):
            self._follow(owner, (by,), label, [] if code is None else instructions_of(code), at, False)

    def note(self, root: Any, path: tuple[Any, ...], label: str, whole: bool | None = None) -> None:
        """A place that is read: what it holds, or only which object that is; by default as `follow`."""
        value = resolve(root, path)
        self._note(root, path, label, value, not is_opaque(value) if whole is None else whole)

    def holds(self, container: Any) -> bool:
        """Whether a container was noted with all that is in it."""
        return id(container) in self._contents

    def meet(self, owner: Any, name: str) -> None:
        """A module or an optimizer of which something is read."""
        if isinstance(owner, Module):
            if id(owner) not in self._selves:
                self._meet(owner)
            self._names.setdefault(id(owner), set()).add(name)
        elif name in ("param_groups", "state"):
            self.looked.add(id(owner))
            self._picture_optimizer(owner)

    def read_function(self, function: FunctionType, given: Sequence[Any] = ()) -> list[Any]:
        """What a function would read of what it is given, though it does not run; the objects that it names itself."""
        code, cells = function.__code__, function.__closure__ or ()
        self._note_function(function)
        owners = {name: value for name, value in zip(code.co_varnames, given) if owns(value)}
        self._read_code(code, function.__globals__, owners, True)
        return [*(function.__globals__.get(name) for name in code.co_names), *(step(cell, CELL) for cell in cells)]

    def _note(self, root: Any, path: tuple[Any, ...], label: str, value: Any, whole: bool = True) -> None:
        """Remember what a place holds: with what is in it (whole), or only which object it is."""
        if not path or (self._held and self._within_held(root, path)):
            return
        self._note_function(value)
        self.following.lookups.met(value)
        key = (id(root), path, whole)
        if key not in self.chains:
            picture = self._picture(value, whole)
            self.chains[key] = (root, label, value, picture)
            if isinstance(value, MUTABLE):
                self._contents.setdefault(id(value), (value, copied(value), root if path[-1] == "__dict__" else value))
            elif whole and not is_plain(value) and type(picture) is not Same and attributes(value) is not None:
                self._contents.setdefault(id(value.__dict__), (value.__dict__, value.__dict__.copy(), value))

    def _picture(self, value: Any, whole: bool) -> Any:
        return freeze(value, without=self._held) if whole else Same(value)

    def _within_held(self, root: Any, path: tuple[Any, ...]) -> bool:
        """Whether a path goes through, or ends at, a place that is an argument of the program."""
        return any(p is not None and p.number in self._held for i in range(len(path)) for p in [place_at(root, path[: i + 1], "")])

    # ------------------------------------------------------------ afterwards

    def looks_at(self, place: Held) -> bool:
        """Whether code that ran may look at what a place holds."""
        return looks_at(place.name, self._kinds, self._users)

    def replaced(self) -> list[Held]:
        """The places that hold other tensors than before, if that is all that `changed` found."""
        return [] if self._culprits else list(self._bound.values())

    def _change(self, label: str, place: Held | None, was: Any, now: Any) -> None:
        """Something is another than it was: it may be that it, or an attribute of it, holds another tensor."""
        if place is not None and can_be_bound(was, now):
            self._bound[place.number] = place
            return
        inside: Any = now if type(now) is dict else attributes(now)
        before = self._contents.get(id(inside), (None, {}, None))[1] if now is was and type(inside) is dict else {}
        changed = [k for k in before if inside.get(k, GONE) is not before[k]] if before and inside.keys() == before.keys() else []
        if changed and all(can_be_bound(before[k], inside[k]) for k in changed):
            self._bound.update((p.number, p) for p in (Held(inside, k, f"{label}.{k}", k) for k in changed))
        else:
            self.filled = self.filled and (is_filled(before, inside) if now is was else was is None or was is GONE)
            self._culprits.append(label)

    def changed(self) -> list[str]:
        """What the traced code changed that a replay would not, all put back; if nothing but tensors in places of others, `replaced`."""
        for (_, path, whole), (root, label, was, picture) in self.chains.items():
            value = resolve(root, path)
            if self._picture(value, whole) != picture and not self.young(root):
                self._change(label, place_at(root, path, label), was, value)
                if value is not was:
                    put_back(root, path, was)
        for container, before, owner in self._contents.values():
            if self._held and isinstance(container, dict):
                before.update({k: v for k, v in items(container) if (id(container), k) in self._held})
            if not alike(container, before) and not self.young(owner):
                refill(container, before)
        for module, plain, tables in self.modules.values():
            for key, was, now in changes_of(module, plain, tables, self._held):
                self._change(f"{type(module).__name__}.{key}", of_module(module, key), was, now)
            restore(module, plain, tables, self._held)
        for optimizer, state, groups in self.optimizers.values():
            self._culprits += reset_optimizer(optimizer, state, groups)
        return self._culprits or [p.label for p in self._bound.values()]

    def foreign(self, tensor: Differentiable) -> None:
        """Raise TraceError if a tensor was there before the trace, or shares memory with one that was: its values may be others later."""
        if tensor._meta is not None or not any(x is tensor for x in gc.get_objects(generation=0)):
            raise foreign(tensor)

    def guard(self, guards: Guards, live: dict[int, set[str]]) -> None:
        """Add a condition for everything that was read. live: of param groups (by id), the entries that are read at each replay."""
        for module, _, tables in self.modules.values():
            for key in {key for table in TABLES for key in tables[table]} - module.__dict__.keys():
                self.following.lookups.lacks(module, module.__dict__, key)
        guards.table(everywhere, "hooks of all modules")
        self.following.lookups.guard(guards, self.young, lambda owner: isinstance(owner, Module))
        for (_, path, whole), (root, label, value, _) in self.chains.items():
            if self.young(root) and (root := giver(root, path[0], self.young)) is None:
                continue
            place = expression(guards.name(root), path)
            if value is GONE:
                guards.names["resolve"] = resolve
                guards.test(f"resolve({guards.name(root)}, {guards.name(path)}) is {guards.name(GONE)}", label)
            else:
                guards.equal(place, value, label, self._held) if whole else guards.same(place, value, label)
        for module, plain, tables in self.modules.values():
            read = self._names.get(id(module), set()) if self.following.tells(module) else None
            guard_module(guards, module, {k: v for k, (v, _) in plain.items()}, tables, self._held, read)
        for optimizer, state, groups in self.optimizers.values():
            guard_optimizer(guards, optimizer, state, groups, {} if id(optimizer) in self.looked else live)
        for optimizer, groups in self.cleared.values():
            if id(optimizer) not in self.optimizers:
                guard_optimizer(guards, optimizer, None, groups, live)
