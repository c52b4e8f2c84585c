"""How `torch.x.y` answers: the modules that stand for PyTorch's, and what each does with a name that is not in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

import gradlab
from gradlab.pytorch import config, report, table, version
from gradlab.pytorch.asking import imports_it, takes_it, within_try
from gradlab.pytorch.operations import ops
from gradlab.pytorch.standing import stand_in
from gradlab.pytorch.table import Verdict
from gradlab.tensor.missing_names import absent

_given: dict[str, Callable[[str], Any] | None] = {}  # the `__getattr__` that a module of gradlab's had itself, by its name


def stands_for(module: str) -> ModuleType:
    """The module that answers for `torch.x.y`: gradlab's own, or a new one that holds what can be found, or stand-ins."""
    if module == "torch":
        made = _facade()
    elif table.verdict(module) is Verdict.HERE:
        made = import_module(table.home(module))
    elif table.verdict(module) in (Verdict.REFUSED, None):  # only where a report is wanted
        made = ModuleType(module)
    else:
        made = _made(module)
    _given.setdefault(made.__name__, vars(made).get("__getattr__"))
    vars(made)["__getattr__"] = answering(module, vars(made))
    return made


def _facade() -> ModuleType:
    """`torch` itself is a module of its own, so that `torch.__version__` is PyTorch's and `gradlab.__version__` stays gradlab's."""
    made = ModuleType("torch", gradlab.__doc__)
    names = {name: value for name, value in vars(gradlab).items() if not (name.startswith("__") or isinstance(value, ModuleType))}
    vars(made).update(names, __version__=version.__version__, __file__=gradlab.__file__, __getattr__=gradlab.__getattr__, __dir__=_listed)
    vars(made).update(__config__=config, ops=ops, torch=made)
    return made


def _listed() -> list[str]:
    """What `torch.x` answers: gradlab's own inner modules and the names that Python gives it lie in `dir(gradlab)`, too, but not here."""
    known = vars(sys.modules["torch"])
    later = {name for name in dir(gradlab) if not name.startswith("__") and name not in vars(gradlab)}
    rooms = {name for name in table.children("torch") if name in known or table.verdict(f"torch.{name}") is Verdict.HERE}
    return sorted({*known, *later, *rooms})


def _made(module: str) -> ModuleType:
    made = ModuleType(module, f"PyTorch's module {module}, as far as gradlab has what is in it.")
    known = vars(made)
    reason = table.inert(module)
    names = table.modules().get(module, ())
    for name in names:
        value = found(module, name)
        if value is None and reason:
            value = stand_in(module, name, reason)
        if value is not None:
            known[name] = value
    known["__all__"] = [name for name in names if name in known]
    known["__file__"] = gradlab.__file__
    return made


def found(module: str, name: str) -> Any:
    """What gradlab has under a name of one of PyTorch's modules, on its path or where the table says; None if nothing."""
    known = table.RENAMED.get(f"{module}.{name}")
    for source, under in [known] if known else [(source, name) for source in table.sources(module, name)]:
        try:
            return _own(import_module(source), under)
        except (AttributeError, ModuleNotFoundError):
            continue
    return None


def _own(source: ModuleType, name: str) -> Any:
    """A module's attribute as it would be if nothing of this were active."""
    if name in vars(source):
        return vars(source)[name]
    own = _given.get(source.__name__, vars(source).get("__getattr__"))
    if own is None:
        raise absent(source.__name__, name)
    return own(name)


def answering(module: str, known: dict[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of the module that stands for one of PyTorch's: a module in it, a name from elsewhere, or an error with advice.

    What is found is kept in the module, so that it is as quick as any other attribute from then on.
    """

    def lookup(name: str) -> Any:
        if name.startswith("__"):
            if name == "__all__":
                return [each for each in table.modules().get(module, ()) if hasattr(sys.modules[module], each)]
            if name == "__path__" and (table.children(module) or table.inert(module)):  # Python asks for it before it imports what is in it
                return []
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: Any
        try:
            value = _value(module, name)
        except AttributeError as error:
            asking = sys._getframe(1)
            value = report.missing(module, name, str(error), asking) if report.active else None
            if value is not None:
                return value
            reason = table.inert(module) if imports_it(asking) else ""
            known_there = name in table.modules().get(module, ()) or (name.startswith("_") and imports_it(asking))
            if not reason and known_there and _may_stay_unused(name, asking):
                reason = str(error).partition(": ")[2] or "it is PyTorch's own machinery"
            if reason:
                return stand_in(module, name, reason)
            if imports_it(asking):  # `from torch import x` would swallow the text
                raise ImportError(f"cannot import name {name!r} from {module!r}: {error}", name=name) from None
            raise
        known[name] = value
        return value

    return lookup


def _may_stay_unused(name: str, asking: FrameType) -> bool:
    """Whether a program that asks for a name of PyTorch's, and does not try whether it is there, may never use it: one that it imports, or
    a class, `x: torch.cuda.MemPool`."""
    return (imports_it(asking) or (name[:1].isupper() and takes_it(asking))) and not within_try(asking)


def _value(module: str, name: str) -> Any:
    if name in table.children(module):
        try:
            return import_module(f"{module}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(str(error)) from None
    try:
        return _own(sys.modules[module], name)
    except AttributeError as error:
        missing = error
    value = found(module, name)
    asked = name in table.modules().get(module, ()) or name.startswith(("is_", "has_"))
    if value is None and asked and table.inert(module):
        value = stand_in(module, name, table.inert(module))
    if value is None and module == "torch" and name in table.modules()[module] and name[:1].isupper():
        value = stand_in(module, name, str(missing).partition(": ")[2])  # programs ask isinstance of PyTorch's inner classes
    if value is None:
        raise missing
    return value
